"""Return of the database from the loss of a majority, where it is safe. The registrar of each controller watches.

It is safe while all machines report, and none has a node in a majority (`nova_lite.cmd.setup.database`). A machine that
does not report leaves the decision to an operator.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from nova_lite.cmd.setup import cluster, database, galera, machine
from nova_lite.rpc import controllers
from nova_lite.rpc.node_reports import SILENT, look_at_all

LOG = logging.getLogger(__name__)

#: Seconds between two looks.
INTERVAL = 10.0
#: Seconds without a majority before a node begins a new one. Nodes that all lost their power find each other before.
PATIENCE = 30.0


class DatabaseWatch:
    """Watches the database's nodes. ``directory``: of keys, with the list of controllers."""

    def __init__(
        self,
        directory: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory, self._clock = directory, clock
        self._since: float | None = None

    def tick(self) -> None:
        """Look once. Raises `ConfigurationError` if the list of controllers, or the start of the unit, fails."""
        local, listed = cluster.local(), controllers.members(self._directory)
        if local is None or not local.has_database or len(listed) < 2:
            return
        own = [member for member in listed if member.host == local.host]
        found = look_at_all(own)  # The others matter only while this node is not used.
        if not any(node.is_in_majority for node in found):
            found = look_at_all(listed)
        if any(node.is_in_majority or node.state == SILENT for node in found):
            self._since = None
            return
        now = self._clock()
        if self._since is None:
            self._since = now
        if now - self._since < PATIENCE or database.plan(found).host != local.host:
            return
        self._since = None
        LOG.error("All nodes of the database report that they see no majority. This one begins a new one:")
        for line in database.table(found).splitlines():
            LOG.error("    %s", line)
        machine.run("systemctl", "start", "--no-block", galera.RECOVERY)
