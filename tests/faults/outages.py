"""What a cloud of the matrix stands on, and how that is taken away and comes back: its broker, its database."""

from __future__ import annotations

import abc
import threading
import time
from pathlib import Path

from tests.faults.private import PrivateDatabase
from tests.functional.cloud import Cloud
from tests.functional.proxy import Proxy

BROKER, DATABASE = "broker restart", "database restart"
BROKER_PORT = 5672

#: Seconds that it is away, besides what its start takes.
AWAY = 2.0


class Outage(abc.ABC):
    """``lock``: one at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    @abc.abstractmethod
    def down(self) -> None: ...

    @abc.abstractmethod
    def up(self) -> None: ...


class BrokerOutage(Outage):
    """As if the broker was killed, seen from one vhost: connections are reset and refused, and when it is back there is
    no queue, and no message. (test_comparisons.py really kills one.)"""

    def __init__(self, cloud: Cloud, proxy: Proxy) -> None:
        super().__init__()
        self._cloud = cloud
        self._proxy = proxy

    def down(self) -> None:
        self._proxy.cut()

    def up(self) -> None:
        self._cloud.delete_vhost()
        self._cloud.make_vhost()
        self._proxy.restore()


class DatabaseOutage(Outage):
    """SIGKILL to a MariaDB of the cloud's own, and its start."""

    def __init__(self, database: PrivateDatabase) -> None:
        super().__init__()
        self._database = database

    def down(self) -> None:
        self._database.kill()

    def up(self) -> None:
        self._database.start()


class Strike:
    """One outage that begins when a daemon has come to a point, where it is held (`hooks.HOLD`) until that has
    happened: ``fired`` tells that it is there."""

    def __init__(self, outage: Outage, fired: Path) -> None:
        self._outage = outage
        self.fired = fired
        self.called_off = False

    def run(self) -> None:
        while not self.fired.exists():
            if self.called_off:
                return
            time.sleep(0.02)
        with self._outage.lock:
            self._outage.down()
            release(self.fired)
            time.sleep(AWAY)
            self._outage.up()


def release(fired: Path) -> None:
    """Let the thread go on that is held by the rule of this file."""
    fired.with_suffix(".release").touch()
