"""Outages of the broker and the database of a matrix cloud."""

from __future__ import annotations

import abc
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults.private import PrivateDatabase
from tests.functional.cloud import Cloud
from tests.functional.proxy import Proxy

BROKER, DATABASE, TARGET = "broker restart", "database restart", "target full"
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
    """Outage that looks like a killed broker from one vhost: connections are reset and refused, and afterwards all
    queues and messages are gone. test_comparisons.py really kills one.
    """

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


class TargetOutage(Outage):
    """The file system of a repository of backups is full. ``fill`` fills it, and returns the file that does."""

    def __init__(self, fill: Callable[[], Path]) -> None:
        super().__init__()
        self._fill = fill
        self._ballast: Path | None = None

    def down(self) -> None:
        self._ballast = self._fill()

    def up(self) -> None:
        if self._ballast is not None:
            self._ballast.unlink()


class Strike:
    """An outage that begins when a daemon passes a point. The daemon is held there (`failpoints.HOLD`) until the
    outage is in force, which ``fired`` reports.
    """

    def __init__(self, outage: Outage, fired: Path) -> None:
        self._outage = outage
        self.fired = fired
        self.called_off = threading.Event()

    def run(self) -> None:
        while not self.fired.exists():
            if self.called_off.wait(0.02):
                return
        with self._outage.lock:
            self._outage.down()
            release(self.fired)
            time.sleep(AWAY)
            self._outage.up()


def release(fired: Path) -> None:
    """Let the thread continue that is held by the rule of this file."""
    fired.with_suffix(".release").touch()
