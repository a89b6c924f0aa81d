"""The action log as a queue: open, lease, redrive, finish.

A lease is a conditional update. Losing one only means that a nudge is sent twice, which every handler tolerates.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.conductor.db.engine import UnitOfWork
from nova_lite.conductor.db.models import Instance, InstanceAction, InstanceActionEvent
from nova_lite.context import RequestContext

# Steps. A create or an evacuation is scheduled, built, and perhaps compensated; every other action is carried out by
# its host, and so is the stop that ends some evacuations; a delete whose host is away has already happened for its
# owner, and only cleans up.
SCHEDULE = "schedule"
BUILD = "build"
COMPENSATE = "compensate"
PERFORM = "perform"
CLEANUP = "cleanup"

_OPEN = InstanceAction.finish_time.is_(None)


def new_owner() -> str:
    """A lease owner's name: new for every drive, so that a late thread of this very process is told apart as well."""
    return str(uuid.uuid4())


def open_action(
    uow: UnitOfWork,
    conf: cfg.ConfigOpts,
    context: RequestContext,
    instance: Instance,
    kind: str,
    step: str,
    payload: dict[str, Any],
) -> InstanceAction:
    """Write a new action. The nudge that follows its commit may take it at once; the reconciler after a moment."""
    action = InstanceAction(
        action=str(kind),
        instance_uuid=instance.uuid,
        request_id=context.request_id,
        user_id=context.user_id,
        project_id=context.project_id,
        payload=payload,
        generation=instance.generation,
        step=step,
        host=instance.host,
        lease_owner=None,
        lease_expires_at=uow.now + datetime.timedelta(seconds=conf.conductor.redrive_backoff[0]),
        deadline=uow.now + datetime.timedelta(seconds=conf.conductor.action_deadline),
        start_time=uow.now,
        attempts=0,
    )
    uow.session.add(action)
    return action


def record_done(uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, instance: Instance, kind: str) -> None:
    """Write an action that the conductor carries out in this very transaction."""
    instance.updated_at = uow.now
    action = open_action(uow, conf, context, instance, kind, PERFORM, {})
    uow.session.flush()
    start_event(uow, action, f"api_{kind}", None)
    finish(uow, action)


def find_open(uow: UnitOfWork, instance_uuid: str, *kinds: str) -> InstanceAction | None:
    """The newest open action of an instance, of these kinds if any are given."""
    query = sa.select(InstanceAction).where(_OPEN, InstanceAction.instance_uuid == instance_uuid)
    if kinds:
        query = query.where(InstanceAction.action.in_([str(kind) for kind in kinds]))
    return uow.session.scalars(query.order_by(InstanceAction.id.desc()).limit(1)).first()


def find_by_request(uow: UnitOfWork, request_id: str, kind: str, instance_uuid: str) -> InstanceAction | None:
    return uow.session.scalars(
        sa.select(InstanceAction).where(
            InstanceAction.request_id == request_id,
            InstanceAction.action == str(kind),
            InstanceAction.instance_uuid == instance_uuid,
        )
    ).first()


def lease_builds(
    uow: UnitOfWork, conf: cfg.ConfigOpts, owner: str, instance_uuids: Iterable[str]
) -> list[InstanceAction]:
    """Take the actions of these instances that wait to be scheduled and that nobody else drives now."""
    candidates = uow.session.scalars(
        sa.select(InstanceAction).where(
            _OPEN,
            InstanceAction.instance_uuid.in_(list(instance_uuids)),
            InstanceAction.step == SCHEDULE,
        )
    ).all()
    free = sa.or_(InstanceAction.lease_owner.is_(None), InstanceAction.lease_expires_at <= uow.now)
    return [action for action in candidates if _take(uow, action, owner, conf.conductor.lease_seconds, free)]


def take_due(uow: UnitOfWork, conf: cfg.ConfigOpts, owner: str) -> list[InstanceAction]:
    """For the reconciler: actions whose lease lapsed or whose deadline passed, oldest first, now leased to ``owner``.

    The lease lasts as long as the next backoff step says, so a redrive that leads nowhere is repeated after that.
    """
    due = sa.or_(InstanceAction.lease_expires_at <= uow.now, InstanceAction.deadline <= uow.now)
    candidates = uow.session.scalars(
        sa.select(InstanceAction)
        .where(_OPEN, due)
        .order_by(InstanceAction.lease_expires_at)
        .limit(conf.conductor.reconcile_batch)
    ).all()
    taken = []
    for action in candidates:
        if _take(uow, action, owner, backoff(conf, action.attempts), due):
            action.attempts += 1
            taken.append(action)
    return taken


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


def still_leased(uow: UnitOfWork, action_id: int, owner: str, step: str) -> InstanceAction | None:
    """The action, locked for this transaction, if it is still open, at this step, and leased to ``owner``."""
    return uow.session.scalars(
        sa.select(InstanceAction)
        .where(_OPEN, InstanceAction.id == action_id, InstanceAction.lease_owner == owner, InstanceAction.step == step)
        .with_for_update()
        .execution_options(populate_existing=True)
    ).first()


def retry_later(uow: UnitOfWork, conf: cfg.ConfigOpts, action_ids: Iterable[int], owner: str, cause: str) -> None:
    """Give back leased actions that could not be driven now; the reconciler comes back after the backoff."""
    for action_id in action_ids:
        action = uow.session.get(InstanceAction, action_id)
        if action is None or action.finish_time is not None or action.lease_owner != owner:
            continue
        back_off(uow, conf, action, cause)


def extend(uow: UnitOfWork, conf: cfg.ConfigOpts, action: InstanceAction) -> None:
    """The action is in good hands for one lease from now."""
    action.lease_expires_at = uow.now + datetime.timedelta(seconds=conf.conductor.lease_seconds)
    action.updated_at = uow.now


def back_off(uow: UnitOfWork, conf: cfg.ConfigOpts, action: InstanceAction, cause: str) -> None:
    """Nobody drives the action now; the reconciler comes back after the next backoff step."""
    action.lease_owner = None
    action.lease_expires_at = uow.now + datetime.timedelta(seconds=backoff(conf, action.attempts))
    action.payload = {**action.payload, "last_error": cause}


def renew_leases(
    uow: UnitOfWork, conf: cfg.ConfigOpts, host: str, building: Mapping[str, int], acting: Iterable[int]
) -> None:
    """A host says what it is at: builds (instance uuid to generation) and actions (ids)."""
    until = uow.now + datetime.timedelta(seconds=conf.conductor.lease_seconds)
    mine = (_OPEN, InstanceAction.host == host)
    pairs = [
        sa.and_(InstanceAction.instance_uuid == instance_uuid, InstanceAction.generation == generation)
        for instance_uuid, generation in building.items()
    ]
    ids = list(acting)
    for condition in ([sa.and_(InstanceAction.step == BUILD, sa.or_(*pairs))] if pairs else []) + (
        [InstanceAction.id.in_(ids)] if ids else []
    ):
        uow.change(sa.update(InstanceAction).where(*mine, condition).values(lease_expires_at=until, updated_at=uow.now))


def make_due(uow: UnitOfWork, host: str) -> None:
    """A host has just (re)started: whatever it was asked to do before is to be sent again now."""
    uow.change(
        sa.update(InstanceAction)
        .where(_OPEN, InstanceAction.host == host, InstanceAction.step.in_([BUILD, COMPENSATE, PERFORM, CLEANUP]))
        .values(lease_expires_at=uow.now, attempts=0)
    )


def finish(uow: UnitOfWork, action: InstanceAction, error: str | None = None, details: str = "") -> None:
    """Close an action and its open events; ``error`` is its cause when it failed."""
    action.finish_time = action.updated_at = uow.now
    action.lease_owner = None
    action.message = "Error" if error else None
    action.payload = {key: value for key, value in action.payload.items() if key != "last_error"}
    finish_events(uow, action, error, details)


def start_event(uow: UnitOfWork, action: InstanceAction, name: str, host: str | None) -> None:
    """Record that a step begins; a step that is repeated at the same host stays one event."""
    for event in _open_events(uow, action):
        if event.event == name and event.host == host:
            return
    uow.session.add(InstanceActionEvent(action_id=action.id, event=name, host=host, start_time=uow.now))
    uow.session.flush()


def finish_events(uow: UnitOfWork, action: InstanceAction, error: str | None = None, details: str = "") -> None:
    """Close whatever steps are open, as Success or (``error``) Error."""
    for event in _open_events(uow, action):
        event.finish_time = uow.now
        event.result = "Error" if error else "Success"
        event.details = error
        event.traceback = details or None


def _open_events(uow: UnitOfWork, action: InstanceAction) -> list[InstanceActionEvent]:
    return list(
        uow.session.scalars(
            sa.select(InstanceActionEvent).where(
                InstanceActionEvent.action_id == action.id, InstanceActionEvent.finish_time.is_(None)
            )
        )
    )
