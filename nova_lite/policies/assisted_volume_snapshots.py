"""Rules of the snapshots for which Cinder needs help."""

from __future__ import annotations

from nova_lite.policies.base import SERVICE, rule

_PREFIX = "os_compute_api:os-assisted-volume-snapshots"

CREATE = rule(
    f"{_PREFIX}:create",
    SERVICE,
    "Let a server use a new file of its volume, for a snapshot",
    "POST /os-assisted-volume-snapshots",
)
DELETE = rule(
    f"{_PREFIX}:delete",
    SERVICE,
    "Merge files of a server's volume, for the deletion of a snapshot",
    "DELETE /os-assisted-volume-snapshots/{snapshot_id}",
)
