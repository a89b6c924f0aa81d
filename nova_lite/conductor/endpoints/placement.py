"""RPC methods about host aggregates and server groups."""

from __future__ import annotations

import logging

from oslo_config import cfg

from nova_lite import exception
from nova_lite.compute.rpcapi import ComputeAPI
from nova_lite.conductor.db import aggregates, images, server_groups
from nova_lite.conductor.db.engine import Database, UnitOfWork
from nova_lite.context import RequestContext
from nova_lite.objects import Aggregate, Image, ServerGroup

LOG = logging.getLogger(__name__)


class Placement:
    def __init__(self, db: Database, conf: cfg.ConfigOpts, compute: ComputeAPI) -> None:
        self.db = db
        self.conf = conf
        self.compute = compute

    # --- aggregates

    def aggregate_list(self, context: RequestContext) -> list[Aggregate]:
        return self.db.read(aggregates.list_)

    def aggregate_get(self, context: RequestContext, aggregate_id: str) -> Aggregate:
        return self.db.read(aggregates.get, aggregate_id)

    def aggregate_create(self, context: RequestContext, name: str, availability_zone: str | None) -> Aggregate:
        return self.db.write(aggregates.create, name, availability_zone)

    def aggregate_update(self, context: RequestContext, aggregate_id: str, changes: dict[str, str | None]) -> Aggregate:
        return self.db.write(aggregates.rename, self.conf, aggregate_id, changes)

    def aggregate_set_metadata(
        self, context: RequestContext, aggregate_id: str, metadata: dict[str, str | None]
    ) -> Aggregate:
        return self.db.write(aggregates.set_metadata, self.conf, aggregate_id, metadata)

    def aggregate_delete(self, context: RequestContext, aggregate_id: str) -> None:
        self.db.write(aggregates.delete, aggregate_id)

    def aggregate_add_host(self, context: RequestContext, aggregate_id: str, host: str) -> Aggregate:
        return self.db.write(aggregates.add_host, self.conf, aggregate_id, host)

    def aggregate_remove_host(self, context: RequestContext, aggregate_id: str, host: str) -> Aggregate:
        return self.db.write(aggregates.remove_host, self.conf, aggregate_id, host)

    def aggregate_cache_images(
        self, context: RequestContext, aggregate_id: str, image_ids: list[str], described: dict[str, Image]
    ) -> None:
        hosts, found = self.db.read(_hosts_and_images, context, aggregate_id, image_ids, described)
        for host in hosts:
            try:
                self.compute.cache_images(context, host, found)
            except exception.MessagingUnavailable as error:
                LOG.warning("Host %s is not told to cache images: %s", host, error.message)

    # --- server groups

    def server_group_list(
        self, context: RequestContext, all_projects: bool, limit: int | None, offset: int
    ) -> list[ServerGroup]:
        return self.db.read(server_groups.list_, context, all_projects, limit, offset)

    def server_group_get(self, context: RequestContext, group_id: str) -> ServerGroup:
        return self.db.read(server_groups.get, context, group_id)

    def server_group_create(self, context: RequestContext, group: ServerGroup) -> ServerGroup:
        return self.db.write(server_groups.create, self.conf, context, group)

    def server_group_delete(self, context: RequestContext, group_id: str) -> None:
        self.db.write(server_groups.delete, context, group_id)


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
