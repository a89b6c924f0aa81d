"""Delete and restore of servers.

A delete contends with every other action: it supersedes whatever is open, even an undo. All hosts that hold the server
get the command, and repeat it until they confirm. If a host is down, the server counts as deleted for its owner. The
host destroys the guest when it is back, before it serves again. Until then the guest may still run, and the server
keeps its claim and its addresses.

A soft delete keeps disks, claim and addresses. Only the quota is free, so a restore takes it again and may fail.
"""

from __future__ import annotations

from typing import Any

from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.db.core import quotas
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.db.servers import disk_keys, server_groups, server_migrations, tpms
from nova_lite.operations import Step, states


class DeleteHandler(OperationHandler):
    """Deletes a server. ``payload``: ``soft`` for a soft delete."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Ignore a soft delete of a soft-deleted server. The image of a shelved server is deleted with it."""
        if payload.get("soft") and instance.vm_state == states.SOFT_DELETED:
            return None
        shelved = instance.shelved_image
        return payload if shelved is None else {**payload, "image_id": shelved["id"]}

    def on_step_done(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        """Release the quota once. The following steps, if any, release claim and addresses."""
        if step.becomes is None or instance.deleted:
            return
        if instance.soft_deleted_at is None:
            quotas.give_back(uow, instance.project_id, _quota_of(instance))
        if step.becomes != states.SOFT_DELETED:
            self._leave_group_and_migration(uow, instance)
            tpms.delete(uow, instance)
            disk_keys.delete(uow, instance)
        instance.vm_state, instance.task_state = step.becomes, None
        instance.updated_at = uow.now
        if step.becomes == states.SOFT_DELETED:
            instance.soft_deleted_at = instance.soft_deleted_at or uow.now
            return
        instance.power_state = states.PowerState.NOSTATE
        instance.deleted = True
        instance.terminated_at = uow.now
        instance.request, instance.disks_at = {}, None
        instance.shelved_image, instance.shelved_at = None, None
        instance.shares, instance.points = None, None
        instance.extra_vcpus = instance.extra_memory_mb = 0

    @staticmethod
    def _leave_group_and_migration(uow: UnitOfWork, instance: Instance) -> None:
        if instance.scheduler_hints.get("group"):
            server_groups.leave(uow, instance.uuid)
        if instance.last_generation > 1:  # a second claim: the server may be moving
            with uow.session.no_autoflush:  # the instance is updated once
                server_migrations.end_with_instance(uow, instance.uuid)


class RestoreHandler(OperationHandler):
    """Restores a soft-deleted server."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Make it a stopped server, which the host then starts. Raises `QuotaExceeded`."""
        quotas.take(uow, uow.conf, instance.project_id, _quota_of(instance), instance.user_id)
        instance.vm_state, instance.soft_deleted_at = states.STOPPED, None
        return payload


def _quota_of(instance: Instance) -> dict[str, int]:
    cores, ram = instance.vcpus + instance.extra_vcpus, instance.memory_mb + instance.extra_memory_mb
    return {"instances": 1, "cores": cores, "ram": ram}
