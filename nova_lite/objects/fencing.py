"""Leases of compute hosts that fence themselves, and what is known about a host's fencing."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec


class LeaseRequest(msgspec.Struct, kw_only=True):
    """Request of a host for a lease.

    ``seconds``: from the moment when it was sent, the host runs its ``guests`` for at most so long without a reply. 0:
    the host promises nothing any more. ``guests``: the instances that it and its guard protect. ``number``: grows with
    each request of a start of the daemon (``boot_id``). ``leaves``: the daemon stops as requested, and is not lost.
    """

    host: str
    boot_id: str
    epoch: int
    identity: str
    number: int
    seconds: float
    guests: list[str] = msgspec.field(default_factory=list)
    leaves: bool = False


class Lease(msgspec.Struct, kw_only=True):
    """Lease of a host. ``guests``: the instances that it has to protect from now on."""

    seconds: float
    guests: list[str] = msgspec.field(default_factory=list)


class HostFencing(msgspec.Struct, kw_only=True):
    """State of a host's fencing.

    ``armed``: seconds of the lease after which the host has stopped its protected guests; 0: it promises nothing.
    ``guests``: the instances that it has confirmed. ``fenced``: "", "lease" (it has ended), "off" (the host's power is
    off), or "left" (its daemon was stopped). ``checks``: name, power and error of
    each fence method at the last test.
    """

    host: str
    armed: float = 0.0
    guests: list[str] = msgspec.field(default_factory=list)
    fenced: str = ""
    fenced_at: datetime.datetime | None = None
    fenced_by: str | None = None
    checked_at: datetime.datetime | None = None
    checks: list[dict[str, Any]] = msgspec.field(default_factory=list)

    @property
    def is_fenceable(self) -> bool:
        """True if the host fences itself, or if one of its fence methods worked at the last test."""
        return self.armed > 0 or any(not check["error"] for check in self.checks)
