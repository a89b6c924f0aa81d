"""The one module that knows about eventlet.

A daemon runs in one of two modes, ``eventlet`` (green threads) or ``threading`` (native ones). `setup` picks it before
anything else is imported, because eventlet has to replace the standard library's blocking calls first. All other
modules write ordinary threaded code and call this module where the modes differ.

The mode comes from the environment variable ``NOVA_LITE_CONCURRENCY``, else from the daemon's default (docs/adr/0002).
"""

from __future__ import annotations

import collections
import importlib
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from nova_lite.base import memory

T = TypeVar("T")

EVENTLET = "eventlet"
THREADING = "threading"
ENVIRONMENT = "NOVA_LITE_CONCURRENCY"

#: GIL switch interval, in seconds, of a daemon with many threads that each do little between two SQL statements. With
#: Python's default of 0.005 the threads interrupt each other, and each statement waits for the GIL once more.
SWITCH_INTERVAL = 0.02

_mode = THREADING


def setup(default: str = THREADING, switch_interval: float | None = None) -> str:
    """Choose the mode of this process. Every ``cmd`` module calls it first.

    ``switch_interval``: the GIL switch interval in seconds; None keeps Python's default. Exits with one line if the
    environment names an unknown mode.
    """
    global _mode
    if switch_interval is not None:
        sys.setswitchinterval(switch_interval)
    memory.reduce_garbage_collection()
    _mode = os.environ.get(ENVIRONMENT) or default
    # An operator cannot act on this warning. docs/adr/0002 says why eventlet is still supported, and until when.
    warnings.filterwarnings("ignore", message=r"\s*Eventlet is deprecated")
    if _mode == THREADING:
        # Libraries that can use eventlet would import it, which takes a quarter of a second and 20 MB.
        sys.modules.setdefault("eventlet", None)  # type: ignore[arg-type]  # makes its import fail
        # oslo.messaging imports oslo.service, whose default backend is eventlet.
        from oslo_service import backend

        backend.init_backend(backend.BackendType.THREADING)
    elif _mode == EVENTLET:
        # No DNS over green sockets: few names are resolved, and the system's resolver reads /etc/hosts.
        os.environ.setdefault("EVENTLET_NO_GREENDNS", "yes")
        import eventlet

        eventlet.monkey_patch()
        _mend_join()
    else:
        from nova_lite.base import journal  # logging may not be imported before eventlet has replaced its locks

        sys.exit(journal.error(f"{ENVIRONMENT}={_mode!r}: must be {EVENTLET!r} or {THREADING!r}."))
    return _mode


def _mend_join() -> None:
    """Let `threading.Thread.join` return at its time limit. On Python 3.13, eventlet 0.41 raises its own timeout."""
    import eventlet
    from eventlet.green import thread

    wait = thread._ThreadHandle.join

    def join(handle: Any, timeout: float | None = None) -> None:
        with eventlet.Timeout(timeout, False):
            wait(handle)

    thread._ThreadHandle.join = join


def mode() -> str:
    return _mode


def is_eventlet() -> bool:
    return _mode == EVENTLET


def rpc_executor() -> str:
    """Name of oslo.messaging's executor for this mode."""
    return _mode


def after_fork() -> None:
    """Replace the event loop that a forked child has inherited. Two processes that share one would both stall."""
    if is_eventlet():
        import eventlet.hubs

        eventlet.hubs.use_hub()


def call_blocking(func: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call C code that blocks (libvirt) without stopping the other green threads of this process."""
    if is_eventlet():
        from eventlet import tpool

        result: T = tpool.execute(func, *args, **kwargs)
        return result
    return func(*args, **kwargs)


def native_thread(func: Callable[[], None], name: str) -> None:
    """Run ``func`` in a native daemon thread in either mode, for example an event loop of C code."""
    if is_eventlet():
        from eventlet import patcher

        threading = patcher.original("threading")
    else:
        import threading
    threading.Thread(target=func, name=name, daemon=True).start()


def native(name: str) -> Any:
    """Return a module of the standard library whose calls are those of native threads, in either mode."""
    if is_eventlet():
        from eventlet import patcher

        return patcher.original(name)
    return importlib.import_module(name)


class GreenExecutor:
    """Carries out jobs of native threads in green threads. Only for eventlet mode.

    A job has the method ``run``. ``log``: logger of `log`, since the locks of loggers are green.
    """

    MAX_THREADS = 1000

    def __init__(self, log: Any) -> None:
        self._log = log
        self._calls: collections.deque[Callable[[], None]] = collections.deque()
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._pool: Any = None
        self._reader: Any = None

    def start(self) -> None:
        import eventlet

        self._pool = eventlet.GreenPool(self.MAX_THREADS)
        self._reader = eventlet.spawn(self._read)

    def put(self, job: Any) -> None:
        self._calls.append(job.run)
        os.eventfd_write(self._wakeup, 1)

    def log(self, level: int, text: str, *args: object) -> None:
        self._calls.append(lambda: self._log.log(level, text, *args))
        os.eventfd_write(self._wakeup, 1)

    def check(self) -> None:
        """Do nothing: a green thread that computes keeps the main loop from turning, and the process is replaced."""

    def stop(self, timeout: float) -> None:
        import eventlet

        if self._reader is None:
            return
        with eventlet.Timeout(timeout, False):
            self._pool.waitall()
        self._reader.kill()

    def _read(self) -> None:
        from eventlet import hubs

        while True:
            hubs.trampoline(self._wakeup, read=True)
            os.eventfd_read(self._wakeup)
            while self._calls:
                self._pool.spawn_n(self._run, self._calls.popleft())

    def _run(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            self._log.exception("HTTP server: a request failed in an unexpected way")
