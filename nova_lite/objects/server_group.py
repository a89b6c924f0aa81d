"""Server groups, as users see them. `InstanceGroup` is the view of the scheduler."""

from __future__ import annotations

import datetime

import msgspec

#: Rule of anti-affinity: number of a group's servers on one host.
MAX_PER_HOST = "max_server_per_host"


class ServerGroup(msgspec.Struct, kw_only=True):
    """Server group. ``id`` is the public uuid. ``policy``: affinity, anti-affinity, soft-affinity, soft-anti-affinity.
    ``rules``: ``max_server_per_host`` for anti-affinity. ``members``: uuids of instances."""

    id: str = ""
    name: str
    policy: str
    rules: dict[str, int] = msgspec.field(default_factory=dict)
    members: list[str] = msgspec.field(default_factory=list)
    project_id: str = ""
    user_id: str = ""
    created_at: datetime.datetime | None = None
