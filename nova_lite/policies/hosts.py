"""Rules of hosts: services, hypervisors, availability zones."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, ANYONE, Rules

_services = Rules("os_compute_api:os-services")
_hosts = Rules("os_compute_api:os-hosts")
_hypervisors = Rules("os_compute_api:os-hypervisors")
_zones = Rules("os_compute_api:os-availability-zone")

SERVICES_LIST = _services("list", ADMIN, "List services", "GET /os-services")
SERVICES_UPDATE = _services("update", ADMIN, "Enable, disable or force down a service", "PUT /os-services/{service_id}")
SERVICES_DELETE = _services("delete", ADMIN, "Delete a service", "DELETE /os-services/{service_id}")
HOSTS_LIST = _hosts("list", ADMIN, "List hosts", "GET /os-hosts")
HOSTS_SHOW = _hosts("show", ADMIN, "Show a host's resources and their use", "GET /os-hosts/{host_name}")
HOSTS_UPDATE = _hosts("update", ADMIN, "Enable or disable a host", "PUT /os-hosts/{host_name}")
HOSTS_START = _hosts("start", ADMIN, "Power a host on", "GET /os-hosts/{host_name}/startup")
HOSTS_SHUTDOWN = _hosts("shutdown", ADMIN, "Power a host off", "GET /os-hosts/{host_name}/shutdown")
HOSTS_REBOOT = _hosts("reboot", ADMIN, "Reboot a host", "GET /os-hosts/{host_name}/reboot")
HYPERVISORS_LIST = _hypervisors("list", ADMIN, "List hypervisors", "GET /os-hypervisors")
HYPERVISORS_DETAIL = _hypervisors("list-detail", ADMIN, "List hypervisors with details", "GET /os-hypervisors/detail")
HYPERVISORS_SHOW = _hypervisors("show", ADMIN, "Show a hypervisor", "GET /os-hypervisors/{hypervisor_id}")
HYPERVISORS_STATISTICS = _hypervisors(
    "statistics", ADMIN, "Show statistics over all hypervisors", "GET /os-hypervisors/statistics"
)
HYPERVISORS_UPTIME = _hypervisors(
    "uptime", ADMIN, "Show a hypervisor's uptime", "GET /os-hypervisors/{hypervisor_id}/uptime"
)
HYPERVISORS_SEARCH = _hypervisors("search", ADMIN, "Find hypervisors by name", "GET /os-hypervisors/{pattern}/search")
HYPERVISORS_SERVERS = _hypervisors(
    "servers", ADMIN, "List servers by hypervisor", "GET /os-hypervisors/{pattern}/servers"
)
ZONES_LIST = _zones("list", ANYONE, "List availability zones", "GET /os-availability-zone")
ZONES_DETAIL = _zones("detail", ADMIN, "List availability zones with their hosts", "GET /os-availability-zone/detail")
