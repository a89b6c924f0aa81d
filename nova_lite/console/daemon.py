"""The daemons nova-lite-novncproxy, nova-lite-spicehtml5proxy and nova-lite-serialproxy."""

from __future__ import annotations

import os
import socket
import threading
from typing import NamedTuple

from oslo_config import cfg

from nova_lite import rpc
from nova_lite.base import exceptions
from nova_lite.conf.consoles import SPICE_WEB
from nova_lite.console.host_tls import HostTls
from nova_lite.console.opening import Opener
from nova_lite.console.server import ProxyServer
from nova_lite.daemon import service
from nova_lite.daemon.certificates import CertificateWatch
from nova_lite.daemon.sockets import listen, tls_context
from nova_lite.rpcapi.compute import ComputeRPC
from nova_lite.rpcapi.conductor import ConductorRPC


class ConsoleKind(NamedTuple):
    """Kind of a console proxy.

    ``group``, ``host`` and ``port`` name its options. ``page``: a file in ``[DEFAULT] web``; None for a proxy without
    web pages. ``web``: default of that option here, and ``package``: Debian's package of the files.
    """

    binary: str
    console_types: tuple[str, ...]
    group: str
    host: str
    port: str
    page: str | None = None
    web: str | None = None
    package: str = "novnc"


#: Seconds in which a client of a console proxy has to send a request.
HANDSHAKE_SECONDS = 30

NOVNC = ConsoleKind("nova-lite-novncproxy", ("novnc",), "vnc", "novncproxy_host", "novncproxy_port", page="vnc.html")
SPICE = ConsoleKind(
    "nova-lite-spicehtml5proxy",
    ("spice-html5",),
    "spice",
    "html5proxy_host",
    "html5proxy_port",
    page="spice_auto.html",
    web=SPICE_WEB,
    package="spice-html5",
)
SERIAL = ConsoleKind("nova-lite-serialproxy", ("serial",), "serial_console", "serialproxy_host", "serialproxy_port")


class ConsoleProxy(service.Daemon):
    """A console proxy. It connects to the broker with the first request; while the broker is away, it returns 503."""

    def __init__(self, conf: cfg.ConfigOpts, kind: ConsoleKind, connect: rpc.Connect = rpc.Transport) -> None:
        super().__init__(conf, kind.binary)
        self._connect = connect
        self._kind = kind
        if kind.web is not None:
            conf.set_default("web", kind.web)
        self._transport: rpc.Transport | None = None
        self._server: ProxyServer | None = None

    def prepare(self) -> None:
        conf, kind = self.conf, self._kind
        web = self._web()
        tls = tls_context(conf.cert, conf.key or conf.cert, "[DEFAULT] cert", "[DEFAULT] key") if conf.cert else None
        to_hosts = HostTls.of(conf)
        sock = self.listen()
        transport = self._transport = self._connect(conf, rpc.CONSOLE)
        opener = Opener(
            rpc.proxy(ConductorRPC, transport),
            rpc.proxy(ComputeRPC, transport),
            kind.console_types,
            conf.console.allowed_origins,
            to_hosts,
        )
        options = conf.console
        limits = HANDSHAKE_SECONDS, options.max_connections, options.max_connections_per_client
        self._server = ProxyServer(sock, opener, web, tls, *limits, self.watchdog.watch("console proxy"))
        self.serve_health(transport)
        if conf.console.tls_directory is not None or conf.cert:
            CertificateWatch(conf.console.tls_directory, [conf.cert] if conf.cert else []).begin(self)
        threading.Thread(target=self._server.serve_forever, name="proxy", daemon=True).start()

    def listen(self) -> socket.socket:
        """Return the listening socket."""
        return listen(self.conf[self._kind.group][self._kind.host], self.conf[self._kind.group][self._kind.port])

    def _web(self) -> str | None:
        page, package = self._kind.page, self._kind.package
        if page is None:
            return None
        if not os.path.isfile(os.path.join(self.conf.web, page)):
            raise exceptions.ConfigurationError(
                reason=f"[DEFAULT] web = {self.conf.web}: the client's files are not there (no {page}). "
                f"Debian has them in the package {package}."
            )
        return str(self.conf.web)

    def cleanup(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None
        if self._transport is not None:
            self._transport.cleanup()
            self._transport = None
