"""``/os-migrations`` and ``/servers/{server_id}/migrations``: there is no migration yet, so both are empty."""

from __future__ import annotations

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
        req.query.changes()
        return Answer({"migrations": req.query.page((), str)})

    @declares(policies.SERVER_MIGRATIONS, answer="migrations")
    def of_server(self, req: Request, server_id: str) -> Answer:
        """Those that are going on."""
        self.conductor.instance_get(req.context, server_id)
        return Answer({"migrations": []})
