"""Port forwardings: ports of a floating address that lead to ports of interfaces, perhaps on several hosts."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core import if_match, rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.events import FiltersChanged
from nova_lite.db.core.models import FloatingIp as FloatingIpRow
from nova_lite.db.core.models import Port, Router, RouterInterface
from nova_lite.db.core.models import PortForwarding as Row
from nova_lite.db.network import builtin_networks, floating_ips
from nova_lite.objects import FloatingIp, PortForwarding

#: Number of forwardings of a floating address: a list has all of them, and each is a rule of a host.
MAX_FORWARDINGS = 200
#: Number of ports of a floating address that ranges lead to other numbers: each is an element of a host's map.
MAX_SHIFTED = 4096

_UPDATABLE = {"address", "port_id", "protocol", "description"}
_UPDATABLE |= {f"{side}_{end}" for side in ("external", "internal") for end in ("first", "last")}


def list_(uow: UnitOfWork, context: RequestContext, ids: Collection[str] | None = None) -> list[PortForwarding]:
    """Return the forwardings of the project's addresses, for an admin of all. ``ids``: of these forwardings, or of
    these floating addresses.
    """
    mine = sa.true() if context.is_admin else FloatingIpRow.project_id == (context.project_id or "")
    wanted = sa.true() if ids is None else sa.or_(Row.id.in_(ids), Row.floating_ip_id.in_(ids))
    return [item for item, _ in floating_ips.forwardings(uow, mine, wanted)]


def create(uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, wanted: PortForwarding) -> PortForwarding:
    """Create a forwarding. Raises `NoSuchPort`, `PortForwardingInvalid`, `FloatingIpLeadsToPort`,
    `PortHasBindingFloatingIP` or `QuotaExceeded`.
    """
    floating = floating_ips.get(uow, context, wanted.floating_ip_id)
    others = _check(uow, floating, wanted)
    if len(others) >= MAX_FORWARDINGS:
        raise exceptions.QuotaExceeded(overs="port_forwarding", requested=1, used=len(others), allowed=MAX_FORWARDINGS)
    uow.session.add(Row(**(rows.values_of(wanted, Row) | {"created_at": uow.now, "updated_at": None})))
    uow.session.flush()
    uow.publish(FiltersChanged(floating.project_id))
    return list_(uow, context, [wanted.id])[0]


def update(uow: UnitOfWork, context: RequestContext, forwarding_id: str, changes: dict[str, Any]) -> PortForwarding:
    """Change fields of a forwarding, but not its floating address. Raises the errors of `create`."""
    row, found = _locked(uow, context, forwarding_id)
    if unknown := changes.keys() - _UPDATABLE:
        raise exceptions.InvalidInput(reason=f"{', '.join(sorted(unknown))} of a port forwarding cannot be changed")
    wanted = msgspec.structs.replace(found, **{"address": "", **changes})
    _check(uow, floating_ips.get(uow, context, found.floating_ip_id), wanted)
    for name in changes.keys() - {"address"}:
        setattr(row, name, changes[name])
    row.updated_at = uow.now
    uow.session.flush()
    uow.publish(FiltersChanged(found.project_id))
    return list_(uow, context, [forwarding_id])[0]


def delete(uow: UnitOfWork, context: RequestContext, forwarding_id: str) -> None:
    row, found = _locked(uow, context, forwarding_id)
    uow.session.delete(row)
    uow.session.flush()
    uow.publish(FiltersChanged(found.project_id))


def _locked(uow: UnitOfWork, context: RequestContext, forwarding_id: str) -> tuple[Row, PortForwarding]:
    for found in list_(uow, context, [forwarding_id]):
        row = uow.session.get(Row, forwarding_id, with_for_update=True, populate_existing=True)
        if found.id == forwarding_id and row is not None:
            if_match.check(context, row)
            return row, found
    raise exceptions.PortForwardingNotFound(id=forwarding_id[:64])


def _check(uow: UnitOfWork, floating: FloatingIp, wanted: PortForwarding) -> list[PortForwarding]:
    """Check a forwarding, and return the others of its address. Port, address and router stay until the commit."""
    port = uow.session.get(Port, wanted.port_id, with_for_update=True, populate_existing=True)
    owner = None if port is None else port.project_id or floating_ips.project_of(uow, port.instance_uuid)
    if port is None or owner != floating.project_id:
        raise exceptions.NoSuchPort(port_id=wanted.port_id)
    row = uow.session.get_one(FloatingIpRow, floating.id, with_for_update=True, populate_existing=True)
    if row.port_id is not None:
        raise exceptions.FloatingIpLeadsToPort(address=row.address, port_id=row.port_id)
    led = uow.session.scalars(sa.select(FloatingIpRow.address).where(FloatingIpRow.port_id == port.id)).first()
    if led is not None:
        raise exceptions.PortHasBindingFloatingIP(address=led, port_id=port.id)
    if port.address is None:
        raise _invalid(f"Requested internal port {port.id} must allocate an IPv4 address at least")
    if wanted.address not in ("", port.address):
        raise _invalid(
            f"Requested internal IP address {wanted.address} is not suitable for internal neutron port {port.id}, as "
            f"its IPv4 address is {port.address}"
        )
    router_id = _router(uow, floating, port)
    _check_ranges(wanted)
    others = floating_ips.forwardings(uow, Row.floating_ip_id == floating.id, Row.id != wanted.id)
    if any(other_router != router_id for _, other_router in others):
        raise _invalid(
            f"The Floating IP {floating.id} had been set on router {floating.router_id}, the internal Neutron port "
            f"{port.id} can not reach it"
        )
    of_port = floating_ips.forwardings(uow, Row.port_id == port.id, Row.id != wanted.id)
    for name, known in (("external", others), ("internal", of_port)):
        first, last = getattr(wanted, f"{name}_first"), getattr(wanted, f"{name}_last")
        for other, _ in known:
            start, end = getattr(other, f"{name}_first"), getattr(other, f"{name}_last")
            if other.protocol == wanted.protocol and start <= last and first <= end:
                raise _invalid(
                    f"There is a port collision with the {name}_port_range. The following ranges collides: "
                    f"{start}:{end} and {first}:{last}"
                )
    if sum(map(_shifted, [wanted, *(other for other, _ in others)])) > MAX_SHIFTED:
        raise _invalid(f"Ranges of a floating address lead at most {MAX_SHIFTED} ports to ports of other numbers")
    return [other for other, _ in others]


def _shifted(item: PortForwarding) -> int:
    """Return the number of ports that a range leads to ports of other numbers, one to one."""
    is_range = item.internal_first != item.internal_last and item.internal_first != item.external_first
    return item.internal_last - item.internal_first + 1 if is_range else 0


def _router(uow: UnitOfWork, floating: FloatingIp, port: Port) -> str:
    """Return the router that leads from the external network to a port."""
    network = builtin_networks.Store(uow).locked([port.network_id])[port.network_id]
    of_network = sa.select(RouterInterface.router_id).where(RouterInterface.network_id == network.id)
    router = uow.session.scalars(sa.select(Router).where(Router.id.in_(of_network)).with_for_update(read=True)).first()
    if router is None or router.pool_id != floating.pool_id:
        raise _invalid(
            f"External network {floating.pool_id} is not reachable from network {network.public_id}. Cannot set Port "
            f"forwarding for port {port.id} with Floating IP {floating.id}"
        )
    return router.id


def _check_ranges(wanted: PortForwarding) -> None:
    external, internal = (wanted.external_first, wanted.external_last), (wanted.internal_first, wanted.internal_last)
    if not all(1 <= first <= last <= 65535 for first, last in (external, internal)):
        raise _invalid("Invalid port value, the port value must be a value between 1 and 65535")
    if internal[1] - internal[0] not in (0, external[1] - external[0]):
        raise _invalid(
            "Invalid ranges of internal and/or external ports. The relation between internal and external ports must "
            "be N-N or 1-N"
        )


def _invalid(reason: str) -> exceptions.PortForwardingInvalid:
    return exceptions.PortForwardingInvalid(reason=reason)
