"""Daemons and tools forked from a process that has imported them already, which saves each a second of CPU.

They are processes as others are, children of the test's. What needs a start from nothing (another directory, mode or
interpreter) is started as a program instead (`tests.functional.cloud.Cloud.start`).
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from tests.support.waiting import polls

#: And what the daemons import when they have read their configuration. Daemons of fault tests import the last one.
IMPORTED = (
    *(f"nova_lite.cmd.{name}" for name in ("conductor", "scheduler", "compute", "api", "manage")),
    "nova_lite.virt.fake",
    "oslo_messaging._drivers.impl_rabbit",
    "sqlalchemy.dialects.sqlite",
    "MySQLdb",
    "tests.model.daemons",
)
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


class Daemon:
    """Subset of `subprocess.Popen` that tests use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        with self._lock:
            if self.returncode is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
            return self.returncode

    def wait(self, timeout: float) -> int:
        for _ in polls(timeout, 0.01):
            if (status := self.poll()) is not None:
                return status
        raise subprocess.TimeoutExpired(f"daemon {self.pid}", timeout)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Nursery:
    """The test's end of the process that forks, which ends with the test's."""

    def __init__(self) -> None:
        command = [sys.executable, "-W", "ignore", "-m", __name__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self._lock = threading.Lock()
        atexit.register(self.close)

    def start(self, request: dict[str, Any]) -> Daemon:
        assert self._process.stdin is not None and self._process.stdout is not None
        with self._lock:
            _adopt(True)  # the parent that a daemon has at first ends at once
            try:
                self._process.stdin.write(json.dumps(request | {"parent": os.getpid()}) + "\n")
                answer = self._process.stdout.readline()
            finally:
                _adopt(False)  # nor any other program's children that outlive it
        assert answer, f"the process that forks daemons has ended: {self._process.poll()}"
        return Daemon(int(answer))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


def _adopt(whether: bool) -> None:
    """Set whether this process adopts orphaned descendants."""
    _prctl(PR_SET_CHILD_SUBREAPER, int(whether))


def _end_with(parent: int) -> None:
    """Let the kernel end this process when ``parent`` ends. Waits until ``parent`` has adopted it, at most 10 s."""
    for _ in polls(10, 0.001):
        if os.getppid() == parent:
            break
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(f"the test process {parent} has ended or has not adopted this daemon")


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


_lock = threading.Lock()
_nursery: _Nursery | None = None


def _the_nursery() -> _Nursery:
    global _nursery
    with _lock:
        _nursery = _nursery or _Nursery()
        return _nursery


def start(arguments: list[str], log: Path, environment: dict[str, str]) -> Daemon:
    """Start ``python -m`` with these arguments, the first of which is a module with a ``main``. Its output goes to
    ``log``.
    """
    files = {"stdin": os.devnull, "stdout": str(log), "stderr": str(log)}
    return _the_nursery().start({"arguments": arguments, "environment": environment, **files})


def run(
    arguments: list[str], stdin: str, environment: dict[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a module to its end, as `start` and `subprocess.run` do."""
    with tempfile.TemporaryDirectory() as directory:
        files = {name: Path(directory, name) for name in ("stdin", "stdout", "stderr")}
        files["stdin"].write_text(stdin)
        process = _the_nursery().start(
            {"arguments": arguments, "environment": environment, **{name: str(path) for name, path in files.items()}}
        )
        try:
            status = process.wait(timeout)
        finally:
            process.kill()
        said = {name: files[name].read_text() for name in ("stdout", "stderr")}
    return subprocess.CompletedProcess(arguments, status, **said)


def main() -> int | str | None:
    """Fork a daemon for each line of standard input and answer its pid; returns, in the daemon, when that ends."""
    for module in IMPORTED:
        importlib.import_module(module)
    gc.freeze()
    for line in sys.stdin:
        reader, writer = os.pipe()
        between = os.fork()
        if between:
            os.waitpid(between, 0)  # from now on the daemon is the test's child
            os.write(1, os.read(reader, 32) + b"\n")
            os.close(reader)
            os.close(writer)
            continue
        daemon = os.fork()
        if daemon:
            os.write(writer, str(daemon).encode())
            os._exit(0)
        os.close(reader)
        os.close(writer)
        return _become(**json.loads(line))
    return 0


def _become(
    arguments: list[str], environment: dict[str, str], stdin: str, stdout: str, stderr: str, parent: int
) -> int | str | None:
    _end_with(parent)
    with open(stdin, "rb") as given, open(stdout, "ab") as said, open(stderr, "ab") as complained:
        for theirs, ours in ((given, 0), (said, 1), (complained, 2)):
            os.dup2(theirs.fileno(), ours)
    sys.stdin = os.fdopen(0, closefd=False)  # the old one may have read further requests
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", *sys.path)]
    from nova_lite.base import failpoints

    importlib.reload(failpoints)  # it reads the environment once
    module = importlib.import_module(arguments[0])
    sys.argv = [str(module.__file__), *arguments[1:]]
    status: int | str | None = module.main()
    return status


if __name__ == "__main__":
    sys.exit(main())
