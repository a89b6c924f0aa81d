"""Endpoints of the conductor that do more than one query."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import pytest
from oslo_config import cfg

from nova_lite import rpc
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core import models
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.hosts import aggregates, hosts
from nova_lite.db.image import images
from nova_lite.objects import Image
from nova_lite.rpcapi.compute import ComputeRPC
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.support import make


def test_image_delete_removes_its_file(db: Database, conductor: ConductorRPC, tmp_path: Path) -> None:
    store = tmp_path / "images"
    store.mkdir()
    theirs = db.write(images.create, make.image(owner="p2"))
    (store / theirs.id).write_text("bytes")
    with pytest.raises(exceptions.Forbidden):
        conductor.image_delete(make.context(), theirs.id)
    assert os.listdir(store) == [theirs.id]
    conductor.image_delete(make.context("p2"), theirs.id)
    assert os.listdir(store) == []
    without_file = db.write(images.create, make.image())
    conductor.image_delete(make.ADMIN, without_file.id)


def test_image_delete_logs_a_file_that_cannot_be_removed(
    db: Database, conductor: ConductorRPC, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    image = db.write(images.create, make.image())
    (tmp_path / "images" / image.id).mkdir(parents=True)
    conductor.image_delete(make.ADMIN, image.id)
    assert image.id in caplog.text
    with pytest.raises(exceptions.ImageNotFound):
        conductor.image_get(make.ADMIN, image.id)


def lease(db: Database, action_id: int) -> datetime.datetime:
    def read(uow: UnitOfWork) -> datetime.datetime:
        row = uow.session.get(models.InstanceAction, action_id)
        assert row is not None
        return row.lease_expires_at - uow.now

    return db.read(read)


def test_heartbeat_renews_the_leases_of_its_work(db: Database, conductor: ConductorRPC) -> None:
    conductor.register_host(make.ADMIN, make.report())

    def fill(uow: UnitOfWork) -> tuple[str, list[int]]:
        uuid = make.instance(uow, host="h1")
        build = make.action(uow, uuid, step="build", host="h1", generation=2)
        stop = make.action(uow, uuid, step="perform", action="stop", host="h1")
        elsewhere = make.action(uow, uuid, step="perform", action="stop", host="h2")
        return uuid, [build.id, stop.id, elsewhere.id]

    uuid, (build, stop, elsewhere) = db.write(fill)
    conductor.report_state(make.ADMIN, make.report(building={uuid: 1}))
    assert [lease(db, action).total_seconds() <= 0 for action in (build, stop, elsewhere)] == [True, True, True]
    conductor.report_state(make.ADMIN, make.report(building={uuid: 2}, acting=[stop, elsewhere]))
    assert [lease(db, action).total_seconds() > 20 for action in (build, stop, elsewhere)] == [True, True, False]
    conductor.report_state(make.ADMIN, make.report(boot_id="b2"))
    assert [lease(db, action).total_seconds() > 0 for action in (build, stop)] == [False, False]


class Hypervisor:
    """A compute host that can cache images."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def cache_images(self, context: RequestContext, images: list[Image]) -> None:
        self.told += [image.id for image in images]


def test_cache_images_reaches_the_hosts_of_an_aggregate(
    db: Database, conf: cfg.ConfigOpts, bus: rpc.InProcess, conductor: ConductorRPC
) -> None:
    for host in ("h1", "h2", "h3"):
        db.write(hosts.record, conf, make.report(host, inventories=[make.inventory(host)]))
    aggregate = str(db.write(aggregates.create, "a").id)
    hypervisors = {"h2": Hypervisor(), "h3": Hypervisor()}  # h1 is away
    for host, hypervisor in hypervisors.items():
        bus.serve(rpc.Endpoint(ComputeRPC, hypervisor, partial=True), host)
    for host in ("h1", "h2"):
        db.write(aggregates.add_host, conf, aggregate, host)
    image, described = db.write(images.create, make.image()), make.image(id="described")
    conductor.aggregate_cache_images(make.ADMIN, aggregate, [image.id, "described"], {"described": described})
    assert {host: hypervisor.told for host, hypervisor in hypervisors.items()} == {
        "h2": [image.id, "described"],
        "h3": [],
    }
    with pytest.raises(exceptions.ImageUnavailable):
        conductor.aggregate_cache_images(make.ADMIN, aggregate, ["nonsense"], {})
