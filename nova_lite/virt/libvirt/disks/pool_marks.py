"""Marks by which hosts find out that they share a pool of Ceph, as `marks` does for a directory.

The metadata of the image ``hosts`` have a value for each host: its marks, and a random word that changes with each
look. A host whose word changes has a daemon that runs now. A mirror of the pool in another Ceph can be written at one
side only, so hosts of both sides do not see each other.
"""

from __future__ import annotations

import errno
import re
import secrets
import time
from collections.abc import Callable

import msgspec

from nova_lite.objects import StorageView
from nova_lite.virt.libvirt.disks.marks import LIFETIME
from nova_lite.virt.rbd import RbdFailure
from nova_lite.virt.rbd_pool import RbdPool

IMAGE = "hosts"

#: Seconds in which the word of a running host changes. It looks every 30 s.
LIVE_SECONDS = 100.0

_VALUE = re.compile(r"([0-9a-f]{32}) ([0-9a-f]{32}) ([0-9a-f]{16})")


class PoolMarks:
    """The marks in one pool. ``clock``: seconds, monotonic."""

    def __init__(self, pool: RbdPool, host: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._pool = pool
        self._host = host
        self._clock = clock
        self._marks: list[str] = []
        self._made_at = 0.0
        #: The last value of each other host, and when it last changed, if that was seen.
        self._changes: dict[str, tuple[str, float | None]] = {}

    def look(self) -> StorageView:
        """Renew the own marks, and return those in the pool. Raises `VirtDriverError`."""
        values = self._values()
        if not self._marks or self._clock() - self._made_at >= LIFETIME:
            last = self._marks or _marks_in(values.get(self._host, "")) or [secrets.token_hex(16)]
            self._marks, self._made_at = [secrets.token_hex(16), last[0]], self._clock()
        value = " ".join([*self._marks, secrets.token_hex(8)])
        self._pool.rbd.run("image-meta set", self._pool.spec(IMAGE), self._host, value)
        view = StorageView(marks=list(self._marks))
        for host, value in sorted(values.items()):
            if host != self._host and (marks := _marks_in(value)):
                view.seen[host] = marks
                if self._is_live(host, value):
                    view.live.append(host)
        return view

    def read(self, host: str) -> list[str]:
        """Return the marks of a host, as they are in the pool now. Empty: there are none."""
        return list(self._marks) if host == self._host else _marks_in(self._values().get(host, ""))

    def _values(self) -> dict[str, str]:
        image = self._pool.spec(IMAGE)
        if not self._pool.exists(IMAGE):
            try:
                # An exclusive lock would let the hosts wait for each other.
                self._pool.rbd.run("create", "--size", "1B", "--image-feature", "layering", image)
            except RbdFailure as error:
                if error.status != errno.EEXIST:
                    raise
        return msgspec.json.decode(
            self._pool.rbd.run("image-meta list", "--format", "json", image) or b"{}", type=dict[str, str]
        )

    def _is_live(self, host: str, value: str) -> bool:
        last, changed_at = self._changes.get(host, (value, None))
        if value != last:
            changed_at = self._clock()
        self._changes[host] = (value, changed_at)
        return changed_at is not None and self._clock() - changed_at < LIVE_SECONDS


def _marks_in(value: str) -> list[str]:
    match = _VALUE.fullmatch(value)
    return [match[1], match[2]] if match else []
