"""Records of the identity service. All of them have one version, which grows with each change.

Every API process has a copy of all records, and reads those with a later version than its own. A change names the
version that it was made of. It is refused if there was another one since, so a change may depend on any records. The
lock of the version's row puts changes in order: a reader that knows a version has seen all before it.
"""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from nova_lite.base import exceptions, sealing
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.models import IdentityRecord as Row
from nova_lite.db.core.models import IdentityVersion
from nova_lite.db.core.statements import insert_if_missing
from nova_lite.objects import IdentityRecord, IdentityRecords

#: Number of versions for which a deleted record is remembered. A reader with an older version gets all records.
REMEMBERED = 10_000

#: Ids in one statement.
IDS = 500


def read(uow: UnitOfWork, known: int) -> IdentityRecords:
    """Return the records that changed after version ``known``; all records if that is 0, too old, or from later than
    now, as after the database was restored.
    """
    version = _version(uow)
    complete = not version - REMEMBERED < known <= version or not known
    query = sa.select(Row.kind, Row.key, Row.data).order_by(Row.id)
    query = query.where(Row.data.is_not(None)) if complete else query.where(Row.version > known)
    records = [] if known == version else [_record(*row) for row in uow.rows(query)]
    return IdentityRecords(version=version, records=records, complete=complete)


def change(uow: UnitOfWork, known: int | None, records: list[IdentityRecord]) -> int:
    """Store records, and return the new version. ``known``: the version that the change was made of; None: any.

    Raises `IdentityChanged` if there was another change since.
    """
    _add_version(uow)
    later = sa.update(IdentityVersion).values(version=IdentityVersion.version + 1)
    if known is not None:
        later = later.where(IdentityVersion.version == known)
    if not uow.change(later):
        raise exceptions.IdentityChanged()
    version = _version(uow)
    rows = _rows(uow, records)
    for record in records:
        row = rows.get((record.kind, record.id))
        if row is None:
            row = rows[record.kind, record.id] = Row(kind=record.kind, key=record.id)
            uow.session.add(row)
        row.version, row.data = version, record.data
    uow.session.flush()
    uow.change(sa.delete(Row).where(Row.data.is_(None), Row.version <= version - REMEMBERED))
    return version


def private_key(uow: UnitOfWork) -> str:
    """Return the private key that all conductors share. The first call makes it."""
    _add_version(uow)
    row = uow.session.scalars(sa.select(IdentityVersion).with_for_update()).one()
    if not row.private_key:
        row.private_key = sealing.new_private_key()
    return row.private_key


def _add_version(uow: UnitOfWork) -> None:
    """Add the row of the version, which the first change needs."""
    insert_if_missing(uow, IdentityVersion, {"id": 1, "version": 0})


def _version(uow: UnitOfWork) -> int:
    """Return the present version; 0 before the first change."""
    version: int = uow.rows(sa.select(IdentityVersion.version)).scalar_one_or_none() or 0
    return version


def _rows(uow: UnitOfWork, records: Iterable[IdentityRecord]) -> dict[tuple[str, str], Row]:
    ids: dict[str, list[str]] = {}
    for record in records:
        ids.setdefault(record.kind, []).append(record.id)
    return {
        (row.kind, row.key): row
        for kind, keys in ids.items()
        for start in range(0, len(keys), IDS)
        for row in uow.session.scalars(sa.select(Row).where(Row.kind == kind, Row.key.in_(keys[start : start + IDS])))
    }


def _record(kind: str, key: str, data: dict[str, object] | None) -> IdentityRecord:
    return IdentityRecord(kind=kind, id=key, data=data)


class DatabaseStore:
    """The database as the store of the identity service's records."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def read(self, known: int) -> IdentityRecords:
        return self._db.read(read, known)

    def change(self, known: int | None, records: list[IdentityRecord]) -> int:
        return self._db.write(change, known, records)
