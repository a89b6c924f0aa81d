"""Keys of servers' encrypted disks, among the keys of encrypted volumes: a row for each disk, of `disk_key_id`.

The first request of a host makes the key. Hosts get it while they have the server. It goes with the server.
"""

from __future__ import annotations

import sqlalchemy as sa

from nova_lite import hardware
from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.db.core.models import VolumeKey as Row
from nova_lite.db.servers import claims, instances
from nova_lite.db.volume import volume_keys
from nova_lite.objects import DISK_ROLES, Flavor, Image, VolumeKey, disk_key_id

_ENCRYPTION = {
    "provider": "luks",
    "cipher": volume_keys.CIPHER,
    "key_size": volume_keys.KEY_SIZE,
    "control_location": volume_keys.FRONT_END,
}


def key_of_disk(uow: UnitOfWork, host: str, instance_uuid: str, role: str) -> VolumeKey:
    """Return the key of a disk of a server that is on this host, or moves from or to it. Make it if there is none.

    Raises `DiskKeyUnavailable`, `InstanceNotFound`, and `InvalidInput` if the cloud has no master key.
    """
    instance = instances.get_row(uow, get_admin_context(), instance_uuid, lock=True)
    reason = None
    if all(held.host != host for held in claims.held_hosts(uow, instance)):
        reason = f"host {host} does not have the server"
    elif role not in DISK_ROLES or not are_used(instance):
        reason = "it is not encrypted"
    if reason is not None:
        raise exceptions.DiskKeyUnavailable(instance_uuid=instance.uuid, role=role, reason=reason)
    masters = volume_keys.masters_of(uow.conf, "disks", "choose a flavor and an image without hw:ephemeral_encryption")
    key_id = disk_key_id(instance.uuid, role)
    if not volume_keys.exists(uow, key_id):
        volume_keys.insert(uow, masters, key_id, volume_keys.new_passphrase(), _ENCRYPTION)
    try:
        return volume_keys.read(uow, masters, key_id)
    except exceptions.VolumeKeyUnavailable as error:
        unreadable = error.kwargs["reason"]
        raise exceptions.DiskKeyUnavailable(instance_uuid=instance.uuid, role=role, reason=unreadable) from error


def are_used(instance: Instance) -> bool:
    """Check whether the server's disks on its host are encrypted."""
    image = instance.image or {}
    return hardware.encrypts_disks(instance.flavor.get("extra_specs", {}), image.get("properties", {}))


def require_same(instance: Instance, flavor: Flavor, image: Image | None) -> None:
    """Raise `HardwareRefused` if the server's disks would have to be encrypted or decrypted for this flavor and image.

    Their data are never written again.
    """
    properties = {} if image is None else image.properties
    if hardware.encrypts_disks(flavor.extra_specs, properties) != are_used(instance):
        raise exceptions.HardwareRefused(
            reason="The disks of a server stay encrypted, or stay plain: hw:ephemeral_encryption of the flavor, or "
            "hw_ephemeral_encryption of the image, cannot change. Create a new server, and copy the data."
        )


def delete(uow: UnitOfWork, instance: Instance) -> None:
    """Destroy the keys of a server that is deleted."""
    if are_used(instance):
        uow.change(sa.delete(Row).where(Row.id.in_([disk_key_id(instance.uuid, role) for role in DISK_ROLES])))
