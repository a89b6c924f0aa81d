"""A libvirtd that disappears and returns, simulated by a relay between it and the driver."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.virt.libvirt.connection import Connection
from tests.support.waiting import wait_for

LIBVIRTD = "/run/libvirt/libvirt-sock"


class Relay:
    """Relays bytes between its own socket and libvirtd's."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._sockets: list[socket.socket] = []
        self._listener: socket.socket | None = None

    def start(self) -> None:
        Path(self.path).unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def stop(self) -> None:
        for connection in [*self._sockets, self._listener]:
            if connection is not None:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                connection.close()
        self._sockets, self._listener = [], None

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(LIBVIRTD)
                self._sockets += [client, server]
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    @staticmethod
    def _pump(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def relay(connection: Any) -> Iterator[Relay]:
    if not Path(LIBVIRTD).exists():
        pytest.skip(f"libvirtd does not listen at {LIBVIRTD}")
    directory = tempfile.mkdtemp(prefix="nova-lite-test-", dir="/var/tmp")
    relay = Relay(f"{directory}/sock")
    relay.start()
    yield relay
    relay.stop()
    shutil.rmtree(directory)


def test_connection_is_restored_after_a_restart_of_libvirtd(relay: Relay) -> None:
    opened: list[Any] = []
    connection = Connection(f"qemu+unix:///system?socket={relay.path}", "one", opened.append)
    assert connection.connect_call("getType") == "QEMU"

    relay.stop()
    for _ in range(3):
        with pytest.raises(exceptions.HypervisorUnavailable) as caught:
            connection.connect_call("getVersion")
        assert "\n" not in caught.value.message

    relay.start()

    def answers() -> bool:
        with contextlib.suppress(exceptions.HypervisorUnavailable):
            return bool(connection.connect_call("getVersion"))
        return False

    assert wait_for("answer", answers, timeout=10)
    assert len(opened) == 2, "the new connection has to be registered, or its events would never arrive"
