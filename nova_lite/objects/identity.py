"""Records of the identity service, as they are stored: users, projects, and everything else that it knows."""

from __future__ import annotations

from typing import Any

import msgspec


class IdentityRecord(msgspec.Struct, kw_only=True):
    """Record of a ``kind`` with an ``id``. ``data``: its fields; None for a deleted record."""

    kind: str
    id: str
    data: dict[str, Any] | None = None


class SealedIdentityRecords(msgspec.Struct, kw_only=True):
    """`IdentityRecords` in a message. ``sealed``: the records, for the caller alone; empty if there are none.

    ``public_key``: that of all conductors, to which the API seals changes.
    """

    version: int
    complete: bool
    sealed: str
    public_key: str


class IdentityRecords(msgspec.Struct, kw_only=True):
    """Records that changed since a version, and the version of the last change.

    ``complete``: these are all records, in the order of their creation, and the reader forgets its earlier records.
    """

    version: int
    records: list[IdentityRecord] = msgspec.field(default_factory=list)
    complete: bool = False
