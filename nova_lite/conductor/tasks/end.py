"""How instances end up: built, failed, deleted. Each function settles all rows of one instance in one transaction."""

from __future__ import annotations

import datetime

import msgspec
from oslo_config import cfg

from nova_lite import states
from nova_lite.conductor.db import actions, claims, networks, server_groups
from nova_lite.conductor.db.engine import UnitOfWork
from nova_lite.conductor.db.models import Instance, InstanceAction
from nova_lite.conductor.tasks import create
from nova_lite.network.driver import NetworkBackend
from nova_lite.objects import Fault
from nova_lite.states import ActionKind

#: Characters of a fault's message: a column and clients hold no more.
FAULT_LENGTH = 255


def record_fault(uow: UnitOfWork, instance: Instance, message: str, details: str = "", code: int = 500) -> None:
    short = shortened(message)
    if short != message:
        details = f"{message}\n{details}" if details else message
    fault = Fault(code=code, message=short, details=details, created_at=uow.now)
    instance.fault = msgspec.to_builtins(fault)


def shortened(message: str) -> str:
    """At most `FAULT_LENGTH` characters of ``message``, cut after a whole clause or, failing that, a word."""
    if len(message) <= FAULT_LENGTH:
        return message
    room = message[: FAULT_LENGTH - 3]
    for end in (", ", " "):
        kept, found, _ = room.rpartition(end)
        if found and len(kept) > FAULT_LENGTH // 2:
            return kept + (", …" if end == ", " else " …")
    return room + "…"


def built(uow: UnitOfWork, conf: cfg.ConfigOpts, instance: Instance, action: InstanceAction, power_state: int) -> None:
    """The guest runs; what was evacuated to be stopped in the end is now to be stopped by its new host."""
    instance.vm_state = states.ACTIVE
    instance.task_state = None
    instance.fault = None
    instance.power_state = power_state
    instance.launched_at = instance.updated_at = uow.now
    instance.progress = 100
    instance.request = {}
    if action.payload.get("stop"):
        instance.task_state = states.POWERING_OFF
        action.step = actions.PERFORM
        action.lease_owner = None
        action.lease_expires_at = uow.now
        action.deadline = uow.now + datetime.timedelta(seconds=conf.conductor.action_deadline)
        actions.finish_events(uow, action)
        actions.start_event(uow, action, "compute_stop_instance", instance.host)
    else:
        actions.finish(uow, action)


def failed(
    uow: UnitOfWork,
    network_backend: NetworkBackend,
    instance: Instance,
    action: InstanceAction,
    message: str,
    details: str = "",
) -> None:
    """A build has failed for good and nothing of it is left on any host: ERROR, and everything is given back."""
    set_error(uow, instance, message, details)
    not_built(uow, network_backend, instance, action, message, details)


def not_built(
    uow: UnitOfWork,
    network_backend: NetworkBackend,
    instance: Instance,
    action: InstanceAction,
    message: str,
    details: str = "",
) -> None:
    """No host has anything of it. What was evacuated keeps its addresses, and may be tried again."""
    if action.action == ActionKind.CREATE:
        release(uow, network_backend, instance)
    else:
        claims.release(uow, instance.uuid)
    instance.host = instance.node = None
    instance.request = {}
    actions.finish(uow, action, message, details)


def set_error(uow: UnitOfWork, instance: Instance, message: str, details: str = "") -> None:
    instance.vm_state = states.ERROR
    instance.task_state = None
    instance.updated_at = uow.now
    record_fault(uow, instance, message, details)


def release(uow: UnitOfWork, network_backend: NetworkBackend, instance: Instance) -> None:
    """Give back claim and addresses; right only once no host has anything of the instance."""
    claims.release(uow, instance.uuid)
    network_backend.deallocate(networks.Store(uow), instance.uuid)


def mark_deleted(uow: UnitOfWork, instance: Instance) -> None:
    """Gone for its owner; quota is free again. Claim and addresses stay until its host has confirmed."""
    if instance.deleted:
        return
    instance.vm_state = states.DELETED
    instance.task_state = None
    instance.power_state = states.PowerState.NOSTATE
    instance.deleted = True
    instance.terminated_at = instance.updated_at = uow.now
    instance.request = {}
    create.give_back_quota(uow, instance)
    server_groups.leave(uow, instance.uuid)


def deleted(uow: UnitOfWork, network_backend: NetworkBackend, instance: Instance, action: InstanceAction) -> None:
    """Gone for its owner and from its host."""
    mark_deleted(uow, instance)
    release(uow, network_backend, instance)
    actions.finish(uow, action)


def supersede(uow: UnitOfWork, instance: Instance, by: str) -> None:
    """Close the open action of an instance because another one takes its place."""
    while (action := actions.find_open(uow, instance.uuid)) is not None:
        actions.finish(uow, action, f"superseded by {by}")
        uow.session.flush()


def postpone_cleanup(uow: UnitOfWork, conf: cfg.ConfigOpts, action: InstanceAction, step: str) -> None:
    """What is left to do on a host that does not answer has no deadline: it is done when the host is back."""
    action.step = step
    action.deadline = uow.now + datetime.timedelta(days=3650)
