"""``nova-lite-manage backup``: what is written comes back, and nothing that is incomplete or wrong is restored."""

from __future__ import annotations

import contextlib
import datetime
import gzip
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from nova_lite.base.exceptions import ConfigurationError
from nova_lite.cmd.manage import backup, programs
from nova_lite.db.core.engine import utcnow
from nova_lite.db.core.models import HostLease, Service
from nova_lite.db.hosts import leases, services
from nova_lite.db.migrations import schema
from nova_lite.db.upkeep import dump
from tests.support import every_row, make
from tests.support.manage import Tool, report


@pytest.fixture
def settings(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fill the database, and make a directory in the place of /etc/nova-lite. There is no broker."""
    with dump.writing(make.conf(tool.database)) as connection:
        every_row.fill(connection)
    monkeypatch.setattr(backup.shutil, "which", lambda name: None if name == "rabbitmqctl" else f"/usr/bin/{name}")
    directory = tool.path / "etc"
    monkeypatch.setattr(backup, "CONFIGURATION", str(directory))
    (directory / "keys").mkdir(parents=True)
    for name, mode in (("nova-lite.conf", 0o640), ("keys/api.h.key", 0o600)):
        (directory / name).write_text(f"content of {name}\n")
        (directory / name).chmod(mode)
    return directory


def content(url: str) -> dict[str, list[str]]:
    with dump.snapshot(make.conf(url)) as connection:
        return {table.name: list(dump.lines(connection, table)) for table in dump.tables()}


def create(tool: Tool, settings: Path, *options: str) -> Path:
    file = tool.path / "backup"
    tool("backup", "create", str(file), *options)
    return file


def elsewhere(tool: Tool) -> str:
    """Point the configuration at a database that does not exist yet, and return its URL."""
    url = f"sqlite:///{tool.path}/new/db.sqlite"
    tool.configure(database=url)
    return url


def test_database_and_files_of_a_backup_come_back_on_another_machine(tool: Tool, settings: Path) -> None:
    before = content(tool.database)
    file = create(tool, settings)
    assert file.stat().st_mode & 0o777 == 0o600
    (shown,) = tool.json("backup", "check", str(file))
    assert (shown["files"], shown["broker"]) == (2, False)
    assert shown["rows"] == sum(len(lines) - 1 for lines in before.values())
    url = elsewhere(tool)
    tool("backup", "restore", str(file), "--root", str(tool.path / "root"))
    for path in ("nova-lite.conf", "keys/api.h.key"):
        copy = Path(f"{tool.path}/root{settings}/{path}")
        assert copy.read_text() == f"content of {path}\n"
        assert copy.stat().st_mode == (settings / path).stat().st_mode
    after = content(url)
    others = {"audit_events", "host_leases", "restarts"}
    assert {name: after[name] for name in after if name not in others} == {
        name: before[name] for name in before if name not in others
    }
    assert len(after["audit_events"]) == len(before["audit_events"]) + 1, "the restore itself is in the audit log"


def test_promises_of_hosts_are_not_restored(tool: Tool, settings: Path) -> None:
    """A host may have taken its promise back since the backup. Then its guard has left, and its guests run."""
    report(tool, "h1")
    lease = {"host": "h1", "boot_id": "b", "number": 7, "seconds": 50.0, "guests": ["u"], "fenced": "", "checks": []}
    with dump.writing(make.conf(tool.database)) as connection:
        connection.execute(sa.update(Service).where(Service.host == "h1").values(boot_id="b"))
        connection.execute(sa.insert(HostLease).values(lease))
    (armed,) = watched_hosts(tool)
    assert armed.host == "h1"
    file = create(tool, settings)
    tool("backup", "restore", str(file), "--only", "database", "--overwrite")
    assert watched_hosts(tool) == []


def watched_hosts(tool: Tool) -> list[leases.Watched]:
    with contextlib.closing(tool.database_of()) as database:
        return database.read(leases.watched)


def test_encrypted_backup_shows_nothing_and_needs_its_passphrase(tool: Tool, settings: Path) -> None:
    right, wrong = tool.path / "right", tool.path / "wrong"
    right.write_text("correct horse\n")
    wrong.write_text("battery staple\n")
    file = create(tool, settings, "--passphrase-file", str(right))
    assert b"content of" not in file.read_bytes() and not file.read_bytes().startswith(b"\x1f\x8b")
    assert "an encrypted one needs --passphrase-file" in tool.fails("backup", "check", str(file))
    assert "gpg failed" in tool.fails("backup", "check", str(file), "--passphrase-file", str(wrong))
    tool("backup", "check", str(file), "--passphrase-file", str(right))
    assert sorted(path.name for path in tool.path.iterdir() if path.name.startswith(".nova")) == []


@pytest.mark.parametrize("share", [0.2, 0.6, 0.9])
def test_backup_that_was_cut_off_is_refused(tool: Tool, settings: Path, share: float) -> None:
    file = create(tool, settings)
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * share)])
    assert "is not a" in tool.fails("backup", "check", str(file))


def test_backup_with_a_changed_part_is_refused(tool: Tool, settings: Path) -> None:
    file = create(tool, settings)
    plain = gzip.decompress(file.read_bytes())
    file.write_bytes(gzip.compress(plain.replace(b"content of keys", b"CONTENT of keys")))
    assert f"is damaged at files{settings}/keys/api.h.key" in tool.fails("backup", "check", str(file))


def test_file_outside_of_the_root_is_refused(tool: Tool, settings: Path) -> None:
    file = create(tool, settings)
    data = b"x"
    name = "files/../../outside"
    with tarfile.open(file) as archive:
        manifest = json.load(archive.extractfile(backup.MANIFEST))  # type: ignore[arg-type]
    digest = backup.hashlib.sha256(data).hexdigest()
    manifest["parts"] = {name: {"sha256": digest, "mode": 0o600, "user": "root", "group": "root"}}
    with tarfile.open(file, "w:gz") as archive:
        for part, text in ((name, data), (backup.MANIFEST, json.dumps(manifest).encode())):
            info = tarfile.TarInfo(part)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text))
    root = tool.path / "a" / "b"
    said = tool.fails("backup", "restore", str(file), "--only", "files", "--root", str(root))
    assert "outside of its directories" in said
    assert not (tool.path / "outside").exists()


def test_existing_file_is_not_replaced(tool: Tool, settings: Path) -> None:
    file = tool.path / "backup"
    file.write_text("precious")
    assert "exists already" in tool.fails("backup", "create", str(file))
    assert file.read_text() == "precious"


def test_backup_into_a_directory_that_is_missing_names_the_directory(tool: Tool, settings: Path) -> None:
    error = tool.fails("backup", "create", str(tool.path / "none" / "backup"))
    assert f"{tool.path}/none is not a directory" in error


def test_database_with_rows_is_replaced_only_on_request_and_not_under_a_conductor(tool: Tool, settings: Path) -> None:
    file = create(tool, settings)
    before = content(tool.database)
    restore = ("backup", "restore", str(file), "--only", "database")
    assert "--overwrite" in tool.fails(*restore)
    with dump.writing(make.conf(tool.database)) as connection:
        row = {"uuid": "u", "host": "c9", "binary": services.CONDUCTOR, "topic": "conductor"}
        connection.execute(sa.insert(Service).values(**row, created_at=utcnow(), last_seen_up=utcnow()))
    assert "the conductor of c9 has reported" in tool.fails(*restore, "--overwrite")
    with dump.writing(make.conf(tool.database)) as connection:
        connection.execute(sa.update(Service).values(last_seen_up=None))
    tool(*restore, "--overwrite")
    assert content(tool.database)["services"] == before["services"]


def test_backup_of_another_schema_is_refused_with_what_to_do(
    tool: Tool, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = create(tool, settings)
    elsewhere(tool)
    monkeypatch.setattr(schema, "head", lambda: "9999")
    said = tool.fails("backup", "restore", str(file), "--only", "database")
    assert "Restore it with the version that wrote it, then upgrade." in said


def test_killed_backup_leaves_no_file_under_its_name(tool: Tool, settings: Path) -> None:
    """The name appears only when everything is on the disk."""
    file = tool.path / "backup"
    command = [sys.executable, "-m", "nova_lite.cmd.manage", "--config-file", str(tool.config), "backup", "create"]
    process = subprocess.Popen([*command, str(file), "--include", str(settings)], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list(tool.path.glob(".nova-lite-backup-*")):
        assert process.poll() is None and time.monotonic() < deadline
    os.kill(process.pid, signal.SIGKILL)
    process.wait(30)
    assert not file.exists()
    create(tool, settings)
    tool("backup", "check", str(file))


def test_linked_directory_is_in_the_backup(tool: Tool, settings: Path) -> None:
    linked = tool.path / "elsewhere"
    linked.mkdir()
    (linked / "server-key.pem").write_text("secret\n")
    (linked / "back").symlink_to(settings)
    (settings / "tls").symlink_to(linked)
    (settings / ".new-unfinished").write_text("half")
    file = create(tool, settings)
    with tarfile.open(file) as archive:
        names = sorted(name for name in archive.getnames() if name.startswith("files"))
    assert names == [f"files{settings}/{name}" for name in ("keys/api.h.key", "nova-lite.conf", "tls/server-key.pem")]
    (settings / "lost").symlink_to(tool.path / "nowhere")
    said = tool.fails("backup", "create", f"{file}-2")
    assert f"{settings}/lost is no file: it is a broken link" in said


def test_conductor_that_reports_seldom_is_not_overwritten(tool: Tool, settings: Path) -> None:
    file = create(tool, settings)
    tool.configure("report_interval = 100\nservice_down_time = 300")
    with dump.writing(make.conf(tool.database)) as connection:
        row = {"uuid": "u", "host": "c9", "binary": services.CONDUCTOR, "topic": "conductor"}
        seen = datetime.datetime.now(datetime.UTC).replace(tzinfo=None) - datetime.timedelta(seconds=90)
        connection.execute(sa.insert(Service).values(**row, created_at=seen, last_seen_up=seen))
    said = tool.fails("backup", "restore", str(file), "--only", "database", "--overwrite")
    assert "the conductor of c9 has reported in the last 300 s" in said


def test_accounts_cannot_be_restored_without_the_broker(tool: Tool, settings: Path) -> None:
    with pytest.raises(ConfigurationError, match="the program rabbitmqctl-of-nobody is missing"):
        programs.run("rabbitmqctl-of-nobody", seconds=1)
