"""Marks networks that are being used, so that no idle network is removed while a guest or a router needs it."""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Iterator


class NetworkUses:
    """Uses and removals of networks by this daemon. A network is used by several, or removed by one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._used: collections.Counter[str] = collections.Counter()
        self._removed: set[str] = set()

    @contextlib.contextmanager
    def use(self, network_id: str) -> Iterator[None]:
        """Keep a network from its removal. Waits for a removal that has begun."""
        with self._changed:
            self._changed.wait_for(lambda: network_id not in self._removed)
            self._used[network_id] += 1
        try:
            yield
        finally:
            with self._changed:
                self._used[network_id] -= 1
                if not self._used[network_id]:
                    del self._used[network_id]

    @contextlib.contextmanager
    def remove(self, network_id: str) -> Iterator[bool]:
        """Yield whether a network may be removed now: no thread uses or removes it."""
        with self._changed:
            is_free = network_id not in self._used and network_id not in self._removed
            if is_free:
                self._removed.add(network_id)
        try:
            yield is_free
        finally:
            if is_free:
                with self._changed:
                    self._removed.discard(network_id)
                    self._changed.notify_all()
