"""``nova-lite-api``: serves the REST APIs of ``[api] enabled_apis``."""

from __future__ import annotations

from nova_lite.base import concurrency

concurrency.setup(concurrency.THREADING)

# isort: split

import logging  # noqa: E402
import os  # noqa: E402
import socket  # noqa: E402
import ssl  # noqa: E402
import sys  # noqa: E402
import threading  # noqa: E402
from typing import TYPE_CHECKING, NamedTuple  # noqa: E402

from oslo_config import cfg  # noqa: E402

from nova_lite import conf as nova_conf  # noqa: E402
from nova_lite import rpc  # noqa: E402
from nova_lite.api import conductor_client  # noqa: E402
from nova_lite.api.audit import recorder  # noqa: E402
from nova_lite.api.http import deploy, prefork, proxy_protocol, server, wsgi  # noqa: E402
from nova_lite.api.http.limits import MAX_BODY, ClientLimits  # noqa: E402
from nova_lite.api.http.proxy_protocol import Balancers  # noqa: E402
from nova_lite.api.metadata import role  # noqa: E402
from nova_lite.api.metadata.networks import GuestNetworks  # noqa: E402
from nova_lite.base import exceptions, journal  # noqa: E402
from nova_lite.base.timing import TIMING  # noqa: E402
from nova_lite.compute.api import API  # noqa: E402
from nova_lite.daemon import kept_sockets, service, sockets  # noqa: E402
from nova_lite.daemon.certificates import CertificateWatch  # noqa: E402
from nova_lite.image.driver import load_backend  # noqa: E402
from nova_lite.policies.enforcer import Policy  # noqa: E402
from nova_lite.rpc import controllers  # noqa: E402
from nova_lite.rpcapi.compute import ComputeRPC  # noqa: E402
from nova_lite.rpcapi.conductor import ConductorRPC, ConductorTexts  # noqa: E402

if TYPE_CHECKING:
    from nova_lite.compute.user_volumes import UserVolumes

LOG = logging.getLogger(__name__)

BINARY = "nova-lite-api"

METADATA = "metadata"

#: Options with the address of each API.
ADDRESSES = {
    "osapi_compute": ("listen", "port"),
    METADATA: ("metadata_listen", "metadata_listen_port"),
    "identity": ("identity_listen", "identity_port"),
    "image": ("image_listen", "image_port"),
    "volume": ("volume_listen", "volume_port"),
    "network": ("network_listen", "network_port"),
    "dns": ("dns_listen", "dns_port"),
    "load_balancer": ("load_balancer_listen", "load_balancer_port"),
    "key_manager": ("key_manager_listen", "key_manager_port"),
    "placement": ("placement_listen", "placement_port"),
    "join": ("join_listen", "join_port"),
    "page": ("page_listen", "page_port"),
}

PARENT_CHECK_SECONDS = 1.0
#: Seconds between two looks at the networks whose guests are served.
GUEST_NETWORKS_TICK = 0.5


class Site(NamedTuple):
    """A served API: its application, one socket per worker, or none, and its TLS settings."""

    name: str
    app: deploy.App
    socks: list[socket.socket]
    tls: ssl.SSLContext | None


class Worker(service.Daemon):
    """A process that serves all APIs: the worker with this number. ``parent``: pid of the parent; the worker ends
    with it.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        compute: API,
        sites: list[Site],
        number: int = 0,
        parent: int | None = None,
        connect: rpc.Connect = rpc.Transport,
    ) -> None:
        super().__init__(conf, BINARY)
        self._connect = connect
        self._compute = compute
        self._sites = sites
        self._number = number
        self._parent = parent
        self._transport: rpc.Transport | None = None
        self._http: list[server.HttpServer] = []
        self._guest_networks: GuestNetworks | None = None

    def prepare(self) -> None:
        """Create the clients without connecting: while the broker is down, requests get a 503."""
        self._transport = self._connect(self.conf, role.role_of(self.conf))
        throttled = rpc.Throttled(self._transport, ConductorRPC)
        conductor = conductor_client.connect(
            rpc.proxy(ConductorRPC, throttled),
            texts=rpc.proxy(ConductorTexts, throttled),
        )
        compute = rpc.proxy(ComputeRPC, self._transport)
        self._compute.connect(
            conductor,
            compute,
            load_backend(self.conf, conductor),
            _volumes(self.conf, conductor),
            # Neutron is called for each create first, one by one.
            batch_creates=self.conf.network.backend != "neutron",
        )
        recorder.of(self.conf, self._compute).start()
        self.serve_health(self._transport, self._number)
        if any(site.tls is not None for site in self._sites):
            CertificateWatch(files=[self.conf.api.ssl_cert_file]).begin(self)
        if self._parent is not None:
            self.add_periodic("parent", PARENT_CHECK_SECONDS, self._end_with_parent)
        options = self.conf.api
        limits = ClientLimits(
            request=options.request_deadline,
            body=max(MAX_BODY, _max_body(self.conf)),
            upload=TIMING.api.upload,
            connections=options.max_connections_per_client,
            waiting=options.max_waiting,
            wait=options.max_wait,
        )
        balancers = _balancers(self.conf)
        for site in self._sites:
            sock = site.socks[self._number] if site.socks else None
            turn = self.watchdog.watch(f"API {site.name}")
            http = server.make_server(sock, site.app, self.conf.api.threads, site.tls, limits, turn, balancers)
            http.start()
            self._http.append(http)
            if site.name == METADATA and not self.conf.neutron.service_metadata_proxy:
                self._guest_networks = GuestNetworks(self.conf, http)
                self.add_periodic("Guest networks", GUEST_NETWORKS_TICK, self._guest_networks.tick, at_once=True)

    def cleanup(self) -> None:
        """Stop all APIs at the same time, when load balancers send new connections elsewhere."""
        if self._guest_networks is not None:
            self._guest_networks.close()
        for http in self._http:
            http.drain.run()
        stops = [
            threading.Thread(target=http.stop, args=(self.conf.api.graceful_shutdown_timeout,)) for http in self._http
        ]
        for stop in stops:
            stop.start()
        for stop in stops:
            stop.join()
        self._http.clear()
        recorder.of(self.conf, self._compute).stop()
        if self._transport is not None:
            self._transport.cleanup()
            self._transport = None

    def _end_with_parent(self) -> None:
        if os.getppid() != self._parent:
            self.stopping.set()


def load_apps(conf: cfg.ConfigOpts, compute: API) -> dict[str, deploy.App]:
    """Return the applications that can be served. A name that the paste file does not have is logged and skipped."""
    policy = Policy(conf)
    policy.check_rules()
    services = wsgi.ApiServices(conf, policy, compute)
    apps = {}
    for name in conf.api.enabled_apis:
        if name not in ADDRESSES:
            LOG.warning("[api] enabled_apis: there is no API named %s; it is not served", name)
            continue
        try:
            apps[name] = deploy.load_app(name, services)
        except LookupError as error:
            LOG.warning("[api] enabled_apis: %s is not in the paste file and is not served: %s", name, error)
    return apps


def load_sites(conf: cfg.ConfigOpts, compute: API) -> list[Site]:
    """Return the APIs with their sockets."""
    sites = []
    for name, app in load_apps(conf, compute).items():
        is_tls = name in conf.api.enabled_ssl_apis
        tls = _tls_context(conf) if is_tls else None
        if name == METADATA and not (conf.neutron.service_metadata_proxy or conf.api.use_forwarded_for):
            sites.append(Site(name, app, [], None))  # guests reach it on their networks
            continue
        address, port = (conf.api[option] for option in ADDRESSES[name])
        socks = server.listen_per_worker(name, address, port, conf.api.workers)
        sites.append(Site(name, app, socks, tls))
        LOG.info("%s listens on %s port %d", name, address, port)
    kept_sockets.drop_rest()
    if not sites:
        raise exceptions.ConfigurationError(reason="[api] enabled_apis: none of them can be served.")
    return sites


def _balancers(conf: cfg.ConfigOpts) -> Balancers | None:
    """Return the load balancers of the option, or None if there are none. Raises `ConfigurationError`."""
    option, directory = conf.api.proxy_protocol_from, conf.rpc.keys_directory
    if not option:
        return None
    networks = proxy_protocol.networks(option)
    if proxy_protocol.CONTROLLERS not in option:
        return Balancers(networks)
    if not directory:
        raise exceptions.ConfigurationError(reason="[api] proxy_protocol_from: the list is in [rpc] keys_directory.")
    return Balancers(networks, lambda: {member.address for member in controllers.members(directory)})


def _max_body(conf: cfg.ConfigOpts) -> int:
    """Return the size of the largest body that the size limit filter lets pass, if it is in a pipeline."""
    limit: int = conf.oslo_middleware.max_request_body_size if "oslo_middleware" in conf else 0
    return limit


def _tls_context(conf: cfg.ConfigOpts) -> ssl.SSLContext:
    files = (conf.api.ssl_cert_file, conf.api.ssl_key_file)
    return sockets.tls_context(*files, "[api] ssl_cert_file", "[api] ssl_key_file")


def _volumes(conf: cfg.ConfigOpts, conductor: ConductorRPC) -> UserVolumes | None:
    """Return the client for users' requests to Cinder, if Cinder provides the volumes."""
    if conf.volume.backend != "cinder":
        return None
    from nova_lite.compute.user_volumes import UserVolumes  # keystoneauth is not loaded for nothing
    from nova_lite.volume.cinder_client import CinderClient

    return UserVolumes(CinderClient(conf), conductor)


def main() -> int:
    conf = nova_conf.load(prog=BINARY)
    service.setup_logging(conf, BINARY)
    sockets.allow_many_connections()
    role.log_role(conf)
    compute = API()
    try:
        sites = load_sites(conf, compute)
    except exceptions.ConfigurationError as error:
        sys.exit(journal.error(f"{BINARY}: {error.message}"))
    if conf.api.workers == 1:
        return Worker(conf, compute, sites).run()
    parent = os.getpid()
    return prefork.Prefork(
        BINARY,
        conf.api.workers,
        conf.api.graceful_shutdown_timeout + TIMING.api.drain + 5,
        lambda number: Worker(conf, compute, sites, number, parent).run(),
    ).run()


if __name__ == "__main__":
    sys.exit(main())
