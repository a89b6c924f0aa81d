"""Rules of floating addresses."""

from __future__ import annotations

from nova_lite.policies.base import ANYONE, MEMBER, READER, Rules, rule

_floating_ips = Rules("os_compute_api:os-floating-ips")
_ACTION = "POST /servers/{server_id}/action"

LIST = _floating_ips("list", READER, "List floating addresses", "GET /os-floating-ips")
SHOW = _floating_ips("show", READER, "Show a floating address", "GET /os-floating-ips/{floating_ip_id}")
CREATE = _floating_ips("create", MEMBER, "Allocate a floating address from a pool", "POST /os-floating-ips")
DELETE = _floating_ips("delete", MEMBER, "Release a floating address", "DELETE /os-floating-ips/{floating_ip_id}")
ADD = _floating_ips("add", MEMBER, "Associate a floating address with a server (addFloatingIp)", _ACTION)
REMOVE = _floating_ips("remove", MEMBER, "Disassociate a floating address from a server (removeFloatingIp)", _ACTION)
POOLS = rule(
    "os_compute_api:os-floating-ip-pools", ANYONE, "List pools of floating addresses", "GET /os-floating-ip-pools"
)
