"""Reports of hosts about commands: their progress and their end. Reports about builds are in `build_reports`."""

from __future__ import annotations

import logging

from oslo_config import cfg

from nova_lite.conductor.engine.context import action_for_command, lock_action
from nova_lite.conductor.engine.unavailable_hosts import Transitions
from nova_lite.db import actions
from nova_lite.db.engine import Database, UnitOfWork
from nova_lite.objects import ActionReport
from nova_lite.operations import HostStep

LOG = logging.getLogger(__name__)


class CommandReports:
    """Records reports. A report about a closed action, an earlier step, or another host's action changes nothing."""

    def __init__(self, db: Database, conf: cfg.ConfigOpts, transitions: Transitions) -> None:
        self.db = db
        self.conf = conf
        self.transitions = transitions

    def finish(self, host: str, report: ActionReport) -> None:
        """Record how a command has ended."""
        self.db.write(self._finish_action, host, report)

    def finish_all(self, host: str, reports: list[ActionReport]) -> None:
        """Record how these commands have ended, in one transaction."""

        def finish_action(uow: UnitOfWork, batch: list[ActionReport]) -> list[None]:
            for report in batch:
                self._finish_action(uow, host, report)
            return [None] * len(batch)

        # Every conductor locks actions in the same order, so that two transactions do not wait for each other.
        self.db.write_together(finish_action, sorted(reports, key=lambda report: report.action_id))

    def is_current(self, host: str, action_id: int, sequence: int | None, request_id: str | None = None) -> bool:
        """Check whether the action waits for this command of the host. See `action_for_command`."""
        return self.db.write(action_for_command, host, action_id, sequence, request_id) is not None

    def record_task(self, host: str, action_id: int, task_state: str) -> bool:
        """Record that the host has reached a task state of its step. Returns False if the action is over."""
        return self.db.write(self._report_task, host, action_id, task_state)

    def _finish_action(self, uow: UnitOfWork, host: str, report: ActionReport) -> None:
        ctx = action_for_command(uow, host, report.action_id, report.sequence, report.request_id)
        if ctx is None:
            return
        step, action = ctx.step, ctx.action
        assert isinstance(step, HostStep)
        if report.power_state is not None:
            ctx.instance.power_state = report.power_state
        if report.error is None and step.may_complete_late and (report.answer or {}).get("done"):
            LOG.info("The %s of %s was done after all", action.action, ctx.instance.uuid)
            self.transitions.completed_late(ctx)
        elif report.error is None:
            if report.answer is not None:
                results = {**action.payload.get("answers", {}), step.name: report.answer}
                action.payload = {**action.payload, "answers": results}
            self.transitions.done_at_host(ctx, step)
        elif step.retry_forever:
            LOG.warning("%s of %s failed on %s: %s", action.action, ctx.instance.uuid, host, report.error)
            actions.finish_events(uow, action, report.error, report.details)
            actions.back_off(uow, self.conf, action, report.error)
        else:
            self.transitions.fail(ctx, report.error, report.details, reported=True)

    def _report_task(self, uow: UnitOfWork, host: str, action_id: int, task_state: str) -> bool:
        ctx = lock_action(uow, action_id)
        if ctx is None or ctx.action.host != host or not isinstance(ctx.step, HostStep):
            return False
        course = (ctx.step.task, *ctx.step.tasks)
        now = ctx.instance.task_state
        if task_state in course and now in course and course.index(now) < course.index(task_state):
            ctx.instance.task_state = task_state
            ctx.instance.updated_at = uow.now
        return True
