"""The action log as a queue: open, lease, redrive, finish.

A lease is taken under the lock of the action, if nobody has it. Losing one only means that a nudge is sent twice, which
every handler tolerates.
"""

from __future__ import annotations

import datetime
import functools
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite import operations
from nova_lite.base import metrics
from nova_lite.base.context import RequestContext
from nova_lite.db.engine import Time, UnitOfWork, later, utcnow
from nova_lite.db.models import Instance, InstanceAction
from nova_lite.objects import InstanceActionEvent

#: What the payload of an action that is over does not have any more; some of it is secret.
FORGOTTEN = ("last_error", "admin_password")

_OPEN = InstanceAction.finish_time.is_(None)

#: How long an action is left alone that waits for its host. The host's return ends that sooner; this is only for a
#: return that was overlooked.
PARKED = datetime.timedelta(minutes=10)


def new_owner() -> str:
    """A lease owner's name: new for every drive, so that a late thread of this very process is told apart as well."""
    return str(uuid.uuid4())


def open_action(
    uow: UnitOfWork,
    conf: cfg.ConfigOpts,
    context: RequestContext,
    instance: Instance,
    kind: str,
    payload: dict[str, Any],
) -> InstanceAction:
    """A new action, at no step yet, to be written with one. The nudge that follows its commit may take it at once; the
    reconciler after a moment."""
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
        lease_expires_at=uow.now + datetime.timedelta(seconds=conf.conductor.redrive_backoff[0]),
        deadline=uow.now + datetime.timedelta(seconds=conf.conductor.action_deadline),
        start_time=uow.now,
        attempts=0,
    )
    uow.session.add(action)
    return action


def find_open(uow: UnitOfWork, instance_uuid: str, kind: str | None = None) -> InstanceAction | None:
    """The newest open action of an instance, of this kind if one is given."""
    found = [action for action in all_open(uow, instance_uuid) if kind in (None, action.action)]
    return found[0] if found else None


def all_open(uow: UnitOfWork, instance_uuid: str) -> list[InstanceAction]:
    """The newest first."""
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
    """`all_open`, and what this request made of this kind, if it did."""
    values = {"instance_uuid": instance_uuid, "request_id": request_id, "kind": kind}
    return list(uow.session.scalars(_OPEN_OR_OF, values))


#: Of the newest actions of an instance at its host, for its last order; nearly always the first is it.
_LOOKED_AT = 16


def last_order(uow: UnitOfWork, instance: Instance) -> tuple[int, int]:
    """Id and position of the newest order that was carried out on the instance as it is now, at its host; (0, 0) for
    none. Of what has failed that is the last thing that was taken back."""
    query = sa.select(InstanceAction).where(
        InstanceAction.instance_uuid == instance.uuid,
        InstanceAction.generation == instance.generation,
        InstanceAction.host == instance.host,
        InstanceAction.finish_time.is_not(None),
    )
    for action in uow.session.scalars(query.order_by(InstanceAction.id.desc()).limit(_LOOKED_AT)):
        row = operations.get(action.action, action.payload)
        position = row.last_sequence(action.step, failed=action.message is not None) if row.steps else None
        if position is not None:
            return action.id, position
    return 0, 0


def newest(uow: UnitOfWork, instance_uuid: str) -> int:
    """The id of the newest action of an instance; 0 for none."""
    query = sa.select(sa.func.max(InstanceAction.id)).where(InstanceAction.instance_uuid == instance_uuid)
    return uow.session.scalar(query) or 0


def find_by_request(uow: UnitOfWork, request_id: str, kind: str, instance_uuid: str) -> InstanceAction | None:
    query = sa.select(InstanceAction).filter_by(request_id=request_id, action=kind, instance_uuid=instance_uuid)
    return uow.session.scalars(query).first()


def lease(uow: UnitOfWork, conf: cfg.ConfigOpts, owner: str, instance_uuids: Iterable[str], step: str) -> None:
    """Take the actions of these instances that are at ``step`` and that nobody else drives now."""
    free = sa.or_(InstanceAction.lease_owner.is_(None), InstanceAction.lease_expires_at <= utcnow())
    until = later(conf.conductor.lease_seconds)
    taken = sa.update(InstanceAction).where(*_at_step(instance_uuids, step), free)
    uow.change(taken.values(lease_owner=owner, lease_expires_at=until, updated_at=utcnow()))


def take(uow: UnitOfWork, conf: cfg.ConfigOpts, action: InstanceAction, owner: str) -> None:
    """``owner``, who opens the action, drives it."""
    action.lease_owner = owner
    extend(uow, conf, action)


def leased(
    uow: UnitOfWork, owner: str, instance_uuids: Iterable[str], step: str
) -> list[tuple[InstanceAction, Instance]]:
    """The actions of these instances that are at ``step`` and leased to ``owner``, in the order of their creation."""
    query = sa.select(InstanceAction, Instance).join(Instance, Instance.uuid == InstanceAction.instance_uuid)
    query = query.where(*_at_step(instance_uuids, step), InstanceAction.lease_owner == owner)
    return uow.timed_rows(query.order_by(Instance.id))


def _at_step(instance_uuids: Iterable[str], step: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (_OPEN, InstanceAction.instance_uuid.in_(list(instance_uuids)), InstanceAction.step == step)


def due(uow: UnitOfWork, conf: cfg.ConfigOpts) -> list[int]:
    """For the reconciler: the ids of actions whose lease lapsed or whose deadline passed, oldest first, at most
    ``[conductor] reconcile_batch``. Nothing but the ids is read, so that a row that cannot be is found by its id."""
    query = sa.select(InstanceAction.id).where(*is_due(uow.now)).order_by(InstanceAction.lease_expires_at)
    return list(uow.session.scalars(query.limit(conf.conductor.reconcile_batch)))


def take_due(uow: UnitOfWork, conf: cfg.ConfigOpts, owner: str, ids: Iterable[int]) -> list[InstanceAction]:
    """Those of these actions that are still `due`, now leased to ``owner``. Another conductor that is about to take one
    gets it, and is not waited for.

    The lease lasts as long as the next backoff step says, so a redrive that leads nowhere is repeated after that.
    """
    query = sa.select(InstanceAction).where(InstanceAction.id.in_(list(ids)), _OPEN)
    query = query.order_by(InstanceAction.lease_expires_at).with_for_update(skip_locked=True)
    taken = []
    for action in uow.session.scalars(query).all():
        if _take(uow, action, owner, backoff(conf, action.attempts), sa.and_(*is_due(uow.now))):
            action.attempts += 1
            taken.append(action)
    return taken


def is_due(now: Time) -> tuple[sa.ColumnElement[bool], ...]:
    return _OPEN, sa.or_(InstanceAction.lease_expires_at <= now, InstanceAction.deadline <= now)


def take_up(uow: UnitOfWork, conf: cfg.ConfigOpts, action: InstanceAction, owner: str) -> None:
    """``owner``, who holds the row, drives an action that was just freed, for as long as `take_due` would let it."""
    action.lease_owner = owner
    action.lease_expires_at = uow.now + datetime.timedelta(seconds=backoff(conf, action.attempts))
    action.attempts += 1


def backoff(conf: cfg.ConfigOpts, attempts: int) -> float:
    """Seconds until the redrive after this many."""
    steps: list[float] = conf.conductor.redrive_backoff
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
    """An instance and its action as they are now, and what is asked ``also``; nobody else changes the two until the
    transaction ends. None if there is no such action.

    The instance is locked first: MariaDB goes by the order of the tables as long as each is found by its key, so the
    uuid comes from a subquery where it is not known.
    """
    if instance_uuid is not None:
        return lock_all(uow, {action_id: instance_uuid}, *also).get(action_id)
    found = uow.timed_rows(_locking(*also), {"action_id": action_id})
    return found[0] if found else None


def lock_all(
    uow: UnitOfWork, instance_uuids: Mapping[int, str], *also: sa.ColumnElement[Any]
) -> dict[int, tuple[Any, ...]]:
    """`lock` of several by one statement, by the ids of the actions, as they were given; without those that there are
    not. They are locked in the order of the instances' uuids, as everybody does who locks several."""
    asked = {"action_ids": list(instance_uuids), "instance_uuids": list(instance_uuids.values())}
    return {row[1].id: row for row in uow.timed_rows(_locking_all(*also), asked)}


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
    # MariaDB locks rows as it reads them: in the order of this index, and of each its action then. By itself it would
    # begin with the actions, or read (and wait for) all instances of a small cloud.
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
    """`lock_all`: those of the actions that are still open, at this step, and leased to their ``owners``."""
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
    """Give back leased actions (ids to owners) that could not be driven now, those that still are leased so; the
    reconciler comes back after the backoff."""
    given = []
    for action_id, owner in leases.items():
        action = uow.session.get(InstanceAction, action_id, with_for_update=True)
        if action is None or action.finish_time is not None or action.lease_owner != owner:
            continue
        back_off(uow, conf, action, cause)
        given.append(action)
    return given


def extend(uow: UnitOfWork, conf: cfg.ConfigOpts, action: InstanceAction, seconds: float = 0) -> None:
    """Whoever drives the action has one lease from now, and ``seconds`` more."""
    action.lease_expires_at = uow.now + datetime.timedelta(seconds=conf.conductor.lease_seconds + seconds)
    action.updated_at = uow.now


def free(uow: UnitOfWork, action: InstanceAction) -> None:
    """Nobody drives the action, and it is due now."""
    action.lease_owner = None
    action.lease_expires_at = action.updated_at = uow.now
    action.attempts = 0


def begin_later(uow: UnitOfWork, conf: cfg.ConfigOpts, action: InstanceAction) -> None:
    """Nobody drives the action; it is due in a moment, unless what is sent meanwhile arrives."""
    free(uow, action)
    action.lease_expires_at = uow.now + datetime.timedelta(seconds=backoff(conf, 0))


def back_off(uow: UnitOfWork, conf: cfg.ConfigOpts, action: InstanceAction, cause: str) -> None:
    """Nobody drives the action now; the reconciler comes back after the next backoff step."""
    action.lease_owner = None
    action.lease_expires_at = uow.now + datetime.timedelta(seconds=backoff(conf, action.attempts))
    action.payload = {**action.payload, "last_error": cause}


def block_on_host(uow: UnitOfWork, action: InstanceAction) -> None:
    """Nobody drives the action before its host is back (`make_due`) or its deadline has passed: what is sent to a host
    that is away only fills its queue."""
    action.lease_owner = None
    action.lease_expires_at = uow.now + PARKED


def put_off(uow: UnitOfWork, action_id: int) -> None:
    """Leave an action alone for a while whose row, or whose instance's, cannot be made sense of."""
    later = uow.now + PARKED
    changed = sa.update(InstanceAction).where(InstanceAction.id == action_id)
    uow.change(changed.values(lease_owner=None, lease_expires_at=later, deadline=later))


def renew_leases(
    uow: UnitOfWork, conf: cfg.ConfigOpts, host: str, building: Mapping[str, int], acting: Iterable[int]
) -> None:
    """Renew the leases of what a host works at: builds (instance uuid to generation) and actions (ids)."""
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
    """A host has just (re)started: whatever it was asked to do before is to be sent again now."""
    uow.change(_MAKE_DUE, {"of_host": host, "due": uow.now})


_MAKE_DUE = (
    sa.update(InstanceAction)
    .where(_OPEN, InstanceAction.host == sa.bindparam("of_host"))
    .values(lease_expires_at=sa.bindparam("due"), attempts=0)
)


def finish(uow: UnitOfWork, action: InstanceAction, error: str | None = None, details: str = "") -> None:
    """Close an action and its open events; ``error`` is its cause when it failed."""
    metrics.ACTIONS_ENDED.labels(action.action, "failed" if error else "done").inc()
    action.finish_time = action.updated_at = uow.now
    action.lease_owner = None
    action.message = "Error" if error else None
    action.payload = {key: value for key, value in action.payload.items() if key not in FORGOTTEN}
    finish_events(uow, action, error, details)


def start_event(
    uow: UnitOfWork,
    action: InstanceAction,
    name: str,
    host: str | None,
    since: datetime.datetime | None = None,
) -> None:
    """Record that a step begins, or began at ``since``; a step that is repeated at the same host stays one event."""
    events = _events(action)
    if not any((event.event, event.host, event.finish_time) == (name, host, None) for event in events):
        _write(action, [*events, InstanceActionEvent(event=name, host=host, start_time=since or uow.now)])


def finish_events(uow: UnitOfWork, action: InstanceAction, error: str | None = None, details: str = "") -> None:
    """Close whatever steps are open, as Success or (``error``) Error. A step of the conductor's own has no event; if it
    is the one that ends in error, it gets one, so that a failure has its cause."""
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
