"""Query strings of resources that are only read."""

from __future__ import annotations

from nova_lite.api.compute.schemas import types as t
from nova_lite.api.http.microversions import Change, Versioned

#: Parameters were ignored until 2.102 by what takes none.
NOTHING = Versioned({1: t.loose_query({}), Change.NO_UNKNOWN_QUERIES: t.strict({})})
NOTHING_STRICT = t.strict({})

_IMAGES: t.Schema = {
    **t.PAGING,
    "changes-since": t.Q_TIME,
    **dict.fromkeys(("name", "status", "server", "type", "minRam", "minDisk"), t.Q_ANY),
}
IMAGES: t.Schema = {**t.loose_query(_IMAGES), "patternProperties": {"^property-": t.Q_ANY}}

_LIMITS: t.Schema = {"tenant_id": t.Q_ANY, "reserved": t.Q_ANY}
LIMITS = t.query(_LIMITS)

_ACTIONS_258: t.Schema = {**t.PAGING, "changes-since": t.Q_TIME}
_ACTIONS_266: t.Schema = {**_ACTIONS_258, "changes-before": t.Q_TIME}
ACTIONS = Versioned(
    {
        1: t.loose_query({}),
        Change.ACTION_PAGING: t.strict(_ACTIONS_258),
        Change.CHANGES_BEFORE: t.strict(_ACTIONS_266),
    }
)

_QUOTAS: t.Schema = {"user_id": t.Q_ANY}
QUOTAS = t.query(_QUOTAS)

_Q_NUMBER: t.Schema = t.each({"type": "string", "pattern": "^[0-9]{1,9}$"})
_ATTACHMENTS: t.Schema = {"limit": _Q_NUMBER, "offset": _Q_NUMBER}
VOLUME_ATTACHMENTS = t.query(_ATTACHMENTS)

_MIGRATIONS: t.Schema = dict.fromkeys(
    ("hidden", "host", "instance_uuid", "source_compute", "status", "migration_type"), t.Q_ANY
)
_MIGRATIONS_259: t.Schema = {**_MIGRATIONS, **t.PAGING, "changes-since": t.Q_TIME}
_MIGRATIONS_266: t.Schema = {**_MIGRATIONS_259, "changes-before": t.Q_TIME}
_MIGRATIONS_280: t.Schema = {**_MIGRATIONS_266, "user_id": t.Q_ANY, "project_id": t.Q_ANY}
MIGRATIONS = Versioned(
    {
        1: t.loose_query(_MIGRATIONS),
        Change.MIGRATION_PAGING: t.strict(_MIGRATIONS_259),
        Change.CHANGES_BEFORE: t.strict(_MIGRATIONS_266),
        Change.MIGRATION_OWNERS: t.strict(_MIGRATIONS_280),
    }
)

_USAGE_21: t.Schema = {"start": t.Q_TIME, "end": t.Q_TIME, "detailed": t.Q_ANY}
_USAGE_240: t.Schema = {**_USAGE_21, **t.PAGING}
USAGE = t.query(_USAGE_21, {Change.USAGE_PAGING: _USAGE_240})
