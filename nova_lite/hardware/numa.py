"""What flavor and image ask of a host's CPUs and memory: guest NUMA nodes, CPUs of their own, pages of a size.

As in Nova, a guest that asks for CPUs of its own or for a page size, and for no NUMA nodes, has one.
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

#: Nodes that a guest may be asked to have; hosts have fewer.
MAX_NODES = 128


class NUMACellRequest(msgspec.Struct, frozen=True):
    """A NUMA node of a guest: which of its vCPUs it has, and how much memory."""

    id: int
    cpus: tuple[int, ...]
    memory_mb: int


class NUMARequest(msgspec.Struct, frozen=True, kw_only=True):
    """``dedicated``: each vCPU has a CPU of the host for itself; ``thread_policy``: how these may be threads of cores.
    ``page_size``: KiB, or one of the words, or None: ordinary memory. ``emulator``: where the threads of the guest's
    emulator are: ``isolate``, on a CPU of their own, ``share``, on the shared ones, None, where its vCPUs are."""

    cells: tuple[NUMACellRequest, ...]
    dedicated: bool = False
    thread_policy: str = PREFER
    page_size: str | int | None = None
    emulator: str | None = None


def choose(asked: HardwareRequest, vcpus: int, memory_mb: int) -> NUMARequest | None:
    """None for a guest that may be anywhere in its host. Raises `HardwareRefused` for what cannot be."""
    dedicated = _is_dedicated(asked)
    thread_policy, emulator = asked.value("cpu_thread_policy"), asked.value("emulator_threads_policy")
    if not dedicated and thread_policy is not None:
        raise _refused("hw:cpu_thread_policy goes with hw:cpu_policy=dedicated.")
    if not dedicated and emulator == ISOLATE:
        raise _refused("hw:emulator_threads_policy=isolate goes with hw:cpu_policy=dedicated.")
    page_size = _page_size(asked)
    cells = _cells(asked, vcpus, memory_mb)
    if not cells:
        if not dedicated and page_size is None:
            if emulator is not None:
                raise _refused("hw:emulator_threads_policy goes with CPUs, pages or NUMA nodes that are asked for.")
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


def _is_dedicated(asked: HardwareRequest) -> bool:
    flavor, image = asked.flavor.get("cpu_policy"), asked.image.get("cpu_policy")
    if flavor == SHARED and image == DEDICATED:
        raise _refused("The image asks for CPUs of its own, which its flavor rules out: hw:cpu_policy is shared.")
    return DEDICATED in (flavor, image)


def _page_size(asked: HardwareRequest) -> str | int | None:
    """An image may name a size where its flavor leaves that open."""
    flavor, image = asked.flavor.get("mem_page_size"), asked.image.get("mem_page_size")
    if image is not None and flavor not in (LARGE, ANY):
        says = "does not say hw:mem_page_size" if flavor is None else f"says hw:mem_page_size={flavor}"
        raise _refused(f"The image asks for pages (hw_mem_page_size={image}), which its flavor rules out: it {says}.")
    said = image or flavor
    if said is None or said in (SMALL, LARGE, ANY):
        return said
    size = int(said) if said.isdigit() else int(strutils.string_to_bytes(said, return_int=True)) // 1024
    if size < 1:
        raise _refused(f"A page of memory (hw:mem_page_size) cannot be of {said}.")
    return size


def _cells(asked: HardwareRequest, vcpus: int, memory_mb: int) -> tuple[NUMACellRequest, ...]:
    cpus, memory = _numbered(asked, "numa_cpus"), _numbered(asked, "numa_mem")
    nodes = asked.number("numa_nodes")
    if nodes is None:
        if cpus or memory:
            raise _refused("hw:numa_cpus.N and hw:numa_mem.N go with hw:numa_nodes.")
        return ()
    for number in {*cpus, *memory}:
        if number >= nodes:
            raise _refused(f"NUMA node {number} is described, and hw:numa_nodes is {nodes}.")
    if nodes > MAX_NODES:
        raise _refused(f"A guest has at most {MAX_NODES} NUMA nodes, hw:numa_nodes is {nodes}.")
    if not cpus and not memory:
        return _alike(nodes, vcpus, memory_mb)
    if set(cpus) != set(range(nodes)) or set(memory) != set(range(nodes)):
        raise _refused(f"CPUs and memory are to be given for each of the {nodes} NUMA nodes, or for none.")
    return _described(nodes, cpus, memory, vcpus, memory_mb)


def _numbered(asked: HardwareRequest, name: str) -> dict[int, str]:
    """What is said of each node."""
    both: Mapping[str, str] = {**asked.flavor, **asked.image}
    return {int(key.partition(".")[2]): value for key, value in both.items() if key.startswith(f"{name}.")}


def _alike(nodes: int, vcpus: int, memory_mb: int) -> tuple[NUMACellRequest, ...]:
    if vcpus % nodes or memory_mb % nodes:
        raise _refused(
            f"{vcpus} vCPUs and {memory_mb} MB of memory cannot be divided among {nodes} NUMA nodes evenly: "
            "hw:numa_cpus.N and hw:numa_mem.N say how."
        )
    each = vcpus // nodes
    return tuple(
        NUMACellRequest(node, tuple(range(node * each, (node + 1) * each)), memory_mb // nodes) for node in range(nodes)
    )


def _described(
    nodes: int, cpus: Mapping[int, str], memory: Mapping[int, str], vcpus: int, memory_mb: int
) -> tuple[NUMACellRequest, ...]:
    found, seen = [], set[int]()
    for node in range(nodes):
        try:
            mine = cpu_sets.parse(cpus[node])
        except ValueError as error:
            raise _refused(f"hw:numa_cpus.{node}: {error}.") from error
        if beyond := sorted(cpu for cpu in mine if cpu >= vcpus):
            raise _refused(f"hw:numa_cpus.{node} names vCPU {beyond[0]}, and the flavor has {vcpus} (from 0 on).")
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
