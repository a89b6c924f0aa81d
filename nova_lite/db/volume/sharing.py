"""Rules of volumes that several servers may have, or that servers only read, for requests of the compute API."""

from __future__ import annotations

from nova_lite.base import exceptions
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.db.core.models import Volume as Row
from nova_lite.db.hosts import compute_nodes
from nova_lite.hardware import guest, traits
from nova_lite.objects import BlockDevice, Volume
from nova_lite.operations import states


def give(device: BlockDevice, volume: Volume, permitted: bool) -> None:
    """Record in a server's device what its volume permits. ``permitted``: the API version has such volumes.

    Raises `MultiattachOldMicroversion`, or `InvalidBDM` for a disk bus that has no read-only disks.
    """
    if volume.multiattach and not permitted:
        raise exceptions.MultiattachOldMicroversion()
    if volume.read_only and device.disk_bus in (guest.IDE, guest.SATA):
        raise exceptions.InvalidBDM(
            reason=f"servers only read volume {volume.id}, which needs the disk_bus virtio, scsi or usb."
        )
    device.volume_size, device.multiattach, device.read_only = volume.size, volume.multiattach, volume.read_only


def give_to(uow: UnitOfWork, instance: Instance, device: BlockDevice, volume: Volume, permitted: bool) -> None:
    """Do the same for an existing server. Raises a 400 or 409 if the server or its host cannot share the volume."""
    if volume.multiattach and instance.vm_state == states.SHELVED_OFFLOADED:
        raise exceptions.MultiattachToShelved()
    give(device, volume, permitted)
    if volume.multiattach and traits.MULTIATTACH not in compute_nodes.traits_of_host(uow, instance):
        raise exceptions.MultiattachNotSupported(volume_id=volume.id)


def require_swappable(device: BlockDevice, old: Row, new: Row) -> None:
    """Raise `MultiattachSwap` or `InvalidVolume` for a swap that would lose data of other servers, or be refused by
    qemu.
    """
    if old.multiattach or new.multiattach:
        raise exceptions.MultiattachSwap()
    if device.read_only or new.read_only:
        raise exceptions.InvalidVolume(reason="swapping volumes that servers only read is not supported.")


def needed_traits(instance: Instance) -> list[str]:
    """Return the traits that a host needs for the volumes of the instance."""
    is_shared = any(item.get("multiattach") for item in instance.block_devices or [])
    return [traits.MULTIATTACH] if is_shared else []
