"""``/os-services``, ``/os-hosts``, ``/os-hypervisors`` and ``/os-availability-zone``."""

from __future__ import annotations

from nova_lite.api.compute.schemas import types as t
from nova_lite.api.http.microversions import Change

_SERVICES: t.Schema = {"host": t.Q_ANY, "binary": t.Q_ANY}

SERVICES = t.query(_SERVICES)

_REASON: t.Schema = {"type": "string", "minLength": 1, "maxLength": 255, "format": "printable"}
_WHICH: t.Schema = {"host": t.HOST, "binary": t.TEXT}

SERVICE_SWITCH = t.strict(_WHICH, ("host", "binary"))
SERVICE_DISABLE_WITH_REASON = t.strict({**_WHICH, "disabled_reason": _REASON}, ("host", "binary", "disabled_reason"))
SERVICE_FORCE_DOWN = t.strict({**_WHICH, "forced_down": t.BOOLEAN}, ("host", "binary", "forced_down"))
SERVICE_UPDATE = t.strict(
    {
        "status": t.one_of("enabled", "disabled"),
        "disabled_reason": _REASON,
        "forced_down": t.BOOLEAN,
    }
)

HOSTS = t.loose_query({"zone": t.Q_ANY})
HOST_UPDATE = t.strict(
    {
        "status": t.one_of("enable", "disable"),
        "maintenance_mode": t.one_of("enable", "disable"),
    },
    minProperties=1,
)

_HYPERVISORS_253: t.Schema = {
    **t.PAGING,
    "hypervisor_hostname_pattern": t.each(t.HOST),
    "with_servers": t.Q_BOOLEAN,
}

HYPERVISORS = t.query({}, {Change.HYPERVISOR_PAGING: t.PAGING, Change.UUIDS_OF_SERVICES: _HYPERVISORS_253})

_WITH_SERVERS: t.Schema = {"with_servers": t.Q_BOOLEAN}

HYPERVISOR = t.query({}, {Change.UUIDS_OF_SERVICES: _WITH_SERVERS})
