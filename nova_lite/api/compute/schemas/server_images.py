"""Bodies of the actions that make an image of a server."""

from __future__ import annotations

from nova_lite.api.compute.schemas import types as t

CREATE_IMAGE = t.wrapped("createImage", t.strict({"name": t.NAME, "metadata": t.METADATA}, ("name",)))

CREATE_BACKUP = t.wrapped(
    "createBackup",
    t.strict(
        {"name": t.NAME, "backup_type": {"type": "string", "maxLength": 255}, "rotation": t.NON_NEGATIVE}
        | {"metadata": t.METADATA},
        ("name", "backup_type", "rotation"),
    ),
)
