"""Leases of compute hosts that fence themselves, and which of their servers may run again elsewhere.

See docs/adr/0028. A promise belongs to one start of the daemon, whose ``boot_id`` is also in the service's row. What
was decided about a host is void as soon as it has registered again.
"""

from __future__ import annotations

import datetime
from collections import Counter
from typing import Any, NamedTuple

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import HostLease, Instance, Restart, Service
from nova_lite.db.core.statements import insert_if_missing
from nova_lite.db.hosts import compute_nodes, crashes, services
from nova_lite.objects import Lease, LeaseRequest, protection
from nova_lite.objects.fencing import HostFencing
from nova_lite.objects.protection import Protection
from nova_lite.operations import states

#: Values of `HostLease.fenced`.
LEASE, OFF, LEFT = "lease", "off", "left"


#: Prefix of image properties in an instance's ``system_metadata``.
IMAGE_PREFIX = "image_"

#: Servers that one statement of `hosts_of_protected` reads.
_PAGE = 1000


class Watched(NamedTuple):
    """A host that has promised to stop its guests: its newest request, and the seconds of its lease."""

    host: str
    boot_id: str
    number: int
    seconds: float


def protection_of(conf: cfg.ConfigOpts, instance: Any) -> Protection:
    """Return the protection of a server by its metadata, flavor, image and project. ``instance``: its row, or these
    columns of it."""
    kept = instance.system_metadata
    image = {key.removeprefix(IMAGE_PREFIX): kept[key] for key in kept if key.startswith(IMAGE_PREFIX)}
    by_default = instance.project_id in conf.conductor.protected_projects
    return protection.of_server(instance.metadata_, instance.flavor.get("extra_specs") or {}, image, by_default)


def protected(uow: UnitOfWork, conf: cfg.ConfigOpts, host: str) -> dict[str, Protection]:
    """Return the protected servers of a host, by uuid."""
    rows = uow.session.scalars(sa.select(Instance).where(Instance.host == host, Instance.deleted.is_(False)))
    found = {row.uuid: protection_of(conf, row) for row in rows}
    return {uuid: item for uuid, item in sorted(found.items()) if item.restart}


def _locked(uow: UnitOfWork, host: str) -> HostLease | None:
    query = sa.select(HostLease).where(HostLease.host == host).with_for_update()
    return uow.session.scalars(query.execution_options(populate_existing=True)).first()


def _made(uow: UnitOfWork, host: str) -> HostLease:
    row = _locked(uow, host)
    if row is None:
        insert_if_missing(
            uow,
            HostLease,
            {"host": host, "seconds": 0.0, "boot_id": "", "number": 0, "guests": [], "fenced": "", "checks": []},
        )
        row = _locked(uow, host)
        assert row is not None
    return row


def renew(uow: UnitOfWork, conf: cfg.ConfigOpts, request: LeaseRequest, service: Service) -> Lease:
    """Record a request, and return the lease. ``service``: the host's row, locked, and of the request's epoch.

    A guest counts as confirmed if the host names it and its policy protects it. So a host that drops a guest after this
    reply drops none that a conductor counts on. A host that is suspended protects none, and promises nothing from its
    first request without guests on. Raises `HostEpochOver` for another start of the daemon, and
    `HeartbeatIsOld` for a request that is not the newest one.
    """
    if request.boot_id != service.boot_id:
        raise exceptions.HostEpochOver(host=request.host)
    row = _made(uow, request.host)
    if row.boot_id == request.boot_id and request.number <= row.number:
        raise exceptions.HeartbeatIsOld(host=request.host)
    is_suspended = row.suspended_until is not None and row.suspended_until > uow.now
    wanted = protected(uow, conf, request.host) if request.seconds and not is_suspended else {}
    row.boot_id, row.number = request.boot_id, request.number
    row.seconds = request.seconds if request.guests or not is_suspended else 0.0
    confirmed = sorted(wanted.keys() & set(request.guests))
    if row.guests != confirmed:
        row.guests = confirmed
    row.fenced = LEFT if request.leaves else ""
    return Lease(seconds=request.seconds, guests=list(wanted))


def registered(uow: UnitOfWork, host: str) -> None:
    """Cancel what was decided about a host that registers. Its promise is void, too, until it has made another one."""
    row = _locked(uow, host)
    if row is not None:
        row.fenced, row.fenced_at, row.fenced_by, row.seconds, row.guests = "", None, None, 0.0, []


def is_armed(row: HostLease, service: Service) -> bool:
    """Check whether the daemon that is registered promises to fence itself."""
    return row.seconds > 0 and row.boot_id == service.boot_id


def watched(uow: UnitOfWork) -> list[Watched]:
    """Return the hosts whose lease may end: armed, with confirmed guests, and not fenced yet."""
    return [Watched(*row[:4]) for row in uow.rows(_WATCHED, {}) if row[4]]


_WATCHED = (
    sa.select(HostLease.host, HostLease.boot_id, HostLease.number, HostLease.seconds, HostLease.guests)
    .join(Service, sa.and_(Service.host == HostLease.host, Service.binary == services.COMPUTE))
    .where(HostLease.seconds > 0, HostLease.fenced == "", HostLease.boot_id == Service.boot_id)
    .where(Service.forced_down.is_(False))
    .order_by(HostLease.host)
)


def expire_lease(uow: UnitOfWork, seen: Watched) -> bool:
    """Record that a host's lease has ended, so that its confirmed guests are off, and end its registration.

    Returns False if the lease was renewed since it was ``seen``, or if the host has registered or was forced down.
    """
    service, row = services.locked(uow, seen.host, services.COMPUTE), _locked(uow, seen.host)
    if service is None or row is None or service.forced_down or row.fenced or not is_armed(row, service):
        return False
    if (row.boot_id, row.number) != (seen.boot_id, seen.number):
        return False
    row.fenced, row.fenced_at, row.fenced_by = LEASE, uow.now, "self-fencing"
    _end_registration(uow, service)
    return True


def record_off(uow: UnitOfWork, host: str, boot_id: str, method: str) -> bool:
    """Record that a host's power is off, and force it down.

    ``boot_id``: of the daemon that was registered before its power was looked at. Returns False if the host has
    registered since: then it is on again.
    """
    service = services.locked(uow, host, services.COMPUTE)
    if service is None or service.boot_id != boot_id:
        return False
    row = _made(uow, host)
    row.fenced, row.fenced_at, row.fenced_by = OFF, uow.now, method
    # The promise of the daemon that was registered does not matter any more, but what was decided belongs to it.
    row.boot_id, row.seconds, row.guests = boot_id, 0.0, []
    if not service.forced_down:
        services.force_down(uow, service)
    return True


class Lost(NamedTuple):
    """A silent host with protected servers. ``boot_id``: of the daemon that is registered."""

    host: str
    boot_id: str


def lost(uow: UnitOfWork, conf: cfg.ConfigOpts, host: str | None = None) -> list[Lost]:
    """Return the hosts that are silent, and have protected servers that ran. ``host``: look at this one alone.

    A host that is disabled or forced down is in an operator's hands. The daemon of a host that has left was stopped.
    """
    newest = uow.session.scalar(
        sa.select(sa.func.max(Service.last_seen_up)).where(
            Service.binary == services.COMPUTE, Service.up.is_(True), Service.forced_down.is_(False)
        )
    )
    if newest is None:
        return []
    since = services.silent_before(uow, conf, newest)
    has_left = sa.exists().where(
        HostLease.host == Service.host, HostLease.boot_id == Service.boot_id, HostLease.fenced == LEFT
    )
    query = sa.select(Service.host, Service.boot_id).where(
        Service.binary == services.COMPUTE, Service.up.is_(False), Service.last_seen_up < since, ~has_left
    )
    query = query.where(Service.forced_down.is_(False), Service.disabled.is_(False))
    if host is not None:
        query = query.where(Service.host == host)
    silent = [Lost(*row) for row in uow.session.execute(query.order_by(Service.host))]
    return [item for item in silent if _has_protected(uow, conf, item.host)]


def _has_protected(uow: UnitOfWork, conf: cfg.ConfigOpts, host: str) -> bool:
    query = sa.select(Instance).where(Instance.host == host, Instance.deleted.is_(False))
    ran = sa.or_(Instance.vm_state == states.ACTIVE, Instance.uuid.in_(crashes.to_start(uow, host)))
    rows = uow.session.scalars(query.where(ran))
    return any(protection_of(conf, row).restart for row in rows)


def may_be_protected(conf: cfg.ConfigOpts) -> sa.ColumnElement[bool]:
    """Build the condition of servers with a setting of protection, or of a protected project.

    `protection_of` decides. The condition keeps reads of a whole cloud from the servers without any setting.
    """
    columns = (Instance.metadata_, Instance.flavor, Instance.system_metadata)
    says = [sa.cast(column, sa.Text).contains("restart") for column in columns]  # ha:restart, or an image's ha_restart
    return sa.or_(*says, Instance.project_id.in_(conf.conductor.protected_projects))


def hosts_of_protected(uow: UnitOfWork, conf: cfg.ConfigOpts) -> dict[str, int]:
    """Return the hosts that have protected servers, with the number of them.

    The database sends the servers in pages: a cloud may have a million.
    """
    row = Instance
    query = (
        sa.select(row.id, row.host, row.metadata_, row.flavor, row.system_metadata, row.project_id)
        .where(row.host.is_not(None), row.deleted.is_(False), may_be_protected(conf))
        .where(row.id > sa.bindparam("after"))
        .order_by(row.id)
        .limit(_PAGE)
    )
    found: Counter[str] = Counter()
    after, is_last = 0, False
    while not is_last:
        page = uow.session.execute(query, {"after": after}).all()
        found.update(item.host for item in page if protection_of(conf, item).restart)
        after, is_last = (page[-1].id if page else after), len(page) < _PAGE
    return dict(found)


def record_checks(uow: UnitOfWork, host: str, checks: list[dict[str, str]]) -> None:
    """Store the results of a test of the host's fence methods."""
    row = _made(uow, host)
    row.checked_at, row.checks = uow.now, checks


def all_hosts(uow: UnitOfWork) -> list[HostFencing]:
    """Return the state of fencing of every compute host that is registered or has been tested."""
    rows = uow.session.execute(
        sa.select(Service, HostLease)
        .outerjoin(HostLease, HostLease.host == Service.host)
        .where(Service.binary == services.COMPUTE)
        .order_by(Service.host)
    ).all()
    found = []
    for service, row in rows:
        state = HostFencing(host=service.host) if row is None else to_object(row)
        if row is not None and row.boot_id != service.boot_id:
            state.armed, state.guests, state.fenced = 0.0, [], ""
        found.append(state)
    return found


def may_leave(uow: UnitOfWork, host: str, instance_uuid: str) -> bool:
    """Check whether a server of this host is off for certain, and lock the host's rows until the transaction ends."""
    service, row = services.locked(uow, host, services.COMPUTE), _locked(uow, host)
    if service is None or row is None or row.boot_id != service.boot_id:
        return False
    return (row.fenced == OFF and service.forced_down) or (row.fenced == LEASE and instance_uuid in row.guests)


def fenced_hosts(uow: UnitOfWork) -> list[HostFencing]:
    """Return the hosts that are fenced, and have not registered since."""
    query = (
        sa.select(HostLease)
        .join(Service, sa.and_(Service.host == HostLease.host, Service.binary == services.COMPUTE))
        .where(HostLease.fenced.in_((LEASE, OFF)), HostLease.boot_id == Service.boot_id)
        .order_by(HostLease.host)
    )
    return [to_object(row) for row in uow.session.scalars(query)]


def suspend(uow: UnitOfWork, minutes: int) -> int:
    """Let all hosts protect nothing for so many minutes; 0: let them protect guests again. Return the seconds of the
    longest lease that a host has.

    No conductor counts on a guest that its host has dropped, so guests continue while conductors are away.
    """
    until = uow.now + datetime.timedelta(minutes=minutes) if minutes else None
    uow.session.execute(sa.update(HostLease).values(suspended_until=until))
    return int(uow.session.scalar(sa.select(sa.func.max(HostLease.seconds))) or 0)


def still_protecting(uow: UnitOfWork) -> list[str]:
    """Return the hosts that may still stop guests when their lease ends: they have promised it, and are not lost."""
    query = (
        sa.select(HostLease.host)
        .join(Service, sa.and_(Service.host == HostLease.host, Service.binary == services.COMPUTE))
        .where(HostLease.seconds > 0, HostLease.fenced == "", HostLease.boot_id == Service.boot_id)
        .order_by(HostLease.host)
    )
    return list(uow.session.scalars(query))


def forget(uow: UnitOfWork, seconds: float) -> None:
    """Do `forget_promises`. Raise `ConfigurationError` if a conductor has reported within so many seconds."""
    connection = uow.session.connection()
    services.require_no_conductor(connection, seconds)
    forget_promises(connection)


def forget_promises(connection: sa.Connection) -> None:
    """Forget what hosts have promised, and which hosts are lost, because later commits are missing.

    In these a host may have taken its promise back or registered, so that its guests run. Evacuations that were to be
    repeated are forgotten, too: a server without a host may run at one. Each host makes its promise again with its next
    request, and a fence agent reads the power again. A host that has left, or is forced down, stays so.
    """
    lease, plan = HostLease, Restart
    is_decided = lease.fenced.in_((LEASE, OFF))
    connection.execute(sa.update(lease).values(seconds=0.0, guests=[], suspended_until=None))
    connection.execute(sa.update(lease).where(is_decided).values(fenced="", fenced_at=None, fenced_by=None))
    stays = sa.exists().where(Instance.uuid == plan.instance_uuid, Instance.host == plan.host)
    connection.execute(sa.delete(plan).where(~stays))


def to_object(row: HostLease) -> HostFencing:
    return HostFencing(
        host=row.host,
        armed=row.seconds,
        guests=row.guests,
        fenced=row.fenced,
        fenced_at=row.fenced_at,
        fenced_by=row.fenced_by,
        checked_at=row.checked_at,
        checks=row.checks,
    )


def _end_registration(uow: UnitOfWork, service: Service) -> None:
    """Let the host register again before it serves. Its name stays bound to the same machine."""
    bound = service.identity_epoch == service.epoch
    service.epoch += 1
    if bound:
        service.identity_epoch = service.epoch
    if service.up:
        service.up = False
    service.updated_at = uow.now
    compute_nodes.touch_all(uow, service)
