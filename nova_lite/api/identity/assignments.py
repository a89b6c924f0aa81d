"""Roles of users and groups in projects, domains and the system, over the identity API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from nova_lite.api.http.rest import ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import directory, listing, requests, views
from nova_lite.api.identity.authority import Authority
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import SYSTEM, SYSTEM_ID, Assignment, Domain, Group, Project, Role, System, User
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

T = TypeVar("T")

Target = Project | Domain | System

_GRANTS = tuple(
    f"{target}/{holder}/roles"
    for target in ("projects/{project_id}", "domains/{domain_id}")
    for holder in ("users/{user_id}", "groups/{group_id}")
)
_SYSTEM_GRANTS = (
    ("system/users/{user_id}/roles", policies.SYSTEM_ROLES_OF_USER),
    ("system/groups/{group_id}/roles", policies.SYSTEM_ROLES_OF_GROUP),
)
_INHERITED = "inherited_to_projects"


def _grant_routes(path: str, rules: policies.GrantRules) -> Iterator[ServiceRoute]:
    yield ServiceRoute("GET", f"/v3/{path}", "list_grants", rules.list_)
    yield ServiceRoute("GET", f"/v3/{path}/{{role}}", "check_grant", rules.check)
    yield ServiceRoute("PUT", f"/v3/{path}/{{role}}", "grant", rules.grant)
    yield ServiceRoute("DELETE", f"/v3/{path}/{{role}}", "revoke_role", rules.revoke)


def _inherited_routes(path: str, rules: policies.GrantRules) -> Iterator[ServiceRoute]:
    one = f"/v3/OS-INHERIT/{path}/{{role}}/{_INHERITED}"
    yield ServiceRoute("GET", f"/v3/OS-INHERIT/{path}/{_INHERITED}", "list_inherited", rules.list_)
    yield ServiceRoute("GET", one, "check_inherited", rules.check)
    yield ServiceRoute("PUT", one, "grant_inherited", rules.grant)
    yield ServiceRoute("DELETE", one, "revoke_inherited", rules.revoke)


class IdentityAssignments:
    """Mixin of `IdentityApp`: the handlers of role assignments."""

    authority: Authority
    routes: tuple[ServiceRoute, ...] = (
        ServiceRoute("GET", "/v3/role_assignments", "role_assignments", policies.ASSIGNMENTS_LIST),
        *(route for path in _GRANTS for route in _grant_routes(path, policies.ROLES_OF_HOLDER)),
        *(route for path, rules in _SYSTEM_GRANTS for route in _grant_routes(path, rules)),
        *(route for path in _GRANTS for route in _inherited_routes(path, policies.ROLES_OF_HOLDER)),
    )

    # --- roles of one user or group in one project, domain or the system

    def list_grants(self, req: ServiceRequest, **ids: str) -> Response:
        return self._listed(req, False, ids)

    def check_grant(self, req: ServiceRequest, role: str, **ids: str) -> Response:
        return self._checked(role, False, ids)

    def grant(self, req: ServiceRequest, role: str, **ids: str) -> Response:
        return self._granted(role, False, ids)

    def revoke_role(self, req: ServiceRequest, role: str, **ids: str) -> Response:
        return self._revoked(role, False, ids)

    # --- the same, in the projects below one project or domain

    def list_inherited(self, req: ServiceRequest, **ids: str) -> Response:
        return self._listed(req, True, ids)

    def check_inherited(self, req: ServiceRequest, role: str, **ids: str) -> Response:
        return self._checked(role, True, ids)

    def grant_inherited(self, req: ServiceRequest, role: str, **ids: str) -> Response:
        return self._granted(role, True, ids)

    def revoke_inherited(self, req: ServiceRequest, role: str, **ids: str) -> Response:
        return self._revoked(role, True, ids)

    def _listed(self, req: ServiceRequest, inherited: bool, ids: dict[str, str]) -> Response:
        content = self.authority.content
        roles = (content.role_by_key(key) for key in _granted(content, inherited, ids))
        shown = (views.role(role, req.base_url) for role in roles if role is not None)
        return listing.listed(req, "roles", shown, req.path_info)

    def _checked(self, role_id: str, inherited: bool, ids: dict[str, str]) -> Response:
        role = _role(self.authority.content, role_id)
        if role.key not in _granted(self.authority.content, inherited, ids):
            holder, target = _named(self.authority.content, **ids)
            raise exceptions.NotFound(f"{holder.name} does not have the role {role.name} in {target.name}.")
        return Response(status=204)

    def _granted(self, role_id: str, inherited: bool, ids: dict[str, str]) -> Response:
        def grant(content: Content) -> None:
            holder, target = _named(content, **ids)
            role = _role(content, role_id)
            where = None if isinstance(target, System) else target.domain_id if isinstance(target, Project) else ""
            if role.domain_id is not None and where not in ("", role.domain_id):
                raise exceptions.Forbidden(
                    f"Role {role.name} is of a domain. It can be granted in projects of this domain and in domains."
                )
            directory.grant(holder, target, role.key, inherited)

        self._change(grant)
        return Response(status=204)

    def _revoked(self, role_id: str, inherited: bool, ids: dict[str, str]) -> Response:
        def revoke(content: Content) -> None:
            directory.revoke(content, *_named(content, **ids), _role(content, role_id).key, inherited)

        self._change(revoke)
        return Response(status=204)

    # --- all assignments

    def role_assignments(self, req: ServiceRequest) -> Response:
        content = self.authority.content
        query = _AssignmentQuery(req, content)
        assignments = [item for item in _assignments(content, query.effective) if query.matches(item)]
        shown = [views.assignment(item, query.with_names, content, req.base_url) for item in assignments]
        return Response({"role_assignments": shown, "links": listing.links(f"{req.base_url}/v3/role_assignments")})

    def _change(self, function: Callable[[Content], T]) -> T:
        return self.authority.replica.change(function)


class _AssignmentQuery:
    """Filters of a list of assignments."""

    def __init__(self, req: ServiceRequest, content: Content) -> None:
        self.user_id, self.group_id, role_id = (req.GET.get(f"{kind}.id") for kind in ("user", "group", "role"))
        project_id, domain_id = (req.GET.get(f"scope.{kind}.id") for kind in ("project", "domain"))
        self.effective, self.with_names = (_is_set(req, name) for name in ("effective", "include_names"))
        self.only_inherited = req.GET.get("scope.OS-INHERIT:inherited_to") is not None
        role = content.role(role_id) if role_id is not None else None
        self.role_key = role_id if role is None else role.key
        self.target_ids: set[str] | None = None
        if project_id is not None:
            below = content.below(project_id) if _is_set(req, "include_subtree") else []
            self.target_ids = {project.id for project in (content.project(project_id), *below) if project is not None}
        elif domain_id is not None:
            self.target_ids = {domain_id} if content.domain(domain_id) is not None else set()
        elif "scope.system" in req.GET:
            self.target_ids = {SYSTEM_ID}
        if _is_set(req, "include_subtree") and project_id is None:
            raise exceptions.ValidationError(detail="include_subtree needs a scope.project.id.")
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
            isinstance(item.holder, kind)
            and holder_id in (None, item.holder.id)
            and self.role_key in (None, item.role)
            and (self.target_ids is None or item.target.id in self.target_ids)
            and (not self.only_inherited or item.is_inherited or item.source is not None)
        )


def _is_set(req: ServiceRequest, name: str) -> bool:
    return name in req.GET and req.GET[name].lower() not in ("0", "false")


def _assignments(content: Content, effective: bool) -> Iterator[Assignment]:
    """Yield all assignments. ``effective``: of users only, with the roles of their groups, and implied roles."""
    if effective:
        for user in content.users:
            yield from _effective(content, user)
        return
    holders: list[User | Group] = [*content.users, *content.groups]
    for holder in holders:
        for target, keys, is_inherited in _grants(content, holder):
            yield from (Assignment(holder, target, key, None, is_inherited) for key in keys)


def _effective(content: Content, user: User) -> Iterator[Assignment]:
    """Yield the roles of a user's tokens, each role in a target once."""
    seen = set()
    holders: list[User | Group] = [user, *content.groups_of(user)]
    for holder in holders:
        group = holder if isinstance(holder, Group) else None
        for source, keys, is_inherited in _grants(content, holder):
            targets: list[Target] = [*content.below(source.id)] if is_inherited else [source]
            above = source if is_inherited and not isinstance(source, System) else None
            for target in targets:
                for role in content.effective(keys):
                    if (target.id, role.id) not in seen:
                        seen.add((target.id, role.id))
                        yield Assignment(user, target, role.key, group, source=above)


def _grants(content: Content, holder: User | Group) -> Iterator[tuple[Target, list[str], bool]]:
    """Yield target, keys of roles, and whether they are inherited, of all that a user or group was granted."""
    for is_inherited, granted in ((False, holder.roles), (True, holder.inherited_roles)):
        for target_id, keys in granted.items():
            target = SYSTEM if target_id == SYSTEM_ID else content.project(target_id) or content.domain(target_id)
            if target is not None:
                yield target, keys, is_inherited


def _granted(content: Content, inherited: bool, ids: dict[str, str]) -> list[str]:
    holder, target = _named(content, **ids)
    return (holder.inherited_roles if inherited else holder.roles).get(target.id, [])


def _named(
    content: Content, project_id: str = "", domain_id: str = "", user_id: str = "", group_id: str = ""
) -> tuple[User | Group, Target]:
    """Return the user or group, and the project or domain or system, that a URL names."""
    holder: User | Group
    if group_id:
        holder = requests.require("group", group_id, content.find(Group, group_id))
    else:
        holder = requests.require("user", user_id, content.user(user_id))
    if domain_id:
        return holder, requests.require("domain", domain_id, content.domain(domain_id))
    if project_id:
        return holder, requests.require("project", project_id, content.project(project_id))
    return holder, SYSTEM


def _role(content: Content, id: str) -> Role:
    return requests.require("role", id, content.role(id))
