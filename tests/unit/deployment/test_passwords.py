"""The page about passwords of broker and database: its commands, and what the set-up does with their results."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nova_lite.cmd.setup import admission, controller, machine, rotation, settings
from nova_lite.rpc.broker import hashed
from tests.support import pages

PAGE = "howto/change-passwords.md"
URL = "transport_url = rabbit://nova-lite-{role}:{password}@127.0.0.1:5672/nova-lite\n"
#: Roles of accounts by file. Two daemons share an account.
ROLES = {
    "api": "api",
    "conductor": "conductor",
    "novncproxy": "console",
    "serialproxy": "console",
    "spicehtml5proxy": "console",
    "manage": "manage",
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory with files that have accounts, and comments and other options."""
    for name, role in ROLES.items():
        text = "[DEFAULT]\n# transport_url = rabbit://x:y@z\n" + URL.format(role=role, password=f"old-{role}")
        (tmp_path / f"{name}.conf").write_text(text)
        (tmp_path / f"{name}.conf").chmod(0o640)
    with open(tmp_path / "conductor.conf", "a", encoding="utf-8") as file:
        file.write("[database]\nconnection = mysql+pymysql://nova_lite:old-database@127.0.0.1/nova_lite\n")
    (tmp_path / "nova-lite.conf").write_text("[DEFAULT]\nhost = h1\n")
    for module in (machine, controller, rotation):
        monkeypatch.setattr(module, "CONFIGURATION", tmp_path)
    return tmp_path


@pytest.fixture
def execute(files: Path) -> Callable[[list[str]], None]:
    def run(commands: list[str]) -> None:
        text = "\n".join(["set -euo pipefail", *commands]).replace("/etc/nova-lite", str(files))
        subprocess.run(["bash", "-c", text], check=True)

    return run


def passwords(files: Path) -> dict[str, str]:
    found = {
        name: re.findall(r"^transport_url = rabbit://[^:]*:([^@]*)@", text, re.MULTILINE)
        for name, text in ((path.stem, path.read_text()) for path in files.glob("*.conf"))
    }
    return {name: values[0] for name, values in found.items() if values}


def test_commands_of_the_page_write_a_new_password_for_each_account(
    files: Path, execute: Callable[[list[str]], None]
) -> None:
    of_the_broker, of_the_database, set_up = pages.blocks(PAGE, "On the controller")
    before = {path: path.read_text() for path in files.iterdir()}
    execute(of_the_broker)
    new = passwords(files)
    assert set(new) == set(ROLES) and all(re.fullmatch("[0-9a-f]{48}", password) for password in new.values())
    assert new["novncproxy"] == new["serialproxy"] and len(set(new.values())) == len(set(ROLES.values()))
    for path, text in before.items():
        assert re.sub("[0-9a-f]{48}", "", path.read_text()) == re.sub(r"old-(?!database)\w+", "", text)
        assert path.suffix != ".conf" or path.name == "nova-lite.conf" or path.stat().st_mode & 0o777 == 0o640
    execute(of_the_database)
    connection = machine.setting(files / "conductor.conf", "database", "connection")
    assert re.fullmatch(r"mysql\+pymysql://nova_lite:[0-9a-f]{48}@127.0.0.1/nova_lite", connection or "")
    assert passwords(files) == new
    assert set_up[0] in [
        line
        for block in pages.blocks("howto/install.md", "A controller with one command")
        for line in (entry.rpartition("/")[2] for entry in block)
    ]


def test_set_up_gives_the_broker_and_the_database_the_passwords_of_the_files(
    files: Path, execute: Callable[[list[str]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    (files / "scheduler.conf").write_text("[DEFAULT]\n" + URL.format(role="scheduler", password="old"))
    (files / "registrar.conf").write_text((files / "manage.conf").read_text())
    for block in pages.blocks(PAGE, "On the controller")[:2]:
        execute(block)
    new = passwords(files)
    assert {account.role: account.password for account in controller.accounts("h1")} == {
        role: new[name] for name, role in {**ROLES, "scheduler": "scheduler"}.items()
    }
    said: list[str] = []
    monkeypatch.setattr(machine, "run", lambda *command, given="", **_: said.append(given) or "")
    controller._create_database(settings.Settings("127.0.0.1", "mariadb", "r", "c", "", "h1"))
    connection = machine.setting(files / "conductor.conf", "database", "connection") or ""
    assert f"ALTER USER 'nova_lite'@'localhost' IDENTIFIED BY '{connection.split(':')[2].split('@')[0]}';" in said[0]


def test_host_sends_the_password_that_an_operator_has_written(
    files: Path, execute: Callable[[list[str]], None]
) -> None:
    url = URL.format(role="compute.h1", password="old-p%40ssword")
    (files / "compute.conf").write_text(f"[DEFAULT]\n{url}[network]\n")
    memory = files / "join.json"
    admission._store(memory, "h1", "old-p@ssword")
    assert not admission.adopt_password(memory, files / "compute.conf")
    (commands,) = pages.blocks(PAGE, "On a compute host")
    execute(commands[:2])
    new = passwords(files)["compute"]
    assert re.fullmatch("[0-9a-f]{48}", new) and url.split(":old")[0] in (files / "compute.conf").read_text()
    assert admission.adopt_password(memory, files / "compute.conf")
    known = admission.memory(memory)
    assert known is not None and (known.host, known.password) == ("h1", new) and known.password_hash != hashed(new)
    assert memory.stat().st_mode & 0o777 == 0o600
    assert not admission.adopt_password(files / "missing.json", files / "compute.conf")
