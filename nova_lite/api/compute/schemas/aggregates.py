"""``/os-aggregates``."""

from __future__ import annotations

from nova_lite.api.compute.schemas import types as t
from nova_lite.api.microversions import Versioned

_PROPERTIES: t.Schema = {"name": t.NAME, "availability_zone": {"oneOf": [t.NAME, {"type": "null"}]}}
_METADATA: t.Schema = {
    "type": "object",
    "patternProperties": {
        r"^[a-zA-Z0-9\-_:. ]{1,255}$": {"type": ["string", "null"], "maxLength": 255, "format": "printable"}
    },
    "additionalProperties": False,
}

CREATE: Versioned[t.Schema] = Versioned({1: t.wrapped("aggregate", t.strict(_PROPERTIES, ("name",)))})
UPDATE: Versioned[t.Schema] = Versioned({1: t.wrapped("aggregate", t.strict(_PROPERTIES, minProperties=1))})
ADD_HOST: Versioned[t.Schema] = Versioned({1: t.wrapped("add_host", t.strict({"host": t.HOST}, ("host",)))})
REMOVE_HOST: Versioned[t.Schema] = Versioned({1: t.wrapped("remove_host", t.strict({"host": t.HOST}, ("host",)))})
SET_METADATA: Versioned[t.Schema] = Versioned(
    {1: t.wrapped("set_metadata", t.strict({"metadata": _METADATA}, ("metadata",)))}
)
IMAGES: Versioned[t.Schema] = Versioned(
    {1: t.wrapped("cache", {"type": "array", "minItems": 1, "items": t.strict({"id": t.UUID}, ("id",))})}
)
