"""Requests for CPUs and memory of a host, and the placement of guests in its NUMA cells."""

from __future__ import annotations

import random

import pytest

from nova_lite import hardware
from nova_lite.base import cpu_sets, exceptions
from nova_lite.hardware import fitting
from nova_lite.hardware.fitting import FitError, Ratios
from nova_lite.hardware.numa import NUMACellRequest, NUMARequest
from nova_lite.objects import Flavor, Image, InstanceNUMATopology, NUMACell, NUMACellUsage, NUMAPages, NUMAUsage
from nova_lite.objects.numa import usage_of, usage_with, usage_without


def request_for(
    vcpus: int = 2, memory_mb: int = 256, image: dict[str, str] | None = None, **specs: str
) -> NUMARequest | None:
    extra_specs = {f"hw:{key.replace('__', '.')}": value for key, value in specs.items()}
    flavor = Flavor(flavorid="1", name="f", vcpus=vcpus, memory_mb=memory_mb, root_gb=1, extra_specs=extra_specs)
    with_properties = Image(id="i", name="i", properties=image or {})
    hardware.resolve(flavor, with_properties)
    request = hardware.resolve(flavor, with_properties).numa
    assert hardware.numa_of(flavor, with_properties) == request
    return request


def cell(number: int = 0, shared: str = "0-1", dedicated: str = "2-7", threads: bool = True, **more: int) -> NUMACell:
    """Return a cell with eight CPUs in four cores, and 1024 MB of memory, 256 MB of it in pages of 2 MiB."""
    first = number * 8
    return NUMACell(
        id=number,
        memory_mb=1024,
        shared_cpus=cpu_sets.show(first + cpu for cpu in cpu_sets.parse(shared)),
        dedicated_cpus=cpu_sets.show(first + cpu for cpu in cpu_sets.parse(dedicated)),
        siblings=[f"{core}-{core + 1}" for core in range(first, first + 8, 2)] if threads else [],
        pages=[NUMAPages(size_kb=4, total=196608), NUMAPages(size_kb=2048, total=128, **more)],
    )


def fit(
    request: NUMARequest | None, *cells: NUMACell, usage: NUMAUsage | None = None, ratios: Ratios | None = None
) -> InstanceNUMATopology:
    assert request is not None
    return fitting.fit(request, cells or (cell(),), usage or {}, ratios or Ratios())


def pins(topology: InstanceNUMATopology) -> list[int]:
    return [cpu for node in topology.cells for cpu in node.pins]


# --- requests


def test_guest_without_settings_has_no_request() -> None:
    assert request_for() is None
    assert request_for(cpu_policy="shared") is None
    assert request_for(cpu_sockets="1") is None


def test_dedicated_cpus_imply_one_node() -> None:
    request = request_for(cpu_policy="dedicated")
    assert request is not None
    assert request.dedicated
    assert request.cells == (NUMACellRequest(0, (0, 1), 256),)


def test_nodes_are_equal_or_as_set() -> None:
    alike = request_for(4, 256, numa_nodes="2")
    assert alike is not None
    assert alike.cells == (NUMACellRequest(0, (0, 1), 128), NUMACellRequest(1, (2, 3), 128))
    own = request_for(
        4, 256, numa_nodes="2", numa_cpus__0="0,3", numa_mem__0="64", numa_cpus__1="1-2", numa_mem__1="192"
    )
    assert own is not None
    assert own.cells == (NUMACellRequest(0, (0, 3), 64), NUMACellRequest(1, (1, 2), 192))


@pytest.mark.parametrize(("text", "size"), [("2MB", 2048), ("2048", 2048), ("1GB", 1048576), ("large", "large")])
def test_page_size_is_parsed(text: str, size: str | int) -> None:
    request = request_for(mem_page_size=text)
    assert request is not None
    assert request.page_size == size


def test_image_may_request_dedicated_cpus_and_pages() -> None:
    request = request_for(image={"hw_cpu_policy": "dedicated", "hw_cpu_thread_policy": "isolate"})
    assert request is not None
    assert (request.dedicated, request.thread_policy) == ({0, 1}, "isolate")
    request = request_for(image={"hw_mem_page_size": "2MB"}, mem_page_size="large")
    assert request is not None
    assert request.page_size == 2048


DESCRIBED = {"numa_nodes": "2", "numa_cpus__0": "0", "numa_mem__0": "128", "numa_cpus__1": "1", "numa_mem__1": "128"}


@pytest.mark.parametrize(
    ("specs", "image", "message"),
    [
        ({"cpu_policy": "most"}, {}, "takes shared, dedicated, mixed"),
        ({"cpu_thread_policy": "require"}, {}, "needs hw:cpu_policy=dedicated"),
        ({"emulator_threads_policy": "isolate"}, {}, "needs hw:cpu_policy=dedicated"),
        ({"cpu_policy": "shared"}, {"hw_cpu_policy": "dedicated"}, "which its flavor rules out"),
        (
            {"cpu_policy": "dedicated", "cpu_thread_policy": "require"},
            {"hw_cpu_thread_policy": "isolate"},
            "contradict each other",
        ),
        ({}, {"hw_mem_page_size": "2MB"}, "it has no hw:mem_page_size"),
        ({"mem_page_size": "small"}, {"hw_mem_page_size": "2MB"}, "it has hw:mem_page_size=small"),
        ({"mem_page_size": "0"}, {}, "cannot be of size 0"),
        ({"mem_page_size": "huge"}, {}, "it takes small, large, any"),
        ({"numa_nodes": "2"}, {"hw_numa_nodes": "2"}, "only one of them may"),
        ({"numa_nodes": "3"}, {}, "cannot be divided among 3 NUMA nodes"),
        ({"numa_nodes": "129"}, {}, "from 1 to 128"),
        ({"numa_cpus__0": "0-1"}, {}, "need hw:numa_nodes"),
        ({**DESCRIBED, "numa_nodes": "1"}, {}, "NUMA node 1 has settings"),
        ({"numa_nodes": "2", "numa_cpus__0": "0"}, {}, "of each of the 2 NUMA nodes, or of none"),
        ({**DESCRIBED, "numa_cpus__1": "2"}, {}, "names vCPU 2, and the flavor has 2"),
        ({**DESCRIBED, "numa_cpus__1": "0"}, {}, "vCPU 0 is in two NUMA nodes"),
        ({**DESCRIBED, "numa_cpus__1": "1,^1"}, {}, "names no vCPU"),
        ({**DESCRIBED, "numa_cpus__1": "9-1"}, {}, "is not a range of CPUs"),
        ({**DESCRIBED, "numa_mem__1": "64"}, {}, "have 192 MB of memory together, and the flavor 256"),
    ],
)
def test_impossible_request_is_refused(specs: dict[str, str], image: dict[str, str], message: str) -> None:
    with pytest.raises(exceptions.HardwareRefused, match=message) as refusal:
        request_for(image=image, **specs)
    assert refusal.value.code == 400


def test_vcpu_without_node_is_refused() -> None:
    with pytest.raises(exceptions.HardwareRefused, match="vCPU 2 is in no NUMA node"):
        request_for(3, **DESCRIBED)


# --- placement: CPUs


def test_vcpu_gets_a_free_dedicated_cpu() -> None:
    assert pins(fit(request_for(cpu_policy="dedicated"))) == [2, 3]
    usage = {"0": NUMACellUsage(cpus=[2, 3, 4])}
    assert pins(fit(request_for(cpu_policy="dedicated"), usage=usage)) == [6, 7]
    with pytest.raises(FitError, match="4 dedicated CPUs requested in a NUMA cell, at most 3 free"):
        fit(request_for(4, cpu_policy="dedicated"), usage=usage)
    with pytest.raises(FitError, match="no dedicated CPUs"):
        fit(request_for(cpu_policy="dedicated"), cell(dedicated=""))
    with pytest.raises(FitError, match="reports no NUMA cells"):
        fitting.fit(NUMARequest(cells=(NUMACellRequest(0, (0,), 1),)), [], {}, Ratios())


def test_policy_prefer_uses_threads_of_common_cores() -> None:
    request = request_for(cpu_policy="dedicated", cpu_thread_policy="prefer")
    assert pins(fit(request, usage={"0": NUMACellUsage(cpus=[2])})) == [4, 5]
    assert pins(fit(request_for(1, cpu_policy="dedicated"), usage={"0": NUMACellUsage(cpus=[2])})) == [3]
    assert pins(fit(request_for(3, cpu_policy="dedicated"), usage={"0": NUMACellUsage(cpus=[2])})) == [4, 5, 3]
    assert pins(fit(request, cell(threads=False))) == [2, 3]


def test_policy_require_needs_threads_of_common_cores() -> None:
    request = request_for(cpu_policy="dedicated", cpu_thread_policy="require")
    assert pins(fit(request, usage={"0": NUMACellUsage(cpus=[2, 4])})) == [6, 7]
    with pytest.raises(FitError, match="2 threads of common cores"):
        fit(request, usage={"0": NUMACellUsage(cpus=[2, 4, 6])})
    with pytest.raises(FitError, match="2 threads of common cores"):
        fit(request, cell(threads=False))


def test_policy_isolate_holds_whole_cores() -> None:
    request = request_for(cpu_policy="dedicated", cpu_thread_policy="isolate")
    placed = fit(request, usage={"0": NUMACellUsage(cpus=[3])})
    assert (pins(placed), placed.host_cpus) == ([4, 6], [4, 5, 6, 7])
    usage = usage_with({"0": NUMACellUsage(cpus=[3])}, placed)
    assert usage["0"].cpus == [3, 4, 5, 6, 7]
    with pytest.raises(FitError, match="2 whole cores requested in a NUMA cell, at most 0 free"):
        fit(request, usage=usage)
    # A core whose other thread guests share is none.
    with pytest.raises(FitError, match="at most 1 free"):
        fit(request, cell(shared="0-2,4", dedicated="3,5-7"))
    assert pins(fit(request, cell(threads=False))) == [2, 3]


def test_emulator_policy_isolate_holds_one_more_cpu() -> None:
    request = request_for(cpu_policy="dedicated", emulator_threads_policy="isolate")
    placed = fit(request)
    assert (pins(placed), placed.emulator_cpus, placed.host_cpus) == ([2, 3], [4], [2, 3, 4])
    with pytest.raises(FitError, match="3 dedicated CPUs requested"):
        fit(request, usage={"0": NUMACellUsage(cpus=[2, 3, 4, 5])})
    both = fit(request_for(1, cpu_policy="dedicated", cpu_thread_policy="isolate", emulator_threads_policy="isolate"))
    assert (pins(both), both.emulator_cpus, both.host_cpus) == ([2], [4], [2, 3, 4, 5])
    share = request_for(cpu_policy="dedicated", emulator_threads_policy="share")
    assert fit(share).emulator_shared
    with pytest.raises(FitError, match="no shared CPUs"):
        fit(share, cell(shared=""))


def test_shared_vcpus_are_limited_by_the_allocation_ratio() -> None:
    request = request_for(2, numa_nodes="1")
    assert pins(fit(request)) == []
    usage = {"0": NUMACellUsage(vcpus=2)}
    with pytest.raises(FitError, match="2 shared vCPUs requested in a NUMA cell, at most 0 left"):
        fit(request, usage=usage)
    assert fit(request, usage=usage, ratios=Ratios(cpu=2.0)).cells[0].cell == 0
    with pytest.raises(FitError, match="at most 2 left"):
        fit(request_for(3, numa_nodes="1"), ratios=Ratios(cpu=16.0))


# --- memory


def test_ordinary_memory_excludes_large_pages() -> None:
    request = request_for(1, 512, numa_nodes="1")
    assert fit(request, usage={"0": NUMACellUsage(memory_mb=256)}).cells[0].page_kb is None
    with pytest.raises(FitError, match="512 MB requested in a NUMA cell, at most 511 MB left"):
        fit(request, usage={"0": NUMACellUsage(memory_mb=257)})
    with pytest.raises(FitError, match="769 MB requested"):
        fit(request_for(1, 769, numa_nodes="1"), ratios=Ratios(ram=4.0))


def test_page_size_word_selects_pages() -> None:
    large = request_for(1, 128, mem_page_size="large")
    placed = fit(large)
    assert (placed.cells[0].page_kb, placed.cells[0].huge) == (2048, True)
    usage = usage_with({}, placed)
    assert usage["0"].pages == {"2048": 64}
    assert fit(request_for(1, 128, mem_page_size="any"), usage=usage).cells[0].page_kb == 2048
    full = usage_with(usage, placed)
    with pytest.raises(FitError, match=r"128 MB in pages \(large\) requested in a NUMA cell, at most 0 MB free"):
        fit(large, usage=full, ratios=Ratios(cpu=4.0))
    some = fit(request_for(1, 128, mem_page_size="any"), usage=full, ratios=Ratios(cpu=4.0)).cells[0]
    assert (some.page_kb, some.huge) == (4, False)
    assert not fit(request_for(1, 128, mem_page_size="small")).cells[0].huge
    with pytest.raises(FitError, match=r"pages \(1048576 KiB\)"):
        fit(request_for(1, 1024, mem_page_size="1GB"))
    with pytest.raises(FitError, match=r"pages \(2048 KiB\)"):
        fit(request_for(1, 127, mem_page_size="2MB"))


def test_reserved_pages_are_not_allocated() -> None:
    fit(request_for(1, 128, mem_page_size="2MB"), cell(reserved=64))
    with pytest.raises(FitError, match="at most 126 MB free"):
        fit(request_for(1, 128, mem_page_size="2MB"), cell(reserved=65))


# --- several cells


def test_nodes_are_in_different_cells() -> None:
    request = request_for(4, 256, cpu_policy="dedicated", numa_nodes="2")
    placed = fit(request, cell(0), cell(1))
    assert [(node.cell, node.pins) for node in placed.cells] == [(0, [2, 3]), (1, [10, 11])]
    with pytest.raises(FitError, match="2 NUMA cells requested, it has 1"):
        fit(request, cell(0))
    full = {"1": NUMACellUsage(cpus=[10, 11, 12, 13, 14])}
    with pytest.raises(FitError, match="too few have space for one of its nodes"):
        fit(request, cell(0), cell(1), usage=full)


def test_fullest_sufficient_cell_is_preferred() -> None:
    usage = {"1": NUMACellUsage(cpus=[10, 11])}
    assert fit(request_for(cpu_policy="dedicated"), cell(0), cell(1), usage=usage).cells[0].cell == 1
    assert fit(request_for(5, cpu_policy="dedicated"), cell(0), cell(1), usage=usage).cells[0].cell == 0


def test_node_moves_for_a_node_that_fits_nowhere_else() -> None:
    """The first node prefers the fullest cell, but only that cell has enough memory for the second node."""
    nodes = {"numa_nodes": "2", "numa_cpus__0": "0", "numa_mem__0": "64", "numa_cpus__1": "1", "numa_mem__1": "512"}
    request = request_for(2, 576, cpu_policy="dedicated", **nodes)
    usage = {"1": NUMACellUsage(memory_mb=600)}
    placed = fit(request, cell(0, dedicated="2-3"), cell(1), usage=usage)
    assert [node.cell for node in placed.cells] == [1, 0]
    with pytest.raises(FitError, match="too few have space for one of its nodes"):
        fit(request, cell(0, dedicated="2-3"), cell(1), usage={"1": NUMACellUsage(memory_mb=768)})


def test_released_claims_leave_no_usage() -> None:
    """Guests come and go at random. No CPU belongs to two guests, and every allocation is within its cell."""
    chance = random.Random(1)
    cells = [cell(0), cell(1)]
    dedicated = {cpu for cell_ in cells for cpu in cpu_sets.parse(cell_.dedicated_cpus)}
    kinds = [
        request_for(chance.randint(1, 4), 64, cpu_policy="dedicated", cpu_thread_policy=policy)
        for policy in ("prefer", "isolate", "require")
    ]
    kinds += [request_for(2, 128, mem_page_size="large"), request_for(4, 128, cpu_policy="dedicated", numa_nodes="2")]
    usage: NUMAUsage = {}
    placed: list[InstanceNUMATopology] = []
    fitted = 0
    for _ in range(2000):
        if placed and chance.random() < 0.45:
            usage = usage_without(usage, placed.pop(chance.randrange(len(placed))))
        else:
            try:
                topology = fit(chance.choice(kinds), *cells, usage=usage, ratios=Ratios(cpu=8.0))
            except FitError:
                continue
            placed.append(topology)
            usage = usage_with(usage, topology)
            fitted += 1
        held = [cpu for topology in placed for cpu in topology.host_cpus]
        assert len(held) == len(set(held))
        assert set(held) <= dedicated
        assert usage == usage_of(placed)
        assert all(used.pages.get("2048", 0) <= 128 for used in usage.values())
    assert fitted > 300
    for topology in placed:
        usage = usage_without(usage, topology)
    assert usage == {}
