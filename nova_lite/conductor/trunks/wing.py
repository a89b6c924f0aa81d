"""Methods of users, and reports of hosts, about trunks."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.conductor.wings import ConductorWing
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.trunks import hosts, records
from nova_lite.network.trunks import WING, HostReport
from nova_lite.rpcapi.compute import ComputeRPC

LOG = logging.getLogger(__name__)


class Trunks(ConductorWing):
    reads = {"list": records.list_, "of_ports": records.of_ports}
    changes = {
        "create": records.create,
        "update": records.update,
        "delete": records.delete,
        "add_subports": records.add_subports,
        "remove_subports": records.remove_subports,
        "set_tags": records.set_tags,
    }

    def __init__(self, db: Database, conf: cfg.ConfigOpts, compute: ComputeRPC) -> None:
        super().__init__(db, conf, compute)
        db.subscribe(self._announce, records.TrunkChanged)

    def report(self, host: str, report: Any) -> Any:
        return self.db.write(hosts.sync, host, msgspec.convert(report, HostReport, str_keys=True))

    def _announce(self, uow: UnitOfWork) -> None:
        """Wake the hosts that the transaction concerns, once it is committed."""
        changed = sorted({event.host for event in uow.published(records.TrunkChanged)})
        uow.after_commit(lambda: self._wake(changed))

    def _wake(self, changed: list[str]) -> None:
        for host in changed:
            try:
                self.compute.wing_wake_up(get_admin_context(), host, WING)
            except exceptions.NovaLiteException as error:
                LOG.info("Host %s looks at its trunks later: %s", host, error.message)
