"""Bodies of shelve, shelveOffload and unshelve."""

from __future__ import annotations

from nova_lite.api.compute.schemas import types as t
from nova_lite.api.http.microversions import Change, Versioned

SHELVE = t.wrapped("shelve", {})
SHELVE_OFFLOAD = t.wrapped("shelveOffload", {})

_ZONE: t.Schema = {"availability_zone": t.NAME}
_ZONE_OR_ANY: t.Schema = {"availability_zone": {"oneOf": [{"type": "null"}, t.NAME]}}

UNSHELVE = Versioned(
    {
        1: t.wrapped("unshelve", {}),
        Change.UNSHELVE_TO_ZONE: t.wrapped(
            "unshelve", {**t.strict(_ZONE, ("availability_zone",)), "type": ["object", "null"]}
        ),
        Change.UNSHELVE_TO_HOST: t.wrapped(
            "unshelve", {**t.strict({**_ZONE_OR_ANY, "host": t.HOST}, minProperties=1), "type": ["object", "null"]}
        ),
    }
)
