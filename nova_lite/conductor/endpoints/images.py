"""RPC methods about the images of the built-in backend."""

from __future__ import annotations

import logging
from typing import Any

from oslo_config import cfg

from nova_lite.conductor.db import images
from nova_lite.conductor.db.engine import Database
from nova_lite.context import RequestContext
from nova_lite.image import store
from nova_lite.objects import Image

LOG = logging.getLogger(__name__)


class Images:
    def __init__(self, db: Database, conf: cfg.ConfigOpts) -> None:
        self.db = db
        self.conf = conf

    def image_list(
        self, context: RequestContext, name: str | None, status: str | None, limit: int | None, marker: str | None
    ) -> list[Image]:
        return self.db.read(images.list_, context, name, status, limit, marker)

    def image_get(self, context: RequestContext, image_id: str) -> Image:
        return self.db.read(images.get, context, image_id)

    def image_create(self, context: RequestContext, image: Image) -> Image:
        return self.db.write(images.create, image)

    def image_update(
        self, context: RequestContext, image_id: str, changes: dict[str, Any], expected_status: str | None
    ) -> Image:
        return self.db.write(images.update, context, image_id, changes, expected_status)

    def image_delete(self, context: RequestContext, image_id: str) -> None:
        """The row first: without it, nobody asks for the file any more. Instances that use it have copies."""
        image = self.db.write(images.delete, context, image_id)
        try:
            store.remove(self.conf.image.store_path, image.id)
        except OSError as error:
            LOG.warning("The file of deleted image %s is left behind: %s", image.id, error)
