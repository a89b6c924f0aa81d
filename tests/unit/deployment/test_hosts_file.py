"""The machine's own name in /etc/hosts: written where it does not resolve, and taken away again."""

from __future__ import annotations

import pathlib
import subprocess

TOP = pathlib.Path(__file__).parents[3]
OTHERS = "127.0.0.1 localhost\n10.0.0.7 printer  # the grey one"

#: ``getent`` is the system's, so the file alone is looked at.
SCRIPT = """
set -euo pipefail
hostname() { echo box; }
die() { echo "$*" >&2; exit 1; }
source devstack/lib/hosts.sh
resolves() { grep -qw "$1" "$HOSTS_FILE"; }
"$@"
"""


def run(path: pathlib.Path, function: str) -> None:
    done = subprocess.run(
        ["bash", "-c", SCRIPT, "test", function],
        cwd=TOP,
        env={"PATH": "/usr/bin:/bin", "HOSTS_FILE": str(path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr


def test_a_line_is_written_once_and_taken_away(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "hosts"
    path.write_text(OTHERS)
    inode = path.stat().st_ino
    for _ in range(2):
        run(path, "name_this_machine")
        assert path.read_text() == f"{OTHERS}\n127.0.1.1 box # written by nova_lite's devstack\n"
    for _ in range(2):
        run(path, "forget_this_machine")
        assert path.read_text() == OTHERS + "\n"
    assert path.stat().st_ino == inode


def test_a_name_that_resolves_is_left_alone(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("10.0.0.1 box\n")
    for function in ("name_this_machine", "forget_this_machine"):
        run(path, function)
        assert path.read_text() == "10.0.0.1 box\n"


def test_both_scripts_do_it() -> None:
    assert "name_this_machine" in (TOP / "devstack/stack.sh").read_text()
    assert "forget_this_machine" in (TOP / "devstack/unstack.sh").read_text()
    assert "does not resolve" not in (TOP / "devstack/lib/packages.sh").read_text()
