"""Validation of request bodies about volumes and snapshots."""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
from oslo_config import cfg

from nova_lite.api.http import bodies as structs
from nova_lite.api.http import validation
from nova_lite.api.http.bodies import Body, Check, checked
from nova_lite.api.http.rest import ServiceRequest
from nova_lite.base import exceptions

MAX_GB = 2**20
MAX_LIMIT = 2**31 - 1
#: Items of metadata.
MAX_ITEMS = 128
#: Names of fields by their names in the second version of Cinder's API.
_OLDER = {"display_name": "name", "display_description": "description"}

WRONG_STATUS = "Invalid status: it must be one of {}."

B = TypeVar("B", bound=Body)
T = TypeVar("T", bound=msgspec.Struct)


def read(req: ServiceRequest, kind: type[B], beside: Collection[str] = ()) -> B:
    """Return the object of a request. Raises a 400. ``beside``: keys that may be beside it."""
    return structs.read(kind, body(req, structs.names(kind), beside))


def new(kind: type[T], body: Body, **more: Any) -> T:
    """Return a new object with an id, and the fields that it has in common with the body."""
    common = {name: getattr(body, name) for name in kind.__struct_fields__ if hasattr(body, name)}
    return kind(**{"id": str(uuid.uuid4()), **common, **more})


def changes(req: ServiceRequest, kind: type[Described]) -> dict[str, Any]:
    """Return name, description and metadata, as far as the request has them. Raises a 400 if it has none."""
    changed = given(kind, body(req, structs.names(kind)))
    if not changed:
        raise exceptions.ValidationError(detail="The request body has no changes.")
    return changed


def given(kind: type[Described], fields: dict[str, Any]) -> dict[str, Any]:
    changed = structs.changes(kind, fields)
    for older in changed.keys() & _OLDER.keys():
        value = changed.pop(older)
        changed[_OLDER[older]] = value or changed.get(_OLDER[older])
    if "name" in changed:
        changed["name"] = changed["name"] or ""
    return changed


def items(req: ServiceRequest) -> dict[str, str]:
    """Return the names and values of the body. Raises a 400."""
    return metadata(body(req), str(req.service_route.key))


def body(req: ServiceRequest, known: Collection[str] | None = None, beside: Collection[str] = ()) -> dict[str, Any]:
    """Return the object under the route's key in the body. Raises a 400.

    ``known``: its fields; None: the caller checks them. ``beside``: keys that may be beside the key.
    """
    sent, key = req.json_object(), str(req.service_route.key)
    value = sent.get(key)
    if not isinstance(value, dict):
        raise exceptions.ValidationError(detail=f"Missing required element '{key}' in request body.")
    require_known(sent, {key, *beside})
    if known is not None:
        require_known(value, known)
    return value


def require_known(fields: dict[str, Any], known: Collection[str]) -> None:
    for name in fields:
        if name not in known:
            raise exceptions.ValidationError(
                detail=f"Additional properties are not allowed ('{name[:64]}' was unexpected)"
            )


def action(req: ServiceRequest) -> tuple[str, dict[str, Any]]:
    """Return the single key of the body and its value."""
    value = req.json_object()
    if len(value) != 1:
        raise exceptions.ValidationError(detail="The body must have one key, the name of the action.")
    name, fields = next(iter(value.items()))
    if fields is not None and not isinstance(fields, dict):
        raise exceptions.ValidationError(detail=f"The value of {name[:64]} must be an object.")
    return name, fields or {}


def text(fields: dict[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > 255 or not validation.is_shown(value):
        raise exceptions.ValidationError(detail=f"{name} must be a text of at most 255 printable characters.")
    return value.strip()


def _older_text(fields: dict[str, Any], name: str) -> str | None:
    """Return the text of an older name, unless the request has the newer one."""
    return text(fields, name) if fields.get(_OLDER[name]) is None else None


def an_id(fields: dict[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or not validation.is_uuid(value):
        raise exceptions.ValidationError(detail=f"Invalid {name}: it must be a uuid.")
    return value


def zone(wanted: str | None, conf: cfg.ConfigOpts) -> str:
    """Return the availability zone, which is the only one. Raises a 400."""
    only = str(conf.compute.default_availability_zone)
    if wanted not in (None, "", only):
        raise exceptions.ValidationError(detail=f"Invalid input received: Availability zone '{wanted}' is invalid.")
    return only


def size(value: Any, name: str = "size") -> int:
    """Return a size in GB, 0 if there is none."""
    if value is None:
        return 0
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_GB:
        raise exceptions.ValidationError(
            detail=f"Invalid input for field/attribute {name}: it must be a number of GB from 1 to {MAX_GB}."
        )
    return int(value)


def quotas(fields: dict[str, Any], known: Collection[str]) -> dict[str, int]:
    """Return limits by resource. ``known``: the resources that may have one."""
    limits = {}
    for name, value in fields.items():
        if name in ("force", "id", "tenant_id", "class_name"):
            continue
        if name not in known:
            raise exceptions.ValidationError(detail=f"Bad key in quota set: {name[:64]}. It has {', '.join(known)}.")
        if isinstance(value, str) and re.fullmatch(r"-1|\d{1,9}", value, re.ASCII):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value <= MAX_LIMIT:
            raise exceptions.ValidationError(detail=f"Quota limit of {name} must be -1 (no limit) to {MAX_LIMIT}.")
        limits[name] = value
    return limits


def metadata(value: Any, field: str = "metadata") -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise exceptions.ValidationError(detail=f"{field} must be an object.")
    for name, item in value.items():
        if not 1 <= len(name) <= 255 or not isinstance(item, str) or len(item) > 255:
            raise exceptions.ValidationError(
                detail=f"Keys of {field} have 1 to 255 characters. Values are texts of at most 255."
            )
    if len(value) > MAX_ITEMS:
        raise exceptions.ValidationError(detail=f"There are at most {MAX_ITEMS} items in {field}.")
    return dict(value)


def one_item(sent: dict[str, str], key: str) -> dict[str, Any]:
    """Return the item of a body that has to be about this key alone."""
    if sent.keys() != {key}:
        raise exceptions.ValidationError(detail="Request body and URI mismatch")
    return sent


def flag(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false", "1", "0"):
        return value.lower() in ("true", "1")
    raise exceptions.ValidationError(detail=f"Invalid value for {name}: it must be true or false.")


# --- checks of fields, and types of fields


def needed(check: Check, sentence: str, **schema: Any) -> msgspec.Meta:
    """Return what the type of a field says that must have a value."""

    def value_of(fields: dict[str, Any], name: str) -> Any:
        value = check(fields, name)
        if not value:
            raise exceptions.ValidationError(detail=sentence)
        return value

    return checked(value_of, **schema)


def refused(check: Check, sentence: str) -> msgspec.Meta:
    """Return what the type of a field says that must have no value."""

    def nothing_of(fields: dict[str, Any], name: str) -> None:
        if check(fields, name):
            raise exceptions.ValidationError(detail=sentence)

    return checked(nothing_of)


def as_sent(fields: dict[str, Any], name: str) -> Any:
    return fields.get(name)


def choice(sentence: str, *allowed: str | None, check: Check = as_sent) -> msgspec.Meta:
    """Return what the type of a field says that has one of few values. ``None``, ``""``: it may have none."""

    def value_of(fields: dict[str, Any], name: str) -> Any:
        value = check(fields, name)
        if value not in allowed:
            raise exceptions.ValidationError(detail=sentence)
        return value or None

    return checked(value_of, enum=[value for value in allowed if value])


def state(*states: str) -> msgspec.Meta:
    """Return what the type of a status says that an admin sets."""
    return choice(WRONG_STATUS.format(", ".join(states)), *states)


def is_set(fields: dict[str, Any], name: str) -> bool:
    """Return a flag. Empty values of other types are false."""
    return flag(fields.get(name) or False, name)


def is_true(fields: dict[str, Any], name: str) -> bool:
    """Return a flag that must be there."""
    return flag(fields.get(name), name)


def _size(fields: dict[str, Any], name: str) -> int:
    return size(fields.get(name), name)


def _metadata(fields: dict[str, Any], name: str) -> dict[str, str]:
    return metadata(fields.get(name), name)


_TEXT: dict[str, Any] = {"maxLength": 255}
_UUID: dict[str, Any] = {"format": "uuid"}

Text: TypeAlias = Annotated[str | None, checked(text, **_TEXT)]
Name: TypeAlias = Annotated[str, checked(text, **_TEXT)]
Id: TypeAlias = Annotated[str | None, checked(an_id, **_UUID)]
VolumeId: TypeAlias = Annotated[str, needed(an_id, "'volume_id' must be specified", **_UUID)]
Size: TypeAlias = Annotated[int, checked(_size, minimum=1, maximum=MAX_GB)]
Flag: TypeAlias = Annotated[bool, checked(is_set)]
#: A flag without a default, which null does not have either.
RequiredFlag: TypeAlias = Annotated[bool, checked(is_true)]
Metadata: TypeAlias = Annotated[dict[str, str], checked(_metadata, maxProperties=MAX_ITEMS)]
Anything: TypeAlias = Annotated[Any, checked(as_sent)]
_Older: TypeAlias = Annotated[str | None, checked(_older_text, **_TEXT)]


class Described(Body):
    """Fields that the owner of a thing sets."""

    name: Name = ""
    description: Text = None
    metadata: Metadata = {}


class Named(Described):
    """The same, also under older names."""

    display_name: _Older = None
    display_description: _Older = None

    def __post_init__(self) -> None:
        self.name = self.display_name or self.name
        self.description = self.display_description or self.description
