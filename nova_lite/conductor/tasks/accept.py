"""Accepting an action on an existing instance: does its state allow it? Then task state and action row, at once."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

from nova_lite import exception, states
from nova_lite.conductor.db import actions, hosts, instances
from nova_lite.conductor.db.engine import UnitOfWork
from nova_lite.conductor.db.models import Instance, InstanceAction
from nova_lite.conductor.tasks import end, evacuate
from nova_lite.context import RequestContext
from nova_lite.network.driver import NetworkBackend
from nova_lite.objects import ActionTicket
from nova_lite.states import ActionKind, Transition


def accept_action(
    uow: UnitOfWork,
    conf: cfg.ConfigOpts,
    network_backend: NetworkBackend,
    context: RequestContext,
    instance_uuid: str,
    kind: str,
    payload: dict[str, Any],
) -> ActionTicket:
    """Write the action and return the ticket for its host, or raise 404 or 409. A repeated request gets its ticket
    again."""
    instance = instances.get_row(uow, context, instance_uuid, deleted=True, lock=True)
    repeated = actions.find_by_request(uow, context.request_id, kind, instance_uuid)
    if repeated is not None:
        return ticket(repeated, instance)
    if instance.deleted:
        raise exception.InstanceNotFound(instance_id=instance_uuid)
    if kind == ActionKind.DELETE and instance.task_state == states.DELETING:
        underway = actions.find_open(uow, instance_uuid, ActionKind.DELETE)
        if underway is not None:
            return ticket(underway, instance)
    transition = transition_for(kind, payload)
    _check(context, instance, transition)
    if kind == ActionKind.DELETE:
        return _accept_delete(uow, conf, network_backend, context, instance)
    if kind == ActionKind.EVACUATE:
        return ticket(evacuate.accept(uow, conf, context, instance, payload), instance)
    if instance.host is None:
        raise exception.InstanceNotReady(instance_id=instance_uuid)
    end.supersede(uow, instance, kind)
    instance.task_state = transition.task_state
    instance.updated_at = uow.now
    action = actions.open_action(uow, conf, context, instance, kind, actions.PERFORM, payload)
    uow.session.flush()
    actions.start_event(uow, action, f"compute_{kind}_instance", instance.host)
    return ticket(action, instance)


def transition_for(kind: str, payload: dict[str, Any]) -> Transition:
    if kind == ActionKind.REBOOT and payload.get("reboot_type") == "HARD":
        return states.HARD_REBOOT
    try:
        return states.TRANSITIONS[kind]
    except KeyError:
        raise exception.InvalidInput(reason=f"there is no action {kind!r}") from None


def _check(context: RequestContext, instance: Instance, transition: Transition) -> None:
    if instance.locked and not context.is_admin:
        raise exception.InstanceIsLocked(instance_id=instance.uuid)
    allowed = transition.vm_states
    if allowed is not None and (instance.vm_state not in allowed or instance.launched_at is None):
        raise _wrong_state(instance, transition, "vm_state", instance.vm_state)
    during = transition.during_tasks
    if during is not None and instance.task_state is not None and instance.task_state not in during:
        raise _wrong_state(instance, transition, "task_state", instance.task_state)


def _wrong_state(instance: Instance, transition: Transition, attr: str, state: str) -> exception.InstanceInvalidState:
    return exception.InstanceInvalidState(method=transition.method, instance_id=instance.uuid, attr=attr, state=state)


def _accept_delete(
    uow: UnitOfWork,
    conf: cfg.ConfigOpts,
    network_backend: NetworkBackend,
    context: RequestContext,
    instance: Instance,
) -> ActionTicket:
    """Valid in every state. Without a host it is done at once; with one that is down it is done for the owner, and the
    host cleans up when it is back."""
    end.supersede(uow, instance, ActionKind.DELETE)
    action = actions.open_action(uow, conf, context, instance, ActionKind.DELETE, actions.PERFORM, {})
    uow.session.flush()
    if instance.host is None:
        end.deleted(uow, network_backend, instance, action)
        return ticket(action, instance)
    actions.start_event(uow, action, "compute_terminate_instance", instance.host)
    instance.task_state = states.DELETING
    instance.updated_at = uow.now
    if not hosts.is_up(uow, instance.host):
        delete_without_host(uow, conf, instance, action)
    return ticket(action, instance)


def delete_without_host(uow: UnitOfWork, conf: cfg.ConfigOpts, instance: Instance, action: InstanceAction) -> None:
    """The host is away: the instance is DELETED now, and the action stays open for the cleanup."""
    end.mark_deleted(uow, instance)
    end.postpone_cleanup(uow, conf, action, actions.CLEANUP)


def ticket(action: InstanceAction, instance: Instance) -> ActionTicket:
    """The order to the host, as often as it is needed; without a host once the action is finished."""
    return ActionTicket(
        action_id=action.id,
        action=action.action,
        instance=instances.to_object(instance),
        generation=instance.generation,
        host=action.host if action.finish_time is None else None,
        request_id=action.request_id,
        payload=action.payload,
    )
