"""Types, quality of service and quotas of volumes, and backups of volumes."""

from __future__ import annotations

from typing import Any, Protocol

from nova_lite import rpc
from nova_lite.base.context import RequestContext
from nova_lite.objects import (
    Volume,
    VolumeBackup,
    VolumeFilters,
    VolumeQosSpecs,
    VolumeType,
    VolumeUse,
)


class VolumeTypesRPC(Protocol):
    """Types, quality of service and quotas of volumes, and backups of volumes."""

    @rpc.list_(rpc.API)
    def volume_type_list(self, context: RequestContext) -> list[VolumeType]:
        """Return the default type, and the others that the context's project may use."""

    @rpc.read(rpc.API)
    def volume_type_get(self, context: RequestContext, reference: str) -> VolumeType:
        """Return a type by its id or name. Raises `VolumeTypeNotFound`, also for a type of other projects."""

    @rpc.change(rpc.API)
    def volume_type_create(self, context: RequestContext, volume_type: VolumeType) -> VolumeType: ...

    @rpc.change(rpc.API)
    def volume_type_update(self, context: RequestContext, type_id: str, changes: dict[str, Any]) -> VolumeType:
        """Set ``name``, ``description``, ``is_public``, or ``extra_specs``, of which a value of None removes one."""

    @rpc.delete(rpc.API)
    def volume_type_delete(self, context: RequestContext, type_id: str) -> None: ...

    @rpc.change(rpc.API)
    def volume_type_project_add(self, context: RequestContext, type_id: str, project_id: str) -> VolumeType:
        """Let a project use a private type."""

    @rpc.change(rpc.API)
    def volume_type_project_remove(self, context: RequestContext, type_id: str, project_id: str) -> VolumeType: ...

    @rpc.list_(rpc.API)
    def backup_list(
        self,
        context: RequestContext,
        filters: VolumeFilters,
        limit: int | None,
        marker: str | None,
        sort_keys: list[str],
        sort_dirs: list[str],
        offset: int,
    ) -> list[VolumeBackup]: ...

    @rpc.read(rpc.API)
    def backup_get(self, context: RequestContext, backup_id: str) -> VolumeBackup: ...

    @rpc.change(rpc.API)
    def backup_create(self, context: RequestContext, backup: VolumeBackup, force: bool) -> VolumeBackup:
        """Accept a backup of a volume or snapshot. ``force``: also of a volume that a server has. Raises a 4xx."""

    @rpc.change(rpc.API)
    def backup_update(self, context: RequestContext, backup_id: str, changes: dict[str, Any]) -> VolumeBackup:
        """Set ``name``, ``description``, ``metadata`` (all of it) or, for an admin, ``status``."""

    @rpc.delete(rpc.API)
    def backup_delete(self, context: RequestContext, backup_id: str, force: bool) -> None:
        """Accept the deletion of a backup. ``force``: in any state in which no host works on it."""

    @rpc.change(rpc.API)
    def backup_restore(self, context: RequestContext, backup_id: str, volume_id: str | None, name: str) -> Volume:
        """Accept that a backup is restored into a free volume, or (None) into a new one of this name. Raises a 4xx."""

    @rpc.change(rpc.API)
    def backup_import(self, context: RequestContext, backup: VolumeBackup) -> VolumeBackup:
        """Accept the record of a backup whose data exist."""

    @rpc.list_(rpc.API)
    def volume_qos_list(self, context: RequestContext) -> list[VolumeQosSpecs]: ...

    @rpc.read(rpc.API)
    def volume_qos_get(self, context: RequestContext, qos_id: str) -> VolumeQosSpecs: ...

    @rpc.change(rpc.API)
    def volume_qos_create(self, context: RequestContext, qos: VolumeQosSpecs) -> VolumeQosSpecs: ...

    @rpc.change(rpc.API)
    def volume_qos_update(self, context: RequestContext, qos_id: str, changes: dict[str, Any]) -> VolumeQosSpecs:
        """Set ``consumer`` or ``specs``, of which a value of None removes one."""

    @rpc.delete(rpc.API)
    def volume_qos_delete(self, context: RequestContext, qos_id: str, force: bool) -> None: ...

    @rpc.change(rpc.API)
    def volume_qos_associate(self, context: RequestContext, qos_id: str, type_id: str) -> None:
        """Give the specs to a volume type that has none."""

    @rpc.change(rpc.API)
    def volume_qos_disassociate(self, context: RequestContext, qos_id: str, type_id: str) -> None: ...

    @rpc.change(rpc.API)
    def volume_qos_disassociate_all(self, context: RequestContext, qos_id: str) -> None: ...

    @rpc.change(rpc.API)
    def volume_type_encryption_set(
        self, context: RequestContext, type_id: str, encryption: dict[str, Any] | None, is_new: bool
    ) -> VolumeType:
        """Set or remove the encryption of a type that no volume has. ``is_new``: the type must have none."""

    @rpc.list_(rpc.API)
    def volume_default_type_list(self, context: RequestContext, project_id: str | None) -> dict[str, str]:
        """Return ids of default types by project, of all projects or of one."""

    @rpc.change(rpc.API)
    def volume_default_type_set(self, context: RequestContext, project_id: str, type_id: str | None) -> None: ...

    @rpc.change(rpc.API)
    def volume_quota_update(self, context: RequestContext, project_id: str, limits: dict[str, int]) -> VolumeUse:
        """Set limits of a project; those of the project "" are the defaults of all others."""

    @rpc.delete(rpc.API)
    def volume_quota_delete(self, context: RequestContext, project_id: str) -> None: ...
