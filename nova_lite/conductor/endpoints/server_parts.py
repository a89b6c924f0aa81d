"""RPC methods that change parts of an instance at once, without its host."""

from __future__ import annotations

from oslo_config import cfg

from nova_lite.conductor.db import server_parts
from nova_lite.conductor.db.engine import Database
from nova_lite.conductor.operations.engine import Engine
from nova_lite.context import RequestContext


class ServerParts:
    def __init__(self, db: Database, conf: cfg.ConfigOpts, engine: Engine) -> None:
        self.db = db
        self.conf = conf
        self.engine = engine

    def instance_metadata_change(
        self, context: RequestContext, instance_uuid: str, metadata: dict[str, str], replace: bool
    ) -> dict[str, str]:
        return self.db.write(server_parts.change_metadata, self.conf, context, instance_uuid, metadata, replace)

    def instance_metadata_delete(self, context: RequestContext, instance_uuid: str, key: str) -> None:
        self.db.write(server_parts.delete_metadata, context, instance_uuid, key)

    def instance_tags_replace(self, context: RequestContext, instance_uuid: str, tags: list[str]) -> list[str]:
        return self.db.write(server_parts.replace_tags, context, instance_uuid, tags)

    def instance_tag_add(self, context: RequestContext, instance_uuid: str, tag: str) -> bool:
        return self.db.write(server_parts.add_tag, context, instance_uuid, tag)

    def instance_tag_delete(self, context: RequestContext, instance_uuid: str, tag: str) -> None:
        self.db.write(server_parts.delete_tag, context, instance_uuid, tag)

    def instance_password_clear(self, context: RequestContext, instance_uuid: str) -> None:
        self.db.write(server_parts.clear_password, context, instance_uuid)

    def instance_lock(self, context: RequestContext, instance_uuid: str, reason: str | None) -> None:
        self.engine.accept_action(context, instance_uuid, "lock", {"reason": reason})

    def instance_unlock(self, context: RequestContext, instance_uuid: str, may_override: bool) -> None:
        self.engine.accept_action(context, instance_uuid, "unlock", {"may_override": may_override})

    def instance_reset_state(self, context: RequestContext, instance_uuid: str, vm_state: str) -> None:
        self.engine.accept_action(context, instance_uuid, "reset_state", {"vm_state": vm_state})
