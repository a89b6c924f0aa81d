"""Migrations: resizes, evacuations and other moves of servers, with the status that their steps set."""

from __future__ import annotations

import datetime
import uuid
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy import orm

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core import paging
from nova_lite.db.core.engine import Time, UnitOfWork
from nova_lite.db.core.models import ComputeNode, Instance, Migration
from nova_lite.db.core.rows import to_object
from nova_lite.db.servers.claims import Place
from nova_lite.objects import Flavor, MigrationFilters, ServerMigration
from nova_lite.operations import states
from nova_lite.operations.migration_states import (
    ACCEPTED,
    COMPLETED,
    CONFIRMED,
    CONFIRMING,
    ERROR,
    EVACUATION,
    FAILED,
    FINISHED,
    LIVE_IN_PROGRESS,
    LIVE_MIGRATION,
    OPEN,
    PRE_MIGRATING,
    REVERTING,
)


def begin(
    uow: UnitOfWork, context: RequestContext, instance: Instance, kind: str, source: Place, new_flavor: Flavor
) -> Migration:
    """Create the row of an accepted migration."""
    row = Migration(
        uuid=str(uuid.uuid4()),
        instance_uuid=instance.uuid,
        migration_type=kind,
        status=PRE_MIGRATING,
        user_id=context.user_id,
        project_id=context.project_id,
        source=source.described(),
        source_host=source.host,
        old_flavor=instance.flavor,
        new_flavor=msgspec.to_builtins(new_flavor),
        vm_state=instance.vm_state,
        created_at=uow.now,
        updated_at=uow.now,
    )
    uow.session.add(row)
    return row


def begin_evacuation(
    uow: UnitOfWork, context: RequestContext, instance: Instance, source: Place, target: str | None
) -> Migration:
    """Create the row of an accepted evacuation. ``target``: the requested host."""
    row = begin(uow, context, instance, EVACUATION, source, msgspec.convert(instance.flavor, Flavor))
    row.status, row.destination_host = ACCEPTED, target
    return row


def all_open(uow: UnitOfWork, instance_uuid: str) -> list[Migration]:
    """Return the open migrations and evacuations of an instance, newest first."""
    query = sa.select(Migration).where(Migration.instance_uuid == instance_uuid, Migration.status.in_(OPEN))
    return list(uow.session.scalars(query.order_by(Migration.id.desc())))


def current(uow: UnitOfWork, instance_uuid: str) -> Migration | None:
    """Return the open migration of an instance, if there is one. An evacuation is none."""
    return next((row for row in all_open(uow, instance_uuid) if row.migration_type != EVACUATION), None)


def evacuation(uow: UnitOfWork, instance_uuid: str) -> Migration | None:
    """Return the open evacuation of an instance, if there is one."""
    return next((row for row in all_open(uow, instance_uuid) if row.migration_type == EVACUATION), None)


def set_status(uow: UnitOfWork, row: Migration, status: str) -> None:
    row.status, row.updated_at = status, uow.now


def set_destination(uow: UnitOfWork, row: Migration, place: Place) -> None:
    """Store the claimed destination."""
    row.destination, row.destination_host = place.described(), place.host
    query = sa.select(ComputeNode.inventory).where(ComputeNode.host == place.host, ComputeNode.node == place.node)
    row.destination_ip = (uow.session.scalar(query) or {}).get("host_ip")


def end_with_instance(uow: UnitOfWork, instance_uuid: str) -> None:
    """Close the migrations of a deleted instance. A finished one counts as confirmed."""
    for row in all_open(uow, instance_uuid):
        failed = FAILED if row.migration_type == EVACUATION else ERROR
        set_status(uow, row, CONFIRMED if row.status in (FINISHED, CONFIRMING, REVERTING) else failed)


def unconfirmed(uow: UnitOfWork, seconds: int, most: int) -> list[str]:
    """Return the uuids of instances whose move has waited longer for its owner's decision, oldest first."""
    until = uow.now - datetime.timedelta(seconds=seconds)
    query = sa.select(Instance.uuid).where(*waiting(until)).order_by(Migration.updated_at)
    return list(uow.session.scalars(query.limit(most)))


def waiting(since: Time) -> tuple[sa.ColumnElement[bool], ...]:
    """Build the conditions "waits for its owner's decision since then"."""
    moved = (Migration.instance_uuid == Instance.uuid, Migration.status == FINISHED, Migration.updated_at <= since)
    idle = (Instance.vm_state == states.RESIZED, Instance.task_state.is_(None), Instance.deleted == sa.false())
    return *moved, *idle


def ends(row: Migration) -> dict[str, Any]:
    """Return source and destination as keys of an action's payload."""
    return {"source": row.source, "destination": row.destination}


# --- reading


def list_(
    uow: UnitOfWork, filters: MigrationFilters, limit: int | None = None, marker: str | None = None
) -> list[ServerMigration]:
    """Return migrations in pages, newest first. ``marker``: uuid of the last one of the previous page."""
    query = sa.select(Migration)
    for name, column in _EXACT.items():
        if (wanted := getattr(filters, name)) is not None:
            query = query.where(column.in_(wanted))
    if filters.host is not None:
        host = filters.host
        query = query.where(sa.or_(Migration.source_host.in_(host), Migration.destination_host.in_(host)))
    if filters.changes_since is not None:
        query = query.where(Migration.updated_at >= filters.changes_since)
    if filters.changes_before is not None:
        query = query.where(Migration.updated_at <= filters.changes_before)
    order = paging.Order({"created_at": Migration.created_at}, ["created_at"], ["desc"], tie_breaker=Migration.id)
    start = paging.start(marker, lambda name: _by_uuid(uow, name))
    return [_to_object(row) for row in uow.session.scalars(order.page(query, start, limit))]


def in_progress(uow: UnitOfWork, instance_uuid: str) -> list[ServerMigration]:
    """Return the live migrations of an instance that are in progress."""
    query = sa.select(Migration).where(
        Migration.instance_uuid == instance_uuid,
        Migration.migration_type == LIVE_MIGRATION,
        Migration.status.in_(LIVE_IN_PROGRESS),
    )
    return [_to_object(row) for row in uow.session.scalars(query.order_by(Migration.id))]


def newest_id(uow: UnitOfWork) -> int:
    """Return the id of the newest migration of all; 0 for none."""
    return uow.session.scalar(sa.select(sa.func.max(Migration.id))) or 0


class Left(NamedTuple):
    """A server that has left a host. ``is_open``: it still moves from or to the host, or waits to be confirmed."""

    uuid: str
    name: str
    host: str | None
    is_open: bool


def left_host(uow: UnitOfWork, host: str, after: int) -> list[Left]:
    """Return the servers whose newest migration that has not failed is from the host, and later than ``after``.

    Evacuations do not count.
    """
    newest = sa.select(sa.func.max(Migration.id)).where(
        Migration.id > after,
        Migration.status.in_((*OPEN, CONFIRMED, COMPLETED)),
        Migration.migration_type != EVACUATION,
    )
    returns = sa.and_(Migration.destination_host == host, Migration.status.in_(OPEN))
    query = (
        sa.select(Migration.status, Instance.uuid, Instance.display_name, Instance.host)
        .join(Instance, Instance.uuid == Migration.instance_uuid)
        .where(Migration.id.in_(newest.group_by(Migration.instance_uuid)))
        .where(sa.or_(Migration.source_host == host, returns), Instance.deleted.is_(False))
        .order_by(Migration.id)
    )
    found = [Left(uuid, name, now, status in OPEN) for status, uuid, name, now in uow.session.execute(query)]
    return [server for server in found if server.is_open or server.host not in (None, host)]


def get(uow: UnitOfWork, instance_uuid: str, migration_id: int) -> ServerMigration:
    """Return a migration of an instance, of any kind and status. Raises `MigrationNotFound`."""
    row = uow.session.get(Migration, migration_id)
    if row is None or row.instance_uuid != instance_uuid:
        raise exceptions.MigrationNotFound(migration_id=migration_id, instance_id=instance_uuid)
    return _to_object(row)


_EXACT: dict[str, orm.InstrumentedAttribute[Any]] = {
    "instance_uuid": Migration.instance_uuid,
    "status": Migration.status,
    "migration_type": Migration.migration_type,
    "source_compute": Migration.source_host,
    "user_id": Migration.user_id,
    "project_id": Migration.project_id,
}


def _by_uuid(uow: UnitOfWork, migration_uuid: str) -> Migration | None:
    return uow.session.scalars(sa.select(Migration).where(Migration.uuid == migration_uuid)).first()


def _to_object(row: Migration) -> ServerMigration:
    destination = row.destination or {}
    return to_object(
        ServerMigration,
        row,
        source_compute=row.source_host,
        source_node=row.source["node"],
        dest_compute=row.destination_host,
        dest_node=destination.get("node"),
        dest_host=row.destination_ip,
        old_flavor_id=row.old_flavor["id"],
        new_flavor_id=row.new_flavor["id"],
        progress=row.progress or {},
    )
