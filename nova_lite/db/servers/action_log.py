"""Reads the action log. `nova_lite.db.core.actions` writes it."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa
from sqlalchemy import orm

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core import models
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.rows import to_object
from nova_lite.db.servers import instances
from nova_lite.objects import InstanceAction, InstanceActionEvent


def list_(uow: UnitOfWork, context: RequestContext, instance_uuid: str) -> list[InstanceAction]:
    """Return the actions of an instance, newest first, without their events. The instance may be deleted."""
    instances.get_row(uow, context, instance_uuid, deleted=True)
    query = sa.select(models.InstanceAction).where(models.InstanceAction.instance_uuid == instance_uuid)
    found = uow.session.scalars(query.order_by(models.InstanceAction.id.desc()))
    return [to_object(InstanceAction, row, events=[]) for row in found]


def count_open(uow: UnitOfWork) -> dict[str, int]:
    """Return the number of open actions of each kind."""
    action = models.InstanceAction
    query = sa.select(action.action, sa.func.count()).where(action.finish_time.is_(None)).group_by(action.action)
    return dict(uow.session.execute(query).tuples().all())


def get(uow: UnitOfWork, context: RequestContext, instance_uuid: str, request_id: str) -> InstanceAction:
    """Return one action with its events, first to last."""
    instances.get_row(uow, context, instance_uuid, deleted=True)
    row = uow.session.scalars(
        sa.select(models.InstanceAction)
        .where(models.InstanceAction.instance_uuid == instance_uuid, models.InstanceAction.request_id == request_id)
        .order_by(models.InstanceAction.id.desc())
        .options(orm.selectinload(models.InstanceAction.earlier_events))
    ).first()
    if row is None:
        raise exceptions.InstanceActionNotFound(request_id=request_id, instance_id=instance_uuid)
    events = [to_object(InstanceActionEvent, event) for event in row.earlier_events]
    return to_object(InstanceAction, row, events=events + msgspec.convert(row.events or [], list[InstanceActionEvent]))
