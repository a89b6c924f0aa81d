"""RPC methods about key pairs."""

from __future__ import annotations

from oslo_config import cfg

from nova_lite.conductor.db import keypairs
from nova_lite.conductor.db.engine import Database
from nova_lite.context import RequestContext
from nova_lite.objects import KeyPair


class Keypairs:
    def __init__(self, db: Database, conf: cfg.ConfigOpts) -> None:
        self.db = db
        self.conf = conf

    def keypair_list(
        self, context: RequestContext, user_id: str, limit: int | None, marker: str | None
    ) -> list[KeyPair]:
        return self.db.read(keypairs.list_, user_id, limit, marker)

    def keypair_get(self, context: RequestContext, user_id: str, name: str) -> KeyPair:
        return self.db.read(keypairs.get, user_id, name)

    def keypair_create(self, context: RequestContext, keypair: KeyPair) -> KeyPair:
        return self.db.write(keypairs.create, self.conf, context, keypair)

    def keypair_delete(self, context: RequestContext, user_id: str, name: str) -> None:
        self.db.write(keypairs.delete, user_id, name)
