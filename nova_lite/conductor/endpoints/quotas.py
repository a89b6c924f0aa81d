"""RPC methods about quotas."""

from __future__ import annotations

from oslo_config import cfg

from nova_lite.conductor.db import quotas
from nova_lite.conductor.db.engine import Database
from nova_lite.context import RequestContext
from nova_lite.objects import Limits


class Quotas:
    def __init__(self, db: Database, conf: cfg.ConfigOpts) -> None:
        self.db = db
        self.conf = conf

    def limits_get(self, context: RequestContext, project_id: str, user_id: str | None = None) -> Limits:
        return self.db.read(quotas.limits, self.conf, project_id, user_id)

    def quota_defaults_get(self, context: RequestContext) -> Limits:
        return self.db.read(quotas.defaults, self.conf)

    def quota_defaults_update(self, context: RequestContext, limits: dict[str, int]) -> Limits:
        return self.db.write(quotas.set_defaults, self.conf, limits)

    def quota_update(
        self,
        context: RequestContext,
        project_id: str,
        limits: dict[str, int],
        force: bool,
        user_id: str | None = None,
    ) -> Limits:
        return self.db.write(quotas.set_limits, self.conf, project_id, limits, force, user_id)

    def quota_delete(self, context: RequestContext, project_id: str, user_id: str | None = None) -> None:
        self.db.write(quotas.reset, project_id, user_id)
