"""Workers of an API: a worker that dies or hangs is replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from nova_lite.api.http.prefork import FIRST_DELAY, MAX_DELAY, MIN_LIFETIME, RestartBackoff
from nova_lite.base import concurrency
from tests.support.waiting import wait_for

DEADLINE = 60.0

#: Two workers that report until they are ended. After SIGUSR1 a worker hangs: it lives, and does not report.
SCRIPT = """
import faulthandler, os, signal, sys, time
from nova_lite.api.http.prefork import Prefork
from nova_lite.daemon import watchdog

faulthandler.enable()

def work(number):
    hangs = []
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGUSR1, lambda *_: hangs.append(1))
    os.write(1, b"%d %d\\n" % (number, os.getpid()))
    while True:
        if not hangs:
            watchdog.report_alive()
        time.sleep(0.05)

sys.exit(Prefork("test", 2, 5, work, max_silence=1.0).run())
"""


def test_restart_delay_grows_after_short_lives() -> None:
    backoff = RestartBackoff()
    waits = [backoff.after(0.1) for _ in range(10)]
    assert waits[:3] == [FIRST_DELAY, 2 * FIRST_DELAY, 4 * FIRST_DELAY]
    assert waits[-1] == MAX_DELAY
    assert backoff.after(MIN_LIFETIME) == 0
    assert backoff.after(0.1) == FIRST_DELAY


class Parent:
    def __init__(self) -> None:
        command = [sys.executable, "-c", SCRIPT]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def worker(self) -> tuple[int, int]:
        """Return number and pid of the next worker that starts."""
        assert self.process.stdout is not None
        number, pid = self.process.stdout.readline().split()
        return int(number), int(pid)

    def stop(self) -> str:
        self.process.send_signal(signal.SIGTERM)
        return self.process.communicate(timeout=DEADLINE)[1]


@pytest.fixture
def parent() -> Iterator[Parent]:
    made = Parent()
    yield made
    if made.process.poll() is None:
        made.process.kill()
        made.process.communicate()


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize(
    ("signals", "stacks"), [([signal.SIGUSR1], True), ([signal.SIGSTOP], False)], ids=["hangs", "stopped"]
)
def test_worker_that_does_not_report_is_replaced(parent: Parent, signals: list[signal.Signals], stacks: bool) -> None:
    workers = dict(parent.worker() for _ in range(2))
    for number in signals:
        os.kill(workers[0], number)
    assert parent.worker()[0] == 0
    wait_for("the end of the worker", lambda: is_gone(workers[0]), DEADLINE)
    assert not os.kill(workers[1], 0)
    assert ("Fatal Python error: Aborted" in parent.stop()) is stacks


@pytest.mark.parametrize("mode", [concurrency.THREADING, concurrency.EVENTLET])
def test_parent_does_not_wait_for_reports_of_a_silent_worker(mode: str) -> None:
    script = """
import os
from nova_lite.base import concurrency
concurrency.setup()
from nova_lite.api.http import prefork
reader, writer = os.pipe()
os.set_blocking(reader, False)
assert not prefork._drain(reader)
os.writev(writer, [b"."])
assert prefork._drain(reader)
assert not prefork._drain(reader)
os.close(writer)
assert not prefork._drain(reader)
"""
    environment = {**os.environ, concurrency.ENVIRONMENT: mode}
    command = [sys.executable, "-W", "ignore", "-c", script]
    assert subprocess.run(command, env=environment, check=False, timeout=120).returncode == 0
