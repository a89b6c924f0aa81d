"""Worker processes that serve the same sockets, and the parent that replaces workers that die."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from nova_lite.base import concurrency, memory
from nova_lite.base.stop_event import StopEvent
from nova_lite.base.timing import TIMING
from nova_lite.daemon import watchdog

LOG = logging.getLogger(__name__)

#: Seconds. The successor of a worker that lived shorter than this is delayed.
MIN_LIFETIME = 10.0
FIRST_DELAY = 0.5
MAX_DELAY = 30.0
POLL_INTERVAL = 0.1
#: A child that has been silent for too long is aborted, so that it writes its stacks, and killed soon after.
ABORT_TIME = 5.0


class RestartBackoff:
    """Delay before the next start. Doubles after each worker that died early, and is zero after any other."""

    def __init__(self) -> None:
        self._delay = 0.0

    def after(self, lived: float) -> float:
        """Return the delay in seconds after a worker that lived for ``lived`` seconds."""
        self._delay = 0.0 if lived >= MIN_LIFETIME else min(MAX_DELAY, self._delay * 2 or FIRST_DELAY)
        return self._delay


class Prefork:
    """Runs ``work`` in ``count`` child processes until SIGTERM or SIGINT, and replaces children that die.

    A child that does not report for ``max_silence`` seconds (`nova_lite.daemon.watchdog`) hangs, and is ended. So is a
    child that has computed for ``max_cpu`` seconds since its last report: a request keeps the GIL.

    ``work`` receives the child's number, which starts at 0; a successor gets the number of its predecessor. It returns
    the child's exit status. It must return on SIGTERM, and when its parent has died.
    ``timeout``: seconds between SIGTERM and SIGKILL for the children.
    """

    def __init__(
        self,
        binary: str,
        count: int,
        timeout: float,
        work: Callable[[int], int],
        max_silence: float = TIMING.health.max_loop_pause,
        max_cpu: float = TIMING.api.worker_cpu,
    ) -> None:
        self._binary = binary
        self._count = count
        self._timeout = timeout
        self._work = work
        self._max_silence = max_silence
        self._max_cpu = max_cpu
        #: Number and start time of each child, by its pid.
        self._children: dict[int, tuple[int, float]] = {}
        #: The pipe in which each child reports, and the times of its last report: the clock's, and its CPU time.
        self._reports: dict[int, tuple[int, float, float]] = {}
        #: Time at which each child was aborted.
        self._aborted: dict[int, float] = {}
        self._backoff = RestartBackoff()
        self._not_before = 0.0
        self._stopping = StopEvent()

    def run(self) -> int:
        """Run until a signal stops the parent. Return its exit status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stopping.set())
        memory.freeze_loaded_objects()
        self._start_missing()
        watchdog.notify_systemd("READY=1")
        while not self._stopping.wait(POLL_INTERVAL):
            watchdog.report_alive()
            self._reap()
            self._end_silent()
            self._start_missing()
        LOG.info("%s is stopping its %d workers", self._binary, len(self._children))
        watchdog.notify_systemd("STOPPING=1")
        self._end_children()
        return 0

    def _start_missing(self) -> None:
        while len(self._children) < self._count and time.monotonic() >= self._not_before:
            taken = {number for number, _ in self._children.values()}
            number = next(number for number in range(self._count) if number not in taken)
            reports, pipe = os.pipe()
            os.set_blocking(reports, False)
            pid = os.fork()
            if pid == 0:
                os.close(reports)
                self._run_child(number, pipe)
            os.close(pipe)
            self._children[pid] = number, time.monotonic()
            self._reports[pid] = reports, time.monotonic(), 0.0

    def _run_child(self, number: int, pipe: int) -> None:
        """Run ``work`` and exit. Never returns, so that the child does not unwind the parent's stack."""
        status = 1
        try:
            concurrency.after_fork()
            watchdog.report_to_parent(pipe)
            status = self._work(number)
        except BaseException:
            LOG.exception("%s: a worker failed", self._binary)
        finally:
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _reap(self) -> None:
        for pid, (_, started) in list(self._children.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended:
                continue
            del self._children[pid]
            os.close(self._reports.pop(pid)[0])
            self._aborted.pop(pid, None)
            delay = self._backoff.after(time.monotonic() - started)
            self._not_before = time.monotonic() + delay
            LOG.error(
                "%s: worker %d ended with %s; its successor starts in %.1f s",
                self._binary,
                pid,
                _exit_cause(status),
                delay,
            )

    def _end_silent(self) -> None:
        """Abort children that have not reported for too long. `_reap` then finds that they ended."""
        now = time.monotonic()
        for pid, (reports, last, used) in list(self._reports.items()):
            if _drain(reports):
                self._reports[pid] = reports, now, _cpu_time(pid)
                continue
            silence = now - last
            if pid in self._aborted:
                if now - self._aborted[pid] >= ABORT_TIME:
                    os.kill(pid, signal.SIGKILL)
            elif silence >= self._max_silence or (silence >= self._max_cpu and _cpu_time(pid) - used >= self._max_cpu):
                LOG.critical("%s: worker %d has not turned for %.0f s: it is ended", self._binary, pid, silence)
                self._aborted[pid] = now
                os.kill(pid, signal.SIGABRT)

    def _end_children(self) -> None:
        deadline = time.monotonic() + self._timeout
        self._signal(signal.SIGTERM)
        while self._children and time.monotonic() < deadline:
            for pid in list(self._children):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    del self._children[pid]
            time.sleep(POLL_INTERVAL)
        self._signal(signal.SIGKILL)
        for pid in self._children:
            os.waitpid(pid, 0)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._children:
            os.kill(pid, number)


def _drain(pipe: int) -> bool:
    """Read all that is in the pipe. Return False if it is empty. eventlet's os.read would wait until it is not."""
    try:
        return os.readv(pipe, [bytearray(65536)]) > 0
    except BlockingIOError:
        return False


def _cpu_time(pid: int) -> float:
    """Return the seconds of CPU time that a child has used, see proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _exit_cause(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"signal {-code}" if code < 0 else f"status {code}"
