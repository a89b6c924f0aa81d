"""``/os-aggregates``."""

from __future__ import annotations

from nova_lite.api.compute.schemas import types as t

_PROPERTIES: t.Schema = {"name": t.NAME, "availability_zone": {"oneOf": [t.NAME, {"type": "null"}]}}
_METADATA = t.keyed(type=["string", "null"])

CREATE = t.wrapped("aggregate", t.strict(_PROPERTIES, ("name",)))
UPDATE = t.wrapped("aggregate", t.strict(_PROPERTIES, minProperties=1))
ADD_HOST = t.wrapped("add_host", t.strict({"host": t.HOST}, ("host",)))
REMOVE_HOST = t.wrapped("remove_host", t.strict({"host": t.HOST}, ("host",)))
SET_METADATA = t.wrapped("set_metadata", t.strict({"metadata": _METADATA}, ("metadata",)))
IMAGES = t.wrapped("cache", {"type": "array", "minItems": 1, "items": t.strict({"id": t.UUID}, ("id",))})
