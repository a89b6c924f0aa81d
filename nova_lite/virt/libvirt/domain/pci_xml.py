"""XML of the PCI devices and vGPUs of a host that a guest has for itself, among them those of its ports."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence

from nova_lite.base import exceptions
from nova_lite.objects import VIF, PCIDevice
from nova_lite.objects.pci import MACVTAP, MEM_ENCRYPTION_CONTEXT, TYPE_PF
from nova_lite.virt import vgpus
from nova_lite.virt.libvirt.host import pci_devices

#: Devices as the kernel shows them.
SYSFS = "/sys/bus/pci/devices"

_PARTS = ("domain", "bus", "slot", "function")
_ASSIGNED = "devices/hostdev[@mode='subsystem'][@type='pci']"


def add(devices: ET.Element, assigned: Iterable[PCIDevice]) -> None:
    """Add the devices, without those of ports (`interface`). libvirt resets each one, and binds it to its driver for
    guests if it is managed."""
    for device in assigned:
        if device.is_of_port or device.resource_class == MEM_ENCRYPTION_CONTEXT:
            continue
        if device.resource_class:
            element = ET.SubElement(devices, "hostdev", mode="subsystem", type="mdev", model="vfio-pci")
            ET.SubElement(ET.SubElement(element, "source"), "address", uuid=vgpus.uuid_of(device.address))
            continue
        devices.append(_whole(device))


def _whole(device: PCIDevice) -> ET.Element:
    element = ET.Element("hostdev", mode="subsystem", type="pci", managed=_managed(device))
    ET.SubElement(ET.SubElement(element, "source"), "address", _address(device))
    return element


def _managed(device: PCIDevice) -> str:
    return "yes" if device.managed else "no"


def interface(vif: VIF) -> ET.Element:
    """Return the device of a port: the card itself, or a virtual function with the port's MAC address and VLAN.

    libvirt sets both at the card, and resets them when the guest ends. Raises `VirtDriverError`.
    """
    device = vif.device
    if device is None:
        raise exceptions.VirtDriverError(reason=f"port {vif.id} has no device of this host")
    if device.dev_type == TYPE_PF:
        return _whole(device)
    if vif.vnic_type == MACVTAP:
        element = ET.Element("interface", type="direct")
        ET.SubElement(element, "source", dev=_network_device(device), mode="passthrough")
        ET.SubElement(element, "model", type="virtio")
    else:
        element = ET.Element("interface", type="hostdev", managed=_managed(device))
        ET.SubElement(ET.SubElement(element, "source"), "address", _address(device), type="pci")
    ET.SubElement(element, "mac", address=vif.mac_address)
    if vif.network.vlan is not None:
        ET.SubElement(ET.SubElement(element, "vlan"), "tag", id=str(vif.network.vlan))
    return element


def _network_device(device: PCIDevice) -> str:
    """Return the name of a virtual function's network device on the host."""
    try:
        return os.listdir(os.path.join(SYSFS, device.address, "net"))[0]
    except (OSError, IndexError) as error:
        raise exceptions.VirtDriverError(
            reason=f"virtual function {device.address} has no network device on this host, which macvtap needs: load "
            "its driver"
        ) from error


def has_whole(domain: ET.Element, device: PCIDevice) -> bool:
    """Check whether a domain has a card."""
    addresses = domain.iterfind(f"{_ASSIGNED}/source/address")
    return device.address in map(pci_devices.address, addresses)


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
        element.set("managed", _managed(device))


def _address(device: PCIDevice) -> dict[str, str]:
    front, function = device.address.split(".")
    return {part: f"0x{text}" for part, text in zip(_PARTS, (*front.split(":"), function), strict=True)}
