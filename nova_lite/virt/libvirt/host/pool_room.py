"""Size of the pool of Ceph that has the guests' disks."""

from __future__ import annotations

import logging
import threading
import time

from nova_lite.base import exceptions
from nova_lite.virt.rbd_pool import RbdPool

LOG = logging.getLogger(__name__)

#: Seconds for which an answer is used.
LIFETIME = 60.0
#: Seconds that a report of the host waits for an answer. Without one, the last known one counts.
WAIT = 5.0


class PoolRoom:
    """Bytes that a pool can have, and that are free there. Until Ceph has answered, there are none."""

    def __init__(self, pool: RbdPool) -> None:
        self._pool = pool
        self._room = (0, 0)
        self._asked_at = 0.0
        self._thread: threading.Thread | None = None

    def get(self) -> tuple[int, int]:
        now = time.monotonic()
        if (self._thread is None or now - self._asked_at >= LIFETIME) and not self._is_asking():
            self._asked_at = now
            self._thread = threading.Thread(target=self._ask, name="rbd-room", daemon=True)
            self._thread.start()
            self._thread.join(WAIT)
        return self._room

    def _is_asking(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _ask(self) -> None:
        try:
            self._room = self._pool.room()
        except exceptions.VirtDriverError as error:
            LOG.warning("The room in pool %s is unknown now: %s", self._pool.name, error.kwargs["reason"])
