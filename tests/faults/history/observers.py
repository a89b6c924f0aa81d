"""Observers of the history: they read each fake hypervisor's files continuously."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from typing import Any

from tests.faults.history.events import Recorder, Sighting
from tests.functional.cloud import Cloud

LOOKS_PER_SECOND = 20.0


def folder(running: Cloud, host: str, name: str) -> str:
    return str(running.path / host / "instances" / f"fake-{host}" / name)


def domain_files(running: Cloud, host: str) -> dict[str, str]:
    """Return the domain files by server."""
    path = folder(running, host, "domains")
    with contextlib.suppress(FileNotFoundError):
        names = [name for name in os.listdir(path) if name.endswith(".json") and len(name) == 41]
        return {name[:36]: os.path.join(path, name) for name in names}
    return {}


def domains(running: Cloud) -> list[dict[str, Any]]:
    """Return the domains of all hypervisors for `events.Tables`."""
    found = []
    for host in running.computes:
        for server, path in domain_files(running, host).items():
            with contextlib.suppress(FileNotFoundError), open(path) as file:
                domain = json.load(file)
                found.append(
                    {"server": server, "host": host, "volumes": sorted(domain["volumes"])} | _what(domain, host)
                )
    return found


def other_files(running: Cloud) -> list[str]:
    """Return the other files of servers on hosts."""
    return [
        f"{name}/{item} on {host}"
        for host in running.computes
        for name in ("domains", "disks", "vifs", "aside")
        for item in (os.listdir(folder(running, host, name)) if os.path.isdir(folder(running, host, name)) else ())
    ]


def _what(domain: dict[str, Any], host: str) -> dict[str, int]:
    generation = domain["generations"].get(host, domain["generation"])
    return {"generation": generation, "power_state": domain["power_state"]}


class Watch:
    """Sightings of domains. A file that is the same as at the look before is not read again."""

    def __init__(self, running: Cloud, recorder: Recorder) -> None:
        self._cloud = running
        self._recorder = recorder
        self._current: dict[tuple[str, str], tuple[tuple[int, int], Sighting]] = {}
        self.looks = 0

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(1 / LOOKS_PER_SECOND):
            self.look()
        for _, seen in self._current.values():
            self._recorder.add(seen)

    def look(self) -> None:
        self.looks += 1
        there = set()
        for host in self._cloud.computes:
            for server, path in domain_files(self._cloud, host).items():
                with contextlib.suppress(FileNotFoundError):
                    self._see((host, server), path)
                    there.add((host, server))
        for key in self._current.keys() - there:
            self._recorder.add(self._current.pop(key)[1])

    def _see(self, key: tuple[str, str], path: str) -> None:
        before = time.time()
        state = os.stat(path)
        version = (state.st_ino, state.st_mtime_ns)
        after = time.time()
        known = self._current.get(key)
        if known is not None and known[0] == version:
            known[1].last = max(known[1].last, before)
            return
        with open(path) as file:
            what = _what(json.load(file), key[0])
        if known is not None:
            _, seen = known
            if (seen.generation, seen.power_state) == (what["generation"], what["power_state"]):
                seen.last = max(seen.last, before)
                self._current[key] = (version, seen)
                return
            self._recorder.add(seen)
        self._current[key] = (version, Sighting(server=key[1], host=key[0], first=after, last=after, **what))
