"""The parts of a host's NUMA cells that its operator makes available."""

from __future__ import annotations

import pytest
from oslo_config import cfg

from nova_lite import conf as nova_conf
from nova_lite.base import cpu_sets, exceptions
from nova_lite.objects import NUMACell, NUMAPages
from nova_lite.virt import topology


def configured(*pages: str, **sets: str) -> cfg.ConfigOpts:
    made = cfg.ConfigOpts()
    nova_conf.register_opts(made)
    made([])
    for name, value in sets.items():
        made.set_override(name, value, "compute")
    if pages:
        made.set_override("reserved_huge_pages", list(pages))
    return made


MACHINE = [
    NUMACell(id=0, memory_mb=64, shared_cpus="0-3", pages=[NUMAPages(size_kb=2048, total=8)]),
    NUMACell(id=1, memory_mb=64, shared_cpus="4-7", pages=[NUMAPages(size_kb=2048, total=8)]),
]


def sets(conf: cfg.ConfigOpts) -> list[tuple[str, str]]:
    return [(cell.shared_cpus, cell.dedicated_cpus) for cell in topology.available_cells(conf, MACHINE)]


def test_cpus_are_all_shared_by_default() -> None:
    conf = configured()
    assert sets(conf) == [("0-3", ""), ("4-7", "")]
    assert topology.shared_cpus(conf, MACHINE) == {"": "", "0": "0-3", "1": "4-7"}


def test_dedicated_cpus_are_not_shared() -> None:
    conf = configured(cpu_dedicated_set="2-5", cpu_shared_set="0,6-7")
    assert sets(conf) == [("0", "2-3"), ("6-7", "4-5")]
    assert topology.shared_cpus(conf, MACHINE) == {"": "0,6-7", "0": "0", "1": "6-7"}
    assert sets(configured(cpu_dedicated_set="2-5,^3")) == [("", "2"), ("", "4-5")]
    assert sets(configured(cpu_shared_set="2-5")) == [("2-3", ""), ("4-5", "")]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"cpu_dedicated_set": "0-3", "cpu_shared_set": "3-4"}, "CPUs 3 are in .* only"),
        ({"cpu_dedicated_set": "7-9"}, "cpu_dedicated_set names CPUs 8-9, and this host has 0-7"),
        ({"cpu_shared_set": "8"}, "cpu_shared_set names CPUs 8"),
    ],
)
def test_invalid_cpu_options_are_an_error(options: dict[str, str], says: str) -> None:
    with pytest.raises(exceptions.ConfigurationError, match=says):
        sets(configured(**options))


def test_invalid_cpu_set_is_rejected_as_an_option() -> None:
    with pytest.raises(ValueError, match="neither a CPU nor a range"):
        configured(cpu_dedicated_set="all")


def test_reserved_large_pages_are_not_available() -> None:
    cells = topology.available_cells(configured("node:1,size:2048,count:3", "node:0,size:2MB,count:1"), MACHINE)
    assert [cell.pages[0].reserved for cell in cells] == [1, 3]
    assert [cell.pages[0].total for cell in cells] == [8, 8]


@pytest.mark.parametrize(
    ("pages", "says"),
    [
        ("node:0,size:2048", "is not of the form"),
        ("node:a,size:2048,count:1", "is not of the form"),
        ("node:0,size:2048,count:9", "NUMA cell 0 of this host has 8 pages of 2048 KiB"),
        ("node:2,size:2048,count:1", "NUMA cell 2 of this host has 0 pages"),
    ],
)
def test_missing_pages_cannot_be_reserved(pages: str, says: str) -> None:
    with pytest.raises(exceptions.ConfigurationError, match=says):
        topology.available_cells(configured(pages), MACHINE)


@pytest.mark.parametrize(("count", "vcpus"), [(2, 16), (2, 5), (1, 1), (1, 0)])
def test_imaginary_machine_has_each_cpu_once(count: int, vcpus: int) -> None:
    cells = topology.equal_cells(count, vcpus, 1024)
    assert len(cells) == count
    every = [cpu for cell in cells for cpu in cpu_sets.parse(cell.shared_cpus)]
    assert sorted(every) == list(range(vcpus))
    for cell in cells:
        assert all(cpu_sets.parse(core) <= cpu_sets.parse(cell.shared_cpus) for core in cell.siblings)
        assert sum(pages.size_kb * pages.total for pages in cell.pages) == cell.memory_mb * 1024
