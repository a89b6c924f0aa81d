"""Validation of the identity API's request bodies."""

from __future__ import annotations

from typing import Any, TypeVar

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.identity.authority import UNSCOPED, Scope
from nova_lite.api.identity.directory import DOMAIN_ID, DOMAIN_NAME
from nova_lite.base import exceptions

T = TypeVar("T")


def require(kind: str, id: str, item: T | None) -> T:
    """Return ``item``. Raises `NotFound` if it is None."""
    if item is None:
        raise exceptions.NotFound(f"Could not find {kind}: {id[:64]}.")
    return item


# --- log-in


def object_field(body: dict[str, Any], name: str) -> dict[str, Any]:
    value = body.get(name)
    if not isinstance(value, dict):
        raise exceptions.ValidationError(detail=f"Expecting to find {name} in the request, as an object.")
    return value


def text_field(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise exceptions.ValidationError(detail=f"Expecting to find {name} in the request, as a string.")
    return value


def is_default_domain(domain: Any) -> bool:
    """Return whether the ``domain`` of a user or project, with an id or a name, is the default one. None is."""
    if domain is None:
        return True
    if not isinstance(domain, dict):
        raise exceptions.ValidationError(detail="A domain must be an object with an id or a name.")
    return bool(domain.get("id", DOMAIN_ID) == DOMAIN_ID and domain.get("name", DOMAIN_NAME) == DOMAIN_NAME)


def scope(value: Any) -> Scope:
    """Return the scope of a log-in. Raises `Unauthorized` for a domain or the system, where nobody has roles."""
    if value is None:
        return Scope()
    if value == "unscoped":
        return UNSCOPED
    if not isinstance(value, dict):
        raise exceptions.ValidationError(detail="A scope must be an object or the word unscoped.")
    if "unscoped" in value:
        return UNSCOPED
    if "project" not in value:
        raise exceptions.Unauthorized()
    project = object_field(value, "project")
    if "id" in project:
        return Scope(project_id=text_field(project, "id"))
    if not is_default_domain(project.get("domain")):
        raise exceptions.Unauthorized()
    return Scope(project_name=text_field(project, "name"))


# --- projects and users


def create_fields(req: ServiceRequest, kind: str, **fields: Any) -> dict[str, Any]:
    """Return the given fields of the body's object. A field whose type allows None may be missing.

    Fields with other names are ignored, as in Keystone.
    """
    body = _body(req, kind)
    return {name: _checked(kind, name, body.get(name), type_) for name, type_ in fields.items()}


def update_fields(req: ServiceRequest, kind: str, **fields: Any) -> dict[str, Any]:
    """Return the given fields that are present in the body's object."""
    body = _body(req, kind)
    return {name: _checked(kind, name, body[name], type_) for name, type_ in fields.items() if name in body}


def _body(req: ServiceRequest, kind: str) -> dict[str, Any]:
    body = req.json_object().get(kind)
    if not isinstance(body, dict):
        raise exceptions.ValidationError(detail=f"Expecting to find {kind} in the request, as an object.")
    if body.get("domain_id", DOMAIN_ID) != DOMAIN_ID:
        raise exceptions.NotFound(f"Could not find domain: {str(body['domain_id'])[:64]}.")
    return body


def _checked(kind: str, name: str, value: Any, type_: Any) -> Any:
    if not isinstance(value, type_):
        form = "boolean" if type_ is bool else "string"
        raise exceptions.ValidationError(detail=f"Expecting to find {name} in the {kind}, as a {form}.")
    return value
