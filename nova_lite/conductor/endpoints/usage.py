"""RPC methods about what was used."""

from __future__ import annotations

import datetime

from oslo_config import cfg

from nova_lite.conductor.db import usage
from nova_lite.conductor.db.engine import Database
from nova_lite.context import RequestContext
from nova_lite.objects import InstanceUsage


class Usage:
    def __init__(self, db: Database, conf: cfg.ConfigOpts) -> None:
        self.db = db
        self.conf = conf

    def usage_list(
        self,
        context: RequestContext,
        project_id: str | None,
        start: datetime.datetime,
        end: datetime.datetime,
        limit: int | None,
        marker: str | None,
    ) -> list[InstanceUsage]:
        return self.db.read(usage.list_, context, project_id, start, end, limit, marker)
