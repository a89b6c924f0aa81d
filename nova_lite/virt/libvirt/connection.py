"""The connection to libvirtd: one per driver, opened again when it broke, with its errors turned into ours."""

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

LOG = logging.getLogger(__name__)

#: A daemon that has not answered for 5 * 6 seconds is gone: calls that wait for it then end with an error.
KEEPALIVE_SECONDS = 5
KEEPALIVE_COUNT = 6

#: How often a guest's filters are tried, and what libvirt says when they fail.
FILTER_TRIES = 5
_FILTERS_FAILED = "Failed to apply firewall rules"

_BROKEN_CODES = (libvirt.VIR_ERR_NO_CONNECT, libvirt.VIR_ERR_INVALID_CONN, libvirt.VIR_ERR_RPC)
_BROKEN_ORIGINS = (libvirt.VIR_FROM_REMOTE, libvirt.VIR_FROM_RPC)
_BROKEN_ORIGIN_CODES = (libvirt.VIR_ERR_SYSTEM_ERROR, libvirt.VIR_ERR_INTERNAL_ERROR)


class LibvirtFailure(exceptions.VirtDriverError):
    """A call that libvirt refused or failed. ``error_code``: one of libvirt's VIR_ERR numbers."""

    def __init__(self, error: libvirt.libvirtError) -> None:
        super().__init__(reason=one_line(error))
        self.error_code: int = error.get_error_code()


def one_line(error: libvirt.libvirtError) -> str:
    return " ".join((error.get_error_message() or str(error)).split())


def is_broken(error: libvirt.libvirtError) -> bool:
    """Whether the error says that libvirtd is away, rather than that it refused something."""
    code = error.get_error_code()
    return code in _BROKEN_CODES or (error.get_error_domain() in _BROKEN_ORIGINS and code in _BROKEN_ORIGIN_CODES)


class Connection:
    """``on_open`` is called with each new `virConnect`, in whichever thread opened it."""

    def __init__(self, uri: str, host: str, on_open: Callable[[Any], None] | None = None) -> None:
        self._uri = uri
        self._host = host
        self._on_open = on_open
        self._lock = threading.Lock()
        self._connection: Any = None

    def get(self) -> Any:
        """A live `virConnect`; raises `HypervisorUnavailable`."""
        with self._lock:
            if self._connection is None or not self._connection.isAlive():
                self._connection = None
                self._connection = self._open()
            return self._connection

    def _open(self) -> Any:
        start_event_loop()
        try:
            connection = concurrency.call_blocking(libvirt.open, self._uri)
            _keep_alive(connection)
            if self._on_open is not None:
                self._on_open(connection)
        except libvirt.libvirtError as error:
            raise exceptions.HypervisorUnavailable(host=self._host, reason=one_line(error)) from error
        LOG.info("Connected to libvirt at %s", self._uri)
        return connection

    def call(self, method: Callable[..., Any], *args: Any) -> Any:
        """``method(*args)`` of a libvirt object; raises `LibvirtFailure` or `HypervisorUnavailable`."""
        try:
            with metrics.timed(metrics.HYPERVISOR.labels(getattr(method, "__name__", "other"))):
                return concurrency.call_blocking(method, *args)
        except libvirt.libvirtError as error:
            if is_broken(error):
                raise exceptions.HypervisorUnavailable(host=self._host, reason=one_line(error)) from error
            raise LibvirtFailure(error) from error

    def connect_call(self, name: str, *args: Any) -> Any:
        """Method ``name`` of the connection itself."""
        return self.call(getattr(self.get(), name), *args)

    def call_filtering(self, method: Callable[..., Any], *args: Any) -> Any:
        """`call` of what has libvirt write a guest's filters. Its ebtables work on nftables, and lose their way when
        somebody else (this daemon, for security groups) changes a table at that moment: then it is tried again."""
        for left in reversed(range(FILTER_TRIES)):
            try:
                return self.call(method, *args)
            except LibvirtFailure as error:
                if _FILTERS_FAILED not in error.message or not left:
                    raise
                LOG.info("Once more, as another change of the firewall came between: %s", error.message)
                time.sleep(random.uniform(0.1, 1.0))
        raise AssertionError("unreachable")

    def call_unless(self, codes: tuple[int, ...], method: Callable[..., Any], *args: Any) -> Any:
        """`call`, but None when libvirt fails with one of ``codes``: what was to be reached is already so."""
        try:
            return self.call(method, *args)
        except LibvirtFailure as error:
            if error.error_code not in codes:
                raise
            LOG.debug("libvirt: %s", error.message)
            return None


def _keep_alive(connection: Any) -> None:
    """A connection with no daemon behind it has no use for that, and says so."""
    try:
        connection.setKeepAlive(KEEPALIVE_SECONDS, KEEPALIVE_COUNT)
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_SUPPORT:
            raise


@functools.cache
def start_event_loop() -> None:
    """libvirt's event loop, once per process and before the first connection: it carries keepalives and events."""
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    libvirt.virEventRegisterDefaultImpl()
    concurrency.native_thread(_run_event_loop, "libvirt-events")


def _run_event_loop() -> None:
    while True:
        libvirt.virEventRunDefaultImpl()
