"""Records crashes of guests among their servers' actions, and starts protected servers again. See docs/adr/0041."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from oslo_config import cfg

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.db.core import actions
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance, InstanceAction
from nova_lite.db.hosts import crashes, hosts, leases, services
from nova_lite.db.servers import instances
from nova_lite.objects import Incident
from nova_lite.objects.incident import ENDING
from nova_lite.objects.protection import Protection
from nova_lite.operations.states import STOPPED

LOG = logging.getLogger(__name__)

#: Most starts that begin in one sweep. The next sweep begins others.
AT_ONCE = 20

#: Events of a crash and of another incident; their details are the incident.
CRASHED, WATCHDOG = "compute_guest_crashed", "compute_guest_watchdog"

#: Operation that starts a guest again that is paused, with its payload.
HARD_REBOOT = (operations.REBOOT.kind, {"reboot_type": "HARD"})

#: Event of a start that no user requested. Its details say why.
EVENT = "conductor_restart_crashed"


class CrashRestarter:
    """Starts protected servers whose guests have crashed. The oldest conductor that is up does it."""

    def __init__(self, engine: ActionEngine) -> None:
        self._engine = engine
        self._db = engine.db
        self._conf = engine.conf

    def sweep(self) -> None:
        """Begin what is due. Call it about every second."""
        if not self._db.read(crashes.is_needed):
            return
        if not self._db.read(services.is_first, services.CONDUCTOR, self._conf.host):
            return
        for instance_uuid in self._db.read(crashes.due, AT_ONCE):
            self._begin(instance_uuid)

    def forget_old(self) -> None:
        """Forget servers that run steadily again. Call it about every hour. Two conductors may do it at once."""
        while self._db.write(crashes.forget_old) == crashes.BATCH:
            pass

    def _begin(self, instance_uuid: str) -> None:
        try:
            self._db.write(self._restart_crashed, instance_uuid)
        except (exceptions.Conflict, exceptions.Invalid, exceptions.NotFound) as error:
            LOG.info("Server %s cannot be started again now: %s", instance_uuid, error.message)
            self._db.write(crashes.put_off, instance_uuid)

    def _restart_crashed(self, uow: UnitOfWork, instance_uuid: str) -> None:
        instance = instances.lock(uow, instance_uuid)
        if instance is not None and (waits := self._cause_to_wait(uow, instance)):
            raise exceptions.Conflict(waits)
        protection = Protection() if instance is None else leases.protection_of(self._conf, instance)
        row = crashes.begin(uow, instance, instance_uuid, protection.attempts if protection.restart else 0)
        if row is None:
            return
        assert instance is not None
        kind, payload = (operations.START.kind, {}) if instance.vm_state == STOPPED else HARD_REBOOT
        command = self._engine.accept_in(uow, get_admin_context(), instance_uuid, kind, dict(payload))
        action = uow.session.get(InstanceAction, command.action_id)
        assert action is not None
        row.action_id = action.id
        actions.note_event(uow, action, EVENT, f"{row.cause} Start {row.attempts} of {protection.attempts}.")

    @staticmethod
    def _cause_to_wait(uow: UnitOfWork, instance: Instance) -> str:
        if instance.task_state is not None:
            return f"its task is {instance.task_state}"
        if instance.host is not None and not hosts.is_up(uow, instance.host):
            return f"its host {instance.host} is not up"
        return "it is to run again already" if crashes.is_planned(uow, instance.uuid) else ""


def record_crash(uow: UnitOfWork, conf: cfg.ConfigOpts, instance: Instance, incident: Incident) -> None:
    """Record that a guest has crashed, or was paused by its watchdog, and plan to start it again if it is protected.

    ``instance``: its row, locked.
    """
    protection = leases.protection_of(conf, instance)
    action = _open(uow, conf, instance, incident)
    outcome = ""
    if protection.restart:
        outcome = crashes.plan(uow, instance, protection, incident.text, action)
    elif incident.kind in ENDING:
        outcome = "It is off."
    text = f"{incident.text} {outcome}".rstrip()
    LOG.warning("Instance %s on host %s: %s", instance.uuid, instance.host, text)
    actions.note_event(uow, action, _event(incident), text)
    actions.finish(uow, action)


def record_incidents(uow: UnitOfWork, conf: cfg.ConfigOpts, instance: Instance, incidents: Iterable[Incident]) -> None:
    """Record incidents that have not turned the guest off, each once. ``instance``: its row, locked."""
    for incident in incidents:
        if actions.find_by_request(uow, _request_id(incident), _kind(incident), instance.uuid) is not None:
            continue
        LOG.info("Instance %s on host %s: %s", instance.uuid, instance.host, incident.text)
        action = _open(uow, conf, instance, incident)
        actions.note_event(uow, action, _event(incident), incident.text)
        actions.finish(uow, action)


def _request_id(incident: Incident) -> str:
    """Return the request id of the action that records an incident. A host may report it more than once."""
    return f"req-{incident.id}"


def _kind(incident: Incident) -> str:
    return operations.CRASH.kind if incident.kind in ENDING else operations.WATCHDOG.kind


def _event(incident: Incident) -> str:
    return CRASHED if incident.kind in ENDING else WATCHDOG


def _open(uow: UnitOfWork, conf: cfg.ConfigOpts, instance: Instance, incident: Incident) -> InstanceAction:
    context = get_admin_context(_request_id(incident))
    action = actions.open_action(uow, conf, context, instance, _kind(incident), {})
    action.step = operations.PERFORM
    action.host = None
    uow.session.flush()
    return action
