"""Servers with a replica at another site: their rows, and their roles at this site.

The journal of sites (`nova_lite.backups.site_journal`) defines which site may run a server. A row follows it. Each
change happens under the locks of the instance and of the row, and only from the role and generation that it follows.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import sqlalchemy as sa

from nova_lite import objects
from nova_lite.backups.site_journal import Reason, SiteGeneration, SiteServer
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.base.ids import derived_id
from nova_lite.db.backups import backup_policies, server_backups
from nova_lite.db.core import actions, models
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance, InstanceAction
from nova_lite.db.core.models import ReplicatedServer as Row
from nova_lite.db.core.rows import to_object
from nova_lite.db.hosts import hosts
from nova_lite.db.servers import claims, instances
from nova_lite.objects import BackupEngine, BackupPolicy, BackupStatus, ServerBackup
from nova_lite.objects.block_device import root_volume
from nova_lite.objects.replication import ReplicatedServer, SiteRole
from nova_lite.operations import states
from nova_lite.operations.states import PowerState

#: Time until a step that has failed is tried again.
RETRY = datetime.timedelta(minutes=1)
#: Time within which the last backup of a server that leaves has to begin.
BACKUP_WINDOW = datetime.timedelta(hours=1)
#: Most characters of a reason.
_REASON = 1000
_NAMESPACE = uuid.UUID("0d6c7c0e-6d0b-4f0a-8b8e-54b1d2a0c2f4")
_GONE = sa.select(Instance.uuid).where(Instance.deleted.is_(True))


class Locked(NamedTuple):
    """A replicated server and its instance, both locked."""

    row: Row
    instance: Instance


# --- for operators


def list_(uow: UnitOfWork) -> list[ReplicatedServer]:
    """Return the replicated servers of this site that are not deleted."""
    query = sa.select(Row, Instance.site_role).join(Instance, Instance.uuid == Row.instance_uuid)
    found = uow.session.execute(query.where(Instance.deleted.is_(False)).order_by(Row.instance_uuid))
    return [_object(row, role) for row, role in found]


def get(uow: UnitOfWork, instance_uuid: str) -> ReplicatedServer:
    """Return a replicated server. Raises `InvalidInput`."""
    found = next((server for server in list_(uow) if server.instance_uuid == instance_uuid), None)
    if found is None:
        raise exceptions.InvalidInput(reason=f"server {instance_uuid} is not replicated")
    return found


def check(uow: UnitOfWork, context: RequestContext, instance_uuid: str, policy_id: str, off: bool) -> None:
    """Check that a server can be replicated. ``off``: it has to be off. Raises `InvalidInput`, or a 404."""
    instance = instances.get_row(uow, context, instance_uuid)
    reason = ""
    policy = backup_policies.get(uow, context, policy_id)
    if instance.site_role is not None:
        reason = "it is replicated already"
    elif policy.project_id != instance.project_id:
        reason = "the policy is of another project"
    elif not policy.enabled or instance.uuid not in {row.uuid for row in backup_policies.targets(uow, policy, uow.now)}:
        reason = "the policy is disabled, or does not back this server up"
    elif uow.conf.server_backups.engine != BackupEngine.RESTIC:
        reason = "[server_backups] engine is not restic"
    elif root_volume(instances.to_object(uow, instance).block_devices) is not None:
        reason = "it boots from a volume, which is no part of a backup"
    elif instance.vm_state not in ((states.STOPPED,) if off else (states.ACTIVE, states.STOPPED)):
        reason = f"it is {instance.vm_state}"
    elif instance.task_state is not None or _last_failed(uow, instance):
        reason = "an operation runs, or the last one has failed: start or stop the server first"
    if reason:
        raise exceptions.InvalidInput(reason=f"server {instance_uuid} cannot be replicated: {reason}")


def insert(
    uow: UnitOfWork,
    context: RequestContext,
    instance_uuid: str,
    server_id: str,
    policy_id: str,
    role: SiteRole,
    generation: int,
    known: Sequence[ServerBackup] | None = None,
) -> None:
    """Make a server a replicated one. Raises as `check`.

    ``known``: last backups of a generation that the journal had before. Earlier backups of the site may be of another
    line, so only later ones are published. In a new journal, backups count since the server's disk was last built.
    """
    instance = instances.get_row(uow, context, instance_uuid, lock=True)
    check(uow, context, instance_uuid, policy_id, off=role is SiteRole.REPLICA)
    forget_deleted(uow, server_id)
    has = uow.session.scalar(sa.select(Row.instance_uuid).where(Row.server_id == server_id))
    if has is not None:
        raise exceptions.InvalidInput(
            reason=f"this site has server {has} for it already. Disable the replication of {has} first."
        )
    uow.session.add(
        Row(
            instance_uuid=instance.uuid,
            server_id=server_id,
            policy_id=policy_id,
            generation=generation,
            backups=[],
            published=known[-1].id if known else None,
            since=instance.launched_at if known is None else uow.now,
            updated_at=uow.now,
        )
    )
    instance.site_role = role
    uow.session.flush()


def leave(uow: UnitOfWork, instance_uuid: str) -> None:
    """Begin a planned failover. From now on, nothing starts the server here. Raises `InvalidInput`."""
    found = _locked(uow, instance_uuid)
    if found is None or found.instance.site_role != SiteRole.PRIMARY:
        raise exceptions.InvalidInput(reason=f"server {instance_uuid} is not the primary of its replica")
    if found.instance.task_state is not None or found.instance.vm_state not in (states.ACTIVE, states.STOPPED):
        state = found.instance.task_state or found.instance.vm_state
        raise exceptions.InvalidInput(reason=f"server {instance_uuid} is {state}: it has to be active or stopped")
    require_policy(uow, found.row.policy_id)
    found.instance.site_role = SiteRole.LEAVING
    found.row.backup_id, found.row.reason, found.row.updated_at = None, None, uow.now
    uow.session.flush()


def remove(uow: UnitOfWork, instance_uuid: str) -> None:
    """Make a replicated server an ordinary one. Raises `InvalidInput`."""
    found = _locked(uow, instance_uuid)
    if found is None:
        raise exceptions.InvalidInput(reason=f"server {instance_uuid} is not replicated")
    if found.instance.site_role == SiteRole.LEAVING:  # a conductor may be about to hand it over
        raise exceptions.InvalidInput(reason=f"server {instance_uuid} is leaving: roll the failover back first")
    uow.session.delete(found.row)
    found.instance.site_role = None
    uow.session.flush()


# --- for conductors


def right_of(uow: UnitOfWork, instance_uuid: str) -> ReplicatedServer | None:
    """Return a replicated server; None: the server is not replicated."""
    query = sa.select(Row, Instance.site_role).join(Instance, Instance.uuid == Row.instance_uuid)
    found = uow.session.execute(query.where(Row.instance_uuid == instance_uuid)).first()
    return None if found is None else _object(*found)


def backups_of(uow: UnitOfWork, backup_id: str) -> list[ServerBackup]:
    """Return a backup with its bases, the whole one first."""
    return server_backups.chain(uow, backup_id)


def instance_of(uow: UnitOfWork, server: ReplicatedServer) -> objects.Instance:
    """Return the server as the other daemons know it. Raises `InstanceNotFound`."""
    return instances.to_object(uow, instances.get_row(uow, get_admin_context(), server.instance_uuid))


def learn(uow: UnitOfWork, instance_uuid: str, site: str, newest: SiteGeneration, is_here: bool) -> None:
    """Record a newer generation of the journal, and what it makes of the server at this ``site``.

    ``is_here``: the site has its disk, so nothing is restored. It kept the server, or its database has forgotten much.
    """
    found = _locked(uow, instance_uuid)
    if found is None or found.row.generation >= newest.number:
        return
    row, instance = found
    is_next = newest.number == row.generation + 1
    row.generation, row.updated_at, row.reason = newest.number, uow.now, None
    # The next site begins with these backups until others are published, so their data stay.
    row.published = newest.backups[-1].id if newest.backups else None
    row.backup_id = row.action_id = row.image_id = None
    row.backups = []
    if newest.site != site:
        instance.site_role = SiteRole.REPLICA
    elif is_here:
        instance.site_role = SiteRole.PRIMARY
        # Backups of generations that this site has missed may be of another line.
        if not is_next or newest.reason is not Reason.ROLLED_BACK:
            row.since = uow.now
    else:
        instance.site_role = SiteRole.ARRIVING
        row.backups = [msgspec.to_builtins(backup) for backup in newest.backups]
        # A journal that was made again counts from 1 again, and its images differ by their backup.
        last = newest.backups[-1].id if newest.backups else ""
        row.image_id = derived_id(_NAMESPACE, f"{row.server_id}/{newest.number}/{last}")
    uow.session.flush()


def keep(uow: UnitOfWork, server: ReplicatedServer) -> None:
    """Make an arriving server the primary with the disk that it has: it was rebuilt, and the database forgot that."""
    found = in_role(uow, server, SiteRole.ARRIVING)
    if found is not None:
        _has_arrived(uow, found)


def adopt(
    uow: UnitOfWork, site: str, server_id: str, server: SiteServer, newest: SiteGeneration, is_here: bool
) -> SiteRole | None:
    """Make a server of the journal a replicated one again, if a restored database has forgotten that. Return its role.

    None: the database knows that it is replicated, or does not have the server. Raises `InvalidInput` if the database
    has another server for it, or has it for another one.
    """
    forget_deleted(uow, server_id)
    instance = instances.lock(uow, server.instance_uuid)
    query = sa.select(Row).where(sa.or_(Row.server_id == server_id, Row.instance_uuid == server.instance_uuid))
    for row in uow.session.scalars(query):
        if (row.server_id, row.instance_uuid) != (server_id, server.instance_uuid):
            raise exceptions.InvalidInput(
                reason=f"the journal has server {server.instance_uuid} for {server_id}, and this database has "
                f"{row.instance_uuid} for {row.server_id}. Disable the replication of {row.instance_uuid}"
            )
    if instance is None or instance.deleted or instance.site_role is not None:
        return None
    uow.session.add(
        Row(
            instance_uuid=instance.uuid,
            server_id=server_id,
            policy_id=server.policy_id,
            generation=newest.number - 1,
            backups=[],
            since=uow.now,
            updated_at=uow.now,
        )
    )
    instance.site_role = SiteRole.REPLICA
    uow.session.flush()
    learn(uow, instance.uuid, site, newest, is_here)
    return SiteRole(instance.site_role)


def described(uow: UnitOfWork, server: ReplicatedServer) -> SiteServer:
    """Return what the journal has to know of a server of this site."""
    query = sa.select(Instance.generation, Instance.last_generation).where(Instance.uuid == server.instance_uuid)
    generation, last = uow.session.execute(query).one()
    return SiteServer(
        instance_uuid=server.instance_uuid,
        policy_id=server.policy_id,
        generation=generation,
        last_generation=max(generation, last),
    )


def is_behind(uow: UnitOfWork, server: ReplicatedServer, known: SiteServer) -> bool:
    """Check whether this database is older than what the journal knows of the server's guest.

    Raises `InvalidInput` if the journal has another server of this site, which is not deleted.
    """
    if known.instance_uuid != server.instance_uuid:
        if uow.session.scalar(sa.select(Instance.deleted).where(Instance.uuid == known.instance_uuid)):
            return False
        raise exceptions.InvalidInput(reason=f"the journal has server {known.instance_uuid} of this site for it")
    return described(uow, server).last_generation < known.last_generation


def catch_up(uow: UnitOfWork, server: ReplicatedServer, known: SiteServer) -> None:
    """Give the server the generation of its guest that the host knows, because the database was restored.

    Otherwise its host would take the next build for a build that it has carried out. Raises `InvalidInput` while an
    operation runs.
    """
    found = _locked(uow, server.instance_uuid)
    if found is None:
        return
    if found.instance.task_state is not None:
        raise exceptions.InvalidInput(reason="the database is older than the server's guest, and an operation runs")
    claims.set_generation(uow, found.instance, known.generation)
    found.instance.last_generation = known.last_generation
    uow.session.flush()


def note_reason(uow: UnitOfWork, instance_uuid: str, reason: str | None) -> None:
    """Record why a step does not continue. None: it does."""
    value = None if reason is None else reason[:_REASON]
    uow.change(sa.update(Row).where(Row.instance_uuid == instance_uuid).values(reason=value))


def obstacle(uow: UnitOfWork, server: ReplicatedServer) -> str | None:
    """Return what keeps another site from handing the server over to this one, "" if nothing does.

    None: the server is not replicated any more.
    """
    query = sa.select(Instance).join(Row, Row.instance_uuid == Instance.uuid)
    query = query.where(Instance.uuid == server.instance_uuid, Row.server_id == server.server_id)
    instance = uow.session.scalars(query.where(Instance.deleted.is_(False))).unique().first()
    if instance is None:
        return None
    if instance.site_role != SiteRole.REPLICA:
        return f"its server is {instance.site_role}"
    if not is_off(instance):
        return f"its server is {instance.task_state or instance.vm_state}, and has to be off"
    return down_host(uow, instance.uuid)


def down_host(uow: UnitOfWork, instance_uuid: str) -> str:
    """Return what keeps a server from being rebuilt: its host is down. "": nothing does."""
    host = uow.session.scalar(sa.select(Instance.host).where(Instance.uuid == instance_uuid))
    return "" if host is None or hosts.is_up(uow, host) else f"its host {host} is down"


def stuck_state(uow: UnitOfWork, instance_uuid: str) -> str | None:
    """Return the state of a server that is neither off nor can be stopped; None: it can, or an operation runs."""
    instance = uow.session.scalars(sa.select(Instance).where(Instance.uuid == instance_uuid)).unique().first()
    if instance is None or instance.task_state is not None:
        return None
    return None if instance.vm_state in (states.ACTIVE, states.STOPPED) else instance.vm_state


def in_role(uow: UnitOfWork, server: ReplicatedServer, role: SiteRole) -> Locked | None:
    """Lock a server and its instance; None if its role or generation has changed."""
    found = _locked(uow, server.instance_uuid)
    if found is None or (found.instance.site_role, found.row.generation) != (role, server.generation):
        return None
    return found


def unpublished(uow: UnitOfWork, server: ReplicatedServer) -> list[ServerBackup]:
    """Return the newest complete backup with its bases, the whole one first, unless the journal has it.

    Backups that began before the site has got the server do not count.
    """
    row = models.ServerBackup
    query = sa.select(row.uuid).where(
        row.instance_uuid == server.instance_uuid,
        row.status == BackupStatus.COMPLETE,
        row.engine == BackupEngine.RESTIC,
    )
    if server.since is not None:
        query = query.where(row.started_at > server.since)
    newest = uow.session.scalar(query.order_by(row.started_at.desc(), row.id.desc()).limit(1))
    return [] if newest in (None, server.published) else server_backups.chain(uow, str(newest))


def note_published(uow: UnitOfWork, server: ReplicatedServer, backup_id: str) -> None:
    """Record the newest backup that the journal has."""
    found = in_role(uow, server, SiteRole.PRIMARY)
    if found is not None:
        found.row.published, found.row.reason = backup_id, None
        uow.session.flush()


def is_quiet(uow: UnitOfWork, instance_uuid: str) -> bool:
    """Check whether a server that nothing starts is off. Others have to look again under its lock."""
    instance = uow.session.scalars(sa.select(Instance).where(Instance.uuid == instance_uuid)).unique().first()
    return instance is not None and instance.site_role == SiteRole.REPLICA and is_off(instance)


def is_off(instance: Instance) -> bool:
    """Check whether a server is off, and no operation runs."""
    return (
        instance.vm_state == states.STOPPED
        and instance.task_state is None
        and instance.power_state not in (PowerState.RUNNING, PowerState.PAUSED)
    )


def last_backup(uow: UnitOfWork, server: ReplicatedServer) -> ServerBackup | None:
    """Return the last backup of a server that leaves, which is planned now if there is none. A failed one is replaced.

    None: the server does not leave any more, or is not off yet. Raises `InvalidInput` if its policy is gone.
    """
    found = in_role(uow, server, SiteRole.LEAVING)
    if found is None or not is_off(found.instance):
        return None
    backup = models.ServerBackup
    row = uow.session.scalars(sa.select(backup).where(backup.uuid == found.row.backup_id)).first()
    if row is not None and row.status not in (BackupStatus.FAILED, BackupStatus.DELETING):
        return server_backups.to_backup(row)
    if row is not None:
        found.row.reason = f"the last backup has failed: {row.reason or row.status}"[:_REASON]
    policy = require_policy(uow, found.row.policy_id)
    planned = server_backups.plan(uow, policy, found.instance, uow.now, uow.now, uow.now + BACKUP_WINDOW)
    found.row.backup_id = planned.id
    uow.session.flush()
    return planned


def require_policy(uow: UnitOfWork, policy_id: str) -> BackupPolicy:
    """Return the backup policy of a replicated server. Raises `InvalidInput` if there is none."""
    policy = backup_policies.by_id(uow, policy_id)
    if policy is None:
        raise exceptions.InvalidInput(
            reason=f"backup policy {policy_id} does not exist any more. Disable the replication of the server, and "
            "enable or join it again with another policy"
        )
    return policy


def rebuild_ended(uow: UnitOfWork, server: ReplicatedServer) -> bool:
    """Make an arriving server the primary if its rebuild has succeeded. Return whether another one has to begin."""
    found = in_role(uow, server, SiteRole.ARRIVING)
    if found is None:
        return False
    row, instance = found
    action = uow.session.get(InstanceAction, row.action_id) if row.action_id is not None else None
    if action is None:
        return instance.task_state is None
    if action.finish_time is None:
        return False
    if action.message is None:
        _has_arrived(uow, found)
        return False
    row.reason = f"the rebuild has failed: {action.message}"[:_REASON]
    uow.session.flush()
    return instance.task_state is None and action.finish_time < uow.now - RETRY


def deleted(uow: UnitOfWork) -> list[tuple[str, str]]:
    """Return the servers that were deleted and have rows: their ids in the journal, and at this site."""
    query = sa.select(Row.server_id, Row.instance_uuid).where(Row.instance_uuid.in_(_GONE))
    return [(server_id, instance_uuid) for server_id, instance_uuid in uow.session.execute(query)]


def forget_deleted(uow: UnitOfWork, server_id: str) -> None:
    """Delete the row of a server that was deleted."""
    uow.change(sa.delete(Row).where(Row.server_id == server_id, Row.instance_uuid.in_(_GONE)))


def _has_arrived(uow: UnitOfWork, found: Locked) -> None:
    """Make an arriving server the primary. Backups that begin from now on are of its generation."""
    found.instance.site_role = SiteRole.PRIMARY
    found.row.since, found.row.reason, found.row.updated_at = uow.now, None, uow.now
    uow.session.flush()


def _last_failed(uow: UnitOfWork, instance: Instance) -> bool:
    """Check whether the newest action has failed: its command may still wait for a host that does not ask."""
    action = uow.session.get(InstanceAction, actions.newest(uow, instance.uuid))
    return action is not None and (action.finish_time is None or action.message is not None)


def _locked(uow: UnitOfWork, instance_uuid: str) -> Locked | None:
    instance = instances.lock(uow, instance_uuid)
    query = sa.select(Row).where(Row.instance_uuid == instance_uuid).with_for_update()
    row: Row | None = uow.session.scalars(query.execution_options(populate_existing=True)).first()
    return None if instance is None or instance.deleted or row is None else Locked(row, instance)


def _object(row: Row, role: str | None) -> ReplicatedServer:
    backups: Sequence[ServerBackup] = msgspec.convert(row.backups, list[ServerBackup])
    return to_object(ReplicatedServer, row, role=SiteRole(role or SiteRole.REPLICA), backups=list(backups))
