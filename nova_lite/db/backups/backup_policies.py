"""Backup policies, their targets, and whether they are met."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.backups import schedule
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.backups import server_backups
from nova_lite.db.core import models, quotas
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import BackupPolicy as Row
from nova_lite.db.core.models import Instance, InstanceTag
from nova_lite.db.core.rows import to_object, values_of
from nova_lite.objects import BackupEngine, BackupPolicy, BackupStatus, PolicyStatus, ServerBackup, ServerProtection
from nova_lite.objects.backup import Every
from nova_lite.objects.replication import SiteRole
from nova_lite.operations import states

#: Columns that a request sets.
CHANGEABLE = (
    "name", "enabled", "every", "minute", "hour", "weekday", "keep_hourly", "keep_daily", "keep_weekly", "not_before",
    "not_after", "servers", "tags", "all_servers", "volumes", "locked_days",
)  # fmt: skip
#: States of servers without a disk that changes. A shelved server has its image.
_WITHOUT_DISK = (states.BUILDING, states.SHELVED, states.SHELVED_OFFLOADED, states.SOFT_DELETED)
#: Time within which backups that a user has requested have to begin.
RUN_WINDOW = datetime.timedelta(hours=1)
#: Time in which a backup that is still being made fulfils its policy: from its deadline until its upload ends, and from
#: then until its data are in the repository. Servers that begin last in their window need some. A repository that is
#: full or hangs takes longer, and is to be noticed before the next backup begins.
OVERTIME = datetime.timedelta(hours=1)


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
    _check_lock(uow, policy.locked_days)
    _check_servers(uow, context.project_id, policy.servers)
    _check_quota(uow, context.project_id, conf.server_backups.policies_per_project)
    row = Row(uuid=str(uuid.uuid4()), project_id=context.project_id, user_id=context.user_id or "", created_at=uow.now)
    _write(row, policy, uow.now)
    uow.session.add(row)
    uow.session.flush()
    return _object(row)


def update(uow: UnitOfWork, context: RequestContext, policy_id: str, changes: dict[str, Any]) -> BackupPolicy:
    """Change the attributes in ``changes``. Backups that wait are planned again. Raises `InvalidInput`."""
    row = _visible(uow, context, policy_id, lock=True)
    values = {name: value for name, value in changes.items() if name in CHANGEABLE}
    policy = _object(row)
    for name, value in values.items():
        setattr(policy, name, value)
    if "volumes" in values:
        policy.volumes = _with_volumes(uow, policy.volumes)
    if "locked_days" in values:
        _check_lock(uow, policy.locked_days)
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
    """Plan a backup of each target for now, and return the backups. They count as any other of the policy.

    A target whose backup by this policy waits or is being made gets no second one. A backup that waits for its moment
    may begin at once.
    """
    policy = _object(_visible(uow, context, policy_id, lock=True))
    now = uow.now.replace(microsecond=0)
    found = server_backups.hastened(uow, policy.id)
    return [
        found.get(server.uuid) or server_backups.plan(uow, policy, server, now, now, now + RUN_WINDOW)
        for server in targets(uow, policy, uow.now)
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
    uploads = server_backups.oldest_uploads(uow, policy.id)
    servers = []
    for server in targets(uow, policy, uow.now):
        backups = {backup.status: backup for backup in newest.get(server.uuid, [])}
        is_required = since is not None and server.launched_at is not None and server.launched_at <= since
        is_met = since is None or not is_required or _is_met(backups, uploads.get(server.uuid), since, uow.now)
        servers.append(_protection(server, backups, is_met))
    return PolicyStatus(policy=policy, servers=servers, required_since=since)


def _is_met(
    newest: Mapping[BackupStatus, ServerBackup],
    uploaded_at: datetime.datetime | None,
    since: datetime.datetime,
    now: datetime.datetime,
) -> bool:
    """Return whether a server has a backup of ``since`` or later, or is about to have it.

    ``newest``: its newest backup of each status. ``uploaded_at``: when the oldest data arrived that are not in the
    repository yet. After a failure, and while old data wait, only a complete backup counts: a repository that is full
    or hangs would else be noticed only between two backups.
    """
    complete, failed = newest.get(BackupStatus.COMPLETE), newest.get(BackupStatus.FAILED)
    if complete is not None and complete.scheduled_for >= since:
        return True
    if _is_newer(failed, complete) or (uploaded_at is not None and uploaded_at + OVERTIME <= now):
        return False
    storing, running = newest.get(BackupStatus.STORING), newest.get(BackupStatus.RUNNING)
    if storing is not None and storing.scheduled_for >= since:
        return True
    return running is not None and running.scheduled_for >= since and now < running.deadline + OVERTIME


def _protection(server: models.Instance, newest: Mapping[BackupStatus, ServerBackup], is_met: bool) -> ServerProtection:
    complete, failed = newest.get(BackupStatus.COMPLETE), newest.get(BackupStatus.FAILED)
    return ServerProtection(
        instance_uuid=server.uuid,
        name=server.display_name,
        is_met=is_met,
        complete=complete,
        failed=failed if _is_newer(failed, complete) else None,
    )


def _is_newer(failed: ServerBackup | None, complete: ServerBackup | None) -> bool:
    return failed is not None and (complete is None or failed.scheduled_for > complete.scheduled_for)


def _with_volumes(uow: UnitOfWork, wanted: bool | None) -> bool:
    """Return whether backups contain attached volumes. None: if the engine supports that. Raises `InvalidInput`."""
    is_possible = uow.conf.server_backups.engine == BackupEngine.RESTIC
    if wanted and not is_possible:
        raise exceptions.InvalidInput(
            reason="backups of this cloud are images of root disks, without attached volumes: set volumes to false, "
            "or ask the operator for [server_backups] engine = restic"
        )
    return is_possible if wanted is None else wanted


def _check_lock(uow: UnitOfWork, days: int) -> None:
    """Raise `InvalidInput` unless backups can be locked for so many days."""
    options = uow.conf.server_backups
    if days and options.engine != BackupEngine.RESTIC:
        raise exceptions.InvalidInput(
            reason="backups of this cloud are images, which their owner can delete: set locked_days to 0, or ask the "
            "operator for [server_backups] engine = restic"
        )
    if days > options.max_locked_days:
        raise exceptions.InvalidInput(reason=f"locked_days is at most {options.max_locked_days} in this cloud")


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
