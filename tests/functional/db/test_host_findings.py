"""Host reports of domains and devices, and suspended leases, as each kind of database stores them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from nova_lite.db.core.engine import Database
from nova_lite.db.core.models import HostLease, Instance, Service, UnknownDomains
from nova_lite.db.hosts import hosts, leases, unknown_domains
from nova_lite.db.servers import instances
from nova_lite.objects import GuestDevice, GuestDevices, LeaseRequest
from tests.support import make
from tests.support.statements import counting

UNKNOWN = "99999999-9999-4999-8999-999999999999"


@pytest.fixture
def uuid(db: Database) -> str:
    """Return a server of host h1, which is to be protected."""
    db.write(hosts.record, db.conf, make.report("h1", inventories=[make.inventory("h1")]))
    made: str = db.write(make.instance, host="h1", node="h1", metadata_={"ha:restart": "always"})
    return made


def findings(db: Database) -> list[tuple[Any, ...]]:
    columns = (UnknownDomains.uuids, UnknownDomains.total, UnknownDomains.without_disks, UnknownDomains.newer)
    return db.read(lambda uow: [tuple(row) for row in uow.rows(sa.select(*columns))])


@pytest.mark.parametrize(
    ("found", "stored"),
    [
        (([UNKNOWN], [], []), ([UNKNOWN], 1, None, None)),
        (([], [UNKNOWN], []), ([], 0, [UNKNOWN], None)),
        (([], [], [(UNKNOWN, 4, 1)]), ([], 0, None, [[UNKNOWN, 4, 1]])),
    ],
)
def test_finding_of_a_host_is_written_once_and_removed_when_it_is_gone(
    db: Database, uuid: str, found: tuple[Any, ...], stored: tuple[Any, ...]
) -> None:
    db.write(unknown_domains.record, "h1", *found, None)
    assert findings(db) == [stored]
    with counting() as counted:
        db.write(unknown_domains.record, "h1", *found, None)
    assert len(counted.statements) == 1, counted.statements
    nulls = sa.select(UnknownDomains.without_disks.is_(None), UnknownDomains.newer.is_(None))
    (row,) = db.read(lambda uow: uow.rows(nulls).all())
    assert [bool(is_null) for is_null in row] == [column is None for column in stored[2:]]
    db.write(unknown_domains.record, "h1", [], [], [], None)
    assert findings(db) == []


def test_devices_of_a_guest_are_read_as_they_were_written_and_absent_ones_are_null(db: Database, uuid: str) -> None:
    devices = GuestDevices(devices=[GuestDevice("volume", bus="pci", address="0000:07:00.0")], free_ports=3)

    def put(values: Any) -> None:
        def write(uow: Any) -> None:
            uow.session.scalars(sa.select(Instance)).one().guest_devices = values

        db.write(write)

    def stored() -> Any:
        return db.read(instances.get, make.context(), uuid).guest_devices

    assert stored() is None
    put(msgspec.to_builtins(devices))
    assert stored() == devices
    put(None)
    assert stored() is None
    null = sa.select(Instance.uuid).where(Instance.guest_devices.is_(None))
    assert db.read(lambda uow: uow.rows(null).all()) == [(uuid,)]


def test_suspended_host_protects_its_guests_again_after_the_suspension(db: Database, uuid: str) -> None:
    boot_id = db.read(lambda uow: uow.session.scalar(sa.select(Service.boot_id)))
    numbers = iter(range(1, 9))

    def renew(*guests: str) -> list[str]:
        request = LeaseRequest(
            host="h1", boot_id=boot_id, epoch=0, identity="", number=next(numbers), seconds=30.0, guests=list(guests)
        )
        return db.write(hosts.renew_lease, db.conf, request).guests

    assert renew() == [uuid]
    assert renew(uuid) == [uuid]
    assert db.write(leases.suspend, 60) == 30
    left = db.read(lambda uow: uow.session.scalar(sa.select(HostLease.suspended_until)) - uow.now)
    assert 3500 < left.total_seconds() <= 3600
    assert (renew(uuid), renew()) == ([], [])
    assert db.read(leases.still_protecting) == []
    db.write(leases.suspend, 0)
    assert renew() == [uuid]
