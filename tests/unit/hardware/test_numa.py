"""What is asked of a host's CPUs and memory, and where in its NUMA cells a guest fits."""

from __future__ import annotations

import random

import pytest

from nova_lite import hardware
from nova_lite.base import cpu_sets, exceptions
from nova_lite.hardware import fitting
from nova_lite.hardware.fitting import FitError, Ratios
from nova_lite.hardware.numa import NUMACellRequest, NUMARequest
from nova_lite.objects import Flavor, Image, InstanceNUMATopology, NUMACell, NUMACellUsage, NUMAPages, NUMAUsage
from nova_lite.objects.numa import given_back, taken, usage_of


def wanted(
    vcpus: int = 2, memory_mb: int = 256, image: dict[str, str] | None = None, **specs: str
) -> NUMARequest | None:
    named = {f"hw:{key.replace('__', '.')}": value for key, value in specs.items()}
    flavor = Flavor(flavorid="1", name="f", vcpus=vcpus, memory_mb=memory_mb, root_gb=1, extra_specs=named)
    described = Image(id="i", name="i", properties=image or {})
    hardware.check(flavor, described)
    found = hardware.resolve(flavor, described).numa
    assert hardware.numa_of(flavor, described) == found
    return found


def cell(number: int = 0, shared: str = "0-1", dedicated: str = "2-7", threads: bool = True, **more: int) -> NUMACell:
    """Eight CPUs, four cores; memory 1024 MB, of it 256 MB in pages of 2 MiB."""
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
    asked: NUMARequest | None, *cells: NUMACell, usage: NUMAUsage | None = None, ratios: Ratios | None = None
) -> InstanceNUMATopology:
    assert asked is not None
    return fitting.fit(asked, cells or (cell(),), usage or {}, ratios or Ratios())


def pins(topology: InstanceNUMATopology) -> list[int]:
    return [cpu for each in topology.cells for cpu in each.pins]


# --- what is asked


def test_nothing_in_particular() -> None:
    assert wanted() is None
    assert wanted(cpu_policy="shared") is None
    assert wanted(cpu_sockets="1") is None


def test_cpus_of_its_own_make_one_node() -> None:
    asked = wanted(cpu_policy="dedicated")
    assert asked is not None
    assert asked.dedicated
    assert asked.cells == (NUMACellRequest(0, (0, 1), 256),)


def test_nodes_are_alike_or_as_described() -> None:
    alike = wanted(4, 256, numa_nodes="2")
    assert alike is not None
    assert alike.cells == (NUMACellRequest(0, (0, 1), 128), NUMACellRequest(1, (2, 3), 128))
    own = wanted(4, 256, numa_nodes="2", numa_cpus__0="0,3", numa_mem__0="64", numa_cpus__1="1-2", numa_mem__1="192")
    assert own is not None
    assert own.cells == (NUMACellRequest(0, (0, 3), 64), NUMACellRequest(1, (1, 2), 192))


@pytest.mark.parametrize(("said", "size"), [("2MB", 2048), ("2048", 2048), ("1GB", 1048576), ("large", "large")])
def test_page_sizes(said: str, size: str | int) -> None:
    asked = wanted(mem_page_size=said)
    assert asked is not None
    assert asked.page_size == size


def test_an_image_has_a_say() -> None:
    asked = wanted(image={"hw_cpu_policy": "dedicated", "hw_cpu_thread_policy": "isolate"})
    assert asked is not None
    assert (asked.dedicated, asked.thread_policy) == (True, "isolate")
    asked = wanted(image={"hw_mem_page_size": "2MB"}, mem_page_size="large")
    assert asked is not None
    assert asked.page_size == 2048


DESCRIBED = {"numa_nodes": "2", "numa_cpus__0": "0", "numa_mem__0": "128", "numa_cpus__1": "1", "numa_mem__1": "128"}


@pytest.mark.parametrize(
    ("specs", "image", "says"),
    [
        ({"cpu_policy": "mixed"}, {}, "takes shared, dedicated"),
        ({"cpu_thread_policy": "require"}, {}, "goes with hw:cpu_policy=dedicated"),
        ({"emulator_threads_policy": "isolate"}, {}, "goes with hw:cpu_policy=dedicated"),
        ({"emulator_threads_policy": "share"}, {}, "goes with CPUs, pages or NUMA nodes"),
        ({"cpu_policy": "shared"}, {"hw_cpu_policy": "dedicated"}, "which its flavor rules out"),
        (
            {"cpu_policy": "dedicated", "cpu_thread_policy": "require"},
            {"hw_cpu_thread_policy": "isolate"},
            "contradict each other",
        ),
        ({}, {"hw_mem_page_size": "2MB"}, "it does not say hw:mem_page_size"),
        ({"mem_page_size": "small"}, {"hw_mem_page_size": "2MB"}, "it says hw:mem_page_size=small"),
        ({"mem_page_size": "0"}, {}, "cannot be of 0"),
        ({"mem_page_size": "huge"}, {}, "it takes small, large, any"),
        ({"numa_nodes": "2"}, {"hw_numa_nodes": "2"}, "only one of them may"),
        ({"numa_nodes": "3"}, {}, "cannot be divided among 3 NUMA nodes"),
        ({"numa_nodes": "129"}, {}, "from 1 to 128"),
        ({"numa_cpus__0": "0-1"}, {}, "go with hw:numa_nodes"),
        ({**DESCRIBED, "numa_nodes": "1"}, {}, "NUMA node 1 is described"),
        ({"numa_nodes": "2", "numa_cpus__0": "0"}, {}, "for each of the 2 NUMA nodes, or for none"),
        ({**DESCRIBED, "numa_cpus__1": "2"}, {}, "names vCPU 2, and the flavor has 2"),
        ({**DESCRIBED, "numa_cpus__1": "0"}, {}, "vCPU 0 is in two NUMA nodes"),
        ({**DESCRIBED, "numa_cpus__1": "1,^1"}, {}, "names no vCPU"),
        ({**DESCRIBED, "numa_cpus__1": "9-1"}, {}, "is not a range of CPUs"),
        ({**DESCRIBED, "numa_mem__1": "64"}, {}, "have 192 MB of memory together, and the flavor 256"),
    ],
)
def test_what_cannot_be_is_refused(specs: dict[str, str], image: dict[str, str], says: str) -> None:
    with pytest.raises(exceptions.HardwareRefused, match=says) as refusal:
        wanted(image=image, **specs)
    assert refusal.value.code == 400


def test_a_vcpu_in_no_node_is_refused() -> None:
    with pytest.raises(exceptions.HardwareRefused, match="vCPU 2 is in no NUMA node"):
        wanted(3, **DESCRIBED)


# --- where it fits: CPUs


def test_each_vcpu_gets_a_cpu_that_is_free() -> None:
    assert pins(fit(wanted(cpu_policy="dedicated"))) == [2, 3]
    usage = {"0": NUMACellUsage(cpus=[2, 3, 4])}
    assert pins(fit(wanted(cpu_policy="dedicated"), usage=usage)) == [6, 7]
    with pytest.raises(FitError, match="4 dedicated CPUs asked for in a NUMA cell, at most 3 free"):
        fit(wanted(4, cpu_policy="dedicated"), usage=usage)
    with pytest.raises(FitError, match="no dedicated CPUs"):
        fit(wanted(cpu_policy="dedicated"), cell(dedicated=""))
    with pytest.raises(FitError, match="tells of no NUMA cells"):
        fitting.fit(NUMARequest(cells=(NUMACellRequest(0, (0,), 1),)), [], {}, Ratios())


def test_threads_of_common_cores_are_preferred() -> None:
    asked = wanted(cpu_policy="dedicated", cpu_thread_policy="prefer")
    assert pins(fit(asked, usage={"0": NUMACellUsage(cpus=[2])})) == [4, 5]
    assert pins(fit(wanted(1, cpu_policy="dedicated"), usage={"0": NUMACellUsage(cpus=[2])})) == [3]
    assert pins(fit(wanted(3, cpu_policy="dedicated"), usage={"0": NUMACellUsage(cpus=[2])})) == [4, 5, 3]
    assert pins(fit(asked, cell(threads=False))) == [2, 3]


def test_threads_of_common_cores_can_be_required() -> None:
    asked = wanted(cpu_policy="dedicated", cpu_thread_policy="require")
    assert pins(fit(asked, usage={"0": NUMACellUsage(cpus=[2, 4])})) == [6, 7]
    with pytest.raises(FitError, match="2 threads of common cores"):
        fit(asked, usage={"0": NUMACellUsage(cpus=[2, 4, 6])})
    with pytest.raises(FitError, match="2 threads of common cores"):
        fit(asked, cell(threads=False))


def test_a_core_of_its_own_is_nobody_elses() -> None:
    asked = wanted(cpu_policy="dedicated", cpu_thread_policy="isolate")
    placed = fit(asked, usage={"0": NUMACellUsage(cpus=[3])})
    assert (pins(placed), placed.host_cpus) == ([4, 6], [4, 5, 6, 7])
    usage = taken({"0": NUMACellUsage(cpus=[3])}, placed)
    assert usage["0"].cpus == [3, 4, 5, 6, 7]
    with pytest.raises(FitError, match="2 cores of its own asked for in a NUMA cell, at most 0 free"):
        fit(asked, usage=usage)
    # A core whose other thread guests share is none.
    with pytest.raises(FitError, match="at most 1 free"):
        fit(asked, cell(shared="0-2,4", dedicated="3,5-7"))
    assert pins(fit(asked, cell(threads=False))) == [2, 3]


def test_the_emulators_threads_have_a_cpu_of_their_own() -> None:
    asked = wanted(cpu_policy="dedicated", emulator_threads_policy="isolate")
    placed = fit(asked)
    assert (pins(placed), placed.emulator_cpus, placed.host_cpus) == ([2, 3], [4], [2, 3, 4])
    with pytest.raises(FitError, match="3 dedicated CPUs asked for"):
        fit(asked, usage={"0": NUMACellUsage(cpus=[2, 3, 4, 5])})
    both = fit(wanted(1, cpu_policy="dedicated", cpu_thread_policy="isolate", emulator_threads_policy="isolate"))
    assert (pins(both), both.emulator_cpus, both.host_cpus) == ([2], [4], [2, 3, 4, 5])
    share = wanted(cpu_policy="dedicated", emulator_threads_policy="share")
    assert fit(share).emulator_shared
    with pytest.raises(FitError, match="no shared CPUs"):
        fit(share, cell(shared=""))


def test_shared_vcpus_of_a_node_are_counted_by_the_ratio() -> None:
    asked = wanted(2, numa_nodes="1")
    assert pins(fit(asked)) == []
    usage = {"0": NUMACellUsage(vcpus=2)}
    with pytest.raises(FitError, match="2 shared vCPUs asked for in a NUMA cell, at most 0 left"):
        fit(asked, usage=usage)
    assert fit(asked, usage=usage, ratios=Ratios(cpu=2.0)).cells[0].cell == 0
    with pytest.raises(FitError, match="at most 2 left"):
        fit(wanted(3, numa_nodes="1"), ratios=Ratios(cpu=16.0))


# --- memory


def test_ordinary_memory_is_what_is_not_in_large_pages() -> None:
    asked = wanted(1, 512, numa_nodes="1")
    assert fit(asked, usage={"0": NUMACellUsage(memory_mb=256)}).cells[0].page_kb is None
    with pytest.raises(FitError, match="512 MB asked for in a NUMA cell, at most 511 MB left"):
        fit(asked, usage={"0": NUMACellUsage(memory_mb=257)})
    with pytest.raises(FitError, match="769 MB asked for"):
        fit(wanted(1, 769, numa_nodes="1"), ratios=Ratios(ram=4.0))


def test_pages() -> None:
    large = wanted(1, 128, mem_page_size="large")
    placed = fit(large)
    assert (placed.cells[0].page_kb, placed.cells[0].huge) == (2048, True)
    usage = taken({}, placed)
    assert usage["0"].pages == {"2048": 64}
    assert fit(wanted(1, 128, mem_page_size="any"), usage=usage).cells[0].page_kb == 2048
    full = taken(usage, placed)
    with pytest.raises(FitError, match=r"128 MB in pages \(large\) asked for in a NUMA cell, at most 0 MB free"):
        fit(large, usage=full, ratios=Ratios(cpu=4.0))
    some = fit(wanted(1, 128, mem_page_size="any"), usage=full, ratios=Ratios(cpu=4.0)).cells[0]
    assert (some.page_kb, some.huge) == (4, False)
    assert not fit(wanted(1, 128, mem_page_size="small")).cells[0].huge
    with pytest.raises(FitError, match=r"pages \(1048576 KiB\)"):
        fit(wanted(1, 1024, mem_page_size="1GB"))
    with pytest.raises(FitError, match=r"pages \(2048 KiB\)"):
        fit(wanted(1, 127, mem_page_size="2MB"))


def test_reserved_pages_are_not_given_out() -> None:
    fit(wanted(1, 128, mem_page_size="2MB"), cell(reserved=64))
    with pytest.raises(FitError, match="at most 126 MB free"):
        fit(wanted(1, 128, mem_page_size="2MB"), cell(reserved=65))


# --- several cells


def test_each_node_has_a_cell_of_its_own() -> None:
    asked = wanted(4, 256, cpu_policy="dedicated", numa_nodes="2")
    placed = fit(asked, cell(0), cell(1))
    assert [(each.cell, each.pins) for each in placed.cells] == [(0, [2, 3]), (1, [10, 11])]
    with pytest.raises(FitError, match="2 NUMA cells asked for, 1 there"):
        fit(asked, cell(0))
    full = {"1": NUMACellUsage(cpus=[10, 11, 12, 13, 14])}
    with pytest.raises(FitError, match="each has room for fewer of its nodes"):
        fit(asked, cell(0), cell(1), usage=full)


def test_the_fullest_cell_that_will_do_is_taken() -> None:
    usage = {"1": NUMACellUsage(cpus=[10, 11])}
    assert fit(wanted(cpu_policy="dedicated"), cell(0), cell(1), usage=usage).cells[0].cell == 1
    assert fit(wanted(5, cpu_policy="dedicated"), cell(0), cell(1), usage=usage).cells[0].cell == 0


def test_a_node_makes_room_for_one_that_fits_nowhere_else() -> None:
    """The first one would get the fullest cell, and only there is memory enough for the second."""
    nodes = {"numa_nodes": "2", "numa_cpus__0": "0", "numa_mem__0": "64", "numa_cpus__1": "1", "numa_mem__1": "512"}
    asked = wanted(2, 576, cpu_policy="dedicated", **nodes)
    usage = {"1": NUMACellUsage(memory_mb=600)}
    placed = fit(asked, cell(0, dedicated="2-3"), cell(1), usage=usage)
    assert [each.cell for each in placed.cells] == [1, 0]
    with pytest.raises(FitError, match="each has room for fewer of its nodes"):
        fit(asked, cell(0, dedicated="2-3"), cell(1), usage={"1": NUMACellUsage(memory_mb=768)})


def test_whatever_is_given_back_leaves_nothing() -> None:
    """Guests come and go at random; no CPU is two guests', nothing is given out that is not there."""
    chance = random.Random(1)
    cells = [cell(0), cell(1)]
    there = {cpu for each in cells for cpu in cpu_sets.parse(each.dedicated_cpus)}
    kinds = [
        wanted(chance.randint(1, 4), 64, cpu_policy="dedicated", cpu_thread_policy=policy)
        for policy in ("prefer", "isolate", "require")
    ]
    kinds += [wanted(2, 128, mem_page_size="large"), wanted(4, 128, cpu_policy="dedicated", numa_nodes="2")]
    usage: NUMAUsage = {}
    placed: list[InstanceNUMATopology] = []
    fitted = 0
    for _ in range(2000):
        if placed and chance.random() < 0.45:
            usage = given_back(usage, placed.pop(chance.randrange(len(placed))))
        else:
            try:
                topology = fit(chance.choice(kinds), *cells, usage=usage, ratios=Ratios(cpu=8.0))
            except FitError:
                continue
            placed.append(topology)
            usage = taken(usage, topology)
            fitted += 1
        held = [cpu for topology in placed for cpu in topology.host_cpus]
        assert len(held) == len(set(held))
        assert set(held) <= there
        assert usage == usage_of(placed)
        assert all(used.pages.get("2048", 0) <= 128 for used in usage.values())
    assert fitted > 300
    for topology in placed:
        usage = given_back(usage, topology)
    assert usage == {}
