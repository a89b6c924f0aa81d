"""State of the database's nodes, as the load balancers of several controllers see it.

Each controller reports at a port of its own whether its node can be used. HAProxy uses a node by the same word.
"""

from __future__ import annotations

import socket

from oslo_config import cfg

from nova_lite.db import urls
from nova_lite.rpc import controllers
from nova_lite.rpc.controllers import CHECK_PORT, DATABASE_PORT

#: Seconds for a report.
_SECONDS = 2.0


def problems(conf: cfg.ConfigOpts) -> dict[str, str]:
    """Return what is wrong with each node by the name of its controller, empty for a node that can be used.

    Nothing is returned for a database of another kind. Raises `ConfigurationError`.
    """
    try:
        url = urls.parse(conf.database.connection or "")
    except ValueError:
        return {}
    if (url.host, url.port) != ("127.0.0.1", DATABASE_PORT) or not conf.rpc.keys_directory:
        return {}
    return {member.host: _problem(member.address) for member in controllers.members(conf.rpc.keys_directory)}


def _problem(address: str) -> str:
    try:
        with socket.create_connection((address, CHECK_PORT), _SECONDS) as sock:
            word = sock.recv(16).split()
    except OSError as error:
        return f"does not report its state ({error.strerror or error})"
    return "" if word == [b"up"] else "is not ready, or not in the majority"
