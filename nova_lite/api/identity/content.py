"""All records of the identity service together, and how to look them up.

Everything here is pure. `nova_lite.api.identity.replica` reads the content and stores changes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from nova_lite.api.identity.records import (
    _BUILT_IN_BY_KEY,
    _RANKS,
    BUILT_IN_ROLES,
    DEFAULT_DOMAIN,
    DOMAIN_ID,
    MAX_DEPTH,
    AccessRule,
    ApplicationCredential,
    CatalogEndpoint,
    CatalogRegion,
    CatalogService,
    Credential,
    Domain,
    DomainConfig,
    EndpointGroup,
    FederationMapping,
    FederationProtocol,
    Group,
    IdentityProvider,
    Implication,
    Limit,
    PolicyBlob,
    Project,
    RegisteredLimit,
    Revocation,
    Role,
    SecretKey,
    System,
    TokenKey,
    Trust,
    User,
    comparable,
)

T = TypeVar("T")


N = TypeVar("N", "Project", "User", "Group")


class Content(msgspec.Struct, kw_only=True, dict=True):
    """All records of the identity service. The records of a kind are in the order of their creation."""

    projects: list[Project] = msgspec.field(default_factory=list)
    users: list[User] = msgspec.field(default_factory=list)
    keys: list[TokenKey] = msgspec.field(default_factory=list)
    revocations: list[Revocation] = msgspec.field(default_factory=list)
    application_credentials: list[ApplicationCredential] = msgspec.field(default_factory=list)
    access_rules: list[AccessRule] = msgspec.field(default_factory=list)
    groups: list[Group] = msgspec.field(default_factory=list)
    services: list[CatalogService] = msgspec.field(default_factory=list)
    endpoints: list[CatalogEndpoint] = msgspec.field(default_factory=list)
    regions: list[CatalogRegion] = msgspec.field(default_factory=list)
    trusts: list[Trust] = msgspec.field(default_factory=list)
    domains: list[Domain] = msgspec.field(default_factory=list)
    credentials: list[Credential] = msgspec.field(default_factory=list)
    secret_keys: list[SecretKey] = msgspec.field(default_factory=list)
    roles: list[Role] = msgspec.field(default_factory=list)
    implications: list[Implication] = msgspec.field(default_factory=list)
    identity_providers: list[IdentityProvider] = msgspec.field(default_factory=list)
    federation_protocols: list[FederationProtocol] = msgspec.field(default_factory=list)
    mappings: list[FederationMapping] = msgspec.field(default_factory=list)
    registered_limits: list[RegisteredLimit] = msgspec.field(default_factory=list)
    limits: list[Limit] = msgspec.field(default_factory=list)
    policies: list[PolicyBlob] = msgspec.field(default_factory=list)
    domain_configs: list[DomainConfig] = msgspec.field(default_factory=list)
    endpoint_groups: list[EndpointGroup] = msgspec.field(default_factory=list)

    def freeze(self) -> Content:
        """Make look-ups by id quick. The content must not be changed any more."""
        index = {field: {item.id: item for item in getattr(self, field)} for field, _ in KINDS.values()}
        memberships: dict[str, list[Group]] = {}
        for group in self.groups:
            for user_id in group.members:
                memberships.setdefault(user_id, []).append(group)
        self.__dict__.update(index=index, memberships=memberships, implied=self._implied())
        return self

    def find(self, kind: type[T], id: str) -> T | None:
        """Return the record of this type and id."""
        field = _FIELDS[kind]
        if "index" in self.__dict__:
            found: T | None = self.__dict__["index"][field].get(id)
            return found
        return next((item for item in getattr(self, field) if item.id == id), None)

    def user(self, user_id: str) -> User | None:
        return self.find(User, user_id)

    def user_named(self, name: str, domain_id: str = DOMAIN_ID) -> User | None:
        return _named(self.users, name, domain_id)

    def project(self, project_id: str) -> Project | None:
        return self.find(Project, project_id)

    def project_named(self, name: str, domain_id: str = DOMAIN_ID) -> Project | None:
        return _named(self.projects, name, domain_id)

    def group_named(self, name: str, domain_id: str = DOMAIN_ID) -> Group | None:
        return _named(self.groups, name, domain_id)

    def all_domains(self) -> list[Domain]:
        return [DEFAULT_DOMAIN, *self.domains]

    def domain(self, domain_id: str) -> Domain | None:
        return DEFAULT_DOMAIN if domain_id == DOMAIN_ID else self.find(Domain, domain_id)

    def domain_named(self, name: str) -> Domain | None:
        """Return the domain of this name, in any case."""
        return next((domain for domain in self.all_domains() if domain.name.casefold() == name.casefold()), None)

    def domain_of(self, item: User | Project | Group) -> Domain:
        """Return the domain of a user, project or group."""
        return self.domain(item.domain_id) or DEFAULT_DOMAIN

    def is_usable(self, item: User | Project) -> bool:
        """Check whether a user or project, and its domain, are enabled."""
        if isinstance(item, User) and (item.absent or not self._is_served(item)):
            return False
        return item.enabled and self.domain_of(item).enabled

    def _is_served(self, user: User) -> bool:
        """Check whether the identity provider of a user is enabled."""
        provider = self.find(IdentityProvider, user.provider_id) if user.provider_id is not None else None
        return user.provider_id is None or (provider is not None and provider.enabled)

    def revoked_before(self, user: User, target: Project | Domain | System | None) -> float:
        """Return the time from which the user's tokens for a target, or for none, are valid."""
        times = [user.password_changed_at, user.tokens_valid_from, self.domain_of(user).tokens_valid_from]
        if target is not None:
            times += target.tokens_valid_from, user.project_tokens_valid_from.get(target.id, 0.0)
        if isinstance(target, Project):
            times.append(self.domain_of(target).tokens_valid_from)
        return max(times)

    def groups_of(self, user: User) -> list[Group]:
        if "memberships" in self.__dict__:
            own: list[Group] = self.__dict__["memberships"].get(user.id, [])
        else:
            own = [group for group in self.groups if user.id in group.members]
        given = (self.find(Group, id) for id in user.current_external_groups)
        return [*own, *(group for group in given if group is not None and group not in own)]

    def members_of(self, group: Group) -> list[User]:
        return [user for user in self.users if user.id in group.members or group.id in user.current_external_groups]

    def roles_of(self, user: User, target_id: str) -> list[str]:
        """Return the user's roles in a project, domain or the system: own ones, inherited ones, and those of groups,
        without implied ones.
        """
        holders: list[User | Group] = [user, *self.groups_of(user)]
        roles = [key for holder in holders for key in holder.roles.get(target_id, [])]
        roles += user.current_external_roles.get(target_id, [])
        inheriting = [holder.inherited_roles for holder in holders if holder.inherited_roles]
        above = self.above(target_id) if inheriting else []
        return roles + [key for granted in inheriting for id in above for key in granted.get(id, [])]

    def above(self, target_id: str) -> list[str]:
        """Return the ids of the projects above a project, the nearest first, and of its domain."""
        project = self.find(Project, target_id)
        if project is None:
            return []
        ids: list[str] = []
        parent = project
        while parent.parent_id is not None and len(ids) < MAX_DEPTH:
            ids.append(parent.parent_id)
            found = self.find(Project, parent.parent_id)
            if found is None:
                break
            parent = found
        return [*ids, project.domain_id]

    def below(self, target_id: str) -> list[Project]:
        """Return the projects below a project or in a domain."""
        children: dict[str, list[Project]] = {}
        for project in self.projects:
            children.setdefault(project.parent_id or project.domain_id, []).append(project)
        found = list(children.get(target_id, []))
        for project in found:
            found += children.get(project.id, [])
        return found

    def role(self, id: str) -> Role | None:
        return BUILT_IN_ROLES.get(id) or self.find(Role, id)

    def role_by_key(self, key: str) -> Role | None:
        return _BUILT_IN_BY_KEY.get(key) or self.find(Role, key)

    def all_roles(self) -> list[Role]:
        return [*BUILT_IN_ROLES.values(), *self.roles]

    def role_named(self, name: str, domain_id: str | None = None) -> Role | None:
        """Return the role of this name, in any case, of a domain or of none."""
        wanted = comparable(name)
        return next(
            (role for role in self.all_roles() if role.domain_id == domain_id and comparable(role.name) == wanted), None
        )

    def implied_by(self, key: str) -> list[str]:
        """Return the keys of the roles that a role implies directly."""
        known: dict[str, list[str]] = self.__dict__["implied"] if "implied" in self.__dict__ else self._implied()
        return known.get(key, [])

    def _implied(self) -> dict[str, list[str]]:
        known = {prior: [implied] for prior, implied in itertools.pairwise(_RANKS)}
        for item in self.implications:
            known.setdefault(item.prior, []).append(item.implied)
        return known

    def with_implied(self, keys: Iterable[str]) -> list[str]:
        """Return the keys of roles and of the roles that they imply, in all steps."""
        found: dict[str, None] = {}
        waiting = list(keys)
        while waiting:
            key = waiting.pop()
            if key not in found and self.role_by_key(key) is not None:
                found[key] = None
                waiting += self.implied_by(key)
        return [*(key for key in _RANKS if key in found), *sorted(found.keys() - set(_RANKS))]

    def effective(self, keys: Iterable[str]) -> list[Role]:
        """Return the roles that a token has of these keys: with the implied ones, without those of domains."""
        roles = (self.role_by_key(key) for key in self.with_implied(keys))
        return [role for role in roles if role is not None and role.domain_id is None]

    def projects_of(self, user: User) -> list[Project]:
        return [project for project in self.projects if self.is_usable(project) and self.roles_of(user, project.id)]

    def domains_of(self, user: User) -> list[Domain]:
        return [domain for domain in self.all_domains() if domain.enabled and self.roles_of(user, domain.id)]


def _named(items: Iterable[N], name: str, domain_id: str) -> N | None:
    return next((item for item in items if item.name == name and item.domain_id == domain_id), None)


#: The kinds of stored records: the field of `Content`, and the type of the records.
KINDS: dict[str, tuple[str, type[Any]]] = {
    "project": ("projects", Project),
    "user": ("users", User),
    "key": ("keys", TokenKey),
    "revocation": ("revocations", Revocation),
    "application_credential": ("application_credentials", ApplicationCredential),
    "access_rule": ("access_rules", AccessRule),
    "group": ("groups", Group),
    "service": ("services", CatalogService),
    "endpoint": ("endpoints", CatalogEndpoint),
    "region": ("regions", CatalogRegion),
    "trust": ("trusts", Trust),
    "domain": ("domains", Domain),
    "credential": ("credentials", Credential),
    "secret_key": ("secret_keys", SecretKey),
    "role": ("roles", Role),
    "role_implication": ("implications", Implication),
    "identity_provider": ("identity_providers", IdentityProvider),
    "federation_protocol": ("federation_protocols", FederationProtocol),
    "mapping": ("mappings", FederationMapping),
    "registered_limit": ("registered_limits", RegisteredLimit),
    "limit": ("limits", Limit),
    "policy": ("policies", PolicyBlob),
    "domain_config": ("domain_configs", DomainConfig),
    "endpoint_group": ("endpoint_groups", EndpointGroup),
}


_FIELDS = {type_: field for field, type_ in KINDS.values()}
