"""``/os-migrations`` and ``/servers/{server_id}/migrations``: there is no migration yet, so both are empty."""

from __future__ import annotations

from nova_lite import exception
from nova_lite.api import validation
from nova_lite.api.compute.schemas import queries
from nova_lite.api.microversions import Change
from nova_lite.api.wsgi import Answer, Extension, Request, Route, declares
from nova_lite.policies import servers as policies


class Migrations(Extension):
    alias = "os-migrations"
    title = "Migrations"
    includes = ("server-migrations",)
    routes = (
        Route("GET", "/os-migrations", "index"),
        Route("GET", "/servers/{server_id}/migrations", "of_server", since=Change.SERVER_MIGRATIONS),
    )

    @declares(policies.MIGRATIONS, query=queries.MIGRATIONS, answer="migrations")
    def index(self, req: Request) -> Answer:
        query = req.query
        since, before = (query.one(name) for name in ("changes-since", "changes-before"))
        if since and before and validation.parse_time(since) > validation.parse_time(before):
            raise exception.ValidationError(
                detail="The value of changes-since must be less than or equal to changes-before."
            )
        if query.marker is not None:
            raise exception.MarkerNotFound(marker=query.marker)
        return Answer({"migrations": []})

    @declares(policies.SERVER_MIGRATIONS, answer="migrations")
    def of_server(self, req: Request, server_id: str) -> Answer:
        """Those that are going on."""
        self.conductor.instance_get(req.context, server_id)
        return Answer({"migrations": []})
