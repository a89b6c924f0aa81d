"""NUMA cells of hosts, their use, and the place of guests in them.

Sets of CPUs of a host are text such as ``0-3,8`` (`nova_lite.base.cpu_sets`). A scheduler holds those of all hosts, and
most of them are equal.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class NUMAPages(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Memory pages of one size in a cell. ``reserved``: pages that guests cannot have."""

    size_kb: int
    total: int
    reserved: int = 0


class NUMACell(msgspec.Struct, frozen=True, kw_only=True):
    """NUMA cell of a host. ``shared_cpus``: vCPUs float over them. ``dedicated_cpus``: each is for one vCPU.
    ``siblings``: for each core with several threads, its CPUs."""

    id: int
    memory_mb: int
    shared_cpus: str = ""
    dedicated_cpus: str = ""
    siblings: list[str] = msgspec.field(default_factory=list)
    pages: list[NUMAPages] = msgspec.field(default_factory=list)


class NUMACellUsage(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Use of one cell by guests with a NUMA topology.

    ``vcpus``: floating vCPUs. ``memory_mb``: memory without a requested page size. ``cpus``: dedicated CPUs, sorted.
    ``pages``: page size in KiB, as text, to number of pages.
    """

    vcpus: int = 0
    memory_mb: int = 0
    cpus: list[int] = msgspec.field(default_factory=list)
    pages: dict[str, int] = msgspec.field(default_factory=dict)


#: Use of a host's cells, by id of the cell. Ids are text, because JSON has no other keys.
NUMAUsage = dict[str, NUMACellUsage]


class InstanceNUMACell(msgspec.Struct, frozen=True, kw_only=True):
    """NUMA cell of a guest, placed in ``cell`` of the host.

    ``cpus``: its vCPUs. ``pins``: the host CPU of each dedicated vCPU, in the same order. ``floating``: vCPUs that have
    none, and float over the cell's shared CPUs. Older records without pins do not name them. ``held``: further CPUs
    that no other guest can have: other threads of the pinned cores, and CPUs of the emulator threads. ``page_kb``: the
    requested page size; ``huge``: it is larger than the smallest of the host.
    """

    id: int
    cell: int
    cpus: list[int]
    memory_mb: int
    pins: list[int] = msgspec.field(default_factory=list)
    floating: list[int] = msgspec.field(default_factory=list)
    held: list[int] = msgspec.field(default_factory=list)
    page_kb: int | None = None
    huge: bool = False

    @property
    def pinning(self) -> dict[int, int]:
        """Host CPU by dedicated vCPU."""
        return dict(zip((cpu for cpu in self.cpus if cpu not in self.floating), self.pins, strict=False))


class InstanceNUMATopology(msgspec.Struct, frozen=True, kw_only=True):
    """Place of a guest in the NUMA cells of its host. ``emulator_cpus``: CPUs reserved for its emulator threads.
    ``emulator_shared``: these threads float over the host's shared CPUs. ``realtime``: vCPUs with a realtime scheduler.
    ``locked``: its memory stays in the host's memory."""

    cells: list[InstanceNUMACell]
    emulator_cpus: list[int] = msgspec.field(default_factory=list)
    emulator_shared: bool = False
    realtime: list[int] = msgspec.field(default_factory=list)
    locked: bool = False

    @property
    def dedicated_vcpus(self) -> list[int]:
        """vCPUs that have host CPUs of their own."""
        return sorted(cpu for cell in self.cells for cpu in cell.pinning)

    @property
    def shared_vcpus(self) -> int:
        """Number of vCPUs that share CPUs of the host with other guests."""
        return sum(len(cell.cpus) - len(cell.pins) for cell in self.cells)

    @property
    def host_cpus(self) -> list[int]:
        """CPUs of the host that no other guest can have."""
        return sorted(cpu for cell in self.cells for cpu in (*cell.pins, *cell.held))


def usage_of(topologies: Iterable[InstanceNUMATopology]) -> NUMAUsage:
    """Return the sum of the topologies. A CPU of two topologies is counted twice."""
    usage: NUMAUsage = {}
    for topology in topologies:
        usage = _changed(usage, topology, 1)
    return usage


def usage_with(usage: NUMAUsage, topology: InstanceNUMATopology) -> NUMAUsage:
    """Return a copy of ``usage`` with the topology added."""
    return _changed(usage, topology, 1)


def usage_without(usage: NUMAUsage, topology: InstanceNUMATopology) -> NUMAUsage:
    """Return a copy of ``usage`` with the topology removed."""
    return _changed(usage, topology, -1)


def _changed(usage: NUMAUsage, topology: InstanceNUMATopology, sign: int) -> NUMAUsage:
    after = dict(usage)
    for part in topology.cells:
        name = str(part.cell)
        before = after.get(name, NUMACellUsage())
        cell = NUMACellUsage(vcpus=before.vcpus, memory_mb=before.memory_mb, cpus=[*before.cpus])
        cell.pages = {**before.pages}
        if part.page_kb is None:
            cell.memory_mb += sign * part.memory_mb
        else:
            count = cell.pages.pop(str(part.page_kb), 0) + sign * pages_of(part)
            if count:
                cell.pages[str(part.page_kb)] = count
        cell.vcpus += sign * (len(part.cpus) - len(part.pins))
        for cpu in (*part.pins, *part.held):
            if sign > 0:
                cell.cpus.append(cpu)
            elif cpu in cell.cpus:
                cell.cpus.remove(cpu)
        cell.cpus.sort()
        after[name] = cell
        if cell == NUMACellUsage():
            del after[name]
    return after


def pages_of(cell: InstanceNUMACell) -> int:
    """Return the number of memory pages of the cell, 0 without a requested page size."""
    return 0 if cell.page_kb is None else cell.memory_mb * 1024 // cell.page_kb
