"""Execution of one command on this host, from its arrival to the report, for all operations."""

from __future__ import annotations

import functools
import logging
import operator
import traceback
from collections.abc import Callable

import msgspec

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.compute.fencing import ActionResult
from nova_lite.compute.host import LocalHost
from nova_lite.compute.operations import HANDLERS, PLACES_DEVICES, Handler
from nova_lite.compute.reports import Stopping, exception_message
from nova_lite.objects import ActionCommand, ActionReport
from nova_lite.objects.guest_device import DEVICES
from nova_lite.operations import HostStep
from nova_lite.operations.states import GUEST_OFF

LOG = logging.getLogger(__name__)


class CommandExecutor:
    """Executes commands. A late command is dropped; a duplicate is only reported again.

    ``has_to_run_again``: whether a guest is off because a boot or the end of a lease has stopped it.
    """

    def __init__(self, host: LocalHost, has_to_run_again: Callable[[str], bool] = lambda _: False) -> None:
        self._host = host
        self._has_to_run_again = has_to_run_again

    def run(self, context: RequestContext, step: HostStep, command: ActionCommand) -> None:
        """Execute a command and report its result. This is the whole job, in its own thread.

        A step that revokes a generation does so before it waits for the instance's lock: a build that holds the lock
        then stops at its next step.
        """
        uuid, fencing = command.instance.uuid, self._host.fencing
        revoked = command.generation if step.fences else None
        token = (command.action_id, command.sequence, command.request_id)
        is_open = not fencing.get(uuid).is_in_order(*token) and self._host.is_command_open(uuid, *token)
        if not fencing.admit(uuid, command.action_id, revoked, command.sequence, command.request_id, is_open):
            LOG.info("Instance %s: late %s of action %d is dropped", uuid, command.action, command.action_id)
            return
        refusal = self._refusal(command)
        with self._host.jobs.locks.hold(uuid):
            result = self._run_once(step, command, refusal)
        if result is not None:
            self._report(context, command, result)

    def _refusal(self, command: ActionCommand) -> exceptions.ServerAtOtherSite | None:
        """Ask, for as long as necessary, whether a replicated server may start here. Return an error if not.

        The answer is only in this process, so that it ends with the power of the host.
        """
        host, instance = self._host, command.instance
        if not operations.asks_for_right(command.action, command.payload, instance.site_role):
            return None
        may_run = host.retrier.call(
            f"Instance {instance.uuid}: query whether this site may run it",
            lambda: host.conductor.site_right_get(get_admin_context(), host.name, instance.uuid),
            lambda: host.fencing.check(instance.uuid, command.generation),
        )
        return None if may_run else exceptions.ServerAtOtherSite(instance_id=instance.uuid, role=instance.site_role)

    def _run_once(
        self, step: HostStep, command: ActionCommand, refusal: exceptions.ServerAtOtherSite | None
    ) -> ActionResult | None:
        """Execute the command, unless it has finished before. Return None if a newer command has overtaken it.

        With a ``refusal``, the command fails.

        The result is recorded on disk before it is reported. A step that is retried forever is recorded only when it
        succeeds: the conductor repeats the command until then.
        """
        uuid, fencing = command.instance.uuid, self._host.fencing
        record = fencing.get(uuid)
        if not record.is_last_command(command.action_id, command.sequence, command.request_id):
            LOG.info(
                "Instance %s: %s of action %d was overtaken by a later command", uuid, command.action, command.action_id
            )
            return None
        if record.result is not None:
            return record.result
        result = self._perform(step, command, refusal)
        if result.error is None or not step.retry_forever:
            fencing.record_result(uuid, command.action_id, result, command.sequence, command.request_id)
        return result

    def _perform(
        self, step: HostStep, command: ActionCommand, refusal: exceptions.ServerAtOtherSite | None
    ) -> ActionResult:
        uuid = command.instance.uuid
        try:
            if refusal is not None:
                raise refusal
            data = handler_of(step)(self._host, command)
            if step.method in PLACES_DEVICES and (devices := self._host.guest_devices(command.instance)) is not None:
                data = {**(data or {}), DEVICES: msgspec.to_builtins(devices)}
            return ActionResult(power_state=self._host.power_state(uuid), answer=data)
        except Stopping:
            raise  # nothing is decided; the command comes again
        except Exception as error:
            expected = isinstance(error, exceptions.NovaLiteException)
            LOG.warning("Instance %s: %s failed: %s", uuid, command.action, error, exc_info=not expected)
            return ActionResult(
                power_state=self._power_state(uuid),
                error=exception_message(error, self._host.name),
                details="".join(traceback.format_exception(error)),
            )

    def _power_state(self, instance_uuid: str) -> int | None:
        """Return the power state for the report of a failure; None if the hypervisor does not know.

        None also for a guest that is off and has to run again: the conductor would think that the guest has
        shut itself down. The next comparison says more.
        """
        try:
            found = self._host.power_state(instance_uuid)
            return None if found in GUEST_OFF and self._has_to_run_again(instance_uuid) else found
        except exceptions.VirtDriverError:
            return None

    def _report(self, context: RequestContext, command: ActionCommand, result: ActionResult) -> None:
        """Report the result until the conductor accepts or rejects it. Duplicate reports are harmless."""
        host, uuid = self._host, command.instance.uuid
        try:
            host.retrier.call(
                f"Instance {uuid}: report of {command.action}",
                lambda: self._finish(context, command, result),
                lambda: None,
            )
        except exceptions.NovaLiteException as error:
            LOG.info(
                "Instance %s: the conductor rejects the report of %s, action %d: %s",
                uuid,
                command.action,
                command.action_id,
                error,
            )

    def _finish(self, context: RequestContext, command: ActionCommand, result: ActionResult) -> None:
        report = ActionReport(
            host=self._host.name,
            action_id=command.action_id,
            power_state=result.power_state,
            error=result.error,
            details=result.details,
            sequence=command.sequence,
            answer=result.answer,
            request_id=command.request_id,
        )
        self._host.conductor.finish_action(context, report)


def handler_of(step: HostStep) -> Handler:
    """Return what executes a step: the method of the driver that its definition names, or a function of `HANDLERS`."""
    return HANDLERS[step.method] if step.driver is None else functools.partial(call_driver, step.driver)


def call_driver(method: str, host: LocalHost, command: ActionCommand) -> None:
    """Call ``driver.<method>(instance_uuid)``: an ability, a dot, and its method."""
    host.require_domain(command)
    operator.attrgetter(method)(host.driver)(command.instance.uuid)
