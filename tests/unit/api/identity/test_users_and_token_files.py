"""Users file, keys and revocations on disk."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import pytest

from nova_lite.api.identity import directory, passwords
from nova_lite.api.identity.directory import Directory, User
from nova_lite.api.identity.tokens import Keys, Tokens, new_token
from nova_lite.base import exceptions


def make(path: Path) -> Directory:
    users = Directory(str(path / "users.yaml"))
    with users.changing() as content:
        project = directory.add_project(content, "demo")
        directory.grant(directory.add_user(content, "alice", "secret", project), project, "member")
    return users


def test_password_hash_matches_its_password_only() -> None:
    stored = passwords.hashed("pässword")
    assert "pässword" not in stored
    assert passwords.matches("pässword", stored)
    assert not passwords.matches("password", stored)
    assert not passwords.matches("pässword", None)
    assert not passwords.matches("\ud800", stored)
    assert passwords.hashed("pässword") != stored
    for wrong in ("", "secret", "scrypt$1$2$3$x$y", stored.replace("scrypt", "plain"), stored[:-9]):
        assert not passwords.is_hash(wrong)


def test_users_file_is_private_and_has_no_passwords(tmp_path: Path) -> None:
    users = make(tmp_path)
    path = Path(users.path)
    assert path.stat().st_mode & 0o777 == 0o640
    assert "secret" not in path.read_text()
    assert [user.name for user in Directory(users.path).load().users] == ["alice"]
    assert os.listdir(tmp_path) == ["users.yaml"]


def test_changed_users_file_is_read_again(tmp_path: Path) -> None:
    users = make(tmp_path)
    assert len(users.content.users) == 1
    with Directory(users.path).changing() as content:
        content.users.clear()
    assert users.content.users == []


def test_broken_edit_keeps_the_previous_content(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    users = make(tmp_path)
    before = users.content
    Path(users.path).write_text("users: [")
    with caplog.at_level(logging.ERROR):
        assert users.content == users.content == before
    assert len(caplog.records) == 1
    Path(users.path).unlink()
    assert users.content == before


def test_broken_edit_is_logged_without_secrets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    users = make(tmp_path)
    path = Path(users.path)
    path.write_text(path.read_text().replace("  password: scrypt", "  password: [scrypt"))
    with caplog.at_level(logging.ERROR), pytest.raises(exceptions.ConfigurationError, match="is not YAML") as caught:
        users.load()
    assert "$8$1$" not in f"{caught.value} {caught.value.__cause__} {caplog.text}"


def test_failed_change_is_not_written(tmp_path: Path) -> None:
    users = make(tmp_path)
    before = Path(users.path).read_bytes()
    with pytest.raises(exceptions.Conflict), users.changing() as content:
        content.projects.clear()
        directory.add_user(content, "alice", "x")
    assert Path(users.path).read_bytes() == before


@pytest.mark.parametrize(
    "text",
    [
        "- a",
        "users: 5",
        "nonsense: 5",
        "users: [{id: a, name: a, password: plain}]",
        "projects: [{id: a, name: a}, {id: a, name: b}]",
        "projects: [{id: a, name: a}, {id: b, name: a}]",
        "!!python/object/apply:os.system [true]",
    ],
)
def test_invalid_users_file_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "users.yaml"
    path.write_text(text)
    path.chmod(0o640)
    with pytest.raises(exceptions.ConfigurationError, match="users_file") as caught:
        Directory(str(path)).load()
    assert "\n" not in caught.value.message


def test_unknown_roles_are_refused(tmp_path: Path) -> None:
    users = make(tmp_path)
    with pytest.raises(ValueError, match="the role king"), users.changing() as content:
        content.users[0].roles = {content.projects[0].id: ["king"]}


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o666])
def test_users_file_with_open_permissions_is_refused(tmp_path: Path, mode: int) -> None:
    users = make(tmp_path)
    os.chmod(users.path, mode)
    with pytest.raises(exceptions.ConfigurationError, match="chmod 0640"):
        Directory(users.path).load()


@pytest.mark.parametrize("name", ["", " a", "a ", "a/b", "a\nb", "x" * 256])
def test_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(exceptions.InvalidInput):
        directory.add_project(directory.UsersFile(), name)


def test_role_implies_lower_roles() -> None:
    assert directory.implied(["admin"]) == ["admin", "manager", "member", "reader"]
    assert directory.implied(["reader", "member"]) == ["member", "reader"]
    assert directory.implied(["service"]) == ["service"]
    assert directory.implied(["service", "reader"]) == ["reader", "service"]
    assert directory.implied([]) == []


def test_roles_are_granted_and_revoked() -> None:
    content = directory.UsersFile()
    project = directory.add_project(content, "demo")
    user = User(id="u", name="u", password="")
    content.users.append(user)
    directory.grant(user, project, "reader")
    directory.grant(user, project, "reader")
    assert user.roles == {project.id: ["reader"]}
    with pytest.raises(exceptions.NotFound):
        directory.revoke(user, project, "admin")
    directory.revoke(user, project, "reader")
    assert user.roles == {}


def test_keys_are_private_and_rotate(tmp_path: Path) -> None:
    tokens = Tokens(str(tmp_path))
    tokens.keys.rotate(2)
    first = tokens.seal(new_token("u", "p", 60))
    assert tokens.open(first) is not None
    tokens.keys.rotate(2)
    assert Keys(str(tmp_path)).numbers() == [2, 1]
    second = tokens.seal(new_token("u", "p", 60))
    assert tokens.open(first) is not None
    tokens.keys.rotate(2)
    assert tokens.keys.numbers() == [3, 2]
    assert tokens.open(first) is None
    assert tokens.open(second) is not None
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "keys").iterdir()} == {0o600}


def test_unusable_keys_are_refused(tmp_path: Path) -> None:
    keys = Keys(str(tmp_path))
    with pytest.raises(exceptions.ConfigurationError, match="No such file"):
        keys.fernet()
    keys.rotate(3)
    (tmp_path / "keys" / "1").chmod(0o640)
    with pytest.raises(exceptions.ConfigurationError, match="chmod 0600"):
        keys.fernet()
    (tmp_path / "keys" / "1").chmod(0o600)
    (tmp_path / "keys" / "1").write_text("short")
    with pytest.raises(exceptions.ConfigurationError, match="not a Fernet key"):
        keys.fernet()
    (tmp_path / "keys" / "1").unlink()
    with pytest.raises(exceptions.ConfigurationError, match="user init"):
        keys.fernet()


def test_revocation_is_stored_for_a_lifetime_after_the_token_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = Tokens(str(tmp_path), 60)
    tokens.keys.rotate(3)
    old, new = new_token("u", None, 60), new_token("u", None, 60)
    text = tokens.seal(new)
    old.expires_at = time.time() - 1
    tokens.revoke(old)
    tokens.revoke(new)
    assert Tokens(str(tmp_path)).open(text) is None
    assert len(os.listdir(tmp_path / "revoked")) == 2
    later = time.monotonic() + 61
    monkeypatch.setattr(time, "monotonic", lambda: later)
    tokens.revoke(new)
    assert os.listdir(tmp_path / "revoked") == [new.audit_ids[0]]


def test_revoked_token_stays_void_when_the_clock_jumps_and_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, right = Tokens(str(tmp_path)), time.time
    tokens.keys.rotate(3)
    token = new_token("u", None, 3600)
    text = tokens.seal(token)
    tokens.revoke(token)
    monkeypatch.setattr(time, "time", lambda: right() + 7 * 86400)
    tokens.revoke(new_token("other", None, 3600))
    monkeypatch.setattr(time, "time", right)
    assert tokens.open(text) is None


def test_token_of_a_clock_that_was_ahead_is_void(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, right = Tokens(str(tmp_path)), time.time
    tokens.keys.rotate(3)
    monkeypatch.setattr(time, "time", lambda: right() + 7 * 86400)
    text = tokens.seal(new_token("u", None, 3600))
    assert tokens.open(text) is not None
    monkeypatch.setattr(time, "time", right)
    assert tokens.open(text) is None
