"""Servers with a TPM in the conductor: operations that would lose its state, and the key of that state."""

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
from nova_lite.db.volume import volume_keys
from nova_lite.objects import ActionReport, VolumeKey
from tests.support.server_moves import RUNNING, Moving, force_down

PLAIN = objects.Image(id="plain", name="plain")
WINDOWS = objects.Image(id="windows", name="windows", properties={"hw_tpm_version": "2.0"})
TPM_FLAVOR, LARGER = "tpm", "larger"


@pytest.fixture
def world(tmp_path: Path) -> Moving:
    made = Moving(tmp_path)
    file = str(tmp_path / "volume-keys")
    master_keys.provide(file)
    made.conf.set_override("encryption_key_file", file, "volume")
    for image in (PLAIN, WINDOWS):
        made.db.write(images.create, image)
    for flavor_id, specs in ((TPM_FLAVOR, {"hw:tpm_version": "2.0"}), (LARGER, {})):
        flavor = objects.Flavor(flavorid=flavor_id, name=flavor_id, vcpus=1, memory_mb=64, root_gb=1, extra_specs=specs)
        made.db.write(flavors.create, flavor)
    return made


def accept(world: Moving, instance_uuid: str, kind: str, **payload: Any) -> objects.ActionCommand:
    return world.lifecycle.accept_action(world.context(admin=True), instance_uuid, kind, payload)


def key_of(world: Moving, instance_uuid: str, host: str) -> VolumeKey:
    """Return the key that a host gets."""
    private = sealing.new_private_key()
    box = world.volumes.tpm_key_get(world.context(), host, instance_uuid, sealing.public_key(private))
    return msgspec.json.decode(sealing.unseal(private, box), type=VolumeKey)


def rows(world: Moving) -> list[str]:
    return world.db.read(lambda uow: list(uow.session.scalars(sa.select(models.VolumeKey.id))))


def finish(world: Moving, command: objects.ActionCommand, power_state: int | None, **answer: Any) -> None:
    report = ActionReport(host=str(command.host), action_id=command.action_id, power_state=power_state, **answer)
    report.sequence = command.sequence
    world.reports.finish_action(world.context(), report)


SHELVED = msgspec.to_builtins(objects.Image(id=str(uuid.uuid4()), name="shelved", status="queued", owner="p1"))
REBUILD = {"image_ref": "plain", "images": {}, "changes": {}, "injected_files": {}}


@pytest.mark.parametrize("tpm", ["of the image", "of the flavor", "none"])
@pytest.mark.parametrize(
    ("operation", "payload"),
    [
        ("rebuild", REBUILD),
        ("rescue", {"image_ref": "plain", "images": {}}),
        ("shelve", {"image": SHELVED}),
        ("evacuate", {}),
    ],
)
def test_operation_that_would_lose_the_tpm_is_refused_for_a_server_with_one(
    world: Moving, operation: str, payload: dict[str, Any], tpm: str
) -> None:
    image = "windows" if tpm == "of the image" else "plain"
    flavor = TPM_FLAVOR if tpm == "of the flavor" else "1"
    instance_uuid, host, _ = world.built(image_ref=image, flavor_id=flavor)
    if operation == "evacuate":
        force_down(world, host)
    if tpm == "none":
        accept(world, instance_uuid, operation, **payload)
        assert [kind for kind, _ in world.open_actions()] == [operation]
        return
    with pytest.raises(exceptions.OperationNotSupportedForVTPM) as refusal:
        accept(world, instance_uuid, operation, **payload)
    assert refusal.value.code == 409
    assert refusal.value.message == (
        f"Operation '{operation}' not supported for vTPM-enabled instance ({instance_uuid})."
    )
    assert world.open_actions() == []


@pytest.mark.parametrize("operation", ["stop", "reboot", "migrate", "live-migration", "suspend"])
def test_operation_that_keeps_the_tpm_is_accepted(world: Moving, operation: str) -> None:
    instance_uuid, _, _ = world.built(image_ref="windows")
    accept(world, instance_uuid, operation)
    assert [kind for kind, _ in world.open_actions()] == [operation]


def test_host_of_a_server_gets_the_same_key_each_time_and_other_hosts_none(world: Moving) -> None:
    instance_uuid, host, _ = world.built(image_ref="windows")
    assert rows(world) == []
    key = key_of(world, instance_uuid, host)
    assert len(bytes.fromhex(key.passphrase)) == 32
    assert key_of(world, instance_uuid, host) == key
    assert rows(world) == [instance_uuid]
    other_uuid, _, _ = world.built(image_ref="windows")
    assert key_of(world, other_uuid, host) != key
    with pytest.raises(exceptions.TPMKeyUnavailable, match="host host2 does not have the server"):
        key_of(world, instance_uuid, "host2")
    with pytest.raises(exceptions.InstanceNotFound):
        key_of(world, str(uuid.uuid4()), host)
    with pytest.raises(exceptions.InvalidInput, match="not a public key"):
        world.volumes.tpm_key_get(world.context(), host, instance_uuid, "AAAA")
    database = b"".join(
        path.read_bytes() for path in Path(world.conf.volume.encryption_key_file).parent.glob("*sqlite*")
    )
    assert instance_uuid.encode() in database
    assert key.passphrase.encode() not in database


def test_both_hosts_of_a_move_get_the_key(world: Moving) -> None:
    world.uuid, host, _ = world.built(image_ref="windows")
    key = key_of(world, world.uuid, host)
    world.act("resize", flavor_id=LARGER)
    world.left()
    assert key_of(world, world.uuid, "host2") == key == key_of(world, world.uuid, host)


def test_key_that_was_lost_is_not_made_again(world: Moving) -> None:
    """A new key would not open the state that the old one has closed."""
    instance_uuid, host, _ = world.built(image_ref="windows")
    key_of(world, instance_uuid, host)
    world.db.write(volume_keys.delete, instance_uuid)
    with pytest.raises(exceptions.TPMKeyUnavailable, match="it was destroyed"):
        key_of(world, instance_uuid, host)


def test_key_goes_with_its_server(world: Moving) -> None:
    instance_uuid, host, _ = world.built(image_ref="windows")
    kept, _, _ = world.built(image_ref="windows")
    for known in (instance_uuid, kept):
        key_of(world, known, host)
    finish(world, accept(world, instance_uuid, "delete"), None)
    assert rows(world) == [kept]
    with pytest.raises(exceptions.InstanceNotFound):
        key_of(world, instance_uuid, host)


def test_key_of_a_tpm_that_a_resize_has_taken_goes_at_a_rebuild(world: Moving) -> None:
    world.uuid, host, _ = world.built(image_ref="plain", flavor_id=TPM_FLAVOR)
    key_of(world, world.uuid, host)
    world.act("resize", flavor_id=LARGER)
    world.left()
    world.answer(RUNNING)
    world.act("confirmResize")
    world.answer()
    assert rows(world) == [world.uuid], "the server may be resized back"
    world.act("rebuild", **REBUILD)
    assert rows(world) == []


def test_server_in_a_cloud_without_master_keys_gets_no_key(world: Moving) -> None:
    instance_uuid, host, _ = world.built(image_ref="windows")
    world.conf.set_override("encryption_key_file", "", "volume")
    with pytest.raises(exceptions.InvalidInput, match=r"no keys for TPMs.*choose a flavor and an image without a TPM"):
        key_of(world, instance_uuid, host)


def test_cloud_with_volumes_in_ceph_has_keys_of_tpms(world: Moving) -> None:
    world.conf.set_override("backend", "rbd", "volume")
    instance_uuid, host, _ = world.built(image_ref="windows")
    assert key_of(world, instance_uuid, host).passphrase
