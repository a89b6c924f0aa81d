"""Reports of hosts about commands: their progress and their end. Reports about builds are in `build_reports`."""

from __future__ import annotations

import itertools
import logging
from typing import NamedTuple

import msgspec
from oslo_config import cfg

from nova_lite.base.batching import OVERLAP_AFTER_WRITE, Batcher, BatchLimits
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.context import ActionContext, action_for_command, if_waiting, lock_action
from nova_lite.conductor.engine.unavailable_hosts import Transitions
from nova_lite.db.core import actions, replay_cache
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.servers import resource_releases
from nova_lite.objects import ActionReport, GuestReport
from nova_lite.objects.guest_device import DEVICES
from nova_lite.operations import HostStep

LOG = logging.getLogger(__name__)

#: Reports of one transaction.
MAX_BATCH = 64
LIMITS = BatchLimits(overlap_after=OVERLAP_AFTER_WRITE)


class _Received(NamedTuple):
    """A report, in the context of its message."""

    context: RequestContext
    report: ActionReport


class CommandReports:
    """Records reports. A report about a closed action, an earlier step, or another host's action changes nothing."""

    def __init__(self, db: Database, conf: cfg.ConfigOpts, transitions: Transitions) -> None:
        self.db = db
        self.conf = conf
        self.transitions = transitions
        self._batcher: Batcher[list[_Received], list[Exception | None]] = Batcher(self._finish_messages, LIMITS)

    def finish(self, context: RequestContext, report: ActionReport) -> None:
        """Record how a command has ended. Reports that arrive meanwhile, of any host, share one transaction."""
        self.finish_all(context, [report])

    def finish_all(self, context: RequestContext, reports: list[ActionReport]) -> None:
        """Record how these commands have ended. Raises the error of a report that cannot be recorded."""
        failure = next(filter(None, self._batcher.submit([_Received(context, report) for report in reports])), None)
        if failure is not None:
            raise failure

    def _finish_messages(self, messages: list[list[_Received]]) -> list[list[Exception | None]]:
        """Record the reports of several messages, in transactions of at most `MAX_BATCH` reports."""
        received = list(itertools.chain.from_iterable(messages))
        # Every conductor locks actions in the same order, so that two transactions do not wait for each other.
        order = sorted(range(len(received)), key=lambda number: received[number].report.action_id)
        failures: dict[int, Exception | None] = {}
        for start in range(0, len(order), MAX_BATCH):
            batch = order[start : start + MAX_BATCH]
            failures.update(zip(batch, self._finish_batch([received[number] for number in batch]), strict=True))
        numbers = iter(range(len(received)))
        return [[failures[number] for number in itertools.islice(numbers, len(message))] for message in messages]

    def _finish_batch(self, received: list[_Received]) -> list[Exception | None]:
        def finish_action(uow: UnitOfWork, batch: list[_Received]) -> list[Exception | None]:
            replay_cache.record(uow, *(item.context for item in batch))
            if len(batch) == 1:
                self._finish_action(uow, batch[0].report)
                return [None]
            locked = actions.lock_of(uow, [item.report.action_id for item in batch])
            with resource_releases.together(uow):
                for _, report in batch:
                    if report.action_id in locked:
                        ctx = ActionContext(uow, *locked[report.action_id])
                        self._record(if_waiting(ctx, report.host, report.sequence, report.request_id), report)
            return [None] * len(batch)

        return self.db.write_each(finish_action, received)

    def is_current(self, host: str, action_id: int, sequence: int | None, request_id: str | None = None) -> bool:
        """Check whether the action waits for this command of the host. See `action_for_command`."""
        return self.db.write(action_for_command, host, action_id, sequence, request_id) is not None

    def record_task(self, context: RequestContext, host: str, action_id: int, task_state: str) -> bool:
        """Record that the host has reached a task state of its step. Returns False if the action is over."""
        return self.db.write(self._report_task, context, host, action_id, task_state)

    def _finish_action(self, uow: UnitOfWork, report: ActionReport) -> None:
        self._record(action_for_command(uow, report.host, report.action_id, report.sequence, report.request_id), report)

    def _record(self, ctx: ActionContext | None, report: ActionReport) -> None:
        if ctx is None:
            return
        uow, step, action = ctx.uow, ctx.step, ctx.action
        assert isinstance(step, HostStep)
        if report.power_state is not None:
            ctx.instance.power_state = report.power_state
        answer = dict(report.answer or {})
        if (devices := answer.pop(DEVICES, None)) is not None:
            ctx.instance.guest_devices = msgspec.to_builtins(msgspec.convert(devices, GuestReport))
        if report.error is None and step.may_complete_late and answer.get("done"):
            LOG.info("The %s of %s was done after all", action.action, ctx.instance.uuid)
            self.transitions.completed_late(ctx)
        elif report.error is None:
            if answer or (report.answer is not None and devices is None):
                results = {**action.payload.get("answers", {}), step.name: answer}
                action.payload = {**action.payload, "answers": results}
            self.transitions.done_at_host(ctx, step)
        elif step.retry_forever:
            LOG.warning("%s of %s failed on %s: %s", action.action, ctx.instance.uuid, action.host, report.error)
            actions.finish_events(uow, action, report.error, report.details)
            actions.back_off(uow, self.conf, action, report.error)
        else:
            self.transitions.fail(ctx, report.error, report.details, reported=True)

    def _report_task(
        self, uow: UnitOfWork, context: RequestContext, host: str, action_id: int, task_state: str
    ) -> bool:
        replay_cache.record(uow, context)
        ctx = lock_action(uow, action_id)
        if ctx is None or ctx.action.host != host or not isinstance(ctx.step, HostStep):
            return False
        course = (ctx.step.task, *ctx.step.tasks)
        now = ctx.instance.task_state
        if task_state in course and now in course and course.index(now) < course.index(task_state):
            ctx.instance.task_state = task_state
            ctx.instance.updated_at = uow.now
        return True
