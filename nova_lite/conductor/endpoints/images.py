"""RPC methods about images that also touch files."""

from __future__ import annotations

import logging

from oslo_config import cfg

from nova_lite import exception
from nova_lite.compute.rpcapi import ComputeRPC
from nova_lite.conductor.db import aggregates, images
from nova_lite.conductor.db.engine import Database, UnitOfWork
from nova_lite.context import RequestContext
from nova_lite.image import store
from nova_lite.objects import Image

LOG = logging.getLogger(__name__)


class Images:
    def __init__(self, db: Database, conf: cfg.ConfigOpts, compute: ComputeRPC) -> None:
        self.db = db
        self.conf = conf
        self.compute = compute

    def image_delete(self, context: RequestContext, image_id: str) -> None:
        """Delete the row, then the file, which nobody asks for without its row; instances have copies."""
        image = self.db.write(images.delete, context, image_id)
        try:
            store.remove(self.conf.image.store_path, image.id)
        except OSError as error:
            LOG.warning("The file of deleted image %s is left behind: %s", image.id, error)

    def aggregate_cache_images(
        self, context: RequestContext, aggregate_id: str, image_ids: list[str], described: dict[str, Image]
    ) -> None:
        hosts, found = self.db.read(_hosts_and_images, context, aggregate_id, image_ids, described)
        for host in hosts:
            try:
                self.compute.cache_images(context, host, found)
            except exception.MessagingUnavailable as error:
                LOG.warning("Host %s is not told to cache images: %s", host, error.message)


def _hosts_and_images(
    uow: UnitOfWork, context: RequestContext, aggregate_id: str, image_ids: list[str], described: dict[str, Image]
) -> tuple[list[str], list[Image]]:
    hosts = aggregates.get(uow, aggregate_id).hosts
    try:
        found = [described.get(image_id) or images.get(uow, context, image_id) for image_id in image_ids]
    except exception.ImageNotFound as error:
        raise exception.ImageUnavailable() from error
    if any(image.status != "active" for image in found):
        raise exception.ImageUnavailable()
    return hosts, found
