"""Roles of operators, and which roles imply others, over the identity API. The built-in roles cannot be changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from nova_lite.api.http.rest import ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import directory, listing, requests, views
from nova_lite.api.identity.authority import Authority
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import ROLES, Role
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

T = TypeVar("T")

_IMPLIED = "/v3/roles/{id}/implies"
_FIELDS = ("id", "name", "description", "domain_id", "options", "links")


class IdentityRoles:
    """Mixin of `IdentityApp`: the handlers of roles."""

    authority: Authority
    routes: tuple[ServiceRoute, ...] = (
        ServiceRoute("GET", "/v3/roles", "list_roles", policies.ROLES_LIST),
        ServiceRoute("POST", "/v3/roles", "create_role", policies.ROLES_CREATE),
        ServiceRoute("GET", "/v3/roles/{id}", "show_role", policies.ROLES_SHOW),
        ServiceRoute("PATCH", "/v3/roles/{id}", "update_role", policies.ROLES_UPDATE),
        ServiceRoute("DELETE", "/v3/roles/{id}", "delete_role", policies.ROLES_DELETE),
        ServiceRoute("GET", "/v3/role_inferences", "role_inferences", policies.INFERENCES_LIST),
        ServiceRoute("GET", _IMPLIED, "implied_roles", policies.IMPLIED_LIST),
        ServiceRoute("GET", f"{_IMPLIED}/{{implied_id}}", "implied_role", policies.IMPLIED_SHOW),
        ServiceRoute("PUT", f"{_IMPLIED}/{{implied_id}}", "imply_role", policies.IMPLIED_CREATE),
        ServiceRoute("DELETE", f"{_IMPLIED}/{{implied_id}}", "stop_implying", policies.IMPLIED_DELETE),
    )

    def list_roles(self, req: ServiceRequest) -> Response:
        """List the roles of no domain, or those of the domain in the query."""
        roles = [role for role in self.authority.content.all_roles() if role.domain_id == req.GET.get("domain_id")]
        return listing.listed(req, "roles", (views.role(role, req.base_url) for role in roles))

    def create_role(self, req: ServiceRequest) -> Response:
        fields = requests.create_fields(req, "role", name=str, description=str | None, domain_id=str | None)
        extra = requests.attributes(req, "role", _FIELDS)

        def create(content: Content) -> Role:
            domain_id = requests.domain_of(content, fields) if fields["domain_id"] is not None else None
            role = directory.add_role(content, fields["name"], fields["description"], domain_id)
            role.extra = extra
            return role

        return Response({"role": views.role(self._change(create), req.base_url)}, 201)

    def show_role(self, req: ServiceRequest, id: str) -> Response:
        return Response({"role": views.role(_role(self.authority.content, id), req.base_url)})

    def update_role(self, req: ServiceRequest, id: str) -> Response:
        fields = requests.update_fields(req, "role", name=str, description=str | None, domain_id=str | None)

        def update(content: Content) -> Role:
            role = _changeable(content, id)
            if fields.get("domain_id", role.domain_id) != role.domain_id:
                raise exceptions.ValidationError(detail="Cannot change the domain ID.")
            if "name" in fields:
                directory.rename_role(content, role, fields["name"])
            role.description = fields.get("description", role.description)
            role.extra = requests.attributes(req, "role", _FIELDS, role.extra)
            return role

        return Response({"role": views.role(self._change(update), req.base_url)})

    def delete_role(self, req: ServiceRequest, id: str) -> Response:
        self._change(lambda content: directory.remove_role(content, _changeable(content, id)))
        return Response(status=204)

    # --- which roles imply others

    def role_inferences(self, req: ServiceRequest) -> Response:
        content = self.authority.content
        priors = [role for role in content.all_roles() if content.implied_by(role.key)]
        inferences = [_inference(content, role, req.base_url) for role in priors]
        links = listing.links(f"{req.base_url}/v3/role_inferences")
        return Response({"role_inferences": inferences, "links": links})

    def implied_roles(self, req: ServiceRequest, id: str) -> Response:
        content = self.authority.content
        links = {"self": f"{req.base_url}/v3/roles/{id}/implies"}
        return Response({"role_inference": _inference(content, _role(content, id), req.base_url), "links": links})

    def implied_role(self, req: ServiceRequest, id: str, implied_id: str) -> Response:
        content = self.authority.content
        prior, implied = _role(content, id), _role(content, implied_id)
        if implied.key not in content.implied_by(prior.key):
            raise exceptions.NotFound(f"Role {prior.name} does not imply role {implied.name}.")
        return Response(status=204) if req.method == "HEAD" else _pair(req, prior, implied, 200)

    def imply_role(self, req: ServiceRequest, id: str, implied_id: str) -> Response:
        def imply(content: Content) -> tuple[Role, Role]:
            prior, implied = _role(content, id), _role(content, implied_id)
            directory.imply(content, prior, implied)
            return prior, implied

        return _pair(req, *self._change(imply), 201)

    def stop_implying(self, req: ServiceRequest, id: str, implied_id: str) -> Response:
        self._change(lambda content: directory.stop_implying(content, _role(content, id), _role(content, implied_id)))
        return Response(status=204)

    def _change(self, function: Callable[[Content], T]) -> T:
        return self.authority.replica.change(function)


def _role(content: Content, id: str) -> Role:
    return requests.require("role", id, content.role(id))


def _changeable(content: Content, id: str) -> Role:
    role = _role(content, id)
    if role.key in ROLES:
        raise exceptions.Forbidden(f"The role {role.name} is built in and cannot be changed.")
    return role


def _inference(content: Content, prior: Role, base_url: str) -> dict[str, Any]:
    roles = (content.role_by_key(key) for key in content.implied_by(prior.key))
    implies = [_short(role, base_url) for role in roles if role is not None]
    return {"prior_role": _short(prior, base_url), "implies": implies}


def _pair(req: ServiceRequest, prior: Role, implied: Role, status: int) -> Response:
    inference = {"prior_role": _short(prior, req.base_url), "implies": _short(implied, req.base_url)}
    links = {"self": f"{req.base_url}/v3/roles/{prior.id}/implies/{implied.id}"}
    return Response({"role_inference": inference, "links": links}, status)


def _short(role: Role, base_url: str) -> dict[str, Any]:
    return {"id": role.id, "name": role.name, "links": {"self": f"{base_url}/v3/roles/{role.id}"}}
