"""Changes of large security groups for hosts, instead of all members."""

from __future__ import annotations

import itertools

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from nova_lite.conductor.network import member_history
from nova_lite.conductor.network.member_history import MemberHistory
from nova_lite.objects import PortFilters, SecurityGroup
from nova_lite.objects.security_group import LARGE, NetworkMembers, members_digest

STABLE = [f"10.0.{number // 256}.{number % 256}" for number in range(LARGE)]
MEMBERS = st.sets(st.integers(0, 9)).map(lambda found: [*STABLE, *(f"10.9.0.{number}" for number in sorted(found))])


def filters(members: list[str], group_id: str = "g", network: str = "n") -> PortFilters:
    known = {network: NetworkMembers(members=members)}
    return PortFilters(groups={group_id: SecurityGroup(id=group_id, name="g", members_by_network=known)})


def members_in(found: PortFilters, group_id: str = "g", network: str = "n") -> NetworkMembers:
    return (found.groups[group_id].members_by_network or {})[network]


def reply(
    history: MemberHistory, members: list[str], known: list[str] | None, group_id: str = "g", network: str = "n"
) -> NetworkMembers:
    digests = {} if known is None else {group_id: {network: members_digest(known)}}
    (result,) = history.reduced([(filters(members, group_id, network), digests)])
    return members_in(result, group_id, network)


def complete(found: NetworkMembers, known: list[str]) -> set[str]:
    if found.base is None:
        return set(found.members)
    assert found.base == members_digest(known)
    return (set(known) - set(found.removed)) | set(found.members)


@given(st.lists(st.tuples(st.integers(0, 2), MEMBERS), min_size=1, max_size=12))
def test_each_host_ends_with_all_members_whatever_it_knew(steps: list[tuple[int, list[str]]]) -> None:
    """Three hosts query at different times, so each knows another state."""
    history, known = MemberHistory(), [STABLE, STABLE, []]
    for host, members in steps:
        found = complete(reply(history, members, known[host]), known[host])
        assert found == set(members)
        known[host] = sorted(found)


def test_host_that_knows_nothing_or_something_else_gets_all() -> None:
    history = MemberHistory()
    for known in (None, ["10.1.1.1"]):
        assert reply(history, STABLE, known) == members_in(filters(STABLE))


def test_change_is_sent_to_hosts_that_know_an_earlier_state() -> None:
    history = MemberHistory()
    reply(history, STABLE, STABLE)
    more = [*STABLE, "10.9.0.1"]
    changed = reply(history, more, STABLE)
    assert (changed.members, changed.removed) == (["10.9.0.1"], [])
    back = reply(history, STABLE, more)
    assert (back.members, back.removed) == ([], ["10.9.0.1"])
    assert reply(history, STABLE, STABLE).members == []


def test_results_of_one_transaction_are_reduced_for_each_host() -> None:
    history = MemberHistory()
    reply(history, STABLE, STABLE)
    shared = filters([*STABLE, "10.9.0.1"])
    digest = {"g": {"n": members_digest(STABLE)}}
    results = history.reduced([(shared, digest), (shared, {}), (shared, {"g": {"n": "other"}}), (shared, digest)])
    assert [len(members_in(result).members) for result in results] == [1, LARGE + 1, LARGE + 1, 1]


def test_equal_members_of_two_networks_are_two_lists() -> None:
    history = MemberHistory()
    more = [*STABLE, "10.9.0.1"]
    for network in ("n", "m"):
        reply(history, STABLE, STABLE, network=network)
    assert reply(history, more, STABLE, network="n").members == ["10.9.0.1"]
    assert reply(history, STABLE, STABLE, network="m").members == []
    assert reply(history, STABLE, more, network="m").base is None, "this network has never had it"


def test_history_is_limited() -> None:
    history = MemberHistory()
    for number in range(member_history.MAX_LISTS + 1):
        reply(history, STABLE, STABLE, f"g{number}")
    more = [*STABLE, "10.9.0.1"]
    assert reply(history, more, STABLE, "g0").base is None
    assert reply(history, more, STABLE, f"g{number}").base is not None
    states = [[*STABLE, f"10.9.0.{number}"] for number in range(member_history.MAX_CHANGES + 2)]
    for before, after in itertools.pairwise(states):
        reply(history, after, before)
    assert reply(history, states[-1], states[0]).base is None
    assert reply(history, states[-1], states[2]).base is not None


def test_filters_for_an_older_host_stay_whole_without_new_fields() -> None:
    group = SecurityGroup(id="g", name="g", members=STABLE)
    (result,) = MemberHistory().reduced([(PortFilters(groups={"g": group}), {})])
    assert result.groups["g"] == group
    assert b"members_by_network" not in msgspec.json.encode(result)
