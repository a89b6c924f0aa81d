"""Roles of users and groups in projects and domains, and which roles imply others, over the identity API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from nova_lite.api.http.rest import ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import directory, listing, requests, views
from nova_lite.api.identity.authority import Authority
from nova_lite.api.identity.directory import (
    ROLES,
    Assignment,
    Content,
    Domain,
    Group,
    Project,
    User,
    implied,
    role_id,
)
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

T = TypeVar("T")

_GRANTS = tuple(
    f"/v3/{target}/{holder}/roles"
    for target in ("projects/{project_id}", "domains/{domain_id}")
    for holder in ("users/{user_id}", "groups/{group_id}")
)
_IMPLIED = "/v3/roles/{id}/implies"


class IdentityAssignments:
    """Mixin of `IdentityApp`: the handlers of role assignments."""

    authority: Authority
    routes: tuple[ServiceRoute, ...] = (
        ServiceRoute("GET", "/v3/role_assignments", "role_assignments", policies.ASSIGNMENTS_LIST),
        ServiceRoute("GET", "/v3/role_inferences", "role_inferences", policies.INFERENCES_LIST),
        ServiceRoute("GET", _IMPLIED, "implied_roles", policies.IMPLIED_LIST),
        ServiceRoute("GET", f"{_IMPLIED}/{{implied_id}}", "implied_role", policies.IMPLIED_SHOW),
        *(
            ServiceRoute(method, path, handler, policy)
            for roles in _GRANTS
            for method, path, handler, policy in (
                ("GET", roles, "list_grants", policies.ROLES_OF_HOLDER),
                ("GET", f"{roles}/{{role}}", "check_grant", policies.ROLES_CHECK),
                ("PUT", f"{roles}/{{role}}", "grant", policies.ROLES_GRANT),
                ("DELETE", f"{roles}/{{role}}", "revoke_role", policies.ROLES_REVOKE),
            )
        ),
    )

    # --- roles of one user or group in one project or domain

    def list_grants(self, req: ServiceRequest, **ids: str) -> Response:
        holder, target = _named(self.authority.content, **ids)
        shown = (views.role(name, req.base_url) for name in holder.roles.get(target.id, []))
        return listing.listed(req, "roles", shown, req.path_info)

    def check_grant(self, req: ServiceRequest, role: str, **ids: str) -> Response:
        holder, target = _named(self.authority.content, **ids)
        if _role(role) not in holder.roles.get(target.id, []):
            raise exceptions.NotFound(f"{holder.name} does not have the role {_role(role)} in {target.name}.")
        return Response(status=204)

    def grant(self, req: ServiceRequest, role: str, **ids: str) -> Response:
        self._change(lambda content: directory.grant(*_named(content, **ids), _role(role)))
        return Response(status=204)

    def revoke_role(self, req: ServiceRequest, role: str, **ids: str) -> Response:
        def revoke(content: Content) -> None:
            directory.revoke(content, *_named(content, **ids), _role(role))

        self._change(revoke)
        return Response(status=204)

    # --- all assignments

    def role_assignments(self, req: ServiceRequest) -> Response:
        query = _AssignmentQuery(req)
        assignments = [item for item in _assignments(self.authority.content, query.effective) if query.matches(item)]
        shown = [views.assignment(item, query.with_names, self.authority.content, req.base_url) for item in assignments]
        return Response({"role_assignments": shown, "links": listing.links(f"{req.base_url}/v3/role_assignments")})

    # --- which roles imply others

    def role_inferences(self, req: ServiceRequest) -> Response:
        inferences = [_inference(name, req.base_url) for name in ROLES if _implied_by(name)]
        links = listing.links(f"{req.base_url}/v3/role_inferences")
        return Response({"role_inferences": inferences, "links": links})

    def implied_roles(self, req: ServiceRequest, id: str) -> Response:
        links = {"self": f"{req.base_url}/v3/roles/{id}/implies"}
        return Response({"role_inference": _inference(_role(id), req.base_url), "links": links})

    def implied_role(self, req: ServiceRequest, id: str, implied_id: str) -> Response:
        prior, name = _role(id), _role(implied_id)
        if name not in _implied_by(prior):
            raise exceptions.NotFound(f"Role {prior} does not imply role {name}.")
        inference = {"prior_role": _short(prior, req.base_url), "implies": _short(name, req.base_url)}
        links = {"self": f"{req.base_url}/v3/roles/{id}/implies/{implied_id}"}
        return Response({"role_inference": inference, "links": links})

    def _change(self, function: Callable[[Content], T]) -> T:
        return self.authority.replica.change(function)


class _AssignmentQuery:
    """Filters of a list of assignments."""

    def __init__(self, req: ServiceRequest) -> None:
        self.user_id, self.group_id, self.role_id = (req.GET.get(f"{kind}.id") for kind in ("user", "group", "role"))
        self.project_id, self.domain_id = (req.GET.get(f"scope.{kind}.id") for kind in ("project", "domain"))
        self.is_elsewhere = bool({"scope.system", "scope.OS-INHERIT:inherited_to"} & set(req.GET))
        self.effective, self.with_names = (_is_set(req, name) for name in ("effective", "include_names"))
        if self.user_id is not None and self.group_id is not None:
            raise exceptions.ValidationError(detail="Specify a user or a group to filter by, but not both.")
        if self.effective and self.group_id is not None:
            raise exceptions.ValidationError(
                detail="An effective list has the roles of users. Filter it by a user instead of a group."
            )

    def matches(self, item: Assignment) -> bool:
        kind = User if self.user_id is not None else Group if self.group_id is not None else object
        holder_id = self.user_id or self.group_id
        return (
            not self.is_elsewhere
            and isinstance(item.holder, kind)
            and holder_id in (None, item.holder.id)
            and self.role_id in (None, role_id(item.role))
            and (self.project_id is None or (isinstance(item.target, Project) and item.target.id == self.project_id))
            and (self.domain_id is None or (isinstance(item.target, Domain) and item.target.id == self.domain_id))
        )


def _is_set(req: ServiceRequest, name: str) -> bool:
    return name in req.GET and req.GET[name].lower() not in ("0", "false")


def _assignments(content: Content, effective: bool) -> Iterator[Assignment]:
    """Yield all assignments. ``effective``: of users only, with the roles of their groups, and implied roles."""
    targets: list[Project | Domain] = [*content.projects, *content.all_domains()]
    for target in targets:
        for user in content.users:
            own = user.roles.get(target.id, [])
            yield from (Assignment(user, target, role) for role in (implied(own) if effective else own))
            for group in content.groups_of(user) if effective else []:
                roles = implied(group.roles.get(target.id, []))
                yield from (Assignment(user, target, role, group) for role in roles if role not in implied(own))
        if not effective:
            yield from (
                Assignment(group, target, role) for group in content.groups for role in group.roles.get(target.id, [])
            )


def _named(
    content: Content, project_id: str = "", domain_id: str = "", user_id: str = "", group_id: str = ""
) -> tuple[User | Group, Project | Domain]:
    """Return the user or group, and the project or domain, that a URL names."""
    holder: User | Group
    if group_id:
        holder = requests.require("group", group_id, content.find(Group, group_id))
    else:
        holder = requests.require("user", user_id, content.user(user_id))
    if domain_id:
        return holder, requests.require("domain", domain_id, content.domain(domain_id))
    return holder, requests.require("project", project_id, content.project(project_id))


def _role(id: str) -> str:
    return requests.require("role", id, next((name for name in ROLES if role_id(name) == id), None))


def _implied_by(name: str) -> list[str]:
    """Return the roles that a role implies directly: Keystone lists one rule for each pair."""
    return implied([name])[1:2]


def _inference(name: str, base_url: str) -> dict[str, Any]:
    implies = [_short(role, base_url) for role in _implied_by(name)]
    return {"prior_role": _short(name, base_url), "implies": implies}


def _short(name: str, base_url: str) -> dict[str, Any]:
    return {"id": role_id(name), "name": name, "links": {"self": f"{base_url}/v3/roles/{role_id(name)}"}}
