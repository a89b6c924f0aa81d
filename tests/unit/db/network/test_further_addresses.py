"""Further addresses of ports, as rows: on each kind of database."""

from __future__ import annotations

import io
import uuid
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.models import Port as Row
from nova_lite.db.network import (
    builtin_networks,
    floating_ips,
    guest_names,
    networks,
    packet_trace,
    ports,
    router_hosts,
    security_groups,
)
from nova_lite.db.servers import instances
from nova_lite.db.upkeep import dump, invariants
from nova_lite.network.local import LocalNetworks
from nova_lite.objects import InstanceFilters, Network, NetworkRecord, NetworkRequest, Port
from nova_lite.objects.network import ANY_ADDRESS
from tests.support import make
from tests.support.races import overlap

ME = make.context()


def port_on(network_id: str, **values: Any) -> Port:
    return Port(id=str(uuid.uuid4()), network_id=network_id, **values)


@pytest.fixture
def network(db: Database) -> Network:
    return db.write(builtin_networks.create, make.network(cidr="10.0.0.0/24", end="10.0.0.254"))


def serve(db: Database, conf: cfg.ConfigOpts, port: Port) -> str:
    """Give a port to a server on host h1."""
    server = db.write(make.instance, host="h1")
    wanted = [NetworkRequest(network_id=port.network_id, port_id=port.id)]
    db.write(lambda uow: LocalNetworks(conf).reserve(builtin_networks.Store(uow), server, wanted))
    return server


@pytest.mark.parametrize("is_first", [True, False])
def test_address_that_a_concurrent_request_takes_first_is_refused(
    db: Database, conf: cfg.ConfigOpts, network: Network, is_first: bool
) -> None:
    """Whatever its place: as the first address of the other port, or as a further one."""
    other = db.write(ports.create, conf, ME, port_on(network.id))
    wanted = {"address": "10.0.0.9"} if is_first else {"address": "10.0.0.8", "further": ["10.0.0.9"]}

    def add(uow: UnitOfWork) -> str:
        try:
            ports.update(uow, ME, other.id, {"further": ["10.0.0.9"]})
        except exceptions.FixedIpInUse:
            return "in use"
        return "taken"

    assert overlap(db, lambda uow: ports.create(uow, conf, ME, port_on(network.id, **wanted)), add) == "in use"
    rows = db.read(lambda uow: uow.session.scalars(sa.select(Row.id).where(Row.address == "10.0.0.9")).all())
    assert len(rows) == 1


def test_any_address_is_the_last_free_one_or_none(db: Database, conf: cfg.ConfigOpts) -> None:
    small = db.write(
        builtin_networks.create, make.network(cidr="10.9.0.0/29", gateway="10.9.0.1", start="10.9.0.2", end="10.9.0.6")
    )
    port = db.write(ports.create, conf, ME, port_on(small.id, further=[ANY_ADDRESS[4]] * 4))
    assert len({port.address, *(port.further or ())}) == 5
    with pytest.raises(exceptions.NoMoreFixedIps):
        db.write(ports.create, conf, ME, port_on(small.id))
    with pytest.raises(exceptions.InvalidInput, match="more than 5"):
        db.write(ports.update, ME, port.id, {"further": [*(port.further or ()), "10.9.0.7"]})
    db.write(ports.delete, ME, port.id)
    assert db.read(lambda uow: uow.session.scalar(sa.select(sa.func.count(Row.id)))) == 0


def test_further_addresses_are_those_of_the_server(db: Database, conf: cfg.ConfigOpts, network: Network) -> None:
    port = db.write(ports.create, conf, ME, port_on(network.id, address="10.0.0.9", further=["10.0.0.10"]))
    server = serve(db, conf, port)
    db.write(ports.update, ME, port.id, {"further": ["10.0.0.11", "10.0.0.10"]})
    (vif,) = db.read(lambda uow: builtin_networks.Store(uow).vifs(server))
    assert [(item.address, item.is_further) for item in vif.more] == [("10.0.0.10", True), ("10.0.0.11", True)]
    found = db.read(instances.list_, ME, InstanceFilters(ip="10.0.0.11$"))
    assert [instance.uuid for instance in found] == [server]
    filters = db.read(security_groups.filters, "h1", [server])
    assert filters.further is not None and set(filters.further[port.id]) == {"10.0.0.10", "10.0.0.11"}
    assert filters.current(vif) == vif
    (group_id,) = filters.ports[port.id]
    (members,) = (filters.groups[group_id].members_by_network or {}).values()
    assert members.members == ["10.0.0.10", "10.0.0.11", "10.0.0.9"]
    neighbours = db.read(lambda uow: router_hosts._neighbours(uow, [network.id]))
    assert neighbours == {network.id: dict.fromkeys(members.members, port.mac_address)}
    with pytest.raises(exceptions.PortInUse):
        db.write(ports.update, ME, port.id, {"address": "10.0.0.10", "further": []})
    db.write(lambda uow: LocalNetworks(conf).deallocate(builtin_networks.Store(uow), server))
    assert db.read(ports.get, ME, port.id).further == ["10.0.0.10", "10.0.0.11"], "a released port keeps its addresses"


def test_name_of_a_guest_leads_to_its_further_addresses(db: Database, conf: cfg.ConfigOpts) -> None:
    own = NetworkRecord(id=str(uuid.uuid4()), name="n", cidr="", project_id="p1")
    db.write(networks.create, conf, ME, own)
    db.write(networks.create_subnet, conf, ME, NetworkRecord(id=own.id, name="", cidr="10.64.0.0/24", project_id="p1"))
    port = db.write(ports.create, conf, ME, port_on(own.id, address="10.64.0.9", further=["10.64.0.8"]))
    serve(db, conf, port)
    (names,) = db.read(guest_names.by_project, ["p1"])["p1"].values()
    assert [text.partition(" ")[0] for text in names[own.id]] == ["10.64.0.8", "10.64.0.9"]


def test_further_addresses_are_no_inconsistency_and_in_dumps(
    db: Database, conf: cfg.ConfigOpts, network: Network
) -> None:
    """A dump has a port before its further addresses, in whatever order their ids are."""
    for number in range(8):
        own = port_on(network.id, address=f"10.0.0.{10 + number}", further=[f"10.0.0.{30 + number}"])
        db.write(ports.create, conf, ME, own)
    assert db.read(lambda uow: [*invariants.ownerless_ports(uow), *invariants.wrong_ipv6(uow)]) == []
    with dump.snapshot(conf) as connection:
        text = list(dump.lines(connection, Row.__table__))  # type: ignore[arg-type]
    db.write(lambda uow: uow.change(sa.delete(Row)))
    with dump.writing(conf) as connection:
        assert dump.load(connection, Row.__table__, io.StringIO("\n".join(text))) == 16  # type: ignore[arg-type]
    assert len(db.read(ports.list_, make.ADMIN, {})) == 8


def test_host_learns_to_which_further_address_a_floating_one_leads(
    db: Database, conf: cfg.ConfigOpts, network: Network
) -> None:
    port = db.write(ports.create, conf, ME, port_on(network.id, address="10.0.0.9", further=["10.0.0.10"]))
    server = serve(db, conf, port)
    db.write(floating_ips.create_pool, "public", "192.0.2.0/29")
    for fixed in (None, "10.0.0.10"):
        made = db.write(floating_ips.allocate, conf, ME, "public")
        db.write(floating_ips.lead, ME, made.id, port.id, fixed)
    filters = db.read(security_groups.filters, "h1", [server])
    assert set(filters.floating) == {port.id, f"{port.id}/10.0.0.10"}
    vifs = db.read(lambda uow: builtin_networks.Store(uow).vifs(server))
    led = {vif.address: (address, vif.id) for address, vif in filters.leads({vif.id: vif for vif in vifs})}
    assert led["10.0.0.9"] == (filters.floating[port.id], port.id)
    assert led["10.0.0.10"] == (filters.floating[f"{port.id}/10.0.0.10"], port.id)
    trace = db.read(packet_trace.answer, packet_trace.Question("198.51.100.9", led["10.0.0.10"][0])).trace
    assert any("becomes 10.0.0.10" in hop.text for hop in trace.hops)
    db.write(floating_ips.update, ME, led["10.0.0.10"][0], {"port_id": None})
    assert set(db.read(security_groups.filters, "h1", [server]).floating) == {port.id}
