"""Draining a host, on paper."""

from __future__ import annotations

import random
from collections import Counter

from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler import core, plans

from .builders import flavor, group, host, spec
from .test_scheduler_core import FILTERS, WEIGHERS


def server(uuid: str, memory_mb: int = 512, **changes: object) -> RequestSpec:
    return spec(0, instance_uuids=[uuid], flavor=flavor(memory_mb=memory_mb), ignore_hosts=["host1"], **changes)


def drain(hosts: list[HostState], specs: list[RequestSpec]) -> dict[str, str | None]:
    moves = plans.drain("host1", hosts, specs, FILTERS, WEIGHERS, core.Options(), random.Random(1))
    assert all(bool(move.reason) == (move.target is None) for move in moves)
    return {move.instance_uuid: move.target for move in moves}


def test_each_sees_those_before_it_and_the_largest_goes_first() -> None:
    hosts = [host(1), host(2, memory_mb=4096), host(3, memory_mb=1024)]
    assert drain(hosts, [server("small", 1024), server("big", 4096)]) == {"big": "host2", "small": "host3"}
    assert drain(hosts, [server(str(n), 1024) for n in range(6)])["5"] is None


def test_nothing_given_is_changed() -> None:
    hosts = [host(1), host(2)]
    drain(hosts, [server("a"), server("b")])
    assert hosts == [host(1), host(2)]


def test_group_policies_hold_in_the_plan() -> None:
    hosts = [host(number) for number in (1, 2, 3, 4)]
    together = [server(name, instance_group=group("affinity", ["host1", "host1"])) for name in "ab"]
    assert len(set(drain(hosts, together).values())) == 1
    apart = [server(name, instance_group=group("anti-affinity", ["host1", "host1", "host2"], 1)) for name in "abc"]
    moved = Counter(drain(hosts, apart).values())
    assert moved == {"host3": 1, "host4": 1, None: 1}


def test_a_server_that_was_forced_to_its_host_may_leave_it() -> None:
    assert drain([host(1), host(2)], [server("a", forced_host="host1")]) == {"a": "host2"}
