"""Port forwardings as hosts get them: which host holds the address, and how it reaches guests of other hosts."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.models import Instance, Port
from nova_lite.db.network import floating_ips, networks, port_forwardings, ports, qos, routers, security_groups
from nova_lite.objects import (
    FloatingIp,
    HostForwarding,
    Network,
    NetworkRecord,
    PortForwarding,
    QosLimits,
    QosPolicy,
    Router,
)
from tests.support import make, published
from tests.support.spanning import guest, host

ME = make.context("p1")
TUNNELS = {1: "10.9.9.1", 2: "10.9.9.2"}


class Scene:
    """Two hosts, a network of a router with a gateway, and a floating address."""

    def __init__(self, db: Database, conf: cfg.ConfigOpts, spans: bool = True) -> None:
        self.db, self.conf = db, conf
        conf.set_override("project_vnis", ["100-199"] if spans else [], "network")
        pool = db.write(floating_ips.create_pool, "public", "192.0.2.0/28")
        made = NetworkRecord(id=make.network().id, name="n", cidr="", project_id="p1")
        db.write(networks.create, conf, ME, made)
        made = NetworkRecord(id=made.id, name="", cidr="10.64.1.0/24")
        self.network: Network = db.write(networks.create_subnet, conf, ME, made)
        wanted = Router(id=str(uuid.uuid4()), project_id="p1", pool_id=pool.id)
        self.router = db.write(routers.create, conf, ME, wanted).id
        db.write(routers.add_interface, conf, ME, self.router, self.network.subnet_id, None)
        request = FloatingIp(id="", address="", pool="", project_id="p1", pool_id=pool.id)
        self.floating = db.write(floating_ips.allocate, conf, ME, None, request)
        self.nodes = {number: host(db, f"h{number}", address) for number, address in TUNNELS.items()}

    def guest(self, number: int, at: int, *moving_to: int) -> tuple[str, str]:
        """Create a guest, and return its uuid and the id of its port."""
        nodes = [self.nodes[item] for item in (at, *moving_to)]
        server = guest(self.db, self.network, number, *nodes, host=f"h{at}", project_id="p1")
        query = sa.select(Port.id).where(Port.instance_uuid == server)
        return server, self.db.read(lambda uow: uow.session.scalars(query).one())

    def forward(self, port_id: str, external: int, internal: int = 22, last: int = 0) -> PortForwarding:
        length = last - external if last else 0
        wanted = PortForwarding(
            id=str(uuid.uuid4()),
            project_id="p1",
            floating_ip_id=self.floating.id,
            port_id=port_id,
            protocol="tcp",
            external_first=external,
            external_last=external + length,
            internal_first=internal,
            internal_last=internal + length,
        )
        return self.db.write(port_forwardings.create, self.conf, ME, wanted)

    def seen(self, number: int) -> list[tuple[tuple[int, int], bool, str | None]]:
        """Return what a host gets: outer ports, whether it holds the address, and its peer."""
        found = self.db.read(security_groups.filters, f"h{number}", []).forwardings
        return [(item.external, item.is_held, item.peer) for item in found]


@pytest.fixture
def scene(db: Database, conf: cfg.ConfigOpts) -> Scene:
    return Scene(db, conf)


def test_host_gets_all_about_a_forwarding(scene: Scene) -> None:
    _, port = scene.guest(11, 1)
    assert scene.seen(1) == []
    scene.forward(port, 8000, 80, 8010)
    (found,) = scene.db.read(security_groups.filters, "h1", []).forwardings
    assert found == HostForwarding(
        floating=scene.floating.address,
        router_id=scene.router,
        network_id=scene.network.id,
        port_id=port,
        address="10.64.1.11",
        protocol="tcp",
        external=(8000, 8010),
        internal=(80, 90),
    )


def test_host_of_the_oldest_forwarding_holds_the_address(scene: Scene) -> None:
    (_, one), (_, two) = scene.guest(11, 1), scene.guest(12, 2)
    first = scene.forward(two, 2222)
    scene.forward(one, 2223)
    ssh, other = (2222, 2222), (2223, 2223)
    assert scene.seen(2) == [(ssh, True, None), (other, True, TUNNELS[1])]
    assert scene.seen(1) == [(other, False, TUNNELS[2])]
    scene.db.write(port_forwardings.delete, ME, first.id)
    assert (scene.seen(1), scene.seen(2)) == ([(other, True, None)], [])


def move(scene: Scene, server: str, target: str | None) -> None:
    change = sa.update(Instance).where(Instance.uuid == server).values(host=target)
    scene.db.write(lambda uow: uow.change(change))


def test_address_follows_its_first_guest(scene: Scene) -> None:
    """Replies of a guest that arrives on another host reach the holder from the start."""
    (server, one), (_, two) = scene.guest(11, 1, 2), scene.guest(12, 2)
    scene.forward(one, 2222)
    scene.forward(two, 2223)
    ssh, other = (2222, 2222), (2223, 2223)
    assert scene.seen(2) == [(ssh, False, TUNNELS[1]), (other, False, TUNNELS[1])]
    move(scene, server, "h2")
    assert scene.seen(2) == [(ssh, True, None), (other, True, None)]
    assert scene.seen(1) == [(ssh, False, TUNNELS[2])]
    move(scene, server, None)
    assert scene.seen(2) == [(other, True, None)], "a guest that is on no host gets nothing"


def test_network_without_tunnel_has_forwardings_on_one_host(db: Database, conf: cfg.ConfigOpts) -> None:
    scene = Scene(db, conf, spans=False)
    (_, one), (_, two) = scene.guest(11, 1), scene.guest(12, 2)
    scene.forward(one, 2222)
    scene.forward(two, 2223)
    assert scene.seen(1) == [((2222, 2222), True, None)]
    assert scene.seen(2) == []


def test_peer_without_tunnel_address_is_left_out(scene: Scene) -> None:
    (_, one), (_, two) = scene.guest(11, 1), scene.guest(12, 2)
    scene.forward(one, 2222)
    scene.forward(two, 2223)
    host(scene.db, "h2", None)
    assert scene.seen(1) == [((2222, 2222), True, None)]


def test_guest_without_port_security_gets_nothing(scene: Scene) -> None:
    """Hosts have floating addresses only for ports that they filter."""
    _, port = scene.guest(11, 1)
    scene.forward(port, 2222)
    scene.db.write(ports.update, ME, port, {"security_groups": []})
    scene.db.write(ports.update, ME, port, {"port_security_enabled": False})
    assert scene.seen(1) == []


def test_holder_limits_the_address_by_its_policy(scene: Scene) -> None:
    (_, one), (_, two) = scene.guest(11, 1), scene.guest(12, 2)
    rule = {"id": str(uuid.uuid4()), "type": "dscp_marking", "dscp_mark": 8}
    policy = QosPolicy(id=str(uuid.uuid4()), project_id="p1", rules=[rule])
    scene.db.write(qos.create, scene.conf, make.ADMIN, policy)
    scene.forward(one, 2222)
    scene.forward(two, 2223)
    scene.db.write(floating_ips.update, ME, scene.floating.id, {"qos_policy_id": policy.id})
    limits = {number: scene.db.read(security_groups.filters, f"h{number}", []).floating_qos for number in (1, 2)}
    assert limits == {1: {scene.floating.address: QosLimits(dscp=8)}, 2: {}}


def test_each_change_notifies_the_hosts_of_the_project(scene: Scene) -> None:
    def notified(function: Any, *values: Any) -> set[str]:
        def run(uow: UnitOfWork) -> set[str]:
            function(uow, *values)
            return published.projects(uow)

        return scene.db.write(run)

    _, port = scene.guest(11, 1)
    made = scene.forward(port, 2222)
    more = PortForwarding(**{name: getattr(made, name) for name in made.__struct_fields__})
    more.id, more.protocol = str(uuid.uuid4()), "udp"
    assert notified(port_forwardings.create, scene.conf, ME, more) == {"p1"}
    assert notified(port_forwardings.update, ME, made.id, {"external_first": 1, "external_last": 1}) == {"p1"}
    assert notified(port_forwardings.delete, ME, made.id) == {"p1"}
