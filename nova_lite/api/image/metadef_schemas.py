"""JSON schemas of metadata definitions, as Glance has them at ``/v2/schemas/metadefs``."""

from __future__ import annotations

from typing import Any

_NAME = {"type": "string", "maxLength": 80}
_TIME = {"type": "string", "format": "date-time", "readOnly": True}
_NUMBER: dict[str, Any] = {"type": "integer", "minimum": 0}
_TEXTS: dict[str, Any] = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}

#: Fields of the definition of a property.
PROPERTY: dict[str, Any] = {
    "title": {"type": "string"},
    "description": {"type": "string"},
    "operators": {"type": "array", "items": {"type": "string"}},
    "type": {"type": "string", "enum": ["array", "boolean", "integer", "number", "object", "string", None]},
    "required": _TEXTS,
    "minimum": {"type": "number"},
    "maximum": {"type": "number"},
    "maxLength": _NUMBER,
    "minLength": _NUMBER,
    "pattern": {"type": "string", "format": "regex"},
    "enum": {"type": "array"},
    "readonly": {"type": "boolean"},
    "default": {},
    "items": {"type": "object"},
    "maxItems": _NUMBER,
    "minItems": _NUMBER,
    "uniqueItems": {"type": "boolean"},
    "additionalItems": {"type": "boolean"},
}
_DEFINITIONS: dict[str, Any] = {
    "positiveInteger": {"minimum": 0, "type": "integer"},
    "stringArray": _TEXTS,
    "property": {
        "type": "object",
        "additionalProperties": {"type": "object", "required": ["title", "type"], "properties": PROPERTY},
    },
}
_LINKS = {"self": {"type": "string"}, "schema": {"type": "string"}}
_TIMES = {"created_at": _TIME, "updated_at": _TIME}
_ASSOCIATION: dict[str, Any] = {
    "name": _NAME,
    "prefix": _NAME,
    "properties_target": _NAME,
    **_TIMES,
}
_OBJECT: dict[str, Any] = {
    "name": _NAME,
    "description": {"type": "string"},
    "required": _TEXTS,
    "properties": {"$ref": "#/definitions/property"},
    **_LINKS,
    **_TIMES,
}
_TAG: dict[str, Any] = {"name": _NAME, **_TIMES}
_NAMESPACE: dict[str, Any] = {
    "namespace": _NAME,
    "display_name": _NAME,
    "description": {"type": "string", "maxLength": 500},
    "visibility": {"type": "string", "enum": ["public", "private"]},
    "protected": {"type": "boolean"},
    "owner": {"type": "string", "maxLength": 255},
    **_LINKS,
    **_TIMES,
    "resource_type_associations": {"type": "array", "items": {"type": "object", "properties": _ASSOCIATION}},
    "properties": {"$ref": "#/definitions/property"},
    "objects": {"type": "array", "items": {"type": "object", "properties": _OBJECT}},
    "tags": {"type": "array", "items": {"type": "object", "properties": _TAG}},
}


def _one(name: str, properties: dict[str, Any], required: list[str], more: bool = False) -> dict[str, Any]:
    return {
        "name": name,
        "properties": properties,
        "additionalProperties": more,
        "required": required,
        "definitions": _DEFINITIONS,
    }


def _many(name: str, one: dict[str, Any]) -> dict[str, Any]:
    lists = {name: {"type": "array", "items": {key: one[key] for key in ("name", "properties", "required")}}}
    links = {key: {"type": "string"} for key in ("first", "next", "schema")}
    return {
        "name": name,
        "properties": lists | links,
        "links": [{"rel": key, "href": f"{{{key}}}"} for key in ("first", "next")],
        "definitions": _DEFINITIONS,
    }


_NAMESPACE_SCHEMA = _one("namespace", _NAMESPACE, ["namespace"])
_OBJECT_SCHEMA = _one("object", _OBJECT, ["name"])
_PROPERTY_SCHEMA = _one(
    "property", {"name": {"type": "string", "maxLength": 80}, **PROPERTY}, ["name", "title", "type"]
)
_TAG_SCHEMA = _one("tag", _TAG, ["name"])
_ASSOCIATION_SCHEMA = _one("resource_type_association", _ASSOCIATION, ["name"])

#: Schemas by the last part of their URL.
SCHEMAS: dict[str, dict[str, Any]] = {
    "namespace": _NAMESPACE_SCHEMA,
    "namespaces": _many("namespaces", _NAMESPACE_SCHEMA),
    "object": _OBJECT_SCHEMA,
    "objects": _many("objects", _OBJECT_SCHEMA),
    "property": _PROPERTY_SCHEMA,
    "properties": _many("properties", _PROPERTY_SCHEMA)
    | {"properties": {"properties": {"$ref": "#/definitions/property"}}},
    "tag": _TAG_SCHEMA,
    "tags": _many("tags", _TAG_SCHEMA),
    "resource_type": _ASSOCIATION_SCHEMA,
    "resource_types": _many("resource_type_associations", _ASSOCIATION_SCHEMA),
}
