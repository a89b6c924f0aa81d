"""``nova-lite-manage user`` and ``project``."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

import pytest

from nova_lite.api.identity import passwords
from nova_lite.api.identity.content import Content
from nova_lite.db.identity.identity_records import DatabaseStore
from tests.support.control_plane import schema
from tests.support.identity_files import write_files
from tests.support.identity_records import fresh_replica
from tests.support.manage import Tool


class Users(Tool):
    """The tool, which gets passwords on standard input."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        super().__init__(path, capsys)
        shutil.copy(schema(), f"{path}/db.sqlite")

    def configure(self, extra: str = "", database: str | None = None) -> None:
        options = f"[identity]\nusers_file = {self.path}/users.yaml\ntokens_path = {self.path}/identity\n"
        super().configure(f"{extra}\n{options}", database)

    def told(self, password: str, *arguments: str, status: int = 0) -> str:
        self._monkeypatch.setattr(sys, "stdin", io.StringIO(f"{password}\n"))
        return self(*arguments, status=status)

    @property
    def content(self) -> Content:
        database = self.database_of()
        try:
            return fresh_replica(DatabaseStore(database)).content
        finally:
            database.close()

    def matches(self, name: str, password: str) -> bool:
        user = self.content.user_named(name)
        return user is not None and passwords.matches(password, user.password)


@pytest.fixture
def tool(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Users:
    return Users(tmp_path, capsys, monkeypatch)


def test_init_makes_what_is_missing_and_only_that(tool: Users) -> None:
    tool.told("hunter-2", "user", "init")
    tool.told("other", "user", "init")
    assert tool.matches("admin", "hunter-2")
    assert [key.id for key in tool.content.keys] == ["1"]
    (row,) = tool.json("user", "list")
    assert (row["name"], row["enabled"], row["roles"]) == ("admin", True, {"admin": "admin", "system": "admin"})
    assert b"hunter-2" not in (tool.path / "db.sqlite").read_bytes()


def test_an_empty_password_is_refused(tool: Users) -> None:
    tool.told("", "user", "init", status=1)
    assert "cannot be empty" in tool.error
    assert tool.content.users == tool.content.keys == []


def test_users_and_projects(tool: Users) -> None:
    project_id = tool("project", "create", "demo", "--description", "for trying")
    user_id = tool.told("secret", "user", "create", "alice", "--project", "demo")
    assert tool.json("project", "list") == [
        {"id": project_id, "name": "demo", "enabled": True, "description": "for trying"}
    ]
    (row,) = tool.json("user", "list")
    assert (row["id"], row["roles"]) == (user_id, {"demo": "member"})
    tool("user", "grant", "alice", "--project", "demo", "--role", "admin")
    assert tool.content.users[0].roles == {project_id: ["member", "admin"]}
    tool("user", "revoke", "alice", "--project", "demo", "--role", "admin")
    tool("user", "disable", "alice")
    assert not tool.content.users[0].enabled
    disabled_at = tool.content.users[0].tokens_valid_from
    tool("user", "enable", "alice")
    assert 0 < disabled_at <= tool.content.users[0].tokens_valid_from
    tool.told("new", "user", "set-password", "alice")
    assert tool.matches("alice", "new")
    tool("project", "delete", "demo")
    assert tool.content.users[0].roles == {}
    tool("user", "delete", "alice")
    assert tool.json("user", "list") == []


def test_mistakes_are_told_in_one_line(tool: Users) -> None:
    assert tool.json("user", "list") == []
    tool("project", "create", "demo")
    assert "already exists" in tool.fails("project", "create", "demo")
    assert "no user alice" in tool.fails("user", "delete", "alice")
    assert "no project none" in tool.fails("project", "delete", "none")
    assert "--role needs" in tool.fails("user", "create", "alice", "--role", "admin")
    tool("user", "grant", "alice", "--project", "demo", "--role", "king", status=2)


def test_keys_are_rotated(tool: Users) -> None:
    tool.told("secret", "user", "init")
    for _ in range(3):
        tool("user", "rotate-keys")
    assert [key.id for key in tool.content.keys] == ["2", "3", "4"]
    tool("user", "rotate-keys", "--end-tokens")
    assert [key.id for key in tool.content.keys] == ["5"]


def test_files_of_an_earlier_version_are_stored_in_the_database(tool: Users) -> None:
    write_files(tool.path, passwords.hashed("alice's"))
    tool.told("secret", "user", "init")
    assert {row["name"]: row["roles"] for row in tool.json("user", "list")} == {
        "alice": {"demo": "member"},
        "admin": {"admin": "admin", "system": "admin"},
    }
    assert [key.id for key in tool.content.keys] == ["1", "2"]
    (tool.path / "users.yaml").unlink()
    assert tool.matches("alice", "alice's")


def test_files_that_cannot_be_read_stop_the_command(tool: Users) -> None:
    write_files(tool.path, passwords.hashed("alice's"))
    (tool.path / "users.yaml").chmod(0o644)
    assert "chmod 0640" in tool.fails("user", "init")
    assert "chmod 0640" in tool.fails("project", "create", "demo")
    (tool.path / "users.yaml").chmod(0o640)
    assert [row["name"] for row in tool.json("user", "list")] == ["alice"]
