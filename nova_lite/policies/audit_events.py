"""Rule of the audit log."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, rule

LIST = rule(
    "os_compute_api:os-audit-events:list", ADMIN, "List the audit log of all projects and APIs", "GET /os-audit-events"
)
