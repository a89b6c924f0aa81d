#!/usr/bin/env python3
"""A backup policy over a month whose clock is compressed: sizes, durations, retention, and restorations.

The conductor's own code runs with SQLite and a real restic, in one process. Its clock is the test's: a step is some
hours, and a backup of an hourly policy is made in each. The host is a stand-in that uploads what has changed on a disk
of random data. At random steps the conductor dies at a commit or at an operation of the repository, or the file system
of the repository is full. Then the next step continues. Needs root and `restic`::

    benchmarks/backup_month.py --days 30 --hours 24 --megabytes 64 --seed 1

A backup that counts as complete is read from the repository at once. At the end retention must have kept the newest
backups of the hours, days and weeks that the policy names, and no other. Each of them is restored into an image, whose
disk must have the checksum of that moment. The exit status is 0 if all of this holds.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import datetime
import hashlib
import io
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.backups import chain, disk_data
from nova_lite.backups.disk_data import DiskHeader
from nova_lite.backups.repository import Repositories
from nova_lite.base.timing import ConductorTiming
from nova_lite.conductor.backups.scheduled_backups import ScheduledBackups
from nova_lite.conductor.backups.stored_backups import StoredBackups
from nova_lite.db.backups import server_backups
from nova_lite.db.core import models
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.image import images
from nova_lite.image import store
from nova_lite.objects import BackupStatus, ServerBackup
from tests.faults import target
from tests.support.backup_world import Backups, Killed
from tests.support.repository_world import Conductor

BLOCK, MIB = 65536, 1024**2
KEEP = {"keep_hourly": 4, "keep_daily": 7, "keep_weekly": 4}

#: Share of the disk that changes in a step, and of the steps with a fault.
CHANGED, FAULTY = 0.01, 0.25

#: Operations at which the conductor dies.
OPERATIONS = ("store", "forget", "prune")


class Month(Backups):
    """``now``: the time of the database. ``disks``: content of the disk at each backup, as long as it is a base."""

    now = datetime.datetime(2026, 11, 2)

    def __init__(self, path: Path, megabytes: int, step: datetime.timedelta, chance: random.Random) -> None:
        UnitOfWork.now = property(lambda _: self.now)  # type: ignore[assignment,method-assign]
        super().__init__(path)
        self.chance = chance
        self.step = step
        self.repository = path / target.REPOSITORY
        self.disk = bytearray(chance.randbytes(megabytes * MIB))
        self.disks: dict[str, bytes] = {}
        self.sums: dict[str, str] = {}
        #: Time of each backup that was complete after a step.
        self.times: dict[str, datetime.datetime] = {}
        self.conf.set_override("engine", "restic", "server_backups")
        self.repositories = Repositories(str(self.repository), str(path / target.PASSWORD), str(path / "restic-cache"))
        self.engine.images.conductor = Conductor(self)  # type: ignore[assignment]
        self.begin_anew()

    def begin_anew(self) -> None:
        """Restart the conductor."""
        timing = ConductorTiming(backup_retention_interval=0.0, backup_status_interval=0.0, backup_prune_interval=0.0)
        self.stored = StoredBackups(self.engine, self.repositories, timing)
        self.backups = ScheduledBackups(self.engine, timing, self.stored)

    def change_disk(self) -> None:
        blocks = len(self.disk) // BLOCK
        for block in self.chance.sample(range(blocks), max(1, int(blocks * CHANGED))):
            self.disk[block * BLOCK : (block + 1) * BLOCK] = self.chance.randbytes(BLOCK)

    def finish(self, error: str | None = None) -> None:
        """Upload the disk, or what has changed since the base."""
        command = self.compute.commands[-1]
        image, request = command.payload["image"]["id"], command.payload["backup"]
        data = self._stream(request.get("base"))
        self.disks[request["backup_id"]] = bytes(self.disk)
        self.sums[request["backup_id"]] = hashlib.sha256(self.disk).hexdigest()
        Path(store.prepare_below(self.store, store.UPLOADS, str(command.host)), image).write_bytes(data)
        self.db.write(images.update, self.context(admin=True), image, {"status": "saving", "size": len(data)})
        self.reports.finish_action(self.context(), str(command.host), command.action_id, 1, error, "")

    def _stream(self, base: str | None) -> bytes:
        size = len(self.disk)
        extents, then = [(0, size)], self.disks.get(base or "")
        if then is not None:
            changed = [at for at in range(0, size, BLOCK) if self.disk[at : at + BLOCK] != then[at : at + BLOCK]]
            extents = disk_data.coalesced((at, BLOCK) for at in changed)
        stream = io.BytesIO()
        disk_data.write_header(stream, DiskHeader(size=size, data=extents, base=base if then is not None else None))
        for offset, length in extents:
            stream.write(self.disk[offset : offset + length])
        return stream.getvalue()

    def work(self) -> None:
        """Do what conductors do at this time, until nothing is left to do."""
        self.backups.run()
        self.finish_if_begun()
        for _ in range(3):
            self.backups.run()
            self.stored.run()

    def complete(self) -> list[ServerBackup]:
        return self.rows(status=BackupStatus.COMPLETE)

    def check(self) -> None:
        """Read the newest complete backup from the repository."""
        newest = self.complete()[0]
        chain.verify(self.repositories.of_project(newest.project_id), newest)
        self.times |= {row.id: row.scheduled_for for row in self.complete()}
        for known in set(self.disks) - {newest.id}:
            del self.disks[known]

    def has_kept_what_it_should(self) -> bool:
        """Check that the complete backups are the newest of the last hours, days and weeks that had one."""
        kept: set[str] = set()
        for number, of in zip(KEEP.values(), ("%Y-%m-%d %H", "%Y-%m-%d", "%G-%V"), strict=True):
            newest = {time.strftime(of): known for known, time in sorted(self.times.items(), key=lambda item: item[1])}
            kept |= set(list(newest.values())[-number:])
        return {row.id for row in self.complete()} == kept

    def restore(self, backup: ServerBackup) -> tuple[float, bool]:
        """Make an image of a backup. Return the seconds, and whether its disk is the one of that moment."""
        began = time.monotonic()
        self.db.write(server_backups.want_image, self.context(), backup.id)
        self.stored.run()
        seconds = time.monotonic() - began
        shown = self.db.read(server_backups.get, self.context(), backup.id)
        path = Path(store.file_path(str(self.store), str(shown.restored_image_id)))
        raw = path.with_suffix(".raw")
        subprocess.run(["qemu-img", "convert", "-O", "raw", path, raw], check=True)
        is_right = hashlib.sha256(raw.read_bytes()).hexdigest() == self.sums[backup.id]
        raw.unlink()
        self.db.write(images.drop, [str(shown.restored_image_id)])
        path.unlink()
        return seconds, is_right


@contextlib.contextmanager
def fault(world: Month, chance: random.Random) -> Iterator[str]:
    """Break one step: the conductor dies at the n-th commit or operation, before or after it; or the target is full."""
    with pytest.MonkeyPatch.context() as patched:
        if chance.random() < 1 / 3:
            ballast = target.fill(world.repository)
            try:
                yield "target full"
            finally:
                ballast.unlink()
            return
        left, is_after, write = [chance.randrange(1, 10)], chance.random() < 1 / 2, world.db.write

        def passing(act: Callable[[], Any]) -> Any:
            left[0] -= 1
            if left[0]:
                return act()
            if is_after:
                act()
            raise Killed

        def named_write(function: Any, *arguments: Any, **named: Any) -> Any:
            if function.__module__ != server_backups.__name__:
                return write(function, *arguments, **named)
            return passing(lambda: write(function, *arguments, **named))

        patched.setattr(world.db, "write", named_write)
        of_project = world.repositories.of_project

        def dying(project_id: str, may_be_missing: bool = False) -> Any:
            repository = of_project(project_id, may_be_missing)
            for name in OPERATIONS:
                act = getattr(repository, name)
                setattr(repository, name, lambda *args, act=act: passing(lambda: act(*args)))
            return repository

        patched.setattr(world.repositories, "of_project", dying)
        yield "conductor dies"


def step(
    world: Month, chance: random.Random, seconds: dict[str, list[float]], faults: collections.Counter[str]
) -> None:
    """Pass a step of time and make a backup, perhaps with a fault first."""
    world.now += world.step
    world.change_disk()
    if chance.random() < FAULTY:
        before = {row.id for row in world.complete()}
        with fault(world, chance) as what, contextlib.suppress(Killed):
            world.work()
        faults[what] += 1
        world.begin_anew()
        for row in world.complete():
            if row.id not in before:
                chain.verify(world.repositories.of_project(row.project_id), row)
        world.now += datetime.timedelta(minutes=5)
        world.reconciler.sweep()
    began = time.monotonic()
    world.work()
    kind = "increment" if world.complete()[0].base_id else "whole"
    seconds[kind].append(time.monotonic() - began)
    world.check()


def used(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def table(world: Month, seconds: dict[str, list[float]]) -> bool:
    """Restore all kept backups, print the table, and return whether all of them are right."""
    rows: dict[str, list[tuple[float, bool, int]]] = {"whole": [], "increment": []}
    for backup in world.complete():
        rows["increment" if backup.base_id else "whole"].append((*world.restore(backup), backup.size or 0))
    print("| Backup | Made | Median s | Kept | Median MB | Median s to restore | Longest | Right checksum |")
    print("|---|---|---|---|---|---|---|---|")
    for kind, found in rows.items():
        if found:
            made, restored = seconds[kind], [item[0] for item in found]
            size = statistics.median(item[2] for item in found) / MIB
            right = sum(item[1] for item in found)
            figures = (len(made), f"{statistics.median(made):.1f}" if made else "-", len(found), f"{size:.1f}")
            words = (*figures, f"{statistics.median(restored):.1f}", f"{max(restored):.1f}", f"{right} of {len(found)}")
            print(f"| {kind} | {' | '.join(map(str, words))} |")
    return all(item[1] for found in rows.values() for item in found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--hours", type=int, default=6, help="between two backups")
    parser.add_argument("--megabytes", type=int, default=64, help="of the disk")
    parser.add_argument("--minutes", type=float, default=60, help="end the month early after this real time")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance, interval = random.Random(options.seed), datetime.timedelta(hours=options.hours)
    with tempfile.TemporaryDirectory(prefix="nova-lite-month-") as directory, contextlib.ExitStack() as stack:
        path = Path(directory)
        stack.enter_context(target.small(path, 8 * options.megabytes))
        world = Month(path, options.megabytes, interval, chance)
        world.db.write(lambda uow: uow.change(sa.update(models.BackupPolicy).values(**KEEP)))
        seconds: dict[str, list[float]] = {"whole": [], "increment": []}
        faults: collections.Counter[str] = collections.Counter()
        largest = 0
        began, deadline = world.now, time.monotonic() + 60 * options.minutes
        while world.now - began < datetime.timedelta(days=options.days) and time.monotonic() < deadline:
            step(world, chance, seconds, faults)
            largest = max(largest, used(world.repository))
        kept = collections.Counter(str(row.status) for row in world.rows())
        is_right = table(world, seconds)
        is_kept = world.has_kept_what_it_should()
        size = used(world.repository)
        print(
            f"{(world.now - began).days} days, a backup every {options.hours} hours, a disk of "
            f"{options.megabytes} MiB, {CHANGED:.0%} changed in each step; seed {options.seed}. "
            f"Faults: {dict(faults)}. Rows: {dict(kept)}. Repository: {size / MIB:.0f} MiB, at most "
            f"{largest / MIB:.0f} MiB. {len(world.times)} were complete, and retention has kept "
            f"{'what it should' if is_kept else 'WRONG ONES'}."
        )
    return 0 if is_right and is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
