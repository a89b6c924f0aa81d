"""Memory of a daemon: malloc arenas, heap trimming, and how often Python collects garbage."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import threading
import time

#: glibc's number of the option M_ARENA_MAX, and our value of it.
_M_ARENA_MAX = -8
MAX_ARENAS = 2

#: Environment that the systemd units set, since a running process cannot change it. It turns off glibc's cache of
#: freed blocks per thread. Other threads cannot use that cache and `trim_heap` does not reach it: with the hundred
#: threads of a conductor it grows to more than 10 MB. Other C libraries ignore the variable.
ENVIRONMENT = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}

#: Seconds between two heap trims.
TRIM_INTERVAL = 30.0

#: New objects before Python collects the youngest generation. One message makes some 7,000 objects, ten times Python's
#: default. Most are freed without a collection; the reference cycles among the rest hold at most 2 MB.
YOUNG_THRESHOLD = 20_000


def limit_malloc_arenas() -> None:
    """Let all threads share a few malloc arenas. Must be called before threads start.

    By default glibc makes up to eight arenas per core, and memory that one thread frees is not reused by the others.
    Does nothing with another C library.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, MAX_ARENAS)


def reduce_garbage_collection() -> None:
    """Collect garbage rarely. A daemon calls this first, because loading modules makes many objects and frees few."""
    gc.set_threshold(YOUNG_THRESHOLD, *gc.get_threshold()[1:])


def freeze_loaded_objects() -> None:
    """Keep all current objects out of garbage collection, so that forked processes keep sharing their memory pages."""
    gc.freeze()


def trim_heap() -> None:
    """Collect all garbage and return free memory to the system.

    After large responses glibc keeps megabytes of free memory as long as anything behind them on the heap is in use.
    Python alone collects older generations only once they have grown much. A busy conductor has some 50,000 objects to
    search, which takes a few milliseconds on an idle machine.
    """
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class HeapTrimmer:
    """Trims the heap of a process once in ``interval`` seconds, however many daemons in it call this."""

    def __init__(self, interval: float = TRIM_INTERVAL) -> None:
        self._interval = interval
        self._lock = threading.Lock()
        self._next = 0.0

    def trim(self) -> None:
        """Trim the heap if that is due."""
        with self._lock:
            now = time.monotonic()
            if now < self._next:
                return
            # Timers are a little late or early: the first caller may come a little early the next time.
            self._next = now + self._interval * 0.9
        trim_heap()


#: Trims the heap of this process.
TRIMMER = HeapTrimmer()
