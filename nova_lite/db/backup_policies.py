"""Backup policies, their targets, and whether they are met."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.backups import schedule
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db import models, quotas, server_backups
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.models import BackupPolicy as Row
from nova_lite.db.models import Instance, InstanceTag
from nova_lite.db.rows import to_object, values_of
from nova_lite.objects import BackupEngine, BackupPolicy, BackupStatus, PolicyStatus, ServerBackup, ServerProtection
from nova_lite.objects.backup import Every
from nova_lite.objects.replication import SiteRole
from nova_lite.operations import states

#: Columns that a request sets.
CHANGEABLE = (
    *("name", "enabled", "every", "minute", "hour", "weekday", "keep_hourly", "keep_daily", "keep_weekly"),
    *("not_before", "not_after", "servers", "tags", "all_servers", "volumes"),
)
#: Statuses of a backup that exists, or is being made.
_CURRENT = (BackupStatus.COMPLETE, BackupStatus.STORING, BackupStatus.RUNNING)
#: States of servers without a disk that changes. A shelved server has its image.
_WITHOUT_DISK = (states.BUILDING, states.SHELVED, states.SHELVED_OFFLOADED, states.SOFT_DELETED)
#: Time within which backups that a user has requested have to begin.
RUN_WINDOW = datetime.timedelta(hours=1)


# --- for the API and operators


def list_(
    uow: UnitOfWork, context: RequestContext, all_projects: bool, limit: int | None, marker: str | None = None
) -> list[BackupPolicy]:
    """Return the project's policies; with ``all_projects`` and for an admin, all policies. Raises `MarkerNotFound`."""
    query = sa.select(Row).order_by(Row.id)
    if not (all_projects and context.is_admin):
        query = query.where(Row.project_id == context.project_id)
    if marker is not None:
        last = _find(uow, context, marker)
        if last is None:
            raise exceptions.MarkerNotFound(marker=marker)
        query = query.where(Row.id > last.id)
    return [_object(row) for row in uow.session.scalars(query.limit(limit))]


def get(uow: UnitOfWork, context: RequestContext, policy_id: str) -> BackupPolicy:
    """Return a policy by uuid. Raises `BackupPolicyNotFound`, also for another project's, except for an admin."""
    return _object(_visible(uow, context, policy_id))


def create(uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, policy: BackupPolicy) -> BackupPolicy:
    """Create a policy of the context's project and user. Raises `InvalidInput` or `QuotaExceeded`."""
    if not context.project_id:
        raise exceptions.Forbidden("A backup policy belongs to a project; this token is for none.")
    schedule.check(policy)
    policy.volumes = _with_volumes(uow, policy.volumes)
    _check_servers(uow, context.project_id, policy.servers)
    _check_quota(uow, context.project_id, conf.server_backups.policies_per_project)
    row = Row(uuid=str(uuid.uuid4()), project_id=context.project_id, user_id=context.user_id or "", created_at=uow.now)
    _write(row, policy, uow.now)
    uow.session.add(row)
    uow.session.flush()
    return _object(row)


def update(uow: UnitOfWork, context: RequestContext, policy_id: str, changes: dict[str, Any]) -> BackupPolicy:
    """Change the attributes in ``changes``. Backups that wait are planned anew. Raises `InvalidInput`."""
    row = _visible(uow, context, policy_id, lock=True)
    values = {name: value for name, value in changes.items() if name in CHANGEABLE}
    policy = _object(row)
    for name, value in values.items():
        setattr(policy, name, value)
    if "volumes" in values:
        policy.volumes = _with_volumes(uow, policy.volumes)
    policy.every = Every(policy.every)
    schedule.check(policy)
    if "servers" in values:
        _check_servers(uow, row.project_id, policy.servers)
    _write(row, policy, uow.now)
    if values.keys() - {"name"}:
        row.updated_at = uow.now
        server_backups.drop_pending(uow, row.uuid)
    uow.session.flush()
    return _object(row)


def delete(uow: UnitOfWork, context: RequestContext, policy_id: str) -> None:
    """Delete a policy. Its complete backups stay."""
    row = _visible(uow, context, policy_id, lock=True)
    server_backups.drop_pending(uow, row.uuid)
    uow.session.delete(row)
    uow.session.flush()


def run(uow: UnitOfWork, context: RequestContext, policy_id: str) -> list[ServerBackup]:
    """Plan a backup of each target for now, and return the backups. They count as any other of the policy."""
    policy = _object(_visible(uow, context, policy_id, lock=True))
    now = uow.now.replace(microsecond=0)
    return [
        server_backups.plan(uow, policy, server, now, now, now + RUN_WINDOW) for server in targets(uow, policy, uow.now)
    ]


def status(uow: UnitOfWork, context: RequestContext, policy_id: str) -> PolicyStatus:
    """Return which servers the policy protects, and whether it is met."""
    return _status(uow, _object(_visible(uow, context, policy_id)))


# --- for conductors


def due(uow: UnitOfWork) -> list[str]:
    """Return the uuids of the policies whose next time has come."""
    query = sa.select(Row.uuid).where(Row.enabled.is_(True), Row.next_run_at <= uow.now).order_by(Row.next_run_at)
    return list(uow.session.scalars(query))


def plan_backups(uow: UnitOfWork, policy_id: str) -> int:
    """Plan the backups of the last time of the schedule, if no conductor has done so. Return their number.

    Earlier times that were missed are not made up.
    """
    query = sa.select(Row).where(Row.uuid == policy_id).with_for_update()
    row = uow.session.scalars(query.execution_options(populate_existing=True)).first()
    if row is None or not row.enabled or row.next_run_at is None or row.next_run_at > uow.now:
        return 0
    policy = _object(row)
    time = schedule.latest(policy, uow.now)
    row.next_run_at = schedule.following(policy, uow.now)
    end = schedule.deadline(policy, time)
    servers = targets(uow, policy, uow.now)
    for server in servers:
        spread = min(datetime.timedelta(seconds=uow.conf.server_backups.spread), (end - time) / 2)
        server_backups.plan(uow, policy, server, time, time + schedule.offset(policy.id, server.uuid, spread), end)
    uow.session.flush()
    return len(servers)


def by_id(uow: UnitOfWork, policy_id: str) -> BackupPolicy | None:
    """Return a policy of any project, or None."""
    row = uow.session.scalars(sa.select(Row).where(Row.uuid == policy_id)).first()
    return None if row is None else _object(row)


def statuses(uow: UnitOfWork) -> list[PolicyStatus]:
    """Return the status of each enabled policy."""
    query = sa.select(Row).where(Row.enabled.is_(True)).order_by(Row.id)
    return [_status(uow, _object(row)) for row in uow.session.scalars(query)]


def targets(uow: UnitOfWork, policy: BackupPolicy, until: datetime.datetime) -> Sequence[models.Instance]:
    """Return the servers of a policy that exist since ``until`` or longer.

    Servers that were never built, or that another site may run, are left out.
    """
    query = sa.select(Instance).where(
        Instance.project_id == policy.project_id,
        Instance.deleted == sa.false(),
        Instance.vm_state.not_in(_WITHOUT_DISK),
        Instance.launched_at <= until,
        sa.or_(Instance.site_role.is_(None), Instance.site_role == SiteRole.PRIMARY),
    )
    if not policy.all_servers:
        tagged = sa.select(InstanceTag.instance_id).where(InstanceTag.tag.in_(policy.tags))
        query = query.where(sa.or_(Instance.uuid.in_(policy.servers), Instance.id.in_(tagged)))
    return uow.session.scalars(query.order_by(Instance.id)).unique().all()


def _status(uow: UnitOfWork, policy: BackupPolicy) -> PolicyStatus:
    since = schedule.required(policy, uow.now) if policy.enabled else None
    newest = server_backups.newest(uow, policy.id)
    return PolicyStatus(
        policy=policy,
        servers=[_protection(server, newest.get(server.uuid, []), since) for server in targets(uow, policy, uow.now)],
        required_since=since,
    )


def _protection(
    server: models.Instance, backups: Iterable[ServerBackup], since: datetime.datetime | None
) -> ServerProtection:
    of_status = {backup.status: backup for backup in backups}
    complete, failed = of_status.get(BackupStatus.COMPLETE), of_status.get(BackupStatus.FAILED)
    current = [of_status.get(status) for status in _CURRENT]
    is_required = since is not None and server.launched_at is not None and server.launched_at <= since
    return ServerProtection(
        instance_uuid=server.uuid,
        name=server.display_name,
        is_met=not is_required or any(backup and since and backup.scheduled_for >= since for backup in current),
        complete=complete,
        failed=failed if complete is None or (failed and failed.scheduled_for > complete.scheduled_for) else None,
    )


def _with_volumes(uow: UnitOfWork, wanted: bool | None) -> bool:
    """Return whether backups contain attached volumes. None: if the engine supports that. Raises `InvalidInput`."""
    is_possible = uow.conf.server_backups.engine == BackupEngine.RESTIC
    if wanted and not is_possible:
        raise exceptions.InvalidInput(
            reason="backups of this cloud are images of root disks, without attached volumes: set volumes to false, "
            "or ask the operator for [server_backups] engine = restic"
        )
    return is_possible if wanted is None else wanted


def _write(row: Row, policy: BackupPolicy, now: datetime.datetime) -> None:
    values = values_of(policy, Row)
    for name in CHANGEABLE:
        setattr(row, name, values[name])
    row.next_run_at = schedule.following(policy, now) if policy.enabled else None


def _object(row: Row) -> BackupPolicy:
    return to_object(BackupPolicy, row, id=row.uuid, every=Every(row.every))


def _visible(uow: UnitOfWork, context: RequestContext, policy_id: str, lock: bool = False) -> Row:
    row = _find(uow, context, policy_id, lock)
    if row is None:
        raise exceptions.BackupPolicyNotFound(policy_id=policy_id)
    return row


def _find(uow: UnitOfWork, context: RequestContext, policy_id: str, lock: bool = False) -> Row | None:
    query = sa.select(Row).where(Row.uuid == policy_id)
    if not context.is_admin:
        query = query.where(Row.project_id == context.project_id)
    return uow.session.scalars(query.with_for_update() if lock else query).first()


def _check_servers(uow: UnitOfWork, project_id: str, servers: Sequence[str]) -> None:
    query = sa.select(Instance.uuid).where(
        Instance.project_id == project_id, Instance.deleted == sa.false(), Instance.uuid.in_(servers)
    )
    if missing := sorted(set(servers) - set(uow.session.scalars(query))):
        raise exceptions.InvalidInput(reason=f"the project has no server {missing[0]}")


def _check_quota(uow: UnitOfWork, project_id: str, limit: int) -> None:
    if limit < 0:
        return
    quotas.lock(uow, project_id)
    used = uow.session.scalar(sa.select(sa.func.count()).where(Row.project_id == project_id)) or 0
    if used >= limit:
        raise exceptions.QuotaExceeded(overs="backup_policies", requested=1, used=used, allowed=limit)
