"""RPC methods about images whose result depends on the caller, or that also change files."""

from __future__ import annotations

import logging
from typing import Any

from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.hosts import aggregates
from nova_lite.db.image import host_images, images
from nova_lite.image import store
from nova_lite.objects import Image
from nova_lite.rpc.keys import COMPUTE
from nova_lite.rpcapi.compute import ComputeRPC

LOG = logging.getLogger(__name__)


class ImageEndpoints:
    def __init__(self, db: Database, conf: cfg.ConfigOpts, compute: ComputeRPC) -> None:
        self.db = db
        self.conf = conf
        self.compute = compute

    def image_get(self, context: RequestContext, image_id: str) -> Image:
        if (host := _compute_host(context)) is not None:
            return self.db.read(host_images.get, host, image_id)
        return self.db.read(images.get, context, image_id)

    def image_update(
        self,
        context: RequestContext,
        image_id: str,
        changes: dict[str, Any],
        expected_status: str | None,
        tags: dict[str, bool] | None = None,
    ) -> Image:
        if (host := _compute_host(context)) is not None:
            return self.db.write(host_images.update, host, image_id, changes, expected_status)
        return self.db.write(images.update, context, image_id, changes, expected_status, tags)

    def image_delete(self, context: RequestContext, image_id: str) -> None:
        """Delete the row, then the file. Without its row no host requests the file; instances have copies."""
        image = self.db.write(images.delete, context, image_id)
        try:
            store.remove(self.conf.image.store_path, image.id)
        except OSError as error:
            LOG.warning("The file of deleted image %s is left behind: %s", image.id, error)

    def aggregate_cache_images(
        self, context: RequestContext, aggregate_id: str, image_ids: list[str], described: dict[str, Image]
    ) -> None:
        hosts, images_to_cache = self.db.read(_hosts_and_images, context, aggregate_id, image_ids, described)
        for host in hosts:
            try:
                self.compute.cache_images(context, host, images_to_cache)
            except exceptions.MessagingUnavailable as error:
                LOG.warning("Host %s could not be asked to cache images: %s", host, error.message)


def _compute_host(context: RequestContext) -> str | None:
    """Return the calling compute host, or None for other callers."""
    sender = context.sender
    return sender.host if sender is not None and sender.role == COMPUTE else None


def _hosts_and_images(
    uow: UnitOfWork, context: RequestContext, aggregate_id: str, image_ids: list[str], described: dict[str, Image]
) -> tuple[list[str], list[Image]]:
    hosts = aggregates.get(uow, aggregate_id).hosts
    try:
        chosen = [described.get(image_id) or images.get(uow, context, image_id) for image_id in image_ids]
    except exceptions.ImageNotFound as error:
        raise exceptions.ImageUnavailable() from error
    if any(image.status != "active" for image in chosen):
        raise exceptions.ImageUnavailable()
    return hosts, chosen
