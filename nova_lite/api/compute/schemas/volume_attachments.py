"""``/servers/{server_id}/os-volume_attachments``."""

from __future__ import annotations

from nova_lite.api.compute.schemas import types as t
from nova_lite.api.http.microversions import Change, Versioned

_DEVICE: t.Schema = {"type": ["string", "null"], "pattern": "(^/dev/x{0,1}[a-z]{0,1}d{0,1})([a-z]+)[0-9]*$"}
_CREATE_20: t.Schema = {"volumeId": t.UUID, "device": _DEVICE}
_CREATE_249 = {**_CREATE_20, "tag": t.TAG}
_CREATE_279 = {**_CREATE_249, "delete_on_termination": t.BOOLEAN}


def _create(properties: t.Schema) -> t.Schema:
    return t.wrapped("volumeAttachment", t.strict(properties, ("volumeId",)))


CREATE = Versioned(
    {
        1: _create(_CREATE_20),
        Change.ATTACHMENT_TAGS: _create(_CREATE_249),
        Change.DELETE_ON_TERMINATION: _create(_CREATE_279),
    }
)

_UPDATE_20: t.Schema = {"volumeId": t.UUID}
_UPDATE_285: t.Schema = {
    **_UPDATE_20,
    "device": _DEVICE,
    "tag": t.TAG,
    "delete_on_termination": t.BOOLEAN,
    "serverId": t.UUID,
    "id": t.UUID,
}

UPDATE = Versioned(
    {
        1: t.wrapped("volumeAttachment", t.strict(_UPDATE_20, ("volumeId",))),
        Change.ATTACHMENT_UPDATE: t.wrapped("volumeAttachment", t.strict(_UPDATE_285, ("volumeId",))),
    }
)
