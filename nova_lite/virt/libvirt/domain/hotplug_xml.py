"""vCPUs and memory for hotplug in the XML of a domain.

Memory beyond that of the start is one virtio-mem device. The guest takes and releases it in blocks, and libvirt shows
how much the guest has. DIMMs would need a slot for each change, and a guest releases them only as a whole.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import NamedTuple

from nova_lite.hardware import Hardware
from nova_lite.hardware.hotplug import BLOCK_MB
from nova_lite.objects import Flavor

_DEVICE = "devices/memory[@model='virtio-mem']"


class Size(NamedTuple):
    """vCPUs and KiB of memory of a domain.

    ``base_kb``: memory of its start. ``most_kb``: with all of the device. ``requested_kb``, ``current_kb``: of the
    device. ``device``: its XML; empty if there is none.
    """

    vcpus: int
    base_kb: int
    most_kb: int
    requested_kb: int = 0
    current_kb: int = 0
    device: str = ""


def add(domain: ET.Element, flavor: Flavor, hardware: Hardware) -> None:
    """Add places for vCPUs and memory. The domain has its ``vcpu``, ``cpu`` and ``devices``."""
    if hardware.max_vcpus:
        vcpu = _found(domain, "vcpu")
        vcpu.text = str(hardware.max_vcpus)
        every = ET.SubElement(domain, "vcpus")
        for number in range(hardware.max_vcpus):
            # libvirt wants the first one to stay.
            ET.SubElement(every, "vcpu", id=str(number), hotpluggable="no" if number == 0 else "yes")
        _set_vcpus(domain, flavor.vcpus)
    size_mb = ((hardware.max_memory_mb or 0) - flavor.memory_mb) // BLOCK_MB * BLOCK_MB
    if size_mb <= 0:
        return
    # libvirt counts all of a device as the domain's memory, whatever the guest has taken of it.
    most_mb = _found(domain, "memory").text = str(flavor.memory_mb + size_mb)
    ET.SubElement(domain, "maxMemory", slots="1", unit="MiB").text = most_mb
    cpus = f"0-{(hardware.max_vcpus or flavor.vcpus) - 1}"
    nodes = ET.SubElement(_found(domain, "cpu"), "numa")
    ET.SubElement(nodes, "cell", id="0", cpus=cpus, memory=str(flavor.memory_mb * 1024), unit="KiB")
    device = ET.SubElement(_found(domain, "devices"), "memory", model="virtio-mem")
    target = ET.SubElement(device, "target")
    ET.SubElement(target, "size", unit="KiB").text = str(size_mb * 1024)
    ET.SubElement(target, "node").text = "0"
    ET.SubElement(target, "block", unit="KiB").text = str(BLOCK_MB * 1024)
    ET.SubElement(target, "requested", unit="KiB").text = "0"


def size(xml: str) -> Size:
    """Return the size of a domain from libvirt's description."""
    domain = ET.fromstring(xml)  # noqa: S314 libvirt's own
    vcpu, device = _found(domain, "vcpu"), domain.find(_DEVICE)
    vcpus = int(vcpu.get("current") or vcpu.text or 0)
    if device is None:
        memory = int(domain.findtext("memory", "0"))
        return Size(vcpus, memory, memory)
    values = {name: int(device.findtext(f"target/{name}", "0")) for name in ("size", "requested", "current")}
    base = int(_found(domain, "cpu/numa/cell").get("memory", "0"))
    text = ET.tostring(device, encoding="unicode")
    return Size(vcpus, base, base + values["size"], values["requested"], values["current"], text)


def requesting(device: str, requested_kb: int) -> str:
    """Return the device with another amount that the guest shall have of it."""
    element = ET.fromstring(device)  # noqa: S314 libvirt's own
    _found(element, "target/requested").text = str(requested_kb)
    return ET.tostring(element, encoding="unicode")


def resized(xml: str, flavor: Flavor, base_kb: int) -> str:
    """Return the definition of a domain with the vCPUs and memory of this flavor.

    ``base_kb``: memory of the start of the running guest. The next start has no more of it, so that the guest can
    release the rest.
    """
    domain = ET.fromstring(xml)  # noqa: S314 libvirt's own
    if domain.find("vcpus") is not None:
        _set_vcpus(domain, flavor.vcpus)
    wanted_kb, device = flavor.memory_mb * 1024, domain.find(_DEVICE)
    current = domain.find("currentMemory")
    if current is not None:
        domain.remove(current)
    if device is None:
        _found(domain, "memory").text = str(wanted_kb)
        return ET.tostring(domain, encoding="unicode")
    cell = _found(domain, "cpu/numa/cell")
    base_kb = min(base_kb, wanted_kb)
    cell.set("memory", str(base_kb))
    _found(device, "target/size").text = str(int(domain.findtext("maxMemory", "0")) - base_kb)
    _found(device, "target/requested").text = str(wanted_kb - base_kb)
    return ET.tostring(domain, encoding="unicode")


def _set_vcpus(domain: ET.Element, number: int) -> None:
    _found(domain, "vcpu").set("current", str(number))
    for vcpu in domain.iterfind("vcpus/vcpu"):
        vcpu.set("enabled", "yes" if int(vcpu.get("id", "0")) < number else "no")
        vcpu.attrib.pop("order", None)


def _found(element: ET.Element, path: str) -> ET.Element:
    found = element.find(path)
    assert found is not None, path
    return found
