"""NUMA: the cells of a host, what is taken of them, and where a guest is in them.

Sets of CPUs of a host are text as ``0-3,8`` (`nova_lite.base.cpu_sets`): a scheduler keeps those of all hosts, most
of which are alike.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class NUMAPages(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Memory pages of one size that a cell has; ``reserved``: of these, for others than guests."""

    size_kb: int
    total: int
    reserved: int = 0


class NUMACell(msgspec.Struct, frozen=True, kw_only=True):
    """A host's NUMA node. ``shared_cpus``: guests' vCPUs float over them; ``dedicated_cpus``: each is for one vCPU.
    ``siblings``: its CPUs that are threads of one core, for each such core."""

    id: int
    memory_mb: int
    shared_cpus: str = ""
    dedicated_cpus: str = ""
    siblings: list[str] = msgspec.field(default_factory=list)
    pages: list[NUMAPages] = msgspec.field(default_factory=list)


class NUMACellUsage(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What guests with a topology have of one cell: vCPUs that float there, memory that is not of pages of a size that
    was asked for, CPUs that are theirs alone (sorted), and pages by their size in KiB, as text."""

    vcpus: int = 0
    memory_mb: int = 0
    cpus: list[int] = msgspec.field(default_factory=list)
    pages: dict[str, int] = msgspec.field(default_factory=dict)


#: What is taken of a host's cells, by their ids as text, as JSON has them.
NUMAUsage = dict[str, NUMACellUsage]


class InstanceNUMACell(msgspec.Struct, frozen=True, kw_only=True):
    """A guest's NUMA node, and its place: ``cell`` of the host. ``cpus``: its vCPUs; ``pins``: the host's CPU of each,
    in the same order, or none, and they float over the cell's shared CPUs. ``held``: further CPUs of the host that
    nobody else may have: other threads of the cores in ``pins``, and what the emulator's threads are on.

    ``page_kb``: of its memory, if that was asked for; ``huge``: that is more than the host's smallest.
    """

    id: int
    cell: int
    cpus: list[int]
    memory_mb: int
    pins: list[int] = msgspec.field(default_factory=list)
    held: list[int] = msgspec.field(default_factory=list)
    page_kb: int | None = None
    huge: bool = False


class InstanceNUMATopology(msgspec.Struct, frozen=True, kw_only=True):
    """Where a guest is in its host's cells. ``emulator_cpus``: the host's CPUs that its emulator's threads have for
    themselves. ``emulator_shared``: these threads float over the host's shared CPUs."""

    cells: list[InstanceNUMACell]
    emulator_cpus: list[int] = msgspec.field(default_factory=list)
    emulator_shared: bool = False

    @property
    def dedicated_vcpus(self) -> list[int]:
        """The guest's vCPUs that have CPUs for themselves."""
        return sorted(cpu for cell in self.cells if cell.pins for cpu in cell.cpus)

    @property
    def dedicated(self) -> bool:
        """Whether its vCPUs have CPUs for themselves."""
        return any(cell.pins for cell in self.cells)

    @property
    def host_cpus(self) -> list[int]:
        """The host's CPUs that nobody else may have."""
        return sorted(cpu for cell in self.cells for cpu in (*cell.pins, *cell.held))


def usage_of(topologies: Iterable[InstanceNUMATopology]) -> NUMAUsage:
    """What these have together. CPUs that two of them have are there twice."""
    usage: NUMAUsage = {}
    for topology in topologies:
        usage = _changed(usage, topology, 1)
    return usage


def taken(usage: NUMAUsage, topology: InstanceNUMATopology) -> NUMAUsage:
    """``usage`` when ``topology`` has come; ``usage`` itself stays as it is."""
    return _changed(usage, topology, 1)


def given_back(usage: NUMAUsage, topology: InstanceNUMATopology) -> NUMAUsage:
    """The opposite of `taken`."""
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
        if not part.pins:
            cell.vcpus += sign * len(part.cpus)
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
    """How many pages its memory is."""
    return 0 if cell.page_kb is None else cell.memory_mb * 1024 // cell.page_kb
