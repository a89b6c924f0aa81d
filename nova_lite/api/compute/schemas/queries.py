"""Query strings of resources that are only read."""

from __future__ import annotations

from nova_lite.api.compute.schemas import types as t
from nova_lite.api.microversions import Change, Versioned

NOTHING: Versioned[t.Schema] = Versioned({1: t.loose_query({}), Change.STRICT_QUERIES: t.strict_query({})})

_IMAGES: t.Schema = {
    **t.PAGING,
    "changes-since": t.Q_TIME,
    **dict.fromkeys(("name", "status", "server", "type", "minRam", "minDisk"), t.Q_ANY),
}
IMAGES: Versioned[t.Schema] = Versioned(
    {1: t.loose_query(_IMAGES, {"^property-": t.Q_ANY})},
)

_LIMITS: t.Schema = {"tenant_id": t.Q_ANY, "reserved": t.Q_ANY}
LIMITS: Versioned[t.Schema] = Versioned(
    {1: t.loose_query(_LIMITS), Change.STRICT_QUERIES: t.strict_query(_LIMITS)},
)

_ACTIONS_258: t.Schema = {**t.PAGING, "changes-since": t.Q_TIME}
_ACTIONS_266: t.Schema = {**_ACTIONS_258, "changes-before": t.Q_TIME}
ACTIONS: Versioned[t.Schema] = Versioned(
    {
        1: t.loose_query({}),
        Change.ACTION_PAGING: t.strict_query(_ACTIONS_258),
        Change.CHANGES_BEFORE: t.strict_query(_ACTIONS_266),
    }
)

_QUOTAS: t.Schema = {"user_id": t.Q_ANY}
QUOTAS: Versioned[t.Schema] = Versioned({1: t.loose_query(_QUOTAS), Change.STRICT_QUERIES: t.strict_query(_QUOTAS)})

_USAGE_21: t.Schema = {"start": t.Q_TIME, "end": t.Q_TIME, "detailed": t.Q_ANY}
_USAGE_240: t.Schema = {**_USAGE_21, **t.PAGING}
USAGE: Versioned[t.Schema] = Versioned(
    {
        1: t.loose_query(_USAGE_21),
        Change.USAGE_PAGING: t.loose_query(_USAGE_240),
        Change.STRICT_QUERIES: t.strict_query(_USAGE_240),
    }
)
