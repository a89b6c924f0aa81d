"""``nova-lite-conductor``: the only daemon that opens the database."""

from __future__ import annotations

from nova_lite.base import concurrency

concurrency.setup(switch_interval=concurrency.SWITCH_INTERVAL)

# isort: split

import functools  # noqa: E402
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
from nova_lite.rpcapi.compute import ComputeRPC  # noqa: E402
from nova_lite.rpcapi.conductor import ConductorRPC  # noqa: E402
from nova_lite.rpcapi.scheduler import SchedulerRPC  # noqa: E402

LOG = logging.getLogger(__name__)

BINARY = "nova-lite-conductor"


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
        for worker in manager.workers():
            work = functools.partial(_translated, worker.work)
            self.add_periodic(worker.name, worker.interval, work, worker.jitter, worker.at_once)

    def cleanup(self) -> None:
        if self.manager is not None:
            self.manager.close()
        self.transport.cleanup()

    def _report(self) -> None:
        self.client.report_service(
            get_admin_context(), self.conf.host, services.CONDUCTOR, "conductor", version.VERSION
        )


def _translated(work: Callable[[], object]) -> None:
    try:
        work()
    except Exception as error:
        raise engine.translate(error) from error


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
