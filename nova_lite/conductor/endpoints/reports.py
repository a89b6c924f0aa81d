"""What compute hosts report about instances."""

from __future__ import annotations

import logging

from oslo_config import cfg

from nova_lite import exception
from nova_lite.conductor.db.engine import Database
from nova_lite.conductor.rpcapi import ConductorRPC
from nova_lite.conductor.tasks import reports
from nova_lite.context import RequestContext
from nova_lite.network.driver import NetworkBackend
from nova_lite.objects import BuildNetworks, BuildResult, DomainReport, DomainVerdict

LOG = logging.getLogger(__name__)


class Reports:
    """``conductor`` is the client side of this very service: rescheduling is a message to whoever is free."""

    def __init__(
        self, db: Database, conf: cfg.ConfigOpts, network_backend: NetworkBackend, conductor: ConductorRPC
    ) -> None:
        self.db = db
        self.conf = conf
        self.network_backend = network_backend
        self.conductor = conductor

    def start_build(self, context: RequestContext, instance_uuid: str, host: str, generation: int) -> BuildNetworks:
        return self.db.write(reports.start_build, self.conf, self.network_backend, instance_uuid, host, generation)

    def finish_build(self, context: RequestContext, result: BuildResult) -> None:
        if not self.db.write(reports.finish_build, self.conf, self.network_backend, result):
            return
        LOG.info("Rescheduling %s: %s", result.instance_uuid, result.message)
        try:
            self.conductor.build_instances(context, [result.instance_uuid])
        except exception.MessagingUnavailable:
            LOG.info("The reconciler will reschedule %s", result.instance_uuid)

    def finish_action(
        self,
        context: RequestContext,
        host: str,
        action_id: int,
        power_state: int | None,
        error: str | None,
        details: str,
    ) -> None:
        self.db.write(
            reports.finish_action,
            self.conf,
            self.network_backend,
            host,
            action_id,
            power_state,
            error,
            details,
        )

    def reconcile_domains(
        self, context: RequestContext, host: str, domains: list[DomainReport], leftovers: list[str]
    ) -> list[DomainVerdict]:
        return self.db.write(reports.reconcile_domains, host, domains, leftovers)
