"""Places of a guest's devices on its buses, and places that are free, in libvirt's description of the domain."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from nova_lite.hardware import guest
from nova_lite.objects import GuestCpu, GuestDevice, GuestReport
from nova_lite.virt.libvirt.disks import volumes
from nova_lite.virt.libvirt.disks.disks import ROLES

#: Buses that Nova names, besides PCI.
_BUSES = (guest.SCSI, guest.IDE, guest.USB)

#: Slots of a PCI bus for devices. On the first bus libvirt keeps two for the chipset and a graphics card.
_SLOTS = range(1, 32)
_KEPT = {1, 2}


def describe(xml: str, cpu: GuestCpu | None = None) -> GuestReport:
    """Return the places of all disks and interfaces, and the number of devices that the machine can still take."""
    domain = ET.fromstring(xml)  # noqa: S314 libvirt's own
    found = [_disk(disk) for disk in domain.iterfind("devices/disk")]
    found += [_place(str(mac.get("address")).lower(), interface) for interface, mac in _interfaces(domain)]
    places = [place for place in found if place is not None]
    return GuestReport(devices=places, free_ports=_free_ports(domain), cpu=cpu)


def _interfaces(domain: ET.Element) -> list[tuple[ET.Element, ET.Element]]:
    every = domain.findall("devices/interface")
    return [(interface, mac) for interface in every if (mac := interface.find("mac")) is not None]


def _disk(disk: ET.Element) -> GuestDevice | None:
    target = disk.find("target")
    key = volumes.volume_of(disk) or ROLES.get(volumes.name_of(disk))
    return None if key is None or target is None else _place(key, disk, target.get("bus", ""))


def _place(key: str, device: ET.Element, bus: str = "") -> GuestDevice:
    address = device.find("address")
    if address is not None and address.get("type") == "pci":
        numbers = [_number(address, name) for name in ("domain", "bus", "slot", "function")]
        return GuestDevice(key, "pci", "{:04x}:{:02x}:{:02x}.{:x}".format(*numbers))
    if bus not in _BUSES:
        return GuestDevice(key)
    if address is None or address.get("type") != "drive":
        return GuestDevice(key, bus)
    return GuestDevice(key, bus, ":".join(address.get(name, "0") for name in ("controller", "bus", "target", "unit")))


def _number(element: ET.Element, name: str) -> int:
    return int(element.get(name, "0"), 0)


def _free_ports(domain: ET.Element) -> int | None:
    """Count free root ports, or on a machine without PCI Express free slots. None: it has no PCI bus."""
    models = {_number(item, "index"): item.get("model") for item in domain.iterfind("devices/controller[@type='pci']")}
    addresses = domain.findall("devices/*/address[@type='pci']")
    used = {(_number(address, "bus"), _number(address, "slot")) for address in addresses}
    if "pcie-root" in models.values():
        busy = {bus for bus, _ in used}
        return sum(model == "pcie-root-port" and index not in busy for index, model in models.items())
    if "pci-root" not in models.values():
        return None
    slots = {(index, slot) for index in models for slot in _SLOTS} - {(0, slot) for slot in _KEPT}
    return len(slots - used)
