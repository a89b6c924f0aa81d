"""Messages that a request would send: recorded, and stopped before they change something."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
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


class Outcomes:
    """Outcomes of requests that differ in a field, to be compared.

    ``send`` gives the text of a refusal, or an empty text and the outcome. A request is sent once, and once more when
    it is compared: what is different then is different each time. Many comparisons share a good request.
    """

    def __init__(self, send: Callable[[Any, Any], tuple[str, Any]]) -> None:
        self._send = send
        self._sent: dict[str, tuple[tuple[str, Any], Callable[[], tuple[str, Any]]]] = {}
        self._again: dict[str, Any] = {}
        self._shared: set[str] = set()

    def of(self, route: object, case: Any, body: Any) -> tuple[str, Any]:
        """Return what ``send`` gives for a case with this body."""
        key = _key(route, body)
        if key in self._sent:
            self._shared.add(key)
        else:
            self._sent[key] = self._send(case, body), lambda: self._send(case, body)
        return self._sent[key][0]

    def differ(self, route: object, one: Any, other: Any) -> bool:
        """Check whether two accepted bodies have different outcomes, apart from what is different each time."""
        keys = _key(route, one), _key(route, other)
        if self._sent[keys[0]][0] == self._sent[keys[1]][0]:
            return False
        return _differ(*(self._pair(key) for key in keys))

    def changed(self) -> list[str]:
        """Return the shared requests whose outcome is no longer the first one: their comparisons were wrong."""
        return [
            key
            for key in sorted(self._shared & self._again.keys())
            if _differ(self._pair(key), (self._sent[key][1]()[1], self._sent[key][1]()[1]))
        ]

    def _pair(self, key: str) -> tuple[Any, Any]:
        (_, outcome), repeat = self._sent[key]
        if key not in self._again:
            self._again[key] = repeat()[1]
        return outcome, self._again[key]


def _key(route: object, body: Any) -> str:
    return json.dumps([str(route), body])


def _differ(*pairs: tuple[Any, Any]) -> bool:
    seen = [[dict(leaves(outcome)) for outcome in pair] for pair in pairs]
    stable = [{item for item in once.items() if item in again.items()} for once, again in seen]
    random = [once.keys() - dict(same).keys() for (once, _), same in zip(seen, stable, strict=True)]
    return any(place not in random[0] & random[1] for place, _ in stable[0] ^ stable[1])
