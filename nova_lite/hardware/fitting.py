"""Placement of a guest in a host's NUMA cells, for the scheduler's filter and for the claim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from nova_lite.base import cpu_sets
from nova_lite.hardware.numa import ANY, ISOLATE, LARGE, REQUIRE, SHARE, SMALL, NUMACellRequest, NUMARequest
from nova_lite.objects import HostState
from nova_lite.objects.numa import (
    InstanceNUMACell,
    InstanceNUMATopology,
    NUMACell,
    NUMACellUsage,
    NUMAUsage,
)


class FitError(Exception):
    """A guest does not fit into a host. The message is a few words and does not name the host."""


class Ratios(msgspec.Struct, frozen=True):
    """Allocation ratios of the host, for CPUs and memory of each cell."""

    cpu: float = 1.0
    ram: float = 1.0


def fit(request: NUMARequest, cells: Sequence[NUMACell], usage: NUMAUsage, ratios: Ratios) -> InstanceNUMATopology:
    """Return a placement of the guest's nodes, each in a different cell. Raises `FitError`.

    Prefers the fullest cells, so that large guests find space later.
    """
    _check_possible(request, cells)
    order = sorted(cells, key=lambda cell: (_free_cpus(cell, usage.get(str(cell.id))), cell.id))
    options: list[dict[int, InstanceNUMACell]] = []
    for part in request.cells:
        reserve = 1 if request.emulator == ISOLATE and part is request.cells[0] else 0
        places, misses = {}, []
        for cell in order:
            try:
                places[cell.id] = _in_cell(request, part, reserve, cell, usage.get(str(cell.id)) or _NOTHING, ratios)
            except FitError as miss:
                misses.append(str(miss))
        if not places:
            raise FitError(misses[-1])
        options.append(places)
    chosen = _match(options)
    if chosen is None:
        raise FitError(f"{len(request.cells)} NUMA cells requested, too few have space for one of its nodes")
    placed = [options[number][cell] for number, cell in enumerate(chosen)]
    return InstanceNUMATopology(
        cells=placed,
        emulator_cpus=_emulator_cpus(request, placed[0]),
        emulator_shared=request.emulator == SHARE,
        realtime=sorted(request.realtime),
        locked=request.locked,
    )


def fit_host(request: NUMARequest, host: HostState) -> InstanceNUMATopology:
    """Call `fit` with the scheduler's view of the host."""
    return fit(request, host.numa, host.numa_used, Ratios(host.cpu_allocation_ratio, host.ram_allocation_ratio))


_NOTHING = NUMACellUsage()


def _check_possible(request: NUMARequest, cells: Sequence[NUMACell]) -> None:
    if not cells:
        raise FitError("it reports no NUMA cells")
    if len(request.cells) > len(cells):
        raise FitError(f"{len(request.cells)} NUMA cells requested, it has {len(cells)}")
    if request.dedicated and not any(cell.dedicated_cpus for cell in cells):
        raise FitError("it has no dedicated CPUs")
    if request.emulator == SHARE and not any(cell.shared_cpus for cell in cells):
        raise FitError("it has no shared CPUs, for the emulator's threads")


def _free_cpus(cell: NUMACell, usage: NUMACellUsage | None) -> int:
    return len(cpu_sets.parse(cell.dedicated_cpus)) - len(usage.cpus if usage else ())


def _in_cell(
    request: NUMARequest, part: NUMACellRequest, reserve: int, cell: NUMACell, usage: NUMACellUsage, ratios: Ratios
) -> InstanceNUMACell:
    """Place one node in one cell. ``reserve``: number of CPUs besides those of the vCPUs. Raises `FitError`."""
    pins, held = _cpus(request, part, reserve, cell, usage, ratios)
    page = _memory(request, part, cell, usage, ratios)
    return InstanceNUMACell(
        id=part.id,
        cell=cell.id,
        cpus=list(part.cpus),
        memory_mb=part.memory_mb,
        pins=pins,
        floating=[cpu for cpu in part.cpus if cpu not in request.dedicated],
        held=held,
        page_kb=page,
        huge=page is not None and page > min(pages.size_kb for pages in cell.pages),
    )


# --- CPUs


def _cpus(
    request: NUMARequest, part: NUMACellRequest, reserve: int, cell: NUMACell, usage: NUMACellUsage, ratios: Ratios
) -> tuple[list[int], list[int]]:
    """Return the CPUs of the dedicated vCPUs, and other CPUs that the guest holds, first of them the ``reserve``."""
    shared = sum(cpu not in request.dedicated for cpu in part.cpus)
    have = len(cpu_sets.parse(cell.shared_cpus))
    left = max(0, min(have, int(have * ratios.cpu) - usage.vcpus))
    if shared > left:
        raise FitError(f"{shared} shared vCPUs requested in a NUMA cell, at most {left} left")
    return _dedicated(request.thread_policy, len(part.cpus) - shared, reserve, cell, usage)


def _dedicated(
    policy: str, count: int, reserve: int, cell: NUMACell, usage: NUMACellUsage
) -> tuple[list[int], list[int]]:
    free = cpu_sets.parse(cell.dedicated_cpus) - frozenset(usage.cpus)
    cores = _cores(cell)
    if policy == ISOLATE:
        whole = sorted(core for core in cores if free.issuperset(core))
        if len(whole) < count + reserve:
            raise FitError(f"{count + reserve} whole cores requested in a NUMA cell, at most {len(whole)} free")
        mine, rest = whole[:count], whole[count : count + reserve]
        others = [cpu for core in (*mine, *rest) for cpu in core[1:]]
        return [core[0] for core in mine], [*(core[0] for core in rest), *others]
    threads = [tuple(cpu for cpu in core if cpu in free) for core in cores]
    if policy == REQUIRE:
        chosen = _threads(threads, count)
        if chosen is None:
            raise FitError(f"{count} threads of common cores requested in a NUMA cell, fewer free")
    else:
        chosen = _packed(threads, count)
    left = [cpu for cpu in sorted(free) if cpu not in chosen]
    if len(chosen) < count or len(left) < reserve:
        raise FitError(f"{count + reserve} dedicated CPUs requested in a NUMA cell, at most {len(free)} free")
    return chosen, left[:reserve]


def _cores(cell: NUMACell) -> list[tuple[int, ...]]:
    """Return the cell's CPUs by core. The threads of a core are in order."""
    cores = [tuple(sorted(cpu_sets.parse(core))) for core in cell.siblings]
    known = {cpu for core in cores for cpu in core}
    alone = (cpu_sets.parse(cell.dedicated_cpus) | cpu_sets.parse(cell.shared_cpus)) - known
    return sorted([*cores, *((cpu,) for cpu in alone)])


def _threads(cores: Iterable[tuple[int, ...]], count: int) -> list[int] | None:
    """Choose threads of cores with at least two free threads. With an odd ``count``, one core has a thread left."""
    usable = sorted((core for core in cores if len(core) > 1), key=lambda core: (-len(core), core))
    cpus = [cpu for core in usable for cpu in core]
    return cpus[:count] if len(cpus) >= count else None


def _packed(cores: Iterable[tuple[int, ...]], count: int) -> list[int]:
    """Choose threads of common cores, first from the cores with most free threads, so that guests share few cores.

    A single remaining thread comes from the core with the fewest free threads.
    """
    usable = sorted((core for core in cores if core), key=lambda core: (-len(core), core))
    chosen: list[int] = []
    while usable and len(chosen) < count:
        lacking = count - len(chosen)
        exact = [core for core in usable if len(core) <= lacking]
        core = exact[0] if exact else usable[-1]
        usable.remove(core)
        chosen.extend(core[:lacking])
    return chosen


def _emulator_cpus(request: NUMARequest, first: InstanceNUMACell) -> list[int]:
    return first.held[:1] if request.emulator == ISOLATE else []


# --- memory


def _memory(
    request: NUMARequest, part: NUMACellRequest, cell: NUMACell, usage: NUMACellUsage, ratios: Ratios
) -> int | None:
    """Return the size of the node's pages in KiB, or None for ordinary memory. Raises `FitError`."""
    if request.page_size is None:
        have = _ordinary_memory(cell)
        left = int(have * ratios.ram) - usage.memory_mb
        if part.memory_mb > min(left, have):
            raise FitError(f"{part.memory_mb} MB requested in a NUMA cell, at most {max(0, left)} MB left")
        return None
    sizes = _sizes(cell)
    sizes_by_word = {ANY: sizes, SMALL: sizes[-1:], LARGE: sizes[:-1]}
    allowed = sizes_by_word[request.page_size] if isinstance(request.page_size, str) else [request.page_size]
    free = {
        pages.size_kb: pages.total - pages.reserved - usage.pages.get(str(pages.size_kb), 0) for pages in cell.pages
    }
    for size in allowed:
        if part.memory_mb * 1024 % size == 0 and part.memory_mb * 1024 // size <= free.get(size, 0):
            return size
    named = request.page_size if isinstance(request.page_size, str) else f"{request.page_size} KiB"
    left = max((count * size // 1024 for size, count in free.items() if size in allowed), default=0)
    raise FitError(f"{part.memory_mb} MB in pages ({named}) requested in a NUMA cell, at most {max(0, left)} MB free")


def _sizes(cell: NUMACell) -> list[int]:
    """Return the page sizes of a cell in KiB, the largest first."""
    return sorted((pages.size_kb for pages in cell.pages), reverse=True)


def _ordinary_memory(cell: NUMACell) -> int:
    """Return the memory in MB that is not in large pages."""
    large = sum(pages.size_kb * pages.total for pages in cell.pages if pages.size_kb in _sizes(cell)[:-1])
    return cell.memory_mb - large // 1024


# --- assignment of cells to nodes


def _match(options: Sequence[Mapping[int, InstanceNUMACell]]) -> list[int] | None:
    """Return a different cell for each node, or None if there are too few. Uses augmenting paths."""
    owner: dict[int, int] = {}

    def place(number: int, seen: set[int]) -> bool:
        for cell in sorted(options[number], key=lambda option: option in owner):
            if cell in seen:
                continue
            seen.add(cell)
            if cell not in owner or place(owner[cell], seen):
                owner[cell] = number
                return True
        return False

    if not all(place(number, set()) for number in range(len(options))):
        return None
    return [cell for number in range(len(options)) for cell, mine in owner.items() if mine == number]
