"""Rules of usage by project."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, READER, Rules

_usage = Rules("os_compute_api:os-simple-tenant-usage")
_audits = Rules("os_compute_api:os-instance-usage-audit-log")

LIST = _usage("list", ADMIN, "Show the usage of all projects", "GET /os-simple-tenant-usage")
SHOW = _usage("show", READER, "Show a project's usage", "GET /os-simple-tenant-usage/{project_id}")
AUDIT_LOG_LIST = _audits("list", ADMIN, "Show last month's usage audits", "GET /os-instance_usage_audit_log")
AUDIT_LOG_SHOW = _audits(
    "show", ADMIN, "Show an earlier month's usage audits", "GET /os-instance_usage_audit_log/{before}"
)
