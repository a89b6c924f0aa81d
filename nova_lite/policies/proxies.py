"""Rules of what the compute API once told of the network and volume services."""

from __future__ import annotations

from nova_lite.policies.base import ANYONE, READER, rule

TENANT_NETWORKS_LIST = "os_compute_api:os-tenant-networks:list"
TENANT_NETWORKS_SHOW = "os_compute_api:os-tenant-networks:show"
SECURITY_GROUPS_LIST = "os_compute_api:os-security-groups:get"
SECURITY_GROUPS_SHOW = "os_compute_api:os-security-groups:show"
FLOATING_IPS_LIST = "os_compute_api:os-floating-ips:list"
FLOATING_IPS_SHOW = "os_compute_api:os-floating-ips:show"
FLOATING_IP_POOLS = "os_compute_api:os-floating-ip-pools"
VOLUMES_LIST = "os_compute_api:os-volumes:list"
VOLUMES_DETAIL = "os_compute_api:os-volumes:detail"
VOLUMES_SHOW = "os_compute_api:os-volumes:show"
SNAPSHOTS_LIST = "os_compute_api:os-volumes:snapshots:list"
SNAPSHOTS_DETAIL = "os_compute_api:os-volumes:snapshots:detail"
SNAPSHOTS_SHOW = "os_compute_api:os-volumes:snapshots:show"

RULES = [
    rule(TENANT_NETWORKS_LIST, READER, "List a project's networks", "GET /os-tenant-networks"),
    rule(TENANT_NETWORKS_SHOW, READER, "Show one of them", "GET /os-tenant-networks/{network_id}"),
    rule(SECURITY_GROUPS_LIST, READER, "List security groups", "GET /os-security-groups"),
    rule(SECURITY_GROUPS_SHOW, READER, "Show a security group", "GET /os-security-groups/{security_group_id}"),
    rule(FLOATING_IPS_LIST, READER, "List floating addresses", "GET /os-floating-ips"),
    rule(FLOATING_IPS_SHOW, READER, "Show a floating address", "GET /os-floating-ips/{floating_ip_id}"),
    rule(FLOATING_IP_POOLS, ANYONE, "List pools of floating addresses", "GET /os-floating-ip-pools"),
    rule(VOLUMES_LIST, READER, "List volumes", "GET /os-volumes"),
    rule(VOLUMES_DETAIL, READER, "List volumes with details", "GET /os-volumes/detail"),
    rule(VOLUMES_SHOW, READER, "Show a volume", "GET /os-volumes/{volume_id}"),
    rule(SNAPSHOTS_LIST, READER, "List snapshots of volumes", "GET /os-snapshots"),
    rule(SNAPSHOTS_DETAIL, READER, "List snapshots with details", "GET /os-snapshots/detail"),
    rule(SNAPSHOTS_SHOW, READER, "Show a snapshot", "GET /os-snapshots/{snapshot_id}"),
]
