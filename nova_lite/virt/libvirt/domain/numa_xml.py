"""Placement of a guest's vCPUs, memory and emulator in its domain XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping

from nova_lite.base import cpu_sets
from nova_lite.objects import InstanceNUMATopology

#: Priority of realtime vCPUs, from 1 to 99: before all ordinary threads, after the kernel's own realtime threads.
_PRIORITY = "1"

#: Elements of ``cputune`` that this module writes. The others are the flavor's quota.
_PINS = ("vcpupin", "emulatorpin", "vcpusched")


def place(domain: ET.Element, numa: InstanceNUMATopology | None, shared_cpus: Mapping[str, str]) -> None:
    """Bind a domain to the host's CPUs and memory, in place of an earlier binding. Its ``vcpu`` element must exist.

    ``shared_cpus``: by the cell's id the CPUs that guests share, and by "" those of the host if these are not all.
    """
    _forget(domain)
    if numa is None:
        vcpu = domain.find("vcpu")
        if vcpu is not None and shared_cpus.get(""):
            vcpu.set("cpuset", shared_cpus[""])
        return
    _pin(domain, numa, shared_cpus)
    _memory(domain, numa)


def guest_nodes(cpu: ET.Element, numa: InstanceNUMATopology | None) -> None:
    """Add the guest's own NUMA nodes to its ``cpu`` element. They do not change when it moves."""
    if numa is None:
        return
    nodes = ET.SubElement(cpu, "numa")
    for cell in numa.cells:
        cpus, memory = cpu_sets.show(cell.cpus), str(cell.memory_mb * 1024)
        ET.SubElement(nodes, "cell", id=str(cell.id), cpus=cpus, memory=memory, unit="KiB")


def _forget(domain: ET.Element) -> None:
    vcpu, tune = domain.find("vcpu"), domain.find("cputune")
    if vcpu is not None:
        vcpu.attrib.pop("cpuset", None)
    if tune is not None:
        for pin in [element for element in tune if element.tag in _PINS]:
            tune.remove(pin)
        if len(tune) == 0:
            domain.remove(tune)
    for tag in ("numatune", "memoryBacking"):
        for element in domain.findall(tag):
            domain.remove(element)


def _pin(domain: ET.Element, numa: InstanceNUMATopology, shared_cpus: Mapping[str, str]) -> None:
    tune = domain.find("cputune")
    if tune is None:
        tune = ET.SubElement(domain, "cputune")
    every: set[int] = set()
    for cell in numa.cells:
        pins = cell.pinning
        for vcpu in cell.cpus:
            cpuset = str(pins[vcpu]) if vcpu in pins else shared_cpus.get(str(cell.cell), "")
            ET.SubElement(tune, "vcpupin", vcpu=str(vcpu), cpuset=cpuset)
            every.update(() if vcpu in numa.realtime else cpu_sets.parse(cpuset))
    if numa.emulator_shared:
        host = shared_cpus.get("") or ",".join(filter(None, (cpus for name, cpus in shared_cpus.items() if name)))
        emulator = cpu_sets.show(cpu_sets.parse(host))
    else:
        emulator = cpu_sets.show(numa.emulator_cpus or every)
    ET.SubElement(tune, "emulatorpin", cpuset=emulator)
    if numa.realtime:
        ET.SubElement(tune, "vcpusched", vcpus=cpu_sets.show(numa.realtime), scheduler="fifo", priority=_PRIORITY)


def _memory(domain: ET.Element, numa: InstanceNUMATopology) -> None:
    tune = ET.SubElement(domain, "numatune")
    ET.SubElement(tune, "memory", mode="strict", nodeset=cpu_sets.show(cell.cell for cell in numa.cells))
    for cell in numa.cells:
        ET.SubElement(tune, "memnode", cellid=str(cell.id), mode="strict", nodeset=str(cell.cell))
    sizes: dict[int, list[int]] = {}
    for cell in numa.cells:
        if cell.huge and cell.page_kb is not None:
            sizes.setdefault(cell.page_kb, []).append(cell.id)
    if not sizes and not numa.locked:
        return
    backing = ET.SubElement(domain, "memoryBacking")
    if sizes:
        pages = ET.SubElement(backing, "hugepages")
        for size, nodes in sorted(sizes.items()):
            ET.SubElement(pages, "page", size=str(size), unit="KiB", nodeset=cpu_sets.show(nodes))
    if numa.realtime:
        ET.SubElement(backing, "nosharepages")
    if numa.locked:
        ET.SubElement(backing, "locked")
