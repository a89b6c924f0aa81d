"""Records among a server's actions that PCI devices of it have vanished from its host."""

from __future__ import annotations

import logging

from oslo_config import cfg

from nova_lite import operations
from nova_lite.base.context import get_admin_context
from nova_lite.db.core import actions
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.hosts import pci_claims
from nova_lite.db.servers import instances

LOG = logging.getLogger(__name__)

#: Event of a loss. Its details name the aliases of the devices.
EVENT = "compute_device_lost"


class LostDevices:
    """Reports losses that heartbeats have recorded. Any conductor may do it: a row is reported once."""

    def __init__(self, db: Database, conf: cfg.ConfigOpts) -> None:
        self._db = db
        self._conf = conf

    def sweep(self) -> None:
        for instance_uuid in self._db.read(pci_claims.lost):
            self._db.write(self._report_lost_devices, instance_uuid)

    def _report_lost_devices(self, uow: UnitOfWork, instance_uuid: str) -> None:
        instance = instances.lock(uow, instance_uuid)
        aliases = pci_claims.take_lost(uow, instance_uuid)
        if instance is None or instance.deleted or not aliases:
            return
        text = f"The host does not offer PCI devices of the server any more: {', '.join(sorted(aliases))}."
        LOG.warning("Instance %s on host %s: %s", instance.uuid, instance.host, text)
        action = actions.open_action(uow, self._conf, get_admin_context(), instance, operations.DEVICE_LOST.kind, {})
        action.step, action.host = operations.PERFORM, None
        uow.session.flush()
        actions.note_event(uow, action, EVENT, text)
        actions.finish(uow, action)
