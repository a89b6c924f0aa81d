"""Rule of the events that other services report."""

from __future__ import annotations

from nova_lite.policies.base import SERVICE, rule

CREATE = rule(
    "os_compute_api:os-server-external-events:create",
    SERVICE,
    "Report external events of servers",
    "POST /os-server-external-events",
)
