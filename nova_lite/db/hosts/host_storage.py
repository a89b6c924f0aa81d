"""Directories of disks that hosts share, by what the hosts see in them. See docs/adr/0037.

Two hosts share a directory if each has seen a current mark of the other one there, while a daemon held its file.
So no host can claim it alone. What a lost host has seen last stays valid: it ran its guests with these disks.
"""

from __future__ import annotations

import sqlalchemy as sa

from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import HostStorage, Instance, Service
from nova_lite.db.core.statements import insert_if_missing
from nova_lite.db.hosts import services
from nova_lite.objects import DiskPlace, LeftDisks, StorageReport

#: Keys of `Instance.disks_at`: hosts and generations, the last one first, and whether a host shared the disks.
PLACES, SHARED = "places", "shared"


def record(uow: UnitOfWork, report: StorageReport) -> list[str]:
    """Record the report of a host that is registered, and return the hosts that share its directory now."""
    row = _locked(uow, report.host)
    if row is None:
        values = {"host": report.host, "marks": [], "seen": {}, "live": [], "shares": []}
        insert_if_missing(uow, HostStorage, values)
        row = _locked(uow, report.host)
        assert row is not None
    view = report.view
    row.marks, row.seen, row.live, row.updated_at = view.marks, view.seen, view.live, uow.now
    others = uow.session.scalars(sa.select(HostStorage).where(HostStorage.host.in_(view.seen)))
    row.shares = sorted(other.host for other in others if _see_each_other(row, other))
    return row.shares


def _locked(uow: UnitOfWork, host: str) -> HostStorage | None:
    query = sa.select(HostStorage).where(HostStorage.host == host).with_for_update()
    return uow.session.scalars(query).first()


def _see_each_other(one: HostStorage, other: HostStorage) -> bool:
    if one.host == other.host:
        return False
    return other.host in one.live and one.host in other.live and _sees(one, other) and _sees(other, one)


def _sees(one: HostStorage, other: HostStorage) -> bool:
    """Check whether a host has seen a current mark of the other one."""
    return not set(other.marks).isdisjoint(one.seen.get(other.host, ()))


def registered(uow: UnitOfWork, host: str) -> None:
    """Forget what an earlier daemon of this host saw. Its marks stay: others may look for disks that it has left."""
    row = _locked(uow, host)
    if row is not None:
        row.seen, row.live, row.shares = {}, [], []


def sharing(uow: UnitOfWork, host: str) -> list[str]:
    """Return the hosts that shared the directory of ``host`` when it reported last, and that still see its marks."""
    row = uow.session.get(HostStorage, host)
    if row is None or not row.shares:
        return []
    others = uow.session.scalars(sa.select(HostStorage).where(HostStorage.host.in_(row.shares)))
    return sorted(other.host for other in others if _sees(other, row))


def others_than(uow: UnitOfWork, allowed: set[str]) -> list[str]:
    """Return the compute hosts that are not among the ``allowed`` ones."""
    query = sa.select(Service.host).where(Service.binary == services.COMPUTE).order_by(Service.host)
    return [host for host in uow.session.scalars(query) if host not in allowed]


def places_of(instance: Instance) -> list[tuple[str, int]]:
    """Return the hosts and generations at which the disks of an evacuated server may be."""
    return [(host, generation) for host, generation in (instance.disks_at or {}).get(PLACES, ())]


def left_disks(uow: UnitOfWork, instance: Instance, required: bool) -> LeftDisks | None:
    """Return where the disks of an evacuated server may be, with the marks of these hosts. None: nowhere."""
    left = places_of(instance)
    if not left:
        return None
    names = [host for host, _ in left]
    rows = uow.session.scalars(sa.select(HostStorage).where(HostStorage.host.in_(names)))
    marks = {row.host: row.marks for row in rows}
    places = [DiskPlace(host=host, generation=number, marks=marks.get(host, [])) for host, number in left]
    return LeftDisks(places=places, required=required)


def may_need(instance: Instance, host: str) -> bool:
    """Check whether a server that was evacuated from ``host`` may still get the disks that it has left there."""
    return any(name == host for name, _ in places_of(instance))
