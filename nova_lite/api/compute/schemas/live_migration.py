"""``os-migrateLive`` of ``/servers/{id}/action``, and the action of ``/servers/{id}/migrations/{id}``."""

from __future__ import annotations

from nova_lite.api.compute.schemas import types as t
from nova_lite.api.http.microversions import Change, Versioned

_HOST: t.Schema = {"oneOf": [t.HOST, {"type": "null"}]}
_AUTO: t.Schema = {"anyOf": [t.BOOLEAN, {"enum": ["auto"]}]}


def _live(required: tuple[str, ...], **properties: t.Schema) -> t.Schema:
    return t.wrapped("os-migrateLive", t.strict({**properties, "host": _HOST}, (*required, "host")))


MIGRATE_LIVE = Versioned(
    {
        1: _live(("block_migration", "disk_over_commit"), block_migration=t.BOOLEAN, disk_over_commit=t.BOOLEAN),
        Change.BLOCK_MIGRATION_AUTO: _live(("block_migration",), block_migration=_AUTO),
        Change.LIVE_MIGRATE_FORCE: _live(("block_migration",), block_migration=_AUTO, force=t.BOOLEAN),
        Change.NO_FORCE: _live(("block_migration",), block_migration=_AUTO),
    }
)

FORCE_COMPLETE = t.wrapped("force_complete", {"type": "null"})
