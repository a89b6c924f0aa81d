"""Bodies of ``/os-server-external-events``."""

from __future__ import annotations

from nova_lite.api.compute.schemas import types as t
from nova_lite.api.http.microversions import Change, Versioned

NETWORK = ("network-changed", "network-vif-plugged", "network-vif-unplugged", "network-vif-deleted")
VOLUME_EXTENDED = "volume-extended"
POWER_UPDATE = "power-update"
ACCELERATOR_BOUND = "accelerator-request-bound"
VOLUME_REIMAGED = "volume-reimaged"

#: Events that mean nothing without their tag.
TAGGED = (VOLUME_EXTENDED, POWER_UPDATE, ACCELERATOR_BOUND, VOLUME_REIMAGED)


def _events(*names: str) -> t.Schema:
    event = {
        "name": t.one_of(*names),
        "server_uuid": t.UUID,
        "status": t.one_of("failed", "completed", "in-progress"),
        "tag": {"type": "string", "maxLength": 255},
    }
    return t.wrapped("events", {"type": "array", "minItems": 1, "items": t.strict(event, ("name", "server_uuid"))})


CREATE = Versioned(
    {
        1: _events(*NETWORK),
        Change.VOLUME_EXTENDED: _events(*NETWORK, *TAGGED[:1]),
        Change.POWER_UPDATE: _events(*NETWORK, *TAGGED[:2]),
        Change.ACCELERATOR_BOUND: _events(*NETWORK, *TAGGED[:3]),
        Change.VOLUME_REIMAGED: _events(*NETWORK, *TAGGED),
    }
)
