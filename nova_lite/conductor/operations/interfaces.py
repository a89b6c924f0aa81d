"""Attach and detach interfaces.

The port has a row before the command is sent, and as long as the host may have it. So no other server gets its address
while a report is missing. A host that has begun and does not report has to undo the work first. A delete supersedes
this operation and releases the port. Nothing is lost: a failed attachment removes the port, a failed detachment keeps
it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine import network_calls
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.conductor.engine.network_calls import PORT_ID
from nova_lite.conductor.operations import checks
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.db.network import builtin_networks, pending_attaches, port_devices, port_quota
from nova_lite.network.driver import load_backend
from nova_lite.objects import VIF, NetworkRequest
from nova_lite.operations import Step

#: Key in the payload of a request: the interface that another service has made for it.
MADE = "made"

#: States of a port while its host attaches or detaches it.
ATTACHING, DETACHING = "attaching", "detaching"


class AttachInterfaceHandler(OperationHandler):
    """Attaches an interface. The port keeps its address until the host has attached it or has undone that."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Write the port. Raises a 400 if the network or port does not exist or is in use, or `PortLimitExceeded`.

        ``payload``: ``request``, a `NetworkRequest`.
        """
        checks.require_free_port(instance)
        if payload.get(MADE):
            key = str(context.request_id)
            pending = [row for row in pending_attaches.of(uow, instance.uuid) if row.request_id == key]
            if not pending or pending[0].until <= uow.now:  # the port is being deleted
                raise exceptions.NetworkServiceUnavailable()
            vif = _record(uow, instance, msgspec.convert(payload[MADE], VIF))
            network_calls.settled(uow, instance, key)
        else:
            request = msgspec.convert(payload["request"], NetworkRequest)
            vif = load_backend(uow.conf).attach(builtin_networks.Store(uow), context, instance.uuid, request)
            if not request.port_id:
                port_quota.check_attached(uow, uow.conf, instance.project_id)
            port_devices.claim(uow, instance, vif)
        _set_state(uow, instance, vif.id, ATTACHING)
        return {PORT_ID: vif.id}

    def on_step_done(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        super().on_step_done(uow, instance, step)
        if step.name == operations.PERFORM:
            _set_state(uow, instance, _port_of(uow, instance, ATTACHING), None)

    def on_failed(self, uow: UnitOfWork, instance: Instance) -> None:
        port_id = _port_of(uow, instance, ATTACHING)
        port_devices.release(uow, instance, port_id)
        if not builtin_networks.Store(uow).recorded(instance.uuid):
            builtin_networks.Store(uow).remove_port(instance.uuid, port_id)


class DetachInterfaceHandler(OperationHandler):
    """Detaches an interface. If the host fails, the port stays attached."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Mark the port as detaching. Raises `PortNotFound` unless it is the server's.

        ``payload``: ``port_id``.
        """
        port_id = str(payload[PORT_ID])
        if port_id not in (vif.id for vif in _vifs(uow, instance)):
            raise exceptions.PortNotFound(port_id=port_id[:64], instance_id=instance.uuid)
        _set_state(uow, instance, port_id, DETACHING)
        return {PORT_ID: port_id}

    def on_step_done(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        super().on_step_done(uow, instance, step)
        if step.name == operations.PERFORM:
            port_id = _port_of(uow, instance, DETACHING)
            port_devices.release(uow, instance, port_id)
            if not builtin_networks.Store(uow).recorded(instance.uuid):
                builtin_networks.Store(uow).remove_port(instance.uuid, port_id)

    def on_failed(self, uow: UnitOfWork, instance: Instance) -> None:
        _set_state(uow, instance, _port_of(uow, instance, DETACHING), None)


def _vifs(uow: UnitOfWork, instance: Instance) -> list[VIF]:
    store = builtin_networks.Store(uow)
    return store.recorded(instance.uuid) or store.vifs(instance.uuid)


def _record(uow: UnitOfWork, instance: Instance, vif: VIF) -> VIF:
    """Store a new interface as the last one."""
    others = [other for other in _vifs(uow, instance) if other.id != vif.id]
    vif.position = 1 + max((other.position for other in others), default=-1)
    builtin_networks.Store(uow).record(instance.uuid, [*others, vif])
    return vif


def _set_state(uow: UnitOfWork, instance: Instance, port_id: str, state: str | None) -> None:
    vifs = builtin_networks.Store(uow).recorded(instance.uuid)
    if not vifs:
        builtin_networks.set_port_state(uow, instance.uuid, port_id, state)
        return
    for vif in vifs:
        if vif.id == port_id:
            vif.state = state
    builtin_networks.Store(uow).record(instance.uuid, vifs)


def _port_of(uow: UnitOfWork, instance: Instance, state: str) -> str:
    """Return the id of the action's port, which is the only one in this state, or "" if a delete has removed it."""
    return next((vif.id for vif in _vifs(uow, instance) if vif.state == state), "")
