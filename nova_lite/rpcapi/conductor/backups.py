"""Backups of servers by policies."""

from __future__ import annotations

import datetime
from typing import Any, Protocol

from nova_lite import rpc
from nova_lite.base.context import RequestContext
from nova_lite.objects import (
    BackupPolicy,
    BackupQuery,
    PolicyStatus,
    ServerBackup,
)


class BackupsRPC(Protocol):
    """Backups of servers by policies."""

    @rpc.list_(rpc.API)
    def backup_policy_list(
        self, context: RequestContext, all_projects: bool, limit: int | None, marker: str | None
    ) -> list[BackupPolicy]:
        """Return the project's policies. ``all_projects``: for an admin, those of all projects."""

    @rpc.read(rpc.API)
    def backup_policy_get(self, context: RequestContext, policy_id: str) -> BackupPolicy: ...

    @rpc.read(rpc.API)
    def backup_policy_status_get(self, context: RequestContext, policy_id: str) -> PolicyStatus:
        """Return which servers the policy protects, and whether each has its last due backup."""

    @rpc.change(rpc.API)
    def backup_policy_create(self, context: RequestContext, policy: BackupPolicy) -> BackupPolicy:
        """Create a policy of the context's project and user, against the limit of policies."""

    @rpc.change(rpc.API)
    def backup_policy_update(self, context: RequestContext, policy_id: str, changes: dict[str, Any]) -> BackupPolicy:
        """Change the attributes in ``changes``."""

    @rpc.change(rpc.API)
    def backup_policy_run(self, context: RequestContext, policy_id: str) -> list[ServerBackup]:
        """Plan a backup of each target for now."""

    @rpc.delete(rpc.API)
    def backup_policy_delete(self, context: RequestContext, policy_id: str) -> None: ...

    @rpc.list_(rpc.API)
    def server_backup_list(self, context: RequestContext, query: BackupQuery) -> list[ServerBackup]:
        """Return the backups of the project's servers, newest first."""

    @rpc.read(rpc.API)
    def server_backup_get(self, context: RequestContext, backup_id: str) -> ServerBackup: ...

    @rpc.change(rpc.API)
    def server_backup_hold(self, context: RequestContext, backup_id: str) -> ServerBackup:
        """Return a complete backup, and keep retention from removing it while a server is restored from it.

        Raises `ServerBackupNotComplete`, or `ServerBackupInRepository` for a backup without an image.
        """

    @rpc.change(rpc.API)
    def server_backup_want_image(self, context: RequestContext, backup_id: str) -> ServerBackup:
        """Request an image of a complete backup in a repository. Raises `ServerBackupNotComplete`."""

    @rpc.change(rpc.API)
    def server_backup_lock(self, context: RequestContext, backup_id: str, until: datetime.datetime) -> ServerBackup:
        """Lock a complete backup in a repository until this time (UTC). Raises `ServerBackupLocked` if that is shorter,
        or `ServerBackupNotLockable`."""

    @rpc.delete(rpc.API)
    def server_backup_delete(self, context: RequestContext, backup_id: str) -> None:
        """Delete a backup. Its image is removed soon. Raises `ServerBackupRunning` or `ServerBackupLocked`."""
