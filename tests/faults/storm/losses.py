"""Nemesis of a storm: loses hosts, and breaks daemons, links, disks and messages meanwhile."""

from __future__ import annotations

import signal
import threading
import uuid
from collections.abc import Callable

from nova_lite.base import failpoints
from tests.faults import guards
from tests.faults.daemon import AHEAD, BEHIND
from tests.faults.history.events import Recorder
from tests.faults.history.nemesis import EFFECTS as MINOR
from tests.faults.history.nemesis import Nemesis
from tests.faults.history.site import HistoryCloud
from tests.faults.private import PrivateDatabase
from tests.faults.storm import daemon
from tests.faults.storm.guests import Guests
from tests.functional.proxy import INWARD, OUTWARD

#: Seconds for which a machine may stand still and continue: its guests stop later than that.
SHORT_HANG = 12.0

#: Losses of hosts: frequency, and shortest and longest duration in seconds. Some end before the host counts as lost.
LOSSES: dict[str, tuple[int, float, float]] = {
    "power cut": (5, 1.0, 75.0),
    "machine stands still, is reset": (3, 5.0, 75.0),
    "machine stands still, continues": (2, 1.0, SHORT_HANG),
    "daemon stands still": (4, 5.0, 75.0),
    "link cut": (4, 5.0, 75.0),
    "receives nothing": (4, 5.0, 75.0),
    "is not received": (4, 5.0, 75.0),
    "disk full": (2, 5.0, 40.0),
    "disk full, link cut": (3, 25.0, 75.0),
    "hypervisor hangs": (2, 5.0, 40.0),
}

#: Faults that are added to them, of the nemesis of histories.
ADDED = (
    "kill",
    "cut off from the broker",
    "unheard at the broker",
    "cut off from the database",
    "broker restart",
    "database kill",
    failpoints.DROP,
    failpoints.DUPLICATE,
    failpoints.DELAY,
    failpoints.FULL,
    AHEAD,
    BEHIND,
    "builds fail",
)


class HostNemesis(Nemesis):
    """Loses hosts, and leaves two of them alone. ``others``: a nemesis whose targets are left alone, too."""

    def __init__(
        self, running: HistoryCloud, database: PrivateDatabase, recorder: Recorder, seed: int, guests: Guests
    ) -> None:
        weights = {name: weight for name, (weight, _, _) in LOSSES.items()}
        super().__init__(running, database, recorder, seed, weights, "compute-*", rest=15.0)
        self._guests = guests
        self.daemons = Nemesis(running, database, recorder, seed, {name: MINOR[name][0] for name in ADDED}, rest=8.0)
        self.daemons.down = self.down
        self.daemons._busy = self._busy
        self.daemons._lock = self._lock

    def _seconds(self, effect: str) -> float:
        return self.random.uniform(*LOSSES[effect][1:])

    def _targets(self, effect: str) -> list[str]:
        free = [host for host in self.cloud.computes if host not in self._busy]
        return free if len(free) > 2 else []

    def _pair(self, effect: str, target: str) -> tuple[Callable[[], None], Callable[[], None]]:
        host = target
        link = self.cloud.brokers[host]
        match effect:
            case "power cut":
                return lambda: self._cut_power(host), lambda: self._boot(host)
            case "machine stands still, is reset":
                return lambda: self._freeze(host), lambda: self._reset(host)
            case "machine stands still, continues":
                return lambda: self._freeze(host), lambda: self._thaw(host)
            case "daemon stands still":
                return lambda: self.cloud.signal(host, signal.SIGSTOP), lambda: self.cloud.signal(host, signal.SIGCONT)
            case "link cut":
                return link.cut, link.restore
            case "receives nothing":
                return lambda: link.mute(OUTWARD), link.unmute
            case "is not received":
                return lambda: link.mute(INWARD), link.unmute
            case "disk full":
                return lambda: self._fill(host), lambda: self._free(host)
            case "disk full, link cut":
                return lambda: self._fill_and_cut(host), lambda: self._free_and_restore(host)
            case "hypervisor hangs":
                return (
                    lambda: self.cloud.control_host(host, hang_at=["*"]),
                    lambda: self.cloud.control_host(host),
                )
        raise AssertionError(effect)

    # --- power

    def _cut_power(self, host: str) -> None:
        self._kill(host)
        self._signal_guard(host, signal.SIGKILL)
        self._guests.cut_power(host)

    def _boot(self, host: str) -> None:
        (self.cloud.path / host / daemon.BOOT_ID).write_text(str(uuid.uuid4()))
        self._start(host)

    def _freeze(self, host: str) -> None:
        self.down.add(host)
        self._guests.frozen.add(host)
        self.cloud.signal(host, signal.SIGSTOP)
        self._signal_guard(host, signal.SIGSTOP)

    def _thaw(self, host: str) -> None:
        self._signal_guard(host, signal.SIGCONT)
        self.cloud.signal(host, signal.SIGCONT)
        self._guests.frozen.discard(host)
        self.down.discard(host)

    def _reset(self, host: str) -> None:
        self._cut_power(host)
        self._guests.frozen.discard(host)
        self._boot(host)

    def _signal_guard(self, host: str, number: int) -> None:
        guards.send(self.cloud.path / host, number)

    # --- the disk

    def _fill(self, host: str) -> None:
        """Fill the disk, for the guard and for the daemon: whatever is full stays so until it is freed."""
        (self.cloud.path / host / daemon.FULL).touch()

    def _free(self, host: str) -> None:
        (self.cloud.path / host / daemon.FULL).unlink()

    def _fill_and_cut(self, host: str) -> None:
        self._fill(host)
        self.cloud.brokers[host].cut()

    def _free_and_restore(self, host: str) -> None:
        self.cloud.brokers[host].restore()
        self._free(host)

    @property
    def runs(self) -> list[Callable[[threading.Event], None]]:
        return [self.run, self.run, self.daemons.run]
