"""The action log as a queue: open, lease, retry, finish.

A driver takes the lease of an action under the lock of its row. Losing a lease is harmless: a wake-up is then sent
twice, and every handler tolerates that.
"""

from __future__ import annotations

import datetime
import functools
import uuid
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite import operations
from nova_lite.base import metrics
from nova_lite.base.context import RequestContext
from nova_lite.db.core.action_changes import ActionChange, Change
from nova_lite.db.core.engine import Time, UnitOfWork, later, utcnow
from nova_lite.db.core.models import Instance, InstanceAction
from nova_lite.objects import InstanceActionEvent

#: Keys that a finished action's payload loses. Some of them are secret.
FORGOTTEN = ("last_error", "admin_password")

_OPEN = InstanceAction.finish_time.is_(None)

#: Pause of an action that is blocked on its host. The host's return ends the wait; this interval only
#: covers a return that was overlooked.
PARKED = datetime.timedelta(minutes=10)


def new_owner() -> str:
    """Return a new lease owner's name. Each dispatch gets its own, so that a late thread of the same process loses its
    lease.
    """
    return str(uuid.uuid4())


def open_action(
    uow: UnitOfWork,
    conf: cfg.ConfigOpts,
    context: RequestContext,
    instance: Instance,
    kind: str,
    payload: dict[str, Any],
) -> InstanceAction:
    """Return a new action without a step; the caller sets one. The wake-up after the commit may take it at once, the
    reconciler after a moment.
    """
    action = InstanceAction(
        action=kind,
        instance_uuid=instance.uuid,
        request_id=context.request_id,
        user_id=context.user_id,
        project_id=context.project_id,
        payload=payload,
        generation=instance.generation,
        step="",
        host=instance.host,
        lease_owner=None,
        lease_expires_at=uow.now + datetime.timedelta(seconds=conf.conductor.retry_backoff[0]),
        deadline=uow.now + datetime.timedelta(seconds=conf.conductor.action_deadline),
        start_time=uow.now,
        attempts=0,
    )
    uow.session.add(action)
    uow.note_change(action, Change.OPENED)
    return action


def record_ended(uow: UnitOfWork, instance_uuid: str, request_id: str, kind: str, event: InstanceActionEvent) -> None:
    """Record an action that has ended, and was none of the queue: one event has all of it. A missing instance has no
    history.
    """
    instance = uow.session.scalars(sa.select(Instance).where(Instance.uuid == instance_uuid)).first()
    if instance is None:
        return
    uow.session.add(
        InstanceAction(
            action=kind,
            instance_uuid=instance.uuid,
            request_id=request_id,
            user_id=instance.user_id,
            project_id=instance.project_id,
            payload={},
            generation=instance.generation,
            step="",
            host=event.host,
            lease_expires_at=uow.now,
            deadline=uow.now,
            start_time=event.start_time,
            updated_at=uow.now,
            finish_time=uow.now,
            message="Error" if event.result == "Error" else None,
            events=msgspec.to_builtins([event]),
        )
    )


def find_open(uow: UnitOfWork, instance_uuid: str, kind: str | None = None) -> InstanceAction | None:
    """Return the newest open action of an instance, optionally of one kind."""
    found = [action for action in all_open(uow, instance_uuid) if kind in (None, action.action)]
    return found[0] if found else None


def all_open(uow: UnitOfWork, instance_uuid: str) -> list[InstanceAction]:
    """Return the open actions of an instance, newest first."""
    query = sa.select(InstanceAction).where(_OPEN, InstanceAction.instance_uuid == instance_uuid)
    return list(uow.session.scalars(query.order_by(InstanceAction.id.desc())))


_OPEN_OR_OF = (
    sa.select(InstanceAction)
    .where(
        InstanceAction.instance_uuid == sa.bindparam("instance_uuid"),
        sa.or_(
            _OPEN,
            sa.and_(
                InstanceAction.request_id == sa.bindparam("request_id"), InstanceAction.action == sa.bindparam("kind")
            ),
        ),
    )
    .order_by(InstanceAction.id.desc())
)


def open_or_of(uow: UnitOfWork, instance_uuid: str, request_id: str, kind: str) -> list[InstanceAction]:
    """Return the open actions of an instance, and the action of this kind that the request already made."""
    values = {"instance_uuid": instance_uuid, "request_id": request_id, "kind": kind}
    return [action for (action,) in uow.found(_OPEN_OR_OF, values)]


def open_or_of_any(
    uow: UnitOfWork, instance_uuids: Collection[str], request_ids: Collection[str], kind: str
) -> dict[str, list[InstanceAction]]:
    """Return, by instance, what `open_or_of` may return for one of these requests."""
    of_requests = sa.and_(InstanceAction.request_id.in_(sorted(request_ids)), InstanceAction.action == kind)
    query = sa.select(InstanceAction).where(
        InstanceAction.instance_uuid.in_(sorted(instance_uuids)), sa.or_(_OPEN, of_requests)
    )
    found: dict[str, list[InstanceAction]] = {}
    for action in uow.session.scalars(query.order_by(InstanceAction.id.desc())):
        found.setdefault(action.instance_uuid, []).append(action)
    return found


#: Number of newest actions that `last_order` reads. The first one nearly always matches.
_LOOKED_AT = 16


def last_order(uow: UnitOfWork, instance: Instance) -> tuple[int, int]:
    """Return action id and sequence number of the newest command that its host carried out on the instance; (0, 0) for
    none. A failed action counts with its last undo, if that was a command.
    """
    query = sa.select(InstanceAction).where(
        InstanceAction.instance_uuid == instance.uuid,
        InstanceAction.generation == instance.generation,
        InstanceAction.host == instance.host,
        InstanceAction.finish_time.is_not(None),
    )
    for action in uow.session.scalars(query.order_by(InstanceAction.id.desc()).limit(_LOOKED_AT)):
        row, failed = operations.get(action.action, action.payload), action.message is not None
        position = row.last_sequence(action.step, action.payload, str(action.host), failed) if row.steps else None
        if position is not None:
            return action.id, position
    return 0, 0


def newest(uow: UnitOfWork, instance_uuid: str) -> int:
    """Return the id of the newest action of an instance; 0 for none."""
    query = sa.select(sa.func.max(InstanceAction.id)).where(InstanceAction.instance_uuid == instance_uuid)
    return uow.session.scalar(query) or 0


def newest_kind(uow: UnitOfWork, instance_uuid: str) -> str | None:
    """Return the kind of an instance's newest action."""
    query = sa.select(InstanceAction.action).where(InstanceAction.instance_uuid == instance_uuid)
    return uow.session.scalar(query.order_by(InstanceAction.id.desc()).limit(1))


def find_by_request(uow: UnitOfWork, request_id: str, kind: str, instance_uuid: str) -> InstanceAction | None:
    query = sa.select(InstanceAction).filter_by(request_id=request_id, action=kind, instance_uuid=instance_uuid)
    return uow.session.scalars(query).first()


def lease(uow: UnitOfWork, conf: cfg.ConfigOpts, owner: str, instance_uuids: Iterable[str], step: str) -> None:
    """Lease the actions of these instances that are at ``step`` and have no owner."""
    values = {"instance_uuids": instance_uuids, "at_step": step, "owner": owner}
    uow.change(_leasing(conf.conductor.lease_seconds), values)


@functools.cache
def _leasing(seconds: float) -> sa.Update:
    free = sa.or_(InstanceAction.lease_owner.is_(None), InstanceAction.lease_expires_at <= utcnow())
    taken = sa.update(InstanceAction).where(*_AT_STEP, free)
    return taken.values(lease_owner=sa.bindparam("owner"), lease_expires_at=later(seconds), updated_at=utcnow())


_AT_STEP = (
    _OPEN,
    InstanceAction.instance_uuid.in_(sa.bindparam("instance_uuids", expanding=True)),
    InstanceAction.step == sa.bindparam("at_step"),
)
_LEASED = (
    sa.select(InstanceAction, Instance)
    .join(Instance, Instance.uuid == InstanceAction.instance_uuid)
    .where(*_AT_STEP, InstanceAction.lease_owner == sa.bindparam("owner"))
    .order_by(Instance.id)
)


def leased(
    uow: UnitOfWork, owner: str, instance_uuids: Iterable[str], step: str
) -> list[tuple[InstanceAction, Instance]]:
    """Return the actions of these instances that are at ``step`` and leased to ``owner``, in the order of their
    creation.
    """
    return uow.timed_rows(_LEASED, {"instance_uuids": instance_uuids, "at_step": step, "owner": owner})


def due(uow: UnitOfWork, limit: int, busy: str | None = None) -> list[int]:
    """Return the ids of actions whose lease lapsed or whose deadline passed, oldest first, at most
    ``limit``. ``busy``: a step whose actions are left out before their deadlines.

    The query reads only ids, so that the caller can name a row that cannot be decoded.
    """
    query = sa.select(InstanceAction.id).where(*is_due(uow.now)).order_by(InstanceAction.lease_expires_at)
    if busy is not None:
        query = query.where(sa.or_(InstanceAction.step != busy, InstanceAction.deadline <= uow.now))
    return list(uow.session.scalars(query.limit(limit)))


def take_due(uow: UnitOfWork, conf: cfg.ConfigOpts, owner: str, ids: Iterable[int]) -> list[InstanceAction]:
    """Lease the actions among ``ids`` that are still `due` to ``owner``, and return them. Rows that another conductor
    has locked are skipped.

    The lease lasts as `retry_lease` says, so a retry without effect is repeated after that.
    """
    query = sa.select(InstanceAction).where(InstanceAction.id.in_(list(ids)), _OPEN)
    query = query.order_by(InstanceAction.lease_expires_at).with_for_update(skip_locked=True)
    taken = []
    for action in uow.session.scalars(query).all():
        if _take(uow, action, owner, retry_lease(conf, action), sa.and_(*is_due(uow.now))):
            action.attempts += 1
            taken.append(action)
    return taken


def is_due(now: Time) -> tuple[sa.ColumnElement[bool], ...]:
    return _OPEN, sa.or_(InstanceAction.lease_expires_at <= now, InstanceAction.deadline <= now)


def take_up(uow: UnitOfWork, conf: cfg.ConfigOpts, action: InstanceAction, owner: str) -> None:
    """Lease an action that was just freed to ``owner``, who holds its row, for as long as `take_due` would."""
    action.lease_owner = owner
    action.lease_expires_at = uow.now + datetime.timedelta(seconds=retry_lease(conf, action))
    action.attempts += 1


def retry_lease(conf: cfg.ConfigOpts, action: InstanceAction) -> float:
    """Return the seconds of a lease by which an action is repeated: one backoff step. A scheduler may answer later than
    that, so the lease of its step lasts at least ``[conductor] lease_seconds``.
    """
    seconds = backoff(conf, action.attempts)
    return max(seconds, conf.conductor.lease_seconds) if action.step == operations.SCHEDULE else seconds


def backoff(conf: cfg.ConfigOpts, attempts: int) -> float:
    """Return the seconds until the next retry after this many attempts."""
    steps: list[float] = conf.conductor.retry_backoff
    return steps[min(attempts, len(steps) - 1)]


def _take(uow: UnitOfWork, action: InstanceAction, owner: str, seconds: float, condition: Any) -> bool:
    changed = uow.change(
        sa.update(InstanceAction)
        .where(InstanceAction.id == action.id, _OPEN, condition)
        .values(lease_owner=owner, lease_expires_at=uow.now + datetime.timedelta(seconds=seconds), updated_at=uow.now)
    )
    if changed:
        uow.session.refresh(action)
    return changed == 1


def lock(
    uow: UnitOfWork, action_id: int, instance_uuid: str | None = None, *also: sa.ColumnElement[Any]
) -> tuple[Any, ...] | None:
    """Lock an instance and its action and return both, followed by the ``also`` columns; None if there is no such
    action.

    The instance is locked first. MariaDB follows the order of the tables only if each is found by its key, so a
    subquery supplies an unknown uuid.
    """
    if instance_uuid is not None:
        return lock_all(uow, {action_id: instance_uuid}, *also).get(action_id)
    found = uow.timed_rows(_locking(*also), {"action_id": action_id})
    return found[0] if found else None


def lock_all(
    uow: UnitOfWork, instance_uuids: Mapping[int, str], *also: sa.ColumnElement[Any]
) -> dict[int, tuple[Any, ...]]:
    """Lock several actions with their instances by one statement. Returns `lock`'s tuples by action id; missing actions
    are left out.

    Rows are locked in the order of the instances' uuids, as everywhere.
    """
    asked = {"action_ids": list(instance_uuids), "instance_uuids": list(instance_uuids.values())}
    return {row[1].id: row for row in uow.timed_rows(_locking_all(*also), asked)}


def lock_of(uow: UnitOfWork, action_ids: Collection[int]) -> dict[int, tuple[Instance, InstanceAction]]:
    """Do `lock_all` for actions whose instances are not known. An action has the same instance for ever."""
    query = sa.select(InstanceAction.id, InstanceAction.instance_uuid).where(InstanceAction.id.in_(sorted(action_ids)))
    uuids: dict[int, str] = dict(list(uow.rows(query)))
    return {action_id: (row[0], row[1]) for action_id, row in lock_all(uow, uuids).items()} if uuids else {}


@functools.cache
def _locking(*also: sa.ColumnElement[Any]) -> sa.Select[Any]:
    action_id = sa.bindparam("action_id", type_=sa.BigInteger)
    known = sa.select(InstanceAction.instance_uuid).where(InstanceAction.id == action_id).scalar_subquery()
    return _both_locked(*also).where(Instance.uuid == known, InstanceAction.id == action_id)


@functools.cache
def _locking_all(*also: sa.ColumnElement[Any]) -> sa.Select[Any]:
    query = _both_locked(*also).order_by(Instance.uuid)
    query = query.where(Instance.uuid.in_(sa.bindparam("instance_uuids", expanding=True)))
    query = query.where(InstanceAction.id.in_(sa.bindparam("action_ids", expanding=True)))
    # MariaDB locks rows as it reads them: in the order of this index, then each one's action. Without the hint it would
    # start with the actions, or read and wait for all instances of a small cloud.
    for name in ("mysql", "mariadb"):
        query = query.prefix_with("STRAIGHT_JOIN", dialect=name)
        query = query.with_hint(Instance, "FORCE INDEX (uq_instances_uuid)", name)
    return query


def _both_locked(*also: sa.ColumnElement[Any]) -> sa.Select[Any]:
    query = sa.select(Instance, InstanceAction, *also)
    query = query.join(InstanceAction, InstanceAction.instance_uuid == Instance.uuid)
    return query.with_for_update(of=(Instance, InstanceAction)).execution_options(populate_existing=True)


def still_leased(
    uow: UnitOfWork, instance_uuids: Mapping[int, str], owners: Mapping[int, str], step: str
) -> dict[int, tuple[Instance, InstanceAction]]:
    """Lock the actions and return the open ones at this step that are leased to their ``owners``."""
    found = lock_all(uow, instance_uuids)
    left: dict[int, tuple[Instance, InstanceAction]] = {}
    for action_id, owner in owners.items():
        instance, action = found.get(action_id, (None, None))
        if instance is None or (action.step, action.lease_owner, action.finish_time) != (step, owner, None):
            metrics.LEASES_LOST.labels(step).inc()
        else:
            left[action_id] = instance, action
    return left


def retry_later(uow: UnitOfWork, conf: cfg.ConfigOpts, leases: Mapping[int, str], cause: str) -> list[InstanceAction]:
    """Release the leases of actions that could not be driven, and return the actions. ``leases``: action id to owner;
    leases lost meanwhile are skipped. The reconciler retries after the backoff.
    """
    given = []
    for action_id, owner in leases.items():
        action = uow.session.get(InstanceAction, action_id, with_for_update=True)
        if action is None or action.finish_time is not None or action.lease_owner != owner:
            continue
        back_off(uow, conf, action, cause)
        given.append(action)
    return given


def extend(uow: UnitOfWork, conf: cfg.ConfigOpts, action: InstanceAction, seconds: float = 0) -> None:
    """Extend the lease to one lease period from now plus ``seconds``."""
    action.lease_expires_at = uow.now + datetime.timedelta(seconds=conf.conductor.lease_seconds + seconds)
    action.updated_at = uow.now


def free(uow: UnitOfWork, action: InstanceAction) -> None:
    """Release the lease and make the action due now."""
    action.lease_owner = None
    action.lease_expires_at = action.updated_at = uow.now
    action.attempts = 0


def begin_later(uow: UnitOfWork, conf: cfg.ConfigOpts, action: InstanceAction) -> None:
    """Release the lease and make the action due in a moment, in case the command that is being sent gets lost."""
    free(uow, action)
    action.lease_expires_at = uow.now + datetime.timedelta(seconds=backoff(conf, 0))


def back_off(uow: UnitOfWork, conf: cfg.ConfigOpts, action: InstanceAction, cause: str) -> None:
    """Release the lease; the reconciler retries after the next backoff step."""
    action.lease_owner = None
    action.lease_expires_at = uow.now + datetime.timedelta(seconds=backoff(conf, action.attempts))
    action.payload = {**action.payload, "last_error": cause}


def block_on_host(uow: UnitOfWork, action: InstanceAction) -> None:
    """Leave the action alone until its host returns (`make_due`) or its deadline passes. Commands to an absent host
    would only fill its queue.
    """
    action.lease_owner = None
    action.lease_expires_at = uow.now + PARKED


def put_off(uow: UnitOfWork, action_id: int) -> None:
    """Postpone an action whose row, or whose instance's row, is corrupt."""
    later = uow.now + PARKED
    changed = sa.update(InstanceAction).where(InstanceAction.id == action_id)
    uow.change(changed.values(lease_owner=None, lease_expires_at=later, deadline=later))


def renew_leases(
    uow: UnitOfWork, conf: cfg.ConfigOpts, host: str, building: Mapping[str, int], acting: Iterable[int]
) -> None:
    """Renew the leases of a host's work: builds (instance uuid to generation) and actions (ids)."""
    until = uow.now + datetime.timedelta(seconds=conf.conductor.lease_seconds)
    mine = (_OPEN, InstanceAction.host == host)
    pairs = [
        sa.and_(InstanceAction.instance_uuid == instance_uuid, InstanceAction.generation == generation)
        for instance_uuid, generation in building.items()
    ]
    ids = list(acting)
    for condition in ([sa.and_(InstanceAction.step == operations.BUILD, sa.or_(*pairs))] if pairs else []) + (
        [InstanceAction.id.in_(ids)] if ids else []
    ):
        uow.change(sa.update(InstanceAction).where(*mine, condition).values(lease_expires_at=until, updated_at=uow.now))


def make_due(uow: UnitOfWork, host: str) -> None:
    """Make every open action of a host that has just (re)started due now, so that its commands are sent again."""
    uow.change(_MAKE_DUE, {"of_host": host, "due": uow.now})


_MAKE_DUE = (
    sa.update(InstanceAction)
    .where(_OPEN, InstanceAction.host == sa.bindparam("of_host"))
    .values(lease_expires_at=sa.bindparam("due"), attempts=0)
)


def finish(uow: UnitOfWork, action: InstanceAction, error: str | None = None, details: str = "") -> None:
    """Close an action and its open events. ``error``: the cause of its failure."""
    if error:
        uow.note_change(action, Change.UNDONE)
    elif uow.wants(ActionChange) and _ends_when_closed(action):
        uow.note_change(action, Change.DONE)
    metrics.ACTIONS_ENDED.labels(action.action, "failed" if error else "done").inc()
    action.finish_time = action.updated_at = uow.now
    action.lease_owner = None
    action.message = "Error" if error else None
    action.payload = {key: value for key, value in action.payload.items() if key not in FORGOTTEN}
    finish_events(uow, action, error, details)


def _ends_when_closed(action: InstanceAction) -> bool:
    """Check whether the owner sees the action's end only now, and not at an earlier step."""
    return operations.get(action.action, action.payload).ends_for_owner_with is None


def start_event(
    uow: UnitOfWork,
    action: InstanceAction,
    name: str,
    host: str | None,
    since: datetime.datetime | None = None,
) -> None:
    """Record that a step started, now or at ``since``. A step that is repeated at the same host stays one event."""
    events = _events(action)
    if not any((event.event, event.host, event.finish_time) == (name, host, None) for event in events):
        _write(action, [*events, InstanceActionEvent(event=name, host=host, start_time=since or uow.now)])


def note_event(uow: UnitOfWork, action: InstanceAction, name: str, details: str) -> None:
    """Record an event that has no duration, such as the cause of an action that no user requested."""
    event = InstanceActionEvent(event=name, host=uow.conf.host, start_time=uow.now, finish_time=uow.now)
    event.result, event.details = "Success", details
    _write(action, [*_events(action), event])


def finish_events(uow: UnitOfWork, action: InstanceAction, error: str | None = None, details: str = "") -> None:
    """Close the open events as Success, or as Error if ``error`` is given. A conductor step has no event of its own; if
    it fails, one is added to show the cause.
    """
    events = _events(action)
    if error and events and all(event.finish_time and event.result != "Error" for event in events):
        name = f"conductor_{action.step}"
        events.append(InstanceActionEvent(event=name, host=uow.conf.host, start_time=uow.now))
    for event in events:
        if event.finish_time is None:
            event.finish_time = uow.now
            event.result = "Error" if error else "Success"
            event.details = error
            event.traceback = details or None
    _write(action, events)


def _events(action: InstanceAction) -> list[InstanceActionEvent]:
    return msgspec.convert(action.events or [], list[InstanceActionEvent])


def _write(action: InstanceAction, events: list[InstanceActionEvent]) -> None:
    action.events = msgspec.to_builtins(events)
