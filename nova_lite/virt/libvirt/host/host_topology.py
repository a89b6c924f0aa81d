"""The host's NUMA cells, from libvirt's capabilities."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET

from nova_lite.base import cpu_sets
from nova_lite.objects import NUMACell, NUMAPages


def parse(capabilities: str) -> list[NUMACell]:
    """Return the cells, with all CPUs as shared. A machine without cells in libvirt is one cell without large pages."""
    cells = ET.fromstring(capabilities).findall("./host/topology/cells/cell")  # noqa: S314 libvirt's own output
    found = [_cell(cell) for cell in cells]
    return [cell for cell in found if cell.shared_cpus] or [_whole()]


def _cell(cell: ET.Element) -> NUMACell:
    cpus = cell.findall("./cpus/cpu")
    cores = {show for cpu in cpus if len(cpu_sets.parse(show := _siblings(cpu))) > 1}
    return NUMACell(
        id=int(cell.get("id", "0")),
        memory_mb=int(cell.findtext("memory", "0")) // 1024,
        shared_cpus=cpu_sets.show(int(cpu.get("id", "0")) for cpu in cpus),
        siblings=sorted(cores, key=lambda core: min(cpu_sets.parse(core))),
        pages=[
            NUMAPages(size_kb=int(pages.get("size", "0")), total=int(pages.text or 0))
            for pages in cell.findall("pages")
        ],
    )


def _siblings(cpu: ET.Element) -> str:
    return cpu_sets.show(cpu_sets.parse(cpu.get("siblings", "")))


def _whole() -> NUMACell:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return NUMACell(id=0, memory_mb=memory // 1024**2, shared_cpus=cpu_sets.show(os.sched_getaffinity(0)))
