"""``/os-migrations`` and ``/servers/{server_id}/migrations``: moves of servers, and the live ones that are going on.
Live migrations that are going on: what the user wants of them. And what a request for one says."""

from __future__ import annotations

from typing import Any

from nova_lite.api.compute import schema_types as t
from nova_lite.api.compute import view_helpers
from nova_lite.api.http.microversions import Change, Versioned
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.objects import MigrationFilters, ServerMigration
from nova_lite.policies import servers as policies

# --- schemas

_MIGRATIONS: t.Schema = dict.fromkeys(
    ("hidden", "host", "instance_uuid", "source_compute", "status", "migration_type"), t.Q_ANY
)
_MIGRATIONS_259: t.Schema = {**_MIGRATIONS, **t.PAGING, "changes-since": t.Q_TIME}
_MIGRATIONS_266: t.Schema = {**_MIGRATIONS_259, "changes-before": t.Q_TIME}
_MIGRATIONS_280: t.Schema = {**_MIGRATIONS_266, "user_id": t.Q_ANY, "project_id": t.Q_ANY}
MIGRATIONS_QUERY = Versioned(
    {
        1: t.loose_query(_MIGRATIONS),
        Change.MIGRATION_PAGING: t.strict(_MIGRATIONS_259),
        Change.CHANGES_BEFORE: t.strict(_MIGRATIONS_266),
        Change.MIGRATION_OWNERS: t.strict(_MIGRATIONS_280),
    }
)


FORCE_COMPLETE_BODY = t.wrapped("force_complete", {"type": "null"})


# --- routes

_PATH = "/servers/{server_id}/migrations"

#: Filters that are columns of the list.
_NAMES = ("host", "instance_uuid", "status", "migration_type", "source_compute", "user_id", "project_id")


class Migrations(Extension):
    alias = "os-migrations"
    title = "Migrations"
    routes = (
        Route("GET", "/os-migrations", "index"),
        Route("GET", _PATH, "of_server", since=Change.SERVER_MIGRATIONS),
        Route("GET", _PATH + "/{id}", "show", since=Change.SERVER_MIGRATIONS),
    )

    @declares(policies.MIGRATIONS, query=MIGRATIONS_QUERY, response="migrations")
    def index(self, req: Request) -> Response:
        """Before 2.59 neither paged nor filtered by time."""
        pages = req.has(Change.MIGRATION_PAGING)
        since, before = req.query.changes() if pages else (None, None)
        named = {name: req.query[name] for name in _NAMES if name in req.query}
        filters = MigrationFilters(**named, changes_since=since, changes_before=before)
        marker = req.query.marker if pages else None
        found = self.conductor.migration_list(req.context, filters, req.query.limit, marker)
        links: dict[str, Any] = {}
        if pages:
            links = req.next_page("migrations_links", found, req.query.limit, lambda each: each.uuid)
        return Response({"migrations": [_view(req, each) for each in found], **links})

    @declares(policies.SERVER_MIGRATIONS, response="migrations")
    def of_server(self, req: Request, server_id: str) -> Response:
        """Live migrations that are going on."""
        self.conductor.instance_get(req.context, server_id)
        found = self.conductor.migrations_in_progress(req.context, server_id)
        return Response({"migrations": [_live_view(req, each) for each in found]})

    @declares(policies.SERVER_MIGRATION, response="migration")
    def show(self, req: Request, server_id: str, id: str) -> Response:
        names = {"migration_id": id, "instance_id": server_id}
        self.conductor.instance_get(req.context, server_id)
        if not id.isdecimal() or len(id) > 18:
            raise exceptions.MigrationNotFound(**names)
        found: ServerMigration = self.conductor.migration_get(req.context, server_id, int(id))
        if found.migration_type != _LIVE:
            raise exceptions.MigrationNotLive(**names)
        if found.status not in _IN_PROGRESS:
            raise exceptions.MigrationNotInProgress(**names)
        return Response({"migration": _live_view(req, found)})


_MIGRATION = "/servers/{server_id}/migrations/{id}"


class LiveMigrations(Extension):
    alias = "server-live-migrations"
    title = "Live migrations"
    routes = (
        Route("DELETE", _MIGRATION, "abort", since=Change.MIGRATION_ABORT),
        Route("POST", _MIGRATION + "/action", "force_complete", since=Change.MIGRATION_FORCE_COMPLETE),
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

    @declares(policies.MIGRATION_FORCE_COMPLETE, body=FORCE_COMPLETE_BODY, status=202)
    def force_complete(self, req: Request, server_id: str, id: str) -> Response:
        """The guest is paused, or runs at its destination before all of its memory is there."""
        number = _number(id)
        if number is None:
            raise exceptions.MigrationNotThere(migration_id=id, instance_id=server_id)
        self.conductor.live_migration_force_complete(req.context, server_id, number)
        return Response(status=202)


def _number(migration_id: str) -> int | None:
    return int(migration_id) if migration_id.isdecimal() and len(migration_id) <= 18 else None


# --- views

_LIVE = "live-migration"
_IN_PROGRESS = ("queued", "preparing", "running", "post-migrating")

_PROGRESS = tuple(f"{what}_{part}_bytes" for what in ("memory", "disk") for part in ("total", "processed", "remaining"))


def _view(req: Request, migration: ServerMigration) -> dict[str, Any]:
    view = {
        **_common_view(req, migration),
        "instance_uuid": migration.instance_uuid,
        "old_instance_type_id": migration.old_flavor_id,
        "new_instance_type_id": migration.new_flavor_id,
    }
    if req.has(Change.SERVER_MIGRATIONS):
        view["migration_type"] = migration.migration_type
        if migration.migration_type == _LIVE and migration.status in _IN_PROGRESS:
            view["links"] = req.links("servers", migration.instance_uuid, "migrations", str(migration.id))
    return view


def _live_view(req: Request, migration: ServerMigration) -> dict[str, Any]:
    """One that is going on, with its progress; before its host has told any, null."""
    progress = {name: migration.progress.get(name) for name in _PROGRESS}
    return {**_common_view(req, migration), "server_uuid": migration.instance_uuid, **progress}


def _common_view(req: Request, migration: ServerMigration) -> dict[str, Any]:
    view: dict[str, Any] = {
        "id": migration.id,
        "status": migration.status,
        "source_compute": migration.source_compute,
        "source_node": migration.source_node,
        "dest_compute": migration.dest_compute,
        "dest_node": migration.dest_node,
        "dest_host": migration.dest_host,
        "created_at": view_helpers.iso_micros(migration.created_at),
        "updated_at": view_helpers.iso_micros(migration.updated_at),
    }
    if req.has(Change.MIGRATION_PAGING):
        view["uuid"] = migration.uuid
    if req.has(Change.MIGRATION_OWNERS):
        view["user_id"] = migration.user_id
        view["project_id"] = migration.project_id
    return view
