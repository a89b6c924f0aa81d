"""Volumes on each kind of database: one server of many gets one, quota holds, lists have pages."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from nova_lite.base import exceptions
from nova_lite.db.core import models
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.volume import block_devices, volume_tasks, volumes
from nova_lite.objects import BlockDevice, DeviceState, Image, Volume, VolumeFilters, VolumeVerb
from nova_lite.objects.block_device import DeviceSource
from tests.support import make


def add(db: Database, **values: object) -> str:
    known = {"id": str(uuid.uuid4()), "project_id": "p1", "size": 1, "status": "available", "metadata": {"a": "ü"}}
    return db.write(lambda uow: volumes.insert(uow, Volume(**{**known, **values})).id)  # type: ignore[arg-type]


def test_volume_concurrent_reservations_one_succeeds(db: Database) -> None:
    volume_id = add(db)
    servers = [db.write(make.instance) for _ in range(6)]

    def reserve(server: str) -> bool:
        try:
            db.write(volumes.reserve, make.context(), volume_id, server, str(uuid.uuid4()), "/dev/vdb")
        except exceptions.InvalidVolume:
            return False
        return True

    with ThreadPoolExecutor(len(servers)) as pool:
        got = [server for server, won in zip(servers, pool.map(reserve, servers), strict=True) if won]
    assert [db.read(volumes.get, make.context(), volume_id).instance_uuid] == got


def test_a_quota_holds_against_many(db: Database) -> None:
    db.conf.set_override("quota_gigabytes", 3, "volume")

    def create(uow: UnitOfWork) -> None:
        volumes.check_quota(uow, "p1", volumes=1, gigabytes=1)
        volumes.insert(uow, Volume(id=str(uuid.uuid4()), project_id="p1", size=1))

    def attempt(_: int) -> bool:
        try:
            db.write(create)
        except exceptions.VolumeQuotaExceeded:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(attempt, range(6))) == 3
    used = db.read(volumes.usage, db.conf, "p1").used
    assert {name: used[name] for name in volumes.TYPE_QUOTAS} == {"volumes": 3, "gigabytes": 3, "snapshots": 0}


def test_lists(db: Database) -> None:
    ids = [add(db, name=name) for name in ("b", "a", "c")]
    context, filters = make.context(), VolumeFilters(project_id="p1")
    first = db.read(volumes.list_, context, filters, 2, None, ["name"], ["asc"])
    assert [item.name for item in first] == ["a", "b"]
    rest = db.read(volumes.list_, context, filters, 2, first[-1].id, ["name"], ["asc"])
    assert [item.id for item in rest] == [ids[2]]
    wanted = VolumeFilters(project_id="p1", metadata={"a": "ü"}, bootable=False, name="c")
    assert [item.id for item in db.read(volumes.list_, context, wanted)] == [ids[2]]
    assert [item.name for item in db.read(volumes.list_, context, filters, None, None, ["name"], ["asc"], 1)] == [
        "b",
        "c",
    ]
    assert db.read(volumes.list_, make.context("p2"), filters) == []
    with pytest.raises(exceptions.VolumeNotFound):  # Cinder, too, answers 404 for an unknown marker
        db.read(volumes.list_, context, filters, 2, str(uuid.uuid4()))


def test_devices_and_work(db: Database) -> None:
    image = Image(id=str(uuid.uuid4()), name="i", properties={"a": "b"})
    volume_id, server = add(db, image=image), db.write(make.instance)
    device = BlockDevice(
        uuid="a",
        source_type=DeviceSource.VOLUME,
        destination_type="volume",
        volume_id=volume_id,
        delete_on_termination=True,
    )

    def attach(uow: UnitOfWork) -> None:
        row = uow.session.query(models.Instance).filter_by(uuid=server).one()
        volumes.reserve(uow, make.context(), volume_id, server, "a", None)
        block_devices.keep(row, [device])
        block_devices.all_attached(uow, row)
        assert [item.state for item in block_devices.of(row)] == [DeviceState.ATTACHED]

    db.write(attach)
    shown = db.read(volumes.get, make.context(), volume_id)
    assert (shown.status, shown.image, shown.metadata) == ("in-use", image, {"a": "ü"})

    def delete(uow: UnitOfWork) -> None:
        block_devices.release(uow, uow.session.query(models.Instance).filter_by(uuid=server).one())

    db.write(delete)
    assert db.read(volumes.get, make.context(), volume_id).status == "deleting"
    (number,) = db.read(volume_tasks.due, 10)
    task = db.write(lambda uow: volume_tasks.work(uow, volume_tasks.lock(uow, number)))  # type: ignore[arg-type]
    assert (task.verb, task.volume_id) == (VolumeVerb.DELETE, volume_id)
