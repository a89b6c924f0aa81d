"""Signs that a Linux host will fail: memory errors, disks, cables and cards, and the directory of servers' disks.

All of it comes from the kernel's files, and from ``smartctl`` if it is installed. A value that cannot be read is no
problem: a machine without ECC memory has no counters, for example.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import secrets
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from oslo_config import cfg

from nova_lite.base import concurrency
from nova_lite.objects import HostProblem, ProblemKind

LOG = logging.getLogger(__name__)

_SYS = Path("/sys")

_HOUR = 3600.0
#: Readings of memory errors within a day.
_READINGS = 25

#: Seconds between two readings of all disks' SMART, and for one of them.
SMART_INTERVAL, SMART_SECONDS = 3600.0, 20.0
#: Most disks that are read.
MAX_DISKS = 256
_DEVICE = re.compile(r"/dev/[A-Za-z0-9][A-Za-z0-9/_.-]{0,120}")
_DEVICE_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9+,/_.-]{0,60}")
#: Bit of smartctl's exit status: the device could not be opened.
_NOT_OPENED = 2

#: Corrected memory errors of one controller within a day that are a problem.
CORRECTED_ERRORS = 1000
#: Percentage of a card's packets with errors between two looks that is a problem.
ERROR_PERCENT = 1.0
#: Least number of packets with errors between two looks that counts.
LEAST_ERRORS = 10

#: Seconds that a look waits for the directory of disks, and after which the directory is a problem.
STORAGE_WAIT, STORAGE_HANGS = 2.0, 60.0
#: Prefix of the file that is written there for a moment.
PROBE = ".health-"
#: Errors that say nothing about the health of a disk.
_FULL = (errno.ENOSPC, errno.EDQUOT)


class HostChecks:
    """The checks that ``[host_health] checks`` names."""

    def __init__(self, conf: cfg.ConfigOpts, instances_path: str) -> None:
        options = conf.host_health
        smart, raid = Smart(), Raid()
        checks: dict[str, tuple[Callable[[], Iterable[HostProblem]], ...]] = {
            ProblemKind.MEMORY: (MemoryErrors(CORRECTED_ERRORS).check,),
            ProblemKind.DISK: (smart.check, raid.check),
            ProblemKind.NETWORK: (Uplinks(options.uplinks, ERROR_PERCENT).check,),
            ProblemKind.STORAGE: (Storage(instances_path).check,),
        }
        self._checks = [check for kind in options.checks for check in checks[kind]]

    def check(self) -> list[HostProblem]:
        return [problem for check in self._checks for problem in check()]


class MemoryErrors:
    """Errors that the memory controllers have counted since the machine's start (EDAC).

    ``per_day``: corrected errors from which a controller has a problem; 0: they do not matter.
    """

    def __init__(self, per_day: int, sys: Path = _SYS, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_day = per_day
        self._directory = sys / "devices" / "system" / "edac" / "mc"
        self._clock = clock
        self._readings: dict[str, deque[tuple[float, int]]] = {}

    def check(self) -> Iterator[HostProblem]:
        for controller in sorted(self._directory.glob("mc[0-9]*")):
            name = controller.name
            if uncorrected := _number(controller / "ue_count"):
                text = f"Memory controller {name}: {uncorrected} uncorrected errors since the machine's start."
                yield HostProblem(key=f"memory/uncorrected/{name}", kind=ProblemKind.MEMORY, text=text)
            corrected = _number(controller / "ce_count")
            if corrected is not None and self._per_day:
                number = self._within_a_day(name, corrected)
                if number >= self._per_day:
                    text = f"Memory controller {name}: {number} corrected errors within a day."
                    yield HostProblem(key=f"memory/corrected/{name}", kind=ProblemKind.MEMORY, text=text)

    def _within_a_day(self, name: str, count: int) -> int:
        """Note a reading once an hour, and return the errors since the oldest one."""
        readings = self._readings.setdefault(name, deque(maxlen=_READINGS))
        now = self._clock()
        if not readings or now - readings[-1][0] >= _HOUR:
            readings.append((now, count))
        return max(0, count - readings[0][1])


class Smart:
    """Verdicts of disks on themselves. ``run``: runs smartctl, and returns its exit status and output."""

    def __init__(
        self,
        run: Callable[..., tuple[int, str] | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run or _smartctl
        self._clock = clock
        self._next = float("-inf")
        self._found: list[HostProblem] = []
        self._unreadable: set[str] = set()

    def check(self) -> list[HostProblem]:
        """Return the last verdicts. They are read again once an hour, without waking sleeping disks."""
        if self._clock() >= self._next:
            self._next = self._clock() + SMART_INTERVAL
            self._found = list(self._read())
        return self._found

    def _read(self) -> Iterator[HostProblem]:
        for device, kind in self._devices()[:MAX_DISKS]:
            result = self._run("-H", "-j", "-n", "standby", "-d", kind, device)
            if result is None:
                continue
            status, text = result
            if status & _NOT_OPENED and device not in self._unreadable:
                self._unreadable.add(device)
                LOG.warning("SMART of disk %s cannot be read: it sleeps, or this daemon has no permission", device)
            verdict = _parsed(text).get("smart_status")
            if isinstance(verdict, dict) and verdict.get("passed") is False:
                text = f"Disk {device} says that it fails (SMART)."
                yield HostProblem(key=f"disk/smart/{device}/{kind}", kind=ProblemKind.DISK, text=text)

    def _devices(self) -> list[tuple[str, str]]:
        result = self._run("--scan", "-j")
        devices = [] if result is None else _parsed(result[1]).get("devices")
        pairs = [
            (str(item.get("name")), str(item.get("type")))
            for item in (devices if isinstance(devices, list) else ())
            if isinstance(item, dict)
        ]
        return [pair for pair in pairs if _DEVICE.fullmatch(pair[0]) and _DEVICE_TYPE.fullmatch(pair[1])]


def _smartctl(*arguments: str) -> tuple[int, str] | None:
    """Run smartctl. Return its exit status and output, or None if it is not installed or does not end."""
    program = shutil.which("smartctl", path="/usr/sbin:/usr/bin:/sbin:/bin")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=SMART_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        LOG.warning("smartctl %s did not end within %.0f s", " ".join(arguments), SMART_SECONDS)
        return None
    return done.returncode, done.stdout


def _parsed(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


class Raid:
    """Arrays of the kernel that lack devices."""

    def __init__(self, sys: Path = _SYS) -> None:
        self._directory = sys / "block"

    def check(self) -> Iterator[HostProblem]:
        for array in sorted(self._directory.glob("md*")):
            if missing := _number(array / "md" / "degraded"):
                devices = _number(array / "md" / "raid_disks") or "its"
                text = f"RAID {array.name} lacks {missing} of {devices} devices."
                yield HostProblem(key=f"disk/raid/{array.name}", kind=ProblemKind.DISK, text=text)


class Uplinks:
    """Physical cards in bridges and bonds, and others that are named.

    A card that no operator has named counts once it had a link, so that an empty socket is no problem. ``percent``: of
    packets with errors between two looks.
    """

    def __init__(self, names: Iterable[str], percent: float, sys: Path = _SYS) -> None:
        self._names = set(names)
        self._percent = percent
        self._directory = sys / "class" / "net"
        self._had_link: set[str] = set()
        self._counters: dict[str, tuple[int, int]] = {}

    def check(self) -> Iterator[HostProblem]:
        for card in sorted(self._directory.iterdir()) if self._directory.is_dir() else ():
            name = card.name
            is_member = (card / "device").exists() and ((card / "brport").exists() or (card / "master").exists())
            carrier = _number(card / "carrier") if name in self._names or is_member else None
            if carrier:
                self._had_link.add(name)
            if carrier == 0 and (name in self._names or name in self._had_link):
                text = f"Network card {name} has no link."
                yield HostProblem(key=f"network/link/{name}", kind=ProblemKind.NETWORK, text=text)
            if carrier is not None and (share := self._errors(card)) is not None:
                text = f"Network card {name}: {share:.1f} % of its packets have errors."
                yield HostProblem(key=f"network/errors/{name}", kind=ProblemKind.NETWORK, text=text)
        for name in sorted(name for name in self._names if not (self._directory / name).exists()):
            text = f"Network card {name} is missing."
            yield HostProblem(key=f"network/link/{name}", kind=ProblemKind.NETWORK, text=text)

    def _errors(self, card: Path) -> float | None:
        """Return the percentage of packets with errors since the last look, if it is high enough."""
        counters = [
            sum(_number(card / "statistics" / f"{way}_{name}") or 0 for way in ("rx", "tx"))
            for name in ("errors", "packets")
        ]
        now = counters[0], counters[1]
        before = self._counters.get(card.name, now)
        self._counters[card.name] = now
        errors, packets = now[0] - before[0], now[1] - before[1]
        if errors < LEAST_ERRORS or packets < 0:
            return None
        share = 100 * errors / (errors + packets)
        return share if share >= self._percent else None


class Storage:
    """The directory of servers' disks: a small file is written there and read again, in a native thread.

    A file system without a server may hang for ever. Then no further thread begins. ``patience``: seconds that a look
    waits.
    """

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic, patience: float = STORAGE_WAIT) -> None:
        self._path = path
        self._patience = patience
        self._clock = clock
        self._begun: float | None = None
        self._ended = False
        self._error: OSError | None = None

    def check(self) -> list[HostProblem]:
        if self._begun is None:
            self._begun, self._ended, self._error = self._clock(), False, None
            concurrency.native_thread(self._probe, "storage-health")
            self._wait()
        if not self._ended:
            seconds = self._clock() - self._begun
            if seconds < STORAGE_HANGS:
                return []
            return [self._problem("hangs", f"does not answer for {seconds:.0f} s")]
        self._begun = None
        if self._error is None or self._error.errno in _FULL:
            return []
        is_read_only = self._error.errno == errno.EROFS
        return [self._problem("errors", "is read-only" if is_read_only else f"has errors ({self._error.strerror})")]

    def _problem(self, what: str, text: str) -> HostProblem:
        return HostProblem(key=f"storage/{what}", kind=ProblemKind.STORAGE, text=f"Directory {self._path} {text}.")

    def _wait(self) -> None:
        deadline = time.monotonic() + self._patience
        while not self._ended and time.monotonic() < deadline:
            time.sleep(0.01)

    def _probe(self) -> None:
        """Run in a native thread: no lock, no log, no green thread."""
        try:
            probe_directory(self._path)
        except OSError as error:
            self._error = error
        self._ended = True


def probe_directory(path: str) -> None:
    """Write a file, read it again past the cache if the file system can, and remove it. Raises OSError."""
    content = secrets.token_bytes(512)
    name = os.path.join(path, f"{PROBE}{secrets.token_hex(8)}")
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.unlink(name)
        os.write(descriptor, content)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        if os.pread(descriptor, len(content), 0) != content:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
    finally:
        os.close(descriptor)


def _number(path: Path) -> int | None:
    """Return a counter of the kernel; None if it does not exist or cannot be read now."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
