"""Services: the daemons, whether they are alive, and whether they may serve.

Locks are taken service first, node second.
"""

from __future__ import annotations

import datetime
import functools
import uuid
from typing import Any

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db.core import actions
from nova_lite.db.core.engine import Time, UnitOfWork, later
from nova_lite.db.core.models import HostHealth, HostLease, HostLoad, HostStorage, Service, UnknownDomains
from nova_lite.db.core.rows import to_object
from nova_lite.db.core.statements import by_reference, insert_if_missing
from nova_lite.db.hosts import compute_nodes
from nova_lite.objects import AvailabilityZone
from nova_lite.objects import Service as ServiceObject

#: Nova's names, which clients show and match.
COMPUTE = "nova-compute"
CONDUCTOR = "nova-conductor"
INTERNAL_ZONE = "internal"


def report(uow: UnitOfWork, host: str, binary: str, topic: str, version: str) -> None:
    """Store the heartbeat of a daemon other than a compute host."""
    known_to_clients = binary.replace("nova-lite-", "nova-", 1)
    report_alive(uow, host, known_to_clients, topic, version, INTERNAL_ZONE)


def report_alive(
    uow: UnitOfWork,
    host: str,
    binary: str,
    topic: str,
    version: str,
    zone: str,
    serving: bool = True,
    able: bool = True,
) -> tuple[Service, bool]:
    """Update a service's row, and return it locked with whether it counted as down until now.

    ``serving``: False keeps its state, up or down. ``able``: False sets it down, as its hypervisor does not answer.
    """
    service = locked(uow, host, binary)
    if service is None:
        insert_if_missing(
            uow,
            Service,
            {
                "uuid": str(uuid.uuid4()),
                "host": host,
                "binary": binary,
                "topic": topic,
                "version": version,
                "version_since": uow.now,
                "up": serving and able,
                "availability_zone": zone,
                "last_seen_up": uow.now,
                "created_at": uow.now,
            },
        )
        service = locked(uow, host, binary)
        assert service is not None
    service.last_seen_up = uow.now
    if service.version != version:
        service.version_since = uow.now
    if (service.topic, service.version, service.availability_zone) != (topic, version, zone):
        service.topic, service.version, service.availability_zone = topic, version, zone
        compute_nodes.touch_all(uow, service)
    came_up = serving and able and not service.up and not service.forced_down
    if came_up or (service.up and not able):
        service.up = came_up
        compute_nodes.touch_all(uow, service)
    return service, came_up


def pin(uow: UnitOfWork, host: str, identity: str) -> None:
    """Bind the compute host's name to this machine's identity. An empty identity binds nothing."""
    service = locked(uow, host, COMPUTE)
    if service is not None and identity:
        service.identity, service.identity_epoch = identity, service.epoch


def find(uow: UnitOfWork, host: str, binary: str) -> Service | None:
    return uow.session.scalars(sa.select(Service).where(Service.host == host, Service.binary == binary)).first()


def locked(uow: UnitOfWork, host: str, binary: str) -> Service | None:
    return uow.session.scalars(_LOCKED, {"host": host, "binary": binary}).first()


_LOCKED = (
    sa.select(Service)
    .where(Service.host == sa.bindparam("host"), Service.binary == sa.bindparam("binary"))
    .with_for_update()
    .execution_options(populate_existing=True)
)


def hears_hosts(uow: UnitOfWork, seconds: float) -> bool:
    """Check whether any compute host has reported within so many seconds."""
    return uow.rows(_reported_within(seconds), {}).first() is not None


@functools.cache
def _reported_within(seconds: float) -> sa.Select[Any]:
    query = sa.select(Service.id).where(Service.binary == COMPUTE, Service.up.is_(True), Service.forced_down.is_(False))
    return query.where(Service.last_seen_up >= later(-seconds)).limit(1)


def require_no_conductor(connection: sa.Connection, seconds: float) -> None:
    """Raise `ConfigurationError` if a conductor has reported within so many seconds: it acts on what it has read."""
    query = sa.select(Service.host).where(Service.binary == CONDUCTOR, Service.last_seen_up > later(-seconds))
    host = connection.scalar(query.limit(1))
    if host is not None:
        raise exceptions.ConfigurationError(
            reason=f"the conductor of {host} has reported in the last {seconds:.0f} s. Stop all conductors. If hosts "
            "fence themselves, first run: nova-lite-manage host fence --suspend 60"
        )


def is_first(uow: UnitOfWork, binary: str, host: str) -> bool:
    """Check whether that daemon is the oldest of its kind that is up. It does the work that one daemon suffices for."""
    return bool(uow.rows(_FIRST, {"binary": binary}).scalar() == host)


_FIRST = (
    sa.select(Service.host)
    .where(Service.binary == sa.bindparam("binary"), Service.up.is_(True))
    .order_by(Service.id)
    .limit(1)
)


def seconds_silent(uow: UnitOfWork, service: Service) -> float:
    """Return the seconds since the last accepted heartbeat; a huge number if there was none."""
    return float("inf") if service.last_seen_up is None else (uow.now - service.last_seen_up).total_seconds()


def is_silent(since: Time) -> tuple[sa.ColumnElement[bool], ...]:
    """Build the conditions "counts as up, but has not reported since then"."""
    return Service.up.is_(True), Service.last_seen_up < since


def silent_before(uow: UnitOfWork, conf: cfg.ConfigOpts, newest: datetime.datetime) -> datetime.datetime:
    """Return the time before which a silent daemon has reported last. ``newest``: time of the newest report of others.

    Another daemon must have reported at the end of ``service_down_time``, or up to half an interval earlier. When the
    broker stops, last reports are up to an interval apart, or two if ``service_down_time`` allows for a lost one. So no
    daemon counts as silent then. While the broker works, others report once an interval: a daemon counts as silent at
    most half an interval late.
    """
    down = uow.now - datetime.timedelta(seconds=conf.service_down_time)
    return min(down, newest - datetime.timedelta(seconds=conf.service_down_time - conf.report_interval / 2))


def expire(uow: UnitOfWork, conf: cfg.ConfigOpts) -> list[str]:
    """Set services whose lease lapsed down. Returns the names of the compute hosts among them.

    The search takes no lock: MariaDB would lock each examined row, and wait for all heartbeats in progress.
    """
    newest = uow.session.scalar(sa.select(sa.func.max(Service.last_seen_up)))
    if newest is None:
        return []
    lapsed = is_silent(silent_before(uow, conf, newest))
    found = uow.session.scalars(sa.select(Service.id).where(*lapsed).order_by(Service.id)).all()
    if not found:
        return []
    silent = uow.session.scalars(
        sa.select(Service).where(Service.id.in_(found), *lapsed).order_by(Service.id).with_for_update()
    ).all()
    for service in silent:
        service.up = False
        compute_nodes.touch_all(uow, service)
    return sorted(service.host for service in silent if service.binary == COMPUTE)


# --- for the API


def list_(uow: UnitOfWork, host: str | None = None, binary: str | None = None) -> list[ServiceObject]:
    query = sa.select(Service).order_by(Service.id)
    if host is not None:
        query = query.where(Service.host == host)
    if binary is not None:
        query = query.where(Service.binary == binary)
    return [to_object(ServiceObject, row) for row in uow.session.scalars(query)]


def update(uow: UnitOfWork, service_id: str, changes: dict[str, Any]) -> ServiceObject:
    """Change ``disabled``, ``disabled_reason``, ``forced_down``.

    Enabling clears the reason. Forcing down raises the epoch: earlier work of the host no longer counts, and waiting
    actions are reconsidered at once. A compute host that is no longer forced down is up again once it has registered.
    """
    unknown = sorted(set(changes) - {"disabled", "disabled_reason", "forced_down"})
    if unknown:
        raise exceptions.InvalidInput(reason=f"{', '.join(unknown)} of a service cannot be changed")
    service = _service(uow, service_id)
    before = (service.up, service.disabled, service.forced_down)
    if "disabled" in changes:
        service.disabled = bool(changes["disabled"])
        service.disabled_reason = None
    if changes.get("disabled_reason") is not None:
        service.disabled_reason = changes["disabled_reason"]
    if "forced_down" in changes:
        if changes["forced_down"] and not service.forced_down:
            _end(uow, service)
        service.forced_down = bool(changes["forced_down"])
    service.updated_at = uow.now
    if (service.up, service.disabled, service.forced_down) != before:
        compute_nodes.touch_all(uow, service)
    return to_object(ServiceObject, service)


def force_down(uow: UnitOfWork, service: Service) -> None:
    """Record that nothing runs on a host, as `update` does. ``service``: its row, locked."""
    _end(uow, service)
    service.forced_down = True
    service.updated_at = uow.now
    compute_nodes.touch_all(uow, service)


def _end(uow: UnitOfWork, service: Service) -> None:
    """End the host's registration, and reconsider waiting actions."""
    service.epoch += 1
    service.up = False
    actions.make_due(uow, service.host)


def delete(uow: UnitOfWork, service_id: str) -> None:
    """Delete a daemon, and a host's nodes with it. Raises `ServiceInUse` while the host has instances."""
    service = _service(uow, service_id)
    if service.binary == COMPUTE:
        compute_nodes.delete_of(uow, service)
        for model in (HostHealth, HostLease, HostLoad, HostStorage, UnknownDomains):
            uow.change(sa.delete(model).where(model.host == service.host))
    uow.session.delete(service)
    uow.session.flush()


def get(uow: UnitOfWork, service_id: str) -> ServiceObject:
    """Return a daemon by its number or uuid. Raises `ServiceNotFound`."""
    return to_object(ServiceObject, _service(uow, service_id))


def _service(uow: UnitOfWork, service_id: str) -> Service:
    row = by_reference(uow, Service, service_id, lock=True)
    if row is None:
        raise exceptions.ServiceNotFound(service_id=service_id)
    return row


def zone_exists(uow: UnitOfWork, zone: str) -> bool:
    """Check whether an enabled service makes it a zone for instances."""
    query = sa.select(Service.id).where(Service.availability_zone == zone, Service.disabled.is_(False))
    return zone != INTERNAL_ZONE and uow.session.scalars(query).first() is not None


def zone_of(uow: UnitOfWork, host: str) -> str | None:
    """Return the zone of a compute host."""
    query = sa.select(Service.availability_zone).where(Service.host == host, Service.binary == "nova-compute")
    return uow.session.scalar(query)


def availability_zones(uow: UnitOfWork) -> list[AvailabilityZone]:
    """Return the zones by name. A zone is available when any service in it is enabled."""
    zones: dict[str, AvailabilityZone] = {}
    for service in list_(uow):
        name = service.availability_zone
        zone = zones.setdefault(name, AvailabilityZone(name=name, available=False))
        zone.available = zone.available or not service.disabled
        zone.hosts.setdefault(service.host, []).append(service)
    return [zones[name] for name in sorted(zones)]
