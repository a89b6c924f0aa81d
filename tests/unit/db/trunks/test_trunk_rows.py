"""Subports as hosts see them: on each kind of database."""

from __future__ import annotations

import uuid
from typing import NamedTuple

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.models import Allocation, Instance, TrunkSubport
from nova_lite.db.core.models import Port as Row
from nova_lite.db.network import ports, router_hosts, security_groups, spanning
from nova_lite.db.trunks import hosts, records
from nova_lite.network.trunks import FAILED, UP, HostReport, Subport, Trunk
from nova_lite.objects import Network, Port
from nova_lite.objects.security_group import default_id
from nova_lite.operations.states import PowerState
from tests.support import make
from tests.support.races import overlap
from tests.support.spanning import host, span

ME = RequestContext(user_id="u", project_id="p", roles=["member"])


class World(NamedTuple):
    """Hosts h1 and h2, and a server on h1 with the parent port of a trunk. ``port``: its subport, on ``wide``."""

    wide: Network
    server: str
    trunk: Trunk
    port: Port
    nodes: tuple[int, int]


def port_on(db: Database, conf: cfg.ConfigOpts, network: Network) -> Port:
    wanted = Port(id=str(uuid.uuid4()), project_id="p", network_id=network.id)
    return db.write(ports.create, conf, ME, wanted)


@pytest.fixture
def world(db: Database, conf: cfg.ConfigOpts) -> World:
    conf.set_override("wings", ["trunks"])
    nodes = host(db, "h1", "10.9.9.1"), host(db, "h2", "10.9.9.2")
    narrow, wide = span(db, "narrow", 76, 1), span(db)
    parent, port = port_on(db, conf, narrow), port_on(db, conf, wide)
    server = db.write(make.instance, host="h1", project_id="p", power_state=PowerState.RUNNING)
    values = {"instance_uuid": server}
    db.write(lambda uow: uow.change(sa.update(Row).where(Row.id == parent.id).values(**values)))
    wanted = Trunk(id=str(uuid.uuid4()), project_id="p", port_id=parent.id)
    wanted.sub_ports = [Subport(port_id=port.id, segmentation_id=7)]
    return World(wide, server, db.write(records.create, conf, ME, wanted), port, nodes)


def move(db: Database, world: World) -> None:
    """Let the server move from h1 to h2: it has a claim there, and is not there yet."""

    def change(uow: UnitOfWork) -> None:
        claim = {"instance_uuid": world.server, "compute_node_id": world.nodes[1], "generation": 1}
        uow.session.add(Allocation(**claim, vcpus=1, memory_mb=64, disk_gb=1, created_at=uow.now))
        uow.change(sa.update(Instance).where(Instance.uuid == world.server).values(task_state="migrating"))

    db.write(change)


def arrive(db: Database, world: World) -> None:
    values = {"host": "h2", "task_state": None}
    db.write(lambda uow: uow.change(sa.update(Instance).where(Instance.uuid == world.server).values(**values)))
    first = (Allocation.instance_uuid == world.server, Allocation.compute_node_id == world.nodes[0])
    db.write(lambda uow: uow.change(sa.delete(Allocation).where(*first)))


def test_host_of_the_server_gets_subport_and_its_filters(db: Database, conf: cfg.ConfigOpts, world: World) -> None:
    found = db.write(hosts.sync, "h1", HostReport())
    assert [(item.vif.id, item.parent_id, item.segmentation_id) for item in found.subports] == [
        (world.port.id, world.trunk.port_id, 7)
    ]
    assert found.subports[0].vif.port_security_enabled and not found.is_moving
    assert db.write(hosts.sync, "h2", HostReport()).subports == []
    group = default_id("p")
    filters = db.read(security_groups.filters, "h1", [world.port.id])
    assert filters.ports == {world.port.id: [group]} and filters.instances == {world.port.id: []}
    assert filters.groups[group].members_by_network[world.wide.id].members == [world.port.address]
    assert db.read(router_hosts._neighbours, [world.wide.id]) == {
        world.wide.id: {world.port.address: world.port.mac_address}
    }


def test_reported_states_are_recorded_and_end_with_the_server(db: Database, world: World) -> None:
    def status() -> str:
        return db.read(records.get, ME, world.trunk.id).status

    assert status() == "BUILD"
    for state, wanted in ((FAILED, "DEGRADED"), (UP, "ACTIVE")):
        db.write(hosts.sync, "h1", HostReport(states={world.port.id: state}))
        assert status() == wanted
    assert db.read(records.of_ports, ME, [world.port.id]).active == [world.port.id]
    db.write(lambda uow: uow.change(sa.update(Row).where(Row.instance_uuid == world.server).values(instance_uuid=None)))
    assert status() == "DOWN"
    assert db.write(hosts.sync, "h1", HostReport(states={world.port.id: UP})).subports == []
    assert db.read(ports.get, ME, world.port.id).host is None
    assert db.read(records.of_ports, ME, [world.port.id]).active == []


def test_both_hosts_of_a_moving_server_have_the_subport(db: Database, world: World) -> None:
    db.write(hosts.sync, "h1", HostReport())
    move(db, world)
    found = db.write(hosts.sync, "h2", HostReport())
    assert [item.vif.id for item in found.subports] == [world.port.id] and found.is_moving
    for name, other in (("h1", "10.9.9.2"), ("h2", "10.9.9.1")):
        assert db.read(security_groups.filters, name, [world.port.id]).ports == {world.port.id: [default_id("p")]}
        assert db.read(spanning.peers, [name])[name][world.wide.id] == [other]
    assert db.read(ports.get, ME, world.port.id).host == "h1"
    arrive(db, world)
    assert not db.write(hosts.sync, "h2", HostReport()).is_moving
    assert db.read(ports.get, ME, world.port.id).host == "h2"
    assert db.write(hosts.sync, "h1", HostReport()).subports == []
    assert db.read(ports.get, ME, world.port.id).host == "h2"
    assert db.read(lambda uow: uow.session.get_one(TrunkSubport, world.port.id)).arriving_host is None


def test_vlan_that_concurrent_requests_want_goes_to_one(db: Database, conf: cfg.ConfigOpts, world: World) -> None:
    first, second = port_on(db, conf, world.wide), port_on(db, conf, world.wide)

    def add(uow: UnitOfWork, port: Port) -> str:
        try:
            records.add_subports(uow, ME, world.trunk.id, [Subport(port_id=port.id, segmentation_id=8)])
        except exceptions.DuplicateSubPort:
            return "taken"
        return "added"

    assert overlap(db, lambda uow: add(uow, first), lambda uow: add(uow, second)) == "taken"
    assert [item.segmentation_id for item in db.read(records.get, ME, world.trunk.id).sub_ports] == [7, 8]


def test_removed_subport_is_free_at_once(db: Database, conf: cfg.ConfigOpts, world: World) -> None:
    db.write(hosts.sync, "h1", HostReport())
    db.write(records.remove_subports, ME, world.trunk.id, [world.port.id])
    assert db.read(security_groups.filters, "h1", [world.port.id]).ports == {}
    db.write(records.delete, ME, world.trunk.id)
    db.write(ports.delete, ME, world.port.id)
    assert db.write(hosts.sync, "h1", HostReport(states={world.port.id: UP})).subports == []
