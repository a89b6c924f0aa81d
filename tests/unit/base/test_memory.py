"""Heap trimming and garbage collection."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from nova_lite.base import memory

BLOCK, COUNT = 65536, 1000

UNITS = Path(__file__).resolve().parents[3] / "etc" / "systemd"


def resident() -> int:
    """Return the resident memory of this process, in bytes."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Rss:")) * 1024


#: Program whose 40 threads make and free seven blocks of each size up to 1 KiB. Prints the bytes still in use then.
FREED_BY_THREADS = """
import ctypes, threading

class Info(ctypes.Structure):
    _fields_ = [(f"field{number}", ctypes.c_size_t) for number in range(7)] + [("used", ctypes.c_size_t)]
    _fields_ += [("free", ctypes.c_size_t), ("top", ctypes.c_size_t)]

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes, libc.mallinfo2.restype = ctypes.c_void_p, [ctypes.c_void_p], Info
all_freed, may_end = threading.Barrier(41), threading.Event()

def work():
    blocks = [libc.malloc(size) for size in range(528, 1024, 16) for _ in range(7)]
    for block in blocks:
        libc.free(block)
    all_freed.wait()
    may_end.wait()

before = libc.mallinfo2().used
threads = [threading.Thread(target=work) for _ in range(40)]
for thread in threads:
    thread.start()
all_freed.wait()
print(libc.mallinfo2().used - before)
may_end.set()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has malloc_trim")
@pytest.mark.parametrize(("environment", "kept"), [({}, True), (memory.ENVIRONMENT, False)])
def test_environment_turns_off_the_cache_of_freed_memory_per_thread(environment: dict[str, str], kept: bool) -> None:
    usual = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    command = [sys.executable, "-c", FREED_BY_THREADS]
    said = subprocess.run(command, env=usual | environment, capture_output=True, text=True, check=True, timeout=60)
    assert (int(said.stdout) > 2**20) is kept


@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda unit: unit.stem)
def test_systemd_unit_sets_the_environment_of_malloc(unit: Path) -> None:
    assert [f"Environment={name}={value}" for name, value in memory.ENVIRONMENT.items()] == [
        line for line in unit.read_text().splitlines() if line.startswith("Environment=")
    ]


def test_devstack_sets_the_environment_of_malloc() -> None:
    script = (UNITS.parents[1] / "devstack" / "lib" / "services.sh").read_text()
    assert all(f" {name}={value} " in script for name, value in memory.ENVIRONMENT.items())


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has malloc_trim")
def test_trim_heap_returns_free_memory_below_used_blocks() -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    blocks = [libc.malloc(BLOCK) for _ in range(COUNT)]
    for block in blocks:
        ctypes.memset(block, 1, BLOCK)
    for block in blocks[:-1]:
        libc.free(block)
    before = resident()
    memory.trim_heap()
    assert before - resident() > BLOCK * COUNT // 2
    libc.free(blocks[-1])


class Ring:
    """An object with a reference to itself."""

    def __init__(self) -> None:
        self.itself = self


def test_trim_heap_collects_old_garbage() -> None:
    ring = Ring()
    gone = weakref.ref(ring)
    gc.collect()  # moves it to the oldest generation
    del ring
    gc.collect(0)
    assert gone() is not None
    memory.trim_heap()
    assert gone() is None


def test_trim_heap_does_nothing_with_another_c_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    memory.trim_heap()


def test_heap_of_several_daemons_is_trimmed_once_in_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    trims: list[float] = []
    clock = iter((1000.0, 1000.0, 1000.1, 1030.0, 1030.1, 1060.0))
    monkeypatch.setattr(memory, "trim_heap", lambda: trims.append(1))
    monkeypatch.setattr(memory.time, "monotonic", lambda: next(clock))
    trimmer = memory.HeapTrimmer(interval=30)
    for _ in range(6):
        trimmer.trim()
    assert len(trims) == 3
