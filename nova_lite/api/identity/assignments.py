"""Roles of users and groups in projects, domains and the system, over the identity API."""

from __future__ import annotations

from collections.abc import Iterator

from nova_lite.api.http.rest import ServiceRequest, ServiceRoute, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import directory, listing, requests, views
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import SYSTEM, SYSTEM_ID, Assignment, Domain, Group, Project, System, User
from nova_lite.api.identity.resource import IdentityResource
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

Target = Project | Domain | System

_HOLDERS = ("users/{user_id}", "groups/{group_id}")
_GRANTS = tuple(
    (f"{target}/{holder}/roles", policies.ROLES_OF_HOLDER)
    for target in ("projects/{project_id}", "domains/{domain_id}")
    for holder in _HOLDERS
)
_SYSTEM_RULES = (policies.SYSTEM_ROLES_OF_USER, policies.SYSTEM_ROLES_OF_GROUP)
_SYSTEM_GRANTS = tuple((f"system/{holder}/roles", rules) for holder, rules in zip(_HOLDERS, _SYSTEM_RULES, strict=True))


class Grants(IdentityResource):
    """Roles of one user or group in one project, domain or the system."""

    paths = (*_GRANTS, *_SYSTEM_GRANTS)
    #: Text before and after each path.
    around = ("/v3/", "")
    inherited = False

    @classmethod
    def declared_routes(cls) -> Iterator[ServiceRoute]:
        before, after = cls.around
        for path, rules in cls.paths:
            one = f"{before}{path}/{{role}}{after}"
            yield ServiceRoute("GET", f"{before}{path}{after}", "index", rules.list_, response="roles", resource=cls)
            yield ServiceRoute("GET", one, "check", rules.check, status=204, resource=cls)
            yield ServiceRoute("PUT", one, "grant", rules.grant, status=204, resource=cls)
            yield ServiceRoute("DELETE", one, "revoke", rules.revoke, status=204, resource=cls)

    def index(self, req: ServiceRequest, **ids: str) -> Response:
        content = self.content
        roles = (content.role_by_key(key) for key in _granted(content, self.inherited, ids))
        shown = (views.role(role, req.base_url) for role in roles if role is not None)
        return self.listed(req, shown)

    def check(self, req: ServiceRequest, role: str, **ids: str) -> None:
        found = requests.role(self.content, role)
        if found.key not in _granted(self.content, self.inherited, ids):
            holder, target = _named(self.content, **ids)
            raise exceptions.NotFound(f"{holder.name} does not have the role {found.name} in {target.name}.")

    def grant(self, req: ServiceRequest, role: str, **ids: str) -> None:
        def grant(content: Content) -> None:
            holder, target = _named(content, **ids)
            found = requests.role(content, role)
            where = None if isinstance(target, System) else target.domain_id if isinstance(target, Project) else ""
            if found.domain_id is not None and where not in ("", found.domain_id):
                raise exceptions.Forbidden(
                    f"Role {found.name} is of a domain. It can be granted in projects of this domain and in domains."
                )
            directory.grant(holder, target, found.key, self.inherited)

        self.change(grant)

    def revoke(self, req: ServiceRequest, role: str, **ids: str) -> None:
        def revoke(content: Content) -> None:
            directory.revoke(content, *_named(content, **ids), requests.role(content, role).key, self.inherited)

        self.change(revoke)


class InheritedGrants(Grants):
    """Roles in the projects below one project or domain."""

    paths = _GRANTS
    around = ("/v3/OS-INHERIT/", "/inherited_to_projects")
    inherited = True


class Assignments(IdentityResource):
    """All assignments of roles."""

    @route("GET", "/v3/role_assignments", policies.ASSIGNMENTS_LIST, response="role_assignments")
    def index(self, req: ServiceRequest) -> Response:
        content = self.content
        query = _AssignmentQuery(req, content)
        assignments = [item for item in _assignments(content, query.effective) if query.matches(item)]
        shown = [views.assignment(item, query.with_names, content, req.base_url) for item in assignments]
        return Response({"role_assignments": shown, "links": listing.links(f"{req.base_url}/v3/role_assignments")})


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
    holder = requests.group(content, group_id) if group_id else requests.user(content, user_id)
    if domain_id:
        return holder, requests.domain(content, domain_id)
    if project_id:
        return holder, requests.project(content, project_id)
    return holder, SYSTEM
