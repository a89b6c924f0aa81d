"""Records of the identity service: users, projects, roles, and what belongs to them."""

from __future__ import annotations

import hashlib
import time
import unicodedata
import uuid
from typing import Any, NamedTuple

import msgspec

DOMAIN_ID = "default"


DOMAIN_NAME = "Default"


#: The target of roles for the whole cloud, among the ids of projects and domains.
SYSTEM_ID = "system"


#: Each role implies the roles after it. The role ``service`` is for other services and implies none.
_RANKS = ("admin", "manager", "member", "reader")


ROLES = (*_RANKS, "service")


#: Projects below each other in a domain. Each step is looked at for inherited roles.
MAX_DEPTH = 5


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


def role_id(name: str) -> str:
    return uuid.uuid5(uuid.NAMESPACE_URL, f"nova-lite:role:{name}").hex


def comparable(name: str) -> str:
    """Return a role's name in the form in which names are compared: rules of policies compare them in any case."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).casefold().strip()


#: The roles that are always there, by id. They have no records.
BUILT_IN_ROLES = {role_id(name): Role(id=role_id(name), name=name) for name in ROLES}


_BUILT_IN_BY_KEY = {role.name: role for role in BUILT_IN_ROLES.values()}
