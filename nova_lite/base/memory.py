"""How a daemon's memory is got from the system, and how often it is looked through for what nobody has any more."""

from __future__ import annotations

import contextlib
import ctypes
import gc

#: glibc's name of the option that bounds how many arenas there are, and how many of them there are then.
_M_ARENA_MAX = -8
ARENAS = 2

#: What a daemon's units set before it starts, as a running process cannot: no thread keeps what it has freed for
#: itself. By itself glibc has each thread keep up to seven blocks of each size, which no other uses and `trim_heap`
#: does not reach: with the hundred threads of a conductor ten MB and more, which fill for as long as it runs. Another
#: C library does not look at it.
ENVIRONMENT = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}

#: Seconds between two times that what is free is given back.
GIVE_BACK_INTERVAL = 30.0

#: Objects that are made before young ones are looked through; Python's own number of 700 is a tenth of what one message
#: needs. Most are gone without that; what is left over refers to itself, and takes two megabytes at most.
YOUNG = 20_000


def limit_malloc_arenas() -> None:
    """Have threads share a few of glibc's arenas. By itself it gives eight for each core, and what one thread has freed
    no other uses again: an API that has answered eight large lists at a time keeps five to ten MB more for it.

    Another C library has no such option, and is left as it is. To be called before threads are started.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, ARENAS)


def collect_rarely() -> None:
    """Look for garbage seldom. The first thing a daemon does: to load its modules is to make much, and to drop
    little."""
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])


def keep_what_is_loaded() -> None:
    """What is there now stays: it is looked through no more, nor written to, so that processes which are forked go on
    sharing it."""
    gc.freeze()


def trim_heap() -> None:
    """Look through everything that was not there from the first for garbage, and give back to the system what glibc has
    and nobody uses: after a few large answers that are megabytes, which stay with the daemon as long as anything behind
    them is in use.

    By itself Python looks through what is older only when there is much more of it: a conductor under load had three
    megabytes of what had been in use while young objects were looked through, and referred to itself later. A busy
    conductor has 40,000 to 60,000 objects to look through: as many small ones take 3 ms on a quiet machine; beside 28
    processes that all wanted its two cores it took 23 to 300 ms until it was done.
    """
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
