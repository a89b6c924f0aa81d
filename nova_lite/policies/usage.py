"""Rules of usage by project."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, READER, rule

LIST = "os_compute_api:os-simple-tenant-usage:list"
SHOW = "os_compute_api:os-simple-tenant-usage:show"
AUDIT_LOG_LIST = "os_compute_api:os-instance-usage-audit-log:list"
AUDIT_LOG_SHOW = "os_compute_api:os-instance-usage-audit-log:show"

RULES = [
    rule(LIST, ADMIN, "Show the usage of all projects", "GET /os-simple-tenant-usage"),
    rule(SHOW, READER, "Show a project's usage", "GET /os-simple-tenant-usage/{project_id}"),
    rule(AUDIT_LOG_LIST, ADMIN, "Show the usage audits of the last month", "GET /os-instance_usage_audit_log"),
    rule(AUDIT_LOG_SHOW, ADMIN, "Show those of an earlier month", "GET /os-instance_usage_audit_log/{before}"),
]
