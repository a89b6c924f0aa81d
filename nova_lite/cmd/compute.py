"""``nova-lite-compute``: runs the instances of one host."""

from __future__ import annotations

from nova_lite.base import concurrency

concurrency.setup(concurrency.THREADING)

# isort: split
import fcntl  # noqa: E402
import functools  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
import threading  # noqa: E402

from oslo_config import cfg  # noqa: E402

from nova_lite import conf as configuration  # noqa: E402
from nova_lite import rpc  # noqa: E402
from nova_lite.base import exceptions, files, metrics  # noqa: E402
from nova_lite.compute import conductor_client  # noqa: E402
from nova_lite.compute.lease_ways import FURTHER_WAYS, LeaseWay  # noqa: E402
from nova_lite.compute.manager import ComputeManager, fencing_path  # noqa: E402
from nova_lite.compute.metadata_sockets import MetadataSockets  # noqa: E402
from nova_lite.daemon import service  # noqa: E402
from nova_lite.daemon.certificates import CertificateWatch  # noqa: E402
from nova_lite.image.driver import load_backend  # noqa: E402
from nova_lite.metadata import network_sockets  # noqa: E402
from nova_lite.rpc import trust  # noqa: E402
from nova_lite.rpcapi.compute import ComputeRPC  # noqa: E402
from nova_lite.rpcapi.conductor import ConductorRPC  # noqa: E402
from nova_lite.virt.driver import load_compute_driver  # noqa: E402

BINARY = "nova-lite-compute"

#: Seconds between two checks whether the domains have to be compared with the database.
RECONCILE_TICK = 1.0
#: Seconds between two looks at the lease of a host that fences itself.
SELF_FENCING_TICK = 1.0
#: Requests of a lease within its time.
RENEWALS = 10
#: Seconds between two checks whether a further way has to request a lease.
LEASE_TICK = 1.0
#: Seconds between two checks of the hypervisor.
WATCH_TICK = 1.0
#: Seconds between two queries for filter rules, and between two checks whether one is needed.
FILTERS_TICK = 0.25
#: Seconds between two looks of a wing, and for which one waits for a wake-up.
WING_TICK = 0.25
NETWORKS_INTERVAL = 300.0
#: Seconds between two looks at the networks that have the metadata service, and at the APIs that serve it.
METADATA_TICK = NETWORKS_TICK = 0.5
PRUNE_INTERVAL = 3600.0
#: Seconds between two looks at the marks of hosts in the directory of disks.
STORAGE_INTERVAL = 30.0
#: Seconds between two checks whether a report of the host's load is due.
LOAD_TICK = 1.0
#: Seconds between two checks whether a step of the history of use has ended.
USAGE_TICK = 1.0
#: Seconds between two queries for the list of trusted keys.
TRUST_INTERVAL = 10.0


class ComputeDaemon(service.Daemon):
    """The compute daemon. It serves only after it compared its domains with the database, so that no command meets
    an outdated domain.
    """

    def __init__(self, conf: cfg.ConfigOpts, connect: rpc.Connect = rpc.Transport) -> None:
        super().__init__(conf, BINARY)
        self._connect = connect
        self._transport: rpc.Transport | None = None
        self._lease_transports: list[rpc.Transport] = []
        self._manager: ComputeManager | None = None
        self._lock_file: int | None = None
        self._listening = False
        self._metadata: MetadataSockets | None = None

    def prepare(self) -> None:
        self._lock_host()
        if (update_trust := trust.updater(self.conf)) is not None:  # First: it may be what is missing.
            self.add_periodic("Trusted keys", TRUST_INTERVAL, update_trust, at_once=True)
        transport = self._transport = self._transport or self._connect(self.conf, rpc.COMPUTE)
        manager = self._manager = self._manager or self._make_manager(
            conductor_client.connect(rpc.proxy(ConductorRPC, transport), self.conf.host)
        )
        self.serve_health(transport, hypervisor=manager.require_hypervisor, registration=manager.registration.require)
        metrics.add_gauges(self, manager.states)
        manager.connect()
        self.add_periodic("Heartbeat", self.conf.report_interval, manager.send_heartbeat, jitter=True)
        self.add_periodic("Self-fencing", SELF_FENCING_TICK, manager.self_fencing.tick)
        self._renew_leases(manager)
        self.add_periodic("Inventory", self.conf.report_interval, manager.heartbeat.refresh)
        self.add_periodic("Watching the hypervisor", WATCH_TICK, manager.watch_hypervisor)
        manager.clean_up()
        manager.self_fencing.renew()
        self.serve_rpc(transport, self.conf.host, rpc.Endpoint(ComputeRPC, manager, commands=manager.commands))
        self.add_periodic("Domain reconciliation", RECONCILE_TICK, manager.reconciler.tick)
        self.add_periodic("Load", LOAD_TICK, manager.load_reports.tick)
        self.add_periodic("History of use", USAGE_TICK, manager.usage_recorder.tick)
        if self.conf.host_health.interval:
            self.add_periodic("Health", self.conf.host_health.interval, manager.health_reports.tick, at_once=True)
        else:
            manager.registration.attach_health([])
        self.add_periodic("Port filters", FILTERS_TICK, lambda: manager.port_filters.tick(FILTERS_TICK))
        for wing in manager.wings.values():
            self.add_periodic(f"Wing {wing.name}", WING_TICK, functools.partial(wing.tick, WING_TICK), at_once=True)
        self.add_periodic("Pruning of fences", PRUNE_INTERVAL, manager.prune_fencing_records, jitter=True)
        self.add_periodic("Shared storage", STORAGE_INTERVAL, manager.report_storage, at_once=True)
        self.add_periodic("Watching networks", NETWORKS_TICK, manager.host.driver.networks.watch)
        self.add_periodic("Ageing of networks", NETWORKS_INTERVAL, manager.age_networks, jitter=True)
        if self.conf.network.metadata_service:
            self._metadata = self._metadata or MetadataSockets(
                network_sockets.path(self.conf.network.metadata_directory, self.conf.host),
                manager.host.driver.networks.metadata_sockets,
            )
            self.add_periodic("Metadata sockets", METADATA_TICK, self._metadata.tick, at_once=True)
        if self.conf.image_cache.manager_interval:
            self.add_periodic(
                "Ageing of images", self.conf.image_cache.manager_interval, manager.age_images, jitter=True
            )
        CertificateWatch(self.conf.libvirt.certificates_directory).begin(self)
        self._listen_to_hypervisor(manager)
        manager.registration.serve()

    def _renew_leases(self, manager: ComputeManager) -> None:
        """Renew the lease of a host that fences itself, by several connections."""
        if not manager.self_fencing.enabled:
            return
        interval = self.conf.compute.self_fencing_lease / RENEWALS
        self.add_periodic("Lease", interval, manager.self_fencing.renew, jitter=True)
        while len(self._lease_transports) < FURTHER_WAYS:
            self._lease_transports.append(self._connect(self.conf, rpc.COMPUTE))
        for number, transport in enumerate(self._lease_transports, 2):
            way = LeaseWay(manager.self_fencing, rpc.proxy(ConductorRPC, transport))
            self.add_periodic(f"Lease by way {number}", LEASE_TICK, way.tick)

    def needs_restart(self) -> bool:
        return self._manager is not None and self._manager.registration.lost.is_set()

    def cleanup(self) -> None:
        if self._manager is not None:
            self._manager.stop()
        if self._metadata is not None:
            self._metadata.close()

    def _make_manager(self, conductor: ConductorRPC) -> ComputeManager:
        conf = self.conf
        images = load_backend(conf, conductor)
        driver = load_compute_driver(conf, conf.host, images.fetch)
        return ComputeManager(conf, conf.host, driver, conductor, images)

    def _lock_host(self) -> None:
        """Lock the host's name: two daemons would break "one job at a time per instance". The kernel frees the lock
        with the process.

        Raises `ServiceUnavailable` while another daemon holds it.
        """
        if self._lock_file is not None:
            return
        try:
            directory = files.private_directory(fencing_path(self.conf, self.conf.host))
            descriptor = os.open(os.path.join(directory, ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise exceptions.ConfigurationError(reason=f"[DEFAULT] state_path cannot be used: {error}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise exceptions.ServiceUnavailable(
                f"Another {BINARY} is running as host {self.conf.host} on this machine."
            ) from error
        self._lock_file = descriptor

    def _listen_to_hypervisor(self, manager: ComputeManager) -> None:
        """Wait for the hypervisor's events in a thread, since a driver may block in the call."""
        if not self._listening:
            self._listening = True
            wait = manager.host.driver.wait_for_events
            threading.Thread(target=wait, args=(manager.reconciler.power_event,), name="events", daemon=True).start()


def main() -> int:
    conf = configuration.load(prog=BINARY)
    service.setup_logging(conf, BINARY)
    return ComputeDaemon(conf).run()


if __name__ == "__main__":
    sys.exit(main())
