"""Content of the identity service: users, projects, roles, and what belongs to them, with all changes of them.

Everything here is pure. `nova_lite.api.identity.replica` reads the content and stores changes.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import secrets
import time
import unicodedata
import uuid
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import msgspec

from nova_lite.api.identity import passwords
from nova_lite.base import exceptions

DOMAIN_ID = "default"
DOMAIN_NAME = "Default"

#: The target of roles for the whole cloud, among the ids of projects and domains.
SYSTEM_ID = "system"

#: Each role implies the roles after it. The role ``service`` is for other services and implies none.
_RANKS = ("admin", "manager", "member", "reader")
ROLES = (*_RANKS, "service")

#: Projects below each other in a domain. Each step is looked at for inherited roles.
MAX_DEPTH = 5

_NAME = re.compile(r"[^\s/\x00-\x1f\x7f](?:[^/\x00-\x1f\x7f]{0,253}[^\s/\x00-\x1f\x7f])?")
#: Characters of names, as in Keystone.
MAX_NAME, MAX_NAMES = 255, {"project": 64, "domain": 64}

T = TypeVar("T")
N = TypeVar("N", "Project", "User", "Group")


class Role(msgspec.Struct, kw_only=True):
    """Role of operators, which no default rule of a policy names. ``domain_id``: no token has a role of a domain, only
    the roles that it implies. ``attributes``: attributes of clients, as JSON.

    Assignments name such a role by its id, and a built-in role by its name: its key.
    """

    id: str
    name: str
    description: str | None = None
    domain_id: str | None = None
    extra: str = ""

    @property
    def key(self) -> str:
        return self.name if self.id in BUILT_IN_ROLES else self.id


class Implication(msgspec.Struct, kw_only=True):
    """Rule of operators by which a role implies another. Both are keys of roles."""

    id: str
    prior: str
    implied: str


class System(NamedTuple):
    """The whole cloud, as the target of roles."""

    id: str = SYSTEM_ID
    name: str = "the system"
    tokens_valid_from: float = 0.0


SYSTEM = System()


class Domain(msgspec.Struct, kw_only=True):
    """Domain of users, projects and groups, whose names are unique in it. ``tokens_valid_from``: see `Project`."""

    id: str
    name: str
    description: str = ""
    enabled: bool = True
    tokens_valid_from: float = 0.0
    extra: str = ""


#: The domain that is always there. It has no record.
DEFAULT_DOMAIN = Domain(id=DOMAIN_ID, name=DOMAIN_NAME, description="The default domain")


class Project(msgspec.Struct, kw_only=True):
    """``tokens_valid_from``: Unix time of the last disabling; earlier tokens for the project are invalid.

    ``parent_id``: the project above it; None directly in the domain. ``extra``: see `Role`. ``endpoint_ids``: the
    endpoints in its tokens; those of its endpoint groups are there, too, and without any all endpoints.
    """

    id: str
    name: str
    description: str = ""
    enabled: bool = True
    tokens_valid_from: float = 0.0
    domain_id: str = DOMAIN_ID
    parent_id: str | None = None
    tags: list[str] = msgspec.field(default_factory=list)
    extra: str = ""
    endpoint_ids: list[str] = msgspec.field(default_factory=list)


class User(msgspec.Struct, kw_only=True):
    """User, with roles by the id of a project or domain.

    ``password_changed_at``: Unix time of the last password. ``tokens_valid_from``: that of the last disabling, or of
    the last change of rules of log-in. Earlier tokens are invalid. ``project_tokens_valid_from``: the time when the
    user lost the last role, by the same ids. ``mfa_enabled``, ``mfa_rules``: Keystone's options of the user for log-ins
    by several methods.
    ``inherited_roles``: roles in all projects below a project or domain, by its id. ``extra``: see `Role`.
    ``options``: Keystone's other options that were set (`nova_lite.api.identity.requests.OPTIONS`).

    ``source``: where a user without a password of ours is from (`nova_lite.api.identity.external`), and
    ``external_key``: the id there. ``external_groups``, ``external_roles``: groups and roles by the source, which count
    until the Unix time ``external_until`` (0: for ever). ``absent``: the source does not have the user any more.
    """

    id: str
    name: str
    password: str
    enabled: bool = True
    default_project_id: str | None = None
    password_changed_at: float = 0.0
    tokens_valid_from: float = 0.0
    project_tokens_valid_from: dict[str, float] = msgspec.field(default_factory=dict)
    roles: dict[str, list[str]] = msgspec.field(default_factory=dict)
    email: str | None = None
    description: str | None = None
    domain_id: str = DOMAIN_ID
    mfa_enabled: bool = False
    mfa_rules: list[list[str]] = msgspec.field(default_factory=list)
    inherited_roles: dict[str, list[str]] = msgspec.field(default_factory=dict)
    options: dict[str, bool] = msgspec.field(default_factory=dict)
    source: str = ""
    external_key: str = ""
    external_groups: list[str] = msgspec.field(default_factory=list)
    external_roles: dict[str, list[str]] = msgspec.field(default_factory=dict)
    external_until: float = 0.0
    absent: bool = False
    extra: str = ""

    @property
    def mfa_methods(self) -> list[list[str]]:
        """The combinations of methods of which a log-in with a password needs one; empty: a password is enough."""
        return self.mfa_rules if self.mfa_enabled else []

    @property
    def current_external_groups(self) -> list[str]:
        return [] if self._is_over else self.external_groups

    @property
    def current_external_roles(self) -> dict[str, list[str]]:
        return {} if self._is_over else self.external_roles

    @property
    def _is_over(self) -> bool:
        return 0 < self.external_until <= time.time()

    @property
    def provider_id(self) -> str | None:
        """The id of the identity provider that the user is of."""
        kind, _, rest = self.source.partition("/")
        return rest.partition("/")[0] if kind == "idp" else None


class Group(msgspec.Struct, kw_only=True):
    """Group of users, with roles by the id of a project or domain. ``members``: ids of users, who have the roles.

    ``inherited_roles``, ``extra``: see `User`.
    ``source``: where the group is from, if it is not ours. Its members are in `User.external_groups`.
    """

    id: str
    name: str
    description: str = ""
    members: list[str] = msgspec.field(default_factory=list)
    roles: dict[str, list[str]] = msgspec.field(default_factory=dict)
    domain_id: str = DOMAIN_ID
    inherited_roles: dict[str, list[str]] = msgspec.field(default_factory=dict)
    source: str = ""
    extra: str = ""


class CatalogService(msgspec.Struct, kw_only=True):
    """Service that operators added to the catalog. ``extra``: see `Role`."""

    id: str
    type: str
    name: str = ""
    description: str = ""
    enabled: bool = True
    extra: str = ""


class CatalogEndpoint(msgspec.Struct, kw_only=True):
    """URL of a service, which may be a built-in one. ``interface``: public, internal or admin.

    ``extra``: see `Role`.
    """

    id: str
    service_id: str
    interface: str
    url: str
    region: str | None = None
    enabled: bool = True
    extra: str = ""


class CatalogRegion(msgspec.Struct, kw_only=True):
    """Region that operators added. ``extra``: see `Role`."""

    id: str
    description: str = ""
    parent: str | None = None
    extra: str = ""


class AccessRule(msgspec.Struct, kw_only=True):
    """Requests that an application credential allows: a service type, an HTTP method, and a pattern of the path."""

    id: str
    user_id: str = ""
    service: str = ""
    method: str = ""
    path: str = ""


class ApplicationCredential(msgspec.Struct, kw_only=True):
    """Password of a program, for one project.

    ``secret``: its hash. ``roles``: keys, without implied ones. ``expires_at``: Unix time. ``unrestricted``: its tokens
    may manage application credentials. ``access_rules``: ids; without any, all requests are allowed.
    """

    id: str
    name: str
    user_id: str
    project_id: str
    secret: str
    description: str | None = None
    roles: list[str] = msgspec.field(default_factory=list)
    expires_at: float | None = None
    unrestricted: bool = False
    access_rules: list[str] = msgspec.field(default_factory=list)


class Trust(msgspec.Struct, kw_only=True):
    """Roles in a project that the trustor gives to the trustee, as keys, without implied ones.

    ``impersonation``: tokens are the trustor's. ``expires_at``: Unix time. ``remaining_uses``: tokens that are left.
    """

    id: str
    trustor_id: str
    trustee_id: str
    project_id: str
    impersonation: bool
    roles: list[str]
    expires_at: float | None = None
    remaining_uses: int | None = None


class Credential(msgspec.Struct, kw_only=True):
    """Secret that the service has to know itself. ``type``: ec2 or totp. ``sealed``: the secret, encrypted
    (`nova_lite.api.identity.credential_box`).

    ``access``: the access key of EC2. ``last_step``: of the last one-time code, which no later log-in may repeat.
    """

    id: str
    user_id: str
    type: str
    sealed: str
    project_id: str | None = None
    access: str = ""
    last_step: int = 0

    @property
    def digest(self) -> str:
        """Return a text that another secret, or another access key, changes."""
        return hashlib.sha256(f"{self.id} {self.access} {self.sealed}".encode()).hexdigest()[:32]


class IdentityProvider(msgspec.Struct, kw_only=True):
    """Provider whose users log in by its tokens. They belong to a domain.

    ``remote_ids``: issuers of its tokens. ``authorization_ttl``: minutes for which groups and roles of a mapping count.
    """

    id: str
    domain_id: str
    enabled: bool = False
    description: str | None = None
    remote_ids: list[str] = msgspec.field(default_factory=list)
    authorization_ttl: int | None = None


class FederationProtocol(msgspec.Struct, kw_only=True):
    """Way of log-in at a provider, with the mapping of its claims. ``id``: both ids, with a slash between."""

    id: str
    mapping_id: str
    remote_id_attribute: str | None = None


class FederationMapping(msgspec.Struct, kw_only=True):
    """Rules by which claims become users and groups (`nova_lite.api.identity.mapping_rules`)."""

    id: str
    rules: list[dict[str, Any]]
    schema_version: str = "1.0"


class RegisteredLimit(msgspec.Struct, kw_only=True):
    """Limit of a resource of a service that projects have by default."""

    id: str
    service_id: str
    resource_name: str
    default_limit: int
    region_id: str | None = None
    description: str | None = None


class Limit(msgspec.Struct, kw_only=True):
    """Limit of a resource of a service for one project or domain."""

    id: str
    service_id: str
    resource_name: str
    resource_limit: int
    region_id: str | None = None
    project_id: str | None = None
    domain_id: str | None = None
    description: str | None = None


class PolicyBlob(msgspec.Struct, kw_only=True):
    """Policy of another service, as a text. ``type``: its MIME type. ``extra``: see `Role`."""

    id: str
    type: str
    blob: str
    extra: str = ""


class DomainConfig(msgspec.Struct, kw_only=True):
    """Configuration of a domain, as JSON. ``id``: of the domain."""

    id: str
    config: str


class EndpointGroup(msgspec.Struct, kw_only=True):
    """Endpoints of the catalog with some values (``filters``), for some projects. ``extra``: see `Role`."""

    id: str
    name: str
    description: str | None = None
    filters: dict[str, str] = msgspec.field(default_factory=dict)
    project_ids: list[str] = msgspec.field(default_factory=list)
    extra: str = ""


class SecretKey(msgspec.Struct, kw_only=True):
    """Key that encrypts the secrets of credentials."""

    id: str
    key: str


class TokenKey(msgspec.Struct, kw_only=True):
    """Key of tokens. ``id``: its number; keys with higher numbers are newer. ``created_at``: Unix time."""

    id: str
    key: str
    created_at: float = 0.0


class Revocation(msgspec.Struct, kw_only=True):
    """Token that was revoked before it expired. ``id``: the token's audit id."""

    id: str
    expires_at: float


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


class Assignment(NamedTuple):
    """Role of a user or group in a project, a domain or the system. ``group``: the group by which a user has it.

    ``is_inherited``: for the projects below the target. ``source``: the target above whose role an effective list has
    for this project.
    """

    holder: User | Group
    target: Project | Domain | System
    role: str
    group: Group | None = None
    is_inherited: bool = False
    source: Project | Domain | None = None


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


def role_id(name: str) -> str:
    return uuid.uuid5(uuid.NAMESPACE_URL, f"nova-lite:role:{name}").hex


def comparable(name: str) -> str:
    """Return a role's name in the form in which names are compared: rules of policies compare them in any case."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).casefold().strip()


#: The roles that are always there, by id. They have no records.
BUILT_IN_ROLES = {role_id(name): Role(id=role_id(name), name=name) for name in ROLES}
_BUILT_IN_BY_KEY = {role.name: role for role in BUILT_IN_ROLES.values()}


# --- changes


def check_name(kind: str, name: str) -> str:
    longest = MAX_NAMES.get(kind, MAX_NAME)
    if not _NAME.fullmatch(name) or len(name) > longest:
        raise exceptions.InvalidInput(
            reason=f"a {kind}'s name has 1 to {longest} printable characters, no slash, and no space at the start or "
            "end."
        )
    return name


def add_project(
    content: Content, name: str, description: str = "", domain_id: str = DOMAIN_ID, parent: Project | None = None
) -> Project:
    """Add a project. ``parent``: the project above it."""
    if content.project_named(check_name("project", name), domain_id) is not None:
        raise exceptions.Conflict(f"Project {name} already exists.")
    project = Project(id=uuid.uuid4().hex, name=name, description=description, domain_id=domain_id)
    if parent is not None:
        if not parent.enabled:
            raise exceptions.Forbidden(f"Project {parent.name} is disabled, so there can be no project below it.")
        if len(content.above(parent.id)) >= MAX_DEPTH:
            raise exceptions.Forbidden(f"There are at most {MAX_DEPTH} projects below each other.")
        project.parent_id = parent.id
    content.projects.append(project)
    return project


def rename(content: Content, kind: str, item: Project | User | Group, name: str) -> None:
    """Rename a record. ``kind``: project, user or group."""
    named = {"project": content.project_named, "user": content.user_named, "group": content.group_named}
    other = named[kind](name, item.domain_id)
    if other is not None and other is not item:
        raise exceptions.Conflict(f"{kind.capitalize()} {name} already exists.")
    item.name = check_name(kind, name)


def remove_project(content: Content, project: Project) -> None:
    content.projects.remove(project)
    _keep_credentials(content, lambda credential: credential.project_id != project.id)
    content.limits = [item for item in content.limits if item.project_id != project.id]
    for group in content.endpoint_groups:
        group.project_ids = [id for id in group.project_ids if id != project.id]
    content.trusts = [trust for trust in content.trusts if trust.project_id != project.id]
    content.credentials = [item for item in content.credentials if item.project_id != project.id]
    _forget_roles(content, project.id)
    for user in content.users:
        if user.default_project_id == project.id:
            user.default_project_id = None


def check_leaf(content: Content, project: Project) -> None:
    """Raise `Forbidden` if there are projects below a project."""
    if content.below(project.id):
        raise exceptions.Forbidden(f"There are projects below project {project.name}. Delete those first.")


def _forget_roles(content: Content, target_id: str) -> None:
    """Delete all roles in a project or domain."""
    for group in content.groups:
        group.roles.pop(target_id, None)
        group.inherited_roles.pop(target_id, None)
    for user in content.users:
        user.roles.pop(target_id, None)
        user.inherited_roles.pop(target_id, None)
        user.project_tokens_valid_from.pop(target_id, None)


def new_password(password: str | None, cost: int = passwords.COST) -> str:
    """Return the hash of a new password. None: a hash with which log-in is impossible."""
    if password == "":
        raise exceptions.InvalidInput(reason="a password cannot be empty.")
    return passwords.hashed(secrets.token_urlsafe(32) if password is None else password, cost)


def add_user(
    content: Content, name: str, password_hash: str, project: Project | None = None, domain_id: str = DOMAIN_ID
) -> User:
    """Add a user. ``password_hash``: of `new_password`."""
    if content.user_named(check_name("user", name), domain_id) is not None:
        raise exceptions.Conflict(f"User {name} already exists.")
    user = User(
        id=uuid.uuid4().hex,
        name=name,
        password=password_hash,
        default_project_id=project.id if project else None,
        password_changed_at=time.time(),
        domain_id=domain_id,
    )
    content.users.append(user)
    return user


def remove_user(content: Content, user: User) -> None:
    content.users.remove(user)
    for group in content.groups:
        if user.id in group.members:
            group.members.remove(user.id)
    _keep_credentials(content, lambda credential: credential.user_id != user.id)
    content.access_rules = [rule for rule in content.access_rules if rule.user_id != user.id]
    content.trusts = [trust for trust in content.trusts if user.id not in (trust.trustor_id, trust.trustee_id)]
    content.credentials = [item for item in content.credentials if item.user_id != user.id]


def _keep_credentials(content: Content, is_kept: Callable[[ApplicationCredential], bool]) -> None:
    content.application_credentials = [item for item in content.application_credentials if is_kept(item)]


def set_password(user: User, password_hash: str) -> None:
    """Set the password by the hash of `new_password`. The user's tokens become invalid."""
    if user.source:
        raise exceptions.Forbidden(f"User {user.name} has no password here. It is changed where the user comes from.")
    user.password = password_hash
    user.password_changed_at = time.time()


def set_enabled(content: Content, item: User | Project | Domain, enabled: bool) -> None:
    """Enable or disable a user, project or domain. Tokens from before stay invalid, also when it is enabled again.

    A disabled user's application credentials are deleted. A project can be enabled only below enabled ones, and
    disabled only above disabled ones.
    """
    if item.enabled != enabled:
        if isinstance(item, Project):
            _check_neighbours(content, item, enabled)
        item.tokens_valid_from = time.time()
    item.enabled = enabled
    if not enabled and isinstance(item, User):
        _keep_credentials(content, lambda credential: credential.user_id != item.id)


def _check_neighbours(content: Content, project: Project, enabled: bool) -> None:
    parent = content.project(project.parent_id) if project.parent_id is not None else None
    if enabled and parent is not None and not parent.enabled:
        raise exceptions.Forbidden(f"Project {parent.name} above is disabled. Enable it first.")
    if not enabled and any(below.enabled for below in content.below(project.id)):
        raise exceptions.Forbidden(f"There are enabled projects below project {project.name}. Disable those first.")


def grant(holder: User | Group, target: Project | Domain | System, role: str, inherited: bool = False) -> None:
    """Give a role, by its key. ``inherited``: in the projects below ``target`` instead of there."""
    roles = (holder.inherited_roles if inherited else holder.roles).setdefault(target.id, [])
    if role not in roles:
        roles.append(role)


def revoke(
    content: Content,
    holder: User | Group,
    target: Project | Domain | System,
    role: str,
    inherited: bool = False,
) -> None:
    """Take a role from a user or group. Application credentials of the users for the project are deleted."""
    granted = holder.inherited_roles if inherited else holder.roles
    roles = granted.get(target.id, [])
    if role not in roles:
        kind, where = type(holder).__name__, type(target).__name__.lower()
        known = content.role_by_key(role)
        name = role if known is None else known.name
        raise exceptions.NotFound(f"{kind} {holder.name} does not have the role {name} in {where} {target.name}.")
    roles.remove(role)
    if not roles:
        del granted[target.id]
    _lost_roles(content, holder, [target.id], [target.id] if inherited else [])


def _lost_roles(content: Content, holder: User | Group, target_ids: Iterable[str], above: Iterable[str]) -> None:
    """Note that a user, or the members of a group, have less roles in targets, and in the projects below others."""
    lost = {*target_ids, *(project.id for id in above for project in content.below(id))}
    users = [holder] if isinstance(holder, User) else content.members_of(holder)
    for user in users:
        for target_id in lost:
            _lost_role(content, user, target_id)


def _lost_role(content: Content, user: User, target_id: str) -> None:
    """Delete the user's credentials for the project. Tokens for it become invalid if the user has no role left."""
    _keep_credentials(content, lambda item: (item.user_id, item.project_id) != (user.id, target_id))
    if not content.roles_of(user, target_id):
        user.project_tokens_valid_from[target_id] = time.time()


# --- roles


def add_role(content: Content, name: str, description: str | None = None, domain_id: str | None = None) -> Role:
    role = Role(id=uuid.uuid4().hex, name="", description=description, domain_id=domain_id)
    rename_role(content, role, name)
    content.roles.append(role)
    return role


def rename_role(content: Content, role: Role, name: str) -> None:
    """Rename a role. No name may look like that of a built-in role, which rules of policies know in any case."""
    other = content.role_named(check_name("role", name), role.domain_id)
    if (other is not None and other is not role) or comparable(name) in ROLES:
        raise exceptions.Conflict(f"Role {name} already exists.")
    role.name = name


def remove_role(content: Content, role: Role) -> None:
    """Delete a role, wherever somebody has it. A trust or application credential without another role is deleted."""
    content.roles.remove(role)
    holders: list[User | Group] = [*content.users, *content.groups]
    for holder in holders:
        lost, above = (
            [id for id, keys in granted.items() if role.key in keys]
            for granted in (holder.roles, holder.inherited_roles)
        )
        for id in lost:
            _take(holder.roles, id, role.key)
        for id in above:
            _take(holder.inherited_roles, id, role.key)
        if lost or above:
            _lost_roles(content, holder, lost, above)
    limited: list[Trust | ApplicationCredential] = [*content.trusts, *content.application_credentials]
    for item in limited:
        item.roles = [key for key in item.roles if key != role.key]
    content.trusts = [item for item in content.trusts if item.roles]
    _keep_credentials(content, lambda item: bool(item.roles))
    content.implications = [item for item in content.implications if role.key not in (item.prior, item.implied)]


def _take(granted: dict[str, list[str]], target_id: str, key: str) -> None:
    granted[target_id].remove(key)
    if not granted[target_id]:
        del granted[target_id]


def imply(content: Content, prior: Role, implied: Role) -> None:
    """Let a role imply another one."""
    if implied.key in content.implied_by(prior.key):
        return
    if implied.key == "admin":
        raise exceptions.Forbidden("No role can imply the role admin. Grant it itself.")
    if implied.domain_id is not None and prior.domain_id is None:
        raise exceptions.Forbidden("A role of a domain can be implied by roles of domains only.")
    if prior.key in content.with_implied([implied.key]):
        raise exceptions.Forbidden(f"Role {implied.name} implies role {prior.name} already, so it cannot be implied.")
    content.implications.append(Implication(id=f"{prior.key}-{implied.key}", prior=prior.key, implied=implied.key))


def stop_implying(content: Content, prior: Role, implied: Role) -> None:
    if (prior.key, implied.key) in itertools.pairwise(_RANKS):
        raise exceptions.Forbidden(f"Role {prior.name} always implies role {implied.name}.")
    found = content.find(Implication, f"{prior.key}-{implied.key}")
    if found is None:
        raise exceptions.NotFound(f"Role {prior.name} does not imply role {implied.name}.")
    content.implications.remove(found)


# --- groups


def add_group(content: Content, name: str, description: str = "", domain_id: str = DOMAIN_ID) -> Group:
    if content.group_named(check_name("group", name), domain_id) is not None:
        raise exceptions.Conflict(f"Group {name} already exists.")
    group = Group(id=uuid.uuid4().hex, name=name, description=description, domain_id=domain_id)
    content.groups.append(group)
    return group


def remove_group(content: Content, group: Group) -> None:
    content.groups.remove(group)
    _lost_roles(content, group, group.roles, group.inherited_roles)


def join(group: Group, user: User) -> None:
    if user.id not in group.members:
        group.members.append(user.id)


def leave(content: Content, group: Group, user: User) -> None:
    if user.id not in group.members:
        raise exceptions.NotFound(f"User {user.name} is not in group {group.name}.")
    group.members.remove(user.id)
    _lost_roles(content, user, group.roles, group.inherited_roles)


# --- domains


def add_domain(content: Content, name: str, description: str = "") -> Domain:
    if content.domain_named(check_name("domain", name)) is not None:
        raise exceptions.Conflict(f"Domain {name} already exists.")
    domain = Domain(id=uuid.uuid4().hex, name=name, description=description)
    content.domains.append(domain)
    return domain


def rename_domain(content: Content, domain: Domain, name: str) -> None:
    other = content.domain_named(check_name("domain", name))
    if other is not None and other is not domain:
        raise exceptions.Conflict(f"Domain {name} already exists.")
    domain.name = name


def remove_domain(content: Content, domain: Domain) -> None:
    """Delete a disabled domain with its users, groups, projects and identity providers."""
    if domain.enabled:
        raise exceptions.Forbidden("Cannot delete a domain that is enabled, please disable it first.")
    for group in [item for item in content.groups if item.domain_id == domain.id]:
        remove_group(content, group)
    for user in [item for item in content.users if item.domain_id == domain.id]:
        remove_user(content, user)
    for project in [item for item in content.projects if item.domain_id == domain.id]:
        remove_project(content, project)
    for role in [item for item in content.roles if item.domain_id == domain.id]:
        remove_role(content, role)
    for provider in [item for item in content.identity_providers if item.domain_id == domain.id]:
        remove_provider(content, provider)
    _forget_roles(content, domain.id)
    content.limits = [item for item in content.limits if item.domain_id != domain.id]
    content.domain_configs = [item for item in content.domain_configs if item.id != domain.id]
    content.domains.remove(domain)


# --- identity providers


def remove_provider(content: Content, provider: IdentityProvider) -> None:
    """Delete an identity provider with its protocols and users."""
    content.identity_providers.remove(provider)
    content.federation_protocols = [
        item for item in content.federation_protocols if item.id.partition("/")[0] != provider.id
    ]
    for user in [item for item in content.users if item.provider_id == provider.id]:
        remove_user(content, user)
