"""Quota of ports in creates and attaches, of servers with one interface and with several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.db.core import quotas
from nova_lite.db.network import port_quota, ports
from nova_lite.objects import NetworkRequest, Port
from tests.support.conductor_world import World

NETWORK = "11111111-1111-4111-8111-111111111111"


def many(count: int) -> list[NetworkRequest]:
    return [NetworkRequest(network_id=NETWORK)] * count


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.db.write(quotas.set_limit, "p1", "fixed_ips", 2)
    return world


def in_use(world: World) -> int:
    return world.db.read(port_quota.used, "p1")


@pytest.mark.parametrize("networks", ["auto", many(1)])
def test_create_of_five_servers_on_quota_of_two_ports_makes_two(world: World, networks: Any) -> None:
    assert len(world.create(networks=networks, min_count=1, max_count=5)) == 2
    assert in_use(world) == 2


def test_create_below_min_count_is_refused(world: World) -> None:
    with pytest.raises(exceptions.PortLimitExceeded, match="Requested 3, but already used 0 of 2") as refused:
        world.create(networks="auto", min_count=3, max_count=5)
    assert refused.value.code == 403
    assert world.instances_used() == 0
    assert in_use(world) == 0


def test_create_with_two_interfaces_counts_both(world: World) -> None:
    world.db.write(quotas.set_limit, "p1", "fixed_ips", 5)
    assert len(world.create(networks=many(2), min_count=1, max_count=5)) == 2
    with pytest.raises(exceptions.PortLimitExceeded, match="Requested 2, but already used 4 of 5"):
        world.create(networks=many(2))
    assert len(world.create(networks=many(1), min_count=1, max_count=5)) == 1


def test_create_with_present_port_needs_no_quota(world: World) -> None:
    made = world.db.write(ports.create, world.conf, world.context(), Port(id="a" * 36, network_id=NETWORK))
    world.create(networks=many(1))
    with pytest.raises(exceptions.PortLimitExceeded):
        world.create(networks=many(1))
    world.create(networks=[NetworkRequest(port_id=made.id)])
    world.create(networks="none", min_count=1, max_count=3)
    assert in_use(world) == 2


def test_unlimited_project_creates_any_number(world: World) -> None:
    world.db.write(quotas.set_limit, "p1", "fixed_ips", -1)
    assert len(world.create(networks="auto", min_count=1, max_count=5)) == 5


def test_attach_beyond_quota_is_refused_and_leaves_no_port(world: World) -> None:
    uuid, *_ = world.built(networks=many(2))
    request = msgspec.to_builtins(NetworkRequest(network_id=NETWORK))
    with pytest.raises(exceptions.PortLimitExceeded, match="Requested 1, but already used 2 of 2"):
        world.lifecycle.accept_action(world.context(), uuid, "attach_interface", {"request": request})
    assert in_use(world) == 2
    world.db.write(quotas.set_limit, "p1", "fixed_ips", 3)
    world.lifecycle.accept_action(world.context(), uuid, "attach_interface", {"request": request})
    assert in_use(world) == 3
