"""A user of the controller's system who is neither root nor one of the daemons runs ``nova-lite-manage``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.other_user import as_nobody

SECRET = "a-password-of-the-database"
COMMANDS = [
    ("service", "list"),
    ("user", "list"),
    ("keys", "list"),
    ("keys", "create", "compute", "h1"),
    ("user", "rotate-keys"),
    ("db", "sync"),
    ("db", "version"),
    ("image", "list"),
]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Path]:
    """Make configuration, keys and state as the set-up makes them: others may enter the directory, and read no file."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root becomes another user")
    for path in (tmp_path, *tmp_path.parents):
        if path.owner() == "root" and "pytest-of-root" in path.parts:
            path.chmod(0o755)
    state, keys = tmp_path / "state", tmp_path / "keys"
    state.mkdir(mode=0o750)
    keys.mkdir(mode=0o750)
    (keys / "manage.controller.pem").write_text(SECRET)
    (keys / "manage.controller.pem").chmod(0o600)
    config = tmp_path / "nova-lite.conf"
    config.write_text(
        f"[DEFAULT]\nstate_path = {state}\ntransport_url = rabbit://u:{SECRET}@127.0.0.1:1/\n"
        f"[database]\nconnection = mysql+pymysql://u:{SECRET}@127.0.0.1:1/x\n[rpc]\nkeys_directory = {keys}\n"
    )
    config.chmod(0o640)
    yield tmp_path


def run(machine: Path, command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-W", "ignore", "-m", "nova_lite.cmd.manage"]
    return subprocess.run(
        as_nobody(machine.parent, [*whole, "--config-file", str(machine / "nova-lite.conf"), *command]),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.getcwd(), "PYTHONDONTWRITEBYTECODE": "1"},
    )


def check_refused(machine: Path, command: tuple[str, ...], why: str) -> None:
    """Check that a command ends with one line about ``why``, shows no secret, and leaves no trace."""
    before = sorted(machine.rglob("*"))
    result = run(machine, command)
    said = result.stdout + result.stderr
    assert result.returncode != 0, said
    assert SECRET not in said
    assert "Traceback" not in said
    assert len(result.stderr.strip().splitlines()) == 1, said
    assert why in said
    assert sorted(machine.rglob("*")) == before


@pytest.mark.parametrize("command", [("service", "list"), ("config", "check")], ids=" ".join)
def test_other_user_does_not_read_the_configuration(machine: Path, command: tuple[str, ...]) -> None:
    check_refused(machine, command, "Failed to open some config files")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_other_user_with_a_configuration_reaches_neither_keys_nor_data(machine: Path, command: tuple[str, ...]) -> None:
    config = machine / "nova-lite.conf"
    text = config.read_text().replace(f"mysql+pymysql://u:{SECRET}@127.0.0.1:1/x", f"sqlite:///{machine}/state/db")
    config.write_text(text.replace(f"u:{SECRET}@", ""))
    config.chmod(0o644)
    (machine / "state").chmod(0o700)
    (machine / "keys").chmod(0o700)
    check_refused(machine, command, "Permission denied")
