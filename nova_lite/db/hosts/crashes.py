"""Protected servers whose guests have crashed: when they are started again, and how often that was done.

The rows are the plan, so that another conductor continues it. A plan is over as soon as a user has changed the
server's power since the crash was recorded.
"""

from __future__ import annotations

import datetime

import sqlalchemy as sa

from nova_lite import operations
from nova_lite.db.core.engine import UnitOfWork, utcnow
from nova_lite.db.core.models import CrashRestart, Instance, InstanceAction, Restart
from nova_lite.objects.protection import Protection
from nova_lite.operations import states
from nova_lite.operations.states import PowerState

#: Seconds before the first start after a crash, before the second, and so on. The last one repeats.
BACKOFF = (0, 10, 30, 60, 120, 300)

#: A guest that has run for this time is counted from the beginning.
STABLE = datetime.timedelta(hours=1)

#: Most servers that one transaction forgets.
BATCH = 500

#: Kinds of actions beside which a plan stays.
NEUTRAL = (
    operations.CREATE_IMAGE.kind, operations.CREATE_BACKUP.kind, operations.LOCK.kind, operations.UNLOCK.kind,
    operations.ATTACH_VOLUME.kind, operations.DETACH_VOLUME.kind, operations.SWAP_VOLUME.kind,
    operations.ATTACH_INTERFACE.kind, operations.DETACH_INTERFACE.kind, operations.CRASH.kind,
    operations.WATCHDOG.kind, operations.DEVICE_LOST.kind,
)  # fmt: skip


def plan(uow: UnitOfWork, instance: Instance, protection: Protection, cause: str, crash: InstanceAction) -> str:
    """Plan to start a server again whose guest has crashed, and return what happens, for its owner.

    ``crash``: the action that records it; its ``id`` is known.
    """
    row = _locked(uow, instance.uuid)
    if row is not None and (uow.now - row.updated_at > STABLE or _is_overtaken(uow, row, before=crash.id)):
        row.attempts = 0
    if row is not None and row.attempts >= protection.attempts:
        count = row.attempts
        uow.session.delete(row)
        rest = "off until you start it" if instance.vm_state == states.STOPPED else "paused until you reboot it"
        return f"It was started again {count} times, and has crashed again. So it stays {rest}."
    if row is None:
        row = CrashRestart(instance_uuid=instance.uuid, attempts=0)
        uow.session.add(row)
    seconds = max(protection.delay, BACKOFF[min(row.attempts, len(BACKOFF) - 1)])
    row.action_id, row.cause, row.updated_at, row.started = crash.id, cause, uow.now, False
    row.due_at = uow.now + datetime.timedelta(seconds=seconds)
    when = f"in {seconds} seconds" if seconds else "now"
    return f"It is started again {when}, because ha:restart=always of the {protection.source} is set."


def is_needed(uow: UnitOfWork) -> bool:
    """Check whether a server is to be started or looked at."""
    return bool(uow.rows(_IS_NEEDED, {}).scalar_one())


_IS_NEEDED = sa.select(sa.exists().where(CrashRestart.due_at <= utcnow()))


def due(uow: UnitOfWork, limit: int) -> list[str]:
    """Return the servers that are to be started or looked at, the longest-waiting first."""
    query = sa.select(CrashRestart.instance_uuid).where(CrashRestart.due_at <= uow.now)
    return list(uow.session.scalars(query.order_by(CrashRestart.due_at, CrashRestart.instance_uuid).limit(limit)))


def begin(uow: UnitOfWork, instance: Instance | None, instance_uuid: str, attempts: int) -> CrashRestart | None:
    """Count a start, and return its row, locked. ``instance``: its row, locked. ``attempts``: as many are allowed.

    Returns None if nothing is to be started, and forgets a plan that is over.
    """
    row = _locked(uow, instance_uuid)
    if row is None or row.due_at is None:
        return None
    is_paused = instance is not None and instance.power_state == PowerState.PAUSED
    if row.started and instance is not None and instance.vm_state == states.ACTIVE and not is_paused:
        row.due_at = None
        return None
    is_over = row.attempts >= attempts or _is_overtaken(uow, row) or (row.started and not _has_failed(uow, row))
    if is_over or not _is_down(instance):
        uow.session.delete(row)
        return None
    row.attempts += 1
    row.started, row.updated_at = True, uow.now
    row.due_at = uow.now + datetime.timedelta(seconds=BACKOFF[min(row.attempts, len(BACKOFF) - 1)])
    return row


def _is_down(instance: Instance | None) -> bool:
    """Check whether a guest is off, or paused although no user has paused its server."""
    if instance is None or instance.deleted:
        return False
    is_halted = instance.vm_state == states.ACTIVE and instance.power_state == PowerState.PAUSED
    return is_halted or instance.vm_state == states.STOPPED


def _has_failed(uow: UnitOfWork, row: CrashRestart) -> bool:
    """Check whether the start of the guest has failed. A guest that has run since was stopped by a user."""
    action = uow.session.get(InstanceAction, row.action_id)
    return action is not None and action.message is not None


def put_off(uow: UnitOfWork, instance_uuid: str) -> None:
    """Try again later, because the server was busy or its host away. That is no start."""
    later = uow.now + datetime.timedelta(seconds=BACKOFF[1])
    change = sa.update(CrashRestart).where(
        CrashRestart.instance_uuid == instance_uuid, CrashRestart.due_at.is_not(None)
    )
    uow.change(change.values(due_at=later))


def take(uow: UnitOfWork, instance_uuid: str) -> bool:
    """Forget the plan of a server, and return whether it is off and was to be started."""
    row = _locked(uow, instance_uuid)
    if row is None:
        return False
    was_due = _is_to_start(uow, row)
    uow.session.delete(row)
    return was_due


def to_start(uow: UnitOfWork, host: str) -> set[str]:
    """Return the servers of a host that are off because of a crash, and are to be started again."""
    query = (
        sa.select(CrashRestart)
        .join(Instance, Instance.uuid == CrashRestart.instance_uuid)
        .where(Instance.host == host, Instance.deleted.is_(False), Instance.vm_state == states.STOPPED)
    )
    return {row.instance_uuid for row in uow.session.scalars(query) if _is_to_start(uow, row)}


def _is_to_start(uow: UnitOfWork, row: CrashRestart) -> bool:
    is_due = row.due_at is not None and (not row.started or _has_failed(uow, row))
    return is_due and not _is_overtaken(uow, row)


def is_planned(uow: UnitOfWork, instance_uuid: str) -> bool:
    """Check whether the server is to run again because its host was lost."""
    return bool(uow.session.scalar(sa.select(sa.exists().where(Restart.instance_uuid == instance_uuid))))


def forget_old(uow: UnitOfWork) -> int:
    """Forget servers that have run for long since their last start, at most `BATCH`. Return their number."""
    is_old = (CrashRestart.due_at.is_(None), CrashRestart.updated_at < uow.now - 2 * STABLE)
    uuids = list(uow.session.scalars(sa.select(CrashRestart.instance_uuid).where(*is_old).limit(BATCH)))
    if uuids:
        uow.change(sa.delete(CrashRestart).where(CrashRestart.instance_uuid.in_(uuids), *is_old))
    return len(uuids)


def _is_overtaken(uow: UnitOfWork, row: CrashRestart, before: int | None = None) -> bool:
    """Check whether a user has changed the server's power since the row was written. ``before``: id of an action."""
    action = InstanceAction
    query = sa.exists().where(
        action.instance_uuid == row.instance_uuid, action.id > row.action_id, action.action.not_in(NEUTRAL)
    )
    return bool(uow.session.scalar(sa.select(query if before is None else query.where(action.id < before))))


def _locked(uow: UnitOfWork, instance_uuid: str) -> CrashRestart | None:
    query = sa.select(CrashRestart).where(CrashRestart.instance_uuid == instance_uuid).with_for_update()
    return uow.session.scalars(query).first()
