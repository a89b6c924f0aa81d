"""Bodies about floating addresses."""

from __future__ import annotations

from nova_lite.api.compute.schemas import types as t

CREATE: t.Schema = {
    "type": ["object", "null"],
    "properties": {"pool": {"type": ["string", "null"], "maxLength": 255}},
    "additionalProperties": False,
}
_ADDRESS: t.Schema = {"type": "string", "format": "ipv4"}
ADD = t.wrapped("addFloatingIp", t.strict({"address": _ADDRESS, "fixed_address": _ADDRESS}, ("address",)))
REMOVE = t.wrapped("removeFloatingIp", t.strict({"address": _ADDRESS}, ("address",)))
