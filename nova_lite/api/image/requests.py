"""Validation of requests that create or change an image."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import msgspec

from nova_lite.api.http import bodies, validation
from nova_lite.api.image.views import FIELDS, VISIBILITIES
from nova_lite.base import exceptions
from nova_lite.image.formats import CONTAINER_FORMATS, DISK_FORMATS
from nova_lite.objects import Image, protection

MAX_INT = 2**31 - 1
MAX_PROPERTIES = 128
MAX_TAGS = 128

#: Names that no property may have, because clients take them for fields of the image.
_RESERVED = ("location", "locations", "deleted", "deleted_at", "direct_url", "stores")
_RESERVED_PREFIX = "os_glance"

_FORMATS = ("disk_format", "container_format")


def fields(sent: dict[str, Any]) -> dict[str, Any]:
    """Return fields as in `Image`. Raises `ValidationError`, or `Forbidden` for a read-only field."""
    for name in sent:
        if FIELDS[name].get("readOnly"):
            raise exceptions.Forbidden(f"Attribute '{name}' is read-only.")
    return bodies.changes(NewImage, sent)


def properties(values: Mapping[str, Any]) -> dict[str, str]:
    if len(values) > MAX_PROPERTIES:
        raise exceptions.ValidationError(detail=f"An image has at most {MAX_PROPERTIES} properties.")
    found = {_property_name(name): "" if value is None else _text(name, value) for name, value in values.items()}
    protection.check_image(found)
    return found


def tags(value: Any) -> list[str]:
    """Return the tags without duplicates, in order."""
    if not isinstance(value, list):
        raise exceptions.ValidationError(detail="Invalid value for tags: it must be a list.")
    for tag in value:
        if not isinstance(tag, str) or not 1 <= len(tag) <= 255 or not validation.is_shown(tag):
            raise exceptions.ValidationError(detail="A tag is a text of 1 to 255 printable characters.")
    unique = list(dict.fromkeys(value))
    if len(unique) > MAX_TAGS:
        raise exceptions.ValidationError(detail=f"An image has at most {MAX_TAGS} tags.")
    return unique


def patch(image: Image, operations: Any) -> dict[str, Any]:
    """Return a JSON patch as the changes for `image_update`: fields and ``properties``. None removes a property."""
    if not isinstance(operations, list):
        raise exceptions.ValidationError(detail="Request body must be a JSON array of operation objects.")
    changes: dict[str, Any] = {}
    new_properties: dict[str, str | None] = {}
    for operation in operations:
        op, name, value = _operation(operation)
        present = name in FIELDS or {**image.properties, **new_properties}.get(name) is not None
        if op in ("replace", "remove") and not present:
            raise exceptions.Conflict(f"Property {name[:64]} does not exist.")
        if name not in FIELDS:
            new_properties |= {name: None} if op == "remove" else properties({name: value})
        elif name == "id":
            raise exceptions.Forbidden("Attribute 'id' is read-only.")
        elif op == "remove":
            raise exceptions.Forbidden(f"Property {name} may not be removed.")
        else:
            changes |= fields({name: value})
    if sum(value is not None for value in {**image.properties, **new_properties}.values()) > MAX_PROPERTIES:
        raise exceptions.ValidationError(detail=f"An image has at most {MAX_PROPERTIES} properties.")
    for name in _FORMATS:
        if name in changes and image.status != "queued":
            raise exceptions.Forbidden(f"Attribute {name} can be replaced only for a queued image.")
    return changes | ({"properties": new_properties} if new_properties else {})


_OPS = ("add", "replace", "remove")


def _operation(operation: Any) -> tuple[str, str, Any]:
    if not isinstance(operation, dict):
        raise exceptions.ValidationError(detail="Operations must be JSON objects.")
    op, path = operation.get("op"), operation.get("path")
    if "op" not in operation:  # older media type
        op = next((name for name in _OPS if name in operation), None)
        path = operation.get(str(op))
    if op not in _OPS:
        raise exceptions.ValidationError(detail="Operations must be one of: add, replace, remove.")
    if not isinstance(path, str) or not path.startswith("/") or "/" in path[1:]:
        raise exceptions.ValidationError(detail="An operation's path must be /NAME.")
    if op != "remove" and "value" not in operation:
        raise exceptions.ValidationError(detail=f"Operation {op} needs a value.")
    return op, path[1:].replace("~1", "/").replace("~0", "~"), operation.get("value")


def _id(sent: dict[str, Any], name: str) -> str:
    try:
        return str(uuid.UUID(sent[name] if isinstance(sent[name], str) else ""))
    except ValueError as error:
        raise exceptions.ValidationError(detail="Invalid image id format") from error


def one_of(allowed: tuple[str, ...], default: str | None = None) -> msgspec.Meta:
    """Return the check of a field with one of few values. ``default``: in place of null, which may be sent then."""

    def value_of(sent: dict[str, Any], name: str) -> str:
        value = sent.get(name)
        if value is None and default is not None:
            return default
        if value not in allowed:
            known = ", ".join(allowed)
            raise exceptions.ValidationError(detail=f"Invalid value for {name}: it must be one of {known}.")
        return str(value)

    return bodies.checked(value_of, enum=list(allowed))


def _number(sent: dict[str, Any], name: str) -> int:
    value = sent[name]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_INT:
        raise exceptions.ValidationError(detail=f"Invalid value for {name}: it must be a number from 0 to {MAX_INT}.")
    return value


def _flag(sent: dict[str, Any], name: str) -> bool:
    """Return true or false. Older clients send texts in patches."""
    value = sent[name]
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise exceptions.ValidationError(detail=f"Invalid value for {name}: it must be true or false.")
    return value


def member_id(sent: dict[str, Any], name: str) -> str:
    value = sent.get(name)
    if not isinstance(value, str) or not 1 <= len(value) <= 255 or not value.isprintable():
        raise exceptions.ValidationError(detail="Member has to be the id of a project.")
    return value


def _property_name(name: str) -> str:
    if name in _RESERVED or name.startswith(_RESERVED_PREFIX):
        raise exceptions.Forbidden(f"Attribute '{name[:64]}' is reserved.")
    if not 1 <= len(name) <= 255:
        raise exceptions.ValidationError(detail="A property's name has 1 to 255 characters.")
    return name


def _text(name: str, value: Any) -> str:
    maximum = 255 if name in FIELDS else 4096
    if not isinstance(value, str) or len(value) > maximum or "\0" in value:
        raise exceptions.ValidationError(
            detail=f"Invalid value for {name[:64]}: it must be a text of at most {maximum} characters."
        )
    return value


def _text_or_none(sent: dict[str, Any], name: str) -> str | None:
    return None if sent[name] is None else _text(name, sent[name])


def _tags(sent: dict[str, Any], name: str) -> list[str]:
    return tags(sent[name])


_Flag: TypeAlias = Annotated[bool, bodies.checked(_flag)]
_Number: TypeAlias = Annotated[int, bodies.checked(_number, minimum=0, maximum=MAX_INT)]


class NewImage(bodies.Body):
    """Fields of an image. All other keys of a request are properties."""

    id: Annotated[str, bodies.checked(_id, format="uuid")] = ""
    name: Annotated[str, bodies.checked(_text_or_none, maxLength=255)] = ""
    visibility: Annotated[str, one_of(VISIBILITIES)] = "shared"
    protected: _Flag = False
    hidden: _Flag = msgspec.field(default=False, name="os_hidden")
    owner: Annotated[str | None, bodies.checked(_text_or_none, maxLength=255)] = None
    min_disk: _Number = 0
    min_ram: _Number = 0
    disk_format: Annotated[str, one_of(DISK_FORMATS, "")] = ""
    container_format: Annotated[str, one_of(CONTAINER_FORMATS, "")] = ""
    tags: Annotated[list[str], bodies.checked(_tags, maxItems=MAX_TAGS)] = []
