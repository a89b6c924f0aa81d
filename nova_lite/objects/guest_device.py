"""Devices of a guest, as its hypervisor has placed them."""

from __future__ import annotations

import msgspec

from nova_lite.objects.cpu import GuestCpu

#: Key of `GuestReport` in the data of a command's report.
DEVICES = "devices"


class GuestDevice(msgspec.Struct, frozen=True):
    """Place of a device. ``key``: MAC address, id of the volume, or role of the local disk (`LocalDisk.role`).

    ``bus``: Nova's name (pci, scsi, ide, usb), or "none". ``address``: on that bus, or "none".
    """

    key: str
    bus: str = "none"
    address: str = "none"


class GuestDevices(msgspec.Struct, frozen=True, kw_only=True):
    """Places of interfaces and of disks with a tag. ``free_ports``: further disks and interfaces that the running guest
    can take; None: unknown."""

    devices: list[GuestDevice] = msgspec.field(default_factory=list)
    free_ports: int | None = None

    def place_of(self, key: str | None) -> GuestDevice:
        return next((device for device in self.devices if device.key == key), GuestDevice(""))


class GuestReport(GuestDevices, frozen=True, kw_only=True):
    """Report of a host about a guest: the places of its devices, and its processor while it runs. The conductor stores
    both, and an `Instance` has the places only."""

    cpu: GuestCpu | None = None
