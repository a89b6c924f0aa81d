"""Marks by which hosts find out that they share a directory of disks.

::

    <instances_path>/_marks/<host>    two secret random marks, the newest first

Each host holds a lock on its own file. A mark is replaced every few minutes. So a copy of the directory differs from
the directory itself: its marks are old, and no process holds a lock on its files. See docs/adr/0037.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Callable

from nova_lite.base import ofd_locks
from nova_lite.objects import StorageView

LOG = logging.getLogger(__name__)

#: Directory of the marks, beside those of instances.
MARKS = "_marks"

#: Seconds for which a mark is the newest one. The one before it stays valid as long again.
LIFETIME = 300.0

#: Most files of other hosts that are read.
MAX_FILES = 2000

_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_CONTENT = re.compile(rb"([0-9a-f]{32})\n([0-9a-f]{32})\n")
_SIZE = 66


class Marks:
    """The marks in one directory of disks. ``clock``: seconds, monotonic."""

    def __init__(self, instances_path: str, host: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory = os.path.join(instances_path, MARKS)
        self._host = host
        self._clock = clock
        self._descriptor: int | None = None
        self._marks: list[str] = []
        self._made_at = 0.0
        #: The last look has failed, which was logged.
        self._has_failed = False

    def look(self) -> StorageView:
        """Renew the own mark if it is old, and return what is in the directory. Raises OSError."""
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        try:
            self._keep()
        except OSError as error:
            if not self._has_failed:
                LOG.warning("Disks here are not shared with other hosts: %s has no locks: %s", self._directory, error)
            self._has_failed = True
            self._close()
            return StorageView()
        self._has_failed = False
        view = StorageView(marks=list(self._marks))
        for name in sorted(os.listdir(self._directory))[:MAX_FILES]:
            if name != self._host and _HOST.fullmatch(name):
                marks, is_live = self._read(name)
                if marks:
                    view.seen[name] = marks
                if marks and is_live:
                    view.live.append(name)
        return view

    def read(self, host: str) -> list[str]:
        """Return the marks of a host, as they are in the directory now. Empty: there are none."""
        if host == self._host:
            return list(self._marks)
        return self._read(host)[0] if _HOST.fullmatch(host) else []

    def _read(self, host: str) -> tuple[list[str], bool]:
        """Return the marks of another host, and whether a daemon holds them. Another host may have written anything."""
        try:
            descriptor = os.open(os.path.join(self._directory, host), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return [], False
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_size != _SIZE:
                return [], False
            match = _CONTENT.fullmatch(os.pread(descriptor, _SIZE + 1, 0))
            is_live = ofd_locks.is_locked(descriptor)
            return ([part.decode() for part in match.groups()] if match else []), is_live
        except OSError as error:
            LOG.warning("The marks of host %s cannot be read: %s", host, error)
            return [], False
        finally:
            os.close(descriptor)

    def _keep(self) -> None:
        """Hold the lock on the own file, and write a new mark if the newest one is old. Raises OSError."""
        path = os.path.join(self._directory, self._host)
        if self._descriptor is not None and not self._is_own(path):
            self._close()
        if self._descriptor is None:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                ofd_locks.lock(descriptor)
            except OSError:
                os.close(descriptor)
                raise
            self._descriptor = descriptor
            match = _CONTENT.fullmatch(os.pread(descriptor, _SIZE + 1, 0))
            self._marks = [match[1].decode()] if match else [secrets.token_hex(16)]
            self._write()
        elif self._clock() - self._made_at >= LIFETIME:
            self._write()

    def _is_own(self, path: str) -> bool:
        """Check whether the open file is still the one at the path: the directory may be mounted elsewhere by now."""
        assert self._descriptor is not None
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.lstat(path))
        except FileNotFoundError:
            return False

    def _write(self) -> None:
        assert self._descriptor is not None
        marks = [secrets.token_hex(16), self._marks[0]]
        os.pwrite(self._descriptor, "".join(f"{mark}\n" for mark in marks).encode(), 0)
        os.ftruncate(self._descriptor, _SIZE)
        os.fsync(self._descriptor)
        self._marks, self._made_at = marks, self._clock()

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor, self._marks = None, []
