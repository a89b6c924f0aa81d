"""``nova-lite-scheduler``: chooses hosts for instances."""

from __future__ import annotations

from nova_lite import concurrency

concurrency.setup(concurrency.THREADING)

# isort: split
import sys  # noqa: E402

from oslo_config import cfg  # noqa: E402

from nova_lite import conf as configuration  # noqa: E402
from nova_lite import rpc, service  # noqa: E402
from nova_lite.conductor.rpcapi import ConductorAPI  # noqa: E402
from nova_lite.notifications import Notifications  # noqa: E402
from nova_lite.scheduler.manager import SchedulerManager  # noqa: E402
from nova_lite.scheduler.rpcapi import TOPIC, VERSION  # noqa: E402


class SchedulerDaemon(service.Daemon):
    """Serves as soon as the broker is there. Hosts are loaded in the background, whenever the conductor answers."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf, "nova-lite-scheduler")
        self._notifications: Notifications | None = None

    def prepare(self) -> None:
        transport = rpc.get_transport(self.conf)
        if self._notifications is None:
            self._notifications = Notifications(self.conf, f"nova-scheduler.{self.conf.host}")
        manager = SchedulerManager(self.conf, ConductorAPI(transport), notify=self._notifications.emit)
        self.serve_rpc(transport, TOPIC, self.conf.host, [rpc.Endpoint(manager, VERSION)])
        self.add_periodic("Loading host states", self.conf.startup_retry_interval, manager.keep_fresh, at_once=True)
        self.add_periodic("Heartbeat", self.conf.report_interval, manager.report, at_once=True)

    def cleanup(self) -> None:
        if self._notifications is not None:
            self._notifications.close()


def main() -> int:
    conf = configuration.load(prog="nova-lite-scheduler")
    service.setup_logging(conf, "nova-lite-scheduler")
    return SchedulerDaemon(conf).run()


if __name__ == "__main__":
    sys.exit(main())
