"""Unix sockets of this machine's daemons."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from typing import Any

_CREDENTIALS = struct.Struct("iII")


def is_trusted(sock: Any) -> bool:
    """Check whether root or this process' user is at the other end."""
    found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(found)
    return user in (0, os.geteuid())


def listen(path: str, backlog: int, kind: int = socket.SOCK_STREAM) -> socket.socket:
    """Make a socket that the owner and the group may use, in place of any that is there. It never blocks."""
    temporary = f"{path}.{os.getpid()}"
    sock = socket.socket(socket.AF_UNIX, kind)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        os.fchmod(sock.fileno(), 0o600)  # the file has this mode from its beginning
        sock.bind(temporary)
        os.chmod(temporary, 0o660)
        sock.listen(backlog)
        sock.setblocking(False)
        os.rename(temporary, path)
    except OSError:
        sock.close()
        raise
    return sock
