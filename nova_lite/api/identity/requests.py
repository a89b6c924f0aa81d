"""Validation of the identity API's request bodies.

The types of this module are those of the fields of bodies. Each names its check.
"""

from __future__ import annotations

import datetime
import json
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar

import msgspec

from nova_lite.api.http import bodies
from nova_lite.api.http.bodies import SAME, Body, Check, checked
from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.identity.authority import UNSCOPED, DomainName, Scope
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import DOMAIN_ID, Domain, Group, Project, Role, User
from nova_lite.base import exceptions

T = TypeVar("T")
B = TypeVar("B", bound=Body)
R = TypeVar("R", bound=msgspec.Struct)


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


# --- bodies


class Open(Body, forbid_unknown_fields=False):
    """Object whose other attributes are ignored, as in Keystone."""


class Extensible(Open):
    """Object whose other attributes are kept for clients.

    ``shown``: attributes of responses that are no attributes of clients.
    """

    shown: ClassVar[tuple[str, ...]] = ("id", "links")


class Sent(dict[str, Any]):
    """The object of a request. ``kind``: its key. ``is_change``: of something that is there."""

    kind = ""
    is_change = False


def read(req: ServiceRequest, kind: type[B]) -> B:
    """Return the object of a request. Raises a 400."""
    return bodies.read(kind, _sent(req, kind))


def changes(req: ServiceRequest) -> dict[str, Any]:
    """Return the attributes that a request has, by the names of its struct's fields. Raises a 400."""
    kind = _kind(req)
    sent = _sent(req, kind)
    sent.is_change = True
    return bodies.changes(kind, sent)


def _kind(req: ServiceRequest) -> type[Body]:
    kind = req.service_route.body
    assert kind is not None
    return kind


def _sent(req: ServiceRequest, kind: type[Body]) -> Sent:
    key = req.service_route.key
    sent = Sent(req.json_object() if key is None else object_field(req.json_object(), key))
    sent.kind = key or ""
    if kind.__struct_config__.forbid_unknown_fields and (unknown := sorted(set(sent) - bodies.names(kind))):
        raise exceptions.ValidationError(detail=f"The {key} has no field {unknown[0][:64]!r} that can be set here.")
    return sent


#: Characters of all attributes of clients at a record, as JSON.
MAX_EXTRA = 4096


def attributes(req: ServiceRequest, before: str = "") -> str:
    """Return the attributes of clients in a request, as JSON, added to those from before. Raises a 400."""
    kind = _kind(req)
    assert issubclass(kind, Extensible)
    sent = _sent(req, kind)
    given = {name: sent[name] for name in sent if name not in {*bodies.names(kind), *kind.shown}}
    if not given:
        return before
    text = json.dumps({**attribute_values(before), **given})
    if len(text) > MAX_EXTRA:
        raise exceptions.ValidationError(
            detail=f"Attributes of the client's own at a {sent.kind} have at most {MAX_EXTRA} characters as JSON."
        )
    return text


def attribute_values(text: str) -> dict[str, Any]:
    """Return the attributes of `attributes`."""
    values: dict[str, Any] = json.loads(text) if text else {}
    return values


def new(req: ServiceRequest, record: type[R], body: Body, **more: Any) -> R:
    """Return a new record with an id, and the attributes of the request that it has."""
    common = {name: getattr(body, name) for name in body.__struct_fields__ if name in record.__struct_fields__}
    kept = {"extra": attributes(req)} if isinstance(body, Extensible) else {}
    return record(**{"id": uuid.uuid4().hex, **common, **kept, **more})


def update(req: ServiceRequest, record: Any, changed: dict[str, Any]) -> None:
    """Set the attributes of a record that it has, but not its id, and those of clients."""
    for name in changed.keys() & set(record.__struct_fields__) - {"id"}:
        setattr(record, name, changed[name])
    if issubclass(_kind(req), Extensible):
        record.extra = attributes(req, record.extra)


def _string(sent: Sent, name: str) -> Any:
    return _typed(sent, name, str, "string")


def _text(sent: Sent, name: str) -> Any:
    return _typed(sent, name, str | None, "string")


def _password(sent: Sent, name: str) -> Any:
    return _typed(sent, name, str if sent.is_change else str | None, "string")


def _flag(sent: Sent, name: str) -> Any:
    return _typed(sent, name, bool if sent.is_change else bool | None, "boolean")


def _typed(sent: Sent, name: str, kind: Any, form: str) -> Any:
    value = sent.get(name)
    if not isinstance(value, kind):
        raise exceptions.ValidationError(detail=f"Expecting to find {name} in the {sent.kind}, as a {form}.")
    return value


def _no_options(sent: Sent, name: str) -> Any:
    options = sent[name] or {}
    if not isinstance(options, dict) or any(options.values()):
        raise exceptions.ValidationError(
            detail=f"This cloud has no options of a {sent.kind}, not even immutable: leave them out."
        )
    return None


#: A string, a string or null, and a string for which null is empty.
String: TypeAlias = Annotated[str, checked(_string)]
Text: TypeAlias = Annotated[str | None, checked(_text)]
Description: TypeAlias = Annotated[str, checked(_text)]
#: Null is the default of something new, and refused in changes.
Password: TypeAlias = Annotated[str | None, checked(_password)]
Flag: TypeAlias = Annotated[bool, checked(_flag)]
NoOptions: TypeAlias = Annotated[dict[str, Any], checked(_no_options, maxProperties=0)]


def valid(is_right: Callable[[Any], bool], sentence: str) -> Check:
    """Return a check by a function. ``sentence``: of the error, with a place for the attribute's name."""

    def check(sent: dict[str, Any], name: str) -> Any:
        if not is_right(sent.get(name)):
            raise exceptions.ValidationError(detail=sentence.format(name))
        return sent.get(name)

    return check


def is_text(value: Any, longest: int) -> bool:
    """Check whether a value is null, or a string of at most ``longest`` characters."""
    return value is None or (isinstance(value, str) and len(value) <= longest)


def is_number(value: Any, least: int, most: int) -> bool:
    """Check whether a value is an integer within limits."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def sized(longest: int, form: str = "{}") -> Check:
    """Return the check of a string of 1 to ``longest`` characters. ``form``: what the error calls it."""
    check = valid(lambda text: 0 < len(text) <= longest, f"{form} has 1 to {longest} characters.")
    return lambda sent, name: check({name: text_field(sent, name)}, name)


def or_same(check: Check) -> Check:
    """Return the check of an attribute that null does not change."""
    return lambda sent, name: SAME if sent[name] is None and sent.is_change else check(sent, name)  # type: ignore[attr-defined]


def or_null(check: Check) -> Check:
    """Return the check of an attribute that may be null, too."""
    return lambda sent, name: None if sent.get(name) is None else check(sent, name)


#: The same two, with the sentences of resources that do not name their kind.
Words: TypeAlias = Annotated[str, checked(text_field)]
OptionalWords: TypeAlias = Annotated[str | None, checked(or_null(text_field))]
Object: TypeAlias = Annotated[dict[str, Any], checked(object_field)]


# --- projects and users

#: Tags of a domain, which Keystone keeps.
NO_TAGS = "This cloud keeps no tags of a domain. Its projects may have tags."


def domain_id(content: Content, id: str | None) -> str:
    """Return the id of the domain in which something is to be created. Raises `NotFound` if it does not exist."""
    return DOMAIN_ID if id is None else domain(content, id).id


def check_domain(item: Project | User | Group, fields: dict[str, Any]) -> None:
    """Raise `ValidationError` if the fields would move something to another domain."""
    if fields.get("domain_id") not in (None, item.domain_id):
        raise exceptions.ValidationError(detail="Cannot change the domain ID.")


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


def _user_options(sent: dict[str, Any], name: str) -> dict[str, Any]:
    options = sent[name] or {}
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


UserOptions: TypeAlias = Annotated[dict[str, Any], checked(_user_options)]


def _are_rules(rules: Any) -> bool:
    return (
        isinstance(rules, list)
        and len(rules) <= 10
        and all(
            isinstance(rule, list) and "password" in rule and not set(map(str, rule)) - {*_METHODS} for rule in rules
        )
    )


# --- application credentials and trusts


def _are_roles(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(item, dict) for item in value))


def role_keys(items: list[dict[str, Any]], content: Content) -> list[str]:
    """Return the keys of roles that are given by id or name, without the roles that they imply."""
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


def _expiry(sent: dict[str, Any], name: str) -> float | None:
    """Return the Unix time in an attribute, which has to be in the future."""
    if sent[name] is None:
        return None
    try:
        moment = datetime.datetime.fromisoformat(text_field(sent, name))
        moment = moment.astimezone(datetime.UTC) if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
    except (ValueError, OverflowError):
        raise exceptions.ValidationError(
            detail=f"{name} must be a time in ISO 8601, such as 2030-12-31T23:59:59Z."
        ) from None
    if moment.timestamp() <= time.time():
        raise exceptions.ValidationError(detail=f"{name} must not be in the past.")
    return moment.timestamp()


Roles: TypeAlias = Annotated[
    list[dict[str, Any]], checked(valid(_are_roles, "{} must be a list of objects with an id or a name."))
]
Expiry: TypeAlias = Annotated[Any, checked(_expiry, type=["string", "null"])]
