"""The conductor's parts, put together: endpoints over one database, and the reconciler beside them."""

from __future__ import annotations

import logging
from typing import Any

from oslo_config import cfg

from nova_lite import context, exception, rpc
from nova_lite.compute.rpcapi import ComputeAPI
from nova_lite.conductor.db import engine, hosts
from nova_lite.conductor.db.engine import Database, UnitOfWork
from nova_lite.conductor.domains import Domains
from nova_lite.conductor.endpoints.flavors import Flavors
from nova_lite.conductor.endpoints.hosts import Hosts
from nova_lite.conductor.endpoints.images import Images
from nova_lite.conductor.endpoints.instances import Instances
from nova_lite.conductor.endpoints.keypairs import Keypairs
from nova_lite.conductor.endpoints.networks import Networks
from nova_lite.conductor.endpoints.placement import Placement
from nova_lite.conductor.endpoints.quotas import Quotas
from nova_lite.conductor.endpoints.server_parts import ServerParts
from nova_lite.conductor.endpoints.usage import Usage
from nova_lite.conductor.operations.building import Building
from nova_lite.conductor.operations.create import Create
from nova_lite.conductor.operations.engine import Engine
from nova_lite.conductor.operations.scheduling import Scheduling
from nova_lite.conductor.reconciler import Reconciler
from nova_lite.conductor.rpcapi import VERSION, ConductorAPI
from nova_lite.network.driver import load_backend
from nova_lite.objects import HostState
from nova_lite.scheduler.rpcapi import SchedulerAPI

LOG = logging.getLogger(__name__)


class ConductorManager:
    """All that a conductor serves. The clients are of the other services, and of the conductor itself."""

    def __init__(
        self, conf: cfg.ConfigOpts, scheduler: SchedulerAPI, compute: ComputeAPI, conductor: ConductorAPI
    ) -> None:
        self.conf = conf
        self.scheduler = scheduler
        self.db = Database(conf, before_commit=self._announce_hosts)
        network_backend = load_backend(conf)
        self.engine = Engine(self.db, conf, network_backend, compute)
        scheduling = Scheduling(self.engine, scheduler)
        self.reconciler = Reconciler(self.engine, scheduling)
        self.targets: tuple[Any, ...] = (
            Create(self.db, conf, network_backend),
            self.engine,
            Building(self.engine, scheduling, conductor),
            Domains(self.db),
            Instances(self.db, conf),
            ServerParts(self.db, conf, self.engine),
            Flavors(self.db, conf),
            Keypairs(self.db, conf),
            Images(self.db, conf),
            Networks(self.db, conf),
            Quotas(self.db, conf),
            Usage(self.db, conf),
            Hosts(self.db, conf),
            Placement(self.db, conf, compute),
        )

    def endpoints(self) -> list[rpc.Endpoint]:
        return [rpc.Endpoint(target, VERSION, translate=engine.translate) for target in self.targets]

    def close(self) -> None:
        self.reconciler.stop()
        self.engine.stop()
        self.db.close()

    def _announce_hosts(self, uow: UnitOfWork) -> None:
        """Read the nodes this transaction changed, as they will be, and tell the schedulers once it is committed."""
        if uow.touched_nodes:
            states = hosts.states(uow, sorted(uow.touched_nodes))
            uow.after_commit.append(lambda: self._fan_out(states))

    def _fan_out(self, states: list[HostState]) -> None:
        try:
            self.scheduler.update_host_states(context.get_admin_context(), states)
        except exception.MessagingUnavailable:
            LOG.info("Schedulers were not told about %d host(s); their next resync will", len(states))
