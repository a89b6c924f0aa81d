"""Usage by project in a period. Deleted instances keep the times that it is computed from."""

from __future__ import annotations

import datetime
from typing import Any

import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance as Row
from nova_lite.objects import InstanceUsage


def list_(
    uow: UnitOfWork,
    context: RequestContext,
    project_id: str | None,
    start: datetime.datetime,
    end: datetime.datetime,
    limit: int | None = None,
    marker: str | None = None,
) -> list[InstanceUsage]:
    """Return the instances that ran in the period, by project and uuid. ``project_id`` None: of all projects, for an
    admin.

    ``marker``: uuid of the last one of the previous page, else `MarkerNotFound`. An instance that was never launched
    used nothing.
    """
    if project_id is None and not context.is_admin:
        project_id = context.project_id
    query = sa.select(
        Row.uuid,
        Row.display_name,
        Row.project_id,
        Row.flavor,
        Row.vcpus,
        Row.memory_mb,
        Row.vm_state,
        Row.launched_at,
        Row.terminated_at,
    ).where(Row.launched_at < end, sa.or_(Row.terminated_at.is_(None), Row.terminated_at > start))
    if project_id is not None:
        query = query.where(Row.project_id == project_id)
    if marker is not None:
        query = query.where(_after(uow, project_id, marker))
    # An expression, so that SQLite does not sort by an index on the project and read all rows.
    query = query.order_by(Row.project_id.concat(""), Row.uuid)
    rows = uow.session.execute(query if limit is None else query.limit(limit))
    return [_usage(row, start, end, uow.now) for row in rows]


def _after(uow: UnitOfWork, project_id: str | None, marker: str) -> sa.ColumnElement[bool]:
    last = uow.session.scalars(sa.select(Row.project_id).where(Row.uuid == marker)).first()
    if last is None or project_id not in (None, last):
        raise exceptions.MarkerNotFound(marker=marker)
    return sa.or_(Row.project_id > last, sa.and_(Row.project_id == last, Row.uuid > marker))


def _usage(row: Any, start: datetime.datetime, end: datetime.datetime, now: datetime.datetime) -> InstanceUsage:
    """Return an instance's usage. A running instance counts to the end of the period, even in the future."""
    until = end if row.terminated_at is None else min(end, row.terminated_at)
    there = until - max(start, row.launched_at)
    return InstanceUsage(
        uuid=row.uuid,
        name=row.display_name,
        project_id=row.project_id,
        flavor=row.flavor["name"],
        vcpus=row.vcpus,
        memory_mb=row.memory_mb,
        local_gb=row.flavor["root_gb"] + row.flavor.get("ephemeral_gb", 0),
        hours=max(there.total_seconds(), 0.0) / 3600,
        vm_state=row.vm_state,
        started_at=row.launched_at,
        ended_at=row.terminated_at,
        uptime=int(((row.terminated_at or now) - row.launched_at).total_seconds()),
    )
