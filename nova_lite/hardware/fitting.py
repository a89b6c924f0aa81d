"""Whether a guest fits into a host's NUMA cells, and where: for the scheduler's filter and for the claim alike."""

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
    """Why it does not fit: a few words that do not name the host."""


class Ratios(msgspec.Struct, frozen=True):
    """How much of a cell's CPUs and memory is given out, as for the whole host."""

    cpu: float = 1.0
    ram: float = 1.0


def fit(wanted: NUMARequest, cells: Sequence[NUMACell], usage: NUMAUsage, ratios: Ratios) -> InstanceNUMATopology:
    """Each of the guest's nodes in a cell of its own: the fullest that will do, so that large guests find room later.
    Raises `FitError`."""
    _check_possible(wanted, cells)
    order = sorted(cells, key=lambda cell: (_free_cpus(cell, usage.get(str(cell.id))), cell.id))
    options: list[dict[int, InstanceNUMACell]] = []
    for part in wanted.cells:
        reserve = 1 if wanted.emulator == ISOLATE and part is wanted.cells[0] else 0
        places, misses = {}, []
        for cell in order:
            try:
                places[cell.id] = _in_cell(wanted, part, reserve, cell, usage.get(str(cell.id)) or _NOTHING, ratios)
            except FitError as miss:
                misses.append(str(miss))
        if not places:
            raise FitError(misses[-1])
        options.append(places)
    chosen = _match(options)
    if chosen is None:
        raise FitError(f"{len(wanted.cells)} NUMA cells asked for, each has room for fewer of its nodes")
    placed = [options[number][cell] for number, cell in enumerate(chosen)]
    return InstanceNUMATopology(
        cells=placed,
        emulator_cpus=_emulator_cpus(wanted, placed[0]),
        emulator_shared=wanted.emulator == SHARE,
    )


def fit_host(wanted: NUMARequest, host: HostState) -> InstanceNUMATopology:
    """`fit`, as the scheduler knows the host."""
    return fit(wanted, host.numa, host.numa_used, Ratios(host.cpu_allocation_ratio, host.ram_allocation_ratio))


_NOTHING = NUMACellUsage()


def _check_possible(wanted: NUMARequest, cells: Sequence[NUMACell]) -> None:
    if not cells:
        raise FitError("it tells of no NUMA cells")
    if len(wanted.cells) > len(cells):
        raise FitError(f"{len(wanted.cells)} NUMA cells asked for, {len(cells)} there")
    if wanted.dedicated and not any(cell.dedicated_cpus for cell in cells):
        raise FitError("it has no dedicated CPUs")
    if wanted.emulator == SHARE and not any(cell.shared_cpus for cell in cells):
        raise FitError("it has no shared CPUs, for the emulator's threads")


def _free_cpus(cell: NUMACell, usage: NUMACellUsage | None) -> int:
    return len(cpu_sets.parse(cell.dedicated_cpus)) - len(usage.cpus if usage else ())


def _in_cell(
    wanted: NUMARequest, part: NUMACellRequest, reserve: int, cell: NUMACell, usage: NUMACellUsage, ratios: Ratios
) -> InstanceNUMACell:
    """``reserve``: CPUs besides those of the vCPUs."""
    pins, held = _cpus(wanted, part, reserve, cell, usage, ratios)
    page = _memory(wanted, part, cell, usage, ratios)
    return InstanceNUMACell(
        id=part.id,
        cell=cell.id,
        cpus=list(part.cpus),
        memory_mb=part.memory_mb,
        pins=pins,
        held=held,
        page_kb=page,
        huge=page is not None and page > min(pages.size_kb for pages in cell.pages),
    )


# --- CPUs


def _cpus(
    wanted: NUMARequest, part: NUMACellRequest, reserve: int, cell: NUMACell, usage: NUMACellUsage, ratios: Ratios
) -> tuple[list[int], list[int]]:
    """The CPUs of its vCPUs, and what is held besides; the ``reserve`` is at the front of the latter."""
    if wanted.dedicated:
        return _dedicated(wanted.thread_policy, len(part.cpus), reserve, cell, usage)
    have = len(cpu_sets.parse(cell.shared_cpus))
    left = int(have * ratios.cpu) - usage.vcpus
    if len(part.cpus) > have or len(part.cpus) > left:
        raise FitError(
            f"{len(part.cpus)} shared vCPUs asked for in a NUMA cell, at most {max(0, min(have, left))} left"
        )
    return [], []


def _dedicated(
    policy: str, count: int, reserve: int, cell: NUMACell, usage: NUMACellUsage
) -> tuple[list[int], list[int]]:
    free = cpu_sets.parse(cell.dedicated_cpus) - frozenset(usage.cpus)
    cores = _cores(cell)
    if policy == ISOLATE:
        whole = sorted(core for core in cores if free.issuperset(core))
        if len(whole) < count + reserve:
            raise FitError(f"{count + reserve} cores of its own asked for in a NUMA cell, at most {len(whole)} free")
        mine, rest = whole[:count], whole[count : count + reserve]
        others = [cpu for core in (*mine, *rest) for cpu in core[1:]]
        return [core[0] for core in mine], [*(core[0] for core in rest), *others]
    threads = [tuple(cpu for cpu in core if cpu in free) for core in cores]
    if policy == REQUIRE:
        chosen = _threads(threads, count)
        if chosen is None:
            raise FitError(f"{count} threads of common cores asked for in a NUMA cell, fewer free")
    else:
        chosen = _packed(threads, count)
    left = [cpu for cpu in sorted(free) if cpu not in chosen]
    if len(chosen) < count or len(left) < reserve:
        raise FitError(f"{count + reserve} dedicated CPUs asked for in a NUMA cell, at most {len(free)} free")
    return chosen, left[:reserve]


def _cores(cell: NUMACell) -> list[tuple[int, ...]]:
    """The cell's dedicated and other CPUs by core, each core's threads in order."""
    found = [tuple(sorted(cpu_sets.parse(core))) for core in cell.siblings]
    known = {cpu for core in found for cpu in core}
    alone = (cpu_sets.parse(cell.dedicated_cpus) | cpu_sets.parse(cell.shared_cpus)) - known
    return sorted([*found, *((cpu,) for cpu in alone)])


def _threads(cores: Iterable[tuple[int, ...]], count: int) -> list[int] | None:
    """Of cores of which at least two threads are free; a last vCPU that is left over has the first thread of one."""
    usable = sorted((core for core in cores if len(core) > 1), key=lambda core: (-len(core), core))
    every = [cpu for core in usable for cpu in core]
    return every[:count] if len(every) >= count else None


def _packed(cores: Iterable[tuple[int, ...]], count: int) -> list[int]:
    """Threads of common cores as far as there are, from the cores with most of them free on, so that few are shared
    with other guests; a single one comes from the core that has least left."""
    usable = sorted((core for core in cores if core), key=lambda core: (-len(core), core))
    chosen: list[int] = []
    while usable and len(chosen) < count:
        lacking = count - len(chosen)
        exact = [core for core in usable if len(core) <= lacking]
        core = exact[0] if exact else usable[-1]
        usable.remove(core)
        chosen.extend(core[:lacking])
    return chosen


def _emulator_cpus(wanted: NUMARequest, first: InstanceNUMACell) -> list[int]:
    return first.held[:1] if wanted.emulator == ISOLATE else []


# --- memory


def _memory(
    wanted: NUMARequest, part: NUMACellRequest, cell: NUMACell, usage: NUMACellUsage, ratios: Ratios
) -> int | None:
    """The size of its pages in KiB; None for ordinary memory."""
    if wanted.page_size is None:
        have = _ordinary_memory(cell)
        left = int(have * ratios.ram) - usage.memory_mb
        if part.memory_mb > min(left, have):
            raise FitError(f"{part.memory_mb} MB asked for in a NUMA cell, at most {max(0, left)} MB left")
        return None
    sizes = _sizes(cell)
    asked = {ANY: sizes, SMALL: sizes[-1:], LARGE: sizes[:-1]}
    allowed = asked[wanted.page_size] if isinstance(wanted.page_size, str) else [wanted.page_size]
    free = {
        pages.size_kb: pages.total - pages.reserved - usage.pages.get(str(pages.size_kb), 0) for pages in cell.pages
    }
    for size in allowed:
        if part.memory_mb * 1024 % size == 0 and part.memory_mb * 1024 // size <= free.get(size, 0):
            return size
    named = wanted.page_size if isinstance(wanted.page_size, str) else f"{wanted.page_size} KiB"
    left = max((count * size // 1024 for size, count in free.items() if size in allowed), default=0)
    raise FitError(f"{part.memory_mb} MB in pages ({named}) asked for in a NUMA cell, at most {max(0, left)} MB free")


def _sizes(cell: NUMACell) -> list[int]:
    """Of its pages in KiB, the largest first."""
    return sorted((pages.size_kb for pages in cell.pages), reverse=True)


def _ordinary_memory(cell: NUMACell) -> int:
    """MB that are not set aside as large pages."""
    large = sum(pages.size_kb * pages.total for pages in cell.pages if pages.size_kb in _sizes(cell)[:-1])
    return cell.memory_mb - large // 1024


# --- which cell for which node


def _match(options: Sequence[Mapping[int, InstanceNUMACell]]) -> list[int] | None:
    """A cell of its own for each, by augmenting paths; None where there are too few."""
    owner: dict[int, int] = {}

    def place(number: int, seen: set[int]) -> bool:
        for cell in sorted(options[number], key=lambda each: each in owner):
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
