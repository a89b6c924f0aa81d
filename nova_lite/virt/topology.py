"""The parts of a host's NUMA cells that its operator makes available: shared CPUs, dedicated CPUs, and large pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from oslo_config import cfg
from oslo_utils import strutils

from nova_lite.base import cpu_sets, exceptions
from nova_lite.objects import NUMACell, NUMAPages


def available_cells(conf: cfg.ConfigOpts, cells: Sequence[NUMACell]) -> list[NUMACell]:
    """Return the cells with the configured CPUs and pages. ``cells``: all CPUs as shared.

    Raises `ConfigurationError`.
    """
    shared, dedicated = cpus(conf, cells)
    reserved = _reserved_pages(conf, cells)
    return [
        msgspec.structs.replace(
            cell,
            shared_cpus=cpu_sets.show(shared & cpu_sets.parse(cell.shared_cpus)),
            dedicated_cpus=cpu_sets.show(dedicated & cpu_sets.parse(cell.shared_cpus)),
            pages=[
                msgspec.structs.replace(pages, reserved=reserved.get((cell.id, pages.size_kb), 0))
                for pages in cell.pages
            ],
        )
        for cell in cells
    ]


def cpus(conf: cfg.ConfigOpts, cells: Iterable[NUMACell]) -> tuple[frozenset[int], frozenset[int]]:
    """Return the shared CPUs and the dedicated CPUs."""
    there = frozenset[int]().union(*(cpu_sets.parse(cell.shared_cpus) for cell in cells))
    shared = _option(conf, "cpu_shared_set", there)
    dedicated = _option(conf, "cpu_dedicated_set", there)
    if both := (shared or frozenset()) & (dedicated or frozenset()):
        raise exceptions.ConfigurationError(
            reason=f"CPUs {cpu_sets.show(both)} are in [compute] cpu_shared_set and cpu_dedicated_set: each can be in "
            "one of them only."
        )
    if shared is None:
        shared = there if dedicated is None else frozenset()
    return shared, dedicated or frozenset()


def restricts_cpus(conf: cfg.ConfigOpts) -> bool:
    """Check whether the options restrict the CPUs of guests at all."""
    return conf.compute.cpu_shared_set is not None or conf.compute.cpu_dedicated_set is not None


def shared_cpus(conf: cfg.ConfigOpts, cells: Sequence[NUMACell]) -> dict[str, str]:
    """Return the shared CPUs of each cell by its id, and of the host by "" if these are not all of its CPUs."""
    of_host = cpu_sets.show(cpus(conf, cells)[0]) if restricts_cpus(conf) else ""
    return {"": of_host, **{str(cell.id): cell.shared_cpus for cell in available_cells(conf, cells)}}


def _option(conf: cfg.ConfigOpts, name: str, there: frozenset[int]) -> frozenset[int] | None:
    value = conf.compute[name]
    if value is None:
        return None
    found = cpu_sets.parse(value)
    if missing := found - there:
        raise exceptions.ConfigurationError(
            reason=f"[compute] {name} names CPUs {cpu_sets.show(missing)}, and this host has {cpu_sets.show(there)}."
        )
    return found


def _reserved_pages(conf: cfg.ConfigOpts, cells: Iterable[NUMACell]) -> dict[tuple[int, int], int]:
    """Return the number of reserved pages by the cell's id and the page size in KiB."""
    there = {(cell.id, pages.size_kb): pages.total for cell in cells for pages in cell.pages}
    found = {}
    for pages in conf.reserved_huge_pages or ():
        text = ",".join(f"{name}:{value}" for name, value in pages.items())
        try:
            key = int(pages["node"]), _size_kb(pages["size"])
            count = int(pages["count"])
        except (KeyError, ValueError) as error:
            raise exceptions.ConfigurationError(
                reason=f"reserved_huge_pages = {text} is not of the form node:0,size:2048,count:64."
            ) from error
        if key not in there or not 0 <= count <= there[key]:
            raise exceptions.ConfigurationError(
                reason=f"reserved_huge_pages = {text}: NUMA cell {key[0]} of this host has {there.get(key, 0)} pages "
                f"of {key[1]} KiB."
            )
        found[key] = count
    return found


def _size_kb(text: str) -> int:
    """Parse a size. Without a unit it is in KiB."""
    return int(text) if text.isdigit() else int(strutils.string_to_bytes(text, return_int=True)) // 1024


def equal_cells(count: int, vcpus: int, memory_mb: int, threads: int = 2, large_kb: int = 2048) -> list[NUMACell]:
    """Return ``count`` equal cells for an imaginary machine: cores of ``threads`` CPUs, a quarter of the memory in
    large pages."""
    cpus_per_cell, memory = vcpus // count, memory_mb // count
    cells = []
    for number in range(count):
        first = number * cpus_per_cell
        last = vcpus if number == count - 1 else first + cpus_per_cell
        large = memory * 1024 // 4 // large_kb
        cores = [cpu_sets.show(range(core, min(core + threads, last))) for core in range(first, last, threads)]
        cells.append(
            NUMACell(
                id=number,
                memory_mb=memory,
                shared_cpus=cpu_sets.show(range(first, last)),
                siblings=[core for core in cores if len(cpu_sets.parse(core)) > 1],
                pages=[
                    NUMAPages(size_kb=4, total=(memory * 1024 - large * large_kb) // 4),
                    NUMAPages(size_kb=large_kb, total=large),
                ],
            )
        )
    return cells
