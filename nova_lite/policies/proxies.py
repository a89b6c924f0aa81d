"""Rules of what the compute API once told of the network and volume services."""

from __future__ import annotations

from nova_lite.policies.base import ANYONE, READER, Rules, rule

_tenant_networks = Rules("os_compute_api:os-tenant-networks")
_security_groups = Rules("os_compute_api:os-security-groups")
_floating_ips = Rules("os_compute_api:os-floating-ips")
_volumes = Rules("os_compute_api:os-volumes")
_networks = Rules("os_compute_api:os-networks")

TENANT_NETWORKS_LIST = _tenant_networks("list", READER, "List a project's networks", "GET /os-tenant-networks")
TENANT_NETWORKS_SHOW = _tenant_networks("show", READER, "Show one of them", "GET /os-tenant-networks/{network_id}")
SECURITY_GROUPS_LIST = _security_groups("get", READER, "List security groups", "GET /os-security-groups")
SECURITY_GROUPS_SHOW = _security_groups(
    "show", READER, "Show a security group", "GET /os-security-groups/{security_group_id}"
)
FLOATING_IPS_LIST = _floating_ips("list", READER, "List floating addresses", "GET /os-floating-ips")
FLOATING_IPS_SHOW = _floating_ips("show", READER, "Show a floating address", "GET /os-floating-ips/{floating_ip_id}")
FLOATING_IP_POOLS = rule(
    "os_compute_api:os-floating-ip-pools", ANYONE, "List pools of floating addresses", "GET /os-floating-ip-pools"
)
VOLUMES_LIST = _volumes("list", READER, "List volumes", "GET /os-volumes")
VOLUMES_DETAIL = _volumes("detail", READER, "List volumes with details", "GET /os-volumes/detail")
VOLUMES_SHOW = _volumes("show", READER, "Show a volume", "GET /os-volumes/{volume_id}")
SNAPSHOTS_LIST = _volumes("snapshots:list", READER, "List snapshots of volumes", "GET /os-snapshots")
SNAPSHOTS_DETAIL = _volumes("snapshots:detail", READER, "List snapshots with details", "GET /os-snapshots/detail")
SNAPSHOTS_SHOW = _volumes("snapshots:show", READER, "Show a snapshot", "GET /os-snapshots/{snapshot_id}")
NETWORKS_LIST = _networks("list", READER, "List networks", "GET /os-networks")
NETWORKS_SHOW = _networks("show", READER, "Show a network", "GET /os-networks/{network_id}")
