"""Aggregates: create and change them, and apply the changes to their hosts.

A change that matters to hosts locks their services, then their nodes, like a host's own report.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db.core import rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Aggregate as Row
from nova_lite.db.core.models import AggregateHost, Instance, Service
from nova_lite.db.core.statements import by_reference
from nova_lite.db.hosts import host_aggregates, hosts, services
from nova_lite.db.hosts.host_aggregates import ZONE
from nova_lite.objects import Aggregate

#: Longest zone name that its columns store. A ``:`` separates the zone from a forced host.
_MAX_LENGTH = 255


def list_(uow: UnitOfWork) -> list[Aggregate]:
    return _to_objects(uow, uow.session.scalars(sa.select(Row).order_by(Row.id)).all())


def get(uow: UnitOfWork, aggregate_id: str) -> Aggregate:
    """Return the aggregate with this number, uuid, or name."""
    return _to_objects(uow, [_row(uow, aggregate_id)])[0]


def create(uow: UnitOfWork, name: str, availability_zone: str | None = None) -> Aggregate:
    """Create an aggregate. Raises `AggregateNameExists`."""
    metadata = {} if availability_zone is None else {ZONE: availability_zone}
    _check(name, metadata)
    row = Row(uuid=str(uuid.uuid4()), name=name, metadata_=metadata, created_at=uow.now)
    rows.insert(uow, row, exceptions.AggregateNameExists(aggregate_name=name))
    return _to_objects(uow, [row])[0]


def rename(uow: UnitOfWork, conf: cfg.ConfigOpts, aggregate_id: str, changes: dict[str, str | None]) -> Aggregate:
    """Change ``name`` and ``availability_zone`` (None removes the zone)."""
    unknown = sorted(set(changes) - {"name", ZONE})
    if unknown:
        raise exceptions.InvalidInput(reason=f"{', '.join(unknown)} of an aggregate cannot be changed")
    row = _row(uow, aggregate_id, lock=True)
    name = changes.get("name")
    if name is not None and name != row.name:
        _check(name, {})
        row.name = name
        rows.insert(uow, row, exceptions.AggregateNameExists(aggregate_name=name))
    if ZONE in changes:
        _change_metadata(uow, conf, row, {ZONE: changes[ZONE]}, "update aggregate")
    row.updated_at = uow.now
    _refresh(uow, conf, _host_names(uow, row.id))
    return _to_objects(uow, [row])[0]


def set_metadata(
    uow: UnitOfWork, conf: cfg.ConfigOpts, aggregate_id: str, metadata: dict[str, str | None]
) -> Aggregate:
    """Add or change these keys. A value of None removes its key."""
    row = _row(uow, aggregate_id, lock=True)
    _change_metadata(uow, conf, row, metadata, "update aggregate metadata")
    row.updated_at = uow.now
    _refresh(uow, conf, _host_names(uow, row.id))
    return _to_objects(uow, [row])[0]


def delete(uow: UnitOfWork, aggregate_id: str) -> None:
    """Delete an aggregate. Raises `InvalidAggregateAction` while it has hosts."""
    row = _row(uow, aggregate_id, lock=True)
    if _host_names(uow, row.id):
        raise exceptions.InvalidAggregateAction(action="delete", aggregate_id=row.id, reason="it still has hosts")
    uow.session.delete(row)
    uow.session.flush()


def add_host(uow: UnitOfWork, conf: cfg.ConfigOpts, aggregate_id: str, host: str) -> Aggregate:
    """Add a host to an aggregate. Raises `HostNotFound` for a host that never reported. Raises `InvalidAggregateAction`
    if the host is in another zone, or has servers and would change its zone.
    """
    row = _row(uow, aggregate_id, lock=True)
    if services.locked(uow, host, services.COMPUTE) is None:
        raise exceptions.HostNotFound(host=host)
    if host in _host_names(uow, row.id):
        raise exceptions.AggregateHostExists(aggregate_id=row.id, host=host)
    _check_zone(uow, conf, row, row.metadata_.get(ZONE), [host], "add_host_to_aggregate")
    uow.session.add(AggregateHost(aggregate_id=row.id, host=host))
    row.updated_at = uow.now
    uow.session.flush()
    _refresh(uow, conf, [host])
    return _to_objects(uow, [row])[0]


def remove_host(uow: UnitOfWork, conf: cfg.ConfigOpts, aggregate_id: str, host: str) -> Aggregate:
    row = _row(uow, aggregate_id, lock=True)
    mine = (AggregateHost.aggregate_id == row.id, AggregateHost.host == host)
    if uow.session.scalars(sa.select(AggregateHost.host).where(*mine)).first() is None:
        raise exceptions.AggregateHostNotFound(aggregate_id=row.id, host=host)
    if row.metadata_.get(ZONE):
        _check_no_servers(uow, conf, row, [host], conf.compute.default_availability_zone, "remove_host_from_aggregate")
    uow.session.execute(sa.delete(AggregateHost).where(*mine))
    row.updated_at = uow.now
    uow.session.flush()
    _refresh(uow, conf, [host])
    return _to_objects(uow, [row])[0]


def _change_metadata(
    uow: UnitOfWork, conf: cfg.ConfigOpts, row: Row, changes: dict[str, str | None], action: str
) -> None:
    host_aggregates.check_numbers(changes)
    after = {**row.metadata_, **changes}
    metadata = {key: value for key, value in after.items() if value is not None}
    _check(row.name, metadata)
    if metadata.get(ZONE) != row.metadata_.get(ZONE):
        _check_zone(uow, conf, row, metadata.get(ZONE), _host_names(uow, row.id), action)
    row.metadata_ = metadata
    uow.session.flush()


def _check(name: str, metadata: dict[str, str]) -> None:
    if not name.strip() or len(name) > _MAX_LENGTH:
        raise exceptions.InvalidInput(reason=f"an aggregate's name has 1 to {_MAX_LENGTH} characters")
    for key, value in metadata.items():
        if not key or max(len(key), len(value)) > _MAX_LENGTH:
            raise exceptions.InvalidInput(reason=f"metadata keys and values have at most {_MAX_LENGTH} characters")
    zone = metadata.get(ZONE)
    if zone is not None and (not zone or ":" in zone or zone == services.INTERNAL_ZONE):
        raise exceptions.InvalidInput(reason=f"{zone!r} cannot be the name of an availability zone")


def _check_zone(
    uow: UnitOfWork, conf: cfg.ConfigOpts, row: Row, zone: str | None, names: Sequence[str], action: str
) -> None:
    """Check that every host may join ``zone`` by this aggregate."""
    for host, aggregates in host_aggregates.of_hosts(uow, names).items():
        other = host_aggregates.zone([aggregate for aggregate in aggregates if aggregate.id != row.id])
        if zone is not None and other not in (None, zone):
            raise exceptions.InvalidAggregateAction(
                action=action, aggregate_id=row.id, reason=f"host {host} is already in zone {other}"
            )
    if zone is not None or row.metadata_.get(ZONE):
        _check_no_servers(uow, conf, row, names, zone or conf.compute.default_availability_zone, action)


def _check_no_servers(
    uow: UnitOfWork, conf: cfg.ConfigOpts, row: Row, names: Sequence[str], zone: str, action: str
) -> None:
    """Raise `InvalidAggregateAction` if a host with servers would change its zone."""
    moved = sa.select(Service.host).where(
        Service.host.in_(names), Service.binary == services.COMPUTE, Service.availability_zone != zone
    )
    query = sa.select(Instance.host).where(Instance.host.in_(moved), Instance.deleted == sa.false())
    host = uow.session.scalars(query.limit(1)).first()
    if host is not None:
        raise exceptions.InvalidAggregateAction(
            action=action, aggregate_id=row.id, reason=f"host {host} has servers, whose zone would change"
        )


def _refresh(uow: UnitOfWork, conf: cfg.ConfigOpts, names: Sequence[str]) -> None:
    for host in sorted(names):
        hosts.apply_aggregates(uow, conf, host)


def _row(uow: UnitOfWork, reference: str, lock: bool = False) -> Row:
    row = by_reference(uow, Row, reference, lock, Row.name)
    if row is None:
        raise exceptions.AggregateNotFound(aggregate_id=reference)
    return row


def _host_names(uow: UnitOfWork, aggregate_id: int) -> list[str]:
    query = sa.select(AggregateHost.host).where(AggregateHost.aggregate_id == aggregate_id)
    return list(uow.session.scalars(query.order_by(AggregateHost.host)))


def _to_objects(uow: UnitOfWork, found: Sequence[Row]) -> list[Aggregate]:
    query = sa.select(AggregateHost.aggregate_id, AggregateHost.host).order_by(AggregateHost.host)
    names: dict[int, list[str]] = {}
    for number, host in uow.session.execute(query.where(AggregateHost.aggregate_id.in_([row.id for row in found]))):
        names.setdefault(number, []).append(host)
    return [
        rows.to_object(
            Aggregate,
            row,
            availability_zone=row.metadata_.get(ZONE),
            hosts=names.get(row.id, []),
            metadata=row.metadata_,
        )
        for row in found
    ]
