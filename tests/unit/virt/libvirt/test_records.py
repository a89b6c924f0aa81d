from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from nova_lite.virt.libvirt.records import Records
from tests.support.guests import make_vif


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return prepared(tmp_path, "one")


def prepared(path: Path, host: str) -> Records:
    records = Records(str(path), host)
    records.prepare()
    return records


UUID = str(uuid.uuid4())


def test_directory_belongs_to_one_host(tmp_path: Path, records: Records) -> None:
    directory = Path(records.create(UUID, 3))
    (directory / "disk").write_text("x")
    other = prepared(tmp_path, "two")

    other.remove(UUID)

    assert (directory / "disk").exists()
    assert (records.owns(UUID), other.owns(UUID)) == (True, False)
    assert (records.uuids(), other.uuids()) == ({UUID}, set())


def test_directory_of_another_host_is_an_error_without_remains(tmp_path: Path, records: Records) -> None:
    records.create(UUID, 1)
    with pytest.raises(OSError):
        prepared(tmp_path, "two").create(UUID, 2)
    assert records.owns(UUID)
    assert list(tmp_path.glob(".new*")) == []


def test_record_survives_a_power_cut(tmp_path: Path, records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its content, its name in the directory, and the directory's name are on disk."""
    synced: list[str] = []

    def sync(descriptor: int) -> None:
        synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tmp_path))

    monkeypatch.setattr(os, "fsync", sync)
    records.create(UUID, 1)
    file, directory, parent = synced
    assert os.path.dirname(file) == directory
    assert UUID in directory
    assert parent == "."


def test_remove_leaves_nothing(tmp_path: Path, records: Records) -> None:
    directory = Path(records.create(UUID, 1))
    (directory / "console.log").write_text("x")
    (directory / "sub").mkdir()

    records.remove(UUID)
    records.remove(UUID)

    assert not directory.exists()
    assert records.uuids() == set()


def test_interfaces_outlive_the_directory(records: Records) -> None:
    vif = make_vif()
    records.write_interfaces(UUID, [vif])
    records.create(UUID, 1)
    records.remove(UUID)

    assert records.uuids() == {UUID}
    assert records.read_interfaces(UUID) == [vif]
    records.remove_interfaces(UUID)
    assert records.uuids() == set()


def test_interfaces_belong_to_one_host(tmp_path: Path, records: Records) -> None:
    records.write_interfaces(UUID, [make_vif()])
    other = prepared(tmp_path, "two")
    assert other.read_interfaces(UUID) == []
    other.remove_interfaces(UUID)
    assert len(records.read_interfaces(UUID)) == 1


def test_incomplete_directory_is_removed_by_its_own_host(tmp_path: Path) -> None:
    for host in ("one", "one-b"):
        (tmp_path / f".new-{host}-{UUID}").mkdir()
    prepared(tmp_path, "one")
    assert [path.name for path in tmp_path.glob(".new*")] == [f".new-one-b-{UUID}"]


def test_foreign_files_are_not_instances(tmp_path: Path, records: Records) -> None:
    (tmp_path / str(uuid.uuid4())).mkdir()
    (tmp_path / "something").mkdir()
    assert records.uuids() == set()


@pytest.mark.parametrize("name", ["../../etc", "", "a/b"])
def test_directory_of_an_invalid_uuid_is_an_error(records: Records, name: str) -> None:
    with pytest.raises(ValueError):
        records.directory(name)


def test_qemu_can_enter_the_directories(tmp_path: Path, records: Records) -> None:
    for path in (tmp_path, Path(records.base_path), Path(records.create(UUID, 1))):
        assert path.stat().st_mode & 0o777 == 0o711


@pytest.mark.parametrize("beside", [False, True])
def test_directory_is_set_aside_and_restored(tmp_path: Path, records: Records, beside: bool) -> None:
    if beside:
        prepared(tmp_path, "two").create(UUID, 7)
    old = records.create(UUID, 1, beside=True)
    Path(old, "disk").write_text("old")
    aside = records.set_aside(UUID)
    assert records.set_aside(UUID) == aside
    assert Path(aside, "disk").read_text() == "old"
    assert (records.generation(UUID), records.uuids()) == (None, {UUID})
    new = records.create(UUID, 2, beside=True)
    assert (new, records.generation(UUID)) == (old, 2)
    with pytest.raises(OSError):
        records.restore_set_aside(UUID)
    records.remove(UUID)
    assert Path(aside, "disk").exists()
    for _ in range(2):
        records.restore_set_aside(UUID)
        assert (records.generation(UUID), Path(old, "disk").read_text()) == (1, "old")
    records.set_aside(UUID)
    for _ in range(2):
        records.discard_set_aside(UUID)
        assert records.uuids() == set()
    assert prepared(tmp_path, "two").owns(UUID) == beside


def test_directory_set_aside_by_another_host_is_ignored(tmp_path: Path, records: Records) -> None:
    records.create(UUID, 1)
    aside = records.set_aside(UUID)
    other = prepared(tmp_path, "two")
    assert (other.aside(UUID), other.uuids()) == (None, set())
    other.restore_set_aside(UUID)
    other.discard_set_aside(UUID)
    assert Path(aside).exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"uuid": "\xff"}'])
def test_damaged_records_are_not_this_hosts_and_end_no_daemon(tmp_path: Path, records: Records, content: bytes) -> None:
    Path(records.create(UUID, 1), "instance.json").write_bytes(content)
    (tmp_path / "_interfaces" / f"{UUID}.json").write_bytes(content)
    records.prepare()
    assert (records.uuids(), records.owns(UUID), records.read_interfaces(UUID)) == (set(), False, [])


def test_unreadable_record_of_interfaces_is_found_by_the_owner_of_the_guest(tmp_path: Path, records: Records) -> None:
    others = [str(uuid.uuid4()) for _ in range(2)]
    for instance_uuid in (UUID, others[0]):
        records.create(instance_uuid, 1)
        records.write_interfaces(instance_uuid, [make_vif()])
    for instance_uuid in (UUID, others[1]):
        (tmp_path / "_interfaces" / f"{instance_uuid}.json").write_bytes(b'{"uuid": "\xff"}')
    assert records.unreadable_interfaces() == [UUID]
    assert prepared(tmp_path, "two").unreadable_interfaces() == []
