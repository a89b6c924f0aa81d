"""Differences of eventlet's threads from Python's that are mended."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from nova_lite.base import concurrency

JOIN = """
from nova_lite.base import concurrency
concurrency.setup()
import threading
never = threading.Event()
thread = threading.Thread(target=never.wait, daemon=True)
thread.start()
for seconds in (0, 0.01):
    thread.join(seconds)
assert thread.is_alive()
never.set()
thread.join(60)
assert not thread.is_alive()
"""

#: Handles of threads, by which Python 3.13 joins.
HANDLE = """
from nova_lite.base import concurrency
concurrency.setup()
import eventlet
from eventlet.green import thread
handle = thread._ThreadHandle(eventlet.spawn(eventlet.sleep, 0.05))
handle.join(0.01)
assert not handle.is_done()
handle.join()
assert handle.is_done()
"""


@pytest.mark.parametrize(
    ("mode", "script"),
    [(concurrency.THREADING, JOIN), (concurrency.EVENTLET, JOIN), (concurrency.EVENTLET, HANDLE)],
    ids=["threads", "green threads", "handles of green threads"],
)
def test_join_with_a_time_limit_returns_when_it_has_passed(mode: str, script: str) -> None:
    environment = {**os.environ, concurrency.ENVIRONMENT: mode}
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], env=environment, check=True, timeout=120)
