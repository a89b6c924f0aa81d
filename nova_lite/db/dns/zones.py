"""Zones, and the quotas of projects."""

from __future__ import annotations

import time
import uuid
from typing import Any

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core import quotas, rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import DnsRecordSet, QuotaLimit
from nova_lite.db.core.models import DnsZone as Row
from nova_lite.dns import objects, records
from nova_lite.dns.objects import ACTIVE, CREATE, DELETE, LIMITS, NONE, PENDING, UPDATE, DnsQuery, Page, Zone

#: Beginning of the names of limits, in the table of all limits.
_PREFIX = "dns_"


def list_(uow: UnitOfWork, context: RequestContext, query: DnsQuery) -> Page[Zone]:
    """Return a page of the caller's zones."""
    wanted = sa.select(Row).where(mine(context, Row.project_id, query.everybody))
    return objects.page([rows.to_object(Zone, row) for row in uow.session.scalars(wanted)], query)


def get(uow: UnitOfWork, context: RequestContext, zone_id: str) -> Zone:
    return rows.to_object(Zone, find(uow, context, zone_id))


def mine(context: RequestContext, column: Any, everybody: bool = False) -> Any:
    """Build the condition of rows of the caller's project; with ``everybody`` and for an admin, of all rows."""
    return sa.true() if everybody and context.is_admin else column == (context.project_id or "")


def find(uow: UnitOfWork, context: RequestContext, zone_id: str, lock: bool = False) -> Row:
    """Return the row of a zone, for a change locked. Raises a 404, except for an admin also for another project's."""
    row = uow.session.get(Row, zone_id, with_for_update=lock, populate_existing=True)
    if row is None or not (context.is_admin or row.project_id == context.project_id):
        raise exceptions.NotFound(f"Could not find Zone {zone_id[:64]}")
    if lock and row.action == DELETE:
        raise exceptions.Conflict(f"Zone {row.name} is being deleted.")
    return row


def create(uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, zone: Zone) -> Zone:
    """Create a zone under the id that the caller chose, with its SOA and NS records.

    Raises `Conflict` if it exists, or if it is in a zone of another project or above one. Raises `QuotaExceeded`.
    """
    records.check_zone(zone.name)
    records.check_email(zone.email)
    # Zones come one by one, so that no two projects get overlapping ones.
    quotas.lock_all(uow, ["", zone.project_id])
    _check_free(uow, zone)
    used = uow.session.scalar(sa.select(sa.func.count(Row.id)).where(Row.project_id == zone.project_id)) or 0
    check_quota(uow, zone.project_id, "zones", used + 1)
    serial = int(time.time())
    row = Row(**(rows.values_of(zone, Row) | {"serial": serial, "created_at": uow.now, "updated_at": None}))
    uow.session.add(row)
    uow.session.flush()
    own = [("SOA", [records.soa(rows.to_object(Zone, row), conf.dns.name_servers)]), ("NS", conf.dns.name_servers)]
    for kind, texts in own:
        if texts:
            values = {"name": row.name, "type": kind, "records": texts, "status": ACTIVE, "action": NONE}
            ids = {"id": str(uuid.uuid4()), "zone_id": row.id, "project_id": row.project_id}
            uow.session.add(DnsRecordSet(**ids, **values, managed=True, version=1, created_at=uow.now))
    uow.session.flush()
    return rows.to_object(Zone, row)


def _check_free(uow: UnitOfWork, zone: Zone) -> None:
    labels = zone.name.split(".")
    above = [".".join(labels[place:]) for place in range(len(labels) - 1)]
    below = "%." + zone.name.replace("_", "/_")
    related = sa.or_(Row.name.in_(above), Row.name.like(below, escape="/"))
    for name, project_id in uow.session.execute(sa.select(Row.name, Row.project_id).where(related)):
        if name == zone.name:
            raise exceptions.Conflict(f"Duplicate Zone: {name} exists already.")
        if project_id != zone.project_id:
            what = "is in a zone of another project" if len(name) < len(zone.name) else "has zones of another project"
            raise exceptions.Conflict(f"Zone {zone.name} {what}.")


def update(
    uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, zone_id: str, changes: dict[str, Any]
) -> Zone:
    """Change ``email``, ``ttl`` and ``description``. With another TTL, records without one are sent again."""
    row = find(uow, context, zone_id, lock=True)
    if "email" in changes:
        records.check_email(changes["email"])
    if changes.get("ttl", row.ttl) != row.ttl:
        theirs = (DnsRecordSet.zone_id == row.id, DnsRecordSet.ttl.is_(None), DnsRecordSet.action == NONE)
        own = DnsRecordSet.type.in_(("SOA", "NS")) & DnsRecordSet.managed
        again = {"status": PENDING, "action": UPDATE, "version": DnsRecordSet.version + 1}
        uow.change(sa.update(DnsRecordSet).where(*theirs, ~own).values(**again))
    for name in changes.keys() & {"email", "ttl", "description"}:
        setattr(row, name, changes[name])
    touch(uow, conf, row)
    return rows.to_object(Zone, row)


def touch(uow: UnitOfWork, conf: cfg.ConfigOpts, row: Row, action: str = UPDATE) -> None:
    """Give a zone a new serial number, since it changes."""
    row.serial = max(row.serial + 1, int(time.time()))
    row.version += 1
    row.updated_at = uow.now
    row.status, row.action = PENDING, row.action if action == UPDATE and row.action == CREATE else action
    uow.session.flush()
    text = records.soa(rows.to_object(Zone, row), conf.dns.name_servers)
    of_zone = (DnsRecordSet.zone_id == row.id, DnsRecordSet.type == "SOA")
    uow.change(sa.update(DnsRecordSet).where(*of_zone).values(records=[text]))


def delete(uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, zone_id: str) -> Zone:
    """Delete a zone with all its record sets, once the name server has none of them."""
    row = find(uow, context, zone_id, lock=True)
    mine_ = DnsRecordSet.zone_id == row.id
    uow.change(sa.delete(DnsRecordSet).where(mine_, DnsRecordSet.managed, DnsRecordSet.type.in_(("SOA", "NS"))))
    gone = {"status": PENDING, "action": DELETE, "version": DnsRecordSet.version + 1}
    uow.change(sa.update(DnsRecordSet).where(mine_).values(**gone))
    touch(uow, conf, row, DELETE)
    return rows.to_object(Zone, row)


# --- quotas


def limits(uow: UnitOfWork, project_id: str) -> dict[str, int]:
    """Return the limits of a project, by Designate's names; -1: unlimited."""
    query = sa.select(QuotaLimit.resource, QuotaLimit.limit).where(QuotaLimit.project_id == project_id)
    own = dict(uow.session.execute(query.where(QuotaLimit.resource.like(f"{_PREFIX}%"))).tuples().all())
    return {name: own.get(_PREFIX + name, default) for name, default in LIMITS.items()}


def set_limits(uow: UnitOfWork, project_id: str, changes: dict[str, int | None]) -> dict[str, int]:
    """Set limits; None: the default again."""
    for name, limit in sorted(changes.items()):
        uow.change(
            sa.delete(QuotaLimit).where(QuotaLimit.project_id == project_id, QuotaLimit.resource == _PREFIX + name)
        )
        if limit is not None:
            uow.session.add(QuotaLimit(project_id=project_id, resource=_PREFIX + name, limit=limit))
            uow.session.flush()
    return limits(uow, project_id)


def check_quota(uow: UnitOfWork, project_id: str, name: str, wanted: int) -> None:
    """Raise `QuotaExceeded` if a project would have more than its limit."""
    limit = limits(uow, project_id)[name]
    if 0 <= limit < wanted:
        raise exceptions.QuotaExceeded(overs=name, requested=1, used=wanted - 1, allowed=limit)
