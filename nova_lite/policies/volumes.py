"""Rules of the compute API's proxy of the volume service (until 2.35)."""

from __future__ import annotations

from nova_lite.policies.base import MEMBER, READER, Rules

_volumes = Rules("os_compute_api:os-volumes")

LIST = _volumes("list", READER, "List volumes", "GET /os-volumes")
DETAIL = _volumes("detail", READER, "List volumes with details", "GET /os-volumes/detail")
SHOW = _volumes("show", READER, "Show a volume", "GET /os-volumes/{volume_id}")
CREATE = _volumes("create", MEMBER, "Create a volume", "POST /os-volumes")
DELETE = _volumes("delete", MEMBER, "Delete a volume", "DELETE /os-volumes/{volume_id}")
SNAPSHOTS_CREATE = _volumes("snapshots:create", MEMBER, "Create a snapshot of a volume", "POST /os-snapshots")
SNAPSHOTS_DELETE = _volumes("snapshots:delete", MEMBER, "Delete a snapshot", "DELETE /os-snapshots/{snapshot_id}")
SNAPSHOTS_LIST = _volumes("snapshots:list", READER, "List snapshots of volumes", "GET /os-snapshots")
SNAPSHOTS_DETAIL = _volumes("snapshots:detail", READER, "List snapshots with details", "GET /os-snapshots/detail")
SNAPSHOTS_SHOW = _volumes("snapshots:show", READER, "Show a snapshot", "GET /os-snapshots/{snapshot_id}")
