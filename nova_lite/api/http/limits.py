"""Limits of clients, who need not be authenticated: times, connections, and memory for incomplete bodies."""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

LOG = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)

#: Minimum rate of a body, in bytes a second, after `ClientLimits.request` seconds.
MIN_RATE = 16 * 1024
MAX_BODY = 128 * 1024
#: Bytes of incomplete bodies that one server keeps in memory, for all clients.
MAX_INCOMPLETE = 32 * 1024 * 1024
#: Connections of one server. Beyond it, idle connections are closed for new ones.
MAX_CONNECTIONS = 8192
#: Large bodies that one server receives at the same time.
MAX_UPLOADS = 64
#: Seconds between two log lines about refused connections.
LOG_INTERVAL = 1.0


class ClientLimits(NamedTuple):
    """Limits of one client. All times are in seconds.

    - ``idle``: how long a connection may be silent between two requests, or take nothing of a response.
    - ``request``: how long the server waits for one request, headers and body. Each `MIN_RATE` bytes add one second.
    - ``body``: bytes of a body that the server receives alone. The application decides about a larger one.
    - ``upload``: how long it waits for a body at most, however large.
    - ``connections``: connections per client.
    - ``waiting``, ``wait``: how many complete requests may wait for a thread, and for how long.
    """

    idle: float = 60.0
    request: float = 20.0
    body: int = MAX_BODY
    upload: float = 6 * 3600.0
    connections: int = 400
    waiting: int = 100
    wait: float = 5.0


class ConnectionCounter:
    """Counts the open connections of each client. Belongs to one thread."""

    def __init__(self, limit: int, warn: Callable[..., None] = LOG.warning) -> None:
        self._limit = limit
        self._warn = warn
        self._open: collections.Counter[str] = collections.Counter()
        self._next_warning = 0.0

    def enter(self, client: str) -> bool:
        """Count one more connection of the client. Return False, and count nothing, if it has reached the limit."""
        if self._open[client] >= self._limit:
            if time.monotonic() >= self._next_warning:
                self._next_warning = time.monotonic() + LOG_INTERVAL
                self._warn("%s has %d connections, which is the maximum; a new one is closed", client, self._limit)
            return False
        self._open[client] += 1
        return True

    def leave(self, client: str) -> None:
        self._open[client] -= 1
        if not self._open[client]:
            del self._open[client]


class FairSlots:
    """Slots for uploads. No client, and no project, has more than half of them."""

    def __init__(self, total: int = MAX_UPLOADS) -> None:
        self._total = total
        self._lock = threading.Lock()
        self._taken = 0
        self._by_group: collections.Counter[str] = collections.Counter()

    def enter(self, *groups: str) -> bool:
        """Take a slot for a member of these groups. Return False if there is none for it."""
        with self._lock:
            if self._taken >= self._total or any(self._by_group[group] >= self._total // 2 for group in groups):
                return False
            self._taken += 1
            self._by_group.update(groups)
            return True

    def leave(self, *groups: str) -> None:
        with self._lock:
            self._taken -= 1
            self._by_group.subtract(groups)
            self._by_group += collections.Counter()  # drops groups without a slot


class BodyBudget(Generic[Key]):
    """Memory for incomplete bodies, which clients share fairly. Belongs to one thread.

    Beyond the limit, the client that uses most loses its largest body.
    """

    def __init__(self, limit: int = MAX_INCOMPLETE) -> None:
        self._limit = limit
        self._total = 0
        self._sizes: dict[str, dict[Key, int]] = {}

    @property
    def used(self) -> int:
        return self._total

    def set(self, client: str, key: Key, size: int) -> Key | None:
        """Record the size of an incomplete body. Return the one to give up, or None."""
        own = self._sizes.setdefault(client, {})
        self._total += size - own.get(key, 0)
        own[key] = size
        if self._total <= self._limit:
            return None
        greediest = max(self._sizes.values(), key=lambda sizes: sum(sizes.values()))
        return max(greediest, key=lambda item: greediest[item])

    def forget(self, client: str, key: Key) -> None:
        """Record that the body is complete, or given up."""
        own = self._sizes.get(client)
        if own is None:
            return
        self._total -= own.pop(key, 0)
        if not own:
            del self._sizes[client]
