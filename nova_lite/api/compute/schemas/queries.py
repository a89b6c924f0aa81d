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

_Q_NUMBER: t.Schema = t.each({"type": "string", "pattern": "^[0-9]{1,9}$"})
_ATTACHMENTS: t.Schema = {"limit": _Q_NUMBER, "offset": _Q_NUMBER}
VOLUME_ATTACHMENTS: Versioned[t.Schema] = Versioned(
    {1: t.loose_query(_ATTACHMENTS), Change.STRICT_QUERIES: t.strict_query(_ATTACHMENTS)},
)

_MIGRATIONS: t.Schema = dict.fromkeys(
    ("hidden", "host", "instance_uuid", "source_compute", "status", "migration_type"), t.Q_ANY
)
_MIGRATIONS_259: t.Schema = {**_MIGRATIONS, **t.PAGING, "changes-since": t.Q_TIME}
_MIGRATIONS_266: t.Schema = {**_MIGRATIONS_259, "changes-before": t.Q_TIME}
_MIGRATIONS_280: t.Schema = {**_MIGRATIONS_266, "user_id": t.Q_ANY, "project_id": t.Q_ANY}
MIGRATIONS: Versioned[t.Schema] = Versioned(
    {
        1: t.loose_query(_MIGRATIONS),
        Change.MIGRATION_PAGING: t.strict_query(_MIGRATIONS_259),
        Change.CHANGES_BEFORE: t.strict_query(_MIGRATIONS_266),
        Change.MIGRATION_OWNERS: t.strict_query(_MIGRATIONS_280),
    }
)

_USAGE_21: t.Schema = {"start": t.Q_TIME, "end": t.Q_TIME, "detailed": t.Q_ANY}
_USAGE_240: t.Schema = {**_USAGE_21, **t.PAGING}
USAGE: Versioned[t.Schema] = Versioned(
    {
        1: t.loose_query(_USAGE_21),
        Change.USAGE_PAGING: t.loose_query(_USAGE_240),
        Change.STRICT_QUERIES: t.strict_query(_USAGE_240),
    }
)
