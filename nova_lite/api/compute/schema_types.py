"""Building blocks of request schemas, shared by all resources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nova_lite.api.http.microversions import Change, Versioned

MAX_INT = 0x7FFFFFFF
MAX_USER_DATA = 65535
#: Name of a disk in a guest, with or without its directory: vdb, /dev/sda1.
DEVICE_PATTERN = "^(/dev/)?[a-z]+[0-9]*$"

Schema = dict[str, Any]


def strict(properties: Schema, required: tuple[str, ...] = (), **more: Any) -> Schema:
    """Return the schema of an object with exactly these properties."""
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False, **more}
    if required:
        schema["required"] = list(required)
    return schema


def wrapped(key: str, schema: Schema, **more: Schema) -> Schema:
    """Return the schema of ``{key: <schema>}``, the form of nearly every body."""
    return strict({key: schema, **more}, (key,))


def loose_query(properties: Schema) -> Schema:
    """Return the schema of a query string whose unknown parameters are dropped."""
    return {"type": "object", "properties": properties}


def query(properties: Schema, later: Mapping[int, Schema] | None = None) -> Versioned[Schema]:
    """Return the schemas of a query string: ``properties``, and those of ``later`` from the given minor versions on.

    Since 2.75 unknown parameters are errors.
    """
    versions = {1: properties, **(later or {})}
    loose = {since: loose_query(properties) for since, properties in versions.items()}
    return Versioned({**loose, Change.STRICT_QUERIES: strict(versions[max(versions)])})


def keyed(**value: Any) -> Schema:
    """Return the schema of an object whose keys users choose. ``value`` adds keywords to the values' schema.

    Values are printable and have at most 255 characters.
    """
    return {
        "type": "object",
        "patternProperties": {r"^[a-zA-Z0-9\-_:. ]{1,255}$": {**value, "maxLength": 255, "format": "printable"}},
        "additionalProperties": False,
    }


def one_of(*values: str) -> Schema:
    """Return the schema of an enumeration. Messages show members of a `StrEnum` as texts."""
    return {"type": "string", "enum": [str(value) for value in values]}


def repeatable(schema: Schema) -> Schema:
    """Return the schema of a query parameter, each of whose values must match ``schema``."""
    return {"type": "array", "items": schema}


NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 255, "format": "name"}
DESCRIPTION: Schema = {"type": ["string", "null"], "minLength": 0, "maxLength": 255, "format": "printable"}
TEXT: Schema = {"type": "string", "minLength": 1, "maxLength": 255}
HOST: Schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^[a-zA-Z0-9-._]+$"}
UUID: Schema = {"type": "string", "format": "uuid"}
IMAGE_ID_OR_EMPTY: Schema = {"oneOf": [UUID, {"type": "string", "maxLength": 0}]}
FLAVOR_REF: Schema = {"type": ["string", "integer"], "minLength": 1, "maxLength": 255}
BOOLEAN: Schema = {"type": ["boolean", "string"], "format": "boolean"}
#: A number, or its digits in a string. It must fit into 31 bits.
POSITIVE: Schema = {
    "type": ["integer", "string"],
    "pattern": "^0*[1-9][0-9]*$",
    "minimum": 1,
    "maximum": MAX_INT,
    "maxLength": 10,
    "format": "int32",
}
NON_NEGATIVE: Schema = {**POSITIVE, "pattern": "^[0-9]+$", "minimum": 0}
_EMPTY: Schema = {"type": "string", "maxLength": 0}
IPV4_OR_EMPTY: Schema = {"type": "string", "oneOf": [{"type": "string", "format": "ipv4"}, _EMPTY]}
IPV6_OR_EMPTY: Schema = {"type": "string", "oneOf": [{"type": "string", "format": "ipv6"}, _EMPTY]}
IP_ADDRESS: Schema = {"type": "string", "oneOf": [{"format": "ipv4"}, {"format": "ipv6"}]}
DISK_CONFIG: Schema = one_of("AUTO", "MANUAL")
METADATA: Schema = keyed(type="string")
TAG: Schema = {"type": "string", "minLength": 1, "maxLength": 60, "pattern": r"^[^,/]*$"}
TAGS: Schema = {"type": "array", "items": TAG, "maxItems": 50}
EXTRA_SPECS: Schema = keyed(type=["string", "number"])

Q_ANY: Schema = repeatable({"type": "string", "maxLength": 4096})
Q_REGEX: Schema = repeatable({"type": "string", "maxLength": 255, "format": "regex"})
Q_LIMIT: Schema = repeatable({"type": "string", "pattern": r"^[0-9]{1,9}$"})
Q_MARKER: Schema = repeatable({"type": "string", "maxLength": 255})
Q_BOOLEAN: Schema = repeatable({"type": "string", "format": "boolean"})
Q_TIME: Schema = repeatable({"type": "string", "format": "date-time"})
Q_SORT_DIR: Schema = repeatable({"type": "string", "pattern": "^(asc|desc)$"})

PAGING: Schema = {"limit": Q_LIMIT, "marker": Q_MARKER}


METADATA_BODY = wrapped("metadata", METADATA)
METADATA_ITEM_BODY = wrapped("meta", {**METADATA, "minProperties": 1, "maxProperties": 1})


#: Query string of routes without parameters. Unknown parameters are ignored until 2.101.
NO_PARAMETERS = Versioned({1: loose_query({}), Change.NO_UNKNOWN_QUERIES: strict({})})
NO_PARAMETERS_STRICT = strict({})

_Q_NUMBER: Schema = repeatable({"type": "string", "pattern": "^[0-9]{1,9}$"})
_OFFSET_PAGING: Schema = {"limit": _Q_NUMBER, "offset": _Q_NUMBER}
OFFSET_PAGING = query(_OFFSET_PAGING)
