"""Import of the files in which earlier versions had users, projects and keys."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from oslo_config import cfg

from nova_lite.api.identity import passwords, users_file
from nova_lite.api.identity.authority import FirstContent
from nova_lite.api.identity.replica import Replica
from nova_lite.api.identity.tokens import Tokens, new_token
from nova_lite.base import exceptions
from tests.support.api_client import make_conf
from tests.support.identity_files import write_files
from tests.support.identity_records import FRESH, MemoryStore

HASH = passwords.hashed("secret")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_files(tmp_path, HASH)


@pytest.fixture
def conf(tmp_path: Path) -> cfg.ConfigOpts:
    return make_conf(tmp_path, f"[identity]\nusers_file = {tmp_path}/users.yaml\ntokens_path = {tmp_path}/identity\n")


def test_files_are_stored_in_an_empty_database_once(
    path: Path, conf: cfg.ConfigOpts, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            content = Replica(store, FirstContent(conf), FRESH).content
            (user,) = content.users
            assert (user.name, user.roles, user.password) == ("alice", {"p": ["member"]}, HASH)
            assert [project.name for project in content.projects] == ["demo"]
            assert [key.id for key in content.keys] == ["1", "2"]
    (record,) = caplog.records
    assert "Stored 1 users and 1 projects in the database" in record.getMessage()
    assert store.version == 1


def test_token_of_an_imported_key_is_valid_and_a_revoked_one_is_not(path: Path, conf: cfg.ConfigOpts) -> None:
    good, revoked = new_token("u", "p", 60), new_token("u", "p", 60)
    (path / "identity" / "revoked").mkdir()
    mark = path / "identity" / "revoked" / revoked.audit_ids[0]
    mark.touch()
    os.utime(mark, (revoked.expires_at, revoked.expires_at))
    tokens = Tokens(Replica(MemoryStore(), FirstContent(conf), FRESH))
    assert tokens.open(tokens.seal(good)) == good
    assert tokens.open(tokens.seal(revoked)) is None


def test_database_with_users_is_not_overwritten_by_the_files(path: Path, conf: cfg.ConfigOpts) -> None:
    store = MemoryStore()
    write_files(path, HASH, name="bob")
    assert [user.name for user in Replica(store, FirstContent(conf), FRESH).content.users] == ["bob"]
    write_files(path, HASH, name="carol")
    assert [user.name for user in Replica(store, FirstContent(conf), FRESH).content.users] == ["bob"]


def test_import_that_loses_a_race_uses_the_records_of_the_winner(path: Path, conf: cfg.ConfigOpts) -> None:
    store = MemoryStore()
    first = FirstContent(conf)

    def slow() -> object:
        found = first()
        Replica(store, first, FRESH).refresh()
        write_files(path, HASH, name="late")
        return found

    replica = Replica(store, slow, FRESH)  # type: ignore[arg-type]
    assert [user.name for user in replica.content.users] == ["alice"]
    assert store.version == 1


def test_cause_of_a_missing_import_is_logged_once(
    tmp_path: Path, conf: cfg.ConfigOpts, caplog: pytest.LogCaptureFixture
) -> None:
    replica = Replica(MemoryStore(), FirstContent(conf), FRESH)
    assert replica.content.users == replica.content.users == []
    write_files(tmp_path, HASH)
    (tmp_path / "users.yaml").chmod(0o644)
    assert replica.content.users == replica.content.users == []
    messages = [record.getMessage() for record in caplog.records]
    assert ["run nova-lite-manage user init" in messages[0], "run chmod 0640" in messages[1]] == [True, True]
    assert len(messages) == 2
    (tmp_path / "users.yaml").chmod(0o640)
    assert len(replica.content.users) == 1


def test_broken_file_is_described_without_secrets(path: Path) -> None:
    file = path / "users.yaml"
    file.write_text(file.read_text().replace("password: scrypt", "password: [scrypt"))
    with pytest.raises(exceptions.ConfigurationError, match="is not YAML") as caught:
        users_file.read(str(file))
    assert "$8$1$" not in f"{caught.value} {caught.value.__cause__}"


@pytest.mark.parametrize(
    "text",
    [
        "- a",
        "users: 5",
        "nonsense: 5",
        "users: [{id: a, name: a, password: plain}]",
        f"users: [{{id: a, name: a, password: {HASH}, roles: {{p: [king]}}}}]",
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
        users_file.read(str(path))
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o666])
def test_users_file_with_open_permissions_is_refused(path: Path, mode: int) -> None:
    (path / "users.yaml").chmod(mode)
    with pytest.raises(exceptions.ConfigurationError, match="chmod 0640"):
        users_file.read(str(path / "users.yaml"))


def test_unusable_keys_are_refused(path: Path) -> None:
    tokens_path, key = str(path / "identity"), path / "identity" / "keys" / "1"
    key.chmod(0o640)
    with pytest.raises(exceptions.ConfigurationError, match="chmod 0600"):
        users_file.read_keys(tokens_path)
    key.chmod(0o600)
    key.write_text("short")
    with pytest.raises(exceptions.ConfigurationError, match="not a Fernet key"):
        users_file.read_keys(tokens_path)
    key.write_bytes(Fernet.generate_key())
    assert [item.id for item in users_file.read_keys(tokens_path)] == ["1", "2"]
    assert users_file.read_keys(str(path / "nowhere")) == []
