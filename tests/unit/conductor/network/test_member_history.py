"""Changes of large security groups for hosts, instead of all members."""

from __future__ import annotations

import itertools

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from nova_lite.conductor.network import member_history
from nova_lite.conductor.network.member_history import MemberHistory
from nova_lite.objects import PortFilters, SecurityGroup
from nova_lite.objects.security_group import LARGE, members_digest

STABLE = [f"10.0.{number // 256}.{number % 256}" for number in range(LARGE)]
MEMBERS = st.sets(st.integers(0, 9)).map(lambda found: [*STABLE, *(f"10.9.0.{number}" for number in sorted(found))])


def filters(members: list[str], group_id: str = "g") -> PortFilters:
    return PortFilters(groups={group_id: SecurityGroup(id=group_id, name="g", members=members)})


def reply(history: MemberHistory, members: list[str], known: list[str] | None, group_id: str = "g") -> SecurityGroup:
    digests = {} if known is None else {group_id: members_digest(known)}
    (result,) = history.reduced([(filters(members, group_id), digests)])
    return result.groups[group_id]


def complete(group: SecurityGroup, known: list[str]) -> set[str]:
    if group.base is None:
        return set(group.members)
    assert group.base == members_digest(known)
    return (set(known) - set(group.removed)) | set(group.members)


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
        assert reply(history, STABLE, known) == filters(STABLE).groups["g"]


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
    digest = members_digest(STABLE)
    results = history.reduced(
        [(shared, {"g": digest}), (shared, {}), (shared, {"g": "other"}), (shared, {"g": digest})]
    )
    assert [len(result.groups["g"].members) for result in results] == [1, LARGE + 1, LARGE + 1, 1]


def test_history_is_limited() -> None:
    history = MemberHistory()
    for number in range(member_history.MAX_GROUPS + 1):
        reply(history, STABLE, STABLE, f"g{number}")
    more = [*STABLE, "10.9.0.1"]
    assert reply(history, more, STABLE, "g0").base is None
    assert reply(history, more, STABLE, f"g{number}").base is not None
    states = [[*STABLE, f"10.9.0.{number}"] for number in range(member_history.MAX_CHANGES + 2)]
    for before, after in itertools.pairwise(states):
        reply(history, after, before)
    assert reply(history, states[-1], states[0]).base is None
    assert reply(history, states[-1], states[2]).base is not None


def test_reply_to_an_older_host_has_no_new_fields() -> None:
    text = msgspec.json.encode(reply(MemberHistory(), STABLE, None))
    assert b"base" not in text and b"removed" not in text
