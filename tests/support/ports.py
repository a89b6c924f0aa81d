"""Ports for the daemons of tests."""

from __future__ import annotations

import fcntl
import socket
import tempfile
from pathlib import Path

#: The port that was given last, on this machine, by whichever run of tests.
LAST_GIVEN = Path(tempfile.gettempdir(), "nova-lite-test-ports")
#: Ports below the range that the kernel uses for connections.
PORTS = range(12000, 32000)
#: Ports of brokers, which may be started later.
TAKEN = (15672, 25672)


def free_port() -> int:
    """Return a port without listener that was not returned for a long time: callers need a while to listen on it."""
    with LAST_GIVEN.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        last = int(file.read() or 0)
        following = [*range(max(last + 1, PORTS.start), PORTS.stop), *PORTS]
        port = next(port for port in following if port not in TAKEN and _is_free(port))
        file.truncate(0)
        file.write(str(port))
    return port


def is_open(port: int) -> bool:
    """Check whether a listener at the port accepts a connection."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
