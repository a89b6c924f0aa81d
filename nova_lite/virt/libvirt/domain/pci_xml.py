"""XML of the PCI devices and vGPUs of a host that a guest has for itself."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence

from nova_lite.objects import PCIDevice
from nova_lite.objects.pci import MEM_ENCRYPTION_CONTEXT
from nova_lite.virt import vgpus

_PARTS = ("domain", "bus", "slot", "function")
_ASSIGNED = "devices/hostdev[@mode='subsystem'][@type='pci']"


def add(devices: ET.Element, assigned: Iterable[PCIDevice]) -> None:
    """Add the devices. libvirt resets each one, and binds it to its driver for guests if it is managed."""
    for device in assigned:
        if device.resource_class == MEM_ENCRYPTION_CONTEXT:
            continue
        if device.resource_class:
            element = ET.SubElement(devices, "hostdev", mode="subsystem", type="mdev", model="vfio-pci")
            ET.SubElement(ET.SubElement(element, "source"), "address", uuid=vgpus.uuid_of(device.address))
            continue
        managed = "yes" if device.managed else "no"
        element = ET.SubElement(devices, "hostdev", mode="subsystem", type="pci", managed=managed)
        ET.SubElement(ET.SubElement(element, "source"), "address", _address(device))


def vgpus_in(domain: str) -> list[str]:
    """Return the uuids of a domain's vGPUs."""
    found = ET.fromstring(domain).iterfind("devices/hostdev[@type='mdev']/source/address")  # noqa: S314 libvirt's own
    return [address.get("uuid", "") for address in found]


def replace(domain: ET.Element, assigned: Sequence[PCIDevice]) -> None:
    """Name other devices of a host, in the same order, as a migrated guest has them there."""
    for element, device in zip(domain.findall(_ASSIGNED), assigned, strict=True):
        source = element.find("source/address")
        assert source is not None
        source.attrib.update(_address(device))
        element.set("managed", "yes" if device.managed else "no")


def _address(device: PCIDevice) -> dict[str, str]:
    front, function = device.address.split(".")
    return {part: f"0x{text}" for part, text in zip(_PARTS, (*front.split(":"), function), strict=True)}
