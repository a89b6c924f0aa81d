"""Copy of the identity service's records in a process, which stores its changes in the database.

A request is authenticated by the copy, so it needs no message of its own. A copy that is older than
`ApiTiming.identity_max_age` is refreshed first, by one small message for all requests. A change by one process of an
API daemon takes effect in all of them with their next request: they share a mark in memory, which the change replaces.
Other API daemons, and changes by nova-lite-manage, follow within the age.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import msgspec

from nova_lite.api.identity.content import KINDS, Content
from nova_lite.base import exceptions
from nova_lite.base.batching import Batcher, BatchLimits
from nova_lite.base.timing import TIMING, ApiTiming
from nova_lite.objects import IdentityRecord, IdentityRecords

LOG = logging.getLogger(__name__)

T = TypeVar("T")

#: Attempts to store a change, when others store theirs meanwhile.
MAX_TRIES = 20

_MARK_BYTES = 16


class Store(Protocol):
    """Store of the records: the conductor, or the database itself."""

    def read(self, known: int) -> IdentityRecords:
        """Return the records that changed after version ``known``."""

    def change(self, known: int | None, records: list[IdentityRecord]) -> int:
        """Store records, and return the new version. Raises `IdentityChanged` if the version is not ``known``."""


class Mark:
    """Memory that a process shares with the processes that it forks. A changed value means changed records."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _MARK_BYTES)

    def value(self) -> bytes:
        return self._memory[:]

    def replace(self) -> None:
        self._memory[:] = os.urandom(_MARK_BYTES)


class Replica:
    """The records, as of at most ``identity_max_age`` seconds ago.

    ``first_content``: returns the records to store in an empty database, or None.
    """

    def __init__(
        self, store: Store, first_content: Callable[[], Content | None] = lambda: None, timing: ApiTiming = TIMING.api
    ) -> None:
        self._store = store
        self._first_content = first_content
        self._max_age = timing.identity_max_age
        self._mark = Mark()
        self._seen = b""
        self._read_at = 0.0
        self._version = 0
        self._data: dict[tuple[str, str], dict[str, Any]] = {}
        self._items: dict[str, dict[str, Any]] = {field: {} for field, _ in KINDS.values()}
        self._content = Content().freeze()
        #: Requests that need fresh records share a message. None gets records that were read before it arrived.
        self._reads: Batcher[None, None] = Batcher(self._read, BatchLimits(max_batch=10_000, max_in_flight=1))

    @property
    def content(self) -> Content:
        """The current records, which must not be changed."""
        if self._mark.value() != self._seen or time.monotonic() - self._read_at > self._max_age:
            self.refresh()
        return self._content

    def refresh(self) -> Content:
        """Read what has changed."""
        self._reads.submit(None)
        return self._content

    def change(self, function: Callable[[Content], T]) -> T:
        """Call ``function`` with records that it may change, store its changes, and return its result.

        It is called again if other changes were stored meanwhile. Nothing is stored if it raises an error.
        """
        for _ in range(MAX_TRIES - 1):
            with contextlib.suppress(exceptions.IdentityChanged):
                return self._change_once(function)
        return self._change_once(function)

    @contextlib.contextmanager
    def changing(self) -> Iterator[Content]:
        """Open the records for changes, which are stored if the block ends without an error.

        Raises `IdentityChanged` if others were stored meanwhile.
        """
        version, content = self._copy()
        yield content
        self._save(version, content)

    def add(self, *records: Any) -> None:
        """Store new records that depend on no others."""
        self._store_records(None, [_record(item) for item in records])

    def remove(self, kind: type[Any], ids: list[str]) -> None:
        """Delete records that no others depend on."""
        self._store_records(None, [IdentityRecord(kind=_KIND_OF[kind], id=id) for id in ids])

    # --- changes

    def _change_once(self, function: Callable[[Content], T]) -> T:
        version, content = self._copy()
        result = function(content)
        self._save(version, content)
        return result

    def _copy(self) -> tuple[int, Content]:
        self.refresh()
        version, content = self._version, self._content
        return version, msgspec.msgpack.decode(msgspec.msgpack.encode(content), type=Content)

    def _save(self, version: int, content: Content) -> None:
        check(content)
        before = self._data
        records = []
        for kind, (field, _) in KINDS.items():
            found = {item.id: msgspec.to_builtins(item) for item in getattr(content, field)}
            # Fields that a newer program has stored are kept.
            merged = {id: before.get((kind, id), {}) | data for id, data in found.items()}
            records += [
                IdentityRecord(kind=kind, id=id, data=data)
                for id, data in merged.items()
                if before.get((kind, id)) != data
            ]
            records += [IdentityRecord(kind=kind, id=id) for id in self._items[field].keys() - found.keys()]
        if records:
            self._store_records(version, records)

    def _store_records(self, version: int | None, records: list[IdentityRecord]) -> None:
        try:
            self._store.change(version, records)
        finally:
            # The change may have been stored in spite of an error.
            self._mark.replace()

    # --- reading

    def _read(self, requests: list[None]) -> list[None]:
        seen, now = self._mark.value(), time.monotonic()
        found = self._store.read(self._version)
        if not found.version and self._import():
            found = self._store.read(0)
        if found.version != self._version or found.complete:
            self._apply(found)
        self._seen, self._read_at = seen, now
        return requests

    def _import(self) -> bool:
        """Store the first records in the empty database. Returns whether there are any now."""
        content = self._first_content()
        if content is None:
            return False
        records = [_record(item) for field, _ in KINDS.values() for item in getattr(content, field)]
        try:
            self._store.change(0, records)
        except exceptions.IdentityChanged:
            return True  # another process was first
        LOG.info(
            "Stored %d users and %d projects in the database; [identity] users_file and tokens_path are not read any "
            "more and can be deleted",
            len(content.users),
            len(content.projects),
        )
        return True

    def _apply(self, found: IdentityRecords) -> None:
        data = {} if found.complete else dict(self._data)
        items: dict[str, dict[str, Any]] = {
            field: {} if found.complete else dict(self._items[field]) for field, _ in KINDS.values()
        }
        for record in found.records:
            field, type_ = KINDS.get(record.kind, ("", object))
            if not field:
                continue  # of a newer program
            if record.data is None:
                data.pop((record.kind, record.id), None)
                items[field].pop(record.id, None)
                continue
            try:
                items[field][record.id] = msgspec.convert(record.data, type_)
            except msgspec.ValidationError as error:
                LOG.error("Record %s of kind %s is not used, it cannot be read: %s", record.id, record.kind, error)
                items[field].pop(record.id, None)
            data[record.kind, record.id] = record.data
        content = Content(**{field: list(of_kind.values()) for field, of_kind in items.items()}).freeze()
        self._data, self._items, self._content, self._version = data, items, content, found.version


_KIND_OF = {type_: kind for kind, (_, type_) in KINDS.items()}


def _record(item: Any) -> IdentityRecord:
    return IdentityRecord(kind=_KIND_OF[type(item)], id=item.id, data=msgspec.to_builtins(item))


def check(content: Content) -> None:
    """Raise `ValueError` if the records contradict each other."""
    for kind, items in (("user", content.users), ("project", content.projects), ("group", content.groups)):
        for field, values in (
            ("id", [item.id for item in items]),
            ("name", [f"{item.name} in domain {item.domain_id}" for item in items]),
        ):
            if len(set(values)) != len(values):
                twice = next(value for value in values if values.count(value) > 1)
                raise ValueError(f"two {kind}s have the {field} {twice}")
