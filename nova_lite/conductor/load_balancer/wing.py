"""Methods of users, reports of hosts, and fail-over of load balancers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from oslo_config import cfg

from nova_lite.conductor.wings import ConductorWing
from nova_lite.db.core.engine import Database
from nova_lite.db.load_balancer import hosts, limits, secrets, trees
from nova_lite.load_balancer.objects import WING, HostReport
from nova_lite.rpcapi.compute import ComputeRPC

LOG = logging.getLogger(__name__)

#: Seconds between two looks for lost hosts.
SWEEP_INTERVAL = 1.0


class LoadBalancers(ConductorWing):
    reads = {
        "list": trees.list_,
        "statistics": trees.statistics,
        "limits_get": limits.get,
        "secret_list": secrets.list_,
        "secret_get": secrets.get,
        "secret_payload": secrets.payload,
    }
    changes = {
        "create": trees.create,
        "add": trees.add,
        "update": trees.update,
        "set_members": trees.set_members,
        "remove": trees.remove,
        "failover": trees.failover,
        "limits_set": limits.set_limits,
        "secret_public_key": secrets.public_key,
        "secret_create": secrets.create,
        "secret_set_payload": secrets.set_payload,
        "secret_set_metadata": secrets.set_metadata,
        "secret_delete": secrets.delete,
    }

    def __init__(self, db: Database, conf: cfg.ConfigOpts, compute: ComputeRPC) -> None:
        super().__init__(db, conf, compute)
        self.wake_hosts(WING, hosts.HostsChanged)

    def report(self, host: str, report: Any) -> Any:
        typed = msgspec.convert(report, HostReport, str_keys=True)
        return self.db.write(hosts.sync, host, typed)

    def workers(self) -> Iterator[tuple[str, float, Callable[[], object]]]:
        yield "load_balancers", SWEEP_INTERVAL, self.sweep

    def sweep(self) -> None:
        """Take the load balancers of lost hosts to others."""
        for balancer_id in self.db.write(hosts.sweep):
            LOG.warning("Load balancer %s has moved to another host: its host sends no reports", balancer_id)
