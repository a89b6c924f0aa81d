"""Rules of hosts (until 2.42)."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, Rules

_hosts = Rules("os_compute_api:os-hosts")

LIST = _hosts("list", ADMIN, "List hosts", "GET /os-hosts")
SHOW = _hosts("show", ADMIN, "Show a host's resources and their use", "GET /os-hosts/{host_name}")
UPDATE = _hosts("update", ADMIN, "Enable or disable a host", "PUT /os-hosts/{host_name}")
START = _hosts("start", ADMIN, "Power a host on", "GET /os-hosts/{host_name}/startup")
SHUTDOWN = _hosts("shutdown", ADMIN, "Power a host off", "GET /os-hosts/{host_name}/shutdown")
REBOOT = _hosts("reboot", ADMIN, "Reboot a host", "GET /os-hosts/{host_name}/reboot")
