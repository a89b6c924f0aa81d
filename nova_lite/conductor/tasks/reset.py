"""Setting an instance's state by hand, when an admin knows better than the rows."""

from __future__ import annotations

from oslo_config import cfg

from nova_lite import exception
from nova_lite.conductor.db import actions, instances
from nova_lite.conductor.db.engine import UnitOfWork
from nova_lite.conductor.tasks import end
from nova_lite.context import RequestContext
from nova_lite.states import ActionKind

RESET_STATE = "reset_state"


def reset_state(
    uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, instance_uuid: str, vm_state: str
) -> None:
    """The instance is ``vm_state`` and has no task; its open stop, start or reboot is closed as superseded, though what
    its host has begun of it is not called back.

    Raises `InstanceInvalidState` while a delete is open, or anything that is scheduled, built or compensated: those
    hold claims, and only their own end gives them back.
    """
    instance = instances.get_row(uow, context, instance_uuid, lock=True)
    if actions.find_by_request(uow, context.request_id, RESET_STATE, instance_uuid) is not None:
        return
    underway = actions.find_open(uow, instance_uuid)
    if underway is not None and (underway.action == ActionKind.DELETE or underway.step != actions.PERFORM):
        raise exception.InstanceInvalidState(
            method=RESET_STATE, instance_id=instance_uuid, attr="unfinished action", state=underway.action
        )
    end.supersede(uow, instance, RESET_STATE)
    instance.vm_state, instance.task_state = vm_state, None
    actions.record_done(uow, conf, context, instance, RESET_STATE)
