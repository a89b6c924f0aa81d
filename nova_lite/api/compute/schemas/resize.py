"""``resize`` and ``migrate`` of ``/servers/{id}/action``."""

from __future__ import annotations

from nova_lite.api.compute.schemas import types as t
from nova_lite.api.http.microversions import Change, Versioned

RESIZE = t.wrapped("resize", t.strict({"flavorRef": t.FLAVOR_REF, "OS-DCF:diskConfig": t.DISK_CONFIG}, ("flavorRef",)))

_TO_HOST: t.Schema = {
    "oneOf": [t.strict({"host": {"oneOf": [t.HOST, {"type": "null"}]}}), {"type": "null"}],
}

MIGRATE = Versioned({1: t.wrapped("migrate", {}), Change.MIGRATE_HOST: t.wrapped("migrate", _TO_HOST)})
