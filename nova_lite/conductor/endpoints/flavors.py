"""RPC methods about flavors."""

from __future__ import annotations

from oslo_config import cfg

from nova_lite.conductor.db import flavor_access, flavors
from nova_lite.conductor.db.engine import Database
from nova_lite.context import RequestContext
from nova_lite.objects import Flavor


class Flavors:
    def __init__(self, db: Database, conf: cfg.ConfigOpts) -> None:
        self.db = db
        self.conf = conf

    def flavor_list(
        self,
        context: RequestContext,
        is_public: bool | None,
        min_ram: int | None,
        min_disk: int | None,
        limit: int | None,
        marker: str | None,
        sort_key: str,
        sort_dir: str,
    ) -> list[Flavor]:
        return self.db.read(flavors.list_, context, is_public, min_ram, min_disk, limit, marker, sort_key, sort_dir)

    def flavor_get(self, context: RequestContext, flavor_id: str) -> Flavor:
        return self.db.read(flavors.get, context, flavor_id)

    def flavor_create(self, context: RequestContext, flavor: Flavor) -> Flavor:
        return self.db.write(flavors.create, flavor)

    def flavor_update(self, context: RequestContext, flavor_id: str, description: str | None) -> Flavor:
        return self.db.write(flavors.update, context, flavor_id, description)

    def flavor_delete(self, context: RequestContext, flavor_id: str) -> None:
        self.db.write(flavors.delete, context, flavor_id)

    def flavor_extra_specs_update(
        self, context: RequestContext, flavor_id: str, extra_specs: dict[str, str]
    ) -> dict[str, str]:
        return self.db.write(flavors.update_extra_specs, context, flavor_id, extra_specs)

    def flavor_extra_spec_delete(self, context: RequestContext, flavor_id: str, key: str) -> None:
        self.db.write(flavors.delete_extra_spec, context, flavor_id, key)

    def flavor_access_list(self, context: RequestContext, flavor_id: str) -> list[str]:
        return self.db.read(flavor_access.list_, context, flavor_id)

    def flavor_access_add(
        self, context: RequestContext, flavor_id: str, project_id: str, even_public: bool
    ) -> list[str]:
        return self.db.write(flavor_access.add, context, flavor_id, project_id, even_public)

    def flavor_access_remove(self, context: RequestContext, flavor_id: str, project_id: str) -> list[str]:
        return self.db.write(flavor_access.remove, context, flavor_id, project_id)
