"""Rules of what other services tell this one."""

from __future__ import annotations

from nova_lite.policies.base import SERVICE, rule

CREATE = rule(
    "os_compute_api:os-server-external-events:create",
    SERVICE,
    "Tell what has happened to servers",
    "POST /os-server-external-events",
)
