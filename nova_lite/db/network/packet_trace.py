"""Objects that hosts get, for the way of a packet (`nova_lite.network.trace`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import sqlalchemy as sa

from nova_lite.base import exceptions, ip
from nova_lite.base.context import RequestContext
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import ComputeNode, FloatingIp, Instance, Network, Port, Router
from nova_lite.db.core.models import RouterInterface as Interface4
from nova_lite.db.core.models import RouterInterface6 as Interface6
from nova_lite.db.network import floating_ips, further_addresses, ports, security_groups
from nova_lite.db.network.security_groups import FilterQuery
from nova_lite.db.servers import instances, interfaces
from nova_lite.network.trace import tenants, walk
from nova_lite.network.trace.hosts import Host
from nova_lite.network.trace.packets import Packet, Trace
from nova_lite.network.trace.probe import Sending
from nova_lite.objects import VIF, PacketWay

_HOST = sa.func.coalesce(Instance.host, Port.bound_host)
_PLACED = (
    sa.select(
        sa.func.coalesce(Port.instance_uuid, Port.id),
        _HOST,
        sa.and_(Port.admin_state_up == sa.true(), Network.admin_state_up == sa.true()),
        *interfaces.VIF_COLUMNS,
    )
    .join(Network, Network.id == Port.network_id)
    .outerjoin(Instance, Instance.uuid == Port.instance_uuid)
    .where(_HOST.is_not(None))
    .order_by(Port.position, Port.id)
)


class PlacedPort(NamedTuple):
    """Port of a server, or of a service, on a host."""

    instance_uuid: str
    host: str
    is_up: bool
    vif: VIF

    def address(self, version: int) -> str | None:
        """Return its own address of an IP version."""
        return next((text for text in self.addresses() if (":" in text) == (version == 6)), None)

    def addresses(self) -> list[str]:
        """Return all its own addresses, the first ones of each IP version first."""
        return [self.vif.address, *(item.address for item in self.vif.more)]


class Question(NamedTuple):
    """``source``, ``destination``: a server, a port or an address. ``network``: name or id of the source's network."""

    source: str
    destination: str
    protocol: str = "icmp"
    port: int | None = None
    network: str | None = None
    version: int = 4


class Answer(NamedTuple):
    """Way of the packet. ``wanted``: id of the port that the destination names. ``sending``: None from outside."""

    trace: Trace
    wanted: str | None
    sending: Sending | None = None


def answer(uow: UnitOfWork, question: Question) -> Answer:
    """Return the way of a packet. Raises `InvalidInput` or `NotFound` for a question that names nothing, or several."""
    target = _address(question.destination)
    sender = _sender(uow, question)
    near = _near(uow, sender)
    receiver = None
    if target is None:
        receiver = _receiver(uow, question.destination, near)
        target = _address(receiver.address(question.version) or "")
        if target is None:
            raise exceptions.InvalidInput(reason=f"port {receiver.vif.id} has no IPv{question.version} address.")
    source = _source(question, sender, target)
    cloud = _cloud(uow, _hosts(uow, sender, receiver, target, near))
    packet = Packet(source, target, question.protocol, question.port)
    wanted = receiver.vif.id if receiver is not None else None
    if sender is None:
        return Answer(walk.from_outside(cloud, packet), wanted)
    host = cloud.hosts[sender.host]
    for interface in host.interfaces:
        if interface.id == sender.vif.id:
            return Answer(
                walk.from_port(cloud, host, interface, packet), wanted, Sending(cloud, host, interface, packet)
            )
    raise exceptions.InvalidInput(reason=f"port {sender.vif.id} is a device, and the host has no part in its packets.")


def of_port(
    uow: UnitOfWork,
    context: RequestContext,
    port_id: str,
    destination: str,
    protocol: str,
    port: int | None,
    version: int,
) -> PacketWay:
    """Return the way of a packet of a port, as the port's project may see it.

    ``destination``: a port that the caller sees, or an address. Raises `NoSuchPort`, `InvalidInput`, or `Conflict` for
    a port that is on no host.
    """
    wanted = [port_id] if ip.is_address(destination) else [port_id, destination]
    sender, *receivers = (ports.get(uow, context, item) for item in wanted)
    for item in (sender, *receivers):
        if not _placed(uow, Port.id == item.id):
            raise exceptions.Conflict(f"Port {item.id} is on no host: it has no server, or a server without a host.")
    found = answer(uow, Question(port_id, destination, protocol, port, version=version))
    assert found.sending is not None
    cloud, trace = found.sending.cloud, found.trace
    here = [item.id for host in cloud.hosts.values() for item in host.interfaces]
    owner = sa.func.coalesce(Instance.project_id, Port.project_id) == sender.project_id
    own = sa.select(Port.id).outerjoin(Instance, Instance.uuid == Port.instance_uuid).where(Port.id.in_(here), owner)
    networks = {key for host in cloud.hosts.values() for key in host.networks}
    near = sa.select(Network.id).where(
        Network.id.in_(networks), sa.or_(Network.project_id == sender.project_id, Network.project_id.is_(None))
    )
    routers = sa.select(Router.id).where(Router.project_id == sender.project_id)
    others = {*uow.session.scalars(near), *uow.session.scalars(routers)}
    way = tenants.shown(trace, cloud, tenants.Visible({*uow.session.scalars(own)}, others))
    if way.arrives and found.wanted not in (None, way.arrived_at):
        way.arrives = False
    return way


def _address(text: str) -> ip.Address | None:
    if not ip.is_address(text):
        return None
    found = ip.parse(text)
    if found.is_multicast or found.is_unspecified or text == "255.255.255.255":
        raise exceptions.InvalidInput(reason=f"{text} is not the address of one machine.")
    return found


def _placed(uow: UnitOfWork, *conditions: sa.ColumnElement[bool]) -> list[PlacedPort]:
    found = uow.session.execute(_PLACED.where(*conditions)).all()
    return [PlacedPort(uuid, host, is_up, interfaces.to_vif(values)) for uuid, host, is_up, *values in found]


def _has(address: ip.Address) -> sa.ColumnElement[bool]:
    first = (Port.address if address.version == 4 else Port.address6) == str(address)
    return sa.or_(first, Port.id.in_(further_addresses.having([str(address)])))


def _named(uow: UnitOfWork, reference: str) -> list[PlacedPort]:
    """Return the ports that a server or a port is. Raises `NotFound`."""
    found = _placed(uow, sa.or_(Port.id == reference, Port.instance_uuid == reference))
    if not found:
        raise exceptions.NotFound(f"{reference[:64]} is no server with a port on a host, no such port, and no address.")
    return found


def _floating(uow: UnitOfWork, address: ip.Address) -> list[PlacedPort]:
    led = sa.select(FloatingIp.port_id).where(FloatingIp.address == str(address))
    primaries = sa.select(Port.primary_id).where(Port.id.in_(led), Port.primary_id.is_not(None))
    return _placed(uow, sa.or_(Port.id.in_(led), Port.id.in_(primaries)))


def _having(uow: UnitOfWork, address: ip.Address) -> list[PlacedPort]:
    """Return the ports that have an address, or to which it leads as a floating one."""
    return _floating(uow, address) or _placed(uow, _has(address))


def _sender(uow: UnitOfWork, question: Question) -> PlacedPort | None:
    """Return the port that sends, None for a machine outside. Raises `InvalidInput` if several have the address."""
    address = _address(question.source)
    found = _named(uow, question.source) if address is None else _having(uow, address)
    if question.network is not None:
        found = [item for item in found if question.network in (item.vif.network.id, item.vif.network.name)]
        if not found:
            reason = f"{question.source[:64]} has no port on a host on network {question.network[:64]}."
            raise exceptions.InvalidInput(reason=reason)
    if address is not None and len(found) > 1:
        names = ", ".join(item.vif.network.id for item in found)
        raise exceptions.InvalidInput(reason=f"{address} is on several networks; --network names one of {names}.")
    return found[0] if found else None


def _receiver(uow: UnitOfWork, reference: str, near: Collection[str]) -> PlacedPort:
    found = _named(uow, reference)
    return next((item for item in found if item.vif.network.id in near), found[0])


def _source(question: Question, sender: PlacedPort | None, target: ip.Address) -> ip.Address:
    """Return the address that the packet comes from."""
    given = _address(question.source)
    if sender is None:
        assert given is not None
        source: ip.Address | None = given
    elif given is not None and str(given) in sender.addresses():
        source = given
    else:
        source = _address(sender.address(target.version) or "")
    if source is None or source.version != target.version:
        raise exceptions.InvalidInput(reason=f"{question.source[:64]} has no IPv{target.version} address.")
    return source


def _near(uow: UnitOfWork, sender: PlacedPort | None) -> set[str]:
    """Return the networks that the sender's router connects, with its own."""
    if sender is None:
        return set()
    network_id = sender.vif.network.id
    found = {network_id}
    for kind in (Interface4, Interface6):
        routers = sa.select(kind.router_id).where(kind.network_id == network_id)
        for other in (Interface4, Interface6):
            found |= set(uow.session.scalars(sa.select(other.network_id).where(other.router_id.in_(routers))))
    return found


def _hosts(
    uow: UnitOfWork, sender: PlacedPort | None, receiver: PlacedPort | None, target: ip.Address, near: Collection[str]
) -> set[str]:
    """Return the hosts that the packet may meet: of both ends, and of machines that routes lead through."""
    found = [item for item in (sender, receiver) if item is not None]
    found += _floating(uow, target)
    if near:
        routers = sa.select(Interface4.router_id).where(Interface4.network_id.in_(near))
        every = uow.session.execute(sa.select(Router.routes, Router.routes6).where(Router.id.in_(routers))).all()
        through = {route["nexthop"] for both in every for routes in both for route in routes or ()}
        further = Port.id.in_(further_addresses.having(through))
        is_one = sa.or_(_has(target), Port.address.in_(through), Port.address6.in_(through), further)
        found += _placed(uow, Port.network_id.in_(near), is_one)
    if not found:
        shown = sa.or_(Network.needs_router.is_not(True), Port.network_id.in_(_without_snat()))
        found += _placed(uow, _has(target), shown)
    return {item.host for item in found}


def _without_snat() -> sa.CompoundSelect[str]:
    """Select the networks whose guests show their own addresses outside."""
    return sa.union(
        *(
            sa.select(kind.network_id).join(Router, Router.id == kind.router_id).where(Router.enable_snat == sa.false())
            for kind in (Interface4, Interface6)
        )
    )


def _cloud(uow: UnitOfWork, names: Iterable[str]) -> walk.Cloud:
    ordered = sorted(names)
    here = {name: instances.concerned_with(uow, name) for name in ordered}
    every = (
        security_groups.filters_together(uow, [FilterQuery(name, here[name]) for name in ordered]) if ordered else []
    )
    nodes = uow.session.execute(sa.select(ComputeNode.host, ComputeNode.inventory).where(ComputeNode.host.in_(ordered)))
    inventories: dict[str, dict[str, Any]] = {row.host: row.inventory for row in nodes}
    hosts, down = [], set()
    for name, filters in zip(ordered, every, strict=True):
        placed = _placed(uow, _HOST.in_([name]))
        vifs: dict[str, list[VIF]] = {}
        for item in placed:
            vifs.setdefault(item.instance_uuid, []).append(item.vif)
        down |= {item.vif.id for item in placed if not item.is_up}
        inventory = inventories.get(name, {})
        own = [inventory["host_ip"]] if inventory.get("host_ip") else []
        hosts.append(Host(name, filters, vifs, inventory.get("tunnel_ip"), own))
    pools = [ip.parse_network(pool.cidr) for pool in floating_ips.pools(uow) if pool.cidr]
    return walk.Cloud(hosts, uow.conf.network.metadata_service, pools, down)
