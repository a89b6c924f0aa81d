"""The one module that knows about eventlet.

A daemon runs in one of two modes, ``eventlet`` (green threads) or ``threading`` (native ones). `setup` picks it before
anything else is imported, because eventlet has to replace the standard library's blocking calls first. All other
modules write ordinary threaded code and call this module where the modes differ.

The mode comes from the environment variable ``NOVA_LITE_CONCURRENCY``, else from the daemon's default (docs/adr/0002).
"""

from __future__ import annotations

import contextlib
import io
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
    else:
        from nova_lite.base import journal  # logging may not be imported before eventlet has replaced its locks

        sys.exit(journal.error(f"{ENVIRONMENT}={_mode!r}: must be {EVENTLET!r} or {THREADING!r}."))
    return _mode


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


class GreenWsgiServer:
    """A WSGI server of green threads on a listening socket, one thread per connection. Only for eventlet mode."""

    MAX_CONNECTIONS = 1000

    def __init__(self, sock: Any, app: Any, log: Any, idle: float, clients: Any, reader: Callable[..., Any]) -> None:
        """Take the limits of `nova_lite.api.http.deadlines`.

        ``clients`` counts the connections of each address. ``reader`` wraps a raw file and its socket.
        """
        self._clients = clients
        self._reader = reader
        self._arguments = {
            "log": log,
            "log_output": False,
            "debug": False,
            "capitalize_response_headers": False,
            "socket_timeout": idle,
            # The input ends where the body ends. Without this, applications do not read chunked bodies.
            "environ": {"wsgi.input_terminated": True},
        }
        self._sock = sock
        self._app = app
        self._thread: Any = None

    def start(self) -> None:
        import eventlet
        import eventlet.wsgi

        self._thread = eventlet.spawn(
            eventlet.wsgi.server,
            self._sock,
            self._app,
            custom_pool=eventlet.GreenPool(self.MAX_CONNECTIONS),
            protocol=_green_protocol(self._clients, self._reader),
            **self._arguments,
        )

    def stop(self, timeout: float) -> None:
        """Accept no more, close idle connections, and wait for running requests up to ``timeout`` seconds."""
        import eventlet
        from eventlet.support.greenlets import GreenletExit

        if self._thread is None:
            return
        self._thread.kill()
        with eventlet.Timeout(timeout, False), contextlib.suppress(GreenletExit):
            self._thread.wait()


def _green_protocol(clients: Any, reader: Callable[..., Any]) -> Any:
    """Return eventlet's handler of a connection, with our limits."""
    import eventlet.wsgi

    class Protocol(eventlet.wsgi.HttpProtocol):  # type: ignore[misc]
        def __init__(self, conn_state: Any, server: Any) -> None:
            address = conn_state[0][0]
            if not clients.enter(address):
                conn_state[1].close()
                return
            try:
                super().__init__(conn_state, server)
            finally:
                clients.leave(address)

        def setup(self) -> None:
            super().setup()
            self._timed = reader(self.rfile.detach(), self.connection)  # type: ignore[has-type]
            self.rfile = io.BufferedReader(self._timed)

        def handle_one_request(self) -> None:
            self._timed.next_request()
            super().handle_one_request()

    return Protocol
