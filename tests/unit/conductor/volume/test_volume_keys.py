"""Keys of encrypted volumes in the conductor: who gets them, and that they go with their volumes."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nova_lite.base import exceptions, master_keys, sealing
from nova_lite.conductor.volume.backups import BackupEndpoints
from nova_lite.db.core import models
from nova_lite.db.volume import volume_backups, volume_keys, volume_transfers, volume_types, volumes
from nova_lite.objects import (
    Image,
    VolumeBackup,
    VolumeKey,
    VolumeSnapshot,
    VolumeTransfer,
    VolumeType,
    VolumeVerb,
)
from nova_lite.objects.block_device import DeviceSource
from tests.support.world_volumes import Hosts, Volumes, blank, boot

ENCRYPTION = {"provider": "luks", "cipher": "aes-xts-plain64", "key_size": 256, "control_location": "front-end"}
SECRET, PLAIN = "secret", "plain"


class World(Volumes):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.hosts = Hosts()
        self.engine.compute = self.compute = self.hosts  # type: ignore[assignment]
        self.backups = BackupEndpoints(self.engine, self.reconciler.volumes.accept)
        self.file = str(path / "volume-keys")
        master_keys.provide(self.file)
        self.conf.set_override("encryption_key_file", self.file, "volume")
        self.new_type(SECRET, ENCRYPTION)
        self.new_type(PLAIN, None)

    def new_type(self, name: str, encryption: dict[str, Any] | None) -> None:
        made = VolumeType(id=str(uuid.uuid4()), name=name, encryption=encryption)
        self.db.write(volume_types.create, self.conf, made)

    def key(self, volume_id: str, host: str = "") -> VolumeKey:
        """Return the key that a host gets."""
        private = sealing.new_private_key()
        box = self.api.volume_key_get(self.context(), host or self.host, volume_id, sealing.public_key(private))
        return msgspec.json.decode(sealing.unseal(private, box), type=VolumeKey)

    def secret(self, **values: Any) -> str:
        return self.make(volume_type=SECRET, **values)

    def back_up(self, volume_id: str) -> str:
        backup = VolumeBackup(id=str(uuid.uuid4()), volume_id=volume_id)
        self.backups.backup_create(self.context(), backup, True)
        self.done()
        return backup.id

    def restore(self, backup_id: str, volume_id: str | None = None) -> str:
        made: str = self.backups.backup_restore(self.context(), backup_id, volume_id, "").id
        self.done()
        return made

    def snapshot(self, volume_id: str) -> str:
        made = VolumeSnapshot(id=str(uuid.uuid4()), volume_id=volume_id, project_id="")
        snapshot_id = self.api.snapshot_create(self.context(), made, True).id
        self.done()
        return snapshot_id

    def delete_volume(self, volume_id: str) -> None:
        self.api.volume_delete(self.context(), volume_id)
        self.done()

    def attached_key(self, volume_id: str) -> str:
        """Return the passphrase, as the host of a server gets it that has the volume for a moment."""
        self.finish(self.attach(volume_id))
        passphrase = self.key(volume_id).passphrase
        self.finish(self.detach(volume_id))
        return passphrase


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_volume_of_an_encrypted_type_has_a_wrapped_key_of_its_own(world: World) -> None:
    first, second = world.secret(), world.secret()
    shown = world.show(first)
    assert (shown.encrypted, shown.volume_type) == (True, SECRET)
    assert shown.encryption_key_id not in (None, world.show(second).encryption_key_id)
    keys = [world.attached_key(volume_id) for volume_id in (first, second)]
    assert len(set(keys)) == 2
    assert all(len(bytes.fromhex(key)) == 32 for key in keys)
    database = b"".join(path.read_bytes() for path in Path(world.file).parent.glob("*sqlite*"))
    assert database
    assert not any(key.encode() in database for key in keys)
    described = world.api.volume_encryption_get(world.context(), first)
    assert msgspec.to_builtins(described) == {**ENCRYPTION, "encryption_key_id": shown.encryption_key_id}


def test_key_is_sent_to_the_host_of_the_work_and_of_the_server_alone(world: World) -> None:
    volume_id = world.accept(volume_type=SECRET).id
    host, work = world.hosts.works[-1]
    assert work.encrypted
    key = world.key(volume_id, host)
    with pytest.raises(exceptions.VolumeKeyUnavailable, match="host another does not have the volume"):
        world.key(volume_id, "another")
    world.done()
    with pytest.raises(exceptions.VolumeKeyUnavailable):
        world.key(volume_id, host)
    command = world.attach(volume_id)
    assert world.key(volume_id, world.host) == key, "the host needs it to attach the volume"
    world.finish(command)
    with pytest.raises(exceptions.VolumeKeyUnavailable):
        world.key(volume_id, "another")
    world.finish(world.detach(volume_id))
    with pytest.raises(exceptions.VolumeKeyUnavailable):
        world.key(volume_id, world.host)
    with pytest.raises(exceptions.VolumeKeyUnavailable, match="no such encrypted volume"):
        world.key(world.attached())


def test_host_without_a_public_key_gets_no_key(world: World) -> None:
    volume_id = world.secret()
    world.attach(volume_id)
    with pytest.raises(exceptions.InvalidInput):
        world.api.volume_key_get(world.context(), world.host, volume_id, "AAAA")


def test_key_of_a_volume_in_memory_is_not_printed() -> None:
    assert "1234" not in repr(VolumeKey(passphrase="1234"))


def test_deleted_volume_destroys_its_key(world: World) -> None:
    volume_id = world.secret()
    world.api.volume_delete(world.context(), volume_id)
    assert world.count(models.VolumeKey) == 1, "the file is still there"
    world.done()
    assert world.count(models.VolumeKey) == 0


def test_copies_of_an_encrypted_volume_keep_its_passphrase_when_it_is_deleted(world: World) -> None:
    """A copy has the same data key on the storage, so it needs the same passphrase, in a key of its own."""
    volume_id = world.secret()
    passphrase = world.attached_key(volume_id)
    snapshot_id = world.snapshot(volume_id)
    clone, of_snapshot = world.make(source_volid=volume_id), world.make(snapshot_id=snapshot_id)
    backup_id = world.back_up(volume_id)
    assert {world.show(known).volume_type for known in (clone, of_snapshot)} == {SECRET}
    assert world.count(models.VolumeKey) == 4
    world.api.snapshot_delete(world.context(), snapshot_id)
    world.done()
    world.delete_volume(volume_id)
    restored = world.restore(backup_id)
    assert world.show(restored).encrypted
    assert {world.attached_key(known) for known in (clone, of_snapshot, restored)} == {passphrase}
    world.backups.backup_delete(world.context(), backup_id, False)
    world.done()
    for known in (clone, of_snapshot, restored):
        world.delete_volume(known)
    assert world.count(models.VolumeKey) == 0


def test_restored_volume_gets_the_key_of_the_backup_with_its_data(world: World) -> None:
    volume_id, other = world.secret(), world.secret()
    passphrase, before = world.attached_key(volume_id), world.attached_key(other)
    backup_id = world.back_up(volume_id)
    world.backups.backup_restore(world.context(), backup_id, other, "")
    world.done("the backup is damaged")
    world.db.write(lambda uow: volumes.change(volumes.by_id(uow, other), uow, {"status": "available"}))  # type: ignore[arg-type]
    assert world.attached_key(other) == before, "the data are as they were"
    world.restore(backup_id, other)
    assert world.attached_key(other) == passphrase
    assert world.count(models.VolumeKey) == 3


def test_imported_backup_needs_a_key_of_this_cloud(world: World) -> None:
    backup_id = world.back_up(world.secret())
    record = world.db.read(volume_backups.get, world.context(admin=True), backup_id)
    assert record.encryption_key_id is not None
    again = msgspec.structs.replace(record, id=str(uuid.uuid4()))
    made = world.backups.backup_import(world.context(), again)
    assert made.encryption_key_id not in (None, record.encryption_key_id)
    foreign = msgspec.structs.replace(record, id=str(uuid.uuid4()), encryption_key_id=str(uuid.uuid4()))
    with pytest.raises(exceptions.InvalidInput, match="does not have key"):
        world.backups.backup_import(world.context(), foreign)


@pytest.mark.parametrize(("source", "kind"), [(SECRET, PLAIN), (PLAIN, SECRET)])
def test_copy_with_another_encryption_is_refused(world: World, source: str, kind: str) -> None:
    volume_id = world.make(volume_type=source)
    snapshot_id = world.snapshot(volume_id)
    for origin in ({"source_volid": volume_id}, {"snapshot_id": snapshot_id}):
        with pytest.raises(exceptions.InvalidInput, match="Invalid volume_type provided"):
            world.accept(volume_type=kind, **origin)
    backup_id, target = world.back_up(volume_id), world.make(volume_type=kind)
    with pytest.raises(exceptions.InvalidInput, match=f"backup {backup_id} is"):
        world.restore(backup_id, target)


def test_unsupported_requests_for_an_encrypted_volume_are_refused_in_a_sentence(world: World) -> None:
    volume_id, context = world.secret(), world.context()
    with pytest.raises(exceptions.InvalidVolume, match="transferring encrypted volume is not supported"):
        offer = VolumeTransfer(id=str(uuid.uuid4()), volume_id=volume_id)
        world.db.write(volume_transfers.create, context, offer, "salt", "digest")
    with pytest.raises(exceptions.InvalidVolume, match="images are plain"):
        world.api.volume_upload(context, volume_id, Image(id=str(uuid.uuid4()), name="image"))
    with pytest.raises(exceptions.InvalidInput, match="has another encryption than secret"):
        world.api.volume_update(context, volume_id, {"volume_type": PLAIN})
    with pytest.raises(exceptions.InvalidInput, match="has another encryption than plain"):
        world.api.volume_update(context, world.make(volume_type=PLAIN), {"volume_type": SECRET})
    world.finish(world.attach(volume_id))
    for old, new in ((volume_id, world.make()), (volume_id, world.secret())):
        with pytest.raises(exceptions.InvalidVolume, match="swapping encrypted volumes is not supported"):
            payload = {"volume_id": old, "new_volume_id": new}
            world.lifecycle.accept_action(context, world.uuid, "swap_volume", payload)


def test_volume_is_retyped_between_types_of_the_same_encryption(world: World) -> None:
    world.new_type("other", {**ENCRYPTION, "encryption_id": "x"})
    volume_id = world.secret()
    assert world.api.volume_update(world.context(), volume_id, {"volume_type": "other"}).volume_type == "other"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"provider": "luks2"}, "its provider must be luks"),
        ({"provider": "plain"}, "its provider must be luks"),
        ({"cipher": "aes-cbc-essiv"}, "its cipher must be aes-xts-plain64"),
        ({"key_size": 192}, "key size of 128, 256 or 512"),
        ({"control_location": "back-end"}, "its control location must be front-end"),
    ],
)
def test_volume_with_a_cipher_that_no_host_has_is_refused(world: World, changes: dict[str, Any], why: str) -> None:
    world.new_type("odd", ENCRYPTION | changes)
    with pytest.raises(exceptions.InvalidInput, match=why):
        world.accept(volume_type="odd")


def test_type_with_only_the_required_fields_has_the_default_cipher(world: World) -> None:
    world.new_type("short", {"provider": "LuksEncryptor", "control_location": "front-end", "cipher": None})
    found = world.api.volume_encryption_get(world.context(), world.make(volume_type="short"))
    assert (found.provider, found.cipher, found.key_size) == ("luks", "aes-xts-plain64", 256)


def test_server_gets_an_encrypted_volume_that_hosts_of_older_versions_do_not_make(world: World) -> None:
    server = boot(world, blank(volume_type=SECRET))
    (device,) = world.instance(server).block_devices
    assert (device.encrypted, device.source_type) == (True, DeviceSource.BLANK)
    world.lifecycle.build_instances(world.context(), [server])
    (sent,) = world.hosts.builds[-1][1].instance.block_devices
    assert (sent.source_type, sent.made_from, sent.encrypted) == (DeviceSource.VOLUME, DeviceSource.BLANK, True)


# --- master keys


def test_cloud_without_master_keys_makes_no_encrypted_volume(world: World) -> None:
    world.conf.set_override("encryption_key_file", "", "volume")
    with pytest.raises(exceptions.InvalidInput, match="has not set"):
        world.accept(volume_type=SECRET)
    world.make(volume_type=PLAIN)


def test_volumes_in_rbd_have_keys_and_are_not_swapped(world: World) -> None:
    world.conf.set_override("backend", "rbd", "volume")
    assert world.show(world.make(volume_type=SECRET)).encrypted
    volume_id = world.make(volume_type=PLAIN)
    world.finish(world.attach(volume_id))
    with pytest.raises(exceptions.InvalidVolume, match="swapping volumes in RBD is not supported"):
        payload = {"volume_id": volume_id, "new_volume_id": world.make()}
        world.lifecycle.accept_action(world.context(), world.uuid, "swap_volume", payload)


def test_unreadable_master_keys_are_a_503_without_their_path(world: World, caplog: pytest.LogCaptureFixture) -> None:
    Path(world.file).chmod(0o644)
    world.conf.set_override("encryption_key_file", f"{world.file}.gone", "volume")
    with pytest.raises(exceptions.MasterKeysUnreadable) as caught:
        world.accept(volume_type=SECRET)
    assert (caught.value.code, world.file in caught.value.message) == (503, False)
    assert "No such file" in caplog.text


def test_volume_whose_master_key_is_missing_names_it_in_one_line(world: World) -> None:
    volume_id = world.secret()
    world.attach(volume_id)
    old = master_keys.read(world.file)
    master_keys.new().write(world.file)
    with pytest.raises(exceptions.VolumeKeyUnavailable, match=f"master key {old.ids[0]} is not in the file") as caught:
        world.key(volume_id)
    assert "\n" not in caught.value.message


def test_keys_are_wrapped_anew_in_parts(world: World) -> None:
    secrets = {volume_id: world.attached_key(volume_id) for volume_id in (world.secret() for _ in range(3))}
    old = master_keys.read(world.file)
    both = master_keys.new().followed_by(old)
    both.write(world.file)
    assert [world.db.write(volume_keys.rewrap, both, 2) for _ in range(3)] == [2, 1, 0]
    assert world.db.read(volume_keys.by_master_key) == {both.ids[0]: 3}
    both.without(old.ids[0]).write(world.file)
    assert {volume_id: world.attached_key(volume_id) for volume_id in secrets} == secrets


def test_volume_work_of_backups_is_encrypted_too(world: World) -> None:
    world.back_up(world.secret())
    assert (world.hosts.works[-1][1].verb, world.hosts.works[-1][1].encrypted) == (VolumeVerb.BACKUP, True)
