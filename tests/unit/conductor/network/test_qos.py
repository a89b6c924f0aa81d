"""QoS policies as hosts get them, with the packet filters of their guests."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.network import floating_ips, networks, ports, qos, security_groups
from nova_lite.objects import FloatingIp, NetworkRequest, Port, PortFilters, QosLimits, QosPolicy
from tests.support import make, published
from tests.support.conductor_world import World

NETWORK = "11111111-1111-4111-8111-111111111111"
OUT = {"type": "bandwidth_limit", "direction": "egress", "max_kbps": 1000, "max_burst_kbps": 5}
INTO = {"type": "bandwidth_limit", "direction": "ingress", "max_kbps": 2000, "max_burst_kbps": 0}
MARK = {"type": "dscp_marking", "dscp_mark": 26}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def policy(world: World, *rules: dict[str, Any], project_id: str = "p1") -> str:
    numbered = [{"id": str(uuid.uuid4()), **rule} for rule in rules]
    made = QosPolicy(id=str(uuid.uuid4()), project_id=project_id, rules=numbered)
    return world.db.write(qos.create, world.conf, make.ADMIN, made).id


def filters(world: World, host: str) -> PortFilters:
    return world.db.read(security_groups.filters, host, [])


def test_port_has_its_own_policy_or_that_of_its_network(world: World) -> None:
    slow, both = policy(world, OUT), policy(world, INTO, MARK)
    server, host, _ = world.built()
    port = world.instance(server).vifs[0].id
    assert filters(world, host).qos == {}
    world.db.write(networks.update, make.ADMIN, NETWORK, {"qos_policy_id": slow})
    assert filters(world, host).qos == {port: QosLimits(egress=(1000, 5))}
    world.db.write(ports.update, make.context(), port, {"qos_policy_id": both})
    assert filters(world, host).qos == {port: QosLimits(ingress=(2000, 0), dscp=26)}
    empty = policy(world)
    world.db.write(ports.update, make.context(), port, {"qos_policy_id": empty})
    assert filters(world, host).qos == {}, "its own policy without a rule replaces that of the network"


def test_floating_address_has_its_policy_on_the_host_of_its_server(world: World) -> None:
    pool, slow = world.db.write(floating_ips.create_pool, "public", "192.0.2.0/30"), policy(world, OUT)
    me = make.context()
    port = world.db.write(ports.create, world.conf, me, Port(id=str(uuid.uuid4()), network_id=NETWORK))
    wanted = FloatingIp(id="", address="", pool="", project_id="", pool_id=pool.id, port_id=port.id, qos_policy_id=slow)
    floating = world.db.write(floating_ips.allocate, world.conf, me, None, wanted)
    _, host, _ = world.built(networks=[NetworkRequest(port_id=port.id)])
    found = filters(world, host)
    assert (found.qos, found.floating_qos) == ({}, {floating.address: QosLimits(egress=(1000, 5))})
    world.db.write(floating_ips.update, me, floating.id, {"qos_policy_id": None})
    assert filters(world, host).floating_qos == {}


def projects(world: World, change: Any, *values: Any) -> set[str]:
    """Return the projects whose hosts learn of a change."""

    def changed(uow: UnitOfWork) -> set[str]:
        change(uow, *values)
        return published.projects(uow)

    return world.db.write(changed)


def test_change_of_a_policy_notifies_the_hosts_of_its_users(world: World) -> None:
    slow, server = policy(world, OUT, project_id="admin"), world.built()[0]
    port = world.instance(server).vifs[0].id

    def after(changes: dict[str, Any]) -> set[str]:
        return projects(world, qos.update, make.ADMIN, slow, changes)

    assert after({"add_rule": {"id": "one", **INTO}}) == set()
    world.db.write(networks.update, make.ADMIN, NETWORK, {"qos_policy_id": slow})
    assert after({"change_rule": {"id": "one", "max_kbps": 3}}) == {"p1"}
    world.db.write(networks.update, make.ADMIN, NETWORK, {"qos_policy_id": None})
    world.db.write(ports.update, make.ADMIN, port, {"qos_policy_id": slow})
    assert after({"remove_rule": "one"}) == {"p1"}
    assert after({"name": "other"}) == set()


def test_change_of_the_policy_of_a_user_notifies_its_hosts(world: World) -> None:
    slow, server = policy(world, OUT), world.built()[0]
    port = world.instance(server).vifs[0].id
    values = {"qos_policy_id": slow}
    assert projects(world, networks.update, make.ADMIN, NETWORK, values) == {"p1"}
    assert projects(world, networks.update, make.ADMIN, NETWORK, values) == set()
    assert projects(world, ports.update, make.ADMIN, port, values) == {"p1"}
