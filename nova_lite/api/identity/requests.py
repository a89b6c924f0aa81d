"""Validation of the identity API's request bodies."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Collection, Iterable
from typing import Any, TypeVar

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.identity.authority import UNSCOPED, DomainName, Scope
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import DOMAIN_ID, Domain, Group, Project, Role, User
from nova_lite.base import exceptions

T = TypeVar("T")


def require(kind: str, id: str, item: T | None) -> T:
    """Return ``item``. Raises `NotFound` if it is None."""
    if item is None:
        raise exceptions.NotFound(f"Could not find {kind}: {id[:64]}.")
    return item


def user(content: Content, id: str) -> User:
    return require("user", id, content.user(id))


def project(content: Content, id: str) -> Project:
    return require("project", id, content.project(id))


def domain(content: Content, id: str) -> Domain:
    return require("domain", id, content.domain(id))


def group(content: Content, id: str) -> Group:
    return require("group", id, content.find(Group, id))


def role(content: Content, id: str) -> Role:
    return require("role", id, content.role(id))


def found(kind: str, id: str, items: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the item with this id. Raises `NotFound`."""
    return require(kind, id, next((item for item in items if item["id"] == id), None))


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


def domain_name(value: Any) -> DomainName:
    """Return the ``domain`` of a user or project, with an id or a name. None is the default domain."""
    if value is None:
        return DomainName()
    if not isinstance(value, dict):
        raise exceptions.ValidationError(detail="A domain must be an object with an id or a name.")
    if "id" in value:
        return DomainName(id=text_field(value, "id"))
    return DomainName(name=text_field(value, "name"))


def scope(value: Any) -> Scope:
    """Return the scope of a log-in."""
    if value is None:
        return Scope()
    if value == "unscoped":
        return UNSCOPED
    if not isinstance(value, dict):
        raise exceptions.ValidationError(detail="A scope must be an object or the word unscoped.")
    if "unscoped" in value:
        return UNSCOPED
    if "OS-TRUST:trust" in value:
        if len(value) > 1:
            raise exceptions.ValidationError(detail="A scope is a project or a trust, but not both.")
        return Scope(trust_id=text_field(object_field(value, "OS-TRUST:trust"), "id"))
    if "domain" in value:
        return Scope(domain=domain_name(object_field(value, "domain")))
    if "system" in value:
        if object_field(value, "system").get("all") is not True:
            raise exceptions.ValidationError(detail='The scope of the system is {"all": true}.')
        return Scope(system=True)
    if "project" not in value:
        raise exceptions.ValidationError(detail="A scope is a project, a domain, a trust, or the system.")
    project = object_field(value, "project")
    if "id" in project:
        return Scope(project_id=text_field(project, "id"))
    return Scope(project_name=text_field(project, "name"), project_domain=domain_name(project.get("domain")))


# --- projects and users


def create_fields(req: ServiceRequest, kind: str, **fields: Any) -> dict[str, Any]:
    """Return the given fields of the body's object. A field whose type allows None may be missing.

    Fields with other names are ignored, as in Keystone.
    """
    body = body_object(req, kind)
    return {name: _checked(kind, name, body.get(name), type_) for name, type_ in fields.items()}


def update_fields(req: ServiceRequest, kind: str, **fields: Any) -> dict[str, Any]:
    """Return the given fields that are present in the body's object."""
    body = body_object(req, kind)
    return {name: _checked(kind, name, body[name], type_) for name, type_ in fields.items() if name in body}


def body_object(req: ServiceRequest, kind: str) -> dict[str, Any]:
    """Return the body's object of this kind."""
    body = req.json_object().get(kind)
    if not isinstance(body, dict):
        raise exceptions.ValidationError(detail=f"Expecting to find {kind} in the request, as an object.")
    return body


#: Characters of all attributes of clients at a record, as JSON.
MAX_EXTRA = 4096


def attributes(req: ServiceRequest, kind: str, known: Collection[str], before: str = "") -> str:
    """Return the attributes of the body's object that are not ``known``, as JSON, added to those from before.

    Raises `ValidationError` for what Keystone keeps of such an object and this service does not.
    """
    body = body_object(req, kind)
    _refuse_unkept(kind, body, known)
    given = {name: value for name, value in body.items() if name not in known}
    if not given:
        return before
    text = json.dumps({**attribute_values(before), **given})
    if len(text) > MAX_EXTRA:
        raise exceptions.ValidationError(
            detail=f"Attributes of the client's own at a {kind} have at most {MAX_EXTRA} characters as JSON."
        )
    return text


#: Tags of a domain, which Keystone keeps.
NO_TAGS = "This cloud keeps no tags of a domain. Its projects may have tags."


def _refuse_unkept(kind: str, body: dict[str, Any], known: Collection[str]) -> None:
    options = body.get("options") or {}
    if kind != "user" and "options" in known and (not isinstance(options, dict) or any(options.values())):
        raise exceptions.ValidationError(
            detail=f"This cloud has no options of a {kind}, not even immutable: leave them out."
        )
    if body.get("tags") and (kind == "domain" or body.get("is_domain") is True):
        raise exceptions.ValidationError(detail=NO_TAGS)


def attribute_values(text: str) -> dict[str, Any]:
    """Return the attributes of `attributes`."""
    values: dict[str, Any] = json.loads(text) if text else {}
    return values


def domain_of(content: Content, fields: dict[str, Any]) -> str:
    """Return the id of the domain in which something is to be created. Raises `NotFound` if it does not exist."""
    id = fields["domain_id"]
    return DOMAIN_ID if id is None else domain(content, id).id


def check_domain(item: Project | User | Group, fields: dict[str, Any]) -> None:
    """Raise `ValidationError` if the fields would move something to another domain."""
    if fields.get("domain_id") not in (None, item.domain_id):
        raise exceptions.ValidationError(detail="Cannot change the domain ID.")


def _checked(kind: str, name: str, value: Any, type_: Any) -> Any:
    if not isinstance(value, type_):
        form = "boolean" if type_ in (bool, bool | None) else "string"
        raise exceptions.ValidationError(detail=f"Expecting to find {name} in the {kind}, as a {form}.")
    return value


#: Options of users that are kept. Only ``lock_password`` has an effect: passwords do not expire, and lock no user out.
OPTIONS = (
    "lock_password",
    "ignore_password_expiry",
    "ignore_change_password_upon_first_use",
    "ignore_lockout_failure_attempts",
    "ignore_user_inactivity",
)

#: Option by which the rules of a user for log-ins by several methods hold.
MFA = "multi_factor_auth_enabled"

#: Methods of a log-in with a password.
_METHODS = ("password", "totp")


def user_options(req: ServiceRequest) -> dict[str, Any]:
    """Return the ``options`` of a user in the body: those for log-ins by several methods."""
    options = body_object(req, "user").get("options") or {}
    if not isinstance(options, dict):
        raise exceptions.ValidationError(detail="The options of a user must be an object.")
    known = (MFA, "multi_factor_auth_rules", *OPTIONS)
    if unknown := [name for name in options if name not in known]:
        raise exceptions.ValidationError(
            detail=f"This cloud has no option {unknown[0][:64]} of users. There are {', '.join(known)}."
        )
    for name in (known[0], *OPTIONS):
        if not isinstance(options.get(name), bool | None):
            raise exceptions.ValidationError(detail=f"{name} must be a boolean.")
    rules = options.get(known[1])
    if rules is not None and not _are_rules(rules):
        raise exceptions.ValidationError(
            detail=f'{known[1]} must be a list of at most 10 lists with methods, such as [["password", "totp"]]. '
            f"Methods are {' and '.join(_METHODS)}, and each rule has the password."
        )
    return options


def _are_rules(rules: Any) -> bool:
    return (
        isinstance(rules, list)
        and len(rules) <= 10
        and all(
            isinstance(rule, list) and "password" in rule and not set(map(str, rule)) - {*_METHODS} for rule in rules
        )
    )


# --- application credentials and trusts


def roles(body: dict[str, Any], content: Content) -> list[str]:
    """Return the keys of the body's roles, given by id or name, without the roles that they imply."""
    items = [] if body.get("roles") is None else body["roles"]
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise exceptions.ValidationError(detail="roles must be a list of objects with an id or a name.")
    return list(dict.fromkeys(_role(item, content).key for item in items))


def _role(item: dict[str, Any], content: Content) -> Role:
    id, name = item.get("id"), item.get("name")
    found = None
    if isinstance(id, str):
        found = content.role(id)
    elif id is None and isinstance(name, str):
        found = content.role_named(name)
    if found is None and not isinstance(name if id is None else id, str):
        raise exceptions.ValidationError(detail="roles must be a list of objects with an id or a name.")
    return require("role", str(name if id is None else id), found)


def expiry(body: dict[str, Any]) -> float | None:
    """Return the Unix time in the body's ``expires_at``, which has to be in the future."""
    if body.get("expires_at") is None:
        return None
    try:
        moment = datetime.datetime.fromisoformat(text_field(body, "expires_at"))
        moment = moment.astimezone(datetime.UTC) if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
    except (ValueError, OverflowError):
        raise exceptions.ValidationError(
            detail="expires_at must be a time in ISO 8601, such as 2030-12-31T23:59:59Z."
        ) from None
    if moment.timestamp() <= time.time():
        raise exceptions.ValidationError(detail="expires_at must not be in the past.")
    return moment.timestamp()
