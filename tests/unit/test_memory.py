"""What a daemon has of memory and does not use."""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path

import pytest

from nova_lite import memory

BLOCK, COUNT = 65536, 1000


def resident() -> int:
    """Bytes."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Rss:")) * 1024


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has no word for it")
def test_what_is_free_below_something_in_use_is_given_back() -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    blocks = [libc.malloc(BLOCK) for _ in range(COUNT)]
    for block in blocks:
        ctypes.memset(block, 1, BLOCK)
    for block in blocks[:-1]:
        libc.free(block)
    before = resident()
    memory.give_back()
    assert before - resident() > BLOCK * COUNT // 2
    libc.free(blocks[-1])


def test_a_c_library_without_it_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    memory.give_back()
