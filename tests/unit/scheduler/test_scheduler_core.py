"""The decision: examples, and properties that hold for any hosts and any request."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_lite.base import exceptions
from nova_lite.objects import Destination, HostState, RequestedDestination, RequestSpec
from nova_lite.scheduler import core
from nova_lite.scheduler.filters.base import HostFilter
from nova_lite.scheduler.weights.resources import RAMWeigher
from tests.support.scheduling import FILTERS, WEIGHERS, names, select

from .builders import flavor, group, host, spec


def refusal(hosts: Sequence[HostState], request: RequestSpec) -> exceptions.NoValidHost:
    with pytest.raises(exceptions.NoValidHost) as caught:
        select(hosts, request)
    return caught.value


# --- examples


def test_emptiest_host_is_selected_with_alternates_in_order() -> None:
    hosts = [host(1, memory_mb_used=4096), host(2), host(3, memory_mb_used=2048), host(4, memory_mb_used=8192)]
    (destination,) = select(hosts, spec())
    assert destination.instance_uuid == "uuid-0"
    assert destination.selected.host == "host2"
    assert destination.selected.limits == {"memory_mb": 8192, "vcpus": 16, "disk_gb": 100}
    assert [item.host for item in destination.alternates] == ["host3", "host1"]


def test_instances_spread_and_keep_their_order() -> None:
    destinations = select([host(1), host(2), host(3)], spec(6))
    assert [item.instance_uuid for item in destinations] == [f"uuid-{number}" for number in range(6)]
    assert Counter(names(destinations)) == {"host1": 2, "host2": 2, "host3": 2}


def test_negative_multipliers_stack() -> None:
    weighers = [RAMWeigher(-1.0)]
    assert names(select([host(1), host(2, memory_mb_used=512)], spec(3), weighers=weighers)) == ["host2"] * 3


def test_request_without_instances_needs_no_host() -> None:
    assert select([], spec(0)) == []


def test_alternates_never_name_the_selected_host() -> None:
    (destination,) = select([host(1), host(2, host="host1"), host(3)], spec())
    assert [item.host for item in destination.alternates] == ["host3"]


def test_alternates_are_limited_by_max_alternates() -> None:
    hosts = [host(number) for number in range(6)]
    assert [len(select(hosts, spec(), max_alternates=count)[0].alternates) for count in (0, 2, 9)] == [0, 2, 5]


def test_subset_size_chooses_among_the_best_only() -> None:
    hosts = [host(number, memory_mb_used=number * 512) for number in range(1, 6)]
    chosen = {names(select(hosts, spec(), seed=seed, host_subset_size=3))[0] for seed in range(50)}
    assert chosen == {"host1", "host2", "host3"}
    assert names(select(hosts, spec(), host_subset_size=99)) != []


def test_affinity_keeps_a_new_group_on_one_host() -> None:
    request = spec(3, instance_group=group("affinity"))
    assert len(set(names(select([host(1), host(2), host(3)], request)))) == 1


def test_anti_affinity_spreads_over_hosts_and_not_only_nodes() -> None:
    hosts = [host(1), host(2, host="host1"), host(3, memory_mb_used=4096)]
    assert sorted(names(select(hosts, spec(2, instance_group=group("anti-affinity"))))) == ["host1", "host3"]
    assert "There is room for 2 of the 3" in refusal(hosts, spec(3, instance_group=group("anti-affinity"))).message


def test_anti_affine_members_have_no_alternate_in_common() -> None:
    request = spec(2, instance_group=group("anti-affinity"))
    destinations = select([host(number) for number in range(1, 7)], request, max_alternates=2)
    alternates = [item.host for destination in destinations for item in destination.alternates]
    assert len(alternates) == len(set(alternates)) == 4
    assert not set(alternates) & set(names(destinations))


# --- forced hosts


def test_forced_host_skips_filters() -> None:
    hosts = [host(1), host(2, disabled=True, memory_mb_used=8192)]
    (destination,) = select(hosts, spec(forced_host="host2"))
    assert destination.selected.host == "host2"
    assert destination.alternates == []


def test_requested_destination_skips_no_filter() -> None:
    hosts = [host(1), host(2, disabled=True), host(3, memory_mb=100), host(4, up=False), host(5, node="n5")]
    assert names(select(hosts, spec(requested_destination=RequestedDestination(host="host1")))) == ["host1"]
    assert names(select(hosts, spec(requested_destination=RequestedDestination(node="n5")))) == ["host5"]
    reasons = {
        "host2": "Of 1 requested host, 1 failed ComputeFilter (down or disabled).",
        "host3": "Of 1 requested host, 1 failed RamFilter (512 MB requested, at most 100 MB free).",
        "host4": "Of 1 requested host, 1 failed ComputeFilter (down or disabled).",
        "host6": "The requested host does not exist.",
    }
    for name, reason in reasons.items():
        error = refusal(hosts, spec(requested_destination=RequestedDestination(host=name)))
        assert reason in error.message
        assert name in error.kwargs["details"]
    tried = spec(requested_destination=RequestedDestination(host="host1"), ignore_hosts=["host1"])
    assert "1 failed RetryFilter (already tried)" in refusal(hosts, tried).message
    left = msgspec.structs.replace(tried, left_out={"host1": "the lost host"})
    assert "1 failed RetryFilter (the lost host)" in refusal(hosts, left).message


def test_requested_destination_has_no_alternates_elsewhere() -> None:
    hosts = [host(1, node="n1"), host(2, host="host1", node="n2"), host(3)]
    (found,) = select(
        hosts, spec(requested_destination=RequestedDestination(host="host1", node="n2")), max_alternates=3
    )
    assert (found.selected.node, found.alternates) == ("n2", [])


def test_forced_node_is_the_only_candidate() -> None:
    hosts = [host(1), host(2, node="rack7"), host(3, host="host2", node="rack8")]
    assert select(hosts, spec(forced_node="rack7"))[0].selected.node == "rack7"
    assert select(hosts, spec(forced_host="host2", forced_node="rack8"))[0].selected.node == "rack8"


@pytest.mark.parametrize(
    ("forced", "reason"),
    [
        ({"forced_host": "nowhere"}, "does not exist"),
        ({"forced_host": "host1", "forced_node": "host2"}, "does not exist"),
        ({"forced_host": "host2"}, "is down"),
        ({"forced_host": "host1", "ignore_hosts": ["host1"]}, "is already tried"),
        (
            {"forced_host": "host1", "ignore_hosts": ["host1"], "left_out": {"host1": "the lost host"}},
            "is the lost host",
        ),
    ],
)
def test_unusable_forced_host_is_refused_with_a_reason(forced: dict[str, Any], reason: str) -> None:
    error = refusal([host(1), host(2, up=False)], spec(**forced))
    assert error.message == f"No valid host was found. The requested host {reason}."
    assert forced["forced_host"] in error.kwargs["details"]
    assert forced["forced_host"] not in error.message


# --- reasons


def test_reasons_count_rejected_hosts_by_filter() -> None:
    hosts = [host(number, memory_mb_used=8192 - 30 * number) for number in range(1, 10)]
    hosts += [host(10, up=False), host(11, disabled=True), host(12, up=False)]
    error = refusal(hosts, spec())
    assert error.message == (
        "No valid host was found. Of 12 hosts, 9 failed RamFilter (512 MB requested, at most 270 MB free), "
        "3 failed ComputeFilter (down or disabled)."
    )
    first, second = error.kwargs["details"].split("\n")
    assert first.startswith("RamFilter took out 9 of 12 hosts: host9 (512 MB requested, 270 MB free), host8 (")
    assert first.endswith("and 4 more.")
    assert second == "ComputeFilter took out 3 of 12 hosts: host10 (down), host11 (disabled), host12 (down)."


def test_reasons_count_the_instances_that_would_fit() -> None:
    error = refusal([host(1, memory_mb=1024), host(2, up=False)], spec(3))
    assert error.kwargs["reason"] == (
        "There is room for 2 of the 3 servers requested. Of 2 hosts, 1 failed RamFilter (512 MB requested, at most "
        "0 MB free), 1 failed ComputeFilter (down or disabled)."
    )


def test_cloud_without_hosts_is_the_reason() -> None:
    assert refusal([], spec()).message == "No valid host was found. There are no compute hosts."


def test_message_for_the_owner_names_no_host() -> None:
    hosts = [host(1, host="secret-1", memory_mb=1), host(2, host="secret-2", up=False)]
    error = refusal(hosts, spec())
    assert "secret" not in error.message
    assert "secret-1" in error.kwargs["details"]


def test_filter_without_reasons_is_still_counted() -> None:
    class Never(HostFilter):
        def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
            return False

    with pytest.raises(exceptions.NoValidHost) as caught:
        select([host(1)], spec(), filters=[Never()])
    assert caught.value.message == "No valid host was found. Of 1 host, 1 failed Never."
    assert caught.value.kwargs["details"] == "Never took out 1 of 1 host: host1."


# --- plugins are called no more often than needed


def test_filters_check_each_host_once_and_changed_hosts_again() -> None:
    class Counting(HostFilter):
        def __init__(self, once: bool) -> None:
            self.run_once_per_request = once
            self.calls = 0

        def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
            self.calls += 1
            return True

    once, again = Counting(True), Counting(False)
    select([host(number) for number in range(1000)], spec(100), filters=[once, again], max_alternates=0)
    assert once.calls == 1000
    assert again.calls == 1000 + 100


def test_filter_that_does_not_apply_is_not_called() -> None:
    class Elsewhere(HostFilter):
        def applies(self, spec: RequestSpec) -> bool:
            return False

        def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
            raise AssertionError

    assert names(select([host(1)], spec(), filters=[Elsewhere()])) == ["host1"]


# --- properties

EXAMPLES = settings(max_examples=150, deadline=None)

HOSTS = st.lists(
    st.builds(
        dict,
        up=st.sampled_from([True, True, True, True, False]),
        disabled=st.sampled_from([False, False, False, False, True]),
        vcpus=st.sampled_from([2, 4, 8]),
        memory_mb=st.sampled_from([1024, 2048, 4096]),
        disk_gb=st.sampled_from([5, 10, 20]),
        vcpus_used=st.integers(0, 3),
        memory_mb_used=st.sampled_from([0, 512, 1000, 1500]),
        disk_gb_used=st.integers(0, 6),
        availability_zone=st.sampled_from(["east", "east", "west"]),
        capabilities=st.sampled_from([{}, {"gpu": "yes"}]),
    ),
    max_size=8,
).map(lambda rows: [host(number, **row) for number, row in enumerate(rows, start=1)])

GROUPS = st.one_of(
    st.none(),
    st.builds(
        group,
        st.sampled_from(["affinity", "anti-affinity", "soft-anti-affinity"]),
        st.lists(st.sampled_from(["host1", "host2", "host3"]), max_size=3),
        st.sampled_from([None, 1, 2]),
    ),
)

SPECS = st.builds(
    spec,
    st.integers(1, 5),
    flavor=st.builds(
        flavor,
        vcpus=st.integers(1, 2),
        memory_mb=st.sampled_from([64, 256, 512]),
        root_gb=st.integers(0, 3),
        extra_specs=st.sampled_from([{}, {}, {}, {"capabilities:gpu": "yes"}]),
    ),
    availability_zone=st.sampled_from([None, None, "east"]),
    ignore_hosts=st.sampled_from([[], [], ["host1"]]),
    instance_group=GROUPS,
)
OPTIONS = st.builds(core.Options, st.integers(1, 4), st.integers(0, 4))


def naive(
    hosts: Sequence[HostState], request: RequestSpec, options: core.Options, rng: random.Random
) -> list[Destination] | None:
    """Decide in the slow way: filter and sort all hosts again for each instance. Return None without a valid host."""
    request = copy.deepcopy(request)
    hosts = list(hosts)

    def fitting() -> list[int]:
        applying = [item for item in FILTERS if item.applies(request)]
        return [n for n, item in enumerate(hosts) if all(f.host_passes(item, request) for f in applying)]

    scale = []
    for weigher in WEIGHERS:
        raw = [weigher.weight(hosts[n], request) for n in fitting()]
        if raw:
            scale.append((weigher, min(raw), weigher.multiplier / (max(raw) - min(raw) or abs(max(raw)) or 1.0)))

    def ranked() -> list[int]:
        def cost(n: int) -> float:
            total = 0.0
            for weigher, low, factor in scale:
                total -= factor * (weigher.weight(hosts[n], request) - low)
            return total

        return sorted(fitting(), key=cost)

    picked = []
    for uuid in request.instance_uuids:
        best = ranked()[: options.host_subset_size]
        if not best:
            return None
        n = best[rng.randrange(len(best)) if len(best) > 1 else 0]
        hosts[n] = core.consume_from_request(hosts[n], request, uuid)
        if request.instance_group:
            request.instance_group.hosts.append(hosts[n].host)
        picked.append(n)
    dealt: set[int] = set()
    destinations = []
    for uuid, n in zip(request.instance_uuids, picked, strict=True):
        others = [other for other in ranked() if other != n and other not in dealt][: options.max_alternates]
        if request.instance_group and request.instance_group.policy == "anti-affinity":
            dealt.update(others)
        alternates = [core.selection(hosts[other]) for other in others]
        destinations.append(Destination(instance_uuid=uuid, selected=core.selection(hosts[n]), alternates=alternates))
    return destinations


def decide(
    hosts: Sequence[HostState], request: RequestSpec, options: core.Options, seed: int, filters: Sequence[HostFilter]
) -> list[Destination] | None:
    try:
        return core.select_destinations(hosts, request, filters, WEIGHERS, options, random.Random(seed))
    except exceptions.NoValidHost:
        return None


@EXAMPLES
@given(hosts=HOSTS, request=SPECS, options=OPTIONS, seed=st.integers(0, 3))
def test_incremental_pass_equals_the_naive_one(
    hosts: list[HostState], request: RequestSpec, options: core.Options, seed: int
) -> None:
    assert decide(hosts, request, options, seed, FILTERS) == naive(hosts, request, options, random.Random(seed))


@EXAMPLES
@given(hosts=HOSTS, request=SPECS, options=OPTIONS, seed=st.integers(0, 3), filters=st.permutations(FILTERS))
def test_order_of_filters_does_not_matter(
    hosts: list[HostState], request: RequestSpec, options: core.Options, seed: int, filters: list[HostFilter]
) -> None:
    assert decide(hosts, request, options, seed, filters) == decide(hosts, request, options, seed, FILTERS)


@EXAMPLES
@given(hosts=HOSTS, request=SPECS, options=OPTIONS, seed=st.integers(0, 3))
def test_decision_respects_capacity_and_filters(
    hosts: list[HostState], request: RequestSpec, options: core.Options, seed: int
) -> None:
    destinations = decide(hosts, request, options, seed, FILTERS) or []
    by_name = {item.host: item for item in hosts}
    placed = Counter(names(destinations))
    for name, count in placed.items():
        state = by_name[name]
        assert state.memory_mb_used + count * request.flavor.memory_mb <= state.memory_mb
        assert state.disk_gb_used + count * request.flavor.disk_gb <= state.disk_gb
        assert state.vcpus_used + count * request.flavor.vcpus <= state.vcpus
    for destination in destinations:
        for place in [destination.selected, *destination.alternates]:
            state = by_name[place.host]
            assert state.up
            assert not state.disabled
            assert place.host not in request.ignore_hosts
            assert request.availability_zone in (None, state.availability_zone)
        for alternate in destination.alternates:
            state = by_name[alternate.host]
            assert alternate.host != destination.selected.host
            assert state.memory_mb_used + (placed[state.host] + 1) * request.flavor.memory_mb <= state.memory_mb


@EXAMPLES
@given(hosts=HOSTS, request=SPECS, options=OPTIONS, seed=st.integers(0, 3))
def test_group_policies_are_never_violated(
    hosts: list[HostState], request: RequestSpec, options: core.Options, seed: int
) -> None:
    destinations = decide(hosts, request, options, seed, FILTERS) or []
    members = request.instance_group
    if members is None or not destinations:
        return
    if members.policy == "anti-affinity":
        count = Counter([*members.hosts, *names(destinations)])
        assert all(count[name] <= (members.max_server_per_host or 1) for name in names(destinations))
    if members.policy == "affinity":
        everywhere = set(names(destinations))
        assert len(everywhere) == 1 or everywhere <= set(members.hosts)
        assert not members.hosts or everywhere <= set(members.hosts)


@EXAMPLES
@given(hosts=HOSTS, request=SPECS, options=OPTIONS, seed=st.integers(0, 3))
def test_decision_changes_no_argument_and_can_be_repeated(
    hosts: list[HostState], request: RequestSpec, options: core.Options, seed: int
) -> None:
    before = msgspec.json.encode([hosts, request])
    first = decide(hosts, request, options, seed, FILTERS)
    assert msgspec.json.encode([hosts, request]) == before
    assert decide(hosts, request, options, seed, FILTERS) == first


@EXAMPLES
@given(hosts=HOSTS, request=SPECS)
def test_reasons_account_for_every_host(hosts: list[HostState], request: RequestSpec) -> None:
    try:
        select(hosts, request)
    except exceptions.NoValidHost as error:
        lines = error.kwargs["details"].split("\n") if hosts else []
        assert sum(int(line.split(" took out ")[1].split()[0]) for line in lines) == len(hosts)
        assert not any(item.host in error.message for item in hosts)
