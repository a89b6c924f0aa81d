"""Rules of the compute API's proxies of the network and volume services (until 2.35)."""

from __future__ import annotations

from nova_lite.policies.base import MEMBER, READER, Rules

_tenant_networks = Rules("os_compute_api:os-tenant-networks")
_volumes = Rules("os_compute_api:os-volumes")
_networks = Rules("os_compute_api:os-networks")

TENANT_NETWORKS_LIST = _tenant_networks("list", READER, "List a project's networks", "GET /os-tenant-networks")
TENANT_NETWORKS_SHOW = _tenant_networks(
    "show", READER, "Show a network of a project", "GET /os-tenant-networks/{network_id}"
)
VOLUMES_LIST = _volumes("list", READER, "List volumes", "GET /os-volumes")
VOLUMES_DETAIL = _volumes("detail", READER, "List volumes with details", "GET /os-volumes/detail")
VOLUMES_SHOW = _volumes("show", READER, "Show a volume", "GET /os-volumes/{volume_id}")
VOLUMES_CREATE = _volumes("create", MEMBER, "Create a volume", "POST /os-volumes")
VOLUMES_DELETE = _volumes("delete", MEMBER, "Delete a volume", "DELETE /os-volumes/{volume_id}")
SNAPSHOTS_CREATE = _volumes("snapshots:create", MEMBER, "Create a snapshot of a volume", "POST /os-snapshots")
SNAPSHOTS_DELETE = _volumes("snapshots:delete", MEMBER, "Delete a snapshot", "DELETE /os-snapshots/{snapshot_id}")
SNAPSHOTS_LIST = _volumes("snapshots:list", READER, "List snapshots of volumes", "GET /os-snapshots")
SNAPSHOTS_DETAIL = _volumes("snapshots:detail", READER, "List snapshots with details", "GET /os-snapshots/detail")
SNAPSHOTS_SHOW = _volumes("snapshots:show", READER, "Show a snapshot", "GET /os-snapshots/{snapshot_id}")
NETWORKS_LIST = _networks("list", READER, "List networks", "GET /os-networks")
NETWORKS_SHOW = _networks("show", READER, "Show a network", "GET /os-networks/{network_id}")
