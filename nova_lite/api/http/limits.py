"""Limits of clients, who need not be authenticated: times, connections, and memory for incomplete bodies."""

from __future__ import annotations

import collections
import math
import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

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


class Slots:
    """Slots for connections or uploads: ``each`` for a client or a project, and ``total`` in all.

    ``warn`` logs that a group has reached its limit, at most once in `LOG_INTERVAL`.
    """

    def __init__(self, each: int, total: float = math.inf, warn: Callable[..., None] | None = None) -> None:
        self._each = each
        self._total = total
        self._warn = warn
        self._lock = threading.Lock()
        self._taken = 0
        self._by_group: collections.Counter[str] = collections.Counter()
        self._next_warning = 0.0

    def enter(self, *groups: str) -> bool:
        """Take a slot for a member of these groups. Return False, and take nothing, if there is none for it."""
        with self._lock:
            full = [group for group in groups if self._by_group[group] >= self._each]
            if not full and self._taken < self._total:
                self._taken += 1
                self._by_group.update(groups)
                return True
        if full and self._warn is not None and time.monotonic() >= self._next_warning:
            self._next_warning = time.monotonic() + LOG_INTERVAL
            self._warn("%s has %d connections, which is the maximum; a new one is closed", full[0], self._each)
        return False

    def leave(self, *groups: str) -> None:
        with self._lock:
            self._taken -= 1
            self._by_group.subtract(groups)
            for group in groups:
                if not self._by_group[group]:
                    del self._by_group[group]


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
