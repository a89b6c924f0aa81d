"""Rules of what other services tell this one."""

from __future__ import annotations

from nova_lite.policies.base import SERVICE, rule

CREATE = "os_compute_api:os-server-external-events:create"

RULES = [
    rule(CREATE, SERVICE, "Tell what has happened to servers", "POST /os-server-external-events"),
]
