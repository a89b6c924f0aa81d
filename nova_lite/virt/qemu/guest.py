"""A guest as this driver stores it, in ``guest.json`` of the instance's directory: the guest exists with this file."""

from __future__ import annotations

import os

import msgspec

from nova_lite.base import exceptions, files
from nova_lite.hardware import DEFAULT, Hardware
from nova_lite.hardware.topology import Topology
from nova_lite.objects import VIF, Instance
from nova_lite.objects.ready import prepare_decoders
from nova_lite.virt.libvirt.disks.disks import DirectBoot, Disk
from nova_lite.virt.libvirt.net import names, nft
from nova_lite.virt.libvirt.records import Records

GUEST = "guest.json"
Q35, MICROVM = "q35", "microvm"

#: Settings of hardware that guests of this driver get. Guests with other settings are refused.
HONOURED = ("topology", "machine_type", "rng", "traits")


class Guest(msgspec.Struct, kw_only=True):
    """A guest. ``ports``: number of the PCI Express port of each device that can be detached, by the device's id."""

    uuid: str
    generation: int
    project_id: str
    machine: str
    memory_mb: int
    topology: Topology
    rng: bool
    disks: list[Disk]
    direct_boot: DirectBoot | None
    vifs: list[VIF]
    ports: dict[str, int] = {}

    @property
    def is_microvm(self) -> bool:
        return self.machine == MICROVM

    def take_port(self, device_id: str) -> int:
        """Return the port of a device, the lowest free one for a new device."""
        taken = {*self.ports.values()}
        free = next(number for number in range(len(taken) + 1) if number not in taken)
        return self.ports.setdefault(device_id, free)


prepare_decoders(Guest)


def disk_id(disk: Disk) -> str:
    """Return the id of a disk's device, which is the name of its block node, too. qemu allows 31 characters."""
    return f"volume-{disk.serial.replace('-', '')[:24]}" if disk.serial else f"disk-{disk.device}"


def vif_id(vif: VIF) -> str:
    """Return the id of an interface's device, the name of its tap device. Raises `VirtDriverError`."""
    try:
        nft.interface(names.tap_name(vif))
    except ValueError as error:
        raise exceptions.VirtDriverError(reason=str(error)) from error
    return names.tap_name(vif)


def check(hardware: Hardware, instance: Instance) -> None:
    """Raise `VirtDriverError` for hardware that guests of this driver do not get. Another host may have it."""
    others = [name for name in hardware.__struct_fields__ if name not in HONOURED]
    lacking = [name for name in others if getattr(hardware, name) != getattr(DEFAULT, name)]
    lacking += [name for name, value in (("pci", instance.pci), ("numa", instance.numa)) if value]
    machine = hardware.machine_type or Q35
    if machine not in (Q35, MICROVM) and not machine.startswith("pc-q35-"):
        lacking.append(f"machine_type={machine}")
    if lacking:
        raise exceptions.VirtDriverError(reason=f"guests of qemu without libvirt lack {', '.join(sorted(lacking))}")


class Definitions:
    """The stored guests of this host."""

    def __init__(self, records: Records) -> None:
        self._records = records

    def path(self, instance_uuid: str, name: str = GUEST) -> str:
        """Return the path of a file of an instance, existing or not."""
        return os.path.join(self._records.directory(instance_uuid), name)

    def all(self) -> list[Guest]:
        found = (self.find(instance_uuid) for instance_uuid in sorted(self._records.uuids()))
        return [guest for guest in found if guest is not None]

    def find(self, instance_uuid: str) -> Guest | None:
        """Return a guest of this host, or None. Raises `VirtDriverError` if it cannot be read."""
        try:
            if not self._records.owns(instance_uuid):
                return None
            with open(self.path(instance_uuid), "rb") as file:
                return msgspec.json.decode(file.read(), type=Guest)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise exceptions.VirtDriverError(reason=f"guest {instance_uuid} cannot be read: {error}") from error

    def get(self, instance_uuid: str) -> Guest:
        """Return a guest of this host. Raises `DomainNotFound`."""
        guest = self.find(instance_uuid)
        if guest is None:
            raise exceptions.DomainNotFound(instance_uuid=instance_uuid)
        return guest

    def write(self, guest: Guest) -> None:
        files.write_atomically(self.path(guest.uuid), msgspec.json.encode(guest))

    def remove(self, instance_uuid: str) -> None:
        if self._records.owns(instance_uuid):
            files.remove(self.path(instance_uuid))
