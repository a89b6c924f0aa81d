"""Snapshot points: states of a server's own disk, and perhaps of its memory, to which it can be reverted."""

from __future__ import annotations

import datetime
import enum

import msgspec


class PointState(enum.StrEnum):
    """State of a snapshot point. A server is reverted to an available one alone. One in error can be deleted."""

    CREATING = "creating"
    AVAILABLE = "available"
    REVERTING = "reverting"
    DELETING = "deleting"
    ERROR = "error"


class SnapshotPoint(msgspec.Struct, kw_only=True):
    """Snapshot point of a server.

    ``parent_id``: the point from which the disk came when this one was made. ``is_current``: the disk came from it.
    ``memory_of``: what the guest of the memory was; None: the point has no memory. The memory fits this guest alone.
    """

    id: str
    name: str
    description: str | None = None
    parent_id: str | None = None
    state: PointState = PointState.CREATING
    is_current: bool = False
    memory_of: list[str] | None = None
    created_at: datetime.datetime
