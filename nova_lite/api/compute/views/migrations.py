"""Moves of servers."""

from __future__ import annotations

from typing import Any

from nova_lite.api.compute.views import times
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Request
from nova_lite.objects import ServerMigration

LIVE = "live-migration"
IN_PROGRESS = ("queued", "preparing", "running", "post-migrating")

_PROGRESS = tuple(f"{what}_{part}_bytes" for what in ("memory", "disk") for part in ("total", "processed", "remaining"))


def listed(req: Request, migration: ServerMigration) -> dict[str, Any]:
    view = {
        **_common(req, migration),
        "instance_uuid": migration.instance_uuid,
        "old_instance_type_id": migration.old_flavor_id,
        "new_instance_type_id": migration.new_flavor_id,
    }
    if req.has(Change.SERVER_MIGRATIONS):
        view["migration_type"] = migration.migration_type
        if migration.migration_type == LIVE and migration.status in IN_PROGRESS:
            view["links"] = req.links("servers", migration.instance_uuid, "migrations", str(migration.id))
    return view


def live(req: Request, migration: ServerMigration) -> dict[str, Any]:
    """One that is going on, with its progress; before its host has told any, null."""
    progress = {name: migration.progress.get(name) for name in _PROGRESS}
    return {**_common(req, migration), "server_uuid": migration.instance_uuid, **progress}


def _common(req: Request, migration: ServerMigration) -> dict[str, Any]:
    view: dict[str, Any] = {
        "id": migration.id,
        "status": migration.status,
        "source_compute": migration.source_compute,
        "source_node": migration.source_node,
        "dest_compute": migration.dest_compute,
        "dest_node": migration.dest_node,
        "dest_host": migration.dest_host,
        "created_at": times.micros(migration.created_at),
        "updated_at": times.micros(migration.updated_at),
    }
    if req.has(Change.MIGRATION_PAGING):
        view["uuid"] = migration.uuid
    if req.has(Change.MIGRATION_OWNERS):
        view["user_id"] = migration.user_id
        view["project_id"] = migration.project_id
    return view
