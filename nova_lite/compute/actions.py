"""Delete, stop, start and reboot on this host, from the ticket to the report."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable

from nova_lite import exception
from nova_lite.compute.fences import ActionResult, Admission
from nova_lite.compute.host import LocalHost
from nova_lite.compute.reports import Stopping, exception_message
from nova_lite.context import RequestContext
from nova_lite.objects import ActionTicket

LOG = logging.getLogger(__name__)


class Actions:
    """Carries out tickets: a late one is dropped, a doubled one only reported again."""

    def __init__(self, host: LocalHost) -> None:
        self._host = host
        self._work: dict[str, Callable[[ActionTicket], None]] = {
            "delete": self._delete,
            "stop": self._stop,
            "start": self._start,
            "reboot": self._reboot,
            "evacuate": self._stop,
        }

    def run(self, context: RequestContext, ticket: ActionTicket) -> None:
        """Do and report. The whole job, in its own thread.

        A delete is fenced before the lock is asked for: a build that holds it stops at its next step.
        """
        uuid = ticket.instance.uuid
        fences = self._host.fences
        forbid = ticket.generation if ticket.action == "delete" else None
        try:
            if fences.admit(uuid, ticket.action_id, forbid) is Admission.DROP:
                LOG.info("Instance %s: %s %d came late, dropped", uuid, ticket.action, ticket.action_id)
                return
            with self._host.jobs.locks.hold(uuid):
                result = self._do_once(ticket)
            if result is not None:
                self._report(context, ticket, result)
        except Stopping:
            LOG.info("Instance %s: %s is left unreported, the daemon stops", uuid, ticket.action)

    def _do_once(self, ticket: ActionTicket) -> ActionResult | None:
        """Carry it out, unless it was finished before; None if it was overtaken while it waited for the lock.

        What is finished is noted before it is reported. A delete is finished only when it has worked: the same ticket
        comes again until it does.
        """
        uuid, fences = ticket.instance.uuid, self._host.fences
        record = fences.get(uuid)
        if record.last_action_id != ticket.action_id:
            LOG.info("Instance %s: %s %d was overtaken", uuid, ticket.action, ticket.action_id)
            return None
        if record.result is not None:
            return record.result
        result = self._carry_out(ticket)
        if result.error is None or ticket.action != "delete":
            fences.done(uuid, ticket.action_id, result)
        return result

    def _carry_out(self, ticket: ActionTicket) -> ActionResult:
        uuid = ticket.instance.uuid
        try:
            self._work[ticket.action](ticket)
            return ActionResult(power_state=self._host.power_state(uuid))
        except Exception as error:
            expected = isinstance(error, exception.NovaLiteException)
            LOG.warning("Instance %s: %s failed: %s", uuid, ticket.action, error, exc_info=not expected)
            return ActionResult(
                power_state=self._power_state(uuid),
                error=exception_message(error, self._host.name),
                details="".join(traceback.format_exception(error)),
            )

    def _report(self, context: RequestContext, ticket: ActionTicket, result: ActionResult) -> None:
        """Saying twice how it ended is harmless, so this insists whatever else comes."""
        host, uuid = self._host, ticket.instance.uuid
        try:
            host.retrier.ask(
                f"Instance {uuid}: report of {ticket.action}",
                lambda: host.conductor.finish_action(
                    context, host.name, ticket.action_id, result.power_state, result.error, result.details
                ),
                lambda: None,
            )
        except exception.NovaLiteException as error:
            LOG.info("Instance %s: report of %s %d not wanted: %s", uuid, ticket.action, ticket.action_id, error)

    def _power_state(self, instance_uuid: str) -> int | None:
        """For the report of a failure, if the hypervisor can still tell."""
        try:
            return self._host.power_state(instance_uuid)
        except exception.VirtDriverError:
            return None

    # --- the work, with the instance's lock held

    def _delete(self, ticket: ActionTicket) -> None:
        uuid = ticket.instance.uuid
        found = self._host.domain(uuid)
        if found is not None and found.generation > ticket.generation:
            self._host.fences.forbid(uuid, found.generation)
        self._host.remove(uuid)

    def _stop(self, ticket: ActionTicket) -> None:
        self._check_ours(ticket)
        self._host.driver.power_off(ticket.instance.uuid, self._host.conf.compute.shutdown_timeout)

    def _start(self, ticket: ActionTicket) -> None:
        self._check_ours(ticket)
        self._host.driver.plug_vifs(ticket.instance, ticket.instance.vifs)
        self._host.driver.power_on(ticket.instance.uuid)

    def _reboot(self, ticket: ActionTicket) -> None:
        self._check_ours(ticket)
        reboot_type = str(ticket.payload.get("reboot_type", "SOFT")).upper()
        if reboot_type == "HARD":
            self._host.driver.plug_vifs(ticket.instance, ticket.instance.vifs)
        self._host.driver.reboot(ticket.instance.uuid, reboot_type, self._host.conf.compute.shutdown_timeout)

    def _check_ours(self, ticket: ActionTicket) -> None:
        """The domain must be the one that the conductor means. That it sends an action proves that its build ended."""
        found = self._host.driver.get_info(ticket.instance.uuid)
        if found.generation != ticket.generation:
            raise exception.DomainNotFound(instance_uuid=ticket.instance.uuid)
        if not self._host.fences.get(found.uuid).forbids(found.generation):
            self._host.fences.built(found.uuid, found.generation)
