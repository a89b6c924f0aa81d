"""Takes an action from step to step.

A step is planned by `StepMachine.begin`. Its effect happens outside any transaction. `StepMachine.done` records it, and
`StepMachine.advance` begins the next step. A step without an effect is recorded in the transaction that plans it.
Failures are in `nova_lite.conductor.engine.compensate`.
"""

from __future__ import annotations

import abc
import datetime

from oslo_config import cfg

from nova_lite import operations
from nova_lite.conductor.engine.context import (
    ActionContext,
    allocations,
    claimed_place,
    command_of,
    is_away,
    is_retired,
)
from nova_lite.conductor.engine.ports import Effects, HandlerLookup
from nova_lite.db.core import actions
from nova_lite.db.core.action_changes import ActionChange, Change
from nova_lite.db.core.events import FiltersChanged
from nova_lite.db.network import builtin_networks
from nova_lite.db.servers import claims
from nova_lite.db.volume import block_devices, cinder
from nova_lite.network.driver import NetworkBackend
from nova_lite.operations import (
    MOVE_ROLES,
    HostRole,
    HostStep,
    NetworkStep,
    ReleaseStep,
    ScheduleStep,
    ServiceStep,
    SnapshotStep,
    Step,
)

# Keys in the payloads of actions. The database stores the values, so they keep their older spelling.

#: The action sends commands to all hosts, and the instance has a single allocation. It stays the only allocation,
#: because nothing is claimed while the action is open.
ONLY_ALLOCATION = "only_end"
#: The action is a delete, and the instance has no ports of users. Its interfaces are deleted with it.
NO_USER_PORTS = "no_users_ports"

#: The time that steps without a deadline get. They wait for a host or service until it is back.
NO_DEADLINE = datetime.timedelta(days=3650)


class StepMachine(abc.ABC):
    """Plans and records steps, in the transaction of the given `ActionContext`."""

    def __init__(
        self, conf: cfg.ConfigOpts, network: NetworkBackend, handlers: HandlerLookup, effects: Effects
    ) -> None:
        self.conf = conf
        self.network = network
        self.handlers = handlers
        self.effects = effects

    @abc.abstractmethod
    def fail(self, ctx: ActionContext, cause: str, details: str = "", *, reported: bool, begun: bool = True) -> None:
        """End the current step as failed. See `nova_lite.conductor.engine.compensate`."""

    @abc.abstractmethod
    def skip_retired_host(self, ctx: ActionContext) -> None:
        """Skip the steps of a retired host. See `nova_lite.conductor.engine.unavailable_hosts`."""

    @abc.abstractmethod
    def lose_if_retired(self, ctx: ActionContext) -> None:
        """Mark an instance that has moved to a retired host as lost."""

    # --- plan

    def begin(self, ctx: ActionContext, step: Step) -> None:
        """Plan a step: write its name, task state, host and deadline. Record it at once if it has no effect."""
        uow, instance, action = ctx.uow, ctx.instance, ctx.action
        action.step = step.name
        if step.notification is not None and not isinstance(step, HostStep):
            uow.note_change(action, Change.STEP_BEGUN, step)
        if step.task is not None:
            instance.task_state = step.task
        if step.deadline is not None:
            action.deadline = uow.now + datetime.timedelta(seconds=self.conf.conductor[step.deadline])
        if isinstance(step, HostStep):
            self._begin_at_host(ctx, step, allocations(ctx, step.at))
        elif isinstance(step, ScheduleStep):
            action.host = None
        elif isinstance(step, ServiceStep):
            if step.outlives_action:
                action.deadline = uow.now + NO_DEADLINE
            is_snapshot = isinstance(step, SnapshotStep)
            call = self.effects.report_snapshot_later if is_snapshot else self.effects.call_images_later
            uow.after_commit(lambda: call(action.id))
        elif isinstance(step, NetworkStep) and self._calls_service(step):
            action.deadline = uow.now + NO_DEADLINE
            uow.after_commit(lambda: self.effects.call_network_later(action.id))
        else:
            if isinstance(step, NetworkStep) and step.name == operations.DEALLOCATE:
                own_alone = [instance.uuid] if action.payload.get(NO_USER_PORTS) else []
                self.network.deallocate(builtin_networks.Store(uow, own_alone=own_alone), instance.uuid)
            elif isinstance(step, ReleaseStep):
                _release(ctx, step)
            self.advance(ctx)

    def _has_effect(self, step: Step) -> bool:
        """Check whether another daemon or service takes part in the step."""
        return isinstance(step, ScheduleStep | HostStep | ServiceStep) or (
            isinstance(step, NetworkStep) and self._calls_service(step)
        )

    def _calls_service(self, step: NetworkStep) -> bool:
        """Check whether another network service has to be called. Built-in networks are rows."""
        return self.network.has_remote_ports if step.name == operations.DISCONNECT else self.network.remote

    def _begin_at_host(self, ctx: ActionContext, step: HostStep, held: list[claims.HeldHost]) -> None:
        """Set the first of these hosts as the action's host. If there is no host, the step is done."""
        uow, action = ctx.uow, ctx.action
        previous_host = action.host
        if held:
            action.host, action.generation = held[0]
        if step.notification is not None:
            uow.note_change(action, Change.STEP_BEGUN, step)
        if not held:
            self.done(ctx)
            return
        if step.at is HostRole.ALL and len(held) == 1:
            action.payload = {**action.payload, ONLY_ALLOCATION: True}
        # A server that is being deleted gets no more ports of users, so the answer stays true.
        if action.action == operations.DELETE.kind and not ctx.may_have_user_ports:
            action.payload = {**action.payload, NO_USER_PORTS: True}
        if step.event is not None:
            actions.start_event(uow, action, step.event, action.host)
        if is_retired(ctx):
            self.skip_retired_host(ctx)
        elif step.offline_step is not None and is_away(ctx):
            self.record_offline(ctx, step)
        elif step.retry_forever and (ctx.definition.is_undo(step.name) or step.at in MOVE_ROLES):
            action.deadline = uow.now + NO_DEADLINE
        elif step.at in MOVE_ROLES and action.host != previous_host and is_away(ctx):
            # The host of the previous step has just reported, so only another one may be away.
            self.fail(ctx, f"Host {action.host} is not up.", reported=False, begun=False)

    def record_offline(self, ctx: ActionContext, step: HostStep) -> None:
        """Record the step for the owner now although its host is away. The action stays open until the host is back."""
        assert step.offline_step is not None
        self.handlers(ctx.action.action).on_step_done(ctx.uow, ctx.instance, step)
        self._note_end_for_owner(ctx, step)
        ctx.action.step = step.offline_step
        ctx.action.deadline = ctx.uow.now + NO_DEADLINE

    # --- record

    def done(self, ctx: ActionContext) -> None:
        """Record the current step as done and continue with the next one."""
        step = ctx.step
        ctx.instance.updated_at = ctx.uow.now
        if step.moves_to is not None:
            place = claimed_place(ctx, step.moves_to)
            assert place is not None
            claims.move(ctx.instance, place)
            ctx.uow.publish(FiltersChanged(ctx.instance.project_id))
            cinder.news(ctx.uow, ctx.instance.uuid)
        self.handlers(ctx.action.action).on_step_done(ctx.uow, ctx.instance, step)
        if ctx.action.step == step.name:  # else it is the offline step, and its end was noted before
            self._note_end_for_owner(ctx, step)
        self.advance(ctx)

    @staticmethod
    def _note_end_for_owner(ctx: ActionContext, step: Step) -> None:
        if ctx.uow.wants(ActionChange) and step is ctx.definition.ends_for_owner_with:
            ctx.uow.note_change(ctx.action, Change.DONE)

    def done_at_host(self, ctx: ActionContext, step: HostStep) -> None:
        """Record that the action's host has done the step.

        If the step has other hosts left, release the allocation at this one and send the command to the next.
        """
        action = ctx.action
        others: list[claims.HeldHost] = []
        if step.at is HostRole.ALL and not action.payload.get(ONLY_ALLOCATION):
            done_at = (action.host, action.generation)
            others = [held for held in allocations(ctx, step.at) if held != done_at]
        if not others:
            self.done(ctx)
            return
        claims.release(ctx.uow, ctx.instance.uuid, claims.HeldHost(str(action.host), action.generation))
        actions.finish_events(ctx.uow, action)
        actions.free(ctx.uow, action)
        action.step = step.name
        self._begin_at_host(ctx, step, others)
        self.send_after_commit(ctx)

    def advance(self, ctx: ActionContext, keep_lease: bool = False) -> None:
        """Begin the next step or undo. After the last one the action is closed.

        The next step is due at once, unless the caller keeps the lease because it continues with the action itself.
        """
        uow, action, definition, step = ctx.uow, ctx.action, ctx.definition, ctx.step
        is_undo = definition.is_undo(step.name)
        if step.notification is not None:
            uow.note_change(action, Change.STEP_DONE, step)
        following = definition.following(step.name, action.payload)
        if following is not None:
            if not is_undo and self._has_effect(following):
                actions.finish_events(uow, action)
            if not keep_lease:
                actions.free(uow, action)
            action.attempts = 0
            self.begin(ctx, following)
            if not keep_lease:
                self.send_after_commit(ctx)
            return
        if not isinstance(step, ServiceStep):  # a later operation may have begun beside it
            ctx.instance.request = {}
        if not is_undo:
            self.lose_if_retired(ctx)
            actions.finish(uow, action)
            return
        if not isinstance(step, ServiceStep):
            ctx.instance.task_state = None
        fault = ctx.instance.fault or {}
        causes = (ctx.cause, action.payload.get("superseded"), action.payload.get("cause"), fault.get("message"))
        cause = next(filter(None, causes), "It was given up.")
        actions.finish(uow, action, cause, ctx.details)
        self.handlers(action.action).on_failed(uow, ctx.instance)
        self.lose_if_retired(ctx)

    def retry_from(self, ctx: ActionContext, name: str, error: str, details: str) -> None:
        """Go back to the earlier step of this name, because another host may do better."""
        actions.finish_events(ctx.uow, ctx.action, error, details)
        actions.free(ctx.uow, ctx.action)
        self.begin(ctx, ctx.definition.step(name))

    def send_after_commit(self, ctx: ActionContext) -> None:
        """Send the command of a step that was just begun, once that is committed.

        If the command is lost, the reconciler sends it again a moment later.
        """
        if ctx.from_reconciler or ctx.action.finish_time is not None or ctx.sent_step == ctx.action.step:
            return
        command, context = command_of(ctx), ctx.context
        if command.host is not None:
            ctx.sent_step = ctx.action.step
            actions.begin_later(ctx.uow, self.conf, ctx.action)
            ctx.uow.after_commit(lambda: self.effects.send_later(command, context))


def _release(ctx: ActionContext, step: ReleaseStep) -> None:
    uow, instance = ctx.uow, ctx.instance
    if step.at in MOVE_ROLES:
        for held in allocations(ctx, step.at):
            claims.release(uow, instance.uuid, held)
        return
    claims.release(uow, instance.uuid)
    if instance.deleted:
        block_devices.release(uow, instance)
    else:
        claims.leave(instance)
