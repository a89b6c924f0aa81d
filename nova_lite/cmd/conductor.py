"""``nova-lite-conductor``: the only daemon that opens the database."""

from __future__ import annotations

from nova_lite.base import concurrency

concurrency.setup(switch_interval=concurrency.SWITCH_INTERVAL)

# isort: split

import logging  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable  # noqa: E402

from oslo_config import cfg  # noqa: E402

from nova_lite import conf as nova_conf  # noqa: E402
from nova_lite import rpc  # noqa: E402
from nova_lite.base import exceptions, journal, metrics, version  # noqa: E402
from nova_lite.base.context import get_admin_context  # noqa: E402
from nova_lite.conductor.manager import ConductorManager  # noqa: E402
from nova_lite.daemon import cpu_affinity, service  # noqa: E402
from nova_lite.db.core import engine  # noqa: E402
from nova_lite.db.hosts import services  # noqa: E402
from nova_lite.db.migrations import schema as database_schema  # noqa: E402
from nova_lite.db.servers import console_tokens  # noqa: E402
from nova_lite.rpcapi.compute import ComputeRPC  # noqa: E402
from nova_lite.rpcapi.conductor import ConductorRPC  # noqa: E402
from nova_lite.rpcapi.scheduler import SchedulerRPC  # noqa: E402

LOG = logging.getLogger(__name__)

BINARY = "nova-lite-conductor"

#: Seconds between two removals of expired console tokens. They are void even without it.
EXPIRE_TOKENS_INTERVAL = 60.0

#: Seconds between two looks at the leases of hosts that fence themselves, and at their servers.
FENCING_INTERVAL = 1.0

#: Shortest interval in seconds between two notifications of hosts about changed filter rules.
FILTER_PUBLISH_INTERVAL = 0.5


#: Seconds between two removals of notifications that nobody has taken.
DROP_NOTIFICATIONS_INTERVAL = 600.0
AUDIT_USAGE_INTERVAL = 60.0
#: Seconds between two counts of the room for the servers of lost hosts.
SURVIVAL_INTERVAL = 300.0
#: Seconds between two looks at the health of hosts.
HOST_HEALTH_INTERVAL = 10.0


class Conductor(service.Daemon):
    def __init__(self, conf: cfg.ConfigOpts, connect: rpc.Connect = rpc.Transport) -> None:
        super().__init__(conf, BINARY)
        self.transport = connect(conf, rpc.CONDUCTOR)
        self.client = rpc.proxy(ConductorRPC, self.transport)
        self.manager: ConductorManager | None = None

    def prepare(self) -> None:
        manager = self.manager = self.manager or ConductorManager(
            self.conf, rpc.proxy(SchedulerRPC, self.transport), rpc.proxy(ComputeRPC, self.transport), self.client
        )
        self.health.add_page("/targets", manager.scrape_targets)
        self.serve_health(self.transport, database=manager.db.ping)
        metrics.add_gauges(self, manager.states)
        manager.db.ping()
        schema = database_schema.check(self.conf)
        if schema.version != database_schema.head():
            LOG.info(
                "The schema %s is newer than this program's %s, and serves it", schema.version, database_schema.head()
            )
        if self.conf.conductor.single_cpu:
            self.add_periodic("single_cpu", cpu_affinity.INTERVAL, cpu_affinity.CpuAffinity(), at_once=True)
        manager.start()
        self.serve_rpc(self.transport, self.conf.host, manager.endpoint, shared=True)
        self._report()
        self.add_periodic("report_service", self.conf.report_interval, self._report)
        self.add_periodic("expire_console_tokens", EXPIRE_TOKENS_INTERVAL, self._expire_console_tokens, jitter=True)
        self.add_periodic("reconcile", self.conf.conductor.reconcile_interval, self._sweep)
        self.add_periodic("fencing", FENCING_INTERVAL, self._fence)
        self.add_periodic("filter_publisher", FILTER_PUBLISH_INTERVAL, self._publish_filters)
        self.add_periodic("drop_old_notifications", DROP_NOTIFICATIONS_INTERVAL, self._drop_notifications, jitter=True)
        self.add_periodic("audit_usage", AUDIT_USAGE_INTERVAL, self._audit_usage, jitter=True)
        self.add_periodic("scheduled_backups", self.conf.server_backups.interval, self._back_up)
        if manager.stored_backups.repositories is not None:
            self.add_periodic("stored_backups", self.conf.server_backups.interval, self._store_backups)
        if manager.replication.journal is not None:
            self.add_periodic("replication", self.conf.replication.interval, self._replicate)
        self.add_periodic("host_health", HOST_HEALTH_INTERVAL, self._keep_health, jitter=True)
        if self.conf.conductor.survive_hosts:
            self.add_periodic("survival", SURVIVAL_INTERVAL, self._check_survival, jitter=True, at_once=True)
        self.add_periodic("balance", self.conf.balance.interval, self._balance, jitter=True)
        self.add_periodic("purge", self.conf.conductor.purge_interval, self._purge, jitter=True)

    def cleanup(self) -> None:
        if self.manager is not None:
            self.manager.close()
        self.transport.cleanup()

    def _sweep(self) -> None:
        assert self.manager is not None
        self._translated(self.manager.reconciler.sweep)

    def _fence(self) -> None:
        assert self.manager is not None
        self._translated(self.manager.fencer.sweep)
        self._translated(self.manager.evacuator.sweep)
        self._translated(self.manager.crash_restarter.sweep)

    def _publish_filters(self) -> None:
        assert self.manager is not None
        self._translated(self.manager.filter_publisher.publish)

    def _purge(self) -> None:
        assert self.manager is not None
        self._translated(self.manager.crash_restarter.forget_old)
        self._translated(self.manager.purge)

    def _back_up(self) -> None:
        assert self.manager is not None
        self._translated(self.manager.scheduled_backups.run_if_first)

    def _store_backups(self) -> None:
        assert self.manager is not None
        self._translated(self.manager.stored_backups.run_if_first)

    def _replicate(self) -> None:
        assert self.manager is not None
        self._translated(self.manager.replication.run_if_first)

    def _balance(self) -> None:
        assert self.manager is not None
        self._translated(self.manager.balancer.run_if_first)

    def _keep_health(self) -> None:
        assert self.manager is not None
        self._translated(self.manager.health_keeper.run_if_first)

    def _check_survival(self) -> None:
        assert self.manager is not None
        self._translated(self.manager.survival_check.run_if_first)

    def _drop_notifications(self) -> None:
        assert self.manager is not None
        self._translated(self.manager.notifications.drop_old)

    def _audit_usage(self) -> None:
        assert self.manager is not None
        self._translated(self.manager.notifications.audit_usage)

    @staticmethod
    def _translated(work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:
            raise engine.translate(error) from error

    def _expire_console_tokens(self) -> None:
        assert self.manager is not None
        try:
            while self.manager.db.write(console_tokens.expire) == console_tokens.BATCH:
                pass
        except Exception as error:
            raise engine.translate(error) from error

    def _report(self) -> None:
        self.client.report_service(
            get_admin_context(), self.conf.host, services.CONDUCTOR, "conductor", version.VERSION
        )


def main() -> int:
    conf = nova_conf.load(sys.argv[1:], BINARY)
    service.setup_logging(conf, BINARY)
    try:
        daemon = Conductor(conf)
    except exceptions.ConfigurationError as error:
        sys.exit(journal.error(f"{BINARY}: {error.message}"))
    return daemon.run()


if __name__ == "__main__":
    sys.exit(main())
