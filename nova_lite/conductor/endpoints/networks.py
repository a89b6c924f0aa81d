"""RPC methods about the networks of the built-in backend."""

from __future__ import annotations

from oslo_config import cfg

from nova_lite.conductor.db import networks
from nova_lite.conductor.db.engine import Database
from nova_lite.context import RequestContext
from nova_lite.objects import Network


class Networks:
    def __init__(self, db: Database, conf: cfg.ConfigOpts) -> None:
        self.db = db
        self.conf = conf

    def network_list(self, context: RequestContext) -> list[Network]:
        return self.db.read(networks.list_, context)
