"""``/os-volumes`` and ``/os-snapshots``: as long as they are there, they take properties that they do not know."""

from __future__ import annotations

from nova_lite.api.compute.schemas import types as t

_TEXT: t.Schema = {"type": "string", "maxLength": 255, "format": "printable"}

CREATE: t.Schema = t.wrapped(
    "volume",
    {
        "type": "object",
        "properties": {
            "size": t.POSITIVE,
            "display_name": _TEXT,
            "display_description": _TEXT,
            "metadata": t.METADATA,
            "snapshot_id": {"oneOf": [t.UUID, {"type": "string", "maxLength": 0}]},
            "volume_type": _TEXT,
            "availability_zone": _TEXT,
        },
        "required": ["size"],
    },
)

CREATE_SNAPSHOT: t.Schema = t.wrapped(
    "snapshot",
    {
        "type": "object",
        "properties": {
            "volume_id": t.UUID,
            "force": t.BOOLEAN,
            "display_name": _TEXT,
            "display_description": _TEXT,
        },
        "required": ["volume_id"],
    },
)
