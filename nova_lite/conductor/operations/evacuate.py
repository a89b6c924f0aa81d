"""Accepting an evacuation: the instance leaves a host that is forced down, and is built on another one.

By ``forced_down`` the operator says that nothing runs on that host; it may not register. At acceptance the instance
leaves it and gets a new generation, so that whatever the host still has is destroyed before it serves again.
"""

from __future__ import annotations

from typing import Any

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.conductor.operations.rebuild import REIMAGE
from nova_lite.conductor.operations.resize import give_back_extra
from nova_lite.db import actions, block_devices, claims, hosts, server_migrations
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.models import Instance, InstanceAction
from nova_lite.operations import HostStep, states


class EvacuateHandler(OperationHandler):
    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """``payload``: ``host`` (where to; None: the scheduler chooses), whether it is ``forced`` (past the filters),
        ``admin_password``, and whether the server is to be ``stopped`` in the end although it was not before."""
        target, origin = payload.get("host"), instance.host
        _check(uow, instance, target)
        stopped = _end_move(uow, instance) == states.STOPPED
        unfinished = _volume_to_make(uow, instance)
        claims.release(uow, instance.uuid)
        block_devices.all_attached(uow, instance)
        claims.leave(instance)
        instance.generation = claims.next_generation(instance)
        instance.request = {"admin_password": payload.get("admin_password")}
        if target is not None:  # in the words of a request for a new server
            wanted = {"forced_host": target} if payload.get("forced") else {"requested_destination": {"host": target}}
            instance.request = {**instance.request, **wanted}
        return {
            "excluded": [] if origin is None else [origin],
            "stop": bool(payload.get("stopped")) or stopped,
            **unfinished,
        }


def _volume_to_make(uow: UnitOfWork, instance: Instance) -> dict[str, Any]:
    """What its host has not said that it has done: to make a volume of an image, for a rebuild."""
    for action in actions.all_open(uow, instance.uuid):
        if REIMAGE in action.payload and action.step in (operations.SCHEDULE, operations.BUILD, operations.COMPENSATE):
            return {REIMAGE: action.payload[REIMAGE]}
    return {}


def _end_move(uow: UnitOfWork, instance: Instance) -> str:
    """A resize or migration from its host is over; what the server was before that. Raises a 409 while the other end
    may have it, or has it: then it is not lost."""
    row = server_migrations.current(uow, instance.uuid)
    elsewhere = next(
        (each for each in actions.all_open(uow, instance.uuid) if _is_at_another_host(each, instance)), None
    )
    attr, state = ("vm_state", instance.vm_state) if elsewhere is None else ("unfinished action", elsewhere.action)
    if elsewhere is not None or (instance.vm_state == states.RESIZED and instance.task_state is None):
        raise exceptions.InstanceInvalidState(method="evacuate", instance_id=instance.uuid, attr=attr, state=state)
    if row is None:
        return instance.vm_state
    server_migrations.turn(uow, row, server_migrations.ERROR)
    give_back_extra(uow, instance)
    return row.vm_state


def _is_at_another_host(action: InstanceAction, instance: Instance) -> bool:
    step = operations.get(action.action, action.payload).step(action.step)
    return isinstance(step, HostStep) and action.host != instance.host


def _check(uow: UnitOfWork, instance: Instance, target: str | None) -> None:
    """Raises a 4xx. An instance on no host lost it in a failed evacuation, which may be repeated."""
    if target is not None and not hosts.exists(uow, target):
        raise exceptions.ComputeHostNotFound(host=target)
    if instance.host is None:
        if instance.task_state is not None:
            raise exceptions.InstanceInvalidState(
                method="evacuate", instance_id=instance.uuid, attr="task_state", state=instance.task_state
            )
    elif target == instance.host:
        raise exceptions.EvacuateToSameHost(host=target)
    elif not hosts.is_forced_down(uow, instance.host):
        raise exceptions.HostNotForcedDown(host=instance.host)
