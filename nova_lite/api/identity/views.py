"""Responses of the identity API in the form of Keystone's v3."""

from __future__ import annotations

import datetime
from typing import Any, TypeAlias

import msgspec

from nova_lite.api.identity.authority import Identity
from nova_lite.api.identity.catalog import Catalog
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import (
    AccessRule,
    ApplicationCredential,
    Assignment,
    Domain,
    FederationMapping,
    FederationProtocol,
    Group,
    IdentityProvider,
    Project,
    Role,
    System,
    Trust,
    User,
)
from nova_lite.api.identity.requests import MFA, attribute_values
from nova_lite.api.identity.tokens import Token

View: TypeAlias = dict[str, Any]


def token(issued: Token, identity: Identity, catalog: Catalog | None, content: Content) -> dict[str, Any]:
    body: dict[str, Any] = {
        "methods": issued.methods,
        "user": _named(identity.user, content) | {"password_expires_at": None},
        "audit_ids": list(dict.fromkeys(issued.audit_ids)),
        "issued_at": _time(issued.issued_at),
        "expires_at": _time(issued.expires_at),
    }
    if identity.user.provider_id is not None:
        body["user"]["OS-FEDERATION"] = _federation(identity.user)
    if identity.project is not None:
        body |= {
            "project": _named(identity.project, content),
            "is_domain": False,
        }
    if identity.domain is not None:
        body["domain"] = {"id": identity.domain.id, "name": identity.domain.name}
    if identity.system is not None:
        body["system"] = {"all": True}
    if identity.roles:
        body["roles"] = [{"id": role.id, "name": role.name} for role in identity.roles]
    if catalog is not None and identity.roles:
        project_id = identity.project.id if identity.project is not None else None
        body["catalog"] = catalog.entries(content, identity.user.id, project_id)
    if identity.credential is not None:
        credential = identity.credential
        body["application_credential"] = {
            "id": credential.id,
            "name": credential.name,
            "restricted": not credential.unrestricted,
        }
        if credential.access_rules:
            body["application_credential"]["access_rules"] = _access_rules(credential, content)
    if identity.trust is not None:
        body["OS-TRUST:trust"] = {
            "id": identity.trust.id,
            "trustor_user": {"id": identity.trust.trustor_id},
            "trustee_user": {"id": identity.trust.trustee_id},
            "impersonation": identity.trust.impersonation,
        }
    return {"token": body}


def _federation(user: User) -> dict[str, Any]:
    """Return where a user of an identity provider is from, and the groups by its mapping."""
    _, provider_id, protocol_id = user.source.split("/")
    groups = [{"id": id} for id in user.current_external_groups]
    return {"identity_provider": {"id": provider_id}, "protocol": {"id": protocol_id}, "groups": groups}


def identity_provider(shown: IdentityProvider, base_url: str) -> dict[str, Any]:
    path = f"{base_url}/v3/OS-FEDERATION/identity_providers/{shown.id}"
    fields = msgspec.structs.asdict(shown)
    return fields | {"links": {"self": path, "protocols": f"{path}/protocols"}}


def federation_protocol(shown: FederationProtocol, base_url: str) -> dict[str, Any]:
    provider_id, id = shown.id.split("/")
    path = f"{base_url}/v3/OS-FEDERATION/identity_providers/{provider_id}"
    return {
        "id": id,
        "mapping_id": shown.mapping_id,
        "remote_id_attribute": shown.remote_id_attribute,
        "links": {"self": f"{path}/protocols/{id}", "identity_provider": path},
    }


def mapping(shown: FederationMapping, base_url: str) -> dict[str, Any]:
    links = {"self": f"{base_url}/v3/OS-FEDERATION/mappings/{shown.id}"}
    return msgspec.structs.asdict(shown) | {"links": links}


def _named(item: User | Project | Group, content: Content) -> dict[str, Any]:
    """Return id, name and domain."""
    domain = content.domain_of(item)
    return {"id": item.id, "name": item.name, "domain": {"id": domain.id, "name": domain.name}}


def trust(shown: Trust, base_url: str, roles: list[Role] | None = None) -> dict[str, Any]:
    path = f"{base_url}/v3/OS-TRUST/trusts/{shown.id}"
    body = {
        "id": shown.id,
        "trustor_user_id": shown.trustor_id,
        "trustee_user_id": shown.trustee_id,
        "project_id": shown.project_id,
        "impersonation": shown.impersonation,
        "expires_at": _time(shown.expires_at) if shown.expires_at is not None else None,
        "remaining_uses": shown.remaining_uses,
        "redelegation_count": 0,
        "deleted_at": None,
        "links": {"self": path},
    }
    if roles is None:
        return body
    links = {"self": f"{path}/roles", "previous": None, "next": None}
    return body | {"roles": [role(item, base_url) for item in roles], "roles_links": links}


def application_credential(shown: ApplicationCredential, content: Content, base_url: str) -> dict[str, Any]:
    return {
        "id": shown.id,
        "name": shown.name,
        "description": shown.description,
        "project_id": shown.project_id,
        "user_id": shown.user_id,
        "roles": [_short_role(key, content) | {"domain_id": None} for key in shown.roles],
        "expires_at": _time(shown.expires_at).rstrip("Z") if shown.expires_at is not None else None,
        "unrestricted": shown.unrestricted,
        "access_rules": _access_rules(shown, content),
        "system": None,
        "links": {"self": f"{base_url}/v3/users/{shown.user_id}/application_credentials/{shown.id}"},
    }


def _access_rules(credential: ApplicationCredential, content: Content) -> list[dict[str, str]]:
    rules = (content.find(AccessRule, id) for id in credential.access_rules)
    return [_rule(rule) for rule in rules if rule is not None]


def _rule(shown: AccessRule) -> dict[str, str]:
    return {"id": shown.id, "service": shown.service, "method": shown.method, "path": shown.path}


def access_rule(shown: AccessRule, base_url: str) -> dict[str, Any]:
    return _rule(shown) | {"links": {"self": f"{base_url}/v3/users/{shown.user_id}/access_rules/{shown.id}"}}


def project(shown: Project, base_url: str) -> dict[str, Any]:
    return attribute_values(shown.extra) | {
        "id": shown.id,
        "name": shown.name,
        "description": shown.description,
        "enabled": shown.enabled,
        "domain_id": shown.domain_id,
        "parent_id": shown.parent_id or shown.domain_id,
        "is_domain": False,
        "tags": shown.tags,
        "options": {},
        "links": {"self": f"{base_url}/v3/projects/{shown.id}"},
    }


def domain_as_project(shown: Domain, base_url: str) -> dict[str, Any]:
    named = domain(shown, base_url) | {"domain_id": None, "parent_id": None, "is_domain": True}
    return named | {"links": {"self": f"{base_url}/v3/projects/{shown.id}"}}


def any_project(shown: Project | Domain, base_url: str) -> dict[str, Any]:
    return project(shown, base_url) if isinstance(shown, Project) else domain_as_project(shown, base_url)


def user(shown: User, base_url: str) -> dict[str, Any]:
    body = {
        "id": shown.id,
        "name": shown.name,
        "enabled": shown.enabled and not shown.absent,
        "domain_id": shown.domain_id,
        "password_expires_at": None,
        "options": _options(shown),
        "links": {"self": f"{base_url}/v3/users/{shown.id}"},
    }
    more = {name: getattr(shown, name) for name in ("default_project_id", "email", "description")}
    return attribute_values(shown.extra) | body | {name: value for name, value in more.items() if value is not None}


def _options(shown: User) -> dict[str, Any]:
    options: dict[str, Any] = dict(shown.options)
    if shown.mfa_enabled:
        options[MFA] = True
    if shown.mfa_rules:
        options["multi_factor_auth_rules"] = shown.mfa_rules
    return options


def group(shown: Group, base_url: str) -> dict[str, Any]:
    return attribute_values(shown.extra) | {
        "id": shown.id,
        "name": shown.name,
        "description": shown.description,
        "domain_id": shown.domain_id,
        "links": {"self": f"{base_url}/v3/groups/{shown.id}"},
    }


def domain(shown: Domain, base_url: str) -> dict[str, Any]:
    return attribute_values(shown.extra) | {
        "id": shown.id,
        "name": shown.name,
        "description": shown.description,
        "enabled": shown.enabled,
        "tags": [],
        "options": {},
        "links": {"self": f"{base_url}/v3/domains/{shown.id}"},
    }


def role(shown: Role, base_url: str) -> dict[str, Any]:
    return attribute_values(shown.extra) | {
        "id": shown.id,
        "name": shown.name,
        "domain_id": shown.domain_id,
        "description": shown.description,
        "options": {},
        "links": {"self": f"{base_url}/v3/roles/{shown.id}"},
    }


def _short_role(key: str, content: Content) -> dict[str, Any]:
    role = content.role_by_key(key)
    return {"id": key, "name": key} if role is None else {"id": role.id, "name": role.name}


def assignment(item: Assignment, with_names: bool, content: Content, base_url: str) -> dict[str, Any]:
    kind = "user" if isinstance(item.holder, User) else "group"
    shown: dict[str, Any] = {"id": item.holder.id}
    role = _short_role(item.role, content)
    if with_names:
        shown = _named(item.holder, content)
        known = content.role_by_key(item.role)
        domain = content.domain(known.domain_id) if known is not None and known.domain_id is not None else None
        role |= {"domain": {"id": domain.id, "name": domain.name}} if domain is not None else {}
    else:
        del role["name"]
    granted = item.source or item.target
    path = f"{_path(granted)}/{f'groups/{item.group.id}' if item.group is not None else f'{kind}s/{item.holder.id}'}"
    path += f"/roles/{role['id']}"
    is_inherited = item.is_inherited or item.source is not None
    links = {"assignment": f"{base_url}/v3/" + (f"OS-INHERIT/{path}/inherited_to_projects" if is_inherited else path)}
    if item.group is not None:
        links["membership"] = f"{base_url}/v3/groups/{item.group.id}/users/{item.holder.id}"
    scope = _scope(item.target, with_names, content)
    if is_inherited:
        scope["OS-INHERIT:inherited_to"] = "projects"
    return {kind: shown, "role": role, "scope": scope, "links": links}


def _path(target: Project | Domain | System) -> str:
    """Return the path of a target of roles."""
    if isinstance(target, System):
        return "system"
    return f"{'projects' if isinstance(target, Project) else 'domains'}/{target.id}"


def _scope(target: Project | Domain | System, with_names: bool, content: Content) -> dict[str, Any]:
    if isinstance(target, System):
        return {"system": {"all": True}}
    if isinstance(target, Project):
        return {"project": _named(target, content) if with_names else {"id": target.id}}
    return {"domain": {"id": target.id} | ({"name": target.name} if with_names else {})}


def linked(item: dict[str, Any], base_url: str, kind: str) -> dict[str, Any]:
    return item | {"links": {"self": f"{base_url}/v3/{kind}/{item['id']}"}}


def _time(seconds: float) -> str:
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
