"""``/os-services``, ``/os-hosts``, ``/os-hypervisors`` and ``/os-availability-zone``."""

from __future__ import annotations

from nova_lite.api.compute.schemas import types as t
from nova_lite.api.microversions import Change, Versioned

_SERVICES: t.Schema = {"host": t.Q_ANY, "binary": t.Q_ANY}

SERVICES: Versioned[t.Schema] = Versioned(
    {1: t.loose_query(_SERVICES), Change.STRICT_QUERIES: t.strict_query(_SERVICES)}
)

_REASON: t.Schema = {"type": "string", "minLength": 1, "maxLength": 255, "format": "printable"}
_WHICH: t.Schema = {"host": t.HOST, "binary": t.TEXT}

SERVICE_SWITCH: Versioned[t.Schema] = Versioned({1: t.strict(_WHICH, ("host", "binary"))})
SERVICE_DISABLE_WITH_REASON: Versioned[t.Schema] = Versioned(
    {1: t.strict({**_WHICH, "disabled_reason": _REASON}, ("host", "binary", "disabled_reason"))}
)
SERVICE_FORCE_DOWN: Versioned[t.Schema] = Versioned(
    {1: t.strict({**_WHICH, "forced_down": t.BOOLEAN}, ("host", "binary", "forced_down"))}
)
SERVICE_UPDATE: Versioned[t.Schema] = Versioned(
    {
        1: t.strict(
            {
                "status": {"type": "string", "enum": ["enabled", "disabled"]},
                "disabled_reason": _REASON,
                "forced_down": t.BOOLEAN,
            }
        )
    }
)

HOSTS: Versioned[t.Schema] = Versioned({1: t.loose_query({"zone": t.Q_ANY})})
HOST_UPDATE: Versioned[t.Schema] = Versioned(
    {
        1: t.strict(
            {
                "status": {"type": "string", "enum": ["enable", "disable"]},
                "maintenance_mode": {"type": "string", "enum": ["enable", "disable"]},
            },
            minProperties=1,
        )
    }
)

_HYPERVISORS_253: t.Schema = {
    **t.PAGING,
    "hypervisor_hostname_pattern": t.each(t.HOST),
    "with_servers": t.Q_BOOLEAN,
}

HYPERVISORS: Versioned[t.Schema] = Versioned(
    {
        1: t.loose_query({}),
        Change.HYPERVISOR_PAGING: t.loose_query(t.PAGING),
        Change.UUIDS_OF_SERVICES: t.loose_query(_HYPERVISORS_253),
        Change.STRICT_QUERIES: t.strict_query(_HYPERVISORS_253),
    }
)

_WITH_SERVERS: t.Schema = {"with_servers": t.Q_BOOLEAN}

HYPERVISOR: Versioned[t.Schema] = Versioned(
    {
        1: t.loose_query({}),
        Change.UUIDS_OF_SERVICES: t.loose_query(_WITH_SERVERS),
        Change.STRICT_QUERIES: t.strict_query(_WITH_SERVERS),
    }
)
