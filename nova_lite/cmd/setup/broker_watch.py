"""Restart of a broker whose application stays stopped although it could run.

RabbitMQ stops its application, and keeps its process, when it sees no majority of the cluster. It starts it once when
the majority is back. If that start fails, as it may on a busy machine or while other brokers start as well, nothing
repeats it: the unit is active, and no client is served. The registrar of each controller calls `BrokerWatch`.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from typing import Protocol

from nova_lite.cmd.setup import broker, cluster, machine
from nova_lite.rpc import controllers

LOG = logging.getLogger(__name__)

#: Seconds between two looks.
INTERVAL = 10.0
#: Seconds for which a broker serves no client, although a majority of the brokers' processes is there, before its
#: restart.
PATIENCE = 90.0
#: Port by which brokers reach each other. Their process has it also while the application is stopped.
DISTRIBUTION_PORT = 25672

_UNIT = "rabbitmq-server"
_CONNECT_SECONDS = 2.0


class BrokerMachine(Protocol):
    """The parts of this machine that a watch uses."""

    def accepts(self, address: str, port: int) -> bool:
        """Check whether a port accepts connections."""

    def is_active(self) -> bool:
        """Check whether the broker's unit runs. An operator may have stopped it."""

    def restart(self) -> None: ...


class ThisMachine:
    def accepts(self, address: str, port: int) -> bool:
        try:
            socket.create_connection((address, port), _CONNECT_SECONDS).close()
        except OSError:
            return False
        return True

    def is_active(self) -> bool:
        return machine.succeeds("systemctl", "is-active", "--quiet", _UNIT)

    def restart(self) -> None:
        machine.run("systemctl", "restart", "--no-block", _UNIT)


class BrokerWatch:
    """Watches the broker of this controller. ``directory``: of keys, with the list of controllers."""

    def __init__(
        self,
        directory: str,
        this_machine: BrokerMachine | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._machine = this_machine or ThisMachine()
        self._clock = clock
        self._since: float | None = None

    def tick(self) -> None:
        """Look once. Raises `ConfigurationError` if the list of controllers, or the restart, fails."""
        if not self._is_stuck():
            self._since = None
            return
        now = self._clock()
        if self._since is None:
            self._since = now
        if now - self._since < PATIENCE:
            return
        LOG.error(
            "This broker has served no client for %d s, although a majority of brokers is there: restart",
            now - self._since,
        )
        self._since = None
        self._machine.restart()

    def _is_stuck(self) -> bool:
        local, listed = cluster.local(), controllers.members(self._directory)
        if local is None or len(listed) < 2 or self._machine.accepts(local.address, broker.TLS_PORT):
            return False
        there = [member for member in listed if self._machine.accepts(member.address, DISTRIBUTION_PORT)]
        return 2 * len(there) > len(listed) and self._machine.is_active()
