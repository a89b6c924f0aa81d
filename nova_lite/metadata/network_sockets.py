"""Sockets of the metadata service, on their way from a compute daemon to the APIs of its machine.

A compute daemon listens at 169.254.169.254 on each network of its guests. It passes these sockets, with the networks'
ids, over a Unix socket to each process that serves metadata. So the socket of a connection shows the guest's network,
and connections wait in it while an API restarts. A packet is one byte and a network's id:

- ``+``: comes with the socket of the network, a new one or another one
- ``-``: this host has no socket of the network any more
- ``=``: all sockets of this host have been passed (no id)
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from nova_lite.base import concurrency, unix_sockets

ADDED, GONE, COMPLETE = b"+", b"-", b"="

_LONGEST = 256
_SUFFIX = ".sock"


class Packet(NamedTuple):
    kind: bytes
    network_id: str
    sock: Any


def path(directory: str, host: str) -> str:
    """Return the path of the Unix socket of a compute daemon. ``directory``: ``[network] metadata_directory``."""
    return os.path.join(directory, host + _SUFFIX)


def paths(directory: str) -> list[str]:
    """Return the paths of the Unix sockets of all compute daemons of this machine."""
    try:
        found = os.scandir(directory)
    except FileNotFoundError:
        return []
    return sorted(entry.path for entry in found if entry.name.endswith(_SUFFIX))


def connect(at: str) -> Any:
    """Return a connection that never blocks. Raises OSError, also for a server that is neither root's nor the own
    user's.
    """
    native = concurrency.native("socket")
    sock = native.socket(native.AF_UNIX, native.SOCK_SEQPACKET)
    try:
        sock.setblocking(False)
        sock.connect(at)
        if not unix_sockets.is_trusted(sock):
            raise PermissionError(f"another user's program serves {at}")
    except OSError:
        sock.close()
        raise
    return sock


def send(channel: Any, kind: bytes, network_id: str = "", descriptor: int | None = None) -> None:
    """Send a packet. Raises BlockingIOError if the receiver has to read others first, or another OSError."""
    native = concurrency.native("socket")
    native.send_fds(channel, [kind + network_id.encode()], [] if descriptor is None else [descriptor])


def receive(channel: Any) -> Packet | None:
    """Return the next packet; None at the end of the connection. Raises BlockingIOError if there is none yet."""
    native = concurrency.native("socket")
    data, descriptors, _, _ = native.recv_fds(channel, _LONGEST, 1, native.MSG_CMSG_CLOEXEC)
    if not data:
        return None
    sock = native.socket(fileno=descriptors[0]) if descriptors else None
    return Packet(data[:1], data[1:].decode(), sock)
