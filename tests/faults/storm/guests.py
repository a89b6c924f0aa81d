"""Guests of the fake hypervisors: each counts on a disk that all hosts share."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from pathlib import Path

from tests.functional.cloud import Cloud
from tests.support.watch import Watch

RUNNING, OFF = (1, 3), 4

#: Seconds between two counts of a guest, and without a count until a guest is lost.
INTERVAL, LOST = 0.1, 3.0


@dataclasses.dataclass
class Outage:
    """Time during which a guest ran nowhere; ``ended`` is None if it has not come back."""

    guest: str
    began: float
    ended: float | None = None


class Guests(Watch):
    """Lets the guests count, and looks for guests that run twice.

    A running guest remembers its last count. If its disk has another one, another program has written: ``wrong``.
    ``frozen``: hosts whose CPUs stand still. ``outages``: of guests that have counted and whose delete no user has
    requested.
    """

    def __init__(self, running: Cloud, disks: Path) -> None:
        self._cloud = running
        self._disks = disks
        self._memory: dict[tuple[str, str], tuple[int, str]] = {}
        self._seen_at: dict[str, float] = {}
        self._deleted: set[str] = set()
        self._over: list[Outage] = []
        self.frozen: set[str] = set()
        self.wrong: dict[str, str] = {}
        disks.mkdir()
        super().__init__(INTERVAL)

    def look(self) -> set[str]:
        found: dict[str, list[str]] = {}
        for host in self._cloud.computes:
            for path in self._domains(host).glob("*.json"):
                generation = self._generation(host, path.stem)
                if generation is None:
                    self._memory.pop((host, path.stem), None)
                    continue
                found.setdefault(path.stem, []).append(host)
                if host not in self.frozen:
                    self._count(host, path.stem, generation)
        for host, guest in list(self._memory):
            if host not in found.get(guest, ()):
                del self._memory[host, guest]
        return {guest for guest, hosts in found.items() if self._runs_twice(guest, hosts)}

    def _runs_twice(self, guest: str, hosts: list[str]) -> bool:
        """Look again: the guest may have moved between two looks."""
        hosts = [host for host in hosts if host not in self.frozen]
        return len(hosts) > 1 and sum(self._generation(host, guest) is not None for host in hosts) > 1

    def _count(self, host: str, guest: str, generation: int) -> None:
        disk = self._disks / guest
        found = disk.read_text() if disk.exists() else "0"
        booted, last = self._memory.get((host, guest), (generation, found))
        if booted == generation and last != found:
            self.wrong.setdefault(guest, f"{host} reads {found!r} at {time.time():.2f}, and has written {last!r}")
        text = f"{int(found.split()[0]) + 1} {host}"
        disk.write_text(text)
        self._memory[host, guest] = (generation, text)
        self._note_running(guest)

    def _note_running(self, guest: str) -> None:
        now = time.time()
        last = self._seen_at.get(guest, now)
        if now - last >= LOST and guest not in self._deleted:
            self._over.append(Outage(guest, last, now))
        self._seen_at[guest] = now

    def forget(self, guest: str) -> None:
        """Note that the delete of a guest is requested."""
        self._deleted.add(guest)

    @property
    def expected(self) -> set[str]:
        """Guests that have to run."""
        return set(self._seen_at) - self._deleted

    @property
    def missing(self) -> list[Outage]:
        """Outages that have not ended."""
        now = time.time()
        silent = {guest: self._seen_at[guest] for guest in self.expected}
        return [Outage(guest, last) for guest, last in silent.items() if now - last >= LOST]

    @property
    def outages(self) -> list[Outage]:
        return [*self._over, *self.missing]

    def at(self, host: str) -> set[str]:
        """Return the guests that run at a host."""
        names = {path.stem for path in self._domains(host).glob("*.json")}
        return {guest for guest in names if self._generation(host, guest) is not None}

    def cut_power(self, host: str) -> None:
        """End all guests of a host, whose daemon and guard are dead."""
        for path in self._domains(host).glob("*.json"):
            domain = json.loads(path.read_text())
            draft = path.with_suffix(".power-cut")
            draft.write_text(json.dumps(domain | {"power_state": OFF}))
            draft.replace(path)

    def _domains(self, host: str) -> Path:
        return self._cloud.path / host / "instances" / f"fake-{host}" / "domains"

    def _generation(self, host: str, guest: str) -> int | None:
        """Return the generation of a guest that runs at a host."""
        with contextlib.suppress(FileNotFoundError, ValueError):  # Removed meanwhile.
            domain = json.loads((self._domains(host) / f"{guest}.json").read_text())
            if domain["power_state"] in RUNNING:
                generation: int = domain["generation"]
                return generation
        return None
