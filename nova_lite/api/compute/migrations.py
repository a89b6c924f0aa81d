"""``/os-migrations`` and ``/servers/{server_id}/migrations``: moves of servers, and live migrations in progress."""

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
        """List migrations. Before 2.59 the list has neither pages nor filters by time."""
        pages = req.has(Change.MIGRATION_PAGING)
        since, before = req.query.changes() if pages else (None, None)
        named = {name: req.query[name] for name in _NAMES if name in req.query}
        filters = MigrationFilters(**named, changes_since=since, changes_before=before)
        marker = req.query.marker if pages else None
        migrations = self.conductor.migration_list(req.context, filters, req.query.limit, marker)
        links: dict[str, Any] = {}
        if pages:
            links = req.next_page("migrations_links", migrations, req.query.limit, lambda migration: migration.uuid)
        return Response({"migrations": [_view(req, migration) for migration in migrations], **links})

    @declares(policies.SERVER_MIGRATIONS, response="migrations")
    def of_server(self, req: Request, server_id: str) -> Response:
        """List the live migrations in progress."""
        self.conductor.instance_get(req.context, server_id)
        migrations = self.conductor.migrations_in_progress(req.context, server_id)
        return Response({"migrations": [_live_view(req, migration) for migration in migrations]})

    @declares(policies.SERVER_MIGRATION, response="migration")
    def show(self, req: Request, server_id: str, id: str) -> Response:
        names = {"migration_id": id, "instance_id": server_id}
        self.conductor.instance_get(req.context, server_id)
        if not id.isdecimal() or len(id) > 18:
            raise exceptions.MigrationNotFound(**names)
        migration: ServerMigration = self.conductor.migration_get(req.context, server_id, int(id))
        if migration.migration_type != _LIVE:
            raise exceptions.MigrationNotLive(**names)
        if migration.status not in _IN_PROGRESS:
            raise exceptions.MigrationNotInProgress(**names)
        return Response({"migration": _live_view(req, migration)})


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
        """Abort a live migration. The server stays on its host.

        Since 2.65 a queued migration can be aborted as well.
        """
        number = _number(id)
        if number is None:
            raise exceptions.MigrationNotFoundForInstance(migration_id=id, instance_id=server_id)
        early = req.has(Change.ABORT_QUEUED_MIGRATION)
        self.conductor.live_migration_abort(req.context, server_id, number, early=early)
        return Response(status=202)

    @declares(policies.MIGRATION_FORCE_COMPLETE, body=FORCE_COMPLETE_BODY, status=202)
    def force_complete(self, req: Request, server_id: str, id: str) -> Response:
        """Force a live migration to complete.

        The guest is paused, or it runs at its destination before all of its memory has arrived.
        """
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
    """Return a live migration in progress. Its progress is null until its host has reported it."""
    progress = {name: migration.progress.get(name) for name in _PROGRESS}
    return {**_common_view(req, migration), "server_uuid": migration.instance_uuid, **progress}


def _common_view(req: Request, migration: ServerMigration) -> dict[str, Any]:
    view: dict[str, Any] = {
        "id": migration.id,
        "status": migration.status,
        "source_compute": migration.source_compute or None,
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
