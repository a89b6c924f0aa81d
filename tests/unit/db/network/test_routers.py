"""Routers: what hosts carry out, and the ports that only routers may have."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.db.hosts import hosts
from nova_lite.db.network import builtin_networks, floating_ips, networks, ports, routers, security_groups, spanning
from nova_lite.db.network.security_groups import FilterQuery
from nova_lite.hardware import traits
from nova_lite.network import factory
from nova_lite.network.local import LocalNetworks
from nova_lite.objects import (
    HostRouter,
    Network,
    NetworkRecord,
    NetworkRequest,
    Port,
    PortFilters,
    Router,
    StaticRoute,
    Subnet6,
    ipv6,
)
from tests.support import make, published
from tests.support.spanning import guest, host

ME = make.context("p1")


@pytest.fixture(autouse=True)
def ranges(conf: cfg.ConfigOpts) -> None:
    conf.set_override("project_ranges", ["10.64.0.0/16"], "network")


def network(db: Database, conf: cfg.ConfigOpts, number: int, spans: bool = True) -> Network:
    """Create a project's network with a subnet."""
    conf.set_override("project_vnis", ["100-199"] if spans else [], "network")
    made = NetworkRecord(id=make.network().id, name=f"n{number}", cidr="", project_id="p1")
    db.write(networks.create, conf, ME, made)
    made = NetworkRecord(id=made.id, name="", cidr=f"10.64.{number}.0/24")
    return db.write(networks.create_subnet, conf, ME, made)


def router(db: Database, conf: cfg.ConfigOpts, *connected: Network) -> Router:
    made = db.write(routers.create, conf, ME, Router(id=make.network().id, project_id="p1"))
    for item in connected:
        db.write(routers.add_interface, conf, ME, made.id, item.subnet_id, None)
    return made


def filters(db: Database, name: str) -> PortFilters:
    return db.read(security_groups.filters_together, [FilterQuery(name, [])])[0]


def test_host_gets_members_on_the_networks_that_its_guests_reach(db: Database, conf: cfg.ConfigOpts) -> None:
    nodes = [host(db, f"h{number}", f"10.9.9.{number}") for number in (1, 2)]
    one, two, apart = (network(db, conf, number) for number in (1, 2, 3))
    groups = {"project_id": "p1", "security_groups": ["default"]}
    here = guest(db, one, 11, nodes[0], host="h1", **groups)
    for number, item in ((12, two), (13, apart)):
        guest(db, item, number, nodes[1], host="h2", **groups)

    def members() -> dict[str, list[str]]:
        (found,) = db.read(security_groups.filters, "h1", [here]).groups.values()
        return {key: item.members for key, item in (found.members_by_network or {}).items()}

    assert members() == {one.id: ["10.64.1.11"]}
    router(db, conf, one, two)
    assert members() == {one.id: ["10.64.1.11"], two.id: ["10.64.2.12"]}


def connected(db: Database, name: str) -> list[set[str]]:
    """Return the networks of each router of a host."""
    return [{item.id for item in shown.networks} for shown in filters(db, name).routers or ()]


def test_host_has_the_routers_of_its_guests(db: Database, conf: cfg.ConfigOpts) -> None:
    node = host(db, "h1", "10.9.9.1")
    host(db, "h2", "10.9.9.2")
    one, two, alone = (network(db, conf, number) for number in range(3))
    made = router(db, conf, one, two)
    guest(db, alone, 5, node, host="h1", project_id="p1")
    assert filters(db, "h1").routers == []
    guest(db, one, 6, node, host="h1", project_id="p1")
    (shown,) = filters(db, "h1").routers or ()
    assert (shown.id, shown.external, shown.snat) == (made.id, False, True)
    assert connected(db, "h1") == [{one.id, two.id}]
    assert shown.neighbours == {one.id: {"10.64.0.6": "fa:16:3e:00:00:06"}}, "the interfaces are no neighbours"
    assert filters(db, "h2").routers == []


def test_host_has_no_router_that_is_down(db: Database, conf: cfg.ConfigOpts) -> None:
    node = host(db, "h1", "10.9.9.1")
    one = network(db, conf, 0)
    made = router(db, conf, one)
    guest(db, one, 6, node, host="h1", project_id="p1")
    assert connected(db, "h1") == [{one.id}]
    db.write(routers.update, ME, made.id, {"admin_state_up": False})
    assert filters(db, "h1").routers == []
    db.write(routers.update, ME, made.id, {"admin_state_up": True})
    assert connected(db, "h1") == [{one.id}]


def test_host_of_the_oldest_guest_has_the_address_of_a_router(db: Database, conf: cfg.ConfigOpts) -> None:
    """The first host keeps it when guests come. The next one has it when the first one has no guest."""
    nodes = [host(db, f"h{number}", f"10.9.9.{number}") for number in (1, 2)]
    one, two = network(db, conf, 1), network(db, conf, 2)
    db.write(floating_ips.create_pool, "public", "192.0.2.0/29")
    connecting = router(db, conf, one, two)

    def give(count: int) -> None:
        (pool,) = db.read(floating_ips.pools)
        changes = {"pool_id": pool.id, "addresses": [{}] * count}
        db.write(routers.update, ME, connecting.id, changes)

    def held() -> list[str]:
        return [shown.address for name in ("h1", "h2") for shown in filters(db, name).routers or ()]

    give(1)
    first = guest(db, two, 11, nodes[1], host="h2", project_id="p1")
    assert held() == ["192.0.2.1"]
    guest(db, one, 12, nodes[0], host="h1", project_id="p1")
    assert held() == ["", "192.0.2.1"]
    give(3)
    assert held() == ["192.0.2.2", "192.0.2.1"]
    give(1)
    db.write(lambda uow: uow.change(sa.update(Instance).where(Instance.uuid == first).values(host=None)))
    assert held()[0] == "192.0.2.1"
    give(0)
    assert set(held()) == {""}


def test_host_has_networks_that_do_not_span_hosts_only_for_its_guests(db: Database, conf: cfg.ConfigOpts) -> None:
    first, second = host(db, "h1", "10.9.9.1"), host(db, "h2", "10.9.9.2")
    wide, wider = network(db, conf, 0), network(db, conf, 1)
    local, other = network(db, conf, 2, spans=False), network(db, conf, 3, spans=False)
    router(db, conf, wide, wider, local, other)
    guest(db, local, 5, first, host="h1", project_id="p1")
    assert connected(db, "h1") == [{local.id}]
    guest(db, wide, 6, first, host="h1", project_id="p1")
    guest(db, other, 7, second, host="h2", project_id="p1")
    assert connected(db, "h1") == [{wide.id, wider.id, local.id}]
    assert connected(db, "h2") == [{other.id}]


def test_hosts_of_a_router_are_peers_on_all_of_its_networks(db: Database, conf: cfg.ConfigOpts) -> None:
    nodes = [host(db, f"h{number}", f"10.9.9.{number}") for number in (1, 2, 3)]
    one, two, alone = (network(db, conf, number) for number in range(3))
    guest(db, one, 5, nodes[0], host="h1", project_id="p1")
    guest(db, two, 6, nodes[1], host="h2", project_id="p1")
    guest(db, alone, 7, nodes[2], host="h3", project_id="p1")
    assert filters(db, "h1").peers == {one.id: []}
    made = router(db, conf, one, two)
    assert filters(db, "h1").peers == {one.id: ["10.9.9.2"], two.id: ["10.9.9.2"]}
    assert filters(db, "h2").peers == {one.id: ["10.9.9.1"], two.id: ["10.9.9.1"]}
    assert filters(db, "h3").peers == {alone.id: []}
    both = db.read(security_groups.filters_together, [FilterQuery("h1", []), FilterQuery("h3", [])])
    assert [set(item.peers or ()) for item in both] == [{one.id, two.id}, {alone.id}]
    db.write(routers.remove_interface, ME, made.id, two.subnet_id, None)
    assert filters(db, "h1").peers == {one.id: []}


def test_change_of_a_router_reaches_the_hosts_of_its_project(db: Database, conf: cfg.ConfigOpts) -> None:
    one = network(db, conf, 0)
    made = router(db, conf)

    def refiltered(function: object, *arguments: object) -> set[str]:
        def run(uow: UnitOfWork) -> set[str]:
            function(uow, *arguments)  # type: ignore[operator]
            return published.projects(uow)

        return db.write(run)

    assert refiltered(routers.add_interface, conf, ME, made.id, one.subnet_id, None) == {"p1"}
    assert refiltered(routers.update, ME, made.id, {"enable_snat": False}) == {"p1"}
    assert refiltered(routers.remove_interface, ME, made.id, one.subnet_id, None) == {"p1"}


def test_server_cannot_have_the_port_of_a_router(db: Database, conf: cfg.ConfigOpts) -> None:
    one = network(db, conf, 0)
    of_gateway = Port(id=make.network().id, network_id=one.id, address="10.64.0.1")
    db.write(ports.create, conf, ME, of_gateway)
    made = router(db, conf)

    def refused() -> None:
        def use(uow: object) -> None:
            store = builtin_networks.Store(uow)  # type: ignore[arg-type]
            with pytest.raises(exceptions.PortInUse):
                LocalNetworks(conf).resolve(store, ME, [NetworkRequest(port_id=of_gateway.id)])
            uuid = make.instance(uow)  # type: ignore[arg-type]
            assert not store.bind_port(of_gateway.id, uuid, 0, None)

        db.write(use)

    refused()
    db.write(routers.add_interface, conf, ME, made.id, None, of_gateway.id)
    refused()


def test_networks_of_projects_alone_have_no_way_out_without_a_router(db: Database, conf: cfg.ConfigOpts) -> None:
    assert network(db, conf, 0).needs_router is True
    shared = NetworkRecord(id=make.network().id, name="all", cidr="", project_id=None)
    assert db.write(networks.create, conf, make.ADMIN, shared).needs_router is False


def test_subnet_with_the_address_of_a_host_is_refused(db: Database, conf: cfg.ConfigOpts) -> None:
    host(db, "h1", "10.64.7.9")
    with pytest.raises(exceptions.InvalidInput, match="this cloud's hosts"):
        network(db, conf, 7)


def test_peers_of_hosts_without_routers_are_unchanged() -> None:
    assert spanning._connected({"h1": [HostRouter(id="r")]}) == {}


def test_hosts_deliver_to_a_network_of_the_router_without_a_static_route(db: Database, conf: cfg.ConfigOpts) -> None:
    node = host(db, "h1", "10.9.9.1")
    one = network(db, conf, 1, spans=False)
    made = router(db, conf, one)
    db.write(routers.update, ME, made.id, {"routes": [{"destination": "10.64.1.0/24", "nexthop": "10.64.1.9"}]})
    guest(db, one, 5, node, host="h1", project_id="p1")
    (shown,) = filters(db, "h1").routers or ()
    assert shown.routes == []


def test_host_has_static_routes_through_networks_that_it_has(db: Database, conf: cfg.ConfigOpts) -> None:
    node = host(db, "h1", "10.9.9.1")
    one, two = network(db, conf, 1, spans=False), network(db, conf, 2, spans=False)
    made = router(db, conf, one, two)
    routes = [{"destination": f"10.9.{number}.0/24", "nexthop": f"10.64.{number}.9"} for number in (1, 2)]
    db.write(routers.update, ME, made.id, {"routes": routes})
    guest(db, one, 5, node, host="h1", project_id="p1")
    (shown,) = filters(db, "h1").routers or ()
    assert shown.routes == [StaticRoute(destination="10.9.1.0/24", nexthop="10.64.1.9")]
    guest(db, two, 6, node, host="h1", project_id="p1")
    (shown,) = filters(db, "h1").routers or ()
    assert [route.nexthop for route in shown.routes] == ["10.64.1.9", "10.64.2.9"]
    assert shown.routes6 == []


def test_host_has_static_routes_of_ipv6_through_subnets_that_the_router_connects(
    db: Database, conf: cfg.ConfigOpts
) -> None:
    conf.set_override("project_ranges", ["10.64.0.0/16", "fd40::/16"], "network")
    node = host(db, "h1", "10.9.9.1")
    one, two = network(db, conf, 1, spans=False), network(db, conf, 2, spans=False)
    made = router(db, conf, one, two)
    ids = []
    for number, item in ((1, one), (2, two)):
        record = NetworkRecord(id=item.id, name="", cidr="", cidr6=f"fd40:{number}::/64", subnet6=Subnet6())
        ids.append(ipv6.subnet_id_of(db.write(networks.create_subnet, conf, ME, record), version=6))
    db.write(routers.add_interface, conf, ME, made.id, ids[0], None)
    routes = [
        {"destination": destination, "nexthop": "fd40:1::9"}
        for destination in ("fd40:1::/64", "fd40:2::/64", "fd49::/64")
    ]
    db.write(routers.update, ME, made.id, {"routes": routes})
    guest(db, one, 5, node, host="h1", project_id="p1")
    (shown,) = filters(db, "h1").routers or ()
    assert [route.destination for route in shown.routes6] == ["fd40:2::/64", "fd49::/64"] and shown.routes == []
    with pytest.raises(exceptions.InvalidRoutes, match="not connected with router"):
        db.write(routers.update, ME, made.id, {"routes": [{"destination": "fd49::/64", "nexthop": "fd40:2::9"}]})
    with pytest.raises(exceptions.RouterInterfaceInUseByRoute, match=ids[0]):
        db.write(routers.remove_interface, ME, made.id, ids[0], None)
    db.write(routers.update, ME, made.id, {"routes": []})
    db.write(routers.remove_interface, ME, made.id, ids[0], None)


def test_networks_that_leave_a_host_untranslated_do_not_overlap(db: Database, conf: cfg.ConfigOpts) -> None:
    inventory = make.inventory(capabilities={traits.CAPABILITY: [traits.POINTS, traits.REALMS]})
    db.write(hosts.record, conf, make.report(inventories=[inventory]))
    lan = db.write(builtin_networks.create, factory.new_network("lan", "10.64.9.0/24", bridge="br0"))
    pool = db.write(floating_ips.create_pool, "public", "192.0.2.0/30")
    outside = {"pool_id": pool.id, "enable_snat": False}
    made = [network(db, conf, number) for number in (1, 1, 9)]
    owned = [router(db, conf, item) for item in made]
    db.write(routers.update, make.ADMIN, owned[0].id, outside)
    for item, other in ((owned[1], made[0]), (owned[2], lan)):
        with pytest.raises(exceptions.Conflict, match=f"overlap with .* of network {other.id}"):
            db.write(routers.update, make.ADMIN, item.id, outside)
        db.write(routers.update, make.ADMIN, item.id, {"pool_id": pool.id})
