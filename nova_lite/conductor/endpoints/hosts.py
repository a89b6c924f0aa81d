"""RPC methods about hosts: what daemons report, and what schedulers and operators ask."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

from nova_lite.conductor.db import actions, hosts
from nova_lite.conductor.db.engine import Database, UnitOfWork
from nova_lite.context import RequestContext
from nova_lite.objects import AvailabilityZone, ComputeNode, HostReport, HostState, Service


class Hosts:
    def __init__(self, db: Database, conf: cfg.ConfigOpts) -> None:
        self.db = db
        self.conf = conf

    # --- reports

    def register_host(self, context: RequestContext, report: HostReport) -> int:
        return self.db.write(self._register, report)

    def report_state(self, context: RequestContext, report: HostReport) -> None:
        self.db.write(self._report, report)

    def _register(self, uow: UnitOfWork, report: HostReport) -> int:
        actions.make_due(uow, report.host)
        epoch = hosts.admit(uow, report.host)
        hosts.report(uow, self.conf, report)
        return epoch

    def _report(self, uow: UnitOfWork, report: HostReport) -> None:
        """Work before hosts: claims take their locks in that order, too."""
        actions.renew_leases(uow, self.conf, report.host, report.building, report.acting)
        hosts.check_epoch(uow, report.host, report.epoch)
        if hosts.report(uow, self.conf, report):
            actions.make_due(uow, report.host)

    def report_service(self, context: RequestContext, host: str, binary: str, topic: str, version: str) -> None:
        self.db.write(hosts.report_service, host, binary, topic, version)

    def host_states_get(self, context: RequestContext, after: int = 0, limit: int | None = None) -> list[HostState]:
        return self.db.read(hosts.states, after=after, limit=limit)

    # --- services

    def service_list(self, context: RequestContext, host: str | None, binary: str | None) -> list[Service]:
        return self.db.read(hosts.service_list, host, binary)

    def service_update(self, context: RequestContext, service_id: str, changes: dict[str, Any]) -> Service:
        return self.db.write(hosts.service_update, service_id, changes)

    def service_delete(self, context: RequestContext, service_id: str) -> None:
        self.db.write(hosts.service_delete, service_id)

    def availability_zone_list(self, context: RequestContext) -> list[AvailabilityZone]:
        return self.db.read(hosts.availability_zones)

    # --- hypervisors

    def compute_node_list(
        self, context: RequestContext, hostname_pattern: str | None, limit: int | None, marker: str | None
    ) -> list[ComputeNode]:
        return self.db.read(hosts.node_list, hostname_pattern, limit, marker)

    def compute_node_get(self, context: RequestContext, node_id: str) -> ComputeNode:
        return self.db.read(hosts.node_get, node_id)
