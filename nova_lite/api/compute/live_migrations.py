"""Live migrations that are going on: what the user wants of them. And what a request for one says."""

from __future__ import annotations

from typing import Any

from oslo_utils import strutils

from nova_lite.api.compute.schemas import live_migration as schemas
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.policies import servers as policies

_PATH = "/servers/{server_id}/migrations/{id}"


def payload(req: Request, body: dict[str, Any]) -> dict[str, Any]:
    """Of ``os-migrateLive``. Before 2.30, or with ``force``, a ``host`` is taken past the filters, and only the claim
    judges whether it fits there. ``block``: None where the hosts are to find out whether disks have to be moved."""
    forced = not req.has(Change.LIVE_MIGRATE_FORCE) or strutils.bool_from_string(body.get("force", False))
    block = body["block_migration"]
    return {
        "host": body["host"],
        "forced": forced,
        "block": None if block == "auto" else strutils.bool_from_string(block),
    }


class LiveMigrations(Extension):
    alias = "server-live-migrations"
    title = "Live migrations"
    routes = (
        Route("DELETE", _PATH, "abort", since=Change.MIGRATION_ABORT),
        Route("POST", _PATH + "/action", "force_complete", since=Change.MIGRATION_FORCE_COMPLETE),
    )

    @declares(policies.MIGRATION_ABORT, status=202)
    def abort(self, req: Request, server_id: str, id: str) -> Response:
        """The server stays where it was. Since 2.65 also before the migration proper has begun."""
        number = _number(id)
        if number is None:
            raise exceptions.MigrationNotFoundForInstance(migration_id=id, instance_id=server_id)
        early = req.has(Change.ABORT_QUEUED_MIGRATION)
        self.conductor.live_migration_abort(req.context, server_id, number, early=early)
        return Response(status=202)

    @declares(policies.MIGRATION_FORCE_COMPLETE, body=schemas.FORCE_COMPLETE, status=202)
    def force_complete(self, req: Request, server_id: str, id: str) -> Response:
        """The guest is paused, or runs at its destination before all of its memory is there."""
        number = _number(id)
        if number is None:
            raise exceptions.MigrationNotThere(migration_id=id, instance_id=server_id)
        self.conductor.live_migration_force_complete(req.context, server_id, number)
        return Response(status=202)


def _number(migration_id: str) -> int | None:
    return int(migration_id) if migration_id.isdecimal() and len(migration_id) <= 18 else None
