"""Directories of guests' disks that several hosts share, and the disks of a server that another host left there."""

from __future__ import annotations

import msgspec


class StorageView(msgspec.Struct, kw_only=True):
    """View of a host into its directory of disks.

    ``marks``: the secret marks that the host keeps there, the newest first; empty if the directory has no file locks.
    ``seen``: the marks of other hosts there, by host. ``live``: the hosts among them whose file is locked, by a daemon
    that runs now.
    """

    marks: list[str] = msgspec.field(default_factory=list)
    seen: dict[str, list[str]] = msgspec.field(default_factory=dict)
    live: list[str] = msgspec.field(default_factory=list)


class StorageReport(msgspec.Struct, kw_only=True):
    """Report of a host about its directory of disks, under the registration ``epoch``."""

    host: str
    epoch: int
    identity: str
    view: StorageView


class DiskPlace(msgspec.Struct, kw_only=True, frozen=True):
    """Host that may have left the disks of a server at this generation. ``marks``: of its last report."""

    host: str
    generation: int
    marks: list[str] = msgspec.field(default_factory=list)


class LeftDisks(msgspec.Struct, kw_only=True, frozen=True):
    """Disks of an evacuated server. The target takes them if it sees them at one of the ``places``.

    ``required``: the target must not make new ones.
    """

    places: list[DiskPlace]
    required: bool = False
