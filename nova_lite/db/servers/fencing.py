"""Decides which fencing records of a host are settled, so that the host may remove them."""

from __future__ import annotations

import datetime

import sqlalchemy as sa

from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import InstanceAction, PurgedInstance
from nova_lite.db.servers import claims, instances
from nova_lite.objects import SettledRecords


def settled(uow: UnitOfWork, host: str, instance_uuids: list[str]) -> SettledRecords:
    """Return the instances whose record ``host`` may remove.

    An instance is settled if all its actions are closed, and neither its host nor a claim is ``host``. A deleted one is
    settled without a claim, a purged one always. An instance in no row may be of another database, or of lost commits:
    its record stays. So does a record whose actions were purged, while no later action shows how high their ids were.
    """
    newest = uow.rows(
        sa.select(InstanceAction.id, InstanceAction.start_time).order_by(InstanceAction.id.desc()).limit(1)
    )
    last_action_id, last_started = newest.one_or_none() or (0, datetime.datetime.min)
    rows = instances.rows_by_uuid(uow, instance_uuids)
    claimed_here = claims.of_instances(uow, rows, host)
    elsewhere = {
        row.uuid for row in rows.values() if row.uuid not in claimed_here and (row.deleted or row.host != host)
    }
    closed = (
        sa.select(InstanceAction.instance_uuid)
        .where(InstanceAction.instance_uuid.in_(elsewhere), InstanceAction.id <= last_action_id)
        .group_by(InstanceAction.instance_uuid)
        .having(sa.func.count() == sa.func.count(InstanceAction.finish_time))
    )
    purged = sa.select(PurgedInstance.uuid).where(
        PurgedInstance.uuid.in_(set(instance_uuids) - rows.keys()), PurgedInstance.purged_at < last_started
    )
    found = {*uow.session.scalars(closed), *uow.session.scalars(purged)}
    return SettledRecords(instance_uuids=sorted(found), last_action_id=last_action_id)
