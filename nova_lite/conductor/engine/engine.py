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
from nova_lite.compute.rpcapi import ComputeRPC, send_ticket
from nova_lite.conductor.engine import faults
from nova_lite.conductor.engine.context import Act, check, ends, is_away, is_retired, lock_act, ordered, place, ticket
from nova_lite.conductor.engine.network_attach import Attaches
from nova_lite.conductor.engine.service_calls import Calls
from nova_lite.conductor.operations.registry import own
from nova_lite.db import actions, block_devices, cinder, claims, hosts, instances, networks
from nova_lite.db.engine import Database, UnitOfWork, translate
from nova_lite.db.models import Instance, InstanceAction
from nova_lite.image.driver import ImageBackend
from nova_lite.network.driver import NetworkBackend
from nova_lite.objects import ActionReport, ActionTicket, RequestSpec
from nova_lite.operations import MOVE, End, Image, Network, OnHost, Operation, Release, Schedule, Step, states
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


class Engine:
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
        self.calls = Calls(self)
        self.attaches = Attaches(self)
        self.effects: futures.Executor = futures.ThreadPoolExecutor(PARALLEL_EFFECTS, thread_name_prefix="effect")

    def stop(self) -> None:
        self.effects.shutdown(wait=False, cancel_futures=True)

    # --- accept

    def accept_action(
        self, context: RequestContext, instance_uuid: str, action: str, payload: dict[str, Any]
    ) -> ActionTicket:
        """Write the action, or raise 404 or 409; the ticket is the order to its host. A repeated request gets its
        ticket again."""
        if action == operations.ATTACH_INTERFACE.kind and self.network.keeps_ports:
            return self.attaches.accept(context, instance_uuid, payload)
        if own(action).asks:
            question = self.db.read(self._question, context, instance_uuid, action, payload)
            if question is not None:
                self._agree(context, question)
        return self.db.write(self._accept_action, context, instance_uuid, action, payload)

    def _question(
        self, uow: UnitOfWork, context: RequestContext, instance_uuid: str, kind: str, payload: dict[str, Any]
    ) -> RequestSpec | None:
        instance = instances.get_row(uow, context, instance_uuid, deleted=True)
        if instance.deleted or actions.find_by_request(uow, context.request_id, kind, instance_uuid) is not None:
            return None
        check(context, instance, operations.get(kind, payload))
        return own(kind).question(uow, self.conf, context, instance, payload)

    def _agree(self, context: RequestContext, question: RequestSpec) -> None:
        """Raises `UnsuitableHost` if the scheduler says no."""
        try:
            self.scheduler.select_destinations(context, question)
        except exceptions.NoValidHost as error:
            raise exceptions.UnsuitableHost(reason=error.kwargs.get("reason", error.message)) from error

    def accept_in(
        self, uow: UnitOfWork, context: RequestContext, instance_uuid: str, kind: str, payload: dict[str, Any]
    ) -> ActionTicket:
        """`accept_action` in a transaction that is under way; the reconciler sends the order."""
        return self._accept_action(uow, context, instance_uuid, kind, payload)

    def _accept_action(
        self, uow: UnitOfWork, context: RequestContext, instance_uuid: str, kind: str, payload: dict[str, Any]
    ) -> ActionTicket:
        instance = instances.get_row(uow, context, instance_uuid, deleted=True, lock=True)
        known = actions.open_or_of(uow, instance_uuid, context.request_id, kind)
        of_kind = [action for action in known if action.action == kind]
        repeated = next((action for action in of_kind if action.request_id == context.request_id), None)
        if repeated is not None:
            return ticket(Act(uow, instance, repeated))
        if instance.deleted:
            raise exceptions.InstanceNotFound(instance_id=instance_uuid)
        try:
            row = operations.get(kind, payload)
        except KeyError:
            raise exceptions.InvalidInput(reason=f"there is no action {kind!r}") from None
        joins = row.joins and instance.task_state == row.steps[0].task
        if joins and of_kind:
            return ticket(Act(uow, instance, of_kind[0]))
        check(context, instance, row)
        kept = own(kind).accept(uow, context, instance, payload)
        if kept is None:
            return nothing_to_do(uow, context, instance, kind)
        if row.supersedes:
            self._supersede(uow, instance, row, known)
        instance.updated_at = uow.now
        act = Act(uow, instance, actions.open_action(uow, self.conf, context, instance, kind, kept))
        row = act.row
        if row.steps:
            self._begin(act, row.steps[0])
        else:
            act.action.step = operations.PERFORM
            actions.start_event(uow, act.action, f"api_{kind}", self.conf.host)
            actions.finish(uow, act.action)
        uow.session.flush()
        return ticket(act)

    def _supersede(self, uow: UnitOfWork, instance: Instance, row: Operation, known: list[InstanceAction]) -> None:
        """Close what is ``known`` to be open; raises `InstanceInvalidState` while something is undone that has to end
        first. What an action has of the image backend is given back beside the later one."""
        for earlier in known:
            act = Act(uow, instance, earlier)
            step = act.step
            if isinstance(step, Image) and step.goes_on:
                continue
            undone = act.row.is_undo(step.name)
            if undone and not row.takes_over:
                raise exceptions.InstanceInvalidState(
                    method=row.method, instance_id=instance.uuid, attr="unfinished action", state=earlier.action
                )
            undos = () if undone else act.row.undos(step.name)
            discard = next((undo for undo in undos if isinstance(undo, Image)), None)
            if discard is None:
                actions.finish(uow, earlier, f"superseded by {row.kind}")
                own(earlier.action).superseded(uow, instance)
                continue
            actions.finish_events(uow, earlier, f"superseded by {row.kind}")
            actions.free(uow, earlier)
            earlier.payload = {**earlier.payload, "superseded": f"superseded by {row.kind}"}
            self._begin(act, discard)
        uow.session.flush()

    # --- plan

    def _begin(self, act: Act, step: Step) -> None:
        """Plan a step: write its name, task state, host and deadline. One without an effect is recorded at once."""
        uow, instance, action = act.uow, act.instance, act.action
        action.step = step.name
        if step.task is not None:
            instance.task_state = step.task
        if step.deadline is not None:
            action.deadline = uow.now + datetime.timedelta(seconds=self.conf.conductor[step.deadline])
        if isinstance(step, Schedule):
            action.host = None
        elif isinstance(step, OnHost):
            self._begin_at(act, step, ends(act, step.at))
        elif isinstance(step, Network) and self._is_told(step):
            action.deadline = uow.now + NO_DEADLINE
            uow.after_commit.append(lambda: self.in_background(lambda: self.calls.to_network(action.id)))
        elif isinstance(step, Image):
            if step.goes_on:
                action.deadline = uow.now + NO_DEADLINE
            uow.after_commit.append(lambda: self.in_background(lambda: self.calls.to_images(action.id)))
        else:
            if isinstance(step, Network) and step.name == operations.DEALLOCATE:
                own_alone = [instance.uuid] if action.payload.get(NO_USERS_PORTS) else []
                self.network.deallocate(networks.Store(uow, own_alone=own_alone), instance.uuid)
            elif isinstance(step, Release):
                self._release(act, step)
            self.advance(act)

    def _release(self, act: Act, step: Release) -> None:
        uow, instance = act.uow, act.instance
        if step.end in MOVE:
            for end in ends(act, step.end):
                claims.release(uow, instance.uuid, end)
            return
        claims.release(uow, instance.uuid)
        if instance.deleted:
            block_devices.release(uow, instance)
        else:
            claims.leave(instance)

    def _takes_time(self, step: Step) -> bool:
        """Whether anybody else is asked; else it is recorded where it is planned."""
        return isinstance(step, Schedule | OnHost | Image) or (isinstance(step, Network) and self._is_told(step))

    def _is_told(self, step: Network) -> bool:
        """Whether there is another service to tell of it."""
        return self.network.keeps_ports if step.name == operations.DISCONNECT else self.network.remote

    def _begin_at(self, act: Act, step: OnHost, ends: list[claims.End]) -> None:
        """Address the order to the first of these ends. Without any the step is done."""
        uow, action = act.uow, act.action
        if not ends:
            self.done(act)
            return
        before = action.host
        action.host, action.generation = ends[0]
        if step.at is End.EVERY and len(ends) == 1:
            action.payload = {**action.payload, ONLY_END: True}
        if act.action.action == operations.DELETE.kind and not act.has_users_ports:  # from now on it gets none
            action.payload = {**action.payload, NO_USERS_PORTS: True}
        if step.event is not None:
            actions.start_event(uow, action, step.event, action.host)
        if is_retired(act):
            self._pass_retired(act)
        elif step.away is not None and is_away(act):
            self._leave_for_later(act, step)
        elif step.lasting and (act.row.is_undo(step.name) or step.at in MOVE):
            action.deadline = uow.now + NO_DEADLINE
        elif step.at in MOVE and action.host != before and is_away(act):  # it has just reported, if it is the same
            self.fail(act, f"Host {action.host} is not up.", answered=False, begun=False)

    def _leave_for_later(self, act: Act, step: OnHost) -> None:
        """The host is down: record the step for the owner now; the action stays open until the host is back."""
        assert step.away is not None
        own(act.action.action).record(act.uow, act.instance, step)
        act.action.step = step.away
        act.action.deadline = act.uow.now + NO_DEADLINE

    # --- record

    def done(self, act: Act) -> None:
        """The step is done."""
        act.instance.updated_at = act.uow.now
        if act.step.moves_to is not None:
            there = place(act, act.step.moves_to)
            assert there is not None
            claims.move(act.instance, there)
            act.uow.refiltered_projects.add(act.instance.project_id)
            cinder.news(act.uow, act.instance.uuid)
        own(act.action.action).record(act.uow, act.instance, act.step)
        self.advance(act)

    def advance(self, act: Act, driven: bool = False) -> None:
        """On to the next step or undo, which is due at once unless it is ``driven``; after the last one the action is
        closed."""
        uow, action, row = act.uow, act.action, act.row
        name = act.step.name
        following = row.after(name, action.payload)
        if following is not None:
            if not row.is_undo(name) and self._takes_time(following):
                actions.finish_events(uow, action)
            if not driven:
                actions.free(uow, action)
            action.attempts = 0
            self._begin(act, following)
            if not driven:
                self._order(act)
            return
        if not isinstance(act.step, Image):  # beside it, a later operation may have begun
            act.instance.request = {}
        if not row.is_undo(name):
            self._lose_if_retired(act)
            actions.finish(uow, action)
            return
        if not isinstance(act.step, Image):
            act.instance.task_state = None
        fault = act.instance.fault or {}
        causes = (act.cause, action.payload.get("superseded"), action.payload.get("cause"), fault.get("message"))
        cause = next(filter(None, causes), "It was given up.")
        actions.finish(uow, action, cause, act.details)
        own(action.action).failed(uow, act.instance)
        self._lose_if_retired(act)

    def _order(self, act: Act) -> None:
        """Send the order of a step that was just begun as soon as that is committed; if it is lost, the reconciler
        sends it a moment later."""
        if act.swept or act.action.finish_time is not None or act.ordered == act.action.step:
            return
        order, context = ticket(act), act.context
        if order.host is not None:
            act.ordered = act.action.step
            actions.begin_later(act.uow, self.conf, act.action)
            act.uow.after_commit.append(lambda: self.in_background(lambda: self.send(order, context)))

    def again(self, act: Act, name: str, error: str, details: str) -> None:
        """The step has failed in a way that others may do better: back to an earlier one."""
        actions.finish_events(act.uow, act.action, error, details)
        actions.free(act.uow, act.action)
        self._begin(act, act.row.step(name))

    def fail(self, act: Act, cause: str, details: str = "", *, answered: bool, begun: bool = True) -> None:
        """The step has failed for good: undo it and what came before. ``answered``: its host says so. Not ``begun``:
        nobody was told of it, so that only what came before has to be undone."""
        act.cause, act.details = cause, details
        uow, instance, row, step = act.uow, act.instance, act.row, act.step
        undos = () if act.is_undone else row.undos(step.name, begun)
        instance.task_state = None
        instance.updated_at = uow.now
        if undos and row.failed is not None:
            faults.set_error(uow, instance, cause, details)
            reason = "not_placed" if isinstance(step, operations.Schedule) else "reported" if answered else "silent"
            metrics.BUILDS_FAILED.labels(reason).inc()
        elif undos:
            act.action.payload = {**act.action.payload, "cause": cause}
        if answered and (all(isinstance(undo, Image) for undo in undos) if undos else step.becomes is not None):
            _settle(uow, instance, cause, details)
        if answered and isinstance(step, OnHost) and step.cleans_up:
            undos = undos[1:]
        undo = operations.first_wanted(undos, act.action.payload)
        if undo is None:
            instance.request = {}
            actions.finish(uow, act.action, cause, details)
            own(act.action.action).failed(uow, instance)
            return
        actions.finish_events(uow, act.action, cause, details)
        actions.free(uow, act.action)
        self._begin(act, undo)
        self._order(act)

    # --- what hosts report

    def finish_action(
        self,
        context: RequestContext,
        host: str,
        action_id: int,
        power_state: int | None,
        error: str | None,
        details: str,
        position: int = 0,
        answer: dict[str, Any] | None = None,
        request_id: str | None = None,
    ) -> None:
        """An order was carried out, or not. One that is over, is not this host's, or is of another request, stays as it
        is."""
        self.db.write(self._finish_action, host, action_id, power_state, error, details, position, answer, request_id)

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
                    report.position,
                    report.answer,
                    report.request_id,
                )
            return [None] * len(some)

        # In one order everywhere, as the transaction locks several.
        self.db.write_together(finish_action, sorted(reports, key=lambda report: report.action_id))

    def order_is_open(
        self, context: RequestContext, host: str, action_id: int, position: int | None, request_id: str
    ) -> bool:
        return self.db.write(ordered, host, action_id, position, request_id) is not None

    def order_is_wanted(self, context: RequestContext, host: str, action_id: int, position: int) -> bool:
        return self.db.write(ordered, host, action_id, position) is not None

    def _finish_action(
        self,
        uow: UnitOfWork,
        host: str,
        action_id: int,
        power_state: int | None,
        error: str | None,
        details: str,
        position: int,
        answer: dict[str, Any] | None,
        request_id: str | None,
    ) -> None:
        act = ordered(uow, host, action_id, position, request_id)
        if act is None or not isinstance(act.step, OnHost):
            return
        step, action = act.step, act.action
        if power_state is not None:
            act.instance.power_state = power_state
        if error is None and step.revives and (answer or {}).get("done"):
            LOG.info("The %s of %s was done after all", action.action, act.instance.uuid)
            action.step = act.row.undone_by(step.name).name
            self.done(act)
        elif error is None:
            if answer is not None:
                action.payload = {**action.payload, "answers": {**action.payload.get("answers", {}), step.name: answer}}
            self._done_at_end(act, step)
        elif step.lasting:
            LOG.warning("%s of %s failed on %s: %s", action.action, act.instance.uuid, host, error)
            actions.finish_events(uow, action, error, details)
            actions.back_off(uow, self.conf, action, error)
        else:
            self.fail(act, error, details, answered=True)

    def _done_at_end(self, act: Act, step: OnHost) -> None:
        """The step is done at one end: release it and order the next one, or finish the step."""
        action = act.action
        every = [] if action.payload.get(ONLY_END) else ends(act, step.at)
        left = [end for end in every if end != (action.host, action.generation)]
        if not left:
            self.done(act)
            return
        claims.release(act.uow, act.instance.uuid, claims.End(str(action.host), action.generation))
        actions.finish_events(act.uow, action)
        actions.free(act.uow, action)
        action.step = step.name
        self._begin_at(act, step, left)
        self._order(act)

    def report_task(self, context: RequestContext, host: str, action_id: int, task_state: str) -> bool:
        """A host has come to a task state of its step; whether the action is still wanted."""
        return self.db.write(self._report_task, host, action_id, task_state)

    def _report_task(self, uow: UnitOfWork, host: str, action_id: int, task_state: str) -> bool:
        act = lock_act(uow, action_id)
        if act is None or act.action.host != host or not isinstance(act.step, OnHost):
            return False
        order = (act.step.task, *act.step.tasks)
        now = act.instance.task_state
        if task_state in order and now in order and order.index(now) < order.index(task_state):
            act.instance.task_state = task_state
            act.instance.updated_at = uow.now
        return True

    # --- deadlines

    def take_due(self, uow: UnitOfWork, owner: str, ids: Iterable[int]) -> list[Act]:
        """For the reconciler: lease to ``owner`` what is due of these actions, end what is past its deadline, and
        settle in the same transaction what needs no other daemon. What is left has to be driven; what its host would
        have to do that is away waits for it."""
        due = []
        for action in actions.take_due(uow, self.conf, owner, ids):
            instance = instances.lock(uow, action.instance_uuid)
            uow.session.refresh(action)
            if instance is None or action.finish_time is not None:
                continue
            act = Act(uow, instance, action, swept=True)
            try:
                step = act.step
            except LookupError:
                LOG.error("Action %d is a %s at step %s: none of this version's", action.id, action.action, action.step)
                continue
            if action.deadline <= uow.now:
                self._expire(act, step)
            elif isinstance(step, OnHost) and step.away and step.away != action.step and is_away(act):
                self._leave_for_later(act, step)
            else:
                self._pass_forced_down(act)
            if action.finish_time is None and not self._parked(act):
                if action.lease_owner != owner:
                    actions.take_up(uow, self.conf, action, owner)
                due.append(act)
        return due

    def _parked(self, act: Act) -> bool:
        """Whether only a host could go on with it that is away; then it waits for that."""
        if not isinstance(act.step, OnHost) or not is_away(act):
            return False
        actions.park(act.uow, act.action)
        return True

    def _expire(self, act: Act, step: Step) -> None:
        """Past its deadline: fail the action, which keeps its claim until its host has answered. A lasting step only
        shows the cause, and goes on."""
        uow, instance, action = act.uow, act.instance, act.action
        cause = self._why_late(act)
        LOG.warning("Giving up %s of %s: %s", action.action, instance.uuid, cause)
        if isinstance(step, OnHost) and step.lasting:
            faults.set_error(uow, instance, cause)
            instance.task_state = step.task
            action.deadline = uow.now + datetime.timedelta(seconds=self.conf.conductor.action_deadline)
        else:
            self.fail(act, cause, answered=False)

    def _pass_forced_down(self, act: Act) -> None:
        """By the operator's word an end of a move is off, and what does not belong there is destroyed before it serves
        again: there is nothing left to remove. What it had to do otherwise has failed, or waits until it is back. Who
        was to say whether a guest has moved says nothing any more; one that has needs nothing there meanwhile."""
        while act.action.finish_time is None:
            step = act.step
            if not isinstance(step, OnHost) or step.at not in MOVE:
                return
            if not hosts.is_forced_down(act.uow, str(act.action.host)):
                return
            if act.is_undone and step.revives and not step.fences:
                self._skip(act, step)
            elif step.fences or (step.at is End.DESTINATION and step.lasting):
                self.done(act)
            elif not step.lasting:
                self.fail(act, f"Host {act.action.host} is forced down.", answered=False)
            else:
                return

    def _skip(self, act: Act, step: OnHost) -> None:
        """An undo at a host that does nothing any more: what only it could have told has to be found out elsewhere."""
        if step.revives and step.at is End.SOURCE:
            act.action.payload = {**act.action.payload, operations.LOST_SOURCE: True}
        self.advance(act)

    def retire(self, act: Act, host: str) -> None:
        """``host`` is gone for good: the action asks it for nothing any more, at this step or a later one."""
        act.action.payload = {**act.action.payload, "retired": [*act.action.payload.get("retired", []), host]}
        act.retiring = True
        self._pass_retired(act)

    def lose(self, uow: UnitOfWork, instance: Instance) -> None:
        """Its host is gone for good, and the instance with it."""
        cause = f"Host {instance.host} was retired: the server and its disks are lost."
        for end in claims.ends(uow, instance):
            if end.host == instance.host:
                claims.release(uow, instance.uuid, end)
        claims.leave(instance)
        instance.power_state = PowerState.NOSTATE
        faults.set_error(uow, instance, cause)

    def _lose_if_retired(self, act: Act) -> None:
        """A move that went on while its end was retired may have led there."""
        gone = act.action.payload.get("retired", ())
        if act.instance.host in gone and not act.instance.deleted and not act.retiring:
            self.lose(act.uow, act.instance)

    def _pass_retired(self, act: Act) -> None:
        """What was to be removed or taken back at a host that is retired went with it. What else it had to do has
        failed; a build that it had can be made by nobody any more."""
        while act.action.finish_time is None and is_retired(act):
            step = act.step
            assert isinstance(step, OnHost)
            if act.is_undone and not step.fences:
                act.instance.power_state = PowerState.NOSTATE
                self._skip(act, step)
            elif step.lasting or step.fences:
                self._done_at_end(act, step)
            else:
                self.fail(act, f"Host {act.action.host} is retired.", answered=False)

    def _why_late(self, act: Act) -> str:
        action = act.action
        what = f"The {action.action} was not finished within {self.conf.conductor.action_deadline} s"
        if is_away(act):
            return f"{what}: its compute host does not answer."
        last_error = action.payload.get("last_error")
        return f"{what}: {last_error}" if last_error else f"{what}."

    # --- effects

    def send(self, order: ActionTicket, context: RequestContext) -> None:
        """Cast an action's order to its host; what no queue takes is sent again by the reconciler. What the host is too
        old for has failed, as if the host had said so."""
        try:
            send_ticket(self.compute, context, order)
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


def nothing_to_do(uow: UnitOfWork, context: RequestContext, instance: Instance, kind: str) -> ActionTicket:
    """The answer to a request that would change nothing; no action is written for it."""
    return ActionTicket(
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
