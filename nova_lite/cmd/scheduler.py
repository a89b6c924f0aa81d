"""``nova-lite-scheduler``: chooses hosts for instances."""

from __future__ import annotations

from nova_lite.base import concurrency
from nova_lite.base.timing import TIMING

concurrency.setup(concurrency.THREADING)

# isort: split
import gc  # noqa: E402
import sys  # noqa: E402

from oslo_config import cfg  # noqa: E402

from nova_lite import conf as configuration  # noqa: E402
from nova_lite import rpc  # noqa: E402
from nova_lite.base import metrics  # noqa: E402
from nova_lite.daemon import service  # noqa: E402
from nova_lite.daemon.notifications import Notifications  # noqa: E402
from nova_lite.rpcapi.conductor import ConductorRPC  # noqa: E402
from nova_lite.rpcapi.scheduler import SchedulerRPC  # noqa: E402
from nova_lite.scheduler.manager import SchedulerManager  # noqa: E402

#: Seconds between two full garbage collections. Each examines every host, and no decision is made meanwhile. Python
#: itself would run one about every ten decisions.
FULL_COLLECTION_INTERVAL = 60.0


def disable_automatic_full_collections() -> None:
    """Disable automatic full garbage collections. Young objects are collected as usual."""
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, 2**31 - 1)


def collect_fully() -> None:
    gc.collect()


class SchedulerDaemon(service.Daemon):
    """The scheduler daemon. It serves once the broker is reachable. Meanwhile `keep_fresh` loads the hosts."""

    def __init__(self, conf: cfg.ConfigOpts, connect: rpc.Connect = rpc.Transport) -> None:
        super().__init__(conf, "nova-lite-scheduler")
        self._connect = connect
        self.manager: SchedulerManager | None = None
        self._notifications: Notifications | None = None
        self._transport: rpc.Transport | None = None

    def prepare(self) -> None:
        transport = self._transport = self._transport or self._connect(self.conf, rpc.SCHEDULER)
        if self._notifications is None:
            self._notifications = Notifications(self.conf, f"nova-scheduler.{self.conf.host}")
        manager = self.manager = SchedulerManager(
            self.conf, rpc.proxy(ConductorRPC, transport), notify=self._notifications.emit
        )
        self.serve_health(transport, hosts=manager.require_hosts)
        metrics.add_gauges(self, lambda: [metrics.sample(metrics.SCHEDULER_HOSTS, manager.known_hosts())])
        self.serve_rpc(transport, self.conf.host, rpc.Endpoint(SchedulerRPC, manager), shared=True)
        self.add_periodic("Loading host states", TIMING.daemon.start_retry, manager.keep_fresh, at_once=True)
        self.add_periodic("Heartbeat", self.conf.report_interval, manager.report, at_once=True)
        self.add_periodic("Full garbage collection", FULL_COLLECTION_INTERVAL, collect_fully)

    def cleanup(self) -> None:
        if self._notifications is not None:
            self._notifications.close()
        if self._transport is not None:
            self._transport.cleanup()
            self._transport = None


def main() -> int:
    conf = configuration.load(prog="nova-lite-scheduler")
    service.setup_logging(conf, "nova-lite-scheduler")
    disable_automatic_full_collections()
    return SchedulerDaemon(conf).run()


if __name__ == "__main__":
    sys.exit(main())
