"""The connection to libvirtd: one per driver, reopened when it breaks. Its errors become ours."""

from __future__ import annotations

import functools
import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import libvirt

from nova_lite.base import concurrency, exceptions, metrics
from nova_lite.base.timing import TIMING, LibvirtTiming

LOG = logging.getLogger(__name__)

#: Number of attempts to set a guest's filters, and libvirt's texts when that fails.
FILTER_TRIES = 5
_FILTERS_FAILED = "Failed to apply firewall rules"

_BROKEN_CODES = (libvirt.VIR_ERR_NO_CONNECT, libvirt.VIR_ERR_INVALID_CONN, libvirt.VIR_ERR_RPC)
_BROKEN_ORIGINS = (libvirt.VIR_FROM_REMOTE, libvirt.VIR_FROM_RPC)
_BROKEN_ORIGIN_CODES = (libvirt.VIR_ERR_SYSTEM_ERROR, libvirt.VIR_ERR_INTERNAL_ERROR)


class LibvirtFailure(exceptions.VirtDriverError):
    """Failure of a libvirt call. ``error_code``: one of libvirt's VIR_ERR numbers."""

    def __init__(self, error: libvirt.libvirtError) -> None:
        super().__init__(reason=one_line(error))
        self.error_code: int = error.get_error_code()


def one_line(error: libvirt.libvirtError) -> str:
    return " ".join((error.get_error_message() or str(error)).split())


def is_broken(error: libvirt.libvirtError) -> bool:
    """Check whether the error means that libvirtd is unavailable, and not that it rejects a call."""
    code = error.get_error_code()
    return code in _BROKEN_CODES or (error.get_error_domain() in _BROKEN_ORIGINS and code in _BROKEN_ORIGIN_CODES)


class Connection:
    """A connection. ``on_open`` is called with each new `virConnect`, in the thread that opened it."""

    def __init__(
        self,
        uri: str,
        host: str,
        on_open: Callable[[Any], None] | None = None,
        timing: LibvirtTiming = TIMING.libvirt,
    ) -> None:
        self._uri = uri
        self._host = host
        self._on_open = on_open
        self._timing = timing
        self._lock = threading.Lock()
        self._connection: Any = None

    def get(self) -> Any:
        """Return a live `virConnect`. Raises `HypervisorUnavailable`."""
        with self._lock:
            if self._connection is None or not self._connection.isAlive():
                self._connection = None
                self._connection = self._open()
            return self._connection

    def _open(self) -> Any:
        start_event_loop()
        try:
            connection = concurrency.call_blocking(libvirt.open, self._uri)
            _keep_alive(connection, self._timing)
            if self._on_open is not None:
                self._on_open(connection)
        except libvirt.libvirtError as error:
            raise exceptions.HypervisorUnavailable(host=self._host, reason=one_line(error)) from error
        LOG.info("Connected to libvirt at %s", self._uri)
        return connection

    def call(self, method: Callable[..., Any], *args: Any) -> Any:
        """Call ``method(*args)`` of a libvirt object. Raises `LibvirtFailure` or `HypervisorUnavailable`."""
        try:
            with metrics.timed(metrics.HYPERVISOR.labels(getattr(method, "__name__", "other"))):
                return concurrency.call_blocking(method, *args)
        except libvirt.libvirtError as error:
            if is_broken(error):
                raise exceptions.HypervisorUnavailable(host=self._host, reason=one_line(error)) from error
            raise LibvirtFailure(error) from error

    def connect_call(self, name: str, *args: Any) -> Any:
        """Call the method ``name`` of the connection itself."""
        return self.call(getattr(self.get(), name), *args)

    def call_filtering(self, method: Callable[..., Any], *args: Any) -> Any:
        """Call a method that makes libvirt write a guest's filters, and repeat it after a conflict.

        libvirt's ebtables use nftables, and fail if another process (such as this daemon) changes a table at the same
        moment.
        """
        for left in reversed(range(FILTER_TRIES)):
            try:
                return self.call(method, *args)
            except LibvirtFailure as error:
                if _FILTERS_FAILED not in error.message or not left:
                    raise
                LOG.info("Repeating a change of the firewall after a conflict: %s", error.message)
                time.sleep(random.uniform(0.1, 1.0))
        raise AssertionError("unreachable")

    def call_unless(self, codes: tuple[int, ...], method: Callable[..., Any], *args: Any) -> Any:
        """Call a method. Return None if libvirt fails with one of ``codes``, which mean that there is nothing to do."""
        try:
            return self.call(method, *args)
        except LibvirtFailure as error:
            if error.error_code not in codes:
                raise
            LOG.debug("libvirt: %s", error.message)
            return None


def _keep_alive(connection: Any, timing: LibvirtTiming) -> None:
    """Enable keepalives. A connection without a daemon does not support them."""
    try:
        connection.setKeepAlive(timing.keepalive_interval, timing.keepalive_count)
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_SUPPORT:
            raise


@functools.cache
def start_event_loop() -> None:
    """Start libvirt's event loop, once per process and before the first connection.

    It carries keepalives and events.
    """
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    libvirt.virEventRegisterDefaultImpl()
    concurrency.native_thread(_run_event_loop, "libvirt-events")


def _run_event_loop() -> None:
    while True:
        libvirt.virEventRunDefaultImpl()
