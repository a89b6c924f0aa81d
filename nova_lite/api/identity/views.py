"""Users, projects and tokens in the form of Keystone's v3 API."""

from __future__ import annotations

import datetime
from typing import Any

from nova_lite.api.identity.authority import Identity
from nova_lite.api.identity.catalog import Catalog
from nova_lite.api.identity.directory import DOMAIN_ID, DOMAIN_NAME, Project, User, role_id
from nova_lite.api.identity.tokens import Token

_DOMAIN = {"id": DOMAIN_ID, "name": DOMAIN_NAME}


def version(base_url: str) -> dict[str, Any]:
    return {
        "id": "v3.14",
        "status": "stable",
        "updated": "2020-04-07T00:00:00Z",
        "links": [{"rel": "self", "href": f"{base_url}/v3/"}],
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}],
    }


def token(made: Token, who: Identity, catalog: Catalog | None) -> dict[str, Any]:
    body: dict[str, Any] = {
        "methods": made.methods,
        "user": {"id": who.user.id, "name": who.user.name, "domain": _DOMAIN, "password_expires_at": None},
        "audit_ids": list(dict.fromkeys(made.audit_ids)),
        "issued_at": _time(made.issued_at),
        "expires_at": _time(made.expires_at),
    }
    if who.project is not None:
        body |= {
            "project": {"id": who.project.id, "name": who.project.name, "domain": _DOMAIN},
            "is_domain": False,
            "roles": [{"id": role_id(name), "name": name} for name in who.roles],
        }
        if catalog is not None:
            body["catalog"] = catalog.entries
    return {"token": body}


def project(found: Project, base_url: str) -> dict[str, Any]:
    return {
        "id": found.id,
        "name": found.name,
        "description": found.description,
        "enabled": found.enabled,
        "domain_id": DOMAIN_ID,
        "parent_id": DOMAIN_ID,
        "is_domain": False,
        "tags": [],
        "options": {},
        "links": {"self": f"{base_url}/v3/projects/{found.id}"},
    }


def user(found: User, base_url: str) -> dict[str, Any]:
    body = {
        "id": found.id,
        "name": found.name,
        "enabled": found.enabled,
        "domain_id": DOMAIN_ID,
        "password_expires_at": None,
        "options": {},
        "links": {"self": f"{base_url}/v3/users/{found.id}"},
    }
    return body | ({"default_project_id": found.default_project_id} if found.default_project_id else {})


def domain(base_url: str) -> dict[str, Any]:
    return {
        "id": DOMAIN_ID,
        "name": DOMAIN_NAME,
        "description": "The default domain",
        "enabled": True,
        "tags": [],
        "options": {},
        "links": {"self": f"{base_url}/v3/domains/{DOMAIN_ID}"},
    }


def role(name: str, base_url: str) -> dict[str, Any]:
    return {
        "id": role_id(name),
        "name": name,
        "domain_id": None,
        "description": None,
        "options": {},
        "links": {"self": f"{base_url}/v3/roles/{role_id(name)}"},
    }


def assignment(found: User, where: Project, name: str, with_names: bool, base_url: str) -> dict[str, Any]:
    user: dict[str, Any] = {"id": found.id}
    project: dict[str, Any] = {"id": where.id}
    role: dict[str, Any] = {"id": role_id(name)}
    if with_names:
        user |= {"name": found.name, "domain": _DOMAIN}
        project |= {"name": where.name, "domain": _DOMAIN}
        role |= {"name": name}
    path = f"{base_url}/v3/projects/{where.id}/users/{found.id}/roles/{role['id']}"
    return {"user": user, "role": role, "scope": {"project": project}, "links": {"assignment": path}}


def region(name: str, base_url: str) -> dict[str, Any]:
    return {
        "id": name,
        "description": "",
        "parent_region_id": None,
        "links": {"self": f"{base_url}/v3/regions/{name}"},
    }


def linked(item: dict[str, Any], base_url: str, kind: str) -> dict[str, Any]:
    return item | {"links": {"self": f"{base_url}/v3/{kind}/{item['id']}"}}


def _time(seconds: float) -> str:
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
