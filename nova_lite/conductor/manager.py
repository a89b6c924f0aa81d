"""Wires the conductor: one RPC endpoint over one database, and the reconciler."""

from __future__ import annotations

import logging
import threading

from oslo_config import cfg

from nova_lite import context, exception, rpc
from nova_lite.compute.rpcapi import ComputeRPC
from nova_lite.conductor.db import engine, hosts, purge, services
from nova_lite.conductor.db.engine import Database, UnitOfWork
from nova_lite.conductor.domains import Domains
from nova_lite.conductor.endpoints import database
from nova_lite.conductor.endpoints.images import Images
from nova_lite.conductor.endpoints.instances import Instances
from nova_lite.conductor.endpoints.live_migrations import LiveMigrations
from nova_lite.conductor.operations.building import Building
from nova_lite.conductor.operations.create import Create
from nova_lite.conductor.operations.engine import Engine
from nova_lite.conductor.operations.scheduling import Scheduling
from nova_lite.conductor.reconciler import Reconciler
from nova_lite.conductor.retirement import Retirements
from nova_lite.conductor.rpcapi import ConductorRPC
from nova_lite.image.driver import load_backend as load_images
from nova_lite.network.driver import load_backend
from nova_lite.objects import HostState
from nova_lite.scheduler.rpcapi import SchedulerRPC

LOG = logging.getLogger(__name__)


class ConductorManager:
    """All that a conductor serves. The clients are of the other services, and of the conductor itself."""

    def __init__(
        self, conf: cfg.ConfigOpts, scheduler: SchedulerRPC, compute: ComputeRPC, conductor: ConductorRPC
    ) -> None:
        self.conf = conf
        self._closing = threading.Event()
        self.scheduler = scheduler
        self.db = Database(conf, before_commit=self._announce_hosts)
        network_backend = load_backend(conf)
        image_backend = load_images(conf, conductor)
        self.engine = Engine(self.db, conf, network_backend, compute, scheduler, image_backend)
        scheduling = Scheduling(self.engine, scheduler)
        self.reconciler = Reconciler(self.engine, scheduling)
        self.endpoint = rpc.Endpoint(
            ConductorRPC,
            Create(self.db, conf, network_backend),
            self.engine,
            Building(self.engine, scheduling, conductor),
            Instances(self.engine),
            LiveMigrations(self.db, conf),
            Domains(self.engine),
            Retirements(self.engine),
            Images(self.db, conf, compute),
            database.functions(self.db, conf),
            translate=engine.translate,
        )

    def purge(self) -> None:
        """Purge what is old enough, if this is the conductor that does it. Two that think so only share the work."""
        days = self.conf.conductor.purge_after
        if not days or not self.db.read(services.is_first, services.CONDUCTOR, self.conf.host):
            return
        before = self.db.read(purge.days_ago, days)
        gone = purge.run(self.db, before, self.conf.conductor.purge_batch, wanted=lambda: not self._closing.is_set())
        if gone.total():
            LOG.info("Purged what was over before %s: %s", before, purge.told(gone))

    def close(self) -> None:
        self._closing.set()
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
