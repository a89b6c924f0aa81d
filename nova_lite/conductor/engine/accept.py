"""Accepts operations: checks them, writes the action, and plans its first step."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import msgspec
from oslo_config import cfg

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.base.batching import OVERLAP_AFTER_WRITE, Batcher, BatchLimits
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.context import ActionContext, check, command_of
from nova_lite.conductor.engine.unavailable_hosts import Transitions
from nova_lite.db.core import actions, replay_cache
from nova_lite.db.core.action_changes import Change
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.models import Instance, InstanceAction
from nova_lite.db.hosts import hosts
from nova_lite.db.servers import claims, instances
from nova_lite.objects import ActionCommand, RequestSpec
from nova_lite.operations import Operation
from nova_lite.rpcapi.scheduler import SchedulerRPC

#: Deletes of one transaction.
MAX_DELETES = 64
LIMITS = BatchLimits(overlap_after=OVERLAP_AFTER_WRITE)


class DeleteRequest(NamedTuple):
    """Request to delete an instance, in the context of its caller."""

    context: RequestContext
    instance_uuid: str


class Acceptor:
    """Accepts requests for operations on existing servers. Creates are in `nova_lite.conductor.operations.create`."""

    def __init__(self, db: Database, conf: cfg.ConfigOpts, transitions: Transitions, scheduler: SchedulerRPC) -> None:
        self.db = db
        self.conf = conf
        self.transitions = transitions
        self.handlers = transitions.handlers
        self.scheduler = scheduler
        self._deletes: Batcher[list[DeleteRequest], list[ActionCommand | Exception]] = Batcher(
            self._accept_messages, LIMITS
        )

    def accept(self, context: RequestContext, instance_uuid: str, kind: str, payload: dict[str, Any]) -> ActionCommand:
        """Write the action and return the command for its host.

        A repeated request gets the same command again. Raises a 404 or 409 if the operation is refused.
        """
        if self.handlers(kind).has_preflight:
            spec = self.db.read(self._preflight, context, instance_uuid, kind, payload)
            if spec is not None:
                self._check_placement(context, spec)
        return self.db.write(self.accept_in, context, instance_uuid, kind, payload)

    def accept_deletes(self, requests: list[DeleteRequest]) -> list[ActionCommand | Exception]:
        """`accept` deletes of different instances in one transaction, together with others that arrive meanwhile."""
        return self._deletes.submit(requests)

    def _accept_messages(self, messages: list[list[DeleteRequest]]) -> list[list[ActionCommand | Exception]]:
        """Accept the deletes of several messages. A delete of the same instance comes in a later transaction."""

        def accept_in(uow: UnitOfWork, requests: list[DeleteRequest]) -> list[ActionCommand | Exception]:
            return self._accept_deletes(uow, requests)

        left = list(enumerate(itertools.chain.from_iterable(messages)))
        results: dict[int, ActionCommand | Exception] = {}
        while left:
            batch: dict[str, tuple[int, DeleteRequest]] = {}
            rest = []
            for item in left:
                if len(batch) < MAX_DELETES and item[1].instance_uuid not in batch:
                    batch[item[1].instance_uuid] = item
                else:
                    rest.append(item)
            numbers, requests = zip(*(batch[instance_uuid] for instance_uuid in sorted(batch)), strict=True)
            results.update(zip(numbers, self.db.write_each(accept_in, list(requests)), strict=True))
            left = rest
        replies = (results[number] for number in range(len(results)))
        return [list(itertools.islice(replies, len(message))) for message in messages]

    def accept_in(
        self,
        uow: UnitOfWork,
        context: RequestContext,
        instance_uuid: str,
        kind: str,
        payload: dict[str, Any],
        by_replication: bool = False,
    ) -> ActionCommand:
        """`accept` within a transaction of the caller. The reconciler sends the command.

        ``by_replication``: as `nova_lite.conductor.engine.context.check` has it.
        """
        replay_cache.record(uow, context)
        instance = instances.get_row(uow, context, instance_uuid, deleted=True, lock=True)
        known = actions.open_or_of(uow, instance_uuid, context.request_id, kind)
        earlier = _checked(uow, context, instance, known, kind, payload, by_replication)
        if earlier is not None:
            return command_of(earlier)
        ctx = self._open(uow, context, instance, known, kind, payload)
        if ctx is None:
            return _nothing_to_do(uow, context, instance, kind)
        uow.session.flush()
        return command_of(ctx)

    def _preflight(
        self, uow: UnitOfWork, context: RequestContext, instance_uuid: str, kind: str, payload: dict[str, Any]
    ) -> RequestSpec | None:
        instance = instances.get_row(uow, context, instance_uuid, deleted=True)
        if instance.deleted or actions.find_by_request(uow, context.request_id, kind, instance_uuid) is not None:
            return None
        check(context, instance, operations.get(kind, payload))
        return self.handlers(kind).preflight(uow, self.conf, context, instance, payload)

    def _check_placement(self, context: RequestContext, spec: RequestSpec) -> None:
        """Raise `UnsuitableHost` unless the scheduler agrees, and `SchedulerNotReady` if it is outdated."""
        spec = msgspec.structs.replace(spec, known=self.db.read(hosts.known_generations))
        try:
            self.scheduler.select_destinations(context, spec)
        except exceptions.NoValidHost as error:
            raise exceptions.UnsuitableHost(reason=error.kwargs.get("reason", error.message)) from error

    def _accept_deletes(self, uow: UnitOfWork, requests: list[DeleteRequest]) -> list[ActionCommand | Exception]:
        """Accept deletes of different instances by the statements of one."""
        replay_cache.record(uow, *(request.context for request in requests))
        kind = operations.DELETE.kind
        payload: dict[str, Any] = {}
        rows = instances.lock_visible(uow, {request.instance_uuid: request.context for request in requests})
        request_ids = {request.context.request_id for request in requests}
        found = actions.open_or_of_any(uow, rows, request_ids, kind) if rows else {}
        results: list[ActionContext | Exception] = []
        new = []
        for context, instance_uuid in requests:
            known = [
                action
                for action in found.get(instance_uuid, ())
                if action.finish_time is None or action.request_id == context.request_id
            ]
            try:
                instance = rows.get(instance_uuid)
                if instance is None:
                    raise exceptions.InstanceNotFound(instance_id=instance_uuid)
                earlier = _checked(uow, context, instance, known, kind, payload)
            except exceptions.NovaLiteException as error:
                results.append(error)
                continue
            if earlier is None:
                new.append((len(results), context, instance, known))
            results.append(earlier or exceptions.InstanceNotFound(instance_id=instance_uuid))
        held = claims.held_by(uow, [instance for _, _, instance, _ in new]) if new else {}
        with uow.session.no_autoflush:
            for number, context, instance, known in new:
                ctx = self._open(uow, context, instance, known, kind, payload, held[instance.uuid])
                assert ctx is not None
                results[number] = ctx
        uow.session.flush()
        return [result if isinstance(result, Exception) else command_of(result) for result in results]

    def _open(
        self,
        uow: UnitOfWork,
        context: RequestContext,
        instance: Instance,
        known: list[InstanceAction],
        kind: str,
        payload: dict[str, Any],
        held: list[claims.Held] | None = None,
    ) -> ActionContext | None:
        """Open the action and begin its first step. Return None if there is nothing to do."""
        definition = operations.get(kind, payload)
        kept_payload = self.handlers(kind).accept(uow, context, instance, payload)
        if kept_payload is None:
            return None
        if definition.supersedes and known:
            self._supersede(uow, instance, definition, known)
        instance.updated_at = uow.now
        action = actions.open_action(uow, self.conf, context, instance, kind, kept_payload)
        ctx = ActionContext(uow, instance, action, held=held)
        steps = ctx.definition.steps
        if steps:
            self.transitions.begin(ctx, steps[0])
        else:
            action.step = operations.PERFORM
            actions.start_event(uow, action, f"api_{kind}", self.conf.host)
            actions.finish(uow, action)
        return ctx

    def _supersede(
        self, uow: UnitOfWork, instance: Instance, definition: Operation, open_actions: list[InstanceAction]
    ) -> None:
        """Close the open actions, because a new one takes their place.

        Raises `InstanceInvalidState` while an action is undone that has to end first. The undo of an action's image
        continues beside the new action, and so does a report to Cinder.
        """
        cause = f"superseded by {definition.kind}"
        for action in open_actions:
            ctx = ActionContext(uow, instance, action)
            step = ctx.step
            if step.outlives_action:
                continue
            is_undo = ctx.definition.is_undo(step.name)
            if is_undo and not definition.preempts:
                raise exceptions.InstanceInvalidState(
                    method=definition.method, instance_id=instance.uuid, attr="unfinished action", state=action.action
                )
            if not is_undo:
                uow.note_change(action, Change.FAILED, step, cause)
            undos = () if is_undo else ctx.definition.undos(step.name)
            beside = next((undo for undo in undos if undo.outlives_action), None)
            if beside is None:
                actions.finish(uow, action, cause)
                self.handlers(action.action).on_superseded(uow, instance, definition.kind)
                continue
            actions.finish_events(uow, action, cause)
            actions.free(uow, action)
            action.payload = {**action.payload, "superseded": cause}
            self.transitions.begin(ctx, beside)
        uow.session.flush()


def _checked(
    uow: UnitOfWork,
    context: RequestContext,
    instance: Instance,
    known: list[InstanceAction],
    kind: str,
    payload: dict[str, Any],
    by_replication: bool = False,
) -> ActionContext | None:
    """Return the action that the request has made before, or whose work it shares. Raises a 404 or 409.

    ``known``: the open actions of the instance, and those of the request.
    """
    same_kind = [action for action in known if action.action == kind]
    for action in same_kind:
        if action.request_id == context.request_id:
            return ActionContext(uow, instance, action)
    if instance.deleted:
        raise exceptions.InstanceNotFound(instance_id=instance.uuid)
    definition = operations.get(kind, payload) if kind in operations.OPERATIONS else None
    if definition is None or definition.reported:
        raise exceptions.InvalidInput(reason=f"there is no action {kind!r}")
    if definition.deduplicates and same_kind and instance.task_state == definition.steps[0].task:
        return ActionContext(uow, instance, same_kind[0])
    check(context, instance, definition, by_replication)
    return None


def _nothing_to_do(uow: UnitOfWork, context: RequestContext, instance: Instance, kind: str) -> ActionCommand:
    """Return the reply to a request that would change nothing. No action is written for it."""
    return ActionCommand(
        action_id=0,
        action=kind,
        instance=instances.to_object(uow, instance),
        generation=instance.generation,
        host=None,
        request_id=context.request_id,
    )
