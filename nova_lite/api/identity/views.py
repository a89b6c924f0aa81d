"""Responses of the identity API in the form of Keystone's v3."""

from __future__ import annotations

import datetime
from typing import Any

from nova_lite.api.identity.authority import Identity
from nova_lite.api.identity.catalog import Catalog
from nova_lite.api.identity.directory import DOMAIN_ID, DOMAIN_NAME, Project, User, role_id
from nova_lite.api.identity.tokens import Token

_DOMAIN = {"id": DOMAIN_ID, "name": DOMAIN_NAME}


def token(issued: Token, identity: Identity, catalog: Catalog | None) -> dict[str, Any]:
    body: dict[str, Any] = {
        "methods": issued.methods,
        "user": {"id": identity.user.id, "name": identity.user.name, "domain": _DOMAIN, "password_expires_at": None},
        "audit_ids": list(dict.fromkeys(issued.audit_ids)),
        "issued_at": _time(issued.issued_at),
        "expires_at": _time(issued.expires_at),
    }
    if identity.project is not None:
        body |= {
            "project": {"id": identity.project.id, "name": identity.project.name, "domain": _DOMAIN},
            "is_domain": False,
            "roles": [{"id": role_id(name), "name": name} for name in identity.roles],
        }
        if catalog is not None:
            body["catalog"] = catalog.entries
    return {"token": body}


def project(shown: Project, base_url: str) -> dict[str, Any]:
    return {
        "id": shown.id,
        "name": shown.name,
        "description": shown.description,
        "enabled": shown.enabled,
        "domain_id": DOMAIN_ID,
        "parent_id": DOMAIN_ID,
        "is_domain": False,
        "tags": [],
        "options": {},
        "links": {"self": f"{base_url}/v3/projects/{shown.id}"},
    }


def user(shown: User, base_url: str) -> dict[str, Any]:
    body = {
        "id": shown.id,
        "name": shown.name,
        "enabled": shown.enabled,
        "domain_id": DOMAIN_ID,
        "password_expires_at": None,
        "options": {},
        "links": {"self": f"{base_url}/v3/users/{shown.id}"},
    }
    return body | ({"default_project_id": shown.default_project_id} if shown.default_project_id else {})


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


def assignment(holder: User, target: Project, name: str, with_names: bool, base_url: str) -> dict[str, Any]:
    user: dict[str, Any] = {"id": holder.id}
    project: dict[str, Any] = {"id": target.id}
    role: dict[str, Any] = {"id": role_id(name)}
    if with_names:
        user |= {"name": holder.name, "domain": _DOMAIN}
        project |= {"name": target.name, "domain": _DOMAIN}
        role |= {"name": name}
    path = f"{base_url}/v3/projects/{target.id}/users/{holder.id}/roles/{role['id']}"
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
