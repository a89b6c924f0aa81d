"""Bodies and queries of a server's parts."""

from __future__ import annotations

from nova_lite.api.compute.schemas import types as t
from nova_lite.api.microversions import Change, Versioned

TAGS: Versioned[t.Schema] = Versioned({1: t.wrapped("tags", t.TAGS)})

_REASON: t.Schema = {"locked_reason": {"type": "string", "minLength": 1, "maxLength": 255}}
LOCK: Versioned[t.Schema] = Versioned(
    {
        1: t.wrapped("lock", {}),
        Change.LOCKED_REASON: t.wrapped("lock", {**t.strict(_REASON), "type": ["object", "null"]}),
    }
)
RESET_STATE: Versioned[t.Schema] = Versioned(
    {
        1: t.wrapped("os-resetState", t.strict({"state": {"type": "string", "enum": ["active", "error"]}}, ("state",))),
    }
)
UNLOCK: Versioned[t.Schema] = Versioned({1: t.wrapped("unlock", {})})
