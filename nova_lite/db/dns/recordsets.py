"""Record sets of users, and names of the addresses of floating addresses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions, ip
from nova_lite.base.context import RequestContext
from nova_lite.db.core import rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import DnsRecordSet as Row
from nova_lite.db.core.models import DnsZone
from nova_lite.db.dns import zones
from nova_lite.db.network import floating_ips
from nova_lite.dns import objects, records
from nova_lite.dns.objects import CREATE, DELETE, NONE, PENDING, UPDATE, DnsQuery, Page, RecordSet, Zone
from nova_lite.objects import FloatingIp, ListQuery

QUERY: Any = sa.select(Row, DnsZone.name, DnsZone.ttl).outerjoin(DnsZone, DnsZone.id == Row.zone_id)


def to_objects(uow: UnitOfWork, query: sa.Select[Any]) -> list[RecordSet]:
    return [
        rows.to_object(RecordSet, row, zone_name=name or "", **({} if ttl is None else {"zone_ttl": ttl}))
        for row, name, ttl in uow.session.execute(query.execution_options(populate_existing=True))
    ]


def list_(uow: UnitOfWork, context: RequestContext, query: DnsQuery, zone_id: str | None = None) -> Page[RecordSet]:
    """Return a page of a zone's record sets, or of those of all zones of the caller. Raises a 404."""
    if zone_id is None:
        theirs = zones.mine(context, Row.project_id, query.everybody) & Row.zone_id.is_not(None)
    else:
        theirs = Row.zone_id == zones.find(uow, context, zone_id).id
    return objects.page(to_objects(uow, QUERY.where(theirs)), query)


def get(uow: UnitOfWork, context: RequestContext, zone_id: str, recordset_id: str) -> RecordSet:
    zones.find(uow, context, zone_id)
    return _one(uow, zone_id, recordset_id)


def _one(uow: UnitOfWork, zone_id: str, recordset_id: str) -> RecordSet:
    for found in to_objects(uow, QUERY.where(Row.zone_id == zone_id, Row.id == recordset_id)):
        return found
    raise exceptions.NotFound(f"Could not find RecordSet {recordset_id[:64]}")


def create(uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, recordset: RecordSet) -> RecordSet:
    """Create a record set under the id that the caller chose. Its project is that of its zone.

    Raises a 400, `Conflict` for a second set of the name and type, or `QuotaExceeded`.
    """
    zone = zones.find(uow, context, recordset.zone_id or "", lock=True)
    records.check_in_zone(recordset, rows.to_object(Zone, zone))
    records.check_records(recordset.type, recordset.records)
    present = types_at(uow, zone.id, recordset.name)
    if recordset.type in present:
        raise exceptions.Conflict(f"Duplicate RecordSet: {recordset.name} has records of type {recordset.type}.")
    if present and "CNAME" in (*present, recordset.type):
        raise exceptions.ValidationError(detail=f"{recordset.name} has a CNAME record, and then no others.")
    below = _zone_below(uow, zone, recordset.name)
    if below is not None:
        raise exceptions.ValidationError(detail=f"RecordSet belongs in a child zone: {below}")
    _check_room(uow, zone, recordset.records, new=True)
    values = rows.values_of(recordset, Row) | {"project_id": zone.project_id, "status": PENDING, "action": CREATE}
    uow.session.add(Row(**(values | {"created_at": uow.now, "updated_at": None, "managed": False, "version": 1})))
    zones.touch(uow, conf, zone)
    return _one(uow, zone.id, recordset.id)


def types_at(uow: UnitOfWork, zone_id: str, name: str) -> set[str]:
    """Return the types of the record sets of a name."""
    return set(uow.session.scalars(sa.select(Row.type).where(Row.zone_id == zone_id, Row.name == name)))


def _zone_below(uow: UnitOfWork, zone: DnsZone, name: str) -> str | None:
    """Return a zone that is in this one and has the name."""
    labels = name.removesuffix(zone.name).split(".")
    names = [".".join(labels[place:]) + zone.name for place in range(len(labels) - 1)]
    return uow.session.scalars(sa.select(DnsZone.name).where(DnsZone.name.in_(names))).first()


def _check_room(uow: UnitOfWork, zone: DnsZone, texts: list[str], new: bool, replaced: int = 0) -> None:
    sets = list(uow.session.scalars(sa.select(Row.records).where(Row.zone_id == zone.id, ~Row.managed)))
    zones.check_quota(uow, zone.project_id, "recordset_records", len(texts))
    zones.check_quota(uow, zone.project_id, "zone_recordsets", len(sets) + new)
    zones.check_quota(uow, zone.project_id, "zone_records", sum(map(len, sets)) - replaced + len(texts))


def update(
    uow: UnitOfWork,
    conf: cfg.ConfigOpts,
    context: RequestContext,
    zone_id: str,
    recordset_id: str,
    changes: dict[str, Any],
) -> RecordSet:
    """Change ``records``, ``ttl`` and ``description``."""
    zone, row = _changeable(uow, context, zone_id, recordset_id)
    if "records" in changes:
        records.check_records(row.type, changes["records"])
        _check_room(uow, zone, changes["records"], new=False, replaced=len(row.records))
    for name in changes.keys() & {"records", "ttl", "description"}:
        setattr(row, name, changes[name])
    set_pending(uow, row, row.action if row.action == CREATE else UPDATE)
    zones.touch(uow, conf, zone)
    return _one(uow, zone.id, row.id)


def delete(
    uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, zone_id: str, recordset_id: str
) -> RecordSet:
    """Delete a record set, once the name server has it no more."""
    zone, row = _changeable(uow, context, zone_id, recordset_id)
    set_pending(uow, row, DELETE)
    zones.touch(uow, conf, zone)
    return _one(uow, zone.id, row.id)


def _changeable(uow: UnitOfWork, context: RequestContext, zone_id: str, recordset_id: str) -> tuple[DnsZone, Row]:
    """Return a zone and a record set of it, locked. Raises a 404, a 400 if no user changes it, or `Conflict`."""
    zone = zones.find(uow, context, zone_id, lock=True)
    row = uow.session.get(Row, recordset_id, with_for_update=True, populate_existing=True)
    if row is None or row.zone_id != zone.id:
        raise exceptions.NotFound(f"Could not find RecordSet {recordset_id[:64]}")
    if row.managed:
        raise exceptions.ValidationError(detail="Managed records may not be updated or deleted.")
    if row.action == DELETE:
        raise exceptions.Conflict(f"RecordSet {row.name} is being deleted.")
    return zone, row


def set_pending(uow: UnitOfWork, row: Row, action: str) -> None:
    row.status, row.action = PENDING, action
    row.version += 1
    row.updated_at = uow.now
    uow.session.flush()


# --- names of the addresses of floating addresses


def pointers(uow: UnitOfWork, context: RequestContext, ids: list[str] | None = None) -> list[RecordSet]:
    """Return a record set for each floating address of the project, which has no records without a name.

    ``ids``: of these. Raises a 404.
    """
    query = ListQuery(filters={} if ids is None else {"id": ids})
    addresses = floating_ips.list_(uow, context, False, query)
    if ids is not None and len(addresses) < len(ids):
        raise exceptions.NotFound(f"Could not find FloatingIP {ids[0][:64]}")
    known = {item.id: item for item in to_objects(uow, QUERY.where(Row.id.in_([address.id for address in addresses])))}
    return [_pointer(address, known.get(address.id)) for address in addresses]


def _pointer(address: FloatingIp, known: RecordSet | None) -> RecordSet:
    found = known or RecordSet(
        id=address.id, project_id=address.project_id, name="", type="PTR", records=[], status="ACTIVE", action=NONE
    )
    found.address = address.address
    return found


def set_pointer(
    uow: UnitOfWork,
    context: RequestContext,
    floating_ip_id: str,
    name: str | None,
    ttl: int | None = None,
    description: str | None = None,
) -> RecordSet:
    """Name the address of a floating address of the project; None: it has no name. Raises a 400 or 404."""
    (found,) = pointers(uow, context, [floating_ip_id])
    if name is not None:
        records.check_name(name)
    row = uow.session.get(Row, floating_ip_id, with_for_update=True, populate_existing=True)
    if row is None and name is not None:
        ids = {"id": floating_ip_id, "project_id": found.project_id, "type": "PTR", "managed": True}
        row = Row(**ids, name=f"{ip.parse(found.address).reverse_pointer}.", version=0, created_at=uow.now)
        uow.session.add(row)
    if row is not None:
        row.project_id = found.project_id
        row.ttl, row.description, row.records = ttl, description, row.records if name is None else [name]
        set_pending(uow, row, DELETE if name is None else UPDATE)
    return pointers(uow, context, [floating_ip_id])[0]


def forget(uow: UnitOfWork, row_ids: Iterable[str]) -> None:
    """Let the records of addresses that no project has any more be deleted."""
    for row_id in row_ids:
        if (row := uow.session.get(Row, row_id, with_for_update=True)) is not None and row.action != DELETE:
            set_pending(uow, row, DELETE)
