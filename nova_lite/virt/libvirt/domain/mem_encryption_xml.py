"""Encryption of a guest's memory in the XML of its domain, as far as libvirt's documentation describes it.

No machine of the tests has such a processor.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET

from nova_lite.hardware import Hardware
from nova_lite.hardware.guest import SEV, SEV_ES, SEV_SNP, TDX

#: libvirt's type and policy by the model. SEV and SEV-ES: as in Nova, no debugging, no sharing of keys, and no
#: migration to other kinds of machines. SEV-SNP: threads of a core are allowed. TDX: no debugging.
_LAUNCH = {
    SEV: ("sev", "0x0033"),
    SEV_ES: ("sev", "0x0037"),
    SEV_SNP: ("sev-snp", "0x00030000"),
    TDX: ("tdx", "0x10000000"),
}
#: Models whose firmware has no file of variables: it is measured as a whole.
_STATELESS = (SEV_SNP, TDX)
#: Devices that transfer data by virtio, besides disks and interfaces.
_VIRTIO = (
    "controller[@model='virtio-scsi']",
    "controller[@type='virtio-serial']",
    "rng[@model='virtio']",
    "memballoon[@model='virtio']",
    "input[@bus='virtio']",
)


def add(domain: ET.Element, hardware: Hardware) -> None:
    """Let the processor encrypt the guest's memory. The domain is complete."""
    if hardware.mem_encryption is None:
        return
    kind, policy = _LAUNCH[hardware.mem_encryption]
    ET.SubElement(ET.SubElement(domain, "launchSecurity", type=kind), "policy").text = policy
    if hardware.mem_encryption in _STATELESS:
        _make_stateless(domain)
    else:
        _lock(domain)
    devices = domain.find("devices")
    assert devices is not None
    if devices.find("channel") is not None:
        ET.SubElement(devices, "controller", type="virtio-serial", index="0")
    for device in _virtio_devices(devices):
        _driver(device).set("iommu", "on")


def _make_stateless(domain: ET.Element) -> None:
    os_element = domain.find("os")
    assert os_element is not None
    for nvram in os_element.findall("nvram"):
        index = list(os_element).index(nvram)
        os_element.remove(nvram)
        os_element.insert(index, ET.Element("loader", stateless="yes"))


def _lock(domain: ET.Element) -> None:
    """Keep the memory from being swapped out, because the processor finds its data by their addresses."""
    backing = domain.find("memoryBacking")
    if backing is None:
        backing = ET.SubElement(domain, "memoryBacking")
    if backing.find("locked") is None:
        ET.SubElement(backing, "locked")


def _virtio_devices(devices: ET.Element) -> list[ET.Element]:
    """Return the devices that must not read and write the guest's memory directly."""
    found = [disk for disk in devices.findall("disk") if disk.find("target[@bus='virtio']") is not None]
    found += [vif for vif in devices.findall("interface") if vif.find("model[@type='virtio']") is not None]
    return found + [device for path in _VIRTIO for device in devices.findall(path)]


def _driver(device: ET.Element) -> ET.Element:
    driver = device.find("driver")
    return ET.SubElement(device, "driver") if driver is None else driver
