"""Records of the identity service in a test's database or conductor."""

from __future__ import annotations

import dataclasses

from nova_lite.api.identity import tokens
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.replica import Replica, Store
from nova_lite.base import exceptions
from nova_lite.base.timing import TIMING
from nova_lite.objects import IdentityRecord, IdentityRecords

#: Times of a replica that reads the records before each request.
FRESH = dataclasses.replace(TIMING.api, identity_max_age=-1.0)


class MemoryStore:
    """A store without a database. ``reads``: how often it was read."""

    def __init__(self) -> None:
        self.version = self.reads = 0
        self._records: dict[tuple[str, str], tuple[int, IdentityRecord]] = {}

    def read(self, known: int) -> IdentityRecords:
        self.reads += 1
        found = [record for version, record in self._records.values() if version > known]
        if not known:
            found = [record for record in found if record.data is not None]
        return IdentityRecords(version=self.version, records=found, complete=not known)

    def change(self, known: int | None, records: list[IdentityRecord]) -> int:
        if known not in (None, self.version):
            raise exceptions.IdentityChanged()
        self.version += 1
        self._records |= {(record.kind, record.id): (self.version, record) for record in records}
        return self.version


def fresh_replica(store: Store) -> Replica:
    """Return a replica that never has old records."""
    return Replica(store, timing=FRESH)


def keyed_replica(store: Store | None = None) -> Replica:
    """Return a replica with a key for tokens."""
    replica = fresh_replica(store or MemoryStore())

    def add_key(content: Content) -> None:
        tokens.add_key(content, 3)

    replica.change(add_key)
    return replica
