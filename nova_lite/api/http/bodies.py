"""Bodies of requests as msgspec structs, for the services without microversions.

A `Body` has a field for each attribute that a request may have. The type of a field names its check::

    Text = Annotated[str | None, checked(requests.text, maxLength=255)]

    class NewGroup(Body):
        name: Text = ""
        addresses: Prefixes

A check takes the request's object and the attribute's name. It returns the value, and raises the 400 in the words of
its API. The OpenAPI documents are made of the same structs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import inspect

#: Default of an attribute that `changes` leaves out if it is null.
SAME: Any = msgspec.UNSET

Check = Callable[[dict[str, Any], str], Any]


class Body(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Base of the objects of requests."""


B = TypeVar("B", bound=Body)


class _Field(NamedTuple):
    name: str
    sent: str
    check: Check
    required: bool


def checked(check: Check, **schema: Any) -> msgspec.Meta:
    """Return what a field's type says about its check. ``schema``: more about its JSON schema than the type says."""
    return msgspec.Meta(extra={"check": check}, extra_json_schema=schema)


def read(kind: type[B], sent: dict[str, Any]) -> B:
    """Return the object of a request. A missing attribute has its default, and so has a null.

    The check of a required attribute is called in any case, and raises if the attribute is missing.
    """
    values = {
        field.name: field.check(sent, field.sent) for field in _fields(kind) if field.required or field.sent in sent
    }
    return kind(**{name: value for name, value in values.items() if value is not None})


def changes(kind: type[Body], sent: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes that a request has, by the names of the struct's fields. Null means the default.

    An attribute whose check or default is `SAME` changes nothing.
    """
    values = {field.name: field.check(sent, field.sent) for field in _fields(kind) if field.sent in sent}
    defaults = kind() if None in values.values() else None
    changed = {name: getattr(defaults, name) if value is None else value for name, value in values.items()}
    return {name: value for name, value in changed.items() if value is not SAME}


@functools.cache
def changed(kind: type[B]) -> type[B]:
    """Return the struct for changes of objects of a kind: no attribute is required."""
    required = [field for field in msgspec.structs.fields(kind) if field.required]
    optional = [(one.name, one.type, msgspec.field(name=one.encode_name, default=SAME)) for one in required]
    name = f"Changed{kind.__name__.removeprefix('New')}"
    made: type[B] = msgspec.defstruct(name, optional, bases=(kind,), kw_only=True)  # type: ignore[assignment]
    return made


def names(kind: type[Body]) -> frozenset[str]:
    """Return the attributes that a request may have."""
    return frozenset(field.sent for field in _fields(kind))


def schemas(kinds: list[type[Body]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return a JSON schema for each struct, and the schemas to which they refer, of an OpenAPI document.

    A default that stands for an attribute that is not given is left out: null, an empty string, and zero.
    """
    found, parts = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    for described in (field for part in parts.values() for field in part.get("properties", {}).values()):
        default = described.get("default", False)
        if default is not False and default in (None, "", 0):
            del described["default"]
    return list(found), parts


@functools.cache
def _fields(kind: type[Body]) -> tuple[_Field, ...]:
    return tuple(_checked_fields(kind))


def _checked_fields(kind: type[Body]) -> Iterator[_Field]:
    described = inspect.type_info(kind)
    assert isinstance(described, inspect.StructType)
    for field in described.fields:
        extra = field.type.extra if isinstance(field.type, inspect.Metadata) else None
        if not extra or "check" not in extra:
            raise TypeError(f"{kind.__name__}.{field.name} has no check")
        yield _Field(field.name, field.encode_name, extra["check"], field.required)
