"""``/os-migrations`` and ``/servers/{server_id}/migrations``: moves of servers, and the live ones that are going on."""

from __future__ import annotations

from typing import Any

from nova_lite.api.compute.schemas import queries
from nova_lite.api.compute.views import migrations as views
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.objects import MigrationFilters, ServerMigration
from nova_lite.policies import servers as policies

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

    @declares(policies.MIGRATIONS, query=queries.MIGRATIONS, answer="migrations")
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
        return Response({"migrations": [views.listed(req, each) for each in found], **links})

    @declares(policies.SERVER_MIGRATIONS, answer="migrations")
    def of_server(self, req: Request, server_id: str) -> Response:
        """Live migrations that are going on."""
        self.conductor.instance_get(req.context, server_id)
        found = self.conductor.migrations_in_progress(req.context, server_id)
        return Response({"migrations": [views.live(req, each) for each in found]})

    @declares(policies.SERVER_MIGRATION, answer="migration")
    def show(self, req: Request, server_id: str, id: str) -> Response:
        names = {"migration_id": id, "instance_id": server_id}
        self.conductor.instance_get(req.context, server_id)
        if not id.isdecimal() or len(id) > 18:
            raise exceptions.MigrationNotFound(**names)
        found: ServerMigration = self.conductor.migration_get(req.context, server_id, int(id))
        if found.migration_type != views.LIVE:
            raise exceptions.MigrationNotLive(**names)
        if found.status not in views.IN_PROGRESS:
            raise exceptions.MigrationNotInProgress(**names)
        return Response({"migration": views.live(req, found)})
