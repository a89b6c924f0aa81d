"""Requests of flavor and image for CPUs and memory of the host: NUMA nodes, dedicated and realtime CPUs, page sizes.

As in Nova, a guest with dedicated CPUs or a page size has one NUMA node if its flavor and image request none.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from oslo_utils import strutils

from nova_lite.base import cpu_sets, exceptions
from nova_lite.hardware.request import HardwareRequest

SHARED, MIXED, DEDICATED = "shared", "mixed", "dedicated"
#: Policies, from the fewest dedicated CPUs to the most.
_POLICIES = (SHARED, MIXED, DEDICATED)
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

    ``dedicated``: vCPUs that have a CPU of the host for themselves. ``realtime``: vCPUs that the host runs before all
    ordinary threads. ``thread_policy``: whether dedicated CPUs may be threads of the same core. ``page_size``: KiB,
    ``small``, ``large`` or ``any``; None: ordinary memory. ``locked``: the host never swaps the memory out.
    ``emulator``: CPUs of the emulator's threads. They have a CPU of their own (``isolate``), use the host's shared CPUs
    (``share``), or use the CPUs of the vCPUs that are not realtime (None).
    """

    cells: tuple[NUMACellRequest, ...]
    dedicated: frozenset[int] = frozenset()
    realtime: frozenset[int] = frozenset()
    thread_policy: str = PREFER
    page_size: str | int | None = None
    locked: bool = False
    emulator: str | None = None

    @property
    def shared_vcpus(self) -> int:
        """Number of vCPUs that share CPUs of the host with other guests."""
        return sum(len(cell.cpus) for cell in self.cells) - len(self.dedicated)


def choose(request: HardwareRequest, vcpus: int, memory_mb: int) -> NUMARequest | None:
    """Return the request, or None if the guest may be anywhere in its host. Raises `HardwareRefused`."""
    realtime = _realtime(request, vcpus)
    dedicated = _dedicated(request, vcpus, realtime)
    thread_policy, emulator = request.value("cpu_thread_policy"), request.value("emulator_threads_policy")
    for setting, has in (
        ("hw:cpu_thread_policy", thread_policy is not None),
        ("hw:emulator_threads_policy=isolate", emulator == ISOLATE),
        ("hw:cpu_realtime", bool(realtime)),
    ):
        if has and not dedicated:
            raise _refused(f"{setting} needs hw:cpu_policy=dedicated or mixed.")
    page_size = _page_size(request)
    locked = bool(request.flag("locked_memory"))
    if locked and page_size is None:
        raise _refused("hw:locked_memory needs hw:mem_page_size.")
    cells = _cells(request, vcpus, memory_mb)
    if not cells:
        if not dedicated and page_size is None:
            return None
        cells = (NUMACellRequest(0, tuple(range(vcpus)), memory_mb),)
    return NUMARequest(
        cells=cells,
        dedicated=dedicated,
        realtime=realtime,
        thread_policy=thread_policy or PREFER,
        page_size=page_size,
        locked=locked or bool(realtime),
        emulator=emulator,
    )


def _refused(reason: str) -> exceptions.HardwareRefused:
    return exceptions.HardwareRefused(reason=reason)


def _dedicated(request: HardwareRequest, vcpus: int, realtime: frozenset[int]) -> frozenset[int]:
    """Return the vCPUs with dedicated CPUs. Raises `HardwareRefused`."""
    flavor, image = request.flavor.get("cpu_policy"), request.image.get("cpu_policy")
    if flavor and image and _POLICIES.index(image) > _POLICIES.index(flavor):
        raise _refused(f"The image requests {image} CPUs, which its flavor rules out: hw:cpu_policy is {flavor}.")
    policy, every = flavor or image or SHARED, frozenset(range(vcpus))
    masked = _mask(request, "cpu_dedicated_mask", vcpus)
    if masked and policy != MIXED:
        raise _refused("hw:cpu_dedicated_mask needs hw:cpu_policy=mixed.")
    if masked == every:
        raise _refused("hw:cpu_dedicated_mask has to leave a vCPU that shares CPUs.")
    if policy == MIXED and bool(masked) == bool(realtime):
        raise _refused("hw:cpu_policy=mixed needs either hw:cpu_dedicated_mask or realtime vCPUs, and not both.")
    return {SHARED: frozenset[int](), MIXED: masked or realtime, DEDICATED: every}[policy]


def _realtime(request: HardwareRequest, vcpus: int) -> frozenset[int]:
    """Return the realtime vCPUs. Raises `HardwareRefused` if they leave no CPU for the emulator's threads."""
    if not request.flag("cpu_realtime"):
        return frozenset()
    every = frozenset(range(vcpus))
    realtime = _mask(request, "cpu_realtime_mask", vcpus) or every
    if realtime == every and request.value("emulator_threads_policy") is None:
        raise _refused(
            "hw:cpu_realtime needs a vCPU that hw:cpu_realtime_mask leaves out, or hw:emulator_threads_policy."
        )
    return realtime


def _mask(request: HardwareRequest, name: str, vcpus: int) -> frozenset[int]:
    """Return the vCPUs of a mask, empty if there is none. After a leading ``^`` it names the others."""
    text = request.value(name)
    if text is None:
        return frozenset()
    return _vcpus(f"hw:{name}", f"0-{vcpus - 1},{text}" if text.startswith("^") else text, vcpus)


def _vcpus(key: str, text: str, vcpus: int) -> frozenset[int]:
    """Parse vCPUs of the flavor, at least one. Raises `HardwareRefused`."""
    try:
        found = cpu_sets.parse(text)
    except ValueError as error:
        raise _refused(f"{key}: {error}.") from error
    if beyond := sorted(cpu for cpu in found if cpu >= vcpus):
        raise _refused(f"{key} names vCPU {beyond[0]}, and the flavor has {vcpus} (numbered from 0).")
    if not found:
        raise _refused(f"{key} names no vCPU.")
    return found


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
        mine = _vcpus(f"hw:numa_cpus.{node}", cpus[node], vcpus)
        if twice := sorted(seen & mine):
            raise _refused(f"vCPU {twice[0]} is in two NUMA nodes.")
        seen |= mine
        found.append(NUMACellRequest(node, tuple(sorted(mine)), int(memory[node])))
    if left := sorted(set(range(vcpus)) - seen):
        raise _refused(f"vCPU {left[0]} is in no NUMA node.")
    total = sum(cell.memory_mb for cell in found)
    if total != memory_mb:
        raise _refused(f"The NUMA nodes have {total} MB of memory together, and the flavor {memory_mb}.")
    return tuple(found)
