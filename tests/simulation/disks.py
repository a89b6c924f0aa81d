"""Disks of hosts. A power cut leaves all that was synced, and by choice of the seed some of the rest.

A name in a directory is safe once the directory was synced, and the content of a file once the file was. The kernel
writes the rest when it likes, at last after `_FLUSH` seconds. Before that an old name may be back, a new one may be
gone, and its file may be empty. A hypervisor writes its domains whole, so of these only names are at risk.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from tests.simulation.scheduler import Scheduler

_FLUSH = 30.0
#: Size of a page of a file that is written in places.
_PAGE = 4096


class Disks:
    """Disks of all hosts, below a directory of the cloud. Files that are there at first are safe."""

    def __init__(self, sim: Scheduler, directory: Path, hosts: list[str]) -> None:
        self._sim = sim
        self._directory = directory
        self._hosts = hosts
        self._contents: dict[int, bytes] = {}
        self._names: dict[str, dict[str, int]] = {}
        self._flush()

    def synced(self, descriptor: int) -> None:
        """Keep what a program has synced: a file's content, or a directory's names."""
        status = os.fstat(descriptor)
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if stat.S_ISDIR(status.st_mode):
            self._names[path] = _names(path)
        else:
            self._contents[status.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()

    def power_cut(self, host: str) -> None:
        """Lose what the host has not synced, by choice."""
        for directory in self._directories(host):
            before, now = self._names.get(directory, {}), _names(directory)
            for name in sorted({*before, *now}):
                self._lose(Path(directory, name), before.get(name), now.get(name))
        self._damage(self._directory / "usage" / host)
        self._keep(host)

    def _lose(self, path: Path, before: int | None, now: int | None) -> None:
        choose = self._sim.choices.random
        if before != now and choose() < 0.5:
            now = before
            if before is None:
                path.unlink()
            else:
                path.write_bytes(self._contents.get(before, b""))
                return
        is_safe = now is None or now in self._contents or "domains" in path.parts
        if not is_safe and choose() < 0.5:
            path.write_bytes(b"")

    def _damage(self, path: Path) -> None:
        """Lose the first page, or the end, of a file that is never synced."""
        choose = self._sim.choices.random
        if not path.exists():
            return
        with path.open("r+b") as file:
            if choose() < 0.5:
                file.write(bytes(_PAGE))
            if choose() < 0.5:
                file.truncate(int(choose() * path.stat().st_size / _PAGE) * _PAGE)

    def _directories(self, host: str) -> Iterator[str]:
        for name in (f"fences/{host}", f"instances/fake-{host}/domains"):
            path = str(self._directory / name)
            if os.path.isdir(path):
                yield path

    def _flush(self) -> None:
        """Write all that is not synced, as the kernel does from time to time."""
        for host in self._hosts:
            self._keep(host)
        self._sim.after(_FLUSH, self._flush)

    def _keep(self, host: str) -> None:
        for directory in self._directories(host):
            self._names[directory] = _names(directory)
            for name, number in self._names[directory].items():
                self._contents[number] = Path(directory, name).read_bytes()


def _names(directory: str) -> dict[str, int]:
    return {entry.name: entry.inode() for entry in os.scandir(directory)}
