"""``/os-server-groups``: servers that are to be together on a host, or apart."""

from __future__ import annotations

from nova_lite.api.compute.schemas import queries
from nova_lite.api.compute.schemas import server_groups as schemas
from nova_lite.api.compute.views import server_groups as views
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.objects import ServerGroup
from nova_lite.policies import server_groups as policies

_PATH = "/os-server-groups"


class ServerGroups(Extension):
    alias = "os-server-groups"
    title = "Server groups"
    routes = (
        Route("GET", _PATH, "index"),
        Route("POST", _PATH, "create"),
        Route("GET", _PATH + "/{id}", "show"),
        Route("DELETE", _PATH + "/{id}", "delete"),
    )

    @declares(policies.INDEX, query=schemas.INDEX, answer="server_groups")
    def index(self, req: Request) -> Response:
        """``all_projects``, whatever its value, counts for who may ask for that; others get their own groups."""
        everybody = "all_projects" in req.query and req.allows(policies.INDEX_ALL)
        limit = req.query.limit or self.conf.api.max_limit
        groups = self.conductor.server_group_list(req.context, everybody, limit, int(req.query.one("offset") or 0))
        return Response({"server_groups": [views.show(req, group) for group in groups]})

    @declares(policies.CREATE, body=schemas.CREATE, answer="server_group")
    def create(self, req: Request) -> Response:
        group = self.conductor.server_group_create(req.context, _group(req))
        return Response({"server_group": views.show(req, group)})

    @declares(policies.SHOW, query=queries.NOTHING, answer="server_group")
    def show(self, req: Request, id: str) -> Response:
        return Response({"server_group": views.show(req, self.conductor.server_group_get(req.context, id))})

    @declares(policies.DELETE, status=204)
    def delete(self, req: Request, id: str) -> Response:
        self.conductor.server_group_delete(req.context, id)
        return Response(status=204)


def _group(req: Request) -> ServerGroup:
    wanted = req.data["server_group"]
    if not req.has(Change.SERVER_GROUP_POLICY):
        return ServerGroup(name=wanted["name"], policy=wanted["policies"][0])
    rules = {name: int(value) for name, value in wanted.get("rules", {}).items()}
    return ServerGroup(name=wanted["name"], policy=wanted["policy"], rules=rules)
