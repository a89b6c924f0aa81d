"""RPC methods that read instances and their actions, and change what no host has to know of."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

from nova_lite.conductor.db import action_log, instances
from nova_lite.conductor.db.engine import Database
from nova_lite.context import RequestContext
from nova_lite.objects import Instance, InstanceAction, InstanceFilters


class Instances:
    def __init__(self, db: Database, conf: cfg.ConfigOpts) -> None:
        self.db = db
        self.conf = conf

    def instance_get(self, context: RequestContext, instance_uuid: str) -> Instance:
        return self.db.read(instances.get, context, instance_uuid)

    def instance_list(
        self,
        context: RequestContext,
        filters: InstanceFilters,
        limit: int | None,
        marker: str | None,
        sort_keys: list[str],
        sort_dirs: list[str],
    ) -> list[Instance]:
        return self.db.read(instances.list_, context, filters, limit, marker, sort_keys, sort_dirs)

    def instance_update(self, context: RequestContext, instance_uuid: str, changes: dict[str, Any]) -> Instance:
        return self.db.write(instances.update, context, instance_uuid, changes)

    def action_list(self, context: RequestContext, instance_uuid: str) -> list[InstanceAction]:
        return self.db.read(action_log.list_, context, instance_uuid)

    def action_get(self, context: RequestContext, instance_uuid: str, request_id: str) -> InstanceAction:
        return self.db.read(action_log.get, context, instance_uuid, request_id)
