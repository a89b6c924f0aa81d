"""The planner of moves: its rules, its limits, and its end, by examples and by random clouds."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_lite.balance import planner
from nova_lite.balance.planner import Cloud, Group, Host, Limits, Room, Server
from nova_lite.objects.balance import BalanceMove, BalancePlan, Load

LIMITS = Limits(
    high={"cpu": 0.8, "memory": 0.9, "disk": 0.8, "network": 0.8},
    margin=0.15,
    gain=0.05,
    moves=100,
    moves_in=100,
    moves_out=100,
    at_once=100,
    bandwidth=1000.0,
    move_seconds=600.0,
)
CAPACITY = Load(cpu=10, memory=100_000, disk=1.0, network=1000)
ROOM = Room(100, 100_000, 1000)


def host(name: str, **changes: Any) -> Host:
    return Host(**{"name": name, "capacity": CAPACITY, "free": ROOM, **changes})


def server(name: str, where: str, cpu: float, **changes: Any) -> Server:
    load = Load(cpu=cpu, memory=changes.pop("memory", 1000.0))
    return Server(
        **{"uuid": name, "name": f"vm-{name}", "host": where, "load": load, "room": Room(2, 1000, 10), **changes}
    )


def cloud(*parts: Host | Server, **changes: Any) -> Cloud:
    hosts = tuple(part for part in parts if isinstance(part, Host))
    return Cloud(hosts=hosts, servers=tuple(part for part in parts if isinstance(part, Server)), **changes)


def plan(given_cloud: Cloud, limits: Limits = LIMITS, fits: dict[str, list[str]] | None = None) -> BalancePlan:
    everywhere = [item.name for item in given_cloud.hosts]
    return planner.make_plan(
        given_cloud, limits, lambda uuid: everywhere if fits is None else fits.get(uuid, []), explain=True
    )


def moved(found: BalancePlan) -> dict[str, str]:
    return {move.instance_uuid: move.target for move in found.moves}


def verdict(found: BalancePlan, uuid: str) -> str:
    return next(item.verdict for item in found.verdicts if item.instance_uuid == uuid)


HOT = (server("a", "A", 3.0), server("b", "A", 3.0), server("c", "A", 3.2))
B = (host("B", other=Load(cpu=3.1)),)


def test_plan_of_a_loaded_host_moves_one_server_to_the_least_loaded_host_and_says_why_with_figures() -> None:
    found = plan(cloud(host("A"), *B, host("C", other=Load(cpu=2.0)), *HOT))
    (move,) = found.moves
    assert (move.instance_uuid, move.source, move.target) == ("a", "A", "C")
    assert move.reason == (
        "Host A had 92 % CPU pressure over 10 min, host C 20 %. Expected after this move: A 62 %, C 50 %. "
        "Gain: 27 points for about 18 s of transfer."
    )
    assert verdict(found, "b") == "stays: the moves of the plan relieve its host"
    assert [(item.host, item.status) for item in found.hosts] == [
        ("A", "under pressure"),
        ("B", "no pressure"),
        ("C", "no pressure"),
    ]


def test_resource_with_a_limit_of_100_percent_keeps_no_server_and_is_no_reason() -> None:
    limits = dataclasses.replace(LIMITS, high={**LIMITS.high, "disk": 1.0})
    busy = Load(cpu=2.0, disk=0.99)
    assert plan(cloud(host("A", other=busy)), limits).hosts[0].status == "no pressure"
    (move,) = plan(cloud(host("A", other=busy), host("B", other=busy), *HOT[:2]), limits).moves
    assert move.reason.startswith("Host A had 80 % CPU pressure")
    assert plan(cloud(host("A", other=busy), host("B", other=busy), *HOT[:2])).moves == []


def test_plan_below_the_limit_has_no_move_however_uneven_hosts_are() -> None:
    assert plan(cloud(host("A"), host("B"), server("a", "A", 4.0), server("b", "A", 3.9))).moves == []


def test_host_stays_hot_until_it_is_below_the_low_mark() -> None:
    servers = server("a", "A", 3.5), server("b", "A", 3.5)
    assert plan(cloud(host("A"), *B, *servers)).moves == []
    cool = host("B", other=Load(cpu=2.0))
    assert len(plan(cloud(host("A", was_hot=True), cool, *servers)).moves) == 1


def test_host_that_takes_no_part_for_a_while_stays_hot() -> None:
    hosts = host("A", was_hot=True, absent="its report is old"), host("B", was_hot=True), host("C", absent="it is down")
    assert planner.hot_hosts(cloud(*hosts), LIMITS) == {"A"}


@pytest.mark.parametrize(
    ("target", "changes", "text"),
    [
        ({"absent": "it is disabled"}, {}, "it is disabled"),
        ({"free": Room(1, 100, 100)}, {}, "it has no room"),
        ({"moves_in": 100}, {}, "100 servers have moved there within an hour"),
        ({"other": Load(cpu=4.0)}, {}, "its CPU pressure would be 70 %"),
        ({"other": Load(cpu=9.0)}, {}, "it is under pressure itself"),
        ({}, {"group": Group("g", "anti-affinity")}, "the server's group would be kept less"),
        ({}, {"group": Group("g", "soft-anti-affinity")}, "the server's group would be kept less"),
        ({}, {"stays": "it is locked"}, "stays: it is locked"),
        ({}, {"dirty": 200.0}, "it changes 200 MB of memory a second, too fast for 1000 Mbit/s"),
        ({}, {"disk_gb": 500.0}, "its transfer would take 4114 s, and 600 s are allowed"),
        ({}, {"load": None}, "it is not measured yet"),
    ],
)
def test_rule_that_is_broken_keeps_the_server_and_is_named(
    target: dict[str, Any], changes: dict[str, Any], text: str
) -> None:
    member = server("m", "B", 0.0, group=Group("g", "anti-affinity"))
    mine = dataclasses.replace(server("a", "A", 3.0), **changes)
    rest = server("r", "A", 6.0, stays="an operation is open")
    found = plan(cloud(host("A"), host("B", **target), mine, rest, member))
    assert found.moves == []
    if changes.get("load", "") is None:
        assert found.hosts[0].status == "1 of its servers are not measured yet"
    else:
        assert text in verdict(found, "a")


def test_affine_servers_stay_together_and_a_soft_policy_is_never_made_worse() -> None:
    together = [server(name, "A", 4.5, group=Group("g", "affinity")) for name in "ab"]
    assert plan(cloud(host("A"), host("B"), *together)).moves == []
    softly = [dataclasses.replace(item, group=Group("g", "soft-affinity")) for item in together]
    assert plan(cloud(host("A"), host("B"), *softly)).moves == []
    apart = [dataclasses.replace(item, group=Group("g", "soft-anti-affinity")) for item in together]
    assert len(plan(cloud(host("A"), host("B"), *apart)).moves) == 1


def test_protected_server_does_not_move_to_a_host_that_cannot_be_fenced() -> None:
    mine = server("a", "A", 9.0, protected=True)
    found = plan(cloud(host("A", fenceable=True), host("B"), mine, server("b", "A", 0.0)))
    assert "it cannot be fenced" in verdict(found, "a")
    small = server("a", "A", 5.0, protected=True), server("b", "A", 4.0, stays="it is locked")
    assert moved(plan(cloud(host("A", fenceable=True), host("B", fenceable=True), *small))) == {"a": "B"}
    assert moved(plan(cloud(host("A"), host("B"), *small))) == {"a": "B"}


def test_host_that_the_filters_refuse_is_no_target() -> None:
    found = plan(cloud(host("A"), *B, host("C"), *HOT), fits={"a": ["A"], "b": ["A", "B"]})
    assert moved(found) == {"b": "B"}
    assert verdict(plan(cloud(host("A"), *B, *HOT), fits={}), "a") == (
        "stays: no other host passes the scheduler's filters"
    )


def test_server_with_dedicated_cpus_comes_alone_to_a_host() -> None:
    servers = [server(name, "A", 2.4, alone=True) for name in "abcd"]
    assert moved(plan(cloud(host("A"), host("B"), host("C"), *servers))) == {"a": "B", "b": "C"}


def test_cheaper_server_moves_first() -> None:
    large = server("a", "A", 3.0, memory=60_000.0)
    found = plan(cloud(host("A"), host("B"), large, server("b", "A", 3.0), server("c", "A", 3.0)))
    assert moved(found) == {"b": "B"}


@pytest.mark.parametrize(
    ("limits", "changes", "number"),
    [
        ({"at_once": 2}, {"running": 1}, 1),
        ({"moves": 5}, {"moves": 4}, 1),
        ({"moves": 5}, {"moves": 5}, 0),
        ({"moves_out": 2}, {}, 2),
        ({"moves_in": 1}, {}, 1),
        ({}, {}, 3),
    ],
)
def test_budget_limits_the_plan(limits: dict[str, Any], changes: dict[str, Any], number: int) -> None:
    servers = [server(str(number), "A", 1.2) for number in range(8)]
    found = plan(cloud(host("A"), host("B"), *servers, **changes), dataclasses.replace(LIMITS, **limits))
    assert len(found.moves) == number


def test_resource_of_unknown_capacity_is_not_judged() -> None:
    unknown = host("A", capacity=Load(cpu=10), other=Load(memory=1.0, disk=9.0, network=9.0))
    assert plan(cloud(unknown, *B)).hosts[0].pressure == {"cpu": 0.0}


# --- random clouds

POLICIES = ("anti-affinity", "affinity", "soft-anti-affinity", "soft-affinity")


@st.composite
def clouds(draw: Any) -> tuple[Cloud, dict[str, list[str]]]:
    names = [f"h{number}" for number in range(draw(st.integers(2, 5)))]
    share = st.integers(0, 40).map(lambda number: number / 100)
    hosts = [
        host(
            name,
            other=Load(
                cpu=10 * draw(share), memory=100_000 * draw(share), disk=draw(share), network=1000 * draw(share)
            ),
            absent=draw(st.sampled_from(["", "", "", "", "it is disabled"])),
            was_hot=draw(st.booleans()),
            fenceable=draw(st.booleans()),
            free=draw(st.sampled_from([ROOM, Room(4, 3000, 50)])),
        )
        for name in names
    ]
    servers, fits = [], {}
    for number in range(draw(st.integers(0, 14))):
        group = draw(st.sampled_from([None, None, *(Group(policy, policy) for policy in POLICIES)]))
        uuid = str(number)
        servers.append(
            Server(
                uuid=uuid,
                name=uuid,
                host=draw(st.sampled_from(names)),
                load=Load(
                    cpu=draw(st.sampled_from([0.0, 0.3, 1.0, 3.0])),
                    memory=draw(st.sampled_from([500.0, 8000.0, 30_000.0])),
                    disk=draw(st.sampled_from([0.0, 0.1, 0.3])),
                    network=draw(st.sampled_from([0.0, 50.0, 300.0])),
                ),
                room=Room(2, 1000, 10),
                stays=draw(st.sampled_from(["", "", "", "it is locked"])),
                disk_gb=draw(st.sampled_from([0.0, 5.0, 1000.0])),
                dirty=draw(st.sampled_from([0.0, 50.0, 500.0])),
                alone=draw(st.booleans()),
                protected=draw(st.booleans()),
                group=group,
            )
        )
        fits[uuid] = draw(st.lists(st.sampled_from(names), unique=True))
    return Cloud(hosts=tuple(hosts), servers=tuple(servers)), fits


def after(before: Cloud, moves: list[BalanceMove], limits: Limits) -> Cloud:
    """Return the cloud after the moves, with the loads that it had."""
    targets = {move.instance_uuid: move.target for move in moves}
    servers = tuple(dataclasses.replace(item, host=targets.get(item.uuid, item.host)) for item in before.servers)
    rooms = {item.name: item.free for item in before.hosts}
    for item in before.servers:
        if item.uuid in targets:
            rooms[targets[item.uuid]] = rooms[targets[item.uuid]].minus(item.room)
    hot = planner.hot_hosts(dataclasses.replace(before, servers=servers), limits)
    hosts = tuple(dataclasses.replace(item, free=rooms[item.name], was_hot=item.name in hot) for item in before.hosts)
    return Cloud(hosts=hosts, servers=servers)


def excess(found: Cloud, limits: Limits) -> float:
    shares = planner.pressures(found)
    return sum(max(0.0, share - limits.low(name)) for host in shares.values() for name, share in host.items())


@settings(max_examples=150, deadline=None)
@given(clouds(), st.integers(0, 3), st.integers(0, 3), st.integers(0, 5), st.integers(1, 5))
def test_plan_of_any_cloud_keeps_rules_and_budget_and_is_deterministic(
    drawn: tuple[Cloud, dict[str, list[str]]], moves_in: int, moves_out: int, moves: int, at_once: int
) -> None:
    before, fits = drawn
    limits = dataclasses.replace(LIMITS, moves_in=moves_in, moves_out=moves_out, moves=moves, at_once=at_once)
    found = plan(before, limits, fits)
    assert found == plan(before, limits, fits)
    assert len(found.moves) <= min(moves, at_once)
    assert all(number <= moves_out for number in Counter(move.source for move in found.moves).values())
    assert all(number <= moves_in for number in Counter(move.target for move in found.moves).values())
    servers = {item.uuid: item for item in before.servers}
    hosts = {item.name: item for item in before.hosts}
    hot = planner.hot_hosts(before, limits)
    now = before
    for move in found.moves:
        mine = servers[move.instance_uuid]
        assert move.source == mine.host != move.target
        assert move.source in hot
        assert move.target not in hot
        assert move.target in fits[mine.uuid]
        assert not mine.stays
        assert not hosts[move.source].absent
        assert not hosts[move.target].absent
        assert planner.transfer_seconds(mine, limits) <= limits.move_seconds
        assert not (mine.protected and hosts[move.source].fenceable and not hosts[move.target].fenceable)
        following = after(now, [move], limits)
        shares = planner.pressures(following)[move.target]
        assert all(share <= limits.low(name) + 1e-6 for name, share in shares.items())
        assert excess(now, limits) - excess(following, limits) >= limits.gain - 1e-6
        _check_group(now, mine, move)
        now = following
    assert all(min(item.free.vcpus, item.free.memory_mb, item.free.disk_gb) >= 0 for item in now.hosts)


def _check_group(now: Cloud, mine: Server, move: BalanceMove) -> None:
    if mine.group is None:
        return
    others = [item.host for item in now.servers if item.group == mine.group and item.uuid != mine.uuid]
    if mine.group.policy == "anti-affinity":
        assert move.target not in others
    elif mine.group.policy == "affinity":
        assert set(others) <= {move.target}
    elif mine.group.policy == "soft-anti-affinity":
        assert others.count(move.target) <= others.count(move.source)
    else:
        assert others.count(move.target) >= others.count(move.source)


@settings(max_examples=100, deadline=None)
@given(clouds())
def test_plans_with_constant_load_end_and_move_no_server_twice(drawn: tuple[Cloud, dict[str, list[str]]]) -> None:
    now, fits = drawn
    limits = dataclasses.replace(LIMITS, at_once=2)
    most = excess(now, limits) / limits.gain + 1
    history: Counter[str] = Counter()
    while moves := plan(now, limits, fits).moves:
        history.update(move.instance_uuid for move in moves)
        now = after(now, moves, limits)
        assert sum(history.values()) <= most
    assert all(number == 1 for number in history.values())
