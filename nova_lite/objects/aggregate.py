"""Host aggregates."""

from __future__ import annotations

import datetime

import msgspec


class Aggregate(msgspec.Struct, kw_only=True):
    """Host aggregate: names of hosts, and metadata for all of them. ``availability_zone`` is also in ``metadata``, as
    in Nova."""

    id: int = 0
    uuid: str = ""
    name: str
    availability_zone: str | None = None
    hosts: list[str] = msgspec.field(default_factory=list)
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None
