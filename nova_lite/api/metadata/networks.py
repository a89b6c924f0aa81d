"""Networks whose guests a worker serves: it accepts on their sockets (`nova_lite.metadata.network_sockets`)."""

from __future__ import annotations

import logging
from typing import Any

from oslo_config import cfg

from nova_lite import rpc
from nova_lite.api.http.server import HttpServer
from nova_lite.api.metadata import role
from nova_lite.metadata import network_sockets

LOG = logging.getLogger(__name__)


class GuestNetworks:
    """Networks of the compute daemons of this machine."""

    def __init__(self, conf: cfg.ConfigOpts, http: HttpServer) -> None:
        self._directory: str = conf.network.metadata_directory
        #: The role metadata may read the guests of one host.
        self._host = conf.host if role.role_of(conf) == rpc.METADATA else None
        self._http = http
        self._hosts: dict[str, _Host] = {}

    def tick(self) -> None:
        """Learn of new and removed networks. Call it several times a second."""
        if self._host is None:
            paths = network_sockets.paths(self._directory)
        else:
            paths = [network_sockets.path(self._directory, self._host)]
        for path in paths:
            self._hosts.setdefault(path, _Host(path, self._http)).tick()

    def close(self) -> None:
        for host in self._hosts.values():
            host.close()


class _Host:
    """Networks of one compute daemon. While it is away, its last sockets are served."""

    def __init__(self, path: str, http: HttpServer) -> None:
        self._path = path
        self._http = http
        self._channel: Any = None
        self._known: dict[str, Any] = {}
        self._unconfirmed: set[str] = set()
        self._problem: str | None = None

    def tick(self) -> None:
        try:
            if self._channel is None:
                self._channel = network_sockets.connect(self._path)
                self._unconfirmed = set(self._known)
            while (packet := network_sockets.receive(self._channel)) is not None:
                self._take(packet)
        except BlockingIOError:
            self._problem = None
            return
        except OSError as error:
            problem = str(error)
        else:
            problem = "the compute daemon has ended"
        if problem != self._problem:
            LOG.warning("Changes of guests' networks are not seen: %s: %s", self._path, problem)
            self._problem = problem
        self.close()

    def _take(self, packet: network_sockets.Packet) -> None:
        kind, network_id, sock = packet
        if sock is not None:
            self._unconfirmed.discard(network_id)
            self._http.listen(sock, network_id)
            self._remove(network_id)
            self._known[network_id] = sock
        elif kind == network_sockets.GONE:
            self._remove(network_id)
        elif kind == network_sockets.COMPLETE:
            for missing in self._unconfirmed:
                self._remove(missing)
            self._unconfirmed = set()

    def _remove(self, network_id: str) -> None:
        if (sock := self._known.pop(network_id, None)) is not None:
            self._http.end_listening(sock)

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
