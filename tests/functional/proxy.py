"""A TCP forwarder that can be cut: how tests take a broker or a database away from one cloud alone."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType

from tests.support.ports import free_port

INWARD, OUTWARD = "to the target", "to the client"


class Proxy:
    """A TCP proxy: ``with Proxy(5672) as proxy``; ``proxy.port`` leads to 127.0.0.1:5672 until `cut`, and after
    `restore`.

    ``address``: where it listens. While cut, open connections are reset and new ones are refused.

    ``hold(port)``: the connection from this port, the client's or that to the target, stays open but passes nothing, as
    after a firewall has forgotten it. ``mute()`` does so to all connections, new ones included, until ``unmute()``
    resets them. It can be in one direction only: of what clients send (``INWARD``), or of what they receive
    (``OUTWARD``).
    """

    def __init__(self, target_port: int, address: str = "127.0.0.1") -> None:
        self.target_port = target_port
        self.address = address
        #: None that the kernel gives to connections: while cut, one of those could take it, even one to this very port.
        self.port = free_port()
        self._server: socket.socket | None = None
        self._pairs: set[socket.socket] = set()
        self._held: set[int] = set()
        self._muted: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    def __enter__(self) -> Proxy:
        self.restore()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.cut()

    def restore(self) -> None:
        if self._server is not None:
            return
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((self.address, self.port))
        server.listen(64)
        self._server = server
        threading.Thread(target=self._accept, args=(server,), daemon=True).start()

    def cut(self) -> None:
        if self._server is not None:
            # A blocked accept() is only woken by a shutdown.
            self._server.shutdown(socket.SHUT_RDWR)
            self._server.close()
            self._server = None
        with self._lock:
            for end in self._pairs:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            self._pairs.clear()

    def hold(self, port: int) -> None:
        self._held.add(port)

    def mute(self, *directions: str) -> None:
        self._muted = frozenset(directions or (INWARD, OUTWARD))

    def unmute(self) -> None:
        """Reset all connections. Lost bytes cannot be recovered, so connections start again."""
        was_cut = self._server is None
        self.cut()
        self._muted = frozenset()
        if not was_cut:
            self.restore()

    def _accept(self, server: socket.socket) -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            try:
                target = socket.create_connection(("127.0.0.1", self.target_port), 10)
            except OSError:
                client.close()
                continue
            target.settimeout(None)
            with self._lock:
                self._pairs |= {client, target}
            ports = {client.getpeername()[1], target.getsockname()[1]}
            for direction, source, sink in ((INWARD, client, target), (OUTWARD, target, client)):
                threading.Thread(target=self._pump, args=(source, sink, ports, direction), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, ports: set[int], direction: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self._held.isdisjoint(ports) and direction not in self._muted:
                    sink.sendall(data)
        if not self._held.isdisjoint(ports):
            return
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._pairs -= {source, sink}
