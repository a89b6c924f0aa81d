"""What users ask for: creating instances, and actions on them."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg
from sqlalchemy import exc

from nova_lite.conductor.db.engine import Database
from nova_lite.conductor.tasks import accept, create
from nova_lite.conductor.tasks.build import BuildTask
from nova_lite.context import RequestContext
from nova_lite.network.driver import NetworkBackend
from nova_lite.objects import ActionTicket, CreateRequest, CreateResult


class Lifecycle:
    def __init__(self, db: Database, conf: cfg.ConfigOpts, network_backend: NetworkBackend, builds: BuildTask) -> None:
        self.db = db
        self.conf = conf
        self.network_backend = network_backend
        self.builds = builds

    def create_instances(self, context: RequestContext, request: CreateRequest) -> CreateResult:
        """Accept a create; the same request id again returns the same instances."""
        arguments = (self.conf, self.network_backend, context, request)
        try:
            return self.db.write(create.create_instances, *arguments)
        except exc.IntegrityError:
            # The same request was being written at the same time; now it is there to be found.
            return self.db.write(create.create_instances, *arguments)

    def build_instances(self, context: RequestContext, instance_uuids: list[str]) -> None:
        """Nudge: drive these builds now, as far as nobody else does."""
        self.builds.run(context, instance_uuids)

    def accept_action(
        self, context: RequestContext, instance_uuid: str, action: str, payload: dict[str, Any]
    ) -> ActionTicket:
        return self.db.write(
            accept.accept_action, self.conf, self.network_backend, context, instance_uuid, action, payload
        )
