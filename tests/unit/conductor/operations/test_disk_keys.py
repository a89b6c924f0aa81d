"""Servers with encrypted disks in the conductor: what is refused for them, and the keys of their disks."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from nova_lite import objects
from nova_lite.base import exceptions, master_keys, sealing
from nova_lite.db.core import models
from nova_lite.db.image import images
from nova_lite.db.servers import flavors
from nova_lite.objects import DISK_ROLES, ActionReport, VolumeKey, disk_key_id
from tests.support.server_moves import Moving, force_down

ENCRYPTED, LARGER, PLAIN = "encrypted", "larger", "plain"
SPECS = {"hw:ephemeral_encryption": "yes"}


@pytest.fixture
def world(tmp_path: Path) -> Moving:
    made = Moving(tmp_path)
    file = str(tmp_path / "volume-keys")
    master_keys.provide(file)
    made.conf.set_override("encryption_key_file", file, "volume")
    encrypting = {"hw_ephemeral_encryption": "yes"}
    for name, properties in ((PLAIN, {}), (ENCRYPTED, encrypting)):
        made.db.write(images.create, objects.Image(id=name, name=name, properties=properties))
    for name, root_gb, specs in ((ENCRYPTED, 1, SPECS), (LARGER, 2, SPECS), (PLAIN, 2, {})):
        flavor = objects.Flavor(flavorid=name, name=name, vcpus=1, memory_mb=64, root_gb=root_gb, extra_specs=specs)
        made.db.write(flavors.create, flavor)
    return made


def accept(world: Moving, instance_uuid: str, kind: str, **payload: Any) -> objects.ActionCommand:
    return world.lifecycle.accept_action(world.context(admin=True), instance_uuid, kind, payload)


def key_of(world: Moving, instance_uuid: str, host: str, role: str = "root") -> VolumeKey:
    """Return the key that a host gets."""
    private = sealing.new_private_key()
    box = world.volumes.disk_key_get(world.context(), host, instance_uuid, role, sealing.public_key(private))
    return msgspec.json.decode(sealing.unseal(private, box), type=VolumeKey)


def rows(world: Moving) -> set[str]:
    return world.db.read(lambda uow: set(uow.session.scalars(sa.select(models.VolumeKey.id))))


SHELVED = msgspec.to_builtins(objects.Image(id=str(uuid.uuid4()), name="image", status="queued", owner="p1"))
IMAGE = {"image": SHELVED}


@pytest.mark.parametrize("encrypted", ["by the image", "by the flavor", "not"])
@pytest.mark.parametrize("operation", ["createImage", "createBackup", "shelve"])
def test_operation_that_would_store_a_plain_copy_is_refused_for_an_encrypted_disk(
    world: Moving, operation: str, encrypted: str
) -> None:
    image = ENCRYPTED if encrypted == "by the image" else PLAIN
    flavor = ENCRYPTED if encrypted == "by the flavor" else "1"
    instance_uuid, _, _ = world.built(image_ref=image, flavor_id=flavor)
    payload = {**IMAGE, **({"rotation": 1, "backup_type": "daily"} if operation == "createBackup" else {})}
    if encrypted == "not":
        accept(world, instance_uuid, operation, **payload)
        assert [kind for kind, _ in world.open_actions()] == [operation]
        return
    with pytest.raises(exceptions.OperationNotSupportedForEncryptedDisk) as refusal:
        accept(world, instance_uuid, operation, **payload)
    assert refusal.value.code == 409
    assert world.open_actions() == []


@pytest.mark.parametrize("operation", ["stop", "reboot", "migrate", "live-migration", "suspend", "evacuate"])
def test_operation_that_keeps_the_disks_is_accepted(world: Moving, operation: str) -> None:
    instance_uuid, host, _ = world.built(image_ref=ENCRYPTED)
    if operation == "evacuate":
        force_down(world, host)
    accept(world, instance_uuid, operation)
    assert [kind for kind, _ in world.open_actions()] == [operation]


def test_disks_of_a_server_neither_become_encrypted_nor_plain(world: Moving) -> None:
    rebuild = {"images": {}, "changes": {}, "injected_files": {}}
    encrypted, _, _ = world.built(image_ref=PLAIN, flavor_id=ENCRYPTED)
    plain, _, _ = world.built(image_ref=PLAIN)
    for instance_uuid, kind, payload in (
        (encrypted, "resize", {"flavor_id": PLAIN}),
        (plain, "resize", {"flavor_id": LARGER}),
        (plain, "rebuild", {"image_ref": ENCRYPTED, **rebuild}),
    ):
        with pytest.raises(exceptions.HardwareRefused, match="stay encrypted, or stay plain"):
            accept(world, instance_uuid, kind, **payload)
    accept(world, encrypted, "resize", flavor_id=LARGER)
    other, _, _ = world.built(image_ref=PLAIN, flavor_id=ENCRYPTED)
    key = key_of(world, other, str(world.instance(other).host))
    accept(world, other, "rebuild", image_ref=ENCRYPTED, **rebuild)
    assert key_of(world, other, str(world.instance(other).host)) == key, "a failed rebuild would lose its disks"


def test_host_of_a_server_gets_a_key_for_each_disk_and_other_hosts_none(world: Moving) -> None:
    instance_uuid, host, _ = world.built(image_ref=ENCRYPTED)
    keys = {role: key_of(world, instance_uuid, host, role) for role in DISK_ROLES}
    assert len({key.passphrase for key in keys.values()}) == len(DISK_ROLES)
    assert {role: key_of(world, instance_uuid, host, role) for role in DISK_ROLES} == keys
    assert rows(world) == {disk_key_id(instance_uuid, role) for role in DISK_ROLES}
    with pytest.raises(exceptions.DiskKeyUnavailable, match="host host2 does not have the server"):
        key_of(world, instance_uuid, "host2")
    with pytest.raises(exceptions.DiskKeyUnavailable, match="it is not encrypted"):
        key_of(world, instance_uuid, host, "other")
    plain, host, _ = world.built(image_ref=PLAIN)
    with pytest.raises(exceptions.DiskKeyUnavailable, match="it is not encrypted"):
        key_of(world, plain, host)
    with pytest.raises(exceptions.InstanceNotFound):
        key_of(world, str(uuid.uuid4()), host)


def test_both_hosts_of_a_move_get_the_key(world: Moving) -> None:
    world.uuid, host, _ = world.built(image_ref=ENCRYPTED)
    key = key_of(world, world.uuid, host)
    world.act("resize", flavor_id=LARGER)
    world.left()
    assert key_of(world, world.uuid, "host2") == key == key_of(world, world.uuid, host)


def test_keys_go_with_their_server(world: Moving) -> None:
    instance_uuid, host, _ = world.built(image_ref=ENCRYPTED)
    kept, _, _ = world.built(image_ref=ENCRYPTED)
    for role in ("root", "swap"):
        key_of(world, instance_uuid, host, role)
    key_of(world, kept, host)
    command = accept(world, instance_uuid, "delete")
    report = ActionReport(host=str(command.host), action_id=command.action_id, power_state=None)
    report.sequence = command.sequence
    world.reports.finish_action(world.context(), report)
    assert rows(world) == {disk_key_id(kept, "root")}
    with pytest.raises(exceptions.InstanceNotFound):
        key_of(world, instance_uuid, host)


def test_server_in_a_cloud_without_master_keys_gets_no_key(world: Moving) -> None:
    instance_uuid, host, _ = world.built(image_ref=ENCRYPTED)
    world.conf.set_override("encryption_key_file", "", "volume")
    with pytest.raises(exceptions.InvalidInput, match=r"no keys for disks.*without hw:ephemeral_encryption"):
        key_of(world, instance_uuid, host)
