"""The engine: accepts operations, drives their steps, ends them, and undoes what failed. It knows rows, and no kind.

A step is planned in one transaction (`_begin`), its effect happens outside any, and is recorded in another
(`_done`, `_fail`). Steps whose effect is nothing are recorded where they were planned. The effect carries the action's
id and the instance's generation, and may be repeated: the reconciler does so whenever a lease lapses.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Iterable
from concurrent import futures
from typing import Any

from oslo_config import cfg

from nova_lite import operations
from nova_lite.base import exceptions, metrics
from nova_lite.base.context import RequestContext
from nova_lite.compute.rpcapi import ComputeRPC, send_command
from nova_lite.conductor.engine import faults
from nova_lite.conductor.engine.context import (
    ActionContext,
    action_for_command,
    check,
    command_of,
    ends,
    is_away,
    is_retired,
    lock_action,
    place,
)
from nova_lite.conductor.engine.network_attach import InterfaceAttacher
from nova_lite.conductor.engine.service_calls import ServiceCalls
from nova_lite.conductor.operations.registry import handler_for
from nova_lite.db import actions, block_devices, cinder, claims, hosts, instances, networks
from nova_lite.db.engine import Database, UnitOfWork, translate
from nova_lite.db.models import Instance, InstanceAction
from nova_lite.image.driver import ImageBackend
from nova_lite.network.driver import NetworkBackend
from nova_lite.objects import ActionCommand, ActionReport, RequestSpec
from nova_lite.operations import (
    MOVE_ROLES,
    HostRole,
    HostStep,
    ImageStep,
    NetworkStep,
    Operation,
    ReleaseStep,
    ScheduleStep,
    Step,
    states,
)
from nova_lite.operations.states import PowerState
from nova_lite.scheduler.rpcapi import SchedulerRPC

LOG = logging.getLogger(__name__)

#: Effects of the conductor's own that run at the same time; a network service that is slow must not hold up orders.
PARALLEL_EFFECTS = 4

#: In the payload of an action that goes to every end: there is one. While it is open nothing is claimed, so it stays
#: the only one.
ONLY_END = "only_end"
#: In the payload of a delete: all interfaces of the instance are its own, and go with it.
NO_USERS_PORTS = "no_users_ports"

#: What waits for somebody who is away has no deadline: it is done when they are back.
NO_DEADLINE = datetime.timedelta(days=3650)


class ActionEngine:
    """Accepts and drives operations. `nova_lite.conductor.engine.build_reports` adds how builds are reported."""

    def __init__(
        self,
        db: Database,
        conf: cfg.ConfigOpts,
        network: NetworkBackend,
        compute: ComputeRPC,
        scheduler: SchedulerRPC,
        image_backend: ImageBackend,
    ) -> None:
        self.db = db
        self.conf = conf
        self.network = network
        self.compute = compute
        self.scheduler = scheduler
        self.images = image_backend
        self.calls = ServiceCalls(self)
        self.attaches = InterfaceAttacher(self)
        self.effects: futures.Executor = futures.ThreadPoolExecutor(PARALLEL_EFFECTS, thread_name_prefix="effect")

    def stop(self) -> None:
        self.effects.shutdown(wait=False, cancel_futures=True)

    # --- accept

    def accept_action(
        self, context: RequestContext, instance_uuid: str, action: str, payload: dict[str, Any]
    ) -> ActionCommand:
        """Write the action, or raise 404 or 409; the ticket is the order to its host. A repeated request gets its
        ticket again."""
        if action == operations.ATTACH_INTERFACE.kind and self.network.has_remote_ports:
            return self.attaches.accept(context, instance_uuid, payload)
        if handler_for(action).has_preflight:
            preflight = self.db.read(self._question, context, instance_uuid, action, payload)
            if preflight is not None:
                self._agree(context, preflight)
        return self.db.write(self._accept_action, context, instance_uuid, action, payload)

    def _question(
        self, uow: UnitOfWork, context: RequestContext, instance_uuid: str, kind: str, payload: dict[str, Any]
    ) -> RequestSpec | None:
        instance = instances.get_row(uow, context, instance_uuid, deleted=True)
        if instance.deleted or actions.find_by_request(uow, context.request_id, kind, instance_uuid) is not None:
            return None
        check(context, instance, operations.get(kind, payload))
        return handler_for(kind).preflight(uow, self.conf, context, instance, payload)

    def _agree(self, context: RequestContext, preflight: RequestSpec) -> None:
        """Raises `UnsuitableHost` if the scheduler says no."""
        try:
            self.scheduler.select_destinations(context, preflight)
        except exceptions.NoValidHost as error:
            raise exceptions.UnsuitableHost(reason=error.kwargs.get("reason", error.message)) from error

    def accept_in(
        self, uow: UnitOfWork, context: RequestContext, instance_uuid: str, kind: str, payload: dict[str, Any]
    ) -> ActionCommand:
        """`accept_action` in a transaction that is under way; the reconciler sends the order."""
        return self._accept_action(uow, context, instance_uuid, kind, payload)

    def _accept_action(
        self, uow: UnitOfWork, context: RequestContext, instance_uuid: str, kind: str, payload: dict[str, Any]
    ) -> ActionCommand:
        instance = instances.get_row(uow, context, instance_uuid, deleted=True, lock=True)
        known = actions.open_or_of(uow, instance_uuid, context.request_id, kind)
        of_kind = [action for action in known if action.action == kind]
        repeated = next((action for action in of_kind if action.request_id == context.request_id), None)
        if repeated is not None:
            return command_of(ActionContext(uow, instance, repeated))
        if instance.deleted:
            raise exceptions.InstanceNotFound(instance_id=instance_uuid)
        try:
            row = operations.get(kind, payload)
        except KeyError:
            raise exceptions.InvalidInput(reason=f"there is no action {kind!r}") from None
        deduplicates = row.deduplicates and instance.task_state == row.steps[0].task
        if deduplicates and of_kind:
            return command_of(ActionContext(uow, instance, of_kind[0]))
        check(context, instance, row)
        kept = handler_for(kind).accept(uow, context, instance, payload)
        if kept is None:
            return nothing_to_do(uow, context, instance, kind)
        if row.supersedes:
            self._supersede(uow, instance, row, known)
        instance.updated_at = uow.now
        ctx = ActionContext(uow, instance, actions.open_action(uow, self.conf, context, instance, kind, kept))
        row = ctx.definition
        if row.steps:
            self._begin(ctx, row.steps[0])
        else:
            ctx.action.step = operations.PERFORM
            actions.start_event(uow, ctx.action, f"api_{kind}", self.conf.host)
            actions.finish(uow, ctx.action)
        uow.session.flush()
        return command_of(ctx)

    def _supersede(self, uow: UnitOfWork, instance: Instance, row: Operation, known: list[InstanceAction]) -> None:
        """Close what is ``known`` to be open; raises `InstanceInvalidState` while something is undone that has to end
        first. What an action has of the image backend is given back beside the later one."""
        for earlier in known:
            ctx = ActionContext(uow, instance, earlier)
            step = ctx.step
            if isinstance(step, ImageStep) and step.outlives_action:
                continue
            undone = ctx.definition.is_undo(step.name)
            if undone and not row.preempts:
                raise exceptions.InstanceInvalidState(
                    method=row.method, instance_id=instance.uuid, attr="unfinished action", state=earlier.action
                )
            undos = () if undone else ctx.definition.undos(step.name)
            discard = next((undo for undo in undos if isinstance(undo, ImageStep)), None)
            if discard is None:
                actions.finish(uow, earlier, f"superseded by {row.kind}")
                handler_for(earlier.action).superseded(uow, instance)
                continue
            actions.finish_events(uow, earlier, f"superseded by {row.kind}")
            actions.free(uow, earlier)
            earlier.payload = {**earlier.payload, "superseded": f"superseded by {row.kind}"}
            self._begin(ctx, discard)
        uow.session.flush()

    # --- plan

    def _begin(self, ctx: ActionContext, step: Step) -> None:
        """Plan a step: write its name, task state, host and deadline. One without an effect is recorded at once."""
        uow, instance, action = ctx.uow, ctx.instance, ctx.action
        action.step = step.name
        if step.task is not None:
            instance.task_state = step.task
        if step.deadline is not None:
            action.deadline = uow.now + datetime.timedelta(seconds=self.conf.conductor[step.deadline])
        if isinstance(step, ScheduleStep):
            action.host = None
        elif isinstance(step, HostStep):
            self._begin_at(ctx, step, ends(ctx, step.at))
        elif isinstance(step, NetworkStep) and self._is_told(step):
            action.deadline = uow.now + NO_DEADLINE
            uow.after_commit.append(lambda: self.in_background(lambda: self.calls.to_network(action.id)))
        elif isinstance(step, ImageStep):
            if step.outlives_action:
                action.deadline = uow.now + NO_DEADLINE
            uow.after_commit.append(lambda: self.in_background(lambda: self.calls.to_images(action.id)))
        else:
            if isinstance(step, NetworkStep) and step.name == operations.DEALLOCATE:
                own_alone = [instance.uuid] if action.payload.get(NO_USERS_PORTS) else []
                self.network.deallocate(networks.Store(uow, own_alone=own_alone), instance.uuid)
            elif isinstance(step, ReleaseStep):
                self._release(ctx, step)
            self.advance(ctx)

    def _release(self, ctx: ActionContext, step: ReleaseStep) -> None:
        uow, instance = ctx.uow, ctx.instance
        if step.at in MOVE_ROLES:
            for end in ends(ctx, step.at):
                claims.release(uow, instance.uuid, end)
            return
        claims.release(uow, instance.uuid)
        if instance.deleted:
            block_devices.release(uow, instance)
        else:
            claims.leave(instance)

    def _takes_time(self, step: Step) -> bool:
        """Whether anybody else is asked; else it is recorded where it is planned."""
        return isinstance(step, ScheduleStep | HostStep | ImageStep) or (
            isinstance(step, NetworkStep) and self._is_told(step)
        )

    def _is_told(self, step: NetworkStep) -> bool:
        """Whether there is another service to tell of it."""
        return self.network.has_remote_ports if step.name == operations.DISCONNECT else self.network.remote

    def _begin_at(self, ctx: ActionContext, step: HostStep, ends: list[claims.HeldHost]) -> None:
        """Address the order to the first of these ends. Without any the step is done."""
        uow, action = ctx.uow, ctx.action
        if not ends:
            self.done(ctx)
            return
        before = action.host
        action.host, action.generation = ends[0]
        if step.at is HostRole.ALL and len(ends) == 1:
            action.payload = {**action.payload, ONLY_END: True}
        if ctx.action.action == operations.DELETE.kind and not ctx.has_users_ports:  # from now on it gets none
            action.payload = {**action.payload, NO_USERS_PORTS: True}
        if step.event is not None:
            actions.start_event(uow, action, step.event, action.host)
        if is_retired(ctx):
            self._pass_retired(ctx)
        elif step.offline_step is not None and is_away(ctx):
            self._leave_for_later(ctx, step)
        elif step.retry_forever and (ctx.definition.is_undo(step.name) or step.at in MOVE_ROLES):
            action.deadline = uow.now + NO_DEADLINE
        elif (
            step.at in MOVE_ROLES and action.host != before and is_away(ctx)
        ):  # it has just reported, if it is the same
            self.fail(ctx, f"Host {action.host} is not up.", answered=False, begun=False)

    def _leave_for_later(self, ctx: ActionContext, step: HostStep) -> None:
        """The host is down: record the step for the owner now; the action stays open until the host is back."""
        assert step.offline_step is not None
        handler_for(ctx.action.action).record(ctx.uow, ctx.instance, step)
        ctx.action.step = step.offline_step
        ctx.action.deadline = ctx.uow.now + NO_DEADLINE

    # --- record

    def done(self, ctx: ActionContext) -> None:
        """The step is done."""
        ctx.instance.updated_at = ctx.uow.now
        if ctx.step.moves_to is not None:
            there = place(ctx, ctx.step.moves_to)
            assert there is not None
            claims.move(ctx.instance, there)
            ctx.uow.refiltered_projects.add(ctx.instance.project_id)
            cinder.news(ctx.uow, ctx.instance.uuid)
        handler_for(ctx.action.action).record(ctx.uow, ctx.instance, ctx.step)
        self.advance(ctx)

    def advance(self, ctx: ActionContext, driven: bool = False) -> None:
        """On to the next step or undo, which is due at once unless it is ``driven``; after the last one the action is
        closed."""
        uow, action, row = ctx.uow, ctx.action, ctx.definition
        name = ctx.step.name
        following = row.following(name, action.payload)
        if following is not None:
            if not row.is_undo(name) and self._takes_time(following):
                actions.finish_events(uow, action)
            if not driven:
                actions.free(uow, action)
            action.attempts = 0
            self._begin(ctx, following)
            if not driven:
                self._order(ctx)
            return
        if not isinstance(ctx.step, ImageStep):  # beside it, a later operation may have begun
            ctx.instance.request = {}
        if not row.is_undo(name):
            self._lose_if_retired(ctx)
            actions.finish(uow, action)
            return
        if not isinstance(ctx.step, ImageStep):
            ctx.instance.task_state = None
        fault = ctx.instance.fault or {}
        causes = (ctx.cause, action.payload.get("superseded"), action.payload.get("cause"), fault.get("message"))
        cause = next(filter(None, causes), "It was given up.")
        actions.finish(uow, action, cause, ctx.details)
        handler_for(action.action).failed(uow, ctx.instance)
        self._lose_if_retired(ctx)

    def _order(self, ctx: ActionContext) -> None:
        """Send the order of a step that was just begun as soon as that is committed; if it is lost, the reconciler
        sends it a moment later."""
        if ctx.from_reconciler or ctx.action.finish_time is not None or ctx.ordered == ctx.action.step:
            return
        order, context = command_of(ctx), ctx.context
        if order.host is not None:
            ctx.ordered = ctx.action.step
            actions.begin_later(ctx.uow, self.conf, ctx.action)
            ctx.uow.after_commit.append(lambda: self.in_background(lambda: self.send(order, context)))

    def again(self, ctx: ActionContext, name: str, error: str, details: str) -> None:
        """The step has failed in a way that others may do better: back to an earlier one."""
        actions.finish_events(ctx.uow, ctx.action, error, details)
        actions.free(ctx.uow, ctx.action)
        self._begin(ctx, ctx.definition.step(name))

    def fail(self, ctx: ActionContext, cause: str, details: str = "", *, answered: bool, begun: bool = True) -> None:
        """The step has failed for good: undo it and what came before. ``answered``: its host says so. Not ``begun``:
        nobody was told of it, so that only what came before has to be undone."""
        ctx.cause, ctx.details = cause, details
        uow, instance, row, step = ctx.uow, ctx.instance, ctx.definition, ctx.step
        undos = () if ctx.is_undone else row.undos(step.name, begun)
        instance.task_state = None
        instance.updated_at = uow.now
        if undos and row.failed is not None:
            faults.set_error(uow, instance, cause, details)
            reason = "not_placed" if isinstance(step, operations.ScheduleStep) else "reported" if answered else "silent"
            metrics.BUILDS_FAILED.labels(reason).inc()
        elif undos:
            ctx.action.payload = {**ctx.action.payload, "cause": cause}
        if answered and (all(isinstance(undo, ImageStep) for undo in undos) if undos else step.becomes is not None):
            _settle(uow, instance, cause, details)
        if answered and isinstance(step, HostStep) and step.self_compensating:
            undos = undos[1:]
        undo = operations.first_applicable(undos, ctx.action.payload)
        if undo is None:
            instance.request = {}
            actions.finish(uow, ctx.action, cause, details)
            handler_for(ctx.action.action).failed(uow, instance)
            return
        actions.finish_events(uow, ctx.action, cause, details)
        actions.free(uow, ctx.action)
        self._begin(ctx, undo)
        self._order(ctx)

    # --- what hosts report

    def finish_action(
        self,
        context: RequestContext,
        host: str,
        action_id: int,
        power_state: int | None,
        error: str | None,
        details: str,
        sequence: int = 0,
        answer: dict[str, Any] | None = None,
        request_id: str | None = None,
    ) -> None:
        """An order was carried out, or not. One that is over, is not this host's, or is of another request, stays as it
        is."""
        self.db.write(self._finish_action, host, action_id, power_state, error, details, sequence, answer, request_id)

    def finish_actions(self, context: RequestContext, host: str, reports: list[ActionReport]) -> None:
        def finish_action(uow: UnitOfWork, some: list[ActionReport]) -> list[None]:
            for report in some:
                self._finish_action(
                    uow,
                    host,
                    report.action_id,
                    report.power_state,
                    report.error,
                    report.details,
                    report.sequence,
                    report.answer,
                    report.request_id,
                )
            return [None] * len(some)

        # In one order everywhere, as the transaction locks several.
        self.db.write_together(finish_action, sorted(reports, key=lambda report: report.action_id))

    def is_command_open(
        self, context: RequestContext, host: str, action_id: int, sequence: int | None, request_id: str
    ) -> bool:
        return self.db.write(action_for_command, host, action_id, sequence, request_id) is not None

    def is_command_current(self, context: RequestContext, host: str, action_id: int, sequence: int) -> bool:
        return self.db.write(action_for_command, host, action_id, sequence) is not None

    def _finish_action(
        self,
        uow: UnitOfWork,
        host: str,
        action_id: int,
        power_state: int | None,
        error: str | None,
        details: str,
        sequence: int,
        answer: dict[str, Any] | None,
        request_id: str | None,
    ) -> None:
        ctx = action_for_command(uow, host, action_id, sequence, request_id)
        if ctx is None or not isinstance(ctx.step, HostStep):
            return
        step, action = ctx.step, ctx.action
        if power_state is not None:
            ctx.instance.power_state = power_state
        if error is None and step.may_complete_late and (answer or {}).get("done"):
            LOG.info("The %s of %s was done after all", action.action, ctx.instance.uuid)
            action.step = ctx.definition.undone_by(step.name).name
            self.done(ctx)
        elif error is None:
            if answer is not None:
                action.payload = {**action.payload, "answers": {**action.payload.get("answers", {}), step.name: answer}}
            self._done_at_end(ctx, step)
        elif step.retry_forever:
            LOG.warning("%s of %s failed on %s: %s", action.action, ctx.instance.uuid, host, error)
            actions.finish_events(uow, action, error, details)
            actions.back_off(uow, self.conf, action, error)
        else:
            self.fail(ctx, error, details, answered=True)

    def _done_at_end(self, ctx: ActionContext, step: HostStep) -> None:
        """The step is done at one end: release it and order the next one, or finish the step."""
        action = ctx.action
        every = [] if action.payload.get(ONLY_END) else ends(ctx, step.at)
        left = [end for end in every if end != (action.host, action.generation)]
        if not left:
            self.done(ctx)
            return
        claims.release(ctx.uow, ctx.instance.uuid, claims.HeldHost(str(action.host), action.generation))
        actions.finish_events(ctx.uow, action)
        actions.free(ctx.uow, action)
        action.step = step.name
        self._begin_at(ctx, step, left)
        self._order(ctx)

    def report_task(self, context: RequestContext, host: str, action_id: int, task_state: str) -> bool:
        """A host has come to a task state of its step; whether the action is still wanted."""
        return self.db.write(self._report_task, host, action_id, task_state)

    def _report_task(self, uow: UnitOfWork, host: str, action_id: int, task_state: str) -> bool:
        ctx = lock_action(uow, action_id)
        if ctx is None or ctx.action.host != host or not isinstance(ctx.step, HostStep):
            return False
        order = (ctx.step.task, *ctx.step.tasks)
        now = ctx.instance.task_state
        if task_state in order and now in order and order.index(now) < order.index(task_state):
            ctx.instance.task_state = task_state
            ctx.instance.updated_at = uow.now
        return True

    # --- deadlines

    def take_due(self, uow: UnitOfWork, owner: str, ids: Iterable[int]) -> list[ActionContext]:
        """For the reconciler: lease to ``owner`` what is due of these actions, end what is past its deadline, and
        settle in the same transaction what needs no other daemon. What is left has to be driven; what its host would
        have to do that is away waits for it."""
        due = []
        for action in actions.take_due(uow, self.conf, owner, ids):
            instance = instances.lock(uow, action.instance_uuid)
            uow.session.refresh(action)
            if instance is None or action.finish_time is not None:
                continue
            ctx = ActionContext(uow, instance, action, from_reconciler=True)
            try:
                step = ctx.step
            except LookupError:
                LOG.error("Action %d is a %s at step %s: none of this version's", action.id, action.action, action.step)
                continue
            if action.deadline <= uow.now:
                self._expire(ctx, step)
            elif isinstance(step, HostStep) and step.offline_step and step.offline_step != action.step and is_away(ctx):
                self._leave_for_later(ctx, step)
            else:
                self._pass_forced_down(ctx)
            if action.finish_time is None and not self._block_on_host(ctx):
                if action.lease_owner != owner:
                    actions.take_up(uow, self.conf, action, owner)
                due.append(ctx)
        return due

    def _block_on_host(self, ctx: ActionContext) -> bool:
        """Whether only a host could go on with it that is away; then it waits for that."""
        if not isinstance(ctx.step, HostStep) or not is_away(ctx):
            return False
        actions.block_on_host(ctx.uow, ctx.action)
        return True

    def _expire(self, ctx: ActionContext, step: Step) -> None:
        """Past its deadline: fail the action, which keeps its claim until its host has answered. A lasting step only
        shows the cause, and goes on."""
        uow, instance, action = ctx.uow, ctx.instance, ctx.action
        cause = self._why_late(ctx)
        LOG.warning("Giving up %s of %s: %s", action.action, instance.uuid, cause)
        if isinstance(step, HostStep) and step.retry_forever:
            faults.set_error(uow, instance, cause)
            instance.task_state = step.task
            action.deadline = uow.now + datetime.timedelta(seconds=self.conf.conductor.action_deadline)
        else:
            self.fail(ctx, cause, answered=False)

    def _pass_forced_down(self, ctx: ActionContext) -> None:
        """By the operator's word an end of a move is off, and what does not belong there is destroyed before it serves
        again: there is nothing left to remove. What it had to do otherwise has failed, or waits until it is back. Who
        was to say whether a guest has moved says nothing any more; one that has needs nothing there meanwhile."""
        while ctx.action.finish_time is None:
            step = ctx.step
            if not isinstance(step, HostStep) or step.at not in MOVE_ROLES:
                return
            if not hosts.is_forced_down(ctx.uow, str(ctx.action.host)):
                return
            if ctx.is_undone and step.may_complete_late and not step.fences:
                self._skip(ctx, step)
            elif step.fences or (step.at is HostRole.DESTINATION and step.retry_forever):
                self.done(ctx)
            elif not step.retry_forever:
                self.fail(ctx, f"Host {ctx.action.host} is forced down.", answered=False)
            else:
                return

    def _skip(self, ctx: ActionContext, step: HostStep) -> None:
        """An undo at a host that does nothing any more: what only it could have told has to be found out elsewhere."""
        if step.may_complete_late and step.at is HostRole.SOURCE:
            ctx.action.payload = {**ctx.action.payload, operations.LOST_SOURCE: True}
        self.advance(ctx)

    def retire(self, ctx: ActionContext, host: str) -> None:
        """``host`` is gone for good: the action asks it for nothing any more, at this step or a later one."""
        ctx.action.payload = {**ctx.action.payload, "retired": [*ctx.action.payload.get("retired", []), host]}
        ctx.retiring = True
        self._pass_retired(ctx)

    def lose(self, uow: UnitOfWork, instance: Instance) -> None:
        """Its host is gone for good, and the instance with it."""
        cause = f"Host {instance.host} was retired: the server and its disks are lost."
        for end in claims.held_hosts(uow, instance):
            if end.host == instance.host:
                claims.release(uow, instance.uuid, end)
        claims.leave(instance)
        instance.power_state = PowerState.NOSTATE
        faults.set_error(uow, instance, cause)

    def _lose_if_retired(self, ctx: ActionContext) -> None:
        """A move that went on while its end was retired may have led there."""
        gone = ctx.action.payload.get("retired", ())
        if ctx.instance.host in gone and not ctx.instance.deleted and not ctx.retiring:
            self.lose(ctx.uow, ctx.instance)

    def _pass_retired(self, ctx: ActionContext) -> None:
        """What was to be removed or taken back at a host that is retired went with it. What else it had to do has
        failed; a build that it had can be made by nobody any more."""
        while ctx.action.finish_time is None and is_retired(ctx):
            step = ctx.step
            assert isinstance(step, HostStep)
            if ctx.is_undone and not step.fences:
                ctx.instance.power_state = PowerState.NOSTATE
                self._skip(ctx, step)
            elif step.retry_forever or step.fences:
                self._done_at_end(ctx, step)
            else:
                self.fail(ctx, f"Host {ctx.action.host} is retired.", answered=False)

    def _why_late(self, ctx: ActionContext) -> str:
        action = ctx.action
        what = f"The {action.action} was not finished within {self.conf.conductor.action_deadline} s"
        if is_away(ctx):
            return f"{what}: its compute host does not answer."
        last_error = action.payload.get("last_error")
        return f"{what}: {last_error}" if last_error else f"{what}."

    # --- effects

    def send(self, order: ActionCommand, context: RequestContext) -> None:
        """Cast an action's order to its host; what no queue takes is sent again by the reconciler. What the host is too
        old for has failed, as if the host had said so."""
        try:
            send_command(self.compute, context, order)
        except exceptions.ServiceTooOld as error:
            self.finish_action(context, str(order.host), order.action_id, None, error.message, "")
        except exceptions.MessagingUnavailable as error:
            LOG.warning("%s of %s could not be sent: %s", order.action, order.instance.uuid, error.message)

    def in_background(self, effect: Callable[[], None]) -> None:
        self.effects.submit(self.guarded, effect)

    def guarded(self, effect: Callable[[], None]) -> None:
        """Run an effect; a failure is logged, and the effect is repeated after the lease."""
        try:
            effect()
        except Exception as error:
            ours = translate(error)
            if isinstance(ours, exceptions.NovaLiteException):
                LOG.warning("A step could not be driven now: %s", ours.message)
            else:
                LOG.exception("A step could not be driven; it is repeated after its lease")


def nothing_to_do(uow: UnitOfWork, context: RequestContext, instance: Instance, kind: str) -> ActionCommand:
    """The answer to a request that would change nothing; no action is written for it."""
    return ActionCommand(
        action_id=0,
        action=kind,
        instance=instances.to_object(uow, instance),
        generation=instance.generation,
        host=None,
        request_id=context.request_id,
    )


def _settle(uow: UnitOfWork, instance: Instance, error: str, details: str) -> None:
    """After a failure: keep the vm state if the guest matches it, else take the guest's; ERROR if it has none."""
    power_state = PowerState(instance.power_state)
    if power_state in states.GUEST_IS.get(instance.vm_state, ()):
        return
    follows = {**states.FOLLOWS, PowerState.PAUSED: states.PAUSED}
    if power_state in follows:
        instance.vm_state = follows[power_state]
    else:
        faults.set_error(uow, instance, error, details)
