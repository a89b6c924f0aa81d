"""Roles of operators, and which roles imply others, over the identity API. The built-in roles cannot be changed."""

from __future__ import annotations

from typing import Any

from nova_lite.api.http.bodies import changed
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import directory, listing, requests, views
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import ROLES, Role
from nova_lite.api.identity.requests import Extensible, NoOptions, String, Text
from nova_lite.api.identity.resource import IdentityResource
from nova_lite.api.identity.views import View
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

_IMPLIED = "/v3/roles/{id}/implies"


class NewRole(Extensible, kw_only=True):
    name: String
    description: Text = None
    domain_id: Text = None
    options: NoOptions = {}


class Roles(IdentityResource):
    """Roles."""

    @route("GET", "/v3/roles", policies.ROLES_LIST, response="roles")
    def index(self, req: ServiceRequest) -> Response:
        """List the roles of no domain, or those of the domain in the query."""
        roles = [role for role in self.content.all_roles() if role.domain_id == req.GET.get("domain_id")]
        return self.listed(req, (views.role(role, req.base_url) for role in roles))

    @route("POST", "/v3/roles", policies.ROLES_CREATE, body=NewRole, key="role", status=201)
    def create(self, req: ServiceRequest) -> View:
        body, more = requests.read(req, NewRole), requests.attributes(req)

        def create(content: Content) -> Role:
            domain_id = requests.domain_id(content, body.domain_id) if body.domain_id is not None else None
            role = directory.add_role(content, body.name, body.description, domain_id)
            role.extra = more
            return role

        return views.role(self.change(create), req.base_url)

    @route("GET", "/v3/roles/{id}", policies.ROLES_SHOW, response="role")
    def show(self, req: ServiceRequest, id: str) -> View:
        return views.role(requests.role(self.content, id), req.base_url)

    @route("PATCH", "/v3/roles/{id}", policies.ROLES_UPDATE, body=changed(NewRole), key="role")
    def update(self, req: ServiceRequest, id: str) -> View:
        fields = requests.changes(req)

        def update(content: Content) -> Role:
            role = _changeable(content, id)
            if fields.get("domain_id", role.domain_id) != role.domain_id:
                raise exceptions.ValidationError(detail="Cannot change the domain ID.")
            if "name" in fields:
                directory.rename_role(content, role, fields["name"])
            role.description = fields.get("description", role.description)
            role.extra = requests.attributes(req, role.extra)
            return role

        return views.role(self.change(update), req.base_url)

    @route("DELETE", "/v3/roles/{id}", policies.ROLES_DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self.change(lambda content: directory.remove_role(content, _changeable(content, id)))


class ImpliedRoles(IdentityResource):
    """Roles that other roles imply."""

    @route("GET", "/v3/role_inferences", policies.INFERENCES_LIST, response="role_inferences")
    def inferences(self, req: ServiceRequest) -> Response:
        content = self.content
        priors = [role for role in content.all_roles() if content.implied_by(role.key)]
        inferences = [_inference(content, role, req.base_url) for role in priors]
        links = listing.links(f"{req.base_url}/v3/role_inferences")
        return Response({"role_inferences": inferences, "links": links})

    @route("GET", _IMPLIED, policies.IMPLIED_LIST, response="role_inference")
    def implied(self, req: ServiceRequest, id: str) -> Response:
        content = self.content
        links = {"self": f"{req.base_url}/v3/roles/{id}/implies"}
        return Response(
            {"role_inference": _inference(content, requests.role(content, id), req.base_url), "links": links}
        )

    @route("GET", f"{_IMPLIED}/{{implied_id}}", policies.IMPLIED_SHOW, response="role_inference")
    def show_implied(self, req: ServiceRequest, id: str, implied_id: str) -> Response:
        content = self.content
        prior, implied = requests.role(content, id), requests.role(content, implied_id)
        if implied.key not in content.implied_by(prior.key):
            raise exceptions.NotFound(f"Role {prior.name} does not imply role {implied.name}.")
        return Response(status=204) if req.method == "HEAD" else _pair(req, prior, implied)

    @route("PUT", f"{_IMPLIED}/{{implied_id}}", policies.IMPLIED_CREATE, response="role_inference", status=201)
    def imply(self, req: ServiceRequest, id: str, implied_id: str) -> Response:
        def imply(content: Content) -> tuple[Role, Role]:
            prior, implied = requests.role(content, id), requests.role(content, implied_id)
            directory.imply(content, prior, implied)
            return prior, implied

        return _pair(req, *self.change(imply))

    @route("DELETE", f"{_IMPLIED}/{{implied_id}}", policies.IMPLIED_DELETE, status=204)
    def stop_implying(self, req: ServiceRequest, id: str, implied_id: str) -> None:
        self.change(
            lambda content: directory.stop_implying(
                content, requests.role(content, id), requests.role(content, implied_id)
            )
        )


def _changeable(content: Content, id: str) -> Role:
    role = requests.role(content, id)
    if role.key in ROLES:
        raise exceptions.Forbidden(f"The role {role.name} is built in and cannot be changed.")
    return role


def _inference(content: Content, prior: Role, base_url: str) -> dict[str, Any]:
    roles = (content.role_by_key(key) for key in content.implied_by(prior.key))
    implies = [_short(role, base_url) for role in roles if role is not None]
    return {"prior_role": _short(prior, base_url), "implies": implies}


def _pair(req: ServiceRequest, prior: Role, implied: Role) -> Response:
    inference = {"prior_role": _short(prior, req.base_url), "implies": _short(implied, req.base_url)}
    links = {"self": f"{req.base_url}/v3/roles/{prior.id}/implies/{implied.id}"}
    return Response({"role_inference": inference, "links": links}, req.service_route.status)


def _short(role: Role, base_url: str) -> dict[str, Any]:
    return {"id": role.id, "name": role.name, "links": {"self": f"{base_url}/v3/roles/{role.id}"}}
