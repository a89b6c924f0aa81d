"""Advice after a refusal: examples, and generated refusals for which the advice, applied, works."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from nova_lite.base.exceptions import NoValidHost
from nova_lite.hardware import traits
from nova_lite.objects import HOST_CPU, GuestCpu, HostAggregate, HostState, NUMACell, RequestedDestination, RequestSpec
from nova_lite.scheduler import advice, changes, core
from nova_lite.scheduler.changes import Change
from nova_lite.scheduler.filters.aggregates import AggregateInstanceExtraSpecsFilter, AggregateMultiTenancyIsolation
from nova_lite.scheduler.filters.base import HostFilter
from nova_lite.scheduler.filters.capacity import CoreFilter, DiskFilter, RamFilter
from nova_lite.scheduler.filters.hints import DifferentHostFilter, SameHostFilter
from nova_lite.scheduler.filters.host_load import NumInstancesFilter, TypeAffinityFilter
from nova_lite.scheduler.filters.json_query import JsonFilter
from nova_lite.scheduler.filters.numa_topology import NUMATopologyFilter
from nova_lite.scheduler.filters.traits import TraitsFilter
from nova_lite.scheduler.weights.resources import RAMWeigher
from tests.support.scheduling import FILTERS, WEIGHERS, select

from .builders import flavor, group, host, image, spec

ALL: list[HostFilter] = [
    *FILTERS,
    TraitsFilter(),
    NUMATopologyFilter(),
    DifferentHostFilter(),
    SameHostFilter(),
    JsonFilter(),
    AggregateMultiTenancyIsolation(),
    AggregateInstanceExtraSpecsFilter(),
]


def search(
    hosts: Sequence[HostState],
    request: RequestSpec,
    servers: Sequence[RequestSpec] = (),
    filters: Sequence[HostFilter] = tuple(ALL),
    checks: int = 1_000_000,
) -> advice.Search:
    return advice.Search(hosts, request, filters, WEIGHERS, random.Random(1), checks, servers)


def said(hosts: Sequence[HostState], request: RequestSpec, **values: Any) -> tuple[str, str]:
    """Advice for the owner, and for admins."""
    found = search(hosts, request, **values)
    return str(found.advice(of_request=True)), str(found.advice(of_request=False))


def server(uuid: str, memory_mb: int = 512, **changes: Any) -> RequestSpec:
    return spec(0, instance_uuids=[uuid], flavor=flavor(memory_mb=memory_mb, **changes))


# --- examples


def test_owner_may_take_less_and_admins_may_also_add_or_free() -> None:
    hosts = [host(1, memory_mb=1024, memory_mb_used=1024, instances=["big", "small"]), host(2, memory_mb=300)]
    servers = [server("small", 100), server("big", 924)]
    owner, admin = said(hosts, spec(flavor=flavor(memory_mb=512)), servers=servers)
    assert owner == "Least change: take at most 300 MB of memory."
    assert admin == (
        "Least change: delete server big on host1 or move it, or add 212 MB of memory to host2, "
        "or take at most 300 MB of memory."
    )


def test_owner_never_reads_names_of_hosts_and_servers() -> None:
    hosts = [host(1, memory_mb=512, memory_mb_used=512, instances=["secret"]), host(2, disabled=True)]
    owner, admin = said(hosts, spec(availability_zone="nova"), servers=[server("secret")])
    assert (owner, admin) == (
        "",
        "Least change: enable host2, or delete server secret on host1 or move it, or add 512 MB of memory to host1.",
    )


def test_host_that_is_disabled_is_enabled_and_one_that_is_down_is_brought_up() -> None:
    assert said([host(1, disabled=True)], spec()) == ("", "Least change: enable host1.")
    assert said([host(1, up=False, node="n")], spec()) == ("", "Least change: bring host1/n up.")
    both = host(1, up=False, disabled=True)
    assert said([both], spec()) == ("", "Least change: bring host1 up and enable host1.")


@pytest.mark.parametrize(
    ("hosts", "values", "text"),
    [
        ([host()], {"availability_zone": "east"}, "drop the availability zone"),
        ([host()], {"requested_destination": RequestedDestination(host="none")}, "drop the requested host"),
        ([host()], {"forced_host": "none"}, "drop the forced host"),
        ([host()], {"scheduler_hints": {"same_host": "other"}}, "drop hint same_host"),
        ([host()], {"instance_group": group("anti-affinity", ["host1"])}, "drop the server group"),
        (
            [host()],
            {"flavor": flavor(extra_specs={"trait:GPU": "required"})},
            "drop extra spec trait:GPU of the flavor",
        ),
        ([host()], {"image": image(hw_architecture="s390x")}, "drop property hw_architecture of the image"),
        ([host()], {"traits": ["SHARED"]}, "drop the volumes and shares that need SHARED"),
        (
            [host(capabilities={HOST_CPU: {"virt_type": "kvm", "features": "aes"}})],
            {"guest_cpu": GuestCpu(virt_type="kvm", features="aes avx")},
            "move the server while it is off",
        ),
        ([host(vcpus=2)], {"flavor": flavor(vcpus=3)}, "take at most 2 vCPUs"),
        ([host(disk_gb=5)], {"flavor": flavor(root_gb=4, ephemeral_gb=3)}, "take at most 5 GB of disk"),
        ([host(memory_mb=2048)], {"instance_uuids": list("abcde")}, "ask for 4 instead of 5 servers"),
    ],
)
def test_each_change_of_the_request_is_found(hosts: list[HostState], values: dict[str, Any], text: str) -> None:
    assert said(hosts, spec(**values))[0] == f"Least change: {text}."


def test_smallest_set_of_changes_is_named() -> None:
    request = spec(availability_zone="east", flavor=flavor(memory_mb=512, extra_specs={"trait:GPU": "required"}))
    assert said([host(1, memory_mb=300)], request)[0] == (
        "Least change: drop the availability zone and drop extra spec trait:GPU of the flavor "
        "and take at most 300 MB of memory."
    )
    better = host(2, memory_mb=400, availability_zone="east")
    assert said([host(1, memory_mb=300), better], request)[0] == (
        "Least change: drop extra spec trait:GPU of the flavor and take at most 400 MB of memory."
    )


def test_capacity_that_is_added_is_sufficient_for_all_instances() -> None:
    hosts = [host(1, memory_mb=100), host(2, memory_mb=1024)]
    assert said(hosts, spec(4))[0] == "Least change: ask for 2 instead of 4 servers."
    assert said(hosts, spec(4))[1].startswith("Least change: add 924 MB of memory to host1, or ask")


def test_owner_reads_two_changes_where_admins_need_one() -> None:
    hosts = [host(1, disabled=True), host(2, memory_mb=300)]
    owner, admin = said(hosts, spec(availability_zone="west"))
    assert owner == "Least change: drop the availability zone and take at most 300 MB of memory."
    hosts[0].availability_zone = "west"
    assert said(hosts, spec(availability_zone="west")) == (owner, "Least change: enable host1.")
    assert admin.startswith("Least change: drop the availability zone and enable host1, or")


def test_flavor_with_a_numa_topology_does_not_shrink() -> None:
    cells = [NUMACell(id=0, memory_mb=4096, shared_cpus="0-3", dedicated_cpus="4-5")]
    request = spec(flavor=flavor(memory_mb=512, extra_specs={"hw:numa_nodes": "1"}))
    assert said([host(memory_mb=300, numa=cells)], request)[1].startswith(
        "Least change: add 212 MB of memory to host1."
    )


def test_several_servers_of_a_host_are_freed_if_one_is_not_enough() -> None:
    hosts = [host(instances=["a", "b", "c"])]
    found = said(hosts, spec(), servers=[server(name) for name in "abc"], filters=[NumInstancesFilter(2)])
    assert found[1] == "Least change: delete server a on host1 or move it and delete server b on host1 or move it."


def test_server_that_a_hint_names_is_freed() -> None:
    hosts = [host(instances=["a", "b"])]
    request = spec(scheduler_hints={"different_host": "b"})
    assert "delete server b on host1 or move it, or drop hint" in said(hosts, request, servers=[*map(server, "ab")])[1]


def test_host_that_another_filter_still_rejects_is_not_named() -> None:
    hosts = [host(1, disabled=True, memory_mb=600), host(2, disabled=True)]
    request = spec(scheduler_hints={"query": '[">=", "$free_ram_mb", 1024]'})
    assert said(hosts, request)[1] == "Least change: enable host2."


def test_change_after_which_another_host_is_chosen_is_not_named_unless_it_works() -> None:
    """Hosts are filled one after the other: with more memory, host1 is no longer the first."""
    hosts, request = [host(1, memory_mb=600), host(2, memory_mb=700)], spec(2, instance_group=group("affinity"))
    found = advice.Search(hosts, request, ALL, [RAMWeigher(-1.0)], random.Random(1), 10_000)
    assert (
        str(found.advice(of_request=False)) == "Least change: ask for 1 instead of 2 servers, or drop the server group."
    )


def test_server_that_stays_gets_another_image_only() -> None:
    request = spec(
        stays=True,
        image=image(**{"trait:GPU": "required"}),
        flavor=flavor(memory_mb=99_999, extra_specs={"a": "b"}),
        requested_destination=RequestedDestination(host="host1"),
    )
    assert said([host(1), host(2)], request)[0] == "Least change: drop property trait:GPU of the image."


def test_no_change_helps_against_a_host_that_was_tried() -> None:
    assert said([host()], spec(ignore_hosts=["host1"])) == ("", "")


def test_search_that_ends_early_does_not_say_that_its_advice_is_the_least() -> None:
    hosts, request = [host(up=False, disabled=True)], spec(flavor=flavor(extra_specs={"quota:a": "b"}))
    assert said(hosts, request, checks=150)[1] == "A change that helps: bring host1 up and enable host1."
    assert said(hosts, request)[1] == "Least change: bring host1 up and enable host1."


class CountingFilter(RamFilter):
    """Counts how often all hosts are checked."""

    passes = 0

    def passing(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[HostState]:
        self.passes += 1
        return super().passing(hosts, spec)


def test_search_ends_when_its_checks_are_used_up() -> None:
    counting = CountingFilter()
    request = spec(flavor=flavor(memory_mb=9000, extra_specs={f"trait:T{n}": "required" for n in range(40)}))
    hosts = [host(number) for number in range(100)]
    assert said(hosts, request, filters=[counting, TraitsFilter()], checks=10_000) == ("", "")
    assert 50 <= counting.passes <= 110


def test_arguments_of_a_search_stay_as_they_are() -> None:
    hosts, request = [host(1, memory_mb=100, disabled=True)], spec(2, instance_group=group("affinity"))
    before = msgspec.msgpack.encode((hosts, request))
    search(hosts, request).advice(of_request=False)
    assert msgspec.msgpack.encode((hosts, request)) == before


# --- generated refusals

SEEDS = 10_000 if os.environ.get("NOVA_LITE_LONG") == "1" else 1_000


class Cloud:
    """Generated hosts with servers, a request, and filters."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.filters = [item for item in ALL if rng.random() < 0.9]
        self.filters += [TypeAffinityFilter()] * (rng.random() < 0.1)
        self.filters += [NumInstancesFilter(2)] * (rng.random() < 0.2)
        rng.shuffle(self.filters)
        self.servers: list[RequestSpec] = []
        self.hosts = [self.host(number) for number in range(1, rng.randint(2, 5))]
        self.request = self.spec()

    def maybe(self, chance: float, value: Any, otherwise: Any) -> Any:
        return value if self.rng.random() < chance else otherwise

    def host(self, number: int) -> HostState:
        rng, maybe = self.rng, self.maybe
        values = {"tenants": "other", "ssd": rng.choice(["yes", "no"])}
        metadata = {("filter_tenant_id" if key == "tenants" else key): value for key, value in values.items()}
        metadata = {key: value for key, value in metadata.items() if rng.random() < 0.3}
        cells = [NUMACell(id=0, memory_mb=4096, shared_cpus="0-3", dedicated_cpus="4-5")]
        state = host(
            number,
            up=rng.random() < 0.8,
            disabled=rng.random() < 0.2,
            memory_mb=rng.randint(1, 8) * 512,
            vcpus=rng.randint(1, 8),
            disk_gb=rng.randint(1, 40),
            disk_available_least=maybe(0.3, rng.randint(-5, 30), None),
            availability_zone=rng.choice(["east", "west"]),
            capabilities={
                traits.CAPABILITY: rng.sample(["CUSTOM_A", "CUSTOM_B", "CUSTOM_C"], rng.randint(0, 3)),
                HOST_CPU: {"virt_type": "kvm", "features": rng.choice(["aes", "aes avx"])},
                "gpu": rng.choice(["yes", "no"]),
            },
            aggregates=[HostAggregate(id=1, name="a", metadata=metadata)] if metadata else [],
            numa=maybe(0.5, cells, []),
        )
        for index in range(rng.randint(0, 3)):
            one = server(
                f"{number}-{index}", rng.randint(1, 4) * 512, vcpus=rng.randint(1, 3), root_gb=rng.randint(0, 9)
            )
            one.flavor.flavorid = rng.choice("12")
            state = core.consume_from_request(state, one, one.instance_uuids[0])
            self.servers += [one] * (rng.random() < 0.9)
        return state

    def spec(self) -> RequestSpec:
        rng, maybe = self.rng, self.maybe
        names = [name for state in self.hosts for name in state.instances] or ["none"]
        extra_specs = {
            "trait:CUSTOM_A": "required",
            "trait:CUSTOM_B": "forbidden",
            "capabilities:gpu": "yes",
            "aggregate_instance_extra_specs:ssd": "yes",
            "hw:cpu_policy": "dedicated",
            "hw:numa_nodes": "1",
            "quota:cpu_shares": "1",
        }
        properties = {"hw_architecture": "aarch64", "trait:CUSTOM_C": "required", "os_distro": "debian"}
        hints: dict[str, list[str] | str] = {
            "same_host": rng.choice(names),
            "different_host": rng.sample(names, 1),
            "query": '[">=", "$free_ram_mb", 1024]',
        }
        return spec(
            rng.choice([1, 1, 1, 2, 3]),
            flavor=flavor(
                flavorid=rng.choice("12"),
                memory_mb=rng.randint(1, 8) * 400,
                vcpus=rng.randint(1, 5),
                root_gb=rng.randint(0, 20),
                ephemeral_gb=maybe(0.2, 5, 0),
                swap=maybe(0.2, 700, 0),
                extra_specs={key: value for key, value in extra_specs.items() if rng.random() < 0.15},
            ),
            image=image(**{key: value for key, value in properties.items() if rng.random() < 0.15}),
            scheduler_hints={key: value for key, value in hints.items() if rng.random() < 0.1},
            availability_zone=maybe(0.3, rng.choice(["east", "west", "none"]), None),
            requested_destination=maybe(0.1, RequestedDestination(host=rng.choice(["host1", "none"])), None),
            forced_host=maybe(0.03, rng.choice(["host1", "none"]), None),
            ignore_hosts=maybe(0.1, ["host1"], []),
            instance_group=maybe(
                0.2, group(rng.choice(["affinity", "anti-affinity"]), rng.choice([[], ["host1"]])), None
            ),
            traits=maybe(0.1, ["CUSTOM_B"], []),
            guest_cpu=maybe(0.1, GuestCpu(virt_type="kvm", features="aes avx"), None),
        )

    def fits(self, hosts: Sequence[HostState], request: RequestSpec) -> bool:
        try:
            select(hosts, request, self.filters)
        except NoValidHost:
            return False
        return True

    def works(self, found: Sequence[Change]) -> bool:
        hosts: Sequence[HostState] = self.hosts
        request = self.request
        for change in found:
            hosts, request = change.apply(hosts, request)
        return self.fits(hosts, request)

    def single_changes(self) -> list[Change]:
        """Return the stated set without the search: on each host, amounts that are always sufficient."""
        request, count = self.request, len(self.request.instance_uuids)
        found: list[Change] = [*changes.drops(request), *(changes.Fewer(n, count) for n in range(1, count))]
        sizes: dict[str, CoreFilter | DiskFilter | RamFilter] = {
            "memory_mb": RamFilter(), "vcpus": CoreFilter(), "disk_gb": DiskFilter()
        }  # fmt: skip
        for state in self.hosts:
            place = (state.host, state.node)
            found += [changes.Enable(*place)] * state.disabled
            found += [changes.Start(*place)] * (not state.up and not request.forced_host)
            found += [changes.Free(*place, one) for one in self.servers if one.instance_uuids[0] in state.instances]
            for resource, item in sizes.items():
                free, requested = item.free(state), item.requested(request)
                found.append(changes.Add(*place, resource, max(count * requested - free, 0)))
                if changes.may_shrink(request) and (resource != "disk_gb") <= free < requested:
                    found.append(changes.Shrink(resource, free, requested))
        return found


def is_stated(pair: Sequence[Change]) -> bool:
    """Check whether the search tries such pairs: one host changes, or fewer servers are requested."""
    hosts = {change.host for change in pair if isinstance(change, changes.HostChange)}
    return len(hosts) + any(isinstance(change, changes.Fewer) for change in pair) < 2


def test_advice_for_generated_refusals_works_and_is_the_least() -> None:
    refused = sizes = 0
    seen: set[int] = set()
    for seed in itertools.count():
        if refused == SEEDS:
            break
        cloud = Cloud(seed)
        if cloud.fits(cloud.hosts, cloud.request):
            continue
        refused += 1
        found = search(cloud.hosts, cloud.request, cloud.servers, cloud.filters)
        owner, admin = found.advice(of_request=True), found.advice(of_request=False)
        assert admin.is_least, seed
        for one in [*owner.sets, *admin.sets]:
            assert cloud.works(one), (seed, one)
        assert all(change.of_request for one in owner.sets for change in one), seed
        least = min((len(one) for one in admin.sets), default=advice.LIMIT + 1)
        least_of_request = min((len(one) for one in owner.sets), default=advice.LIMIT + 1)
        seen.add(least)
        singles = cloud.single_changes()
        if least > 1:
            assert not [str(change) for change in singles if cloud.works([change])], seed
        if least_of_request > 1:
            assert not [str(change) for change in singles if change.of_request and cloud.works([change])], seed
        if least > 2 and refused % 20 == 0:
            pairs = [pair for pair in itertools.combinations(singles, 2) if is_stated(pair)]
            assert not [(str(one), str(two)) for one, two in pairs if cloud.works([one, two])], seed
        sizes += least
    assert seen == {1, 2, 3, 4}, "the generator makes refusals of each size, and some without advice"
