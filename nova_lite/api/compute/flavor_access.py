"""``/flavors/{id}/os-flavor-access`` and its actions: the projects that may use a private flavor."""

from __future__ import annotations

from typing import Any

from nova_lite.api.compute import schema_types as t
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, action, declares
from nova_lite.policies import flavors as policies

# --- schemas

_PROJECT: t.Schema = t.strict({"tenant": t.TEXT}, ("tenant",))
ADD_ACCESS_BODY = t.wrapped("addTenantAccess", _PROJECT)
REMOVE_ACCESS_BODY = t.wrapped("removeTenantAccess", _PROJECT)


# --- routes


class FlavorAccess(Extension):
    alias = "os-flavor-access"
    title = "Flavor access"
    routes = (
        Route("GET", "/flavors/{flavor_id}/os-flavor-access", "index"),
        action("flavors", "addTenantAccess", "add"),
        action("flavors", "removeTenantAccess", "remove"),
    )

    @declares(policies.ACCESS, query=t.NO_PARAMETERS, response="flavor_access")
    def index(self, req: Request, flavor_id: str) -> Response:
        return _response(flavor_id, self.conductor.flavor_access_list(req.context, flavor_id))

    @declares(policies.ACCESS_ADD, body=ADD_ACCESS_BODY, response="flavor_access")
    def add(self, req: Request, id: str) -> Response:
        """Grant access. A public flavor is refused since 2.7; before, the request has no effect on it."""
        project_id = req.data["addTenantAccess"]["tenant"]
        allow_public = not req.has(Change.FLAVOR_ACCESS_PRIVATE_ONLY)
        return _response(id, self.conductor.flavor_access_add(req.context, id, project_id, allow_public))

    @declares(policies.ACCESS_REMOVE, body=REMOVE_ACCESS_BODY, response="flavor_access")
    def remove(self, req: Request, id: str) -> Response:
        project_id = req.data["removeTenantAccess"]["tenant"]
        return _response(id, self.conductor.flavor_access_remove(req.context, id, project_id))


def _response(flavor_id: str, projects: list[str]) -> Response:
    access: list[dict[str, Any]] = [{"flavor_id": flavor_id, "tenant_id": project} for project in projects]
    return Response({"flavor_access": access})
