"""An order to this host, from the ticket to the report, whatever the operation is."""

from __future__ import annotations

import functools
import logging
import traceback

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.compute.fencing import ActionResult
from nova_lite.compute.host import LocalHost
from nova_lite.compute.operations import WORK, Work
from nova_lite.compute.reports import exception_message
from nova_lite.objects import ActionCommand
from nova_lite.operations import HostStep

LOG = logging.getLogger(__name__)


class CommandExecutor:
    """Carries out tickets: a late one is dropped, a doubled one only reported again."""

    def __init__(self, host: LocalHost) -> None:
        self._host = host

    def run(self, context: RequestContext, step: HostStep, ticket: ActionCommand) -> None:
        """Do and report. The whole job, in its own thread.

        A step that fences does so before the lock is asked for: a build that holds it stops at its next step.
        """
        uuid, fences = ticket.instance.uuid, self._host.fences
        forbidden = ticket.generation if step.fences else None
        order = (ticket.action_id, ticket.sequence, ticket.request_id)
        is_open = not fences.get(uuid).is_in_order(*order) and self._host.is_open(uuid, *order)
        if not fences.admit(uuid, ticket.action_id, forbidden, ticket.sequence, ticket.request_id, is_open):
            LOG.info("Instance %s: %s %d came late, dropped", uuid, ticket.action, ticket.action_id)
            return
        with self._host.jobs.locks.hold(uuid):
            result = self._do_once(step, ticket)
        if result is not None:
            self._report(context, ticket, result)

    def _do_once(self, step: HostStep, ticket: ActionCommand) -> ActionResult | None:
        """Carry it out, unless it was finished before; None if it was overtaken while it waited for the lock.

        What is finished is noted before it is reported. A lasting step is finished only when it has worked: the same
        ticket comes again until it does.
        """
        uuid, fences = ticket.instance.uuid, self._host.fences
        record = fences.get(uuid)
        if not record.is_last(ticket.action_id, ticket.sequence, ticket.request_id):
            LOG.info("Instance %s: %s %d was overtaken", uuid, ticket.action, ticket.action_id)
            return None
        if record.result is not None:
            return record.result
        result = self._carry_out(step, ticket)
        if result.error is None or not step.retry_forever:
            fences.done(uuid, ticket.action_id, result, ticket.sequence, ticket.request_id)
        return result

    def _carry_out(self, step: HostStep, ticket: ActionCommand) -> ActionResult:
        uuid = ticket.instance.uuid
        try:
            answer = work_of(step)(self._host, ticket)
            return ActionResult(power_state=self._host.power_state(uuid), answer=answer)
        except Exception as error:
            expected = isinstance(error, exceptions.NovaLiteException)
            LOG.warning("Instance %s: %s failed: %s", uuid, ticket.action, error, exc_info=not expected)
            return ActionResult(
                power_state=self._power_state(uuid),
                error=exception_message(error, self._host.name),
                details="".join(traceback.format_exception(error)),
            )

    def _power_state(self, instance_uuid: str) -> int | None:
        """For the report of a failure, if the hypervisor can still tell."""
        try:
            return self._host.power_state(instance_uuid)
        except exceptions.VirtDriverError:
            return None

    def _report(self, context: RequestContext, ticket: ActionCommand, result: ActionResult) -> None:
        """Saying twice how it ended is harmless, so this insists whatever else comes."""
        host, uuid = self._host, ticket.instance.uuid
        try:
            host.retrier.ask(
                f"Instance {uuid}: report of {ticket.action}",
                lambda: self._finish(context, ticket, result),
                lambda: None,
            )
        except exceptions.NovaLiteException as error:
            LOG.info("Instance %s: report of %s %d not wanted: %s", uuid, ticket.action, ticket.action_id, error)

    def _finish(self, context: RequestContext, ticket: ActionCommand, result: ActionResult) -> None:
        """A conductor of before takes no request's id."""
        report = functools.partial(
            self._host.conductor.finish_action,
            context,
            self._host.name,
            ticket.action_id,
            result.power_state,
            result.error,
            result.details,
            position=ticket.sequence,
            answer=result.answer,
        )
        try:
            report(request_id=ticket.request_id)
        except exceptions.ServiceTooOld:
            report()


def work_of(step: HostStep) -> Work:
    """What to do for a step: the method of the driver that its row names, or a function of `WORK`."""
    return WORK[step.method] if step.driver is None else functools.partial(ask_driver, step.driver)


def ask_driver(method: str, host: LocalHost, ticket: ActionCommand) -> None:
    """``driver.method(instance_uuid)``; raises `NotImplementedByDriver` where the driver has no such method."""
    host.require_domain(ticket)
    if not hasattr(host.driver, method):
        raise exceptions.NotImplementedByDriver(operation=method)
    getattr(host.driver, method)(ticket.instance.uuid)
