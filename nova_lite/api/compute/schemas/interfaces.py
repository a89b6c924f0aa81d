"""Bodies about interfaces of servers."""

from __future__ import annotations

from nova_lite.api.compute.schemas import types as t
from nova_lite.api.http.microversions import Change, Versioned

_ADDRESS = t.strict({"ip_address": t.IP_ADDRESS}, ("ip_address",))
_FIXED_IPS: t.Schema = {"type": "array", "minItems": 1, "maxItems": 1, "items": _ADDRESS}
_21: t.Schema = {"net_id": t.UUID, "port_id": t.UUID, "fixed_ips": _FIXED_IPS}
_249: t.Schema = {**_21, "tag": t.TAG}


def _create(properties: t.Schema) -> t.Schema:
    return t.wrapped("interfaceAttachment", t.strict(properties))


CREATE = Versioned({1: _create(_21), Change.ATTACHMENT_TAGS: _create(_249)})
