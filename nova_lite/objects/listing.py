"""Parts of lists that callers need."""

from __future__ import annotations

import datetime

import msgspec


class ListQuery(msgspec.Struct, kw_only=True):
    """Rows of a list in the order of their ids.

    ``filters``: accepted values by the name of a field. ``marker``: the last id that the caller has. ``limit``: the
    number of rows; None: all. ``backwards``: descending order.
    """

    filters: dict[str, list[str]] = msgspec.field(default_factory=dict)
    marker: str | None = None
    limit: int | None = None
    backwards: bool = False


class ImageQuery(msgspec.Struct, kw_only=True):
    """Images of a list.

    ``filters``: accepted values by the name of a field. ``minimums``, ``maximums``: of numbers. ``earliest``,
    ``latest``: of times. ``community``: with community images of other projects. ``sort_keys``, ``sort_dirs``: as
    `nova_lite.db.core.paging.Order` has them. ``marker``: id of the last image that the caller has.
    """

    filters: dict[str, list[str]] = msgspec.field(default_factory=dict)
    minimums: dict[str, int] = msgspec.field(default_factory=dict)
    maximums: dict[str, int] = msgspec.field(default_factory=dict)
    earliest: dict[str, datetime.datetime] = msgspec.field(default_factory=dict)
    latest: dict[str, datetime.datetime] = msgspec.field(default_factory=dict)
    community: bool = True
    sort_keys: list[str] = msgspec.field(default_factory=lambda: ["created_at"])
    sort_dirs: list[str] = msgspec.field(default_factory=lambda: ["desc"])
    marker: str | None = None
    limit: int | None = None
