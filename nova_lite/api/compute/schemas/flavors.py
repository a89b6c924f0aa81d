"""``/flavors`` and their extra specs."""

from __future__ import annotations

from nova_lite.api.compute.schemas import types as t
from nova_lite.api.http.microversions import Change, Versioned

_FLAVOR_21: t.Schema = {
    "name": t.NAME,
    "id": {
        "type": ["string", "number", "null"],
        "minimum": 0,
        "minLength": 1,
        "maxLength": 255,
        "pattern": r"^(?! )[a-zA-Z0-9. _-]+(?<! )$",
    },
    "ram": t.POSITIVE,
    "vcpus": t.POSITIVE,
    "disk": t.NON_NEGATIVE,
    "OS-FLV-EXT-DATA:ephemeral": t.NON_NEGATIVE,
    "swap": t.NON_NEGATIVE,
    "rxtx_factor": {"type": ["number", "string"], "pattern": r"^[0-9]+(\.[0-9]+)?$", "minimum": 1e-9, "maximum": 1e9},
    "os-flavor-access:is_public": t.BOOLEAN,
}
_DESCRIPTION: t.Schema = {"type": ["string", "null"], "maxLength": 65535, "format": "printable"}
_FLAVOR_2102: t.Schema = {
    **{name: schema for name, schema in _FLAVOR_21.items() if name != "rxtx_factor"},
    "description": _DESCRIPTION,
}
_REQUIRED = ("name", "ram", "vcpus", "disk")

CREATE = Versioned(
    {
        1: t.wrapped("flavor", t.strict(_FLAVOR_21, _REQUIRED)),
        Change.FLAVOR_DESCRIPTION: t.wrapped(
            "flavor", t.strict({**_FLAVOR_21, "description": _DESCRIPTION}, _REQUIRED)
        ),
        Change.NO_UNKNOWN_QUERIES: t.wrapped("flavor", t.strict(_FLAVOR_2102, _REQUIRED)),
    }
)

UPDATE = t.wrapped("flavor", t.strict({"description": _DESCRIPTION}, ("description",)))

_SORT_KEYS = (
    *("created_at", "description", "disabled", "ephemeral_gb", "flavorid", "id", "is_public"),
    *("memory_mb", "name", "root_gb", "swap", "updated_at", "vcpus"),
)
_LIST: t.Schema = {
    **t.PAGING,
    "is_public": t.Q_ANY,
    "minRam": t.Q_ANY,
    "minDisk": t.Q_ANY,
    "sort_key": t.each(t.one_of(*_SORT_KEYS, "rxtx_factor")),
    "sort_dir": t.Q_SORT_DIR,
}
_LIST_2102: t.Schema = {**_LIST, "name": t.Q_REGEX, "sort_key": t.each(t.one_of(*_SORT_KEYS))}

INDEX = Versioned(
    {
        1: t.loose_query(_LIST),
        Change.STRICT_QUERIES: t.strict(_LIST),
        Change.NO_UNKNOWN_QUERIES: t.strict(_LIST_2102),
    }
)

EXTRA_SPECS_CREATE = t.wrapped("extra_specs", t.EXTRA_SPECS)
EXTRA_SPECS_UPDATE = {**t.EXTRA_SPECS, "maxProperties": 1}

_PROJECT: t.Schema = t.strict({"tenant": t.TEXT}, ("tenant",))
ADD_ACCESS = t.wrapped("addTenantAccess", _PROJECT)
REMOVE_ACCESS = t.wrapped("removeTenantAccess", _PROJECT)
