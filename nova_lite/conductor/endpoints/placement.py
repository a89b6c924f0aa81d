"""RPC methods about host aggregates and server groups."""

from __future__ import annotations

from oslo_config import cfg

from nova_lite.conductor.db import aggregates, server_groups
from nova_lite.conductor.db.engine import Database
from nova_lite.context import RequestContext
from nova_lite.objects import Aggregate, ServerGroup


class Placement:
    def __init__(self, db: Database, conf: cfg.ConfigOpts) -> None:
        self.db = db
        self.conf = conf

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
