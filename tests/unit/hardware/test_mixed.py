"""Guests with dedicated and shared CPUs at once, realtime vCPUs and locked memory, against models of the rules."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_lite import hardware
from nova_lite.base import cpu_sets, exceptions
from nova_lite.hardware import fitting
from nova_lite.hardware.fitting import FitError, Ratios
from nova_lite.hardware.numa import NUMACellRequest, NUMARequest
from nova_lite.objects import Flavor, Image, InstanceNUMATopology, NUMACell, NUMACellUsage, NUMAPages
from nova_lite.objects.numa import usage_with, usage_without

VCPUS = 4
MASKED = {"cpu_policy": "mixed", "cpu_dedicated_mask": "1-2"}
REALTIME = {"cpu_policy": "dedicated", "cpu_realtime": "yes", "cpu_realtime_mask": "^0"}


def request_for(specs: dict[str, str], image: dict[str, str] | None = None) -> NUMARequest | None:
    extra_specs = {f"hw:{key.replace('__', '.')}": value for key, value in specs.items()}
    flavor = Flavor(flavorid="1", name="f", vcpus=VCPUS, memory_mb=256, root_gb=1, extra_specs=extra_specs)
    with_properties = Image(id="i", name="i", properties={f"hw_{key}": value for key, value in (image or {}).items()})
    request = hardware.resolve(flavor, with_properties).numa
    assert hardware.numa_of(flavor, with_properties) == request
    return request


def of(specs: dict[str, str], image: dict[str, str] | None = None) -> NUMARequest:
    request = request_for(specs, image)
    assert request is not None
    return request


# --- requests


@pytest.mark.parametrize(("mask", "vcpus"), [("1-2", {1, 2}), ("^0", {1, 2, 3}), ("0-3,^1", {0, 2, 3}), ("^1-3", {0})])
def test_dedicated_mask_names_the_dedicated_vcpus(mask: str, vcpus: set[int]) -> None:
    request = of({"cpu_policy": "mixed", "cpu_dedicated_mask": mask})
    assert (request.dedicated, request.shared_vcpus) == (vcpus, VCPUS - len(vcpus))


def test_image_may_have_the_policy_of_a_flavors_mask() -> None:
    assert of({"cpu_dedicated_mask": "0"}, {"cpu_policy": "mixed"}).dedicated == {0}


def test_realtime_vcpus_are_those_of_the_mask_or_all() -> None:
    assert of(REALTIME).realtime == {1, 2, 3}
    assert of(REALTIME, {"cpu_realtime_mask": "2-3"}).realtime == {2, 3}, "the image takes precedence"
    every = of({"cpu_policy": "dedicated", "cpu_realtime": "yes", "emulator_threads_policy": "share"})
    assert (every.realtime, every.dedicated) == ({0, 1, 2, 3}, {0, 1, 2, 3})
    assert not of({**REALTIME, "cpu_realtime": "no"}).realtime


def test_mixed_policy_without_mask_dedicates_cpus_to_realtime_vcpus() -> None:
    request = of({**REALTIME, "cpu_policy": "mixed"})
    assert (request.dedicated, request.realtime) == ({1, 2, 3}, {1, 2, 3})


def test_memory_is_locked_on_request_and_with_realtime_vcpus() -> None:
    assert of(REALTIME).locked
    assert of({"mem_page_size": "small", "locked_memory": "yes"}).locked
    assert of({"mem_page_size": "large"}, {"locked_memory": "yes", "mem_page_size": "any"}).locked
    assert not of({"mem_page_size": "small", "locked_memory": "no"}).locked


def test_emulator_threads_may_use_the_shared_cpus_of_a_guest_without_topology() -> None:
    assert request_for({"emulator_threads_policy": "share"}) is None


@pytest.mark.parametrize(
    ("specs", "image", "message"),
    [
        ({"cpu_policy": "mixed"}, {}, "needs either hw:cpu_dedicated_mask or realtime vCPUs"),
        ({**REALTIME, **MASKED}, {}, "needs either hw:cpu_dedicated_mask or realtime vCPUs, and not both"),
        ({"cpu_dedicated_mask": "0"}, {}, "hw:cpu_dedicated_mask needs hw:cpu_policy=mixed"),
        ({**MASKED, "cpu_policy": "dedicated"}, {}, "hw:cpu_dedicated_mask needs hw:cpu_policy=mixed"),
        ({**MASKED, "cpu_dedicated_mask": "0-3"}, {}, "has to leave a vCPU that shares CPUs"),
        ({**MASKED, "cpu_dedicated_mask": "^0-3"}, {}, "hw:cpu_dedicated_mask names no vCPU"),
        ({**MASKED, "cpu_dedicated_mask": "3-4"}, {}, "hw:cpu_dedicated_mask names vCPU 4, and the flavor has 4"),
        ({**MASKED, "cpu_dedicated_mask": "3-1"}, {}, "hw:cpu_dedicated_mask: '3-1' is not a range"),
        ({**MASKED, "cpu_dedicated_mask": "first"}, {}, "it takes CPUs, as 0-3"),
        (MASKED, {"cpu_policy": "dedicated"}, "requests dedicated CPUs, which its flavor rules out: .* is mixed"),
        ({"cpu_policy": "shared"}, {"cpu_policy": "mixed"}, "requests mixed CPUs, which its flavor rules out"),
        ({**REALTIME, "cpu_policy": "shared"}, {}, "hw:cpu_realtime needs hw:cpu_policy=dedicated or mixed"),
        ({**REALTIME, "cpu_realtime_mask": "0-3"}, {}, "needs a vCPU that hw:cpu_realtime_mask leaves out"),
        ({**REALTIME, "cpu_realtime_mask": "7"}, {}, "hw:cpu_realtime_mask names vCPU 7"),
        ({"cpu_policy": "dedicated", "cpu_realtime": "yes"}, {}, "needs a vCPU that hw:cpu_realtime_mask leaves out"),
        ({"locked_memory": "yes"}, {}, "hw:locked_memory needs hw:mem_page_size"),
        ({"mem_page_size": "small", "locked_memory": "yes"}, {"locked_memory": "no"}, "contradict each other"),
    ],
)
def test_impossible_request_is_refused(specs: dict[str, str], image: dict[str, str], message: str) -> None:
    with pytest.raises(exceptions.HardwareRefused, match=message) as refusal:
        request_for(specs, image)
    assert refusal.value.code == 400


POLICIES = st.sampled_from([None, "shared", "mixed", "dedicated"])
#: Mask as vCPUs, and whether the text names the others instead.
MASKS = st.none() | st.tuples(st.frozensets(st.integers(0, VCPUS - 1), min_size=1), st.booleans())


def written(mask: tuple[frozenset[int], bool]) -> str:
    """Return the mask as text."""
    cpus, leaves_out = mask
    return ",".join(f"^{cpu}" for cpu in sorted(cpus)) if leaves_out else cpu_sets.show(cpus)


def meant(mask: tuple[frozenset[int], bool] | None) -> set[int]:
    if mask is None:
        return set()
    return set(range(VCPUS)) - mask[0] if mask[1] else set(mask[0])


def nova(
    flavor: str | None,
    image: str | None,
    masked: tuple[frozenset[int], bool] | None,
    realtime: bool,
    realtime_mask: tuple[frozenset[int], bool] | None,
    thread_policy: str | None,
    emulator: str | None,
) -> tuple[set[int], set[int]] | None:
    """Return the dedicated and the realtime vCPUs; None if Nova refuses the request."""
    every = set(range(VCPUS))
    if (flavor, image) in {("shared", "mixed"), ("shared", "dedicated"), ("mixed", "dedicated")}:
        return None
    policy = flavor or image or "shared"
    times = (every if realtime_mask is None else meant(realtime_mask)) if realtime else set()
    if realtime and (not times or (times == every and emulator is None)):
        return None
    if policy == "shared":
        if thread_policy or emulator == "isolate" or masked is not None or times:
            return None
        return set(), set()
    if policy == "dedicated":
        return None if masked is not None else (every, times)
    if masked is None:
        return (times, times) if times else None
    return None if times or meant(masked) in (set(), every) else (meant(masked), set())


@given(
    POLICIES,
    POLICIES,
    MASKS,
    st.booleans(),
    MASKS,
    st.sampled_from([None, "prefer", "isolate", "require"]),
    st.sampled_from([None, "share", "isolate"]),
    st.booleans(),
)
@settings(max_examples=1500, deadline=None)
def test_request_has_the_vcpus_of_novas_rules(
    flavor: str | None,
    image: str | None,
    masked: tuple[frozenset[int], bool] | None,
    realtime: bool,
    realtime_mask: tuple[frozenset[int], bool] | None,
    thread_policy: str | None,
    emulator: str | None,
    mask_of_image: bool,
) -> None:
    mask = realtime_mask and written(realtime_mask)
    specs = {
        "cpu_policy": flavor,
        "cpu_dedicated_mask": masked and written(masked),
        "cpu_realtime": "yes" if realtime else None,
        "cpu_realtime_mask": "0" if mask and mask_of_image else mask,
        "cpu_thread_policy": thread_policy,
        "emulator_threads_policy": emulator,
    }
    properties = {"cpu_policy": image, "cpu_realtime_mask": mask if mask_of_image else None}
    expected = nova(flavor, image, masked, realtime, realtime_mask, thread_policy, emulator)
    try:
        request = request_for(*({k: v for k, v in values.items() if v is not None} for values in (specs, properties)))
    except exceptions.HardwareRefused:
        assert expected is None
        return
    if request is None:
        assert expected == (set(), set())
        return
    assert (request.dedicated, request.realtime) == expected
    assert request.shared_vcpus == VCPUS - len(request.dedicated)


# --- placement


def cell(number: int = 0, shared: str = "0-1", dedicated: str = "2-7") -> NUMACell:
    """Return a cell with eight CPUs in four cores."""
    first = number * 8
    return NUMACell(
        id=number,
        memory_mb=1024,
        shared_cpus=cpu_sets.show(first + cpu for cpu in cpu_sets.parse(shared)),
        dedicated_cpus=cpu_sets.show(first + cpu for cpu in cpu_sets.parse(dedicated)),
        siblings=[f"{core}-{core + 1}" for core in range(first, first + 8, 2)],
        pages=[NUMAPages(size_kb=4, total=262144)],
    )


def test_mixed_guest_has_shared_and_dedicated_cpus_of_one_cell() -> None:
    placed = fitting.fit(of(MASKED), [cell()], {}, Ratios())
    (node,) = placed.cells
    assert (node.pinning, node.floating, placed.host_cpus) == ({1: 2, 2: 3}, [0, 3], [2, 3])
    assert (placed.dedicated_vcpus, placed.shared_vcpus) == ([1, 2], 2)
    usage = usage_with({}, placed)
    assert (usage["0"].vcpus, usage["0"].cpus) == (2, [2, 3])
    assert usage_without(usage, placed) == {}
    with pytest.raises(FitError, match="2 shared vCPUs requested in a NUMA cell, at most 0 left"):
        fitting.fit(of(MASKED), [cell()], usage, Ratios())
    fitting.fit(of(MASKED), [cell()], usage, Ratios(cpu=2.0))


def test_shared_cpus_that_are_exhausted_do_not_matter_for_dedicated_ones() -> None:
    usage = {"0": NUMACellUsage(vcpus=9)}
    fitting.fit(of({"cpu_policy": "dedicated"}), [cell()], usage, Ratios())


def test_emulator_gets_a_cpu_of_a_node_without_dedicated_vcpus() -> None:
    nodes = {"numa_nodes": "2", "emulator_threads_policy": "isolate"}
    placed = fitting.fit(of({**MASKED, "cpu_dedicated_mask": "2-3", **nodes}), [cell(), cell(1)], {}, Ratios())
    assert [node.pins for node in placed.cells] == [[], [10, 11]]
    assert placed.emulator_cpus == [2]


def test_cells_of_older_records_name_no_floating_vcpus() -> None:
    (pinned,) = fitting.fit(of({"cpu_policy": "dedicated"}), [cell()], {}, Ratios()).cells
    assert (pinned.floating, pinned.pinning) == ([], {0: 2, 1: 3, 2: 4, 3: 5})


class Wish(NamedTuple):
    """Random guest: its dedicated vCPUs, and policies."""

    dedicated: frozenset[int]
    thread_policy: str
    emulator: str | None
    nodes: int


#: Cell as the kinds of its six CPUs, in cores of two: ``s`` shared, ``d`` dedicated, ``u`` dedicated and used,
#: ``-`` of neither set; and its use by shared vCPUs.
CELLS = st.tuples(st.text("sddu-", min_size=6, max_size=6), st.integers(0, 3))
WISHES = st.builds(
    Wish,
    st.frozensets(st.integers(0, VCPUS - 1)),
    st.sampled_from(["prefer", "isolate", "require"]),
    st.sampled_from([None, "share", "isolate"]),
    st.sampled_from([1, 2]),
)


def kinds(cells: list[tuple[str, int]], kind: str, number: int) -> set[int]:
    return {number * 6 + place for place, letter in enumerate(cells[number][0]) if letter in kind}


def allowed(chosen: tuple[int, ...], reserved: tuple[int, ...], policy: str, free: set[int]) -> bool:
    """Check a choice of dedicated CPUs for vCPUs and for the emulator by the thread policy."""
    if policy == "isolate":
        cores = [{cpu, cpu ^ 1} for cpu in (*chosen, *reserved)]
        return all(core <= free for core in cores) and len(set(map(frozenset, cores))) == len(cores)
    return policy != "require" or all(cpu ^ 1 in free for cpu in chosen)


def choices(free: set[int], count: int, reserve: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    for chosen in itertools.combinations(sorted(free), count):
        for reserved in itertools.combinations(sorted(free - {*chosen}), reserve):
            yield chosen, reserved


def possible(wish: Wish, cells: list[tuple[str, int]], ratio: float) -> bool:
    """Try every choice of cells and of CPUs."""
    if wish.emulator == "share" and not any("s" in text for text, _ in cells):
        return False
    size = VCPUS // wish.nodes
    for order in itertools.permutations(range(len(cells)), wish.nodes):
        for node, number in enumerate(order):
            pinned = len(wish.dedicated & {*range(node * size, (node + 1) * size)})
            shared, free = kinds(cells, "s", number), kinds(cells, "d", number)
            floats = size - pinned
            if floats and (floats > len(shared) or floats + cells[number][1] > int(len(shared) * ratio)):
                break
            reserve = int(wish.emulator == "isolate" and node == 0)
            if not any(allowed(*choice, wish.thread_policy, free) for choice in choices(free, pinned, reserve)):
                break
        else:
            return True
    return False


@given(WISHES, st.lists(CELLS, min_size=1, max_size=3), st.sampled_from([1.0, 2.0]))
@settings(max_examples=600, deadline=None)
def test_place_is_found_exactly_if_there_is_one(wish: Wish, cells: list[tuple[str, int]], ratio: float) -> None:
    host = [
        NUMACell(
            id=number,
            memory_mb=1024,
            shared_cpus=cpu_sets.show(kinds(cells, "s", number)),
            dedicated_cpus=cpu_sets.show(kinds(cells, "du", number)),
            siblings=[f"{core}-{core + 1}" for core in range(number * 6, number * 6 + 6, 2)],
        )
        for number in range(len(cells))
    ]
    used = (
        NUMACellUsage(vcpus=cells[number][1], cpus=sorted(kinds(cells, "u", number))) for number in range(len(cells))
    )
    usage = {str(number): item for number, item in enumerate(used) if item != NUMACellUsage()}
    size = VCPUS // wish.nodes
    request = NUMARequest(
        cells=tuple(
            NUMACellRequest(node, tuple(range(node * size, (node + 1) * size)), 64) for node in range(wish.nodes)
        ),
        dedicated=wish.dedicated,
        thread_policy=wish.thread_policy,
        emulator=wish.emulator,
    )
    try:
        placed = fitting.fit(request, host, usage, Ratios(cpu=ratio))
    except FitError:
        assert not possible(wish, cells, ratio)
        return
    check_place(placed, wish, cells, ratio)
    assert usage_without(usage_with(usage, placed), placed) == usage


def check_place(placed: InstanceNUMATopology, wish: Wish, cells: list[tuple[str, int]], ratio: float) -> None:
    """Check that the place keeps every rule."""
    assert len({node.cell for node in placed.cells}) == wish.nodes
    assert {vcpu for node in placed.cells for vcpu in node.pinning} == wish.dedicated
    assert {vcpu for node in placed.cells for vcpu in node.floating} == {*range(VCPUS)} - wish.dedicated
    assert len(placed.host_cpus) == len({*placed.host_cpus})
    for node in placed.cells:
        free = kinds(cells, "d", node.cell)
        assert {*node.pins, *node.held} <= free
        emulator = tuple(placed.emulator_cpus) if node.id == 0 else ()
        assert allowed(tuple(node.pins), emulator, wish.thread_policy, free)
        if node.floating:
            shared = len(kinds(cells, "s", node.cell))
            assert len(node.floating) <= min(shared, int(shared * ratio) - cells[node.cell][1])
    assert len(placed.emulator_cpus) == (wish.emulator == "isolate")
