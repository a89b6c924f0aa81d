"""Rules of hosts: services, hypervisors, availability zones."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, ANYONE, rule

SERVICES_LIST = "os_compute_api:os-services:list"
SERVICES_UPDATE = "os_compute_api:os-services:update"
SERVICES_DELETE = "os_compute_api:os-services:delete"
HOSTS_LIST = "os_compute_api:os-hosts:list"
HOSTS_SHOW = "os_compute_api:os-hosts:show"
HOSTS_UPDATE = "os_compute_api:os-hosts:update"
HOSTS_START = "os_compute_api:os-hosts:start"
HOSTS_SHUTDOWN = "os_compute_api:os-hosts:shutdown"
HOSTS_REBOOT = "os_compute_api:os-hosts:reboot"
HYPERVISORS_LIST = "os_compute_api:os-hypervisors:list"
HYPERVISORS_DETAIL = "os_compute_api:os-hypervisors:list-detail"
HYPERVISORS_SHOW = "os_compute_api:os-hypervisors:show"
HYPERVISORS_STATISTICS = "os_compute_api:os-hypervisors:statistics"
HYPERVISORS_UPTIME = "os_compute_api:os-hypervisors:uptime"
HYPERVISORS_SEARCH = "os_compute_api:os-hypervisors:search"
HYPERVISORS_SERVERS = "os_compute_api:os-hypervisors:servers"
ZONES_LIST = "os_compute_api:os-availability-zone:list"
ZONES_DETAIL = "os_compute_api:os-availability-zone:detail"

RULES = [
    rule(SERVICES_LIST, ADMIN, "List services", "GET /os-services"),
    rule(SERVICES_UPDATE, ADMIN, "Enable, disable or force down a service", "PUT /os-services/{service_id}"),
    rule(SERVICES_DELETE, ADMIN, "Delete a service", "DELETE /os-services/{service_id}"),
    rule(HOSTS_LIST, ADMIN, "List hosts", "GET /os-hosts"),
    rule(HOSTS_SHOW, ADMIN, "Show what a host has and gives", "GET /os-hosts/{host_name}"),
    rule(HOSTS_UPDATE, ADMIN, "Enable or disable a host", "PUT /os-hosts/{host_name}"),
    rule(HOSTS_START, ADMIN, "Switch a host on", "GET /os-hosts/{host_name}/startup"),
    rule(HOSTS_SHUTDOWN, ADMIN, "Switch a host off", "GET /os-hosts/{host_name}/shutdown"),
    rule(HOSTS_REBOOT, ADMIN, "Reboot a host", "GET /os-hosts/{host_name}/reboot"),
    rule(HYPERVISORS_LIST, ADMIN, "List hypervisors", "GET /os-hypervisors"),
    rule(HYPERVISORS_DETAIL, ADMIN, "List hypervisors with details", "GET /os-hypervisors/detail"),
    rule(HYPERVISORS_SHOW, ADMIN, "Show a hypervisor", "GET /os-hypervisors/{hypervisor_id}"),
    rule(HYPERVISORS_STATISTICS, ADMIN, "Sum up all hypervisors", "GET /os-hypervisors/statistics"),
    rule(HYPERVISORS_UPTIME, ADMIN, "Show a hypervisor's uptime", "GET /os-hypervisors/{hypervisor_id}/uptime"),
    rule(HYPERVISORS_SEARCH, ADMIN, "Find hypervisors by name", "GET /os-hypervisors/{pattern}/search"),
    rule(HYPERVISORS_SERVERS, ADMIN, "List servers by hypervisor", "GET /os-hypervisors/{pattern}/servers"),
    rule(ZONES_LIST, ANYONE, "List availability zones", "GET /os-availability-zone"),
    rule(ZONES_DETAIL, ADMIN, "List availability zones with their hosts", "GET /os-availability-zone/detail"),
]
