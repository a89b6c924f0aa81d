"""Rules of usage by project."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, READER, rule

LIST = "os_compute_api:os-simple-tenant-usage:list"
SHOW = "os_compute_api:os-simple-tenant-usage:show"

RULES = [
    rule(LIST, ADMIN, "Show the usage of all projects", "GET /os-simple-tenant-usage"),
    rule(SHOW, READER, "Show a project's usage", "GET /os-simple-tenant-usage/{project_id}"),
]
