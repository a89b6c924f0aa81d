"""Master keys: what they wrap, and the file that has them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nova_lite.base import exceptions, master_keys
from nova_lite.base.master_keys import MasterKeys, Unwrappable


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "volume-keys")


def test_secret_is_unwrapped_under_its_name_alone() -> None:
    keys = master_keys.new()
    key_id, wrapped = keys.wrap("volume", b"secret")
    assert key_id == keys.ids[0]
    assert "secret" not in wrapped
    assert keys.unwrap("volume", key_id, wrapped) == b"secret"
    for name, known, text in (
        ("another", key_id, wrapped),
        ("volume", "unknown", wrapped),
        ("volume", key_id, wrapped[::-1]),
        ("volume", key_id, ""),
    ):
        with pytest.raises(Unwrappable):
            keys.unwrap(name, known, text)


def test_secret_of_an_older_key_is_unwrapped_after_a_rotation() -> None:
    old = master_keys.new()
    key_id, wrapped = old.wrap("volume", b"secret")
    both = master_keys.new().followed_by(old)
    assert both.unwrap("volume", key_id, wrapped) == b"secret"
    assert both.wrap("volume", b"secret")[0] != key_id
    assert both.beginning_with(key_id).ids[0] == key_id
    with pytest.raises(Unwrappable, match=f"{key_id} is not in the file"):
        both.without(key_id).unwrap("volume", key_id, wrapped)


def test_file_of_keys_is_its_owners_and_read_again_after_a_change(path: str) -> None:
    assert master_keys.provide(path)
    assert not master_keys.provide(path)
    assert os.stat(path).st_mode & 0o777 == 0o600
    first = master_keys.of_daemon(path)
    assert master_keys.of_daemon(path) is first
    master_keys.new().followed_by(first).write(path)
    again = master_keys.of_daemon(path)
    assert again.ids[1:] == first.ids
    key_id, wrapped = first.wrap("volume", b"secret")
    assert again.unwrap("volume", key_id, wrapped) == b"secret"


def test_file_that_others_can_read_is_refused(path: str) -> None:
    master_keys.provide(path)
    os.chmod(path, 0o640)
    with pytest.raises(exceptions.ConfigurationError, match="can be read by others"):
        master_keys.of_daemon(path)


@pytest.mark.parametrize("content", ["", "# empty\n", "id\n", "id key more\n", "id AAAA\n", "id !\n"])
def test_corrupt_file_is_refused(path: str, content: str) -> None:
    Path(path).write_text(content)
    os.chmod(path, 0o600)
    with pytest.raises(exceptions.ConfigurationError, match="is not a file of master keys"):
        master_keys.read(path)


def test_missing_file_is_refused(path: str) -> None:
    for read in (master_keys.of_daemon, master_keys.read):
        with pytest.raises(exceptions.ConfigurationError, match="No such file"):
            read(path)


def test_keys_are_random() -> None:
    assert master_keys.new().ids != master_keys.new().ids
    assert isinstance(master_keys.new(), MasterKeys)
