"""``addFixedIp`` and ``removeFixedIp``."""

from __future__ import annotations

from nova_lite.api.compute.schemas import types as t

_NETWORK: t.Schema = {"type": ["string", "number"], "minLength": 1, "maxLength": 255}

ADD: t.Schema = t.wrapped("addFixedIp", t.strict({"networkId": _NETWORK}, ("networkId",)))
REMOVE: t.Schema = t.wrapped("removeFixedIp", t.strict({"address": t.IP_ADDRESS}, ("address",)))
