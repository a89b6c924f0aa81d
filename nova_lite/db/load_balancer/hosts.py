"""Hosts of load balancers, their leases, and fail-over.

A host that runs load balancers reports all few seconds. A report begins its lease: for so long it may have the
addresses of the load balancers that it is active for, and then its kernel removes them. So another host gets an
address only once the former one has reported that it released it, or its lease is over.
"""

from __future__ import annotations

import datetime
import logging
from typing import NamedTuple

import msgspec
import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.events import FiltersChanged
from nova_lite.db.core.models import Instance, LoadBalancerHost, LoadBalancerPart, Network, Port, Service
from nova_lite.db.core.models import LoadBalancer as Row
from nova_lite.db.hosts import services
from nova_lite.db.load_balancer import secrets
from nova_lite.db.network import ports
from nova_lite.db.servers import interfaces
from nova_lite.load_balancer.objects import (
    Assignment,
    Assignments,
    HostReport,
    LoadBalancer,
    Operating,
    Pool,
    Provisioning,
    Report,
)
from nova_lite.objects import VIF

LOG = logging.getLogger(__name__)

#: Seconds after the end of a lease until another host gets the addresses: hosts count with clocks of their own.
MARGIN = 3.0
#: Seconds after which a change that no host has carried out is an error.
DEADLINE = 300.0
_PENDING = (Provisioning.PENDING_CREATE, Provisioning.PENDING_UPDATE)
_NO_HOST = "No compute host runs load balancers now"


class HostsChanged(NamedTuple):
    """A host has to look at its load balancers. The transaction publishes it."""

    host: str


# --- placement


def place(uow: UnitOfWork, row: Row, balancer: LoadBalancer) -> bool:
    """Choose a host, and a stand-by, for a load balancer without any. Without one its state is ERROR."""
    free = [host for host in _usable(uow, row.vip_port_id) if host != row.former_host]
    if not free:
        balancer.provisioning_status, balancer.problem = Provisioning.ERROR, f"{_NO_HOST}."
        return False
    balancer.problem = ""
    row.host, row.standby_host = free[0], free[1] if len(free) > 1 else None
    bind(uow, row, balancer, row.host)
    notify(uow, row)
    return True


def _usable(uow: UnitOfWork, port_id: str) -> list[str]:
    """Return the hosts that run load balancers, the best one first.

    On a network that does not span hosts, this is a host with many guests of it; else one with few load balancers.
    """
    fresh = LoadBalancerHost.seen_at > _over(uow)
    up = (Service.binary == services.COMPUTE, Service.up, ~Service.disabled, ~Service.forced_down)
    query = sa.select(LoadBalancerHost.host).join(Service, Service.host == LoadBalancerHost.host)
    found = uow.session.scalars(query.where(fresh, LoadBalancerHost.problem == "", *up)).all()
    used = sa.select(Row.host, sa.func.count()).where(Row.host.in_(found)).group_by(Row.host)
    load = dict(uow.session.execute(used).tuples().all())
    network = sa.select(Network).join(Port, Port.network_id == Network.id).where(Port.id == port_id)
    guests: dict[str | None, int] = {}
    on = uow.session.scalars(network).first()
    if on is not None and on.vni is None:
        counted = sa.select(Instance.host, sa.func.count()).join(Port, Port.instance_uuid == Instance.uuid)
        counted = counted.where(Port.network_id == on.id).group_by(Instance.host)
        guests = dict(uow.session.execute(counted).tuples().all())
    return sorted(found, key=lambda host: (-guests.get(host, 0), load.get(host, 0), host))


def _over(uow: UnitOfWork) -> datetime.datetime:
    """Return the time before which the leases of reports are over."""
    return uow.now - datetime.timedelta(seconds=uow.conf.load_balancer.lease + MARGIN)


def bind(uow: UnitOfWork, row: Row, balancer: LoadBalancer, host: str | None) -> None:
    """Set the host of the address: filters, tunnels, routers and floating addresses follow it."""
    uow.change(sa.update(Port).where(Port.id == row.vip_port_id).values(bound_host=host))
    uow.publish(FiltersChanged(balancer.project_id))


def notify(uow: UnitOfWork, row: Row) -> None:
    uow.publish(*(HostsChanged(host) for host in (row.host, row.standby_host, row.former_host) if host))


def fail_over(uow: UnitOfWork, row: Row, balancer: LoadBalancer, is_lost: bool = False) -> bool:
    """Let another host take over, the stand-by if it can. Return False, and change nothing, if there is none.

    ``is_lost``: the present host has no address any more. Else it has to release it first.
    """
    usable = _usable(uow, row.vip_port_id)
    others = [host for host in usable if host != row.host]
    if not others:
        return False
    notify(uow, row)
    if not is_lost:
        row.former_host = row.former_host or row.host
    row.host = row.standby_host if row.standby_host in others else others[0]
    row.standby_host = next((host for host in usable if host != row.host), None)
    balancer.host, balancer.standby_host = row.host, row.standby_host
    bind(uow, row, balancer, row.host)
    notify(uow, row)
    return True


def delete(uow: UnitOfWork, row: Row) -> None:
    """Delete a load balancer that no host has any more, and the port that was made for it."""
    mine = LoadBalancerPart.load_balancer_id == row.id
    secrets.forget(uow, list(uow.session.scalars(sa.select(LoadBalancerPart.id).where(mine))))
    uow.change(sa.delete(LoadBalancerPart).where(mine))
    freed = {"device_owner": "", "device_id": "", "bound_host": None}
    uow.change(sa.update(Port).where(Port.id == row.vip_port_id).values(**freed))
    if row.vip_port_id == row.id:
        ports.delete(uow, get_admin_context(), row.vip_port_id)
    uow.session.delete(row)
    uow.session.flush()


# --- reports


def sync(uow: UnitOfWork, host: str, report: HostReport) -> Assignments:
    """Record the report of a host, and return what it has to run.

    Raises `Conflict` for a report that arrives after a newer one: the host may have got an address since.
    """
    known = uow.session.get(LoadBalancerHost, host, with_for_update=True, populate_existing=True)
    if known is None:
        known = LoadBalancerHost(host=host, seen_at=uow.now)
        uow.session.add(known)
    if report.boot_id and known.boot_id == report.boot_id and report.number <= known.number:
        raise exceptions.Conflict(f"Host {host} has sent a newer report of its load balancers.")
    known.seen_at, known.problem = uow.now, report.problem
    known.boot_id, known.number = report.boot_id, report.number
    reports = {one.id: one for one in report.balancers}
    mine = sa.or_(Row.host == host, Row.standby_host == host, Row.former_host == host)
    found = Assignments(lease=uow.conf.load_balancer.lease)
    for row in uow.session.scalars(sa.select(Row).where(mine).order_by(Row.id).with_for_update()).all():
        balancer = msgspec.convert(row.tree, LoadBalancer)
        said = reports.get(row.id)
        if row.former_host == host and (said is None or not said.holds) and row.host != host:
            _released(uow, row)
        if row.host == host and said is not None:
            _settle(uow, row, balancer, said)
        if host in (row.host, row.standby_host) and (vif := _vif(uow, row.vip_port_id)) is not None:
            is_active = row.host == host and row.former_host in (None, host)
            item = Assignment(balancer=balancer, vif=vif, active=is_active)
            if is_active and report.public_key and not _runs(balancer, said):
                item.certificates = _certificates(uow, balancer, report.public_key)
            found.balancers.append(item)
    uow.session.flush()
    return found


def _runs(balancer: LoadBalancer, said: Report | None) -> bool:
    """Check whether the host runs the newest change, and so has its certificates."""
    return said is not None and said.holds and said.version == balancer.version and not said.problem


def _certificates(uow: UnitOfWork, balancer: LoadBalancer, public_key: str) -> dict[str, str]:
    """Return the certificates for a host. Without a key they are missing there, which the host reports."""
    listeners = [one for one in balancer.listeners if one.certificates]
    try:
        return secrets.for_host(uow, listeners, public_key) if listeners else {}
    except exceptions.NovaLiteException as error:
        LOG.error("Certificates of load balancer %s cannot be read: %s", balancer.id, error.message)
        return {}


def _vif(uow: UnitOfWork, port_id: str) -> VIF | None:
    query = sa.select(*interfaces.VIF_COLUMNS).join(Network, Network.id == Port.network_id).where(Port.id == port_id)
    row = uow.session.execute(query).first()
    return None if row is None else interfaces.to_vif(row)


def _released(uow: UnitOfWork, row: Row) -> None:
    """Note that the former host has no address any more."""
    row.former_host = None
    uow.session.flush()
    if row.provisioning_status == Provisioning.PENDING_DELETE:
        delete(uow, row)
    else:
        notify(uow, row)


def _settle(uow: UnitOfWork, row: Row, balancer: LoadBalancer, said: Report) -> None:
    """Record what the active host says: whether the newest change is carried out, statistics, and health."""
    before = msgspec.to_builtins(balancer)
    row.counters = row.counters | msgspec.to_builtins(said.counters)
    # A host tries again what has failed.
    is_open = balancer.provisioning_status != Provisioning.ACTIVE
    if is_open and said.version == balancer.version and row.former_host in (None, row.host):
        _carried_out(uow, row, balancer, said)
    _set_health(balancer, said)
    if (after := msgspec.to_builtins(balancer)) != before:
        row.tree = after
        row.provisioning_status = balancer.provisioning_status.value


def _carried_out(uow: UnitOfWork, row: Row, balancer: LoadBalancer, said: Report) -> None:
    balancer.problem = said.problem
    if said.problem:
        balancer.provisioning_status = Provisioning.ERROR
        for _, part, _ in balancer.parts():
            if part.provisioning_status != Provisioning.ACTIVE:
                part.provisioning_status = Provisioning.ERROR
        return
    gone = [part.id for _, part, _ in balancer.parts() if part.provisioning_status == Provisioning.PENDING_DELETE]
    balancer.listeners = [one for one in balancer.listeners if one.id not in gone]
    balancer.pools = [one for one in balancer.pools if one.id not in gone]
    for pool in balancer.pools:
        pool.members = [one for one in pool.members if one.id not in gone]
        if pool.healthmonitor is not None and pool.healthmonitor.id in gone:
            pool.healthmonitor = None
    secrets.forget(uow, gone)
    uow.change(sa.delete(LoadBalancerPart).where(LoadBalancerPart.id.in_(gone)))
    changed = [part for _, part, _ in balancer.parts() if part.provisioning_status != Provisioning.ACTIVE]
    for part in (balancer, *changed):
        part.provisioning_status, part.updated_at = Provisioning.ACTIVE, uow.now


def _set_health(balancer: LoadBalancer, said: Report) -> None:
    states = []
    for pool in balancer.pools:
        for member in pool.members:
            member.operating_status = (
                _member_state(pool, said.members.get(member.id)) if member.admin_state_up else (Operating.OFFLINE)
            )
        if pool.healthmonitor is not None:
            pool.healthmonitor.operating_status = Operating.ONLINE
        pool.operating_status = _pool_state(pool)
        states.append(pool.operating_status)
    for listener in balancer.listeners:
        listener.operating_status = Operating.ONLINE if listener.admin_state_up else Operating.OFFLINE
    worst = [one for one in (Operating.ERROR, Operating.DEGRADED) if one in states]
    balancer.operating_status = worst[0] if worst else Operating.ONLINE
    if not balancer.admin_state_up:
        balancer.operating_status = Operating.OFFLINE


def _member_state(pool: Pool, passes: bool | None) -> Operating:
    if pool.healthmonitor is None or not pool.healthmonitor.admin_state_up or passes is None:
        return Operating.NO_MONITOR
    return Operating.ONLINE if passes else Operating.ERROR


def _pool_state(pool: Pool) -> Operating:
    if not pool.admin_state_up:
        return Operating.OFFLINE
    failed = [member.operating_status == Operating.ERROR for member in pool.members if member.admin_state_up]
    if failed and all(failed):
        return Operating.ERROR
    return Operating.DEGRADED if any(failed) else Operating.ONLINE


# --- lost hosts


def sweep(uow: UnitOfWork) -> list[str]:
    """Take the load balancers of lost hosts to others, choose missing stand-bys, and end changes that no host carries
    out. Return the load balancers that have moved.
    """
    alive = sa.select(LoadBalancerHost.host).where(LoadBalancerHost.seen_at > _over(uow))
    lost = sa.or_(*(sa.and_(column.is_not(None), column.not_in(alive)) for column in (Row.host, Row.former_host)))
    late = sa.and_(
        Row.provisioning_status.in_([one.value for one in _PENDING]),
        Row.changed_at < uow.now - datetime.timedelta(seconds=DEADLINE),
    )
    homeless = sa.and_(Row.host.is_(None), Row.provisioning_status == Provisioning.ERROR.value)
    wanted = [lost, late, homeless]
    if len(uow.session.scalars(alive).all()) > 1:
        has_none = sa.or_(Row.standby_host.is_(None), Row.standby_host.not_in(alive))
        wanted.append(sa.and_(Row.host.is_not(None), has_none))
    query = sa.select(Row.id).where(sa.or_(*wanted)).order_by(Row.id).limit(100)
    moved = []
    for balancer_id in uow.session.scalars(query).all():
        row = uow.session.get(Row, balancer_id, with_for_update=True, populate_existing=True)
        if row is not None and _mend(uow, row, set(uow.session.scalars(alive))):
            moved.append(balancer_id)
    return moved


def _mend(uow: UnitOfWork, row: Row, alive: set[str]) -> bool:
    balancer = msgspec.convert(row.tree, LoadBalancer)
    has_moved = False
    if row.former_host is not None and row.former_host not in alive:
        _released(uow, row)
        if row.provisioning_status == Provisioning.PENDING_DELETE:
            return False
    if row.host is not None and row.host not in alive:
        has_moved = fail_over(uow, row, balancer, is_lost=True)
    elif row.host is None and row.provisioning_status == Provisioning.ERROR and place(uow, row, balancer):
        has_moved, row.changed_at = True, uow.now
        balancer.provisioning_status = Provisioning.PENDING_UPDATE
    elif row.host is not None and row.standby_host not in alive:
        row.standby_host = next((one for one in _usable(uow, row.vip_port_id) if one != row.host), None)
        notify(uow, row)
    if balancer.provisioning_status in _PENDING and row.changed_at < uow.now - datetime.timedelta(seconds=DEADLINE):
        balancer.provisioning_status = Provisioning.ERROR
        balancer.problem = f"Host {row.host} has not carried out the change within {DEADLINE:.0f} s."
    balancer.host, balancer.standby_host = row.host, row.standby_host
    row.tree, row.provisioning_status = msgspec.to_builtins(balancer), balancer.provisioning_status.value
    uow.session.flush()
    return has_moved
