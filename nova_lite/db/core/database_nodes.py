"""Nodes of the database that load balancers of several controllers do not use."""

from __future__ import annotations

from oslo_config import cfg

from nova_lite.db.core import urls
from nova_lite.rpc import controllers
from nova_lite.rpc.controllers import DATABASE_PORT
from nova_lite.rpc.node_reports import JOINS, SILENT, STARTS, STOPPED, USED, WAITS, look_at_all


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
    found = look_at_all(controllers.members(conf.rpc.keys_directory))
    return {node.host: _PROBLEMS[node.state].format(node.reason) for node in found}


_PROBLEMS = {
    USED: "",
    JOINS: "is not ready",
    WAITS: "sees no majority of the nodes",
    STARTS: "starts, and waits for other nodes or for a copy",
    STOPPED: "does not run",
    SILENT: "does not report its state ({})",
}
