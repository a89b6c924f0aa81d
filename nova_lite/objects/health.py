"""Health of a compute host's machine, as the host sees it."""

from __future__ import annotations

import datetime
import enum

import msgspec


class ProblemKind(enum.StrEnum):
    """Parts of a machine that are watched. ``STORAGE``: the directory of the servers' disks."""

    MEMORY = "memory"
    DISK = "disk"
    NETWORK = "network"
    STORAGE = "storage"


class HostProblem(msgspec.Struct, kw_only=True, frozen=True):
    """A sign that a machine will fail. ``key``: the same while the problem lasts, unique on the host."""

    key: str
    kind: str
    text: str


class HostHealth(msgspec.Struct, kw_only=True):
    """Problems of a host, and what conductors have done about them.

    ``state``: "", "disabled", "draining" or "drained". ``since``: by key of a problem.
    """

    host: str
    problems: list[HostProblem]
    since: dict[str, datetime.datetime]
    state: str = ""
