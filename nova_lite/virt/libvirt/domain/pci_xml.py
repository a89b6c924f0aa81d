"""XML of the PCI devices of a host that a guest has for itself."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence

from nova_lite.objects import PCIDevice

_PARTS = ("domain", "bus", "slot", "function")
_ASSIGNED = "devices/hostdev[@mode='subsystem'][@type='pci']"


def add(devices: ET.Element, assigned: Iterable[PCIDevice]) -> None:
    """Add the devices. libvirt resets each one, and binds it to its driver for guests if it is managed."""
    for device in assigned:
        managed = "yes" if device.managed else "no"
        element = ET.SubElement(devices, "hostdev", mode="subsystem", type="pci", managed=managed)
        ET.SubElement(ET.SubElement(element, "source"), "address", _address(device))


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
