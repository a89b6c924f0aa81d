"""``/os-server-groups``: groups of servers that share a host, or that run on different hosts."""

from __future__ import annotations

from typing import Any

from nova_lite.api.compute import schema_types as t
from nova_lite.api.http.microversions import Change, Versioned
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.objects import ServerGroup
from nova_lite.policies import server_groups as policies

# --- schemas

_HARD = ["anti-affinity", "affinity"]
_ALL = [*_HARD, "soft-anti-affinity", "soft-affinity"]


def _with_policies(allowed: list[str]) -> t.Schema:
    """Return the body's schema with a list of policies, which has exactly one item."""
    policies = {"type": "array", "items": t.one_of(*allowed), "minItems": 1, "maxItems": 1}
    return t.wrapped("server_group", t.strict({"name": t.NAME, "policies": policies}, ("name", "policies")))


_WITH_POLICY: t.Schema = t.wrapped(
    "server_group",
    t.strict(
        {
            "name": t.NAME,
            "policy": t.one_of(*_ALL),
            "rules": t.strict({"max_server_per_host": t.POSITIVE}),
        },
        ("name", "policy"),
    ),
)

CREATE_BODY = Versioned(
    {
        1: _with_policies(_HARD),
        Change.SERVER_GROUP_SOFT_POLICIES: _with_policies(_ALL),
        Change.SERVER_GROUP_POLICY: _WITH_POLICY,
    }
)

_INDEX: t.Schema = {"all_projects": t.Q_ANY, "limit": t.Q_LIMIT, "offset": t.Q_LIMIT}
INDEX_QUERY = t.query(_INDEX)


# --- routes

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

    @declares(policies.INDEX, query=INDEX_QUERY, response="server_groups")
    def index(self, req: Request) -> Response:
        """List server groups. ``all_projects``, with any value, has an effect for callers whom the policy allows it."""
        all_projects = "all_projects" in req.query and req.allows(policies.INDEX_ALL)
        limit = req.query.limit or self.conf.api.max_limit
        groups = self.conductor.server_group_list(req.context, all_projects, limit, int(req.query.one("offset") or 0))
        return Response({"server_groups": [_view(req, group) for group in groups]})

    @declares(policies.CREATE, body=CREATE_BODY, response="server_group")
    def create(self, req: Request) -> Response:
        group = self.conductor.server_group_create(req.context, _group(req))
        return Response({"server_group": _view(req, group)})

    @declares(policies.SHOW, query=t.NO_PARAMETERS, response="server_group")
    def show(self, req: Request, id: str) -> Response:
        return Response({"server_group": _view(req, self.conductor.server_group_get(req.context, id))})

    @declares(policies.DELETE, status=204)
    def delete(self, req: Request, id: str) -> Response:
        self.conductor.server_group_delete(req.context, id)
        return Response(status=204)


def _group(req: Request) -> ServerGroup:
    body = req.data["server_group"]
    if not req.has(Change.SERVER_GROUP_POLICY):
        return ServerGroup(name=body["name"], policy=body["policies"][0])
    rules = {name: int(value) for name, value in body.get("rules", {}).items()}
    return ServerGroup(name=body["name"], policy=body["policy"], rules=rules)


# --- views


def _view(req: Request, group: ServerGroup) -> dict[str, Any]:
    view: dict[str, Any] = {"id": group.id, "name": group.name, "members": group.members}
    if req.has(Change.SERVER_GROUP_POLICY):
        view |= {"policy": group.policy, "rules": group.rules}
    else:
        view |= {"policies": [group.policy], "metadata": {}}
    if req.has(Change.SERVER_GROUP_OWNER):
        view |= {"project_id": group.project_id, "user_id": group.user_id}
    return view
