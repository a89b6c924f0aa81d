"""Process that is ended, with its children, if it stands still.

Progress is that the process reads or writes bytes: of files, pipes or connections, as the kernel counts them in
``/proc/PID/io``. A transfer of any length continues while bytes move. A process stands still if it waits for a peer
that is dead, or for a file system that hangs. Time counts only while this process waits for the other one: for its
output, for room in its input, or for its end.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select as _select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Self

from nova_lite.base import concurrency, exceptions

LOG = logging.getLogger(__name__)

#: Most bytes of one system call.
_CHUNK = 1024**2
#: Looks at the progress within the time limit.
_LOOKS = 20
#: Seconds within which a process ends that was killed. It may hang in the kernel.
_KILL_SECONDS = 5.0


class Stall:
    """Time without progress. ``limit``: seconds after which it is too long."""

    def __init__(self, limit: float, moved: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._moved, self._since = moved, clock()

    def is_too_long(self, moved: int) -> bool:
        """Look at the number of bytes that were moved until now."""
        now = self._clock()
        if moved != self._moved:
            self._moved, self._since = moved, now
        return now - self._since >= self._limit


class WatchedProcess:
    """A process. Its methods raise `BackupRepositoryStalled` after they have ended it because it stands still.

    As a context it kills the process at its end, before it closes its input: otherwise the process would take the input
    for complete.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        limit: float,
        errors: IO[bytes],
        output: IO[bytes] | None = None,
        has_input: bool = False,
    ) -> None:
        """Start it in a process group of its own. ``output`` None: `read` returns it. Raises `OSError`."""
        self._limit = limit
        self._counted = 0
        self._process = subprocess.Popen(
            command,
            bufsize=0,
            env=environment,
            stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE if output is None else output,
            stderr=errors,
            start_new_session=True,
        )
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()
        self.close_input()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def write(self, data: bytes) -> None:
        """Write all of the data. Raises `BrokenPipeError` if the process has ended."""
        assert self._process.stdin is not None
        number, rest = self._process.stdin.fileno(), memoryview(data)
        while rest:
            self._wait_for(number, _select.POLLOUT)
            with contextlib.suppress(BlockingIOError):
                rest = rest[os.write(number, rest[:_CHUNK]) :]

    def close_input(self) -> None:
        """Close the input: it is complete."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def read(self, size: int) -> bytes:
        """Return output. It is shorter than ``size`` only at its end."""
        assert self._process.stdout is not None
        number, found = self._process.stdout.fileno(), bytearray()
        while len(found) < size:
            self._wait_for(number, _select.POLLIN)
            chunk = os.read(number, min(size - len(found), _CHUNK))
            if not chunk:
                break
            found += chunk
        return bytes(found)

    def read_all(self) -> bytes:
        """Return the output until its end."""
        return b"".join(iter(lambda: self.read(_CHUNK), b""))

    def wait(self) -> int:
        """Wait for the end, and return the status."""
        self._until(self.has_ended)
        return int(self._process.returncode)

    def has_ended(self, seconds: float) -> bool:
        """Return whether the process ends within this time."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _wait_for(self, number: int, event: int) -> None:
        poll = concurrency.native("select").poll()
        poll.register(number, event)
        self._until(lambda seconds: bool(poll.poll(seconds * 1000)))

    def _until(self, is_ready: Callable[[float], bool]) -> None:
        if is_ready(0):
            return
        stall = Stall(self._limit, self.moved())
        while not is_ready(self._limit / _LOOKS):
            if stall.is_too_long(self.moved()):
                self._kill()
                raise exceptions.BackupRepositoryStalled(reason=f"it moved no data for {self._limit:g} seconds")

    def moved(self) -> int:
        """Return the number of bytes that the process has read and written until now, or the last one known if it ends.

        Only root may read the counters of a process that has ended, or is about to.
        """
        try:
            with open(f"/proc/{self._process.pid}/io", encoding="ascii") as file:
                counters = dict(line.split(":") for line in file)
        except OSError as error:
            LOG.debug("Process %d has no counters any more: %s", self._process.pid, error)
        else:
            self._counted = int(counters["rchar"]) + int(counters["wchar"])
        return self._counted

    def _kill(self) -> None:
        """Kill the process and its children, unless it has ended. No other has its number until it was waited for."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            if not self.has_ended(_KILL_SECONDS):
                LOG.warning("Process %d was killed, but hangs in the kernel", self._process.pid)
