"""Access of compute hosts to images: only to an image that they upload, while they upload it."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.base.context import DaemonIdentity, RequestContext
from nova_lite.conductor.image.endpoints import ImageEndpoints
from nova_lite.db.core.engine import Database
from nova_lite.db.image import host_images, images
from nova_lite.objects import Image
from nova_lite.rpc.keys import API, COMPUTE
from tests.support import make


@pytest.fixture
def image(db: Database) -> Image:
    """Return an image that host h1 uploads."""

    def fill(uow: Any) -> Image:
        made = images.create(uow, make.image(status="queued", visibility="private", owner="p1"))
        uuid = make.instance(uow, host="h1")
        make.action(uow, uuid, action="createImage", host="h1", payload={"image_id": made.id})
        make.action(uow, make.instance(uow, host="h2"), action="createImage", host="h2", payload={"image_id": "other"})
        return made

    return db.write(fill)


def test_uploading_host_reports_the_progress_of_its_image(db: Database, image: Image) -> None:
    assert db.read(host_images.get, "h1", image.id).status == "queued"
    assert db.write(host_images.update, "h1", image.id, {"status": "saving"}).status == "saving"
    told = {"size": 5, "checksum": "0123"}
    assert db.write(host_images.update, "h1", image.id, told, "saving").size == 5
    with pytest.raises(exceptions.ImageStatusConflict):
        db.write(host_images.update, "h1", image.id, told, "queued")


@pytest.mark.parametrize(
    "changes", [{"visibility": "public"}, {"status": "active"}, {"owner": "p2"}, {"properties": {"a": "b"}}]
)
def test_host_cannot_change_other_fields_of_its_image(db: Database, image: Image, changes: dict[str, Any]) -> None:
    with pytest.raises(exceptions.Forbidden):
        db.write(host_images.update, "h1", image.id, changes)
    assert db.read(images.get, make.ADMIN, image.id) == image


def test_other_hosts_do_not_see_the_image(db: Database, image: Image) -> None:
    for act in (lambda: db.read(host_images.get, "h2", image.id), lambda: db.read(host_images.get, "h3", image.id)):
        with pytest.raises(exceptions.ImageNotFound):
            act()
    with pytest.raises(exceptions.ImageNotFound):
        db.write(host_images.update, "h2", image.id, {"status": "saving"})


def test_host_cannot_access_a_finished_image(db: Database, image: Image) -> None:
    db.write(images.activate, image.id)
    with pytest.raises(exceptions.ImageNotFound):
        db.read(host_images.get, "h1", image.id)
    with pytest.raises(exceptions.ImageNotFound):
        db.write(host_images.update, "h1", image.id, {"checksum": "forged"})


def test_caller_is_the_host_that_signed_the_message(db: Database, image: Image) -> None:
    """A message that a host signed is the host's, even if it claims to be from an admin."""
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
