"""The way of a packet, from the rows of a cloud."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db.core import models
from nova_lite.db.core.engine import Database
from nova_lite.db.network import floating_ips, networks, packet_trace, routers, security_groups
from nova_lite.db.network.packet_trace import Answer, Question
from nova_lite.network.trace.packets import METADATA, OUTSIDE
from nova_lite.objects import NetworkRecord, PacketWay, Router, SecurityGroupRule
from nova_lite.objects.security_group import default_id
from tests.support import make
from tests.support.spanning import guest, host

ME = make.context("p1")


class Tenant:
    """Project with two networks on a router, a guest on each, on two hosts. All projects have equal addresses."""

    def __init__(self, db: Database, conf: cfg.ConfigOpts, nodes: list[int], project: str) -> None:
        self._db, self._conf, self.context = db, conf, make.context(project)
        self.networks = [self._network(number) for number in (1, 2)]
        self.router = db.write(routers.create, conf, self.context, Router(id=make.network().id, project_id=project))
        for item in self.networks:
            db.write(routers.add_interface, conf, self.context, self.router.id, item.subnet_id, None)
        self.here, self.there = (self._guest(index, nodes[index]) for index in (0, 1))

    def _guest(self, index: int, node: int) -> str:
        project = str(self.context.project_id)
        values = {"project_id": project, "security_groups": ["default"], "host": f"h{index + 1}"}
        mac_address = f"fa:16:3e:00:0{index}:0{project[1:]}"
        return guest(self._db, self.networks[index], 11, node, mac_address=mac_address, **values)

    def _network(self, number: int) -> NetworkRecord:
        made = NetworkRecord(id=make.network().id, name=f"n{number}", cidr="", project_id=self.context.project_id)
        self._db.write(networks.create, self._conf, self.context, made)
        subnet = NetworkRecord(id=made.id, name="", cidr=f"10.64.{number}.0/24")
        return self._db.write(networks.create_subnet, self._conf, self.context, subnet)


@pytest.fixture
def tenants(db: Database, conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch) -> list[Tenant]:
    conf.set_override("project_vnis", ["100-199"], "network")
    conf.set_override("metadata_service", True, "network")
    monkeypatch.setattr("nova_lite.db.network.overlaps.are_allowed", lambda _: True)
    nodes = [host(db, f"h{number}", f"10.9.9.{number}") for number in (1, 2)]
    return [Tenant(db, conf, nodes, project) for project in ("p1", "p2")]


def trace(db: Database, source: str, destination: str, *more: Any, **values: Any) -> Answer:
    return db.read(packet_trace.answer, Question(source, destination, *more, **values))


def port_of(db: Database, server: str) -> str:
    query = sa.select(models.Port.id).where(models.Port.instance_uuid == server)
    return db.read(lambda uow: uow.session.scalars(query).one())


def test_servers_of_a_project_reach_each_other_and_an_equal_address_is_not_meant(
    db: Database, tenants: list[Tenant]
) -> None:
    mine, other = tenants
    found = trace(db, mine.here, mine.there, "tcp", 80)
    assert found.trace.arrived_at == found.wanted == port_of(db, mine.there)
    assert [hop.host for hop in found.trace.hops if hop.kind == "rule"] == ["h1", "h2"]
    assert found.trace.hops[-2].group_id == default_id("p1")
    wrong = trace(db, mine.here, other.there)
    assert (wrong.trace.arrived_at, wrong.wanted) == (port_of(db, mine.there), port_of(db, other.there))


def test_equal_address_of_a_source_needs_its_network(db: Database, tenants: list[Tenant]) -> None:
    mine, other = tenants
    with pytest.raises(exceptions.InvalidInput, match="--network names one of"):
        trace(db, "10.64.1.11", "10.64.2.11")
    found = trace(db, "10.64.1.11", "10.64.2.11", network=other.networks[0].id)
    assert found.trace.arrived_at == port_of(db, other.there)
    with pytest.raises(exceptions.InvalidInput, match="on network nowhere"):
        trace(db, mine.here, "10.64.2.11", network="nowhere")


def test_floating_address_leads_to_its_port(db: Database, conf: cfg.ConfigOpts, tenants: list[Tenant]) -> None:
    mine, _ = tenants
    db.write(floating_ips.create_pool, "public", "192.0.2.0/30")
    pool = db.read(floating_ips.pools)[0].id
    db.write(routers.update, mine.context, mine.router.id, {"pool_id": pool})
    taken = db.write(floating_ips.allocate, conf, mine.context, None)
    db.write(floating_ips.associate, mine.context, mine.there, taken.address, None)
    shut = trace(db, "203.0.113.9", taken.address)
    assert (shut.trace.hops[-1].kind, shut.trace.hops[-1].host) == ("rule", "h2")
    ping = SecurityGroupRule(id=make.network().id, security_group_id=default_id("p1"), protocol="icmp")
    db.write(security_groups.add_rule, conf, mine.context, ping)
    assert trace(db, "203.0.113.9", taken.address).trace.arrived_at == port_of(db, mine.there)
    assert trace(db, taken.address, "203.0.113.9").trace.arrived_at == OUTSIDE
    assert "leads to no port" in trace(db, mine.here, "192.0.2.3").trace.hops[-1].text


def test_machine_outside_reaches_own_addresses_without_snat(
    db: Database, conf: cfg.ConfigOpts, tenants: list[Tenant]
) -> None:
    mine, _ = tenants
    assert trace(db, "203.0.113.9", mine.there).trace.hops[-1].text == "No host shows 10.64.2.11 outside of the cloud."
    assert trace(db, "203.0.113.9", "10.64.2.11").trace.hops[-1].kind == "outside"
    db.write(floating_ips.create_pool, "public", "192.0.2.0/30")
    pool = db.read(floating_ips.pools)[0].id
    row = sa.update(models.Router).where(models.Router.id == mine.router.id).values(pool_id=pool, enable_snat=False)
    db.write(lambda uow: uow.session.execute(row))
    last = trace(db, "203.0.113.9", "10.64.2.11").trace.hops[-1]
    assert (last.kind, last.host, last.id) == ("rule", "h2", port_of(db, mine.there))


def test_port_that_is_down_is_named(db: Database, tenants: list[Tenant]) -> None:
    mine, _ = tenants
    port_id = port_of(db, mine.there)
    row = sa.update(models.Port).where(models.Port.id == port_id).values(admin_state_up=False)
    db.write(lambda uow: uow.session.execute(row))
    last = trace(db, mine.here, mine.there).trace.hops[-1]
    assert (last.kind, last.id, "admin_state_up" in last.text) == ("port", port_id, True)


def test_metadata_are_reached_and_wrong_ends_are_refused(db: Database, tenants: list[Tenant]) -> None:
    here = tenants[0].here
    assert trace(db, here, "169.254.169.254", "tcp", 80).trace.arrived_at == METADATA
    for source, target, reason in (
        ("nobody", here, "no server with a port"),
        (here, "224.0.0.5", "not the address of one machine"),
        (here, "2001:db8::7", "has no IPv6 address"),
        ("203.0.113.9", "2001:db8::7", "has no IPv6 address"),
    ):
        with pytest.raises((exceptions.InvalidInput, exceptions.NotFound), match=reason):
            trace(db, source, target)
    with pytest.raises(exceptions.InvalidInput, match="has no IPv6 address"):
        trace(db, here, tenants[0].there, version=6)


# --- as tenants see it


def way(db: Database, tenant: Tenant, source: str, destination: str, *packet: Any) -> PacketWay:
    protocol, port = packet or ("icmp", None)
    return db.read(packet_trace.of_port, tenant.context, port_of(db, source), destination, protocol, port, 4)


def test_tenant_sees_own_rules_and_routers_and_no_host(db: Database, tenants: list[Tenant]) -> None:
    mine, _ = tenants
    found = way(db, mine, mine.here, port_of(db, mine.there), "tcp", 80)
    assert (found.arrives, found.arrived_at) == (True, port_of(db, mine.there))
    kinds = [part.kind for part in found.parts]
    assert kinds == ["port", "anti-spoofing", "rule", "router", "tunnel", "rule", "port"]
    rules = [part for part in found.parts if part.kind == "rule"]
    assert {part.group_id for part in rules} == {default_id("p1")} and all(part.id for part in rules)
    assert found.parts[3].id == mine.router.id
    assert found.parts[4].text == "It passes to another host."
    text = repr(found)
    assert not any(secret in text for secret in ("h1", "h2", "10.9.9."))


def test_tenant_does_not_see_the_ports_and_rules_of_another_project(
    db: Database, conf: cfg.ConfigOpts, tenants: list[Tenant]
) -> None:
    mine, other = tenants
    with pytest.raises(exceptions.NoSuchPort):
        way(db, mine, other.here, "10.64.2.11")
    with pytest.raises(exceptions.NoSuchPort):
        way(db, mine, mine.here, port_of(db, other.there))
    db.write(floating_ips.create_pool, "public", "192.0.2.0/30")
    pool = db.read(floating_ips.pools)[0].id
    for tenant in tenants:
        db.write(routers.update, tenant.context, tenant.router.id, {"pool_id": pool})
    taken = db.write(floating_ips.allocate, conf, other.context, None)
    db.write(floating_ips.associate, other.context, other.there, taken.address, None)
    found = way(db, mine, mine.here, taken.address)
    assert (found.arrives, found.arrived_at) == (None, None)
    assert found.parts[-1].text == "It goes to a port of another project, whose rules decide."
    assert (found.parts[-1].id, found.parts[-1].passes) == (None, None)
    text = repr(found)
    secrets = (port_of(db, other.there), other.there, other.router.id, "10.64.2.11", default_id("p2"), "h2", "h1")
    assert not any(secret in text for secret in secrets), text
    assert way(db, other, other.here, taken.address).arrives is not None


def test_way_to_a_port_with_an_equal_address_does_not_arrive(db: Database, tenants: list[Tenant]) -> None:
    mine, other = tenants
    admin = make.context("p1", admin=True)
    found = db.read(packet_trace.of_port, admin, port_of(db, mine.here), port_of(db, other.there), "tcp", 80, 4)
    assert (found.arrives, found.arrived_at) == (False, port_of(db, mine.there))


def test_port_without_a_host_has_no_way(db: Database, tenants: list[Tenant]) -> None:
    mine, _ = tenants
    row = sa.update(models.Instance).where(models.Instance.uuid == mine.there).values(host=None)
    db.write(lambda uow: uow.session.execute(row))
    with pytest.raises(exceptions.Conflict, match="is on no host"):
        way(db, mine, mine.here, port_of(db, mine.there))
    with pytest.raises(exceptions.Conflict, match="is on no host"):
        way(db, mine, mine.there, "10.64.1.11")
