"""What a compute host gets at of images: those that it makes, while it makes them."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.endpoints.images import ImageEndpoints
from nova_lite.db import host_images, images
from nova_lite.db.engine import Database
from nova_lite.objects import Image
from nova_lite.rpc.keys import API, COMPUTE, DaemonIdentity
from tests.support import make


@pytest.fixture
def image(db: Database) -> Image:
    """Host h1 is at making it."""

    def fill(uow: Any) -> Image:
        made = images.create(uow, make.image(status="queued", visibility="private", owner="p1"))
        uuid = make.instance(uow, host="h1")
        make.action(uow, uuid, action="createImage", host="h1", payload={"image_id": made.id})
        make.action(uow, make.instance(uow, host="h2"), action="createImage", host="h2", payload={"image_id": "other"})
        return made

    return db.write(fill)


def test_its_maker_says_how_far_it_is(db: Database, image: Image) -> None:
    assert db.read(host_images.get, "h1", image.id).status == "queued"
    assert db.write(host_images.update, "h1", image.id, {"status": "saving"}).status == "saving"
    told = {"size": 5, "checksum": "0123"}
    assert db.write(host_images.update, "h1", image.id, told, "saving").size == 5
    with pytest.raises(exceptions.ImageStatusConflict):
        db.write(host_images.update, "h1", image.id, told, "queued")


@pytest.mark.parametrize(
    "changes", [{"visibility": "public"}, {"status": "active"}, {"owner": "p2"}, {"properties": {"a": "b"}}]
)
def test_nothing_else_of_it(db: Database, image: Image, changes: dict[str, Any]) -> None:
    with pytest.raises(exceptions.Forbidden):
        db.write(host_images.update, "h1", image.id, changes)
    assert db.read(images.get, make.ADMIN, image.id) == image


def test_other_hosts_do_not_know_it(db: Database, image: Image) -> None:
    for act in (lambda: db.read(host_images.get, "h2", image.id), lambda: db.read(host_images.get, "h3", image.id)):
        with pytest.raises(exceptions.ImageNotFound):
            act()
    with pytest.raises(exceptions.ImageNotFound):
        db.write(host_images.update, "h2", image.id, {"status": "saving"})


def test_once_it_is_whole_it_is_no_hosts_business(db: Database, image: Image) -> None:
    db.write(images.activate, image.id)
    with pytest.raises(exceptions.ImageNotFound):
        db.read(host_images.get, "h1", image.id)
    with pytest.raises(exceptions.ImageNotFound):
        db.write(host_images.update, "h1", image.id, {"checksum": "forged"})


def test_who_asks_is_who_signed(db: Database, image: Image) -> None:
    """A message that says it is an admin's, by a host, is a host's."""
    served = ImageEndpoints(db, None, None)  # type: ignore[arg-type]
    context = RequestContext(is_admin=True, overwrite=False)
    assert served.image_get(context, image.id) == image
    context.sender = DaemonIdentity(API, "controller")
    assert served.image_get(context, image.id) == image
    context.sender = DaemonIdentity(COMPUTE, "h2")
    with pytest.raises(exceptions.ImageNotFound):
        served.image_get(context, image.id)
    with pytest.raises(exceptions.ImageNotFound):
        served.image_update(context, image.id, {"status": "saving"}, None)
