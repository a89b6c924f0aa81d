"""``/os-quota-sets`` and ``/os-quota-class-sets``."""

from __future__ import annotations

from nova_lite.api.compute.schemas import types as t
from nova_lite.api.http.microversions import Change, Versioned

_LIMIT: t.Schema = {
    "type": ["integer", "string"],
    "pattern": "^-?[0-9]{1,10}$",
    "minimum": -1,
    "maximum": t.MAX_INT,
    "format": "limit",
}

_257: t.Schema = dict.fromkeys(
    ("instances", "cores", "ram", "metadata_items", "key_pairs", "server_groups", "server_group_members"), _LIMIT
)
_236: t.Schema = _257 | dict.fromkeys(
    ("injected_files", "injected_file_content_bytes", "injected_file_path_bytes"), _LIMIT
)
_21: t.Schema = _236 | dict.fromkeys(("fixed_ips", "floating_ips", "security_groups", "security_group_rules"), _LIMIT)


def _set(properties: t.Schema) -> t.Schema:
    return t.wrapped("quota_set", t.strict({**properties, "force": t.BOOLEAN}))


def _class(properties: t.Schema) -> t.Schema:
    return t.wrapped("quota_class_set", t.strict(properties))


UPDATE = Versioned({1: _set(_21), Change.NO_PROXIES: _set(_236), Change.NO_PERSONALITY: _set(_257)})
CLASS_UPDATE = Versioned({1: _class(_21), Change.QUOTA_CLASS_KEYS: _class(_236), Change.NO_PERSONALITY: _class(_257)})
