"""Rules of hypervisors."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, Rules, rule

_hypervisors = Rules("os_compute_api:os-hypervisors")

LIST = _hypervisors("list", ADMIN, "List hypervisors", "GET /os-hypervisors")
DETAIL = _hypervisors("list-detail", ADMIN, "List hypervisors with details", "GET /os-hypervisors/detail")
SHOW = _hypervisors("show", ADMIN, "Show a hypervisor", "GET /os-hypervisors/{hypervisor_id}")
STATISTICS = _hypervisors("statistics", ADMIN, "Show statistics over all hypervisors", "GET /os-hypervisors/statistics")
UPTIME = _hypervisors("uptime", ADMIN, "Show a hypervisor's uptime", "GET /os-hypervisors/{hypervisor_id}/uptime")
SEARCH = _hypervisors("search", ADMIN, "Find hypervisors by name", "GET /os-hypervisors/{pattern}/search")
SERVERS = _hypervisors("servers", ADMIN, "List servers by hypervisor", "GET /os-hypervisors/{pattern}/servers")
USAGE_HISTORY = rule(
    "os_compute_api:os-usage-history:hypervisor",
    ADMIN,
    "Show what a hypervisor's host has used in the last hour, day or week",
    "GET /os-hypervisors/{hypervisor_id}/os-usage-history",
)
