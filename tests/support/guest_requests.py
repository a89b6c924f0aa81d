"""Guests of fake hosts: requests to the metadata service from their addresses, on their networks."""

from __future__ import annotations

import select
from pathlib import Path
from typing import Any

import requests

from nova_lite.metadata import network_sockets


class _At(requests.adapters.HTTPAdapter):
    def __init__(self, address: str) -> None:
        self._address = address
        super().__init__()

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, source_address=(self._address, 0), **options)  # type: ignore[no-untyped-call]


def listening(directory: Path, host: str) -> dict[str, tuple[str, int]]:
    """Return where a compute daemon listens, by network: this is one more API. Raises OSError while it is away."""
    channel = network_sockets.connect(network_sockets.path(str(directory), host))
    found: dict[str, tuple[str, int]] = {}
    try:
        while True:
            if not select.select([channel], [], [], 30)[0]:
                raise TimeoutError(f"the compute daemon of {host} says nothing")
            packet = network_sockets.receive(channel)
            if packet is None:
                raise ConnectionResetError(f"the compute daemon of {host} has ended")
            if packet.kind == network_sockets.COMPLETE:
                return found
            found[packet.network_id] = packet.sock.getsockname()
            packet.sock.close()
    finally:
        channel.close()


def ask(
    place: tuple[str, int], address: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> requests.Response:
    """Send a request from ``address`` to a network's socket; with a body, a POST."""
    with requests.Session() as session:
        session.mount("http://", _At(address))
        method, url = "GET" if body is None else "POST", f"http://{place[0]}:{place[1]}{path}"
        return session.request(method, url, data=body, headers=headers, timeout=30)
