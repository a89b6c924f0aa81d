"""Messages that a request would send: recorded, and stopped before they change something."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

from nova_lite.base import exceptions
from nova_lite.rpc.client import Message
from tests.support.every_api import EveryApi

#: Reads that the contract does not count as such, and changes that a request needs to continue.
_PASSED = ("identity_read", "image_get", "server_backup_hold")
STOPPED = 507


class Stopped(exceptions.NovaLiteException):
    """A message that would change something."""

    code = STOPPED
    msg_fmt = "stopped"


class Recorder:
    """Records the messages of this thread's requests that would change something, and stops them."""

    def __init__(self, cloud: EveryApi) -> None:
        self.sent: list[Any] = []
        self._thread = threading.get_ident()
        self._call, self._cast, self._bus = cloud.bus.call, cloud.bus.cast, cloud.bus

    def __enter__(self) -> Recorder:
        self.sent = []
        self._bus.call, self._bus.cast = self.call, self.cast  # type: ignore[method-assign]
        return self

    def __exit__(self, *error: object) -> None:
        self._bus.call, self._bus.cast = self._call, self._cast  # type: ignore[method-assign]

    def call(self, message: Message) -> Any:
        if threading.get_ident() != self._thread:
            return self._call(message)
        if message.is_read or message.method in _PASSED:
            return self._call(message)
        self.sent.append((message.method, json.loads(json.dumps(message.arguments))))
        raise Stopped()

    def cast(self, message: Message) -> None:
        if threading.get_ident() != self._thread:
            return self._cast(message)
        self.sent.append((message.method, json.loads(json.dumps(message.arguments))))
        return None


def leaves(value: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield path and text of each single value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, item in items:
        yield from leaves(item, f"{before}/{key}")
    if not isinstance(value, dict | list | tuple):
        yield before, repr(value)
    elif not value:
        yield before, "empty"
