"""Requests of flavor and image for CPUs and memory of the host: NUMA nodes, dedicated CPUs, page sizes.

As in Nova, a guest with dedicated CPUs or a page size has one NUMA node if its flavor and image request none.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from oslo_utils import strutils

from nova_lite.base import cpu_sets, exceptions
from nova_lite.hardware.request import HardwareRequest

SHARED, DEDICATED = "shared", "dedicated"
PREFER, ISOLATE, REQUIRE = "prefer", "isolate", "require"
SHARE = "share"
SMALL, LARGE, ANY = "small", "large", "any"

#: Most NUMA nodes of a guest. Hosts have fewer.
MAX_NODES = 128


class NUMACellRequest(msgspec.Struct, frozen=True):
    """NUMA node ("cell" in Nova) of a guest: its vCPUs and its memory."""

    id: int
    cpus: tuple[int, ...]
    memory_mb: int


class NUMARequest(msgspec.Struct, frozen=True, kw_only=True):
    """Request of one guest.

    ``dedicated``: each vCPU has a CPU of the host for itself. ``thread_policy``: whether dedicated CPUs may be threads
    of the same core. ``page_size``: KiB, ``small``, ``large`` or ``any``; None: ordinary memory. ``emulator``: CPUs of
    the emulator's threads. They have a CPU of their own (``isolate``), use the host's shared CPUs (``share``), or use
    the CPUs of the vCPUs (None).
    """

    cells: tuple[NUMACellRequest, ...]
    dedicated: bool = False
    thread_policy: str = PREFER
    page_size: str | int | None = None
    emulator: str | None = None


def choose(request: HardwareRequest, vcpus: int, memory_mb: int) -> NUMARequest | None:
    """Return the request, or None if the guest may be anywhere in its host. Raises `HardwareRefused`."""
    dedicated = _is_dedicated(request)
    thread_policy, emulator = request.value("cpu_thread_policy"), request.value("emulator_threads_policy")
    if not dedicated and thread_policy is not None:
        raise _refused("hw:cpu_thread_policy needs hw:cpu_policy=dedicated.")
    if not dedicated and emulator == ISOLATE:
        raise _refused("hw:emulator_threads_policy=isolate needs hw:cpu_policy=dedicated.")
    page_size = _page_size(request)
    cells = _cells(request, vcpus, memory_mb)
    if not cells:
        if not dedicated and page_size is None:
            if emulator is not None:
                raise _refused("hw:emulator_threads_policy needs dedicated CPUs, a page size or NUMA nodes.")
            return None
        cells = (NUMACellRequest(0, tuple(range(vcpus)), memory_mb),)
    return NUMARequest(
        cells=cells,
        dedicated=dedicated,
        thread_policy=thread_policy or PREFER,
        page_size=page_size,
        emulator=emulator,
    )


def _refused(reason: str) -> exceptions.HardwareRefused:
    return exceptions.HardwareRefused(reason=reason)


def _is_dedicated(request: HardwareRequest) -> bool:
    flavor, image = request.flavor.get("cpu_policy"), request.image.get("cpu_policy")
    if flavor == SHARED and image == DEDICATED:
        raise _refused("The image requests dedicated CPUs, which its flavor rules out: hw:cpu_policy is shared.")
    return DEDICATED in (flavor, image)


def _page_size(request: HardwareRequest) -> str | int | None:
    """Return the page size. Raises `HardwareRefused` if the image has one and its flavor does not leave it open."""
    flavor, image = request.flavor.get("mem_page_size"), request.image.get("mem_page_size")
    if image is not None and flavor not in (LARGE, ANY):
        reason = "has no hw:mem_page_size" if flavor is None else f"has hw:mem_page_size={flavor}"
        raise _refused(f"The image requests pages (hw_mem_page_size={image}), which its flavor rules out: it {reason}.")
    text = image or flavor
    if text is None or text in (SMALL, LARGE, ANY):
        return text
    size = int(text) if text.isdigit() else int(strutils.string_to_bytes(text, return_int=True)) // 1024
    if size < 1:
        raise _refused(f"A page of memory (hw:mem_page_size) cannot be of size {text}.")
    return size


def _cells(request: HardwareRequest, vcpus: int, memory_mb: int) -> tuple[NUMACellRequest, ...]:
    cpus, memory = _numbered(request, "numa_cpus"), _numbered(request, "numa_mem")
    nodes = request.number("numa_nodes")
    if nodes is None:
        if cpus or memory:
            raise _refused("hw:numa_cpus.N and hw:numa_mem.N need hw:numa_nodes.")
        return ()
    for number in {*cpus, *memory}:
        if number >= nodes:
            raise _refused(f"NUMA node {number} has settings, and hw:numa_nodes is {nodes}.")
    if nodes > MAX_NODES:
        raise _refused(f"A guest has at most {MAX_NODES} NUMA nodes, hw:numa_nodes is {nodes}.")
    if not cpus and not memory:
        return _equal_cells(nodes, vcpus, memory_mb)
    if set(cpus) != set(range(nodes)) or set(memory) != set(range(nodes)):
        raise _refused(f"Set CPUs and memory of each of the {nodes} NUMA nodes, or of none.")
    return _given_cells(nodes, cpus, memory, vcpus, memory_mb)


def _numbered(request: HardwareRequest, name: str) -> dict[int, str]:
    """Return the values of a numbered setting by the numbers of the nodes."""
    both: Mapping[str, str] = {**request.flavor, **request.image}
    return {int(key.partition(".")[2]): value for key, value in both.items() if key.startswith(f"{name}.")}


def _equal_cells(nodes: int, vcpus: int, memory_mb: int) -> tuple[NUMACellRequest, ...]:
    if vcpus % nodes or memory_mb % nodes:
        raise _refused(
            f"{vcpus} vCPUs and {memory_mb} MB of memory cannot be divided among {nodes} NUMA nodes evenly: "
            "set hw:numa_cpus.N and hw:numa_mem.N."
        )
    share = vcpus // nodes
    return tuple(
        NUMACellRequest(node, tuple(range(node * share, (node + 1) * share)), memory_mb // nodes)
        for node in range(nodes)
    )


def _given_cells(
    nodes: int, cpus: Mapping[int, str], memory: Mapping[int, str], vcpus: int, memory_mb: int
) -> tuple[NUMACellRequest, ...]:
    found, seen = [], set[int]()
    for node in range(nodes):
        try:
            mine = cpu_sets.parse(cpus[node])
        except ValueError as error:
            raise _refused(f"hw:numa_cpus.{node}: {error}.") from error
        if beyond := sorted(cpu for cpu in mine if cpu >= vcpus):
            raise _refused(f"hw:numa_cpus.{node} names vCPU {beyond[0]}, and the flavor has {vcpus} (numbered from 0).")
        if twice := sorted(seen & mine):
            raise _refused(f"vCPU {twice[0]} is in two NUMA nodes.")
        if not mine:
            raise _refused(f"hw:numa_cpus.{node} names no vCPU.")
        seen |= mine
        found.append(NUMACellRequest(node, tuple(sorted(mine)), int(memory[node])))
    if left := sorted(set(range(vcpus)) - seen):
        raise _refused(f"vCPU {left[0]} is in no NUMA node.")
    total = sum(cell.memory_mb for cell in found)
    if total != memory_mb:
        raise _refused(f"The NUMA nodes have {total} MB of memory together, and the flavor {memory_mb}.")
    return tuple(found)
