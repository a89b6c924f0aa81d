"""Ports that users make.

The transactions that accept a server and release its interfaces also take and free its ports.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
import sqlalchemy as sa

from nova_lite import objects
from nova_lite.base import exceptions
from nova_lite.db.core import models
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.network import floating_ips, ports, security_groups
from nova_lite.db.upkeep import invariants
from nova_lite.objects import NetworkRequest, Port
from nova_lite.objects.build import BuildOutcome
from nova_lite.objects.security_group import NetworkMembers
from tests.support import make
from tests.support.conductor_world import World
from tests.support.world_interfaces import attach, detach, report

NETWORK = "11111111-1111-4111-8111-111111111111"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def made(world: World, project: str = "p1", **values: object) -> Port:
    port = Port(id=str(uuid.uuid4()), network_id=NETWORK, **values)  # type: ignore[arg-type]
    return world.db.write(ports.create, world.conf, make.context(project=project), port)


def owner(world: World, port: Port) -> str | None:
    found = world.db.read(ports.get, make.ADMIN, port.id)
    assert (found.address, found.mac_address) == (port.address, port.mac_address)
    return found.instance_uuid


def wants(port: Port, tag: str | None = None) -> list[NetworkRequest]:
    return [NetworkRequest(port_id=port.id, tag=tag)]


def test_server_has_its_users_port_from_create_to_delete(world: World) -> None:
    port = made(world, name="mine")
    other = NetworkRequest(network_id=NETWORK)
    (server,) = world.create(networks=[other, *wants(port, tag="nic")])
    assert owner(world, port) == server
    with pytest.raises(exceptions.PortInUse):
        world.create(networks=wants(port))
    with pytest.raises(exceptions.PortInUse):
        world.db.write(ports.delete, make.context(), port.id)
    world.lifecycle.build_instances(world.context(), [server])
    host, request = world.compute.builds[-1]
    assert request.connected
    vifs = world.instance(server).vifs
    assert [(vif.id == port.id, vif.tag) for vif in vifs] == [(False, None), (True, "nic")]
    assert vifs[1].address == port.address
    world.report(server, host, request.generation, BuildOutcome.BUILT)
    command = world.lifecycle.accept_action(world.context(), server, "delete", {})
    assert owner(world, port) == server
    report(world, command)
    assert owner(world, port) is None
    assert world.count(models.Port) == 1
    assert world.create(networks=wants(port))


def test_a_repeated_create_is_the_same_server(world: World) -> None:
    port, context = made(world), world.context("req-again")
    assert world.create(context, networks=wants(port)) == world.create(context, networks=wants(port))


def test_port_is_free_after_a_failed_create(world: World) -> None:
    port = made(world)
    (server,) = world.create(networks=wants(port))
    world.lifecycle.build_instances(world.context(), [server])
    host, request = world.compute.builds[-1]
    world.report(server, host, request.generation, BuildOutcome.ABORTED, "no")
    assert world.instance(server).vm_state == "error"
    assert owner(world, port) is None


def test_port_stays_while_the_build_is_rescheduled(world: World) -> None:
    port = made(world)
    (server,) = world.create(networks=wants(port))
    world.lifecycle.build_instances(world.context(), [server])
    host, request = world.compute.builds[-1]
    world.report(server, host, request.generation, BuildOutcome.RESCHEDULED, "no disk")
    assert owner(world, port) == server
    world.lifecycle.build_instances(world.context(), [server])
    assert [vif.id for vif in world.instance(server).vifs] == [port.id]


def test_create_with_an_unusable_port_takes_nothing(world: World) -> None:
    mine, theirs = made(world), made(world, project="p2")
    before = world.instances_used()
    gone = NetworkRequest(port_id=str(uuid.uuid4()))
    for wanted, error in (
        ([*wants(mine), *wants(theirs)], exceptions.PortUnavailable),
        ([*wants(mine), gone], exceptions.PortUnavailable),
        ([*wants(mine), *wants(mine)], exceptions.PortInUse),
    ):
        with pytest.raises(error):
            world.create(networks=wanted)
    with pytest.raises(exceptions.InvalidInput, match="multiple instances"):
        world.create(networks=wants(mine), max_count=2)
    assert (owner(world, mine), world.instances_used()) == (None, before)
    (server,) = world.create()
    (own,) = [vif.id for vif in _built_vifs(world, server)]
    with pytest.raises(exceptions.PortInUse):
        world.create(networks=[NetworkRequest(port_id=own)])
    with pytest.raises(exceptions.PortUnavailable):  # another project's port is not disclosed
        world.create(world.context(project="p2"), networks=[NetworkRequest(port_id=own)])


def _built_vifs(world: World, server: str) -> list[objects.VIF]:
    world.lifecycle.build_instances(world.context(), [server])
    return world.instance(server).vifs


def test_attach_and_detach_of_a_users_port(world: World) -> None:
    port = made(world)
    server, _, _ = world.built()
    command = attach(world, server, port_id=port.id)
    assert (command.payload["port_id"], owner(world, port)) == (port.id, server)
    report(world, command)
    report(world, detach(world, server, port.id))
    assert owner(world, port) is None
    command = attach(world, server, port_id=port.id)
    report(world, command, "no slot left")
    assert owner(world, port) == server
    report(world, world.compute.commands[-1])
    assert owner(world, port) is None
    with pytest.raises(exceptions.PortUnavailable):
        attach(world, server, project="p1", port_id=made(world, project="p2").id)


def test_security_groups_of_a_port_and_of_its_server(world: World) -> None:
    me = make.context()
    for name in ("web", "db"):
        world.db.write(security_groups.create, world.conf, me, name, None)
    web = world.db.read(security_groups.get, me, "web").id
    port = made(world, security_groups=[web])
    server, host, _ = world.built(networks=[NetworkRequest(network_id=NETWORK), *wants(port)])
    own = world.instance(server).vifs[0].id

    def told() -> tuple[list[str], list[str] | None]:
        filters = world.db.read(security_groups.filters, host, [server])
        names = {group.id: group.name for group in filters.groups.values()}
        assert own not in filters.ports
        of_port = filters.ports.get(port.id)
        return [names[instance] for instance in filters.instances[server]], of_port and [
            names[item] for item in of_port
        ]

    assert told() == (["default"], ["web"])
    assert world.instance(server).interface_groups() == ["default", "web"]
    world.db.write(security_groups.join, me, server, "db")
    assert told() == (["default", "db"], ["web", "db"])
    world.db.write(security_groups.leave, me, server, "web")
    assert told() == (["default", "db"], ["db"])
    world.db.write(security_groups.update, me, "db", "sql", None)
    assert told() == (["default", "sql"], ["sql"])
    world.db.write(ports.update, me, port.id, {"security_groups": []})
    assert told() == (["default", "sql"], [])
    world.db.write(security_groups.delete, me, "web")


def test_members_are_addresses_of_ports_in_the_group(world: World) -> None:
    me = make.context()
    web = world.db.write(security_groups.create, world.conf, me, "web", None).id
    rule = objects.SecurityGroupRule(id="", security_group_id=web, remote_group_id=web)
    world.db.write(security_groups.add_rule, world.conf, me, rule)
    port, free = made(world, security_groups=[web]), made(world, security_groups=[web])
    server, host, _ = world.built(networks=[NetworkRequest(network_id=NETWORK), *wants(port)])
    filters = world.db.read(security_groups.filters, host, [server])
    assert filters.groups[web].members_by_network == {NETWORK: NetworkMembers(members=[port.address])}
    assert owner(world, free) is None


def test_a_floating_address_leads_to_a_port_also_after_its_server(world: World) -> None:
    me = make.context()
    pool = world.db.write(floating_ips.create_pool, "public", "192.0.2.0/30")
    port = made(world)
    wanted = objects.FloatingIp(id="", address="", pool="", project_id="", pool_id=pool.id, port_id=port.id)
    floating = world.db.write(floating_ips.allocate, world.conf, me, None, wanted)
    assert (floating.port_id, floating.instance_uuid) == (port.id, None)
    server, host, _ = world.built(networks=wants(port))
    assert world.db.read(security_groups.filters, host, [server]).floating == {port.id: floating.address}
    report(world, world.lifecycle.accept_action(world.context(), server, "delete", {}))
    assert world.db.read(floating_ips.get, me, floating.id).port_id == port.id


def test_audit_finds_and_repairs_wrong_ports(world: World) -> None:
    free, port = made(world), made(world)
    server, _, _ = world.built(networks=[NetworkRequest(network_id=NETWORK), *wants(port)])
    assert world.db.read(invariants.find) == []

    def damage(uow: UnitOfWork) -> None:
        uow.session.execute(sa.update(models.Instance).where(models.Instance.uuid == server).values(deleted=True))
        uow.session.execute(sa.update(models.Port).where(models.Port.id == free.id).values(state="attaching"))

    world.db.write(damage)
    found = [problem for problem in world.db.read(invariants.find) if problem.check == "port"]
    assert sorted(problem.found.split()[0] for problem in found) == ["address", "attaching", "port"]
    invariants.fix(world.db)
    assert [problem for problem in world.db.read(invariants.find) if problem.check == "port"] == []
    assert world.count(models.Port) == 2
    assert (owner(world, free), owner(world, port)) == (None, None)
    nobodys = sa.update(models.Port).where(models.Port.id == free.id).values(project_id=None)
    world.db.write(lambda uow: uow.session.execute(nobodys))
    (problem,) = world.db.read(invariants.find)
    assert problem.expected == "none: no server or project has it"
    invariants.fix(world.db)
    assert world.count(models.Port) == 1


def test_repeated_create_of_a_port_returns_the_same_port(world: World) -> None:
    port = made(world)
    again = Port(id=port.id, network_id=NETWORK)
    assert world.db.write(ports.create, world.conf, make.context(), again) == port
