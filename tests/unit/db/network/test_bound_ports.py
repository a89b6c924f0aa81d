"""Ports that services have on hosts, such as those of load balancers: hosts treat them as interfaces of servers."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core.engine import Database
from nova_lite.db.core.models import Port as Row
from nova_lite.db.network import floating_ips, ports, router_hosts, security_groups, spanning
from nova_lite.objects import Network, Port
from nova_lite.objects.security_group import OPEN
from tests.support.spanning import guest, host, span

DEMO = RequestContext(user_id="u", project_id="p", roles=["member"])
PORT_ID = "c0000000-0000-4000-8000-000000000001"


def bound(db: Database, conf: cfg.ConfigOpts, network: Network, name: str) -> str:
    conf.set_override("wings", ["load_balancer"])
    wanted = Port(id=PORT_ID, project_id="p", network_id=network.id, address="", mac_address="", security_groups=[])
    db.write(ports.create, conf, DEMO, wanted)
    db.write(lambda uow: uow.change(sa.update(Row).where(Row.id == PORT_ID).values(bound_host=name)))
    return PORT_ID


def test_host_gets_open_filters_for_its_bound_port(db: Database, conf: cfg.ConfigOpts) -> None:
    host(db, "h1", "10.9.9.1")
    host(db, "h2", "10.9.9.2")
    port_id = bound(db, conf, span(db), "h1")
    found = db.read(security_groups.filters, "h1", [port_id])
    assert found.instances == {port_id: [OPEN.id]} and found.groups[OPEN.id] == OPEN
    assert {(rule.direction, rule.ethertype) for rule in OPEN.rules} == {
        ("ingress", "IPv4"), ("ingress", "IPv6"), ("egress", "IPv4"), ("egress", "IPv6"),
    }  # fmt: skip
    assert db.read(security_groups.filters, "h2", [port_id]).instances == {port_id: []}


def test_bound_port_is_an_end_of_its_spanning_network(db: Database, conf: cfg.ConfigOpts) -> None:
    host(db, "h1", "10.9.9.1")
    two = host(db, "h2", "10.9.9.2")
    wide = span(db)
    guest(db, wide, 2, two, host="h2", project_id="p")
    bound(db, conf, wide, "h1")
    for name, other in (("h1", "10.9.9.2"), ("h2", "10.9.9.1")):
        assert db.read(spanning.peers, [name])[name] == {wide.id: [other]}
    assert db.read(spanning.hosts, ["p"], []) == ["h1", "h2"]
    assert "h1" in db.read(security_groups.hosts, ["p"], [])


def test_floating_address_and_neighbours_follow_a_bound_port(db: Database, conf: cfg.ConfigOpts) -> None:
    host(db, "h1", "10.9.9.1")
    wide = span(db)
    port_id = bound(db, conf, wide, "h1")
    db.write(floating_ips.create_pool, "public", "192.0.2.0/29")
    floating = db.write(floating_ips.allocate, conf, DEMO, "public")
    db.write(floating_ips.lead, DEMO, floating.id, port_id, None)
    found = db.read(security_groups.filters, "h1", [port_id])
    assert found.floating == {port_id: floating.address}
    row = db.read(lambda uow: uow.session.get_one(Row, port_id))
    assert db.read(router_hosts._neighbours, [wide.id]) == {wide.id: {row.address: row.mac_address}}


def test_user_does_not_delete_or_take_a_bound_port(db: Database, conf: cfg.ConfigOpts) -> None:
    host(db, "h1", "10.9.9.1")
    port_id = bound(db, conf, span(db), "h1")
    assert db.read(ports.get, DEMO, port_id).host == "h1"
    with pytest.raises(exceptions.PortInUse):
        db.write(ports.delete, DEMO, port_id)
    with pytest.raises(exceptions.PortInUse):
        db.write(ports.update, DEMO, port_id, {"device_id": "mine"})
