"""Use of instances in a period."""

from __future__ import annotations

import datetime

import msgspec


class InstanceUsage(msgspec.Struct, kw_only=True):
    """Use of one instance. ``hours``: within the period. ``uptime``: seconds of its whole life. ``flavor``: name."""

    uuid: str
    name: str
    project_id: str
    flavor: str
    vcpus: int
    memory_mb: int
    local_gb: int
    hours: float
    vm_state: str
    started_at: datetime.datetime
    ended_at: datetime.datetime | None = None
    uptime: int = 0
