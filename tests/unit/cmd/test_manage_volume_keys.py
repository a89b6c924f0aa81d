"""``nova-lite-manage volume-key``: master keys of encrypted volumes."""

from __future__ import annotations

import os
import sqlite3
import uuid
from pathlib import Path

import pytest

from nova_lite.base import exceptions, master_keys
from nova_lite.cmd.manage import volume_keys as command
from nova_lite.db.volume import volume_keys
from nova_lite.objects import VolumeType
from tests.support import make
from tests.support.manage import Tool

TYPE = VolumeType(id=str(uuid.uuid4()), name="secret", encryption={"provider": "luks", "control_location": "front-end"})


@pytest.fixture
def file(tool: Tool) -> str:
    """Configure a file that does not exist yet, beside a database."""
    path = str(tool.path / "volume-keys")
    tool.configure(f"[volume]\nencryption_key_file = {path}\n")
    tool("db", "sync")
    return path


def made_keys(tool: Tool, file: str, count: int) -> dict[str, str]:
    """Make keys of volumes. Return their passphrases."""
    conf = make.conf(tool.database)
    conf.set_override("encryption_key_file", file, "volume")
    db = tool.database_of()
    db.conf.set_override("encryption_key_file", file, "volume")
    try:
        for _ in range(count):
            db.write(volume_keys.create, TYPE)
    finally:
        db.close()
    return passphrases(tool, file)


def passphrases(tool: Tool, file: str) -> dict[str, str]:
    masters = master_keys.read(file)
    with sqlite3.connect(tool.path / "db.sqlite") as database:
        rows = database.execute("SELECT id, master_key, wrapped FROM volume_keys").fetchall()
    return {row[0]: masters.unwrap(*row).decode() for row in rows}


def test_file_is_created_once_for_its_owner(tool: Tool, file: str) -> None:
    tool("volume-key", "create")
    before = Path(file).read_bytes()
    assert (os.stat(file).st_mode & 0o777, len(master_keys.read(file).ids)) == (0o600, 1)
    assert "is there already" in tool.fails("volume-key", "create")
    assert Path(file).read_bytes() == before
    other = f"{file}.other"
    tool("volume-key", "create", "--file", other, "--owner", "root")
    assert os.path.exists(other)
    assert "no user nobody-there" in tool.fails(
        "volume-key", "create", "--file", f"{file}.third", "--owner", "nobody-there"
    )


def test_rotation_wraps_all_keys_anew_and_the_old_master_key_is_removed(
    tool: Tool, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "BATCH", 2)
    tool("volume-key", "create")
    (old,) = master_keys.read(file).ids
    known = made_keys(tool, file, 3)
    assert tool.json("volume-key", "list") == [{"id": old, "state": "newest", "keys": 3}]
    assert "is the newest" in tool.fails("volume-key", "remove", old) or "wraps 3 keys" in tool.error
    (rotated,) = tool.json("volume-key", "rotate")
    assert rotated["rewrapped"] == 3
    assert tool.json("volume-key", "list") == [
        {"id": rotated["id"], "state": "newest", "keys": 3},
        {"id": old, "state": "old", "keys": 0},
    ]
    tool("volume-key", "remove", old)
    assert master_keys.read(file).ids == [rotated["id"]]
    assert passphrases(tool, file) == known


def test_added_master_key_is_used_by_its_rotation_only(tool: Tool, file: str) -> None:
    """The file is distributed between the two steps, so that every conductor can read what another one writes."""
    tool("volume-key", "create")
    (old,) = master_keys.read(file).ids
    (added,) = tool.json("volume-key", "add")
    known = made_keys(tool, file, 1)
    assert [row["keys"] for row in tool.json("volume-key", "list")] == [1, 0]
    assert tool.json("volume-key", "rotate", "--to", added["id"])[0]["rewrapped"] == 1
    assert master_keys.read(file).ids == [added["id"], old]
    assert passphrases(tool, file) == known
    assert tool.json("volume-key", "rotate", "--to", added["id"])[0]["rewrapped"] == 0


def test_mistakes_are_one_line(tool: Tool, file: str) -> None:
    assert "No such file" in tool.fails("volume-key", "list")
    tool("volume-key", "create")
    made_keys(tool, file, 1)
    assert "there is no master key x" in tool.fails("volume-key", "rotate", "--to", "x")
    assert "there is no master key x" in tool.fails("volume-key", "remove", "x")
    master_keys.new().write(file)
    states = {row["state"] for row in tool.json("volume-key", "list")}
    assert states == {"newest", "missing"}
    assert "is not in the file" in tool.fails("volume-key", "rotate")
    os.chmod(file, 0o644)
    assert "can be read by others" in tool.fails("volume-key", "list")
    tool.configure()
    assert "is not set" in tool.fails("volume-key", "list")
    assert issubclass(exceptions.VolumeKeyUnavailable, exceptions.NovaLiteException)
