"""Memory that many threads have freed is reused, and not kept by each of them."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys

import pytest

from nova_lite.base import memory

SCRIPT = """
import ctypes, threading
from nova_lite.base import memory
if {share}:
    memory.limit_malloc_arenas()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
together = threading.Barrier(12)

def allocate():
    together.wait(60)
    for _ in range(50):
        libc.malloc(2000)
    together.wait(60)

threads = [threading.Thread(target=allocate) for _ in range(12)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.malloc_stats()
"""


def arenas(share: bool) -> int:
    """Return the number of arenas that glibc reports."""
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT.format(share=share)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return len(re.findall(r"^Arena \d+:", told, re.MULTILINE))


def test_threads_share_a_few_arenas() -> None:
    if not hasattr(ctypes.CDLL(None), "malloc_stats"):
        pytest.skip("this is no glibc")
    assert arenas(share=True) <= 2 < arenas(share=False)


def told(script: str) -> list[str]:
    command = [sys.executable, "-W", "ignore", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_every_daemon_looks_for_garbage_seldom() -> None:
    """The daemons set it before they load anything. The scheduler's own setting replaces it."""
    script = """
import gc
from nova_lite.cmd import scheduler
young = gc.get_threshold()[0]
scheduler.disable_automatic_full_collections()
print(young, *gc.get_threshold())
"""
    young, *then = map(int, told(script))
    assert (young, then) == (memory.YOUNG_THRESHOLD, [memory.YOUNG_THRESHOLD, 10, 2**31 - 1])


def test_loaded_modules_are_not_collected() -> None:
    script = """
import gc
from nova_lite.base import memory
class Kept: pass
kept = Kept()
memory.freeze_loaded_objects()
print(gc.get_freeze_count() > 1000, any(each is kept for each in gc.get_objects()))
"""
    assert told(script) == ["True", "False"]
