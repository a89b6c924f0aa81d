"""Delete: what changes when the hosts have confirmed, or are down."""

from __future__ import annotations

from nova_lite import states
from nova_lite.conductor.db import quotas, server_groups
from nova_lite.conductor.db.engine import UnitOfWork
from nova_lite.conductor.db.models import Instance
from nova_lite.conductor.operations.own import Own
from nova_lite.operations import Step


class Delete(Own):
    def record(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        """Quota is free again; claim and addresses are given back by the steps that follow."""
        if step.becomes is None or instance.deleted:
            return
        instance.vm_state = step.becomes
        instance.task_state = None
        instance.power_state = states.PowerState.NOSTATE
        instance.deleted = True
        instance.terminated_at = instance.updated_at = uow.now
        instance.request = {}
        taken = {"instances": 1, "cores": instance.vcpus, "ram": instance.memory_mb}
        quotas.give_back(uow, instance.project_id, taken)
        server_groups.leave(uow, instance.uuid)
