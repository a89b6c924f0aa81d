"""Accepting an evacuation: the instance leaves a host that is forced down, and is built on another one.

By ``forced_down`` the operator says that nothing runs on that host; it may not register. At acceptance the instance
leaves it and gets a new generation, so that whatever the host still has is destroyed before it serves again.
"""

from __future__ import annotations

from typing import Any

from nova_lite import exception, states
from nova_lite.conductor.db import claims, hosts
from nova_lite.conductor.db.engine import UnitOfWork
from nova_lite.conductor.db.models import Instance
from nova_lite.conductor.operations.own import Own
from nova_lite.context import RequestContext


class Evacuate(Own):
    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """``payload``: ``host`` (where to; None: the scheduler chooses), whether it is ``forced`` (past the filters),
        ``admin_password``, and whether the server is to be ``stopped`` in the end although it was not before."""
        target, origin = payload.get("host"), instance.host
        _check(uow, instance, target)
        claims.release(uow, instance.uuid)
        instance.host = instance.node = None
        instance.generation = claims.next_generation(instance)
        instance.request = {"admin_password": payload.get("admin_password")}
        if target is not None:  # in the words of a request for a new server
            wanted = {"forced_host": target} if payload.get("forced") else {"requested_destination": {"host": target}}
            instance.request = {**instance.request, **wanted}
        return {
            "excluded": [] if origin is None else [origin],
            "stop": bool(payload.get("stopped")) or instance.vm_state == states.STOPPED,
        }


def _check(uow: UnitOfWork, instance: Instance, target: str | None) -> None:
    """Raises a 4xx. An instance on no host lost it in a failed evacuation, which may be repeated."""
    if target is not None and not hosts.exists(uow, target):
        raise exception.ComputeHostNotFound(host=target)
    if instance.host is None:
        if instance.task_state is not None:
            raise exception.InstanceInvalidState(
                method="evacuate", instance_id=instance.uuid, attr="task_state", state=instance.task_state
            )
    elif target == instance.host:
        raise exception.EvacuateToSameHost(host=target)
    elif not hosts.is_forced_down(uow, instance.host):
        raise exception.HostNotForcedDown(host=instance.host)
