"""Evacuates protected servers of fenced hosts, the most important first. The plan is in the database."""

from __future__ import annotations

import logging

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.conductor.operations.evacuate import AUTOMATIC, NEW_DISKS
from nova_lite.db.core import actions
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import InstanceAction, Restart
from nova_lite.db.hosts import evacuations, leases, services
from nova_lite.db.servers import instances
from nova_lite.objects import ActionCommand

LOG = logging.getLogger(__name__)

#: Most evacuations that begin in one sweep. The next sweep begins others.
AT_ONCE = 20

#: Event of an evacuation that no user requested. Its details say why.
EVENT = "conductor_restart_protected"


class Evacuator:
    """Begins evacuations. The oldest conductor that is up does it."""

    def __init__(self, engine: ActionEngine) -> None:
        self._engine = engine
        self._db = engine.db
        self._conf = engine.conf

    def sweep(self) -> None:
        """Plan, and begin what is due. Call it about every second."""
        if not self._db.read(evacuations.is_needed):
            return
        if not self._db.read(services.is_first, services.CONDUCTOR, self._conf.host):
            return
        for line in self._db.write(evacuations.plan_restarts, self._conf):
            LOG.warning("%s", line)
        for instance_uuid in self._db.read(evacuations.due, AT_ONCE):
            self._begin(instance_uuid)

    def _begin(self, instance_uuid: str) -> None:
        text = ""
        try:
            self._db.write(self._evacuate_protected, instance_uuid)
        except (exceptions.Conflict, exceptions.Invalid, exceptions.NotFound) as error:
            text = error.message
        if text:
            LOG.warning("Server %s cannot be evacuated now: %s", instance_uuid, text)
            self._db.write(evacuations.put_off_restart, instance_uuid)

    def _evacuate_protected(self, uow: UnitOfWork, instance_uuid: str) -> None:
        row = evacuations.begin(uow, instance_uuid)
        if row is None:
            return
        context, kind = get_admin_context(), operations.EVACUATE.kind
        if evacuations.is_start(row):
            command = self._engine.accept_in(uow, context, instance_uuid, operations.START.kind, {})
            self._note(uow, command, row)
            return
        # Its policy may accept new disks, but only after hosts that share its disks have failed.
        payload = {AUTOMATIC: True, NEW_DISKS: row.attempts > 1 and self._accepts_new_disks(uow, instance_uuid)}
        command = self._engine.accept_in(uow, context, instance_uuid, kind, payload)
        self._note(uow, command, row)

    @staticmethod
    def _note(uow: UnitOfWork, command: ActionCommand, row: Restart) -> None:
        action = uow.session.get(InstanceAction, command.action_id)
        assert action is not None
        actions.note_event(uow, action, EVENT, f"{row.cause} Attempt {row.attempts}.")

    def _accepts_new_disks(self, uow: UnitOfWork, instance_uuid: str) -> bool:
        instance = instances.rows_by_uuid(uow, [instance_uuid]).get(instance_uuid)
        return instance is not None and leases.protection_of(self._conf, instance).rebuild
