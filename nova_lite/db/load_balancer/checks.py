"""Checks of changes against other parts of the load balancer, subnets, and networks."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Network
from nova_lite.db.network import builtin_networks
from nova_lite.load_balancer.haproxy import TLS
from nova_lite.load_balancer.objects import HealthMonitor, Kind, Listener, LoadBalancer, Member, Pool

#: Protocols of pools that a listener may lead to.
FITTING = {
    "TCP": ("HTTP", "HTTPS", "PROXY", "PROXYV2", "TCP"),
    "HTTP": ("HTTP", "PROXY", "PROXYV2"),
    "HTTPS": ("HTTPS", "PROXY", "PROXYV2", "TCP"),
    TLS: ("HTTP", "PROXY", "PROXYV2"),
}


def vip_network(uow: UnitOfWork, context: RequestContext, balancer: LoadBalancer) -> tuple[str, str | None]:
    """Return the network of a new address, and the part of it that has the subnet. `ports.create` checks the rest."""
    if not balancer.vip_subnet_id:
        return balancer.vip_network_id, None
    link = _link(uow, context, balancer.project_id, balancer.vip_subnet_id)
    network_id = link.parent_id or link.id
    if balancer.vip_network_id not in ("", network_id):
        raise exceptions.ValidationError(
            detail=f"Subnet {balancer.vip_subnet_id} is not on network {balancer.vip_network_id}."
        )
    return network_id, link.id


def _link(uow: UnitOfWork, context: RequestContext, project_id: str, subnet_id: str) -> Network:
    """Return the network, or part of one, that has an IPv4 subnet which the project may use. Raises a 400."""
    named = sa.or_(Network.subnet_id == subnet_id, sa.and_(Network.id == subnet_id, Network.subnet_id.is_(None)))
    link = uow.session.scalars(sa.select(Network).where(named, Network.cidr != "")).first()
    mine = link is not None and (context.is_admin or link.project_id in (None, project_id))
    shared = link is not None and builtin_networks.Store(uow).is_shared(link.parent_id or link.id, project_id)
    if link is None or not (mine or shared):
        raise exceptions.ValidationError(detail=f"IPv4 subnet {subnet_id[:64]} not found.")
    return link


def add(uow: UnitOfWork, context: RequestContext, balancer: LoadBalancer, parent: tuple[Kind, str], part: Any) -> None:
    """Put a new part into its load balancer. Raises a 400, 404 or 409."""
    kind, parent_id = parent
    if isinstance(part, Listener):
        balancer.listeners.append(part)
    elif isinstance(part, Pool):
        balancer.pools.append(part)
        if kind is Kind.LISTENER:
            (listener,) = (one for one in balancer.listeners if one.id == parent_id)
            if listener.default_pool_id is not None:
                raise exceptions.Conflict(f"Listener {parent_id} already has a default pool.")
            listener.default_pool_id = part.id
            _check_listener(balancer, listener)
    else:
        pool = balancer.pool(parent_id)
        if pool is None:
            raise exceptions.NotFound(f"pool {parent_id[:64]} not found.")
        if isinstance(part, Member):
            pool.members.append(part)
        elif pool.healthmonitor is not None:
            raise exceptions.Conflict(f"Pool {parent_id} already has a health monitor.")
        else:
            pool.healthmonitor = part
    changed(uow, context, balancer, part)


def changed(uow: UnitOfWork, context: RequestContext, balancer: LoadBalancer, part: Any) -> None:
    """Check a new or changed part. Raises a 400, 404 or 409."""
    if isinstance(part, Listener):
        _check_listener(balancer, part)
    elif isinstance(part, Member):
        _check_member(uow, context, balancer, part)
    elif isinstance(part, HealthMonitor):
        _check_monitor(part)


def _check_listener(balancer: LoadBalancer, listener: Listener) -> None:
    if any(one.id != listener.id and one.protocol_port == listener.protocol_port for one in balancer.listeners):
        raise exceptions.Conflict(
            f"Another Listener on this Load Balancer is already using protocol_port {listener.protocol_port}."
        )
    if listener.insert_headers and listener.protocol not in ("HTTP", TLS):
        raise exceptions.ValidationError(detail=f"insert_headers are for listeners of the protocols HTTP and {TLS}.")
    if (listener.protocol == TLS) != bool(listener.secret_refs):
        raise exceptions.ValidationError(
            detail=f"Listeners of the protocol {TLS}, and no others, have a default_tls_container_ref, or "
            "sni_container_refs."
        )
    if listener.default_pool_id is None:
        return
    pool = balancer.pool(listener.default_pool_id)
    if pool is None:
        raise exceptions.NotFound(f"pool {listener.default_pool_id[:64]} not found.")
    if pool.protocol not in FITTING[listener.protocol]:
        raise exceptions.ValidationError(
            detail=f"Listener protocol '{listener.protocol}' and pool protocol '{pool.protocol}' are not compatible."
        )


def _check_member(uow: UnitOfWork, context: RequestContext, balancer: LoadBalancer, member: Member) -> None:
    (pool,) = (pool for pool in balancer.pools if any(one is member for one in pool.members))
    where = (member.address, member.protocol_port)
    if any(one is not member and (one.address, one.protocol_port) == where for one in pool.members):
        raise exceptions.Conflict(
            f"Another member on this pool is already using ip {member.address} on protocol_port {member.protocol_port}."
        )
    if member.subnet_id is not None:
        _link(uow, context, balancer.project_id, member.subnet_id)


def _check_monitor(monitor: HealthMonitor) -> None:
    if monitor.timeout > monitor.delay:
        raise exceptions.ValidationError(detail="The timeout of a health monitor is at most its delay.")
    if monitor.domain_name is not None and monitor.http_version != 1.1:
        raise exceptions.ValidationError(detail="domain_name needs http_version 1.1.")
