"""Images in a pool of Ceph, by the program ``rbd`` of the package ceph-common.

Names of images are built by callers from ids. All other values come from the configuration, which checks them.
"""

from __future__ import annotations

import calendar
import errno
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from nova_lite.base import exceptions

#: Name of the protocol, for libvirt and others.
PROTOCOL = "rbd"

#: Seconds in which a command that copies no data has to end.
SHORT = 60.0
#: Seconds in which the monitors have to accept the program.
CONNECT_SECONDS = "20"

#: Features of new images. Those after the second make comparisons of snapshots quick.
FEATURES = ("layering", "exclusive-lock", "object-map", "fast-diff", "deep-flatten")

_TIME = "%a %b %d %H:%M:%S %Y"


class RbdFailure(exceptions.VirtDriverError):
    """Failure of the program. ``status``: its exit status, which is an errno."""

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason=reason)
        self.status = status


class Parent(msgspec.Struct, frozen=True):
    """Image that another one is a clone of. ``trash``: it was deleted, and its clones keep its data."""

    pool: str
    id: str
    trash: bool = False


class ImageInfo(msgspec.Struct, frozen=True):
    """Properties of an image. ``size``: bytes. ``created``: Ceph's text of the time, in UTC."""

    id: str
    size: int
    create_timestamp: str = ""
    parent: Parent | None = None

    def age(self) -> float:
        """Return the seconds since the image was created."""
        return time.time() - moment_of(self.create_timestamp)


class Snapshot(msgspec.Struct, frozen=True):
    """Snapshot of an image."""

    name: str
    timestamp: str = ""


class Trashed(msgspec.Struct, frozen=True):
    """Image in the trash. ``source``: Ceph's word for the reason. Empty if the image cannot be opened any more."""

    id: str
    name: str
    source: str = ""


class _Listed(msgspec.Struct, frozen=True):
    """Line of the long list of a pool: an image, or a snapshot of it."""

    image: str
    snapshot: str = ""


class PoolStats(msgspec.Struct, frozen=True):
    """Bytes in a pool, and bytes that it can still have. Copies are not counted."""

    stored: int = 0
    max_avail: int = 0


class _Pool(msgspec.Struct, frozen=True):
    name: str
    stats: PoolStats


class _Usage(msgspec.Struct, frozen=True):
    pools: list[_Pool]


class _Watcher(msgspec.Struct, frozen=True):
    address: str


class _Status(msgspec.Struct, frozen=True):
    watchers: list[_Watcher] = []


class Rbd:
    """The program ``rbd`` with a configuration file of Ceph and a user of Ceph. ``user`` None: no authentication."""

    def __init__(self, config: str, user: str | None) -> None:
        self._options = ["--conf", config, "--client-mount-timeout", CONNECT_SECONDS]
        if user:
            self._options += ["--id", user]

    def run(
        self,
        verb: str,
        *arguments: str,
        timeout: float = SHORT,
        check: Callable[[], None] = lambda: None,
        program: str = "rbd",
    ) -> bytes:
        """Run ``rbd``, or another program of Ceph. Return its output. Raises `RbdFailure` with one line.

        ``check`` is called every second, and may end the program by raising.
        """
        deadline = time.monotonic() + timeout
        try:
            process = subprocess.Popen(
                self._command(program, verb, arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(),
                umask=0o077,
            )
        except OSError as error:
            raise _cannot_run(error) from error
        with process:
            try:
                output, errors = _communicate(process, deadline, check)
            except subprocess.TimeoutExpired as error:
                process.kill()
                raise RbdFailure(f"{program} {verb}: no end within {timeout:g} s", errno.ETIMEDOUT) from error
            except BaseException:
                process.kill()
                raise
        if process.returncode != 0:
            raise RbdFailure(f"{program} {verb}: {_last_line(errors, process.returncode)}", process.returncode)
        return output

    @contextmanager
    def output(self, verb: str, *arguments: str, timeout: float) -> Iterator[Any]:
        """Yield the output of ``rbd`` as a stream, which the caller reads to its end. Raises `RbdFailure`.

        After ``timeout`` the program is killed. So the stream ends, and the failure replaces any error of the caller.
        """
        try:
            process = subprocess.Popen(
                self._command("rbd", verb, arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(),
            )
        except OSError as error:
            raise _cannot_run(error) from error
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            process.kill()

        timer = threading.Timer(timeout, end)
        timer.daemon = True
        timer.start()
        too_late = RbdFailure(f"rbd {verb}: no end within {timeout:g} s", errno.ETIMEDOUT)
        try:
            yield process.stdout
            status = process.wait()
        except BaseException as error:
            process.kill()
            process.wait()
            if is_late.is_set() and isinstance(error, Exception):
                raise too_late from error
            raise
        finally:
            timer.cancel()
            assert process.stdout is not None
            process.stdout.close()
        if status != 0:
            raise too_late if is_late.is_set() else RbdFailure(f"rbd {verb}: it ended with status {status}", status)

    def _command(self, program: str, verb: str, arguments: tuple[str, ...]) -> list[str]:
        return [program, *self._options, *verb.split(), *arguments]

    def info(self, *image: str) -> ImageInfo | None:
        """Return the properties of an image, or None if there is none."""
        try:
            found = self.run("info", "--format", "json", *image)
        except RbdFailure as error:
            if error.status == errno.ENOENT:
                return None
            raise
        return msgspec.json.decode(found, type=ImageInfo)

    def watchers(self, image: str) -> list[str]:
        """Return the addresses of the programs that have the image open for writing."""
        status = msgspec.json.decode(self.run("status", "--format", "json", image), type=_Status)
        return sorted(watcher.address for watcher in status.watchers)

    def images(self, pool: str) -> list[str]:
        """Return the names of a pool's images."""
        return msgspec.json.decode(self.run("ls", "--format", "json", pool), type=list[str])

    def with_snapshots(self, pool: str, beginning: str, timeout: float) -> list[str]:
        """Return the names of images that have snapshots whose names have this beginning. Ceph opens each image."""
        text = self.run("ls", "--long", "--format", "json", pool, timeout=timeout)
        listed = msgspec.json.decode(text, type=list[_Listed])
        return sorted({found.image for found in listed if found.snapshot.startswith(beginning)})

    def stats(self, pool: str) -> PoolStats:
        """Return the use of a pool."""
        usage = msgspec.json.decode(self.run("df", "--format", "json", program="ceph"), type=_Usage)
        found = next((item.stats for item in usage.pools if item.name == pool), None)
        if found is None:
            raise RbdFailure(f"ceph df: there is no pool {pool}", errno.ENOENT)
        return found

    def trash(self, pool: str, timeout: float = SHORT) -> list[Trashed]:
        """Return the images in the pool's trash, also those whose removal continues or was interrupted."""
        short, long = (
            msgspec.json.decode(
                self.run("trash ls", "--all", *options, "--format", "json", pool, timeout=timeout), type=list[Trashed]
            )
            for options in ((), ("--long",))
        )
        # The long list opens each image. It leaves out those without a header.
        sources = {found.id: found.source for found in long}
        return [Trashed(id=found.id, name=found.name, source=sources.get(found.id, "")) for found in short]

    def snapshots(self, image: str) -> list[Snapshot]:
        """Return the snapshots of an image."""
        return msgspec.json.decode(self.run("snap ls", "--format", "json", image), type=list[Snapshot])


def _communicate(process: subprocess.Popen[bytes], deadline: float, check: Callable[[], None]) -> tuple[bytes, bytes]:
    """Return the output and the errors of a program. Raises `subprocess.TimeoutExpired` at the deadline."""
    while True:
        try:
            return process.communicate(timeout=min(1.0, max(0.0, deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            if time.monotonic() >= deadline:
                raise
        check()


def moment_of(text: str) -> float:
    """Return the seconds since 1970 of Ceph's text of a time in UTC. Now for a text that is none."""
    try:
        return float(calendar.timegm(time.strptime(text, _TIME)))
    except ValueError:
        return time.time()


def _environment() -> dict[str, str]:
    """Return an environment in which ``rbd`` prints times in UTC, and reads no options from the environment."""
    kept = {name: value for name, value in os.environ.items() if name != "CEPH_ARGS"}
    return {**kept, "TZ": "UTC", "LC_ALL": "C.UTF-8"}


def _cannot_run(error: OSError) -> RbdFailure:
    return RbdFailure(f"rbd cannot be run: {error.strerror} (package ceph-common)", error.errno or 0)


def _last_line(errors: bytes, status: int) -> str:
    lines = [line.strip() for line in errors.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("rbd: ") if lines else f"it ended with status {status}"
