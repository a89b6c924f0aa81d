"""Arguments of ``devstack/ha.sh``, which are checked before it installs anything."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

HA = pathlib.Path(__file__).parents[3] / "devstack" / "ha.sh"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--onyl", "x"], "ha.sh does not take: --onyl x"),
        (["--interrupt", "--only"], "ha.sh: --only needs a value."),
        (["--upgrade", "--only", "x"], "ha.sh does not take: --only x"),
        (["--upgrade", "--stay", "--from"], "ha.sh: --from needs a value."),
        (["--from", "HEAD"], "ha.sh does not take: --from HEAD"),
    ],
)
def test_wrong_argument_is_named_before_anything_is_done(arguments: list[str], said: str) -> None:
    done = subprocess.run([HA, *arguments], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode and done.stderr.splitlines()[-1] == said and "Installing" not in done.stdout


def test_help_says_what_the_script_does() -> None:
    done = subprocess.run([HA, "--help"], capture_output=True, text=True, timeout=30, check=True)
    assert "--upgrade" in done.stderr and not done.stdout
