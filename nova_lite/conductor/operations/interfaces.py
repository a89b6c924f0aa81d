"""Attaching an interface to a server and detaching one: the port is a row before its host is told, and as long as the
host may have it."""

from __future__ import annotations

from typing import Any

import msgspec

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine import network_calls
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.conductor.engine.network_calls import PORT_ID
from nova_lite.db import networks, pending_attaches
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.models import Instance
from nova_lite.network.driver import load_backend
from nova_lite.objects import VIF, NetworkRequest
from nova_lite.operations import Step

#: In the payload of a request: the interface that another service has made for it.
MADE = "made"

#: What a port is while its host is at it.
ATTACHING, DETACHING = "attaching", "detaching"


class AttachInterfaceHandler(OperationHandler):
    """Until its host has it, or has nothing of it any more, the port keeps its address."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """``payload``: ``request``, a `NetworkRequest`. Raises a 400 for what there is not, or is in use."""
        if payload.get(MADE):
            key = str(context.request_id)
            pending = [each for each in pending_attaches.of(uow, instance.uuid) if each.request_id == key]
            if not pending or pending[0].until <= uow.now:  # it is being taken back
                raise exceptions.NetworkServiceUnavailable()
            vif = _record(uow, instance, msgspec.convert(payload[MADE], VIF))
            network_calls.settled(uow, instance, key)
        else:
            request = msgspec.convert(payload["request"], NetworkRequest)
            vif = load_backend(uow.conf).attach(networks.Store(uow), context, instance.uuid, request)
        _set_state(uow, instance, vif.id, ATTACHING)
        return {PORT_ID: vif.id}

    def on_step_done(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        super().on_step_done(uow, instance, step)
        if step.name == operations.PERFORM:
            _set_state(uow, instance, _port_of(uow, instance, ATTACHING), None)

    def on_failed(self, uow: UnitOfWork, instance: Instance) -> None:
        if not networks.Store(uow).recorded(instance.uuid):
            networks.Store(uow).remove_port(instance.uuid, _port_of(uow, instance, ATTACHING))


class DetachInterfaceHandler(OperationHandler):
    """Where its host could not, the port is what it was."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """``payload``: ``port_id``. Raises `PortNotFound` unless it is the server's."""
        port_id = str(payload[PORT_ID])
        if port_id not in (vif.id for vif in _vifs(uow, instance)):
            raise exceptions.PortNotFound(port_id=port_id[:64], instance_id=instance.uuid)
        _set_state(uow, instance, port_id, DETACHING)
        return {PORT_ID: port_id}

    def on_step_done(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        super().on_step_done(uow, instance, step)
        if step.name == operations.PERFORM and not networks.Store(uow).recorded(instance.uuid):
            networks.Store(uow).remove_port(instance.uuid, _port_of(uow, instance, DETACHING))

    def on_failed(self, uow: UnitOfWork, instance: Instance) -> None:
        _set_state(uow, instance, _port_of(uow, instance, DETACHING), None)


def _vifs(uow: UnitOfWork, instance: Instance) -> list[VIF]:
    store = networks.Store(uow)
    return store.recorded(instance.uuid) or store.vifs(instance.uuid)


def _record(uow: UnitOfWork, instance: Instance, vif: VIF) -> VIF:
    """The last one, as it is the newest."""
    others = [each for each in _vifs(uow, instance) if each.id != vif.id]
    vif.position = 1 + max((each.position for each in others), default=-1)
    networks.Store(uow).record(instance.uuid, [*others, vif])
    return vif


def _set_state(uow: UnitOfWork, instance: Instance, port_id: str, state: str | None) -> None:
    vifs = networks.Store(uow).recorded(instance.uuid)
    if not vifs:
        networks.set_port_state(uow, instance.uuid, port_id, state)
        return
    for vif in vifs:
        if vif.id == port_id:
            vif.state = state
    networks.Store(uow).record(instance.uuid, vifs)


def _port_of(uow: UnitOfWork, instance: Instance, state: str) -> str:
    """The one that the action is about: no other can be in this state, as only one action is. "" if a delete has taken
    it already."""
    return next((vif.id for vif in _vifs(uow, instance) if vif.state == state), "")
