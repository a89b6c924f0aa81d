"""RPC methods of running live migrations: their progress, and the user's control of them.

The user's request is stored with the action. The source reports its progress about every second, and gets that request
as the reply.
"""

from __future__ import annotations

import datetime

from oslo_config import cfg

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.context import action_for_command
from nova_lite.db.core import actions
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.models import Instance, InstanceAction, Migration
from nova_lite.db.servers import instances, server_migrations
from nova_lite.objects import MigrationControl, MigrationProgress
from nova_lite.operations import migration_states, states

KIND = operations.LIVE_MIGRATE.kind

#: Fields of `MigrationProgress`: ``<kind>_<part>``.
_PROGRESS_KINDS = ("memory", "disk")
_PROGRESS_PARTS = ("total", "processed", "remaining")


class LiveMigrationEndpoints:
    """RPC methods for the source host and the API."""

    def __init__(self, db: Database, conf: cfg.ConfigOpts) -> None:
        self.db = db
        self.conf = conf

    def live_migration_progress(
        self, context: RequestContext, host: str, action_id: int, sequence: int, progress: MigrationProgress
    ) -> MigrationControl:
        return self.db.write(self._progress, host, action_id, sequence, progress)

    def _progress(
        self, uow: UnitOfWork, host: str, action_id: int, sequence: int, progress: MigrationProgress
    ) -> MigrationControl:
        """Record the progress. A migration that the conductor no longer waits for is to be aborted."""
        ctx = action_for_command(uow, host, action_id, sequence)
        row = None if ctx is None else server_migrations.current(uow, ctx.instance.uuid)
        if ctx is None or row is None:
            return MigrationControl.ABORT
        values = {
            f"{kind}_{part}_bytes": getattr(progress, f"{kind}_{part}")
            for kind in _PROGRESS_KINDS
            for part in _PROGRESS_PARTS
        }
        server_migrations.set_status(uow, row, migration_states.QUEUED if progress.queued else migration_states.RUNNING)
        row.progress = {**(row.progress or {}), **values}
        row.updated_at = uow.now
        total, remaining = progress.memory_total, progress.memory_remaining
        ctx.instance.progress = 0 if not total else max(0, min(100, 100 - 100 * remaining // total))
        seconds = self.conf.conductor.live_migration_deadline
        ctx.action.deadline = max(ctx.action.deadline, uow.now + datetime.timedelta(seconds=seconds))
        actions.extend(uow, self.conf, ctx.action, seconds)
        return MigrationControl(ctx.action.payload.get("wish", MigrationControl.CONTINUE))

    def live_migration_abort(
        self, context: RequestContext, instance_uuid: str, migration_id: int, early: bool = False
    ) -> None:
        self.db.write(self._abort, context, instance_uuid, migration_id, early)

    def _abort(
        self, uow: UnitOfWork, context: RequestContext, instance_uuid: str, migration_id: int, early: bool
    ) -> None:
        instance, action = _running_migration(uow, context, instance_uuid, "abort live migration")
        row = _migration(uow, instance, migration_id)
        if row is None:
            raise exceptions.MigrationNotFoundForInstance(migration_id=migration_id, instance_id=instance_uuid)
        allowed = [migration_states.RUNNING]
        if early:
            allowed += [migration_states.QUEUED, migration_states.PREPARING]
        _require(row, allowed, "abort live migration")
        action.payload = {**action.payload, "wish": MigrationControl.ABORT.value}
        row.progress = {**(row.progress or {}), "aborted": 1}

    def live_migration_force_complete(self, context: RequestContext, instance_uuid: str, migration_id: int) -> None:
        self.db.write(self._force_complete, context, instance_uuid, migration_id)

    def _force_complete(self, uow: UnitOfWork, context: RequestContext, instance_uuid: str, migration_id: int) -> None:
        instance, action = _running_migration(uow, context, instance_uuid, "force_complete")
        if instance.locked and not context.is_admin:
            raise exceptions.InstanceIsLocked(instance_id=instance_uuid)
        if instance.vm_state != states.ACTIVE:
            raise exceptions.InstanceInvalidState(
                method="force_complete", instance_id=instance_uuid, attr="vm_state", state=instance.vm_state
            )
        row = _migration(uow, instance, migration_id)
        if row is None:
            raise exceptions.MigrationNotThere(migration_id=migration_id, instance_id=instance_uuid)
        _require(row, [migration_states.RUNNING], "force complete")
        if action.payload.get("wish") is None:
            action.payload = {**action.payload, "wish": MigrationControl.FORCE_COMPLETE.value}


def _running_migration(
    uow: UnitOfWork, context: RequestContext, instance_uuid: str, method: str
) -> tuple[Instance, InstanceAction]:
    """Return the instance and its running live migration. Raises a 404 or a 409."""
    instance = instances.get_row(uow, context, instance_uuid, lock=True)
    action = actions.find_open(uow, instance_uuid, KIND)
    if action is None or instance.task_state != states.MIGRATING:
        raise exceptions.InstanceInvalidState(
            method=method, instance_id=instance_uuid, attr="task_state", state=instance.task_state
        )
    return instance, action


def _migration(uow: UnitOfWork, instance: Instance, migration_id: int) -> Migration | None:
    row = uow.session.get(Migration, migration_id)
    return None if row is None or row.instance_uuid != instance.uuid else row


def _require(row: Migration, allowed: list[str], method: str) -> None:
    live = row.migration_type == migration_states.LIVE_MIGRATION
    if not live or row.status not in allowed:
        raise exceptions.InvalidMigrationState(
            migration_id=row.id,
            instance_uuid=row.instance_uuid,
            state=row.status if live else row.migration_type,
            method=method,
        )
