"""Load balancers and their parts.

A load balancer is one row with a document. Each change locks the row, and is accepted only while no other is being
carried out, as in Octavia. The hosts report which version of the document they carry out (`hosts`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import LoadBalancer as Row
from nova_lite.db.core.models import LoadBalancerPart
from nova_lite.db.core.models import Port as PortRow
from nova_lite.db.load_balancer import checks, hosts, limits, secrets
from nova_lite.db.network import ports
from nova_lite.load_balancer.objects import (
    DEVICE_OWNER,
    STRUCTS,
    AnyPart,
    Counters,
    Kind,
    Listener,
    LoadBalancer,
    Member,
    Part,
    Pool,
    Provisioning,
)
from nova_lite.objects import Port

#: States in which a load balancer may be deleted, or moved to its other host.
_SETTLED = (Provisioning.ACTIVE, Provisioning.ERROR)
#: Attributes that the conductor sets.
_OWN = frozenset({"id", "project_id", "version", "listeners", "pools", "members", "healthmonitor", "certificates"})


# --- reads


def list_(uow: UnitOfWork, context: RequestContext, ids: list[str] | None = None) -> list[LoadBalancer]:
    """Return the load balancers that the caller may see, oldest first. ``ids``: those with these ids or parts.

    Raises a 403 for an id of another project, as Octavia does.
    """
    query = sa.select(Row)
    if ids is not None:
        parts = sa.select(LoadBalancerPart.load_balancer_id).where(LoadBalancerPart.id.in_(ids))
        query = query.where(sa.or_(Row.id.in_(ids), Row.id.in_(parts)))
    elif not context.is_admin:
        query = query.where(Row.project_id == (context.project_id or ""))
    found = uow.session.scalars(query.order_by(Row.created_at, Row.id)).all()
    if not context.is_admin and any(row.project_id != context.project_id for row in found):
        raise exceptions.Forbidden("Policy does not allow this request to be performed.")
    return [document(row) for row in found]


def statistics(uow: UnitOfWork, context: RequestContext, kind: Kind, id: str) -> Counters:
    """Return the statistics of a load balancer or listener."""
    found = list_(uow, context, [id])
    if not found:
        raise missing(kind, id)
    balancer = found[0]
    part_of(balancer, kind, id)
    row = uow.session.get_one(Row, balancer.id)
    counters = msgspec.convert(row.counters, dict[str, Counters])
    if kind is Kind.LISTENER:
        return counters.get(id, Counters())
    return sum((counters.get(listener.id, Counters()) for listener in balancer.listeners), Counters())


def document(row: Row) -> LoadBalancer:
    return msgspec.convert(row.tree, LoadBalancer)


def missing(kind: Kind, id: str) -> exceptions.NotFound:
    return exceptions.NotFound(f"{kind} {id[:64]} not found.")


# --- changes


def create(
    uow: UnitOfWork,
    conf: cfg.ConfigOpts,
    context: RequestContext,
    balancer: LoadBalancer,
    certificates: dict[str, str] | None = None,
) -> LoadBalancer:
    """Create a load balancer, with a port for its address unless it names one. It repeats itself by its id.

    ``certificates``: sealed certificates by listener.
    """
    known = uow.session.get(Row, balancer.id)
    if known is not None and known.project_id == balancer.project_id:
        return document(known)
    limits.lock(uow, balancer.project_id)
    limits.check(uow, balancer.project_id, Kind.LOAD_BALANCER, _of_project(uow, balancer.project_id))
    has_port = bool(balancer.vip_port_id)
    port = _given_port(uow, context, balancer) if has_port else _make_port(uow, conf, context, balancer)
    balancer.vip_port_id, balancer.vip_address = port.id, port.address or ""
    balancer.vip_network_id, balancer.vip_subnet_id = port.network_id, port.subnet_id or ""
    balancer.created_at = uow.now
    row = Row(
        id=balancer.id,
        project_id=balancer.project_id,
        vip_port_id=port.id,
        provisioning_status=balancer.provisioning_status.value,
        changed_at=uow.now,
        created_at=uow.now,
        counters={},
        tree={},
    )
    added = _add_all(uow, context, balancer)
    for listener in balancer.listeners:
        _keep(uow, balancer, listener, certificates)
    hosts.place(uow, row, balancer)
    _write(row, balancer)
    uow.session.add(row)
    uow.session.flush()
    uow.session.add_all(LoadBalancerPart(id=part.id, load_balancer_id=balancer.id) for part in added)
    uow.session.flush()
    return balancer


def _add_all(uow: UnitOfWork, context: RequestContext, balancer: LoadBalancer) -> list[Part]:
    """Add the parts that a new load balancer comes with, as if each came alone. Return them."""
    every = list(balancer.parts())
    balancer.listeners, balancer.pools = [], []
    for kind in (Kind.POOL, Kind.MEMBER, Kind.MONITOR, Kind.LISTENER):
        parts = [(part, pool) for one, part, pool in every if one is kind]
        limits.check(uow, balancer.project_id, kind, _of_project(uow, balancer.project_id), len(parts))
        for part, pool in parts:
            if isinstance(part, Pool):
                part.members, part.healthmonitor = [], None
            part.created_at = uow.now
            parent = (Kind.LOAD_BALANCER, balancer.id) if pool is None else (Kind.POOL, pool.id)
            checks.add(uow, context, balancer, parent, part)
    return [part for _, part, _ in every]


def _given_port(uow: UnitOfWork, context: RequestContext, balancer: LoadBalancer) -> Port:
    port = ports.get(uow, context, balancer.vip_port_id)
    if port.instance_uuid or port.router_id or port.device_id or not port.address:
        raise exceptions.ValidationError(detail=f"Port {port.id} is in use, or has no IPv4 address.")
    if port.project_id != balancer.project_id:
        raise exceptions.NoSuchPort(port_id=port.id)
    if balancer.vip_address not in ("", port.address):
        raise exceptions.ValidationError(detail=f"Port {port.id} does not have the address {balancer.vip_address}.")
    _take(uow, port.id, balancer.id)
    return port


def _make_port(uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, balancer: LoadBalancer) -> Port:
    network_id, link_id = checks.vip_network(uow, context, balancer)
    wanted = Port(
        # The same id when the request is repeated.
        id=balancer.id,
        project_id=balancer.project_id,
        network_id=network_id,
        segment_id=link_id,
        name=f"octavia-lb-{balancer.id}",
        address=balancer.vip_address,
        mac_address="",
        security_groups=[],
        port_security_enabled=True,
    )
    made = ports.create(uow, conf, context, wanted)
    _take(uow, made.id, balancer.id)
    return made


def _take(uow: UnitOfWork, port_id: str, balancer_id: str) -> None:
    values = {"device_owner": DEVICE_OWNER, "device_id": f"lb-{balancer_id}", "security_groups": []}
    uow.change(sa.update(PortRow).where(PortRow.id == port_id).values(**values))


def _keep(uow: UnitOfWork, balancer: LoadBalancer, part: AnyPart, certificates: dict[str, str] | None) -> None:
    """Keep new certificates of a listener."""
    if isinstance(part, Listener) and (box := (certificates or {}).get(part.id)) is not None:
        secrets.keep(uow, balancer.project_id, part, box)


def add(
    uow: UnitOfWork,
    context: RequestContext,
    kind: Kind,
    parent: tuple[Kind, str],
    part: dict[str, Any],
    certificates: dict[str, str] | None = None,
) -> LoadBalancer:
    """Add a part under its parent: a pool's or a load balancer's. It repeats itself by its id."""
    made = msgspec.convert(part, STRUCTS[kind])
    row, balancer = _locked(uow, context, *parent)
    if uow.session.get(LoadBalancerPart, made.id) is not None:
        return balancer
    _require(balancer, parent, (Provisioning.ACTIVE,))
    limits.check(uow, row.project_id, kind, _of_project(uow, row.project_id))
    made.created_at = uow.now
    checks.add(uow, context, balancer, parent, made)
    _keep(uow, balancer, made, certificates)
    uow.session.add(LoadBalancerPart(id=made.id, load_balancer_id=balancer.id))
    return _accept(uow, row, balancer, made)


def update(
    uow: UnitOfWork,
    context: RequestContext,
    kind: Kind,
    id: str,
    changes: dict[str, Any],
    certificates: dict[str, str] | None = None,
) -> LoadBalancer:
    """Change attributes of a load balancer or of a part."""
    row, balancer = _locked(uow, context, kind, id)
    _require(balancer, (kind, id), (Provisioning.ACTIVE,))
    found = part_of(balancer, kind, id)
    before = msgspec.structs.asdict(found)
    unknown = sorted((changes.keys() - before.keys()) | (changes.keys() & _OWN))
    if unknown:
        raise exceptions.ValidationError(detail=f"{', '.join(unknown)} of a {kind} cannot be changed.")
    changed = msgspec.convert(msgspec.to_builtins(found) | changes, STRUCTS[kind])
    for name in changes:
        setattr(found, name, getattr(changed, name))
    checks.changed(uow, context, balancer, found)
    _keep(uow, balancer, found, certificates)
    found.updated_at = uow.now
    return _accept(uow, row, balancer, found, status=Provisioning.PENDING_UPDATE)


def set_members(
    uow: UnitOfWork, context: RequestContext, pool_id: str, members: list[Member], additive: bool
) -> LoadBalancer:
    """Replace the members of a pool: those with a known address and port are changed. ``additive``: others stay."""
    row, balancer = _locked(uow, context, Kind.POOL, pool_id)
    parent = (Kind.POOL, pool_id)
    _require(balancer, parent, (Provisioning.ACTIVE,))
    pool: Any = part_of(balancer, *parent)
    known = {(member.address, member.protocol_port): member for member in pool.members}
    wanted = {(member.address, member.protocol_port): member for member in members}
    if len(wanted) < len(members):
        raise exceptions.ValidationError(detail="Several members have the same address and port.")
    new = [member for key, member in wanted.items() if key not in known]
    limits.check(uow, row.project_id, Kind.MEMBER, _of_project(uow, row.project_id), len(new))
    for key, member in known.items():
        if key in wanted:
            theirs = msgspec.structs.asdict(wanted[key])
            for name in theirs.keys() - {"id", "created_at", "provisioning_status", "operating_status"}:
                setattr(member, name, theirs[name])
            member.updated_at, member.provisioning_status = uow.now, Provisioning.PENDING_UPDATE
        elif not additive:
            member.provisioning_status = Provisioning.PENDING_DELETE
    for member in new:
        member.created_at = uow.now
        checks.add(uow, context, balancer, parent, member)
        uow.session.add(LoadBalancerPart(id=member.id, load_balancer_id=balancer.id))
    return _accept(uow, row, balancer, pool, status=Provisioning.PENDING_UPDATE)


def remove(uow: UnitOfWork, context: RequestContext, kind: Kind, id: str, cascade: bool = False) -> None:
    """Delete a load balancer (``cascade``: with its parts) or a part with what is in it."""
    row, balancer = _locked(uow, context, kind, id)
    _require(balancer, (kind, id), _SETTLED)
    if kind is Kind.LOAD_BALANCER:
        if (balancer.listeners or balancer.pools) and not cascade:
            raise exceptions.ValidationError(
                detail=f"Cannot delete Load Balancer {id} - it has children. Delete them first, or use cascade=true."
            )
        _end(uow, row, balancer)
        return
    found = part_of(balancer, kind, id)
    if isinstance(found, Pool):
        for listener in balancer.listeners:
            if listener.default_pool_id == found.id:
                listener.default_pool_id = None
        for _, part, pool in balancer.parts():
            if pool is found:
                part.provisioning_status = Provisioning.PENDING_DELETE
    _accept(uow, row, balancer, found, status=Provisioning.PENDING_DELETE)


def failover(uow: UnitOfWork, context: RequestContext, id: str) -> None:
    """Let the stand-by take over. Raises a 409 without one."""
    row, balancer = _locked(uow, context, Kind.LOAD_BALANCER, id)
    _require(balancer, (Kind.LOAD_BALANCER, id), _SETTLED)
    if not hosts.fail_over(uow, row, balancer):
        raise exceptions.Conflict(f"Load Balancer {id} has no other host to move to.")
    _accept(uow, row, balancer)


# --- how a change begins and ends


def _accept(
    uow: UnitOfWork,
    row: Row,
    balancer: LoadBalancer,
    touched: AnyPart | None = None,
    status: Provisioning = Provisioning.PENDING_CREATE,
) -> LoadBalancer:
    """Write a change: the load balancer is pending until its host carries it out."""
    if touched is not None:
        touched.provisioning_status = status
    balancer.provisioning_status = Provisioning.PENDING_UPDATE
    balancer.version += 1
    balancer.updated_at = row.updated_at = row.changed_at = uow.now
    if row.host is None:
        hosts.place(uow, row, balancer)
    _write(row, balancer)
    uow.session.flush()
    hosts.notify(uow, row)
    return balancer


def _end(uow: UnitOfWork, row: Row, balancer: LoadBalancer) -> None:
    """Begin to delete a load balancer: its row goes once no host may have the address."""
    balancer.provisioning_status = Provisioning.PENDING_DELETE
    hosts.notify(uow, row)
    row.former_host = row.former_host or row.host
    hosts.bind(uow, row, balancer, None)
    row.host = row.standby_host = None
    _write(row, balancer)
    uow.session.flush()
    if row.former_host is None:
        hosts.delete(uow, row)


def _write(row: Row, balancer: LoadBalancer) -> None:
    balancer.host, balancer.standby_host = row.host, row.standby_host
    row.provisioning_status = balancer.provisioning_status.value
    row.tree = msgspec.to_builtins(balancer)


def _locked(uow: UnitOfWork, context: RequestContext, kind: Kind, id: str) -> tuple[Row, LoadBalancer]:
    """Return a load balancer that has this id or part, locked. The project's quota is locked before it."""
    found = list_(uow, context, [id])
    if not found:
        raise missing(kind, id)
    limits.lock(uow, found[0].project_id)
    row = uow.session.get(Row, found[0].id, with_for_update=True, populate_existing=True)
    if row is None:
        raise missing(kind, id)
    balancer = document(row)
    part_of(balancer, kind, id)
    return row, balancer


def part_of(balancer: LoadBalancer, kind: Kind, id: str) -> Any:
    """Return the load balancer itself or a part of it. Raises a 404."""
    if kind is Kind.LOAD_BALANCER and balancer.id == id:
        return balancer
    for one, part, _ in balancer.parts():
        if one is kind and part.id == id and part.provisioning_status != Provisioning.PENDING_DELETE:
            return part
    raise missing(kind, id)


def _require(balancer: LoadBalancer, of: tuple[Kind, str], states: Iterable[Provisioning]) -> None:
    """Raise a 409 unless the load balancer is in one of these states."""
    if balancer.provisioning_status not in states:
        kind, id = of
        what = "Load Balancer" if kind is Kind.LOAD_BALANCER else kind
        raise exceptions.Conflict(
            f"{what} {id} is immutable and cannot be updated: "
            f"load balancer {balancer.id} is {balancer.provisioning_status}."
        )


def _of_project(uow: UnitOfWork, project_id: str) -> list[LoadBalancer]:
    return [document(row) for row in uow.session.scalars(sa.select(Row).where(Row.project_id == project_id))]
