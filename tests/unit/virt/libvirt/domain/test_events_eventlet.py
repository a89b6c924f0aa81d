"""The tests of libvirt's events with green threads: libvirt calls back in a native one."""

from __future__ import annotations

from pathlib import Path

from tests.support import green_threads


def test_events_with_green_threads_pass_their_tests() -> None:
    green_threads.run(Path(__file__).parent / "test_events.py")
