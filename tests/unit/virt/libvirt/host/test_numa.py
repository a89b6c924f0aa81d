"""NUMA cells of a host in libvirt, and the placement of a guest in its domain."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from nova_lite.objects import InstanceNUMACell, InstanceNUMATopology, LiveDestination, NUMACell, NUMAPages
from nova_lite.virt.libvirt.domain import guest_xml, live_migration, numa_xml
from nova_lite.virt.libvirt.host import host_topology, host_traits

CAPABILITIES = """<capabilities><host><topology><cells num='3'>
<cell id='0'><memory unit='KiB'>4194304</memory><pages unit='KiB' size='4'>524288</pages>
<pages unit='KiB' size='2048'>1024</pages><cpus num='4'>
<cpu id='0' siblings='0,4'/><cpu id='4' siblings='0,4'/><cpu id='1' siblings='1,5'/><cpu id='5' siblings='1,5'/>
</cpus></cell>
<cell id='1'><memory unit='KiB'>2097152</memory><pages unit='KiB' size='4'>524288</pages><cpus num='2'>
<cpu id='2' siblings='2'/><cpu id='3' siblings='3'/></cpus></cell>
<cell id='2'><memory unit='KiB'>2097152</memory><cpus num='0'/></cell>
</cells></topology></host></capabilities>"""

SHARED = {"": "0-3", "0": "0-1", "1": "2-3"}


def test_host_cells_are_parsed() -> None:
    """A cell with memory only is not for guests."""
    assert host_topology.parse(CAPABILITIES) == [
        NUMACell(
            id=0,
            memory_mb=4096,
            shared_cpus="0-1,4-5",
            siblings=["0,4", "1,5"],
            pages=[NUMAPages(size_kb=4, total=524288), NUMAPages(size_kb=2048, total=1024)],
        ),
        NUMACell(id=1, memory_mb=2048, shared_cpus="2-3", pages=[NUMAPages(size_kb=4, total=524288)]),
    ]


def test_host_has_a_trait_if_its_cores_have_threads() -> None:
    threaded, plain = host_topology.parse(CAPABILITIES)
    assert host_traits.core_traits([plain, threaded]) == {"HW_CPU_HYPERTHREADING"}
    assert host_traits.core_traits([plain]) == set()


def test_host_without_cells_in_libvirt_is_one_cell() -> None:
    (cell,) = host_topology.parse("<capabilities><host/></capabilities>")
    assert (cell.id, cell.pages, bool(cell.shared_cpus), cell.memory_mb > 0) == (0, [], True, True)


def guest(number: int = 0, host_cell: int = 0, **values: object) -> InstanceNUMACell:
    cpus = [number * 2, number * 2 + 1]
    return InstanceNUMACell(id=number, cell=host_cell, cpus=cpus, memory_mb=64, **values)  # type: ignore[arg-type]


def placed(numa: InstanceNUMATopology | None, shared: dict[str, str], tune: str = "") -> ET.Element:
    domain = ET.fromstring(f"<domain><vcpu>4</vcpu>{tune}<devices/></domain>")
    numa_xml.place(domain, numa, shared)
    return domain


def pins(domain: ET.Element) -> dict[str, str]:
    return {pin.get("vcpu", ""): pin.get("cpuset", "") for pin in domain.iterfind("cputune/vcpupin")}


def emulator(domain: ET.Element) -> str | None:
    found = domain.find("cputune/emulatorpin")
    return None if found is None else found.get("cpuset")


def test_guest_without_numa_is_not_bound() -> None:
    assert ET.tostring(placed(None, {"": "", "0": "0-3"})) == b"<domain><vcpu>4</vcpu><devices /></domain>"
    domain = placed(None, SHARED)
    assert domain.find("vcpu").attrib == {"cpuset": "0-3"}  # type: ignore[union-attr]
    assert domain.find("cputune") is None


def test_guest_with_dedicated_cpus_is_pinned() -> None:
    numa = InstanceNUMATopology(cells=[guest(pins=[5, 4]), guest(1, 1, pins=[8, 9])])
    domain = placed(numa, SHARED)
    assert pins(domain) == {"0": "5", "1": "4", "2": "8", "3": "9"}
    assert emulator(domain) == "4-5,8-9"
    assert domain.find("vcpu").attrib == {}  # type: ignore[union-attr]
    assert domain.find("numatune/memory").attrib == {"mode": "strict", "nodeset": "0-1"}  # type: ignore[union-attr]
    nodes = [(node.get("cellid"), node.get("nodeset")) for node in domain.iterfind("numatune/memnode")]
    assert nodes == [("0", "0"), ("1", "1")]
    assert domain.find("memoryBacking") is None


def test_vcpus_of_a_mixed_guest_are_pinned_or_float() -> None:
    domain = placed(InstanceNUMATopology(cells=[guest(pins=[5], floating=[0])]), SHARED)
    assert (pins(domain), emulator(domain)) == ({"0": "0-1", "1": "5"}, "0-1,5")


def test_realtime_vcpus_have_a_scheduler_and_locked_memory_without_the_emulator() -> None:
    numa = InstanceNUMATopology(cells=[guest(pins=[4, 5]), guest(1, 1, pins=[8, 9])], realtime=[1, 2, 3], locked=True)
    domain = placed(numa, SHARED, QUOTA)
    assert emulator(domain) == "4"
    scheds = [dict(sched.attrib) for sched in domain.iterfind("cputune/vcpusched")]
    assert scheds == [{"vcpus": "1-3", "scheduler": "fifo", "priority": "1"}]
    assert [item.tag for item in domain.iterfind("memoryBacking/*")] == ["nosharepages", "locked"]
    numa_xml.place(domain, InstanceNUMATopology(cells=[guest(pins=[6, 7])], realtime=[1]), SHARED)
    assert [sched.get("vcpus") for sched in domain.iterfind("cputune/vcpusched")] == ["1"], "not twice"
    numa_xml.place(domain, None, SHARED)
    assert (domain.find("cputune/vcpusched"), domain.find("memoryBacking")) == (None, None)


def test_locked_memory_is_in_large_pages_too() -> None:
    domain = placed(InstanceNUMATopology(cells=[guest(page_kb=2048, huge=True)], locked=True), SHARED)
    assert [item.tag for item in domain.iterfind("memoryBacking/*")] == ["hugepages", "locked"]


@pytest.mark.parametrize(
    ("policy", "cpuset"), [({}, "4-5"), ({"emulator_cpus": [6]}, "6"), ({"emulator_shared": True}, "0-3")]
)
def test_emulator_threads_are_pinned(policy: dict[str, object], cpuset: str) -> None:
    numa = InstanceNUMATopology(cells=[guest(pins=[4, 5], held=[6])], **policy)  # type: ignore[arg-type]
    assert emulator(placed(numa, SHARED)) == cpuset


def test_emulator_threads_use_all_cpus_of_a_host_that_shares_them() -> None:
    numa = InstanceNUMATopology(cells=[guest(pins=[4, 5])], emulator_shared=True)
    assert emulator(placed(numa, {"": "", "0": "0-1", "1": "2-3"})) == "0-3"


def test_guest_with_shared_cpus_is_bound_to_its_cell() -> None:
    domain = placed(InstanceNUMATopology(cells=[guest(0, 1, page_kb=4)]), SHARED)
    assert (pins(domain), emulator(domain)) == ({"0": "2-3", "1": "2-3"}, "2-3")
    assert domain.find("memoryBacking") is None, "the host's smallest pages are the default"


def test_large_pages_by_size() -> None:
    large = [guest(0, 0, page_kb=2048, huge=True), guest(1, 1, page_kb=1048576, huge=True)]
    pages = [dict(page.attrib) for page in placed(InstanceNUMATopology(cells=large), SHARED).iter("page")]
    assert pages == [
        {"size": "2048", "unit": "KiB", "nodeset": "0"},
        {"size": "1048576", "unit": "KiB", "nodeset": "1"},
    ]


def test_new_placement_replaces_the_old_one() -> None:
    """The flavor's CPU quota stays."""
    domain = placed(InstanceNUMATopology(cells=[guest(pins=[4, 5], page_kb=2048, huge=True)]), SHARED, QUOTA)
    numa_xml.place(domain, InstanceNUMATopology(cells=[guest(0, 1, pins=[8, 9])]), {"": "6-7", "1": "6-7"})
    assert (pins(domain), emulator(domain)) == ({"0": "8", "1": "9"}, "8-9")
    assert domain.findtext("cputune/shares") == "100"
    assert [node.get("nodeset") for node in domain.iterfind("numatune/memnode")] == ["1"]
    assert domain.find("memoryBacking") is None
    numa_xml.place(domain, None, {"": "6-7"})
    assert (pins(domain), emulator(domain), domain.find("numatune")) == ({}, None, None)
    assert domain.find("vcpu").get("cpuset") == "6-7"  # type: ignore[union-attr]


QUOTA = "<cputune><shares>100</shares></cputune>"


def test_live_migration_uses_the_destinations_placement() -> None:
    owner = f'<n:instance xmlns:n="{guest_xml.NAMESPACE}"><n:host>a</n:host><n:generation>1</n:generation></n:instance>'
    xml = f"<domain><metadata>{owner}</metadata><vcpu cpuset='0-3'>2</vcpu><devices/></domain>"
    there = LiveDestination(
        driver="libvirt",
        host="b",
        generation=2,
        address="192.0.2.1",
        numa=InstanceNUMATopology(cells=[guest(pins=[6, 7])]),
        shared_cpus={"": "0-1", "0": "0-1"},
    )
    domain = ET.fromstring(live_migration.destination_xml(xml, there))
    assert pins(domain) == {"0": "6", "1": "7"}
    assert domain.find("vcpu").attrib == {}  # type: ignore[union-attr]
    floating = LiveDestination(driver="libvirt", host="b", generation=2, address="a", shared_cpus={"": "4-5"})
    domain = ET.fromstring(live_migration.destination_xml(xml, floating))
    assert domain.find("vcpu").attrib == {"cpuset": "4-5"}  # type: ignore[union-attr]
