"""Port forwardings as hosts carry them out.

One host holds a floating address with forwardings: that of the guest of the oldest one. It passes packets to guests of
other hosts through the tunnel of their network.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy import orm

from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import ComputeNode, FloatingIp, Instance, Network, Port, RouterInterface
from nova_lite.db.core.models import PortForwarding as Row
from nova_lite.objects import HostForwarding


class Forwarded(NamedTuple):
    """Forwardings of a host, and the QoS policies of the floating addresses that it holds, by address."""

    forwardings: list[HostForwarding]
    policies: dict[str, str]


class _Guest(NamedTuple):
    """A forwarding whose guest is on a ``host``."""

    floating: str
    policy: str | None
    router_id: str
    network_id: str
    vni: int | None
    port_id: str
    address: str
    protocol: str
    external_first: int
    external_last: int
    internal_first: int
    internal_last: int
    host: str


_HOST = sa.func.coalesce(Port.bound_host, Instance.host)
_OTHER = orm.aliased(Row)
_OF_PORTS = sa.select(_OTHER.floating_ip_id).where(_OTHER.port_id.in_(sa.bindparam("ports", expanding=True)))
#: Forwardings of all addresses that have one to these ports, oldest first.
_GUESTS = (
    sa.select(
        FloatingIp.address,
        FloatingIp.qos_policy_id,
        RouterInterface.router_id,
        Port.network_id,
        Network.vni,
        Port.id,
        Port.address,
        Row.protocol,
        Row.external_first,
        Row.external_last,
        Row.internal_first,
        Row.internal_last,
        _HOST,
    )
    .join(Row, Row.floating_ip_id == FloatingIp.id)
    .join(Port, Port.id == Row.port_id)
    .join(Network, Network.id == Port.network_id)
    .join(RouterInterface, RouterInterface.network_id == Port.network_id)
    .outerjoin(Instance, sa.and_(Instance.uuid == Port.instance_uuid, Instance.deleted == sa.false()))
    .where(Row.floating_ip_id.in_(_OF_PORTS), Port.port_security_enabled == sa.true(), _HOST.is_not(None))
    .order_by(Row.created_at, Row.id)
)
_TUNNELS = sa.select(ComputeNode.host, ComputeNode.inventory["tunnel_ip"].as_string()).where(
    ComputeNode.host.in_(sa.bindparam("hosts", expanding=True))
)


def for_hosts(uow: UnitOfWork, here: Mapping[str, Collection[str]]) -> dict[str, Forwarded]:
    """Return the forwardings of each host. ``here``: ports on each host, or moving there, that have some.

    The holder of an address reaches guests of other hosts by the tunnel of their network. A network without a tunnel
    has its forwardings on one host only.
    """
    ports = {port_id for mine in here.values() for port_id in mine}
    found: dict[str, Forwarded] = {host: Forwarded([], {}) for host in here}
    guests = [_Guest(*columns) for columns in (uow.rows(_GUESTS, {"ports": ports}) if ports else ())]
    holders: dict[str, str] = {}
    for guest in guests:
        holders.setdefault(guest.floating, guest.host)
    hosts = {guest.host for guest in guests}
    is_apart = len(hosts | here.keys()) > 1
    tunnels = dict(uow.rows(_TUNNELS, {"hosts": hosts}).tuples().all()) if hosts and is_apart else {}
    for guest in guests:
        holder = holders[guest.floating]
        for host, mine in here.items():
            is_held = host == holder
            if not is_held and guest.port_id not in mine:
                continue
            other = guest.host if is_held else holder
            peer = None if other == host else tunnels.get(other)
            if other != host and (guest.vni is None or peer is None):
                continue
            found[host].forwardings.append(_on_host(guest, is_held, peer))
            if is_held and guest.policy is not None:
                found[host].policies[guest.floating] = guest.policy
    return found


def _on_host(guest: _Guest, is_held: bool, peer: str | None) -> HostForwarding:
    return HostForwarding(
        floating=guest.floating,
        router_id=guest.router_id,
        network_id=guest.network_id,
        port_id=guest.port_id,
        address=guest.address,
        protocol=guest.protocol,
        external=(guest.external_first, guest.external_last),
        internal=(guest.internal_first, guest.internal_last),
        is_held=is_held,
        peer=peer,
    )
