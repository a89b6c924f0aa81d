"""Delays after wrong passwords: of a user from one client, of one client, and of a user from all clients.

A client is an IPv4 address, or an IPv6 network of 64 bits. Whoever has many of them can guess one user's password from
each. So wrong passwords of a user from all clients count as well. They delay only clients from which the user has not
logged in lately, and only by seconds: guesses of others do not lock the user out.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import cachetools

from nova_lite.base import exceptions, ip


class Limit(NamedTuple):
    """``free``: failures before the first delay. ``longest``: the longest delay in seconds."""

    free: int
    longest: float


OF_USER, OF_CLIENT = Limit(5, 60.0), Limit(50, 60.0)
#: Limit of a user from all clients, except those from which the user has logged in lately.
OF_STRANGERS = Limit(20, 10.0)
#: Seconds of the first delay. Each further failure doubles it, up to the longest one.
FIRST_DELAY = 1.0
#: Seconds after the last failure until failures are forgotten, and after the last log-in until a client is a stranger.
MEMORY, ACQUAINTANCE = 900.0, 14 * 86400.0
MAX_REMEMBERED = 10_000

#: Stands for all clients in a key.
_ALL = "*"

_Key = tuple[str, str]


class Failures(NamedTuple):
    """Number of failures, and the time of the last one."""

    number: int
    last: float


class PasswordThrottle:
    """Counts wrong passwords. Each worker process has its own counts. Memory is bounded."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: cachetools.TTLCache[_Key, Failures] = cachetools.TTLCache(MAX_REMEMBERED, MEMORY, timer=clock)
        self._known: cachetools.TTLCache[_Key, None] = cachetools.TTLCache(MAX_REMEMBERED, ACQUAINTANCE, timer=clock)

    def check(self, user: str, address: str) -> None:
        """Raise `TooManyFailures` during a delay."""
        with self._lock:
            left = max(self._seconds_left(key, limit) for key, limit in self._limits(user, address))
        if left > 0:
            raise exceptions.TooManyFailures(seconds=math.ceil(left))

    def failed(self, user: str, address: str) -> None:
        with self._lock:
            for key, _ in self._limits(user, address):
                before = self._failures.get(key)
                self._failures[key] = Failures(1 if before is None else before.number + 1, self._clock())

    def succeeded(self, user: str, address: str) -> None:
        """Forget the user's failures from this client, which the user has now logged in from. Keep all others."""
        client = ip.client_of(address)
        with self._lock:
            self._failures.pop((user, client), None)
            self._known[user, client] = None

    def _limits(self, user: str, address: str) -> list[tuple[_Key, Limit]]:
        client = ip.client_of(address)
        limits = [((user, client), OF_USER), (("", client), OF_CLIENT)]
        return limits if (user, client) in self._known else [*limits, ((user, _ALL), OF_STRANGERS)]

    def _seconds_left(self, key: _Key, limit: Limit) -> float:
        failures = self._failures.get(key)
        if failures is None or failures.number < limit.free:
            return 0.0
        delay = min(limit.longest, FIRST_DELAY * 2.0 ** min(failures.number - limit.free, 16))
        return failures.last + delay - self._clock()
