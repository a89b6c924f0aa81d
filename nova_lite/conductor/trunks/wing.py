"""Methods of users, and reports of hosts, about trunks."""

from __future__ import annotations

from typing import Any

import msgspec
from oslo_config import cfg

from nova_lite.conductor.wings import ConductorWing
from nova_lite.db.core.engine import Database
from nova_lite.db.trunks import hosts, records
from nova_lite.network.trunks import WING, HostReport
from nova_lite.rpcapi.compute import ComputeRPC


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
        self.wake_hosts(WING, records.TrunkChanged)

    def report(self, host: str, report: Any) -> Any:
        return self.db.write(hosts.sync, host, msgspec.convert(report, HostReport, str_keys=True))
