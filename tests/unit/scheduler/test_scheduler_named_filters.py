"""Filters and weighers that depend on aggregates, hints, load and metrics."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oslo_config import cfg
from stevedore import extension

from nova_lite import conf as configuration
from nova_lite.base import exceptions, plugins
from nova_lite.objects import (
    HostAggregate,
    HostState,
    NUMACell,
    NUMACellUsage,
    NUMAPages,
    PCIDevice,
    PCIKind,
    PCIRequest,
    RequestSpec,
)
from nova_lite.scheduler import core, filters, weights
from nova_lite.scheduler.filters.aggregates import (
    AggregateImagePropertiesIsolation,
    AggregateInstanceExtraSpecsFilter,
    AggregateMultiTenancyIsolation,
)
from nova_lite.scheduler.filters.base import HostFilter
from nova_lite.scheduler.filters.capacity import CoreFilter
from nova_lite.scheduler.filters.hints import DifferentHostFilter, SameHostFilter, SimpleCIDRAffinityFilter
from nova_lite.scheduler.filters.host_load import IoOpsFilter, NumInstancesFilter, TypeAffinityFilter
from nova_lite.scheduler.filters.isolated_hosts import IsolatedHostsFilter
from nova_lite.scheduler.filters.json_query import JsonFilter
from nova_lite.scheduler.filters.metrics import MetricsFilter
from nova_lite.scheduler.filters.numa_topology import NUMATopologyFilter
from nova_lite.scheduler.filters.pci_passthrough import PciPassthroughFilter
from nova_lite.scheduler.weights.affinity import ServerGroupSoftAffinityWeigher, ServerGroupSoftAntiAffinityWeigher
from nova_lite.scheduler.weights.compute import BuildFailureWeigher
from nova_lite.scheduler.weights.cross_az import CrossAZWeigher
from nova_lite.scheduler.weights.io_ops import IoOpsWeigher
from nova_lite.scheduler.weights.metrics import MetricsWeigher, parse_settings
from nova_lite.scheduler.weights.pci import PCIWeigher
from nova_lite.scheduler.weights.resources import RAMWeigher
from tests.support.scheduling import FILTERS, WEIGHERS, names, select

from .builders import flavor, group, host, image, spec


def within(*metadata: dict[str, str], number: int = 1, **changes: Any) -> HostState:
    """Return a host in one aggregate per item of ``metadata``."""
    aggregates = [HostAggregate(id=n, name=f"a{n}", metadata=item) for n, item in enumerate(metadata)]
    return host(number, aggregates=aggregates, **changes)


def asking(**extra_specs: str) -> RequestSpec:
    return spec(flavor=flavor(extra_specs={key.replace("__", ":"): value for key, value in extra_specs.items()}))


# --- aggregates


@pytest.mark.parametrize(
    ("metadata", "requirement", "passes"),
    [
        ([{"ssd": "true"}], "true", True),
        ([{"ssd": "false"}], "true", False),
        ([{"ssd": "false"}, {"ssd": "true"}], "true", True),
        ([{"ssd": "false,true"}], "true", True),
        ([{}], "true", False),
        ([], "true", False),
        ([{"ssd": "nvme"}], "<or> nvme <or> sata", True),
        ([{"ssd": "8"}], ">= 4", True),
        ([{"ssd": "2"}], ">= 4", False),
        ([{"ssd": "true"}], "!", False),
        ([{}], "!", True),
    ],
)
def test_aggregate_extra_specs_filter_requires_a_matching_aggregate(
    metadata: list[dict[str, str]], requirement: str, passes: bool
) -> None:
    subject = AggregateInstanceExtraSpecsFilter()
    for key in ("ssd", "aggregate_instance_extra_specs__ssd"):
        request = asking(**{key: requirement})
        assert subject.applies(request)
        assert subject.host_passes(within(*metadata), request) is passes
    assert not subject.applies(asking(hw__cpu_policy="shared"))
    assert not subject.applies(spec())


def test_aggregate_image_filter_reserves_hosts_for_images() -> None:
    subject = AggregateImagePropertiesIsolation()
    windows, linux = spec(image=image(os_type="windows")), spec(image=image(os_type="linux"))
    kept = within({"os_type": "windows,bsd"})
    assert subject.host_passes(kept, windows)
    assert not subject.host_passes(kept, linux)
    assert subject.reason(kept, linux) == "kept for images with another os_type"
    assert subject.host_passes(kept, spec(image=image(other="x")))
    assert subject.host_passes(host(), linux)
    namespaced = AggregateImagePropertiesIsolation("os")
    assert namespaced.host_passes(kept, linux)
    assert not namespaced.host_passes(within({"os.type": "windows"}), spec(image=image(**{"os.type": "linux"})))


def test_aggregate_tenancy_filter_reserves_hosts_for_projects() -> None:
    subject = AggregateMultiTenancyIsolation()
    for metadata in ([{"filter_tenant_id": "project, other"}], [{"filter_tenant_id_2": "project"}], [{"x": "y"}], []):
        assert subject.host_passes(within(*metadata), spec())
    ours = within({"filter_tenant_id": "other"})
    assert not subject.host_passes(ours, spec())
    assert subject.passing([ours, host(2)], spec()) == [host(2)]


def test_type_affinity_filter_keeps_one_flavor_per_host() -> None:
    subject = TypeAffinityFilter()
    assert subject.host_passes(host(), spec())
    assert subject.host_passes(host(flavors={"1": 3}), spec())
    assert not subject.host_passes(host(flavors={"1": 3, "2": 1}), spec())
    other = select([host(1), host(2, memory_mb_used=4096)], spec(), filters=[subject])
    assert names(other) == ["host1"]
    assert core.consume_from_request(host(1), spec(), "new").flavors == {"1": 1}


@pytest.mark.parametrize(
    ("subject", "field"),
    [(NumInstancesFilter(2), "instances"), (IoOpsFilter(2), "io_ops")],
    ids=["instances", "io_ops"],
)
def test_load_filters_use_the_smallest_limit_of_aggregates(subject: Any, field: str) -> None:
    def loaded(count: int, *metadata: dict[str, str]) -> HostState:
        return within(*metadata, **{field: [str(n) for n in range(count)] if field == "instances" else count})

    assert subject.host_passes(loaded(1), spec())
    assert not subject.host_passes(loaded(2), spec())
    assert subject.host_passes(loaded(2, {subject.option: "3"}), spec())
    assert not subject.host_passes(loaded(1, {subject.option: "1"}, {subject.option: "9"}), spec())
    assert not subject.host_passes(loaded(2, {subject.option: "nonsense"}), spec())
    assert subject.reason(loaded(2), spec()).startswith("2 servers")
    assert len(set(names(select([host(1), host(2)], spec(4), filters=[subject])))) == 2
    with pytest.raises(exceptions.NoValidHost):
        select([host(1), host(2)], spec(5), filters=[subject])


# --- hints


def test_server_hints_choose_or_avoid_hosts() -> None:
    hosts = [host(1, instances=["a"]), host(2, instances=["b"]), host(3)]
    both: list[HostFilter] = [DifferentHostFilter(), SameHostFilter()]
    apart = spec(scheduler_hints={"different_host": ["a", "b"]})
    assert [item.host for item in both[0].passing(hosts, apart)] == ["host3"]
    near = spec(scheduler_hints={"same_host": "b"})
    assert [item.host for item in both[1].passing(hosts, near)] == ["host2"]
    assert not any(item.applies(spec()) for item in both)


@pytest.mark.parametrize(
    ("address", "cidr", "passes"),
    [
        ("10.0.1.9", None, True),
        ("10.0.2.9", None, False),
        ("10.0.2.9", "/16", True),
        ("10.0.2.9", "16", True),
        ("10.0.1.9", "/nonsense", False),
        (None, None, False),
        ("fe80::1", None, False),
    ],
)
def test_cidr_filter_requires_a_host_in_the_network(address: str | None, cidr: str | None, passes: bool) -> None:
    hints: dict[str, Any] = {"build_near_host_ip": "10.0.1.1"} | ({"cidr": cidr} if cidr else {})
    request = spec(scheduler_hints=hints)
    assert SimpleCIDRAffinityFilter().applies(request)
    assert SimpleCIDRAffinityFilter().host_passes(host(host_ip=address), request) is passes
    assert not SimpleCIDRAffinityFilter().applies(spec())


@pytest.mark.parametrize(
    ("query", "passes"),
    [
        ([">=", "$free_ram_mb", 8192], True),
        ([">", "$free_ram_mb", 8192], False),
        (["and", ["=", "$hypervisor_hostname", "host1"], ["<", "$vcpus_used", 1]], True),
        (["or", ["=", "$host", "other"], ["in", "$cpu_arch", "x86_64", "arm"]], True),
        (["not", ["=", "$capabilities.cpu.vendor", "acme"]], False),
        (["=", "$capabilities.cpu.vendor.deeper", "acme"], False),
        (["=", "$instances", "x"], False),
        (["unknown", 1, 2], False),
        (["<", "$host", 5], False),
        ([], False),
        ("nonsense", True),
    ],
)
def test_json_filter_evaluates_queries(query: Any, passes: bool) -> None:
    request = spec(scheduler_hints={"query": json.dumps(query)})
    subject = host(1, capabilities={"cpu": {"vendor": "acme"}})
    assert JsonFilter().applies(request)
    assert JsonFilter().host_passes(subject, request) is passes


@pytest.mark.parametrize("text", ["{", "[" * 5000, '["not", ' * 30 + "1" + "]" * 30, '["in"]'])
def test_json_filter_rejects_invalid_queries(text: str) -> None:
    assert not JsonFilter().host_passes(host(1), spec(scheduler_hints={"query": text}))


# --- images, topologies, metrics


def test_isolated_hosts_filter_keeps_images_on_their_hosts() -> None:
    strict, open_ = IsolatedHostsFilter(["host1"], ["image"]), IsolatedHostsFilter(["host1"], ["image"], False)
    isolated, other = spec(image=image()), spec()
    assert strict.host_passes(host(1), isolated)
    assert not strict.host_passes(host(2), isolated)
    assert not strict.host_passes(host(1), other)
    assert open_.host_passes(host(1), other)
    assert strict.host_passes(host(2), other)
    assert not IsolatedHostsFilter().applies(isolated)


CELL = NUMACell(id=0, memory_mb=1024, shared_cpus="0", dedicated_cpus="1-2", pages=[NUMAPages(size_kb=4, total=262144)])


@pytest.mark.parametrize(
    ("request_", "has", "why"),
    [
        (asking(hw__cpu_policy="dedicated"), {}, ""),
        (asking(hw__cpu_policy="dedicated"), {"numa": []}, "it reports no NUMA cells"),
        (
            asking(hw__cpu_policy="dedicated"),
            {"numa_used": {"0": NUMACellUsage(cpus=[1, 2])}},
            "1 dedicated CPUs requested in a NUMA cell, at most 0 free",
        ),
        (
            asking(hw__mem_page_size="1GB"),
            {},
            "512 MB in pages (1048576 KiB) requested in a NUMA cell, at most 0 MB free",
        ),
        (spec(image=image(hw_numa_nodes="1")), {}, ""),
        (
            spec(image=image(hw_numa_nodes="1")),
            {"numa_used": {"0": NUMACellUsage(vcpus=1)}},
            "1 shared vCPUs requested in a NUMA cell, at most 0 left",
        ),
        (
            spec(image=image(hw_numa_nodes="1")),
            {"numa_used": {"0": NUMACellUsage(vcpus=1)}, "cpu_allocation_ratio": 2.0},
            "",
        ),
    ],
)
def test_numa_filter_gives_the_reason(request_: RequestSpec, has: dict[str, Any], why: str) -> None:
    subject, found = NUMATopologyFilter(), host(1, **{"numa": [CELL], **has})
    assert subject.applies(request_)
    assert subject.passing([found], request_) == ([] if why else [found])
    assert subject.host_passes(found, request_) is not bool(why)
    assert subject.reason(found, request_) == why


@pytest.mark.parametrize("request_", [spec(), asking(hw__cpu_policy="shared"), spec(image=image(os_type="linux"))])
def test_numa_filter_ignores_requests_without_topology(request_: RequestSpec) -> None:
    assert not NUMATopologyFilter().applies(request_)


def test_dedicated_cpus_are_used_once_while_a_request_is_placed() -> None:
    """Three servers get two CPUs of one host and one of another. None of them uses a shared vCPU."""
    wanted = spec(3, flavor=flavor(extra_specs={"hw:cpu_policy": "dedicated"}))
    one, two = host(1, vcpus=0, numa=[CELL]), host(2, vcpus=0, numa=[msgspec.structs.replace(CELL, dedicated_cpus="1")])
    filters = [NUMATopologyFilter(), CoreFilter()]
    assert sorted(names(select([one, two], wanted, filters=filters))) == ["host1", "host1", "host2"]
    with pytest.raises(exceptions.NoValidHost, match="There is room for 3 of the 4 servers"):
        select([one, two], msgspec.structs.replace(wanted, instance_uuids=list("abcd")), filters=filters)
    assert one.numa_used == {}


def test_shared_vcpus_of_a_mixed_guest_count_while_a_request_is_placed() -> None:
    mixed = flavor(vcpus=2, extra_specs={"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0"})
    hosts = [host(number, vcpus=1, numa=[CELL], cpu_allocation_ratio=9.0) for number in (1, 2)]
    filters = [NUMATopologyFilter(), CoreFilter()]
    assert sorted(names(select(hosts, spec(2, flavor=mixed), filters=filters))) == ["host1", "host2"]
    with pytest.raises(exceptions.NoValidHost, match=r"CoreFilter \(1 vCPUs requested, at most 0 vCPUs free"):
        select(hosts, spec(3, flavor=mixed), filters=filters)


def test_forced_host_needs_the_dedicated_cpus() -> None:
    """The claim would refuse it in every attempt."""
    wanted = spec(flavor=flavor(extra_specs={"hw:cpu_policy": "dedicated"}), forced_host="host1")
    with pytest.raises(exceptions.NoValidHost, match="no dedicated CPUs"):
        bare = host(1, numa=[msgspec.structs.replace(CELL, dedicated_cpus="")])
        select([bare], wanted, filters=[NUMATopologyFilter()])


def test_metrics_filter_and_weigher_use_reported_metrics() -> None:
    busy = host(1, capabilities={"metrics": {"cpu.percent": 0.9, "name": "x"}})
    idle = host(2, capabilities={"metrics": {"cpu.percent": 0.1}})
    subject = MetricsWeigher(ratios=parse_settings(["cpu.percent = -1.0"]))
    assert names(select([busy, idle], spec(), filters=[], weighers=[subject])) == ["host2"]
    assert subject.weight(host(3), spec()) == -10000.0
    assert not MetricsWeigher().applies(spec())
    required = MetricsFilter(["cpu.percent"])
    assert required.passing([busy, host(3)], spec()) == [busy]
    assert required.reason(host(3), spec()) == "has no metric cpu.percent"
    with pytest.raises(exceptions.ConfigurationError, match="weight_setting"):
        parse_settings(["cpu.percent"])


# --- PCI devices

DEVICES = [
    PCIDevice(address=f"0000:{bus}:00.0", vendor_id="10de", product_id="1eb8", numa_cell=cell)
    for cell, bus in enumerate(("41", "81"))
]
GPUS = PCIRequest(alias="gpu", count=1, kinds=[PCIKind(vendor_id="10de", product_id="1eb8")])


def test_pci_filter_requires_free_devices_and_says_how_many_there_are() -> None:
    subject = PciPassthroughFilter()
    assert not subject.applies(spec())
    request = spec(pci=[GPUS])
    assert subject.applies(request) and subject.binds_forced_hosts
    assert subject.host_passes(host(pci=DEVICES, pci_used=[DEVICES[0].address]), request)
    full = host(pci=DEVICES, pci_used=[device.address for device in DEVICES])
    assert not subject.host_passes(full, request)
    assert subject.reason(full, request) == "1 PCI devices gpu requested, 0 free"
    assert not subject.host_passes(host(), request)


def test_pci_filter_of_a_guest_in_a_numa_cell_counts_devices_there() -> None:
    cells = [NUMACell(id=number, memory_mb=1024, dedicated_cpus=cpus) for number, cpus in enumerate(("0-1", "2-3"))]
    near = msgspec.structs.replace(GPUS, numa_policy="required")
    request = asking(hw__cpu_policy="dedicated")
    request.pci = [near]
    used = {"1": NUMACellUsage(cpus=[2, 3])}
    assert PciPassthroughFilter().host_passes(host(pci=DEVICES[1:], numa=cells), request)
    assert not PciPassthroughFilter().host_passes(host(pci=DEVICES[1:], numa=cells, numa_used=used), request)


def test_servers_of_one_request_get_different_devices() -> None:
    placed = select([host(1, pci=DEVICES)], spec(2, pci=[GPUS]), filters=[PciPassthroughFilter()])
    assert names(placed) == ["host1", "host1"]
    with pytest.raises(exceptions.NoValidHost):
        select([host(1, pci=DEVICES)], spec(3, pci=[GPUS]), filters=[PciPassthroughFilter()])


# --- weighers


def test_weighers_by_load_failures_devices_and_zones() -> None:
    def best(weigher: weights.HostWeigher, hosts: list[HostState], request: RequestSpec) -> str:
        return names(select(hosts, request, filters=[], weighers=[weigher]))[0]

    assert best(IoOpsWeigher(-1.0), [host(1, io_ops=2), host(2)], spec()) == "host2"
    assert best(BuildFailureWeigher(), [host(1, failed_builds=1), host(2)], spec()) == "host2"
    gpu = [host(1, pci=DEVICES), host(2, pci=DEVICES, pci_used=[DEVICES[0].address]), host(3)]
    assert best(PCIWeigher(), gpu, spec()) == "host3"
    assert best(PCIWeigher(), gpu[:2], spec()) == "host2"
    assert best(PCIWeigher(), gpu, spec(pci=[GPUS])) == "host1"
    assert PCIWeigher().weights([host(1), host(2)], spec()) == [0, 0]
    zones = [host(1, availability_zone="west"), host(2, availability_zone="east")]
    assert best(CrossAZWeigher(), zones, spec(current_zone="east")) == "host2"
    assert not CrossAZWeigher().applies(spec())


def test_soft_policies_prefer_hosts_and_reject_none() -> None:
    hosts = [host(number) for number in (1, 2, 3)]
    together = spec(2, instance_group=group("soft-affinity", ["host2"]))
    assert names(select(hosts, together, weighers=[ServerGroupSoftAffinityWeigher()])) == ["host2", "host2"]
    apart = spec(3, instance_group=group("soft-anti-affinity", ["host1"]))
    chosen = names(select(hosts, apart, weighers=[ServerGroupSoftAntiAffinityWeigher()]))
    assert chosen[:2] == ["host2", "host3"]
    assert len(chosen) == 3
    assert not ServerGroupSoftAffinityWeigher().applies(spec())


def test_aggregate_multiplier_takes_precedence() -> None:
    stacking = {"ram_weight_multiplier": "-1.0"}
    hosts = [within(stacking, number=1), within(stacking, number=2, memory_mb_used=512)]
    assert names(select(hosts, spec(2), weighers=[RAMWeigher(1.0)])) == ["host2", "host2"]
    ranking = core.Ranking([RAMWeigher(1.0)], hosts, spec())
    assert [ranking.cost(item) for item in hosts] == ranking.costs
    assert RAMWeigher(1.0).multiplier_of(within({"ram_weight_multiplier": "nan"})) == 1.0
    assert RAMWeigher(1.0).multiplier_of(within({"ram_weight_multiplier": "3"}, stacking)) == -1.0


# --- all of them


def test_registered_plugins_can_all_be_configured() -> None:
    conf = cfg.ConfigOpts()
    configuration.register_opts(conf)
    conf([], default_config_files=[])
    for namespace in (filters.NAMESPACE, weights.NAMESPACE):
        registered = extension.ExtensionManager(namespace).names()
        assert len(registered) > 9
        for cls in plugins.load(namespace, registered, "test"):
            assert cls.from_conf(conf).applies(spec()) in (True, False)


HOSTS = st.lists(
    st.builds(
        host,
        st.integers(1, 5),
        up=st.booleans(),
        disabled=st.booleans(),
        memory_mb_used=st.sampled_from([0, 7680, 7681, 9000]),
        vcpus_used=st.sampled_from([0, 15, 16, 20]),
        disk_gb_used=st.sampled_from([0, 99, 100]),
    )
)


@given(hosts=HOSTS)
def test_bulk_methods_agree_with_single_calls(hosts: list[HostState]) -> None:
    request = spec()
    for item in [*FILTERS, AggregateMultiTenancyIsolation()]:
        assert item.passing(hosts, request) == [state for state in hosts if item.host_passes(state, request)]
    for weigher in [*WEIGHERS, BuildFailureWeigher()]:
        assert weigher.weights(hosts, request) == [weigher.weight(state, request) for state in hosts]
