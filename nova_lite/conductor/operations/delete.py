"""Delete: what changes when the hosts have confirmed, or are down; and what a soft delete leaves to be restored."""

from __future__ import annotations

from typing import Any

from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.db import quotas, server_groups, server_migrations
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.models import Instance
from nova_lite.operations import Step, states


class DeleteHandler(OperationHandler):
    """``payload``: ``soft``, if it is to be one."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """What is soft-deleted stays so, and is reclaimed when it was to be. The image of a shelved instance goes with
        it."""
        if payload.get("soft") and instance.vm_state == states.SOFT_DELETED:
            return None
        shelved = instance.shelved_image
        return payload if shelved is None else {**payload, "image_id": shelved["id"]}

    def on_step_done(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        """Quota is free again, once; claim and addresses are given back by the steps that follow, if any do."""
        if step.becomes is None or instance.deleted:
            return
        if instance.soft_deleted_at is None:
            quotas.give_back(uow, instance.project_id, _taken(instance))
        if step.becomes != states.SOFT_DELETED:
            self._leave_others(uow, instance)
        instance.vm_state, instance.task_state = step.becomes, None
        instance.updated_at = uow.now
        if step.becomes == states.SOFT_DELETED:
            instance.soft_deleted_at = instance.soft_deleted_at or uow.now
            return
        instance.power_state = states.PowerState.NOSTATE
        instance.deleted = True
        instance.terminated_at = uow.now
        instance.request = {}
        instance.shelved_image, instance.shelved_at = None, None
        instance.extra_vcpus = instance.extra_memory_mb = 0

    @staticmethod
    def _leave_others(uow: UnitOfWork, instance: Instance) -> None:
        if instance.scheduler_hints.get("group"):
            server_groups.leave(uow, instance.uuid)
        if instance.last_generation > 1:  # it was claimed for more than once; a move that was not has ended by now
            with uow.session.no_autoflush:  # one update of the instance says it all
                server_migrations.end_with_instance(uow, instance.uuid)


class RestoreHandler(OperationHandler):
    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """From here on it is one that is stopped, and is being started; raises `QuotaExceeded`."""
        quotas.take(uow, uow.conf, instance.project_id, _taken(instance), instance.user_id)
        instance.vm_state, instance.soft_deleted_at = states.STOPPED, None
        return payload


def _taken(instance: Instance) -> dict[str, int]:
    cores, ram = instance.vcpus + instance.extra_vcpus, instance.memory_mb + instance.extra_memory_mb
    return {"instances": 1, "cores": cores, "ram": ram}
