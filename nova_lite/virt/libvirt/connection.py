"""Connections to libvirtd, reopened when they break. Its errors become ours.

libvirtd reads no more from a connection on which `max_client_requests` calls (5, unless its operator changes that) are
in progress. Then it does not answer keepalives either, and the connection is closed as dead. So each connection carries
fewer calls than that, and calls of different duration have separate ones (`Channel`). A call that breaks may have been
executed nevertheless. Then it is repeated if that is harmless, or else after a look at the actual state.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import libvirt

from nova_lite.base import concurrency, exceptions, metrics
from nova_lite.base.timing import TIMING, LibvirtTiming

LOG = logging.getLogger(__name__)

#: Maximum number of calls in progress on one connection: less than libvirtd's default of `max_client_requests`.
CALLS_PER_CONNECTION = 4

#: Maximum number of connections of each channel. All their calls together are fewer than libvirtd's default of
#: `max_workers` (20), of which each call occupies one.
QUERY_CONNECTIONS, CHANGE_CONNECTIONS, TRANSFER_CONNECTIONS = 1, 2, 1

#: Number of attempts to set a guest's filters, and libvirt's texts when that fails.
FILTER_TRIES = 5
_FILTERS_FAILED = "Failed to apply firewall rules"

#: Methods that libvirtd executes without qemu and without the guest.
QUERIES = frozenset(
    (
        "getCPUStats", "getInfo", "getLibVersion", "getType", "getVersion", "listAllDevices", "listAllDomains",
        "listAllNetworks", "lookupByUUIDString", "networkLookupByName", "nwfilterLookupByName", "XMLDesc", "bridgeName",
        "hasManagedSaveImage", "isActive", "isPersistent", "metadata", "state",
    )
)  # fmt: skip
#: Methods that may take as long as a guest's memory is big.
TRANSFERS = frozenset(("managedSave", "migrateToURI3", "restoreFlags", "saveFlags"))
#: Other methods whose repetition has no further effect, or an error that every caller expects.
REPEATABLE = QUERIES | {
    "baselineHypervisorCPU", "blockInfo", "blockJobInfo", "domainListGetStats", "getCapabilities",
    "getAllDomainStats", "getDomainCapabilities", "jobStats", "managedSaveGetXMLDesc", "defineXMLFlags",
    "managedSaveDefineXML", "networkDefineXML", "nwfilterDefineXML", "create", "setAutostart", "listAllSecrets",
    "secretDefineXML", "secretLookupByUUIDString", "setValue", "abortJob", "blockResize", "destroyFlags", "fsThaw",
    "migrateSetMaxDowntime", "setUserPassword", "shutdownFlags", "suspend", "undefineFlags", "updateDeviceFlags",
}  # fmt: skip

#: Methods that find an object of libvirt again on another connection, by its class.
_LOOKUPS: dict[type, str] = {
    libvirt.virDomain: "lookupByUUIDString",
    libvirt.virNetwork: "networkLookupByUUIDString",
    libvirt.virNWFilter: "nwfilterLookupByUUIDString",
    libvirt.virSecret: "secretLookupByUUIDString",
}

#: Code of `LibvirtBusy`.
BUSY = (libvirt.VIR_ERR_OPERATION_TIMEOUT,)

_BROKEN_CODES = (libvirt.VIR_ERR_NO_CONNECT, libvirt.VIR_ERR_INVALID_CONN, libvirt.VIR_ERR_RPC)
_BROKEN_ORIGINS = (libvirt.VIR_FROM_REMOTE, libvirt.VIR_FROM_RPC)
_BROKEN_ORIGIN_CODES = (libvirt.VIR_ERR_SYSTEM_ERROR, libvirt.VIR_ERR_INTERNAL_ERROR)


class LibvirtFailure(exceptions.VirtDriverError):
    """Failure of a libvirt call. ``error_code``: one of libvirt's VIR_ERR numbers."""

    def __init__(self, error: libvirt.libvirtError) -> None:
        super().__init__(reason=one_line(error))
        self.error_code: int = error.get_error_code()


class LibvirtBusy(LibvirtFailure):
    """A call that libvirt refuses because another call of the same domain has not ended in time."""


class ConnectionBroken(exceptions.HypervisorUnavailable):
    """The connection broke during a call. libvirtd may have executed the call, or may execute it still."""


def one_line(error: libvirt.libvirtError) -> str:
    return " ".join((error.get_error_message() or str(error)).split())


def is_broken(error: libvirt.libvirtError) -> bool:
    """Check whether the error means that libvirtd is unavailable, and not that it rejects a call."""
    code = error.get_error_code()
    return code in _BROKEN_CODES or (error.get_error_domain() in _BROKEN_ORIGINS and code in _BROKEN_ORIGIN_CODES)


class _Link:
    """Connection of a channel. ``calls``: number of calls in progress.

    ``on_open`` is called with each new `virConnect`.
    """

    def __init__(self, uri: str, host: str, on_open: Callable[[Any], None] | None, timing: LibvirtTiming) -> None:
        self.calls = 0
        self._uri = uri
        self._host = host
        self._on_open = on_open
        self._timing = timing
        self._lock = threading.Lock()
        self._connection: Any = None
        self._patient_until = float("-inf")

    def get(self) -> Any:
        """Return a live `virConnect`, for which callers wait if the last one broke a moment ago.

        Raises `HypervisorUnavailable`.
        """
        with self._lock:
            if self._connection is not None and not self._connection.isAlive():
                self._drop()
            while self._connection is None:
                try:
                    self._connection = self._open()
                except exceptions.HypervisorUnavailable:
                    if time.monotonic() >= self._patient_until:
                        raise
                    time.sleep(self._timing.reconnect_pause)
            return self._connection

    def broke(self, connection: Any) -> None:
        """Replace ``connection`` at the next call, unless that has happened already."""
        with self._lock:
            if self._connection is not None and self._connection is connection:
                self._drop()

    def _drop(self) -> None:
        self._connection = None
        self._patient_until = time.monotonic() + self._timing.reconnect_wait

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


class Channel:
    """Connections for one kind of call. Each carries `CALLS_PER_CONNECTION` calls at most; further callers wait."""

    def __init__(self, links: list[_Link]) -> None:
        self._links = links
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def link(self) -> Iterator[_Link]:
        """Yield a connection with room for one more call."""
        with self._changed:
            while (link := self._free()) is None:
                self._changed.wait()
            link.calls += 1
        try:
            yield link
        finally:
            with self._changed:
                link.calls -= 1
                self._changed.notify()

    def first(self) -> _Link:
        return self._links[0]

    def _free(self) -> _Link | None:
        return next((link for link in self._links if link.calls < CALLS_PER_CONNECTION), None)


class Connection:
    """libvirtd, with a channel for queries, one for changes, and one for transfers of guests' memory.

    Objects of libvirt may be used after the connection broke that they were found on: each call finds them again.
    ``on_open`` is called with each new `virConnect` for queries, in the thread that opened it. ``queries_only``: all
    calls use the same channel.
    """

    def __init__(
        self,
        uri: str,
        host: str,
        on_open: Callable[[Any], None] | None = None,
        timing: LibvirtTiming = TIMING.libvirt,
        queries_only: bool = False,
    ) -> None:
        self._host = host
        self.timing = timing
        self._queries = Channel([_Link(uri, host, on_open, timing) for _ in range(QUERY_CONNECTIONS)])
        self._changes = self._transfers = self._queries
        if not queries_only:
            self._changes = Channel([_Link(uri, host, None, timing) for _ in range(CHANGE_CONNECTIONS)])
            self._transfers = Channel([_Link(uri, host, None, timing) for _ in range(TRANSFER_CONNECTIONS)])

    def get(self) -> Any:
        """Return a live `virConnect` for queries. Raises `HypervisorUnavailable`."""
        return self._queries.first().get()

    def call(self, method: Callable[..., Any], *args: Any) -> Any:
        """Call ``method(*args)`` of a libvirt object. Raises `LibvirtFailure` or `HypervisorUnavailable`.

        If the connection breaks, a call that may be repeated is repeated once.
        """
        name = getattr(method, "__name__", "other")
        try:
            return self._call(method, args)
        except ConnectionBroken as error:
            if name not in REPEATABLE:
                raise
            LOG.info("libvirt: %s is repeated after its connection broke: %s", name, error.kwargs["reason"])
        return self._call(method, args)

    def call_checked(self, done: Callable[[], bool], method: Callable[..., Any], *args: Any) -> Any:
        """Call a method that changes something. Return None if the connection broke and the change is ``done()``.

        If it is not done, repeat the call once. ``done`` looks at the actual state, on a new connection.
        """
        try:
            return self.call(method, *args)
        except ConnectionBroken as error:
            name, reason = getattr(method, "__name__", "other"), error.kwargs["reason"]
            if done():
                LOG.info("libvirt: %s succeeded, although its connection broke: %s", name, reason)
                return None
            LOG.info("libvirt: %s is repeated after its connection broke without effect: %s", name, reason)
        return self.call(method, *args)

    def _call(self, method: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        name = getattr(method, "__name__", "other")
        with self._channel(name).link() as link:
            owner = getattr(method, "__self__", None)
            if not isinstance(owner, (libvirt.virConnect, *_LOOKUPS)):
                return self._execute(link, None, lambda: method(*args), name)
            connection = link.get()
            return self._execute(
                link, connection, lambda: getattr(_on(connection, owner), name)(*_all_on(connection, args)), name
            )

    def _channel(self, name: str) -> Channel:
        if name in TRANSFERS:
            return self._transfers
        return self._queries if name in QUERIES else self._changes

    def _execute(self, link: _Link, connection: Any, call: Callable[[], Any], name: str) -> Any:
        try:
            with metrics.timed(metrics.HYPERVISOR.labels(name)):
                return concurrency.call_blocking(call)
        except libvirt.libvirtError as error:
            if error.get_error_code() in BUSY:
                raise LibvirtBusy(error) from error
            if not is_broken(error):
                raise LibvirtFailure(error) from error
            metrics.HYPERVISOR_BREAKS.labels(name).inc()
            link.broke(connection)
            raise ConnectionBroken(host=self._host, reason=one_line(error)) from error

    def connect_call(self, name: str, *args: Any) -> Any:
        """Call the method ``name`` of the connection itself."""
        return self.call(getattr(self.get(), name), *args)

    def call_filtering(self, method: Callable[..., Any], *args: Any, done: Callable[[], bool] = lambda: False) -> Any:
        """Call a method that makes libvirt write a guest's filters, and repeat it after a conflict.

        libvirt's ebtables use nftables, and fail if another process (such as this daemon) changes a table at the same
        moment. ``done``: see `call_checked`.
        """
        for left in reversed(range(FILTER_TRIES)):
            try:
                return self.call_checked(done, method, *args)
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


def _on(connection: Any, owner: Any) -> Any:
    """Return an object of libvirt as one of ``connection``."""
    if isinstance(owner, libvirt.virConnect):
        return connection
    if owner.connect() is connection:
        return owner
    lookup = next(lookup for kind, lookup in _LOOKUPS.items() if isinstance(owner, kind))
    return getattr(connection, lookup)(owner.UUIDString())


def _all_on(connection: Any, args: tuple[Any, ...]) -> list[Any]:
    """Return arguments with the domains in their lists as those of ``connection``."""
    return [[_on(connection, item) for item in arg] if _are_domains(arg) else arg for arg in args]


def _are_domains(arg: Any) -> bool:
    return isinstance(arg, list) and all(isinstance(item, libvirt.virDomain) for item in arg)


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
