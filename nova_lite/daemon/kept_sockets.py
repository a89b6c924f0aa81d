"""Listening sockets that systemd keeps while a daemon restarts, so that no connection is refused.

A daemon gives its sockets to systemd's file descriptor store (``FileDescriptorStoreMax=`` of the unit). Connections
then wait in the kernel until the next process accepts them. Without systemd nothing is kept.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket

from nova_lite.daemon.watchdog import notify_systemd

FIRST_DESCRIPTOR = 3
BARRIER_SECONDS = 10.0

#: Sockets that were kept for this process, by name. None: they were not received yet.
_kept: dict[str, socket.socket] | None = None


def take(names: list[str], address: str, port: int) -> list[socket.socket] | None:
    """Return the kept sockets with these names, or None if not all of them listen at this address.

    In that case none of them is used, and systemd forgets them.
    """
    kept = _received()
    socks = [kept.pop(name, None) for name in names]
    # Workers that there were before, and that there are no more, have sockets that no API would accept from.
    prefix = names[0].rpartition("-")[0]
    superfluous = [name for name in kept if name.rpartition("-")[0] == prefix]
    found = [sock for sock in socks if sock is not None]
    if len(found) == len(names) and not superfluous and all(_listens_at(sock, address, port) for sock in found):
        return found
    found += [kept.pop(name) for name in superfluous]
    if found:
        _forget({*names, *superfluous}, found)
    return None


def drop_rest() -> None:
    """Close the kept sockets that no API has taken: those of APIs that are served no more."""
    kept = _received()
    if kept:
        _forget(set(kept), list(kept.values()))
        kept.clear()


def keep(name: str, sock: socket.socket) -> None:
    """Let systemd keep a socket until the operator stops this daemon without starting it again."""
    notify_systemd(f"FDSTORE=1\nFDNAME={name}", sock.fileno())


def _forget(names: set[str], socks: list[socket.socket]) -> None:
    """Close sockets, and wait until systemd has closed them too, so that their ports are free."""
    for sock in socks:
        sock.close()
    for name in names:
        notify_systemd(f"FDSTOREREMOVE=1\nFDNAME={name}")
    reader, writer = os.pipe()
    try:
        notify_systemd("BARRIER=1", writer)
    finally:
        os.close(writer)
    # systemd closes the pipe when it has handled all messages before this one. If there is none, it is closed already.
    select.select([reader], [], [], BARRIER_SECONDS)
    os.close(reader)


def _received() -> dict[str, socket.socket]:
    """Return the sockets that systemd has passed to this process and that no API has taken."""
    global _kept
    if _kept is None:
        _kept = {}
        count, names = int(os.environ.get("LISTEN_FDS") or 0), os.environ.get("LISTEN_FDNAMES", "").split(":")
        if os.environ.get("LISTEN_PID") == str(os.getpid()) and len(names) == count:
            for descriptor, name in enumerate(names, FIRST_DESCRIPTOR):
                os.set_inheritable(descriptor, False)
                _kept[name] = socket.socket(fileno=descriptor)
        for variable in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
            os.environ.pop(variable, None)
    return _kept


def _listens_at(sock: socket.socket, address: str, port: int) -> bool:
    """Check that a socket listens at an address, which may be a host's name."""
    with contextlib.suppress(OSError):
        wanted = {info[4][:2] for info in socket.getaddrinfo(address, port, sock.family, socket.SOCK_STREAM)}
        return sock.getsockname()[:2] in wanted and bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    return False
