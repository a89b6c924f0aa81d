"""Puts the conductor together: one RPC endpoint over one database, and the reconciler."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from oslo_config import cfg

from nova_lite import rpc
from nova_lite.backups.repository import load as load_repositories
from nova_lite.backups.site_journal import load as load_journal
from nova_lite.base import ip, metrics, threads
from nova_lite.base.timing import TIMING, Timing
from nova_lite.conductor import database
from nova_lite.conductor.actions import ActionEndpoints
from nova_lite.conductor.backups.replication import Replication, SiteRights
from nova_lite.conductor.backups.scheduled_backups import ScheduledBackups
from nova_lite.conductor.backups.stored_backups import StoredBackups
from nova_lite.conductor.engine.build_reports import BuildReports
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.conductor.engine.scheduling import Scheduling
from nova_lite.conductor.hosts.balancing import Balancer
from nova_lite.conductor.hosts.crashes import CrashRestarter
from nova_lite.conductor.hosts.domains import DomainChecks
from nova_lite.conductor.hosts.evacuation import Evacuator
from nova_lite.conductor.hosts.fencing import HostFencer
from nova_lite.conductor.hosts.health import HealthKeeper
from nova_lite.conductor.hosts.heartbeats import Heartbeats
from nova_lite.conductor.hosts.publisher import HostPublisher
from nova_lite.conductor.hosts.retirement import Retirements
from nova_lite.conductor.hosts.room import SurvivalCheck
from nova_lite.conductor.identity import IdentityEndpoints
from nova_lite.conductor.image.endpoints import ImageEndpoints
from nova_lite.conductor.lost_devices import LostDevices
from nova_lite.conductor.network.attach import InterfaceAttacher
from nova_lite.conductor.network.endpoints import NetworkServiceEndpoints, PortEndpoints
from nova_lite.conductor.network.filter_publisher import FilterPublisher
from nova_lite.conductor.network.filter_queries import FilterQueries
from nova_lite.conductor.notifications.service import Notifications
from nova_lite.conductor.operations import clones
from nova_lite.conductor.operations.create import CreateEndpoints
from nova_lite.conductor.operations.endpoints import InstanceEndpoints
from nova_lite.conductor.operations.live_migration_control import LiveMigrationEndpoints
from nova_lite.conductor.operations.registry import handler_for
from nova_lite.conductor.reconciler import Reconciler
from nova_lite.conductor.replay_cache import SharedReplayCache
from nova_lite.conductor.volume.backups import BackupEndpoints
from nova_lite.conductor.volume.cinder import CinderWorker
from nova_lite.conductor.volume.cinder_endpoints import CinderEndpoints
from nova_lite.conductor.volume.endpoints import VolumeEndpoints
from nova_lite.conductor.volume.tasks import VolumeTasks
from nova_lite.conductor.wings import Wings
from nova_lite.db.core import database_nodes, engine, server_changes
from nova_lite.db.core.engine import Database
from nova_lite.db.core.events import (
    CinderWorkDue,
    FiltersChanged,
    HostChanged,
    HostFreed,
    HostRemoved,
    InterfacesChanged,
)
from nova_lite.db.hosts import compute_nodes, services
from nova_lite.db.servers import console_tokens
from nova_lite.db.upkeep import audit_events, backlog, purge
from nova_lite.db.volume.cinder import BACKEND as CINDER
from nova_lite.hardware import pci
from nova_lite.image.driver import load_backend as load_images
from nova_lite.network.driver import load_backend
from nova_lite.rpcapi.compute import ComputeRPC
from nova_lite.rpcapi.conductor import ConductorRPC
from nova_lite.rpcapi.scheduler import SchedulerRPC

if TYPE_CHECKING:
    from nova_lite.volume.cinder_client import CinderClient

LOG = logging.getLogger(__name__)

#: Seconds between two removals of expired console tokens. They are void even without it.
EXPIRE_TOKENS_INTERVAL = 60.0
#: Seconds between two looks at the leases of hosts that fence themselves, and at their servers.
FENCING_INTERVAL = 1.0
#: Shortest interval in seconds between two notifications of hosts about changed filter rules.
FILTER_PUBLISH_INTERVAL = 0.5
#: Seconds between two removals of notifications that no consumer has taken.
DROP_NOTIFICATIONS_INTERVAL = 600.0
AUDIT_USAGE_INTERVAL = 60.0
#: Seconds between two counts of the room for the servers of lost hosts.
SURVIVAL_INTERVAL = 300.0
#: Seconds between two looks at the health of hosts.
HOST_HEALTH_INTERVAL = 10.0


class Worker(NamedTuple):
    """Periodic work. ``interval``: seconds. ``jitter``, ``at_once``: as in `nova_lite.daemon.service.Periodic`."""

    name: str
    interval: float
    work: Callable[[], object]
    jitter: bool = False
    at_once: bool = False


class ConductorManager:
    """The parts of a conductor. ``conductor``: a client of the conductors themselves."""

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        scheduler: SchedulerRPC,
        compute: ComputeRPC,
        conductor: ConductorRPC,
        timing: Timing = TIMING,
    ) -> None:
        self.conf = conf
        self._timing = timing.conductor
        self._closing = threads.Event()
        pci.check_aliases(conf)
        self.db = Database(conf, timing.database, conf.database.read_timeout)
        server_changes.watch(self.db)
        self.notifications = Notifications(self.db, conf, timing.conductor)
        network_backend = load_backend(conf)
        image_backend = load_images(conf, conductor)
        cinder = _cinder_client(conf)
        self.engine = ActionEngine(
            self.db, conf, network_backend, image_backend, compute, scheduler, handler_for, snapshots=cinder
        )
        attacher = InterfaceAttacher(self.engine)
        self.filter_publisher = FilterPublisher(self.db, compute)
        self.host_publisher = HostPublisher(self.db, scheduler, timing.conductor)
        filter_queries = FilterQueries(self.db, timing.conductor, self.filter_publisher)
        scheduling = Scheduling(self.engine, scheduler, self.host_publisher, filter_queries)
        volume_tasks = VolumeTasks(self.engine)
        cinder_worker = CinderWorker(self.engine, cinder, timing.conductor)
        self.reconciler = Reconciler(self.engine, scheduling, attacher, volume_tasks, cinder_worker)
        self.stored_backups = StoredBackups(self.engine, load_repositories(conf), timing.conductor)
        self.scheduled_backups = ScheduledBackups(self.engine, timing.conductor, self.stored_backups)
        journal = load_journal(conf)
        rights = SiteRights(self.engine, journal)
        self.replication = Replication(self.engine, journal, self.stored_backups)
        self.fencer = HostFencer(self.db, conf, timing.conductor)
        self.evacuator = Evacuator(self.engine)
        self.crash_restarter = CrashRestarter(self.engine)
        self.lost_devices = LostDevices(self.db, conf)
        self.balancer = Balancer(self.engine, scheduler)
        self.wings = Wings(self.db, conf, compute)
        self.health_keeper = HealthKeeper(self.engine, scheduler, timing=timing.conductor)
        self.survival_check = SurvivalCheck(self.engine, scheduler)
        self.endpoint = rpc.Endpoint(
            ConductorRPC,
            CreateEndpoints(
                self.db, conf, network_backend, functools.partial(clones.begin, self.engine), timing.conductor
            ),
            ActionEndpoints(self.engine, attacher),
            BuildReports(self.engine, scheduling, conductor, rights.require_for_build, timing.conductor),
            rights,
            InstanceEndpoints(self.engine),
            PortEndpoints(self.engine) if network_backend.has_remote_ports else NetworkServiceEndpoints(self.engine),
            LiveMigrationEndpoints(self.db, conf),
            DomainChecks(self.engine),
            Retirements(self.engine),
            Heartbeats(self.db, conf, timing.conductor),
            filter_queries,
            ImageEndpoints(self.db, conf, compute),
            IdentityEndpoints(self.db),
            VolumeEndpoints(self.engine, volume_tasks),
            BackupEndpoints(self.engine, volume_tasks.accept),
            CinderEndpoints(self.engine, cinder, cinder_worker),
            self.balancer,
            self.wings,
            database.functions(self.db, conf, network_backend.has_remote_ports),
            translate=engine.translate,
            classify=rpc.contract_of(ConductorRPC).priority,
            once=SharedReplayCache(self.db, conf),
        )

        self.db.subscribe(self.filter_publisher.announce, FiltersChanged, InterfacesChanged)
        self.db.subscribe(cinder_worker.announce, CinderWorkDue)
        self.db.subscribe(self.host_publisher.announce, HostChanged, HostFreed, HostRemoved)

    def start(self) -> None:
        """Start the threads that publish changes and deliver notifications."""
        self.notifications.start()
        self.host_publisher.start()

    def workers(self) -> Iterator[Worker]:
        """Yield the periodic work of a conductor. With several conductors, work that ends in ``_if_first`` is the first
        one's.
        """
        own, timing = self.conf.conductor, self._timing
        yield Worker("expire_console_tokens", EXPIRE_TOKENS_INTERVAL, self._expire_console_tokens, jitter=True)
        yield Worker("reconcile", own.reconcile_interval, self.reconciler.sweep)
        yield Worker("fencing", FENCING_INTERVAL, self.fencer.sweep)
        yield Worker("evacuation", FENCING_INTERVAL, self.evacuator.sweep)
        yield Worker("crash_restarts", FENCING_INTERVAL, self.crash_restarter.sweep)
        yield Worker("filter_publisher", FILTER_PUBLISH_INTERVAL, self.filter_publisher.publish)
        yield Worker("drop_old_notifications", DROP_NOTIFICATIONS_INTERVAL, self.notifications.drop_old, jitter=True)
        yield Worker("audit_usage", AUDIT_USAGE_INTERVAL, self.notifications.audit_usage, jitter=True)
        backups = self.conf.server_backups.interval
        yield Worker("scheduled_backups", backups, self.scheduled_backups.run_if_first)
        if self.stored_backups.repositories is not None:
            yield Worker("stored_backups", backups, self.stored_backups.run_if_first)
        if self.replication.journal is not None:
            yield Worker("replication", self.conf.replication.interval, self.replication.run_if_first)
        yield Worker("host_health", HOST_HEALTH_INTERVAL, self.health_keeper.run_if_first, jitter=True)
        yield Worker("lost_devices", HOST_HEALTH_INTERVAL, self.lost_devices.sweep, jitter=True)
        if own.survive_hosts:
            yield Worker("survival", SURVIVAL_INTERVAL, self.survival_check.run_if_first, jitter=True, at_once=True)
        yield Worker("balance", self.conf.balance.interval, self.balancer.run_if_first, jitter=True)
        yield Worker("forget_crashes", timing.purge_interval, self.crash_restarter.forget_old, jitter=True)
        for wing in self.wings.loaded.values():
            for name, interval, work in wing.workers():
                yield Worker(name, interval, work, jitter=True)
        yield Worker("purge", timing.purge_interval, self.purge, jitter=True)

    def states(self) -> Iterable[tuple[str, metrics.Sample]]:
        """Yield the metrics of open actions, hosts, heartbeats, the database's nodes, and its connection pool."""
        for name, problem in database_nodes.problems(self.conf).items():
            yield metrics.sample(metrics.DATABASE_NODE, not problem, name)
        pool: Any = self.db.engine.pool
        yield metrics.sample(metrics.POOL_USED, pool.checkedout())
        yield metrics.sample(metrics.POOL_SIZE, pool.size())
        state = self.db.read(backlog.read)
        for (kind, step), count in state.open.items():
            yield metrics.sample(metrics.ACTIONS, count, kind, step)
        yield metrics.sample(metrics.OLDEST_DUE, state.oldest_due)
        yield metrics.sample(metrics.PAST_DEADLINE, state.past_deadline)
        for host_state, count in state.hosts.items():
            yield metrics.sample(metrics.HOSTS, count, host_state)
        for name in state.down:
            yield metrics.sample(metrics.HOST_DOWN, 1, name)
        for binary, age in state.heartbeats.items():
            yield metrics.sample(metrics.HEARTBEAT_AGE, age, binary)

        yield from self.notifications.samples()
        yield from self.scheduled_backups.samples()
        yield from self.fencer.samples()
        yield from self.balancer.samples()
        yield from self.health_keeper.samples()
        yield from self.survival_check.samples()

    def scrape_targets(self) -> list[dict[str, Any]]:
        """Return the metrics endpoints of all compute hosts, in the format of Prometheus' discovery over HTTP."""
        port = self.conf.metrics.compute_port
        return [
            {"targets": [_endpoint(address, port)], "labels": {"daemon": "compute", "machine": host}}
            for host, address in self.db.read(compute_nodes.addresses_by_host).items()
            if ip.is_address(address)
        ]

    def purge(self) -> None:
        """Delete old rows, if this is the first conductor. If two conductors do it, they share the work."""
        days, audit_days = self.conf.conductor.purge_after, self.conf.audit.keep_days
        if not (days or audit_days) or not self.db.read(services.is_first, services.CONDUCTOR, self.conf.host):
            return
        if days:
            before = self.db.read(purge.days_ago, days)
            gone = purge.run(self.db, before, self._timing.purge_batch, wanted=self._is_open)
            if gone.total():
                LOG.info("Purged rows that ended before %s: %s", before, purge.told(gone))
        if audit_days:
            before = self.db.read(purge.days_ago, audit_days)
            if number := audit_events.purge(self.db, before, wanted=self._is_open):
                LOG.info("Purged %d events of the audit log from before %s", number, before)

    def _expire_console_tokens(self) -> None:
        while self.db.write(console_tokens.expire) == console_tokens.BATCH:
            pass

    def _is_open(self) -> bool:
        return not self._closing.is_set()

    def close(self) -> None:
        """Stop all threads and close the database."""
        self._closing.set()
        self.fencer.stop()
        self.reconciler.stop()
        self.engine.stop()
        self.filter_publisher.stop()
        self.host_publisher.stop()
        self.notifications.close()
        self.db.close()


def _cinder_client(conf: cfg.ConfigOpts) -> CinderClient | None:
    if conf.volume.backend != CINDER:
        return None
    from nova_lite.volume.cinder_client import CinderClient  # loads keystoneauth, which only Cinder needs

    return CinderClient(conf)


def _endpoint(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
