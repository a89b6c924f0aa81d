"""Interfaces for servers that run, where another service has the ports: it makes the port before the answer names it.

It is asked between two transactions. The first writes down that it is (`pending_attaches`), the second accepts the
action or refuses it. A row that neither of them has taken away when its time is over is of an answer that was lost, or
of a conductor that died: what was made for it, if anything, is taken back then. A conductor that stood still meanwhile
may make it even later: it finds its row gone, and writes it down again.
"""

from __future__ import annotations

import datetime
import logging
import time
from typing import Any

import msgspec

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.conductor.engine import network_calls
from nova_lite.conductor.engine.context import check
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.conductor.operations import interfaces
from nova_lite.db import actions, instances, pending_attaches
from nova_lite.db.engine import UnitOfWork
from nova_lite.network.driver import NetworkCall, NetworkMethod
from nova_lite.objects import ActionCommand, NetworkRequest

LOG = logging.getLogger(__name__)

KIND = operations.ATTACH_INTERFACE.kind

#: Seconds until what could not be taken back is tried again.
TRY_AGAIN = 10.0


class InterfaceAttacher:
    def __init__(self, engine: ActionEngine) -> None:
        self.engine = engine
        self.db = engine.db
        self.network = engine.network

    def accept(self, context: RequestContext, instance_uuid: str, payload: dict[str, Any]) -> ActionCommand:
        """Raises what RESOLVE and ATTACH raise, and what the action is refused with."""
        request = msgspec.convert(payload["request"], NetworkRequest)
        if self.db.read(_was_accepted, context, instance_uuid):
            return self.db.write(self.engine.accept_in, context, instance_uuid, KIND, payload)
        asked = NetworkCall(method=NetworkMethod.RESOLVE, context=context, networks=[request])
        (request,) = self.network.call(asked).requests
        begun = time.monotonic()
        call = self.db.write(self._plan, context, instance_uuid, request)
        call.started_at = begun
        try:
            made = msgspec.to_builtins(self.network.call(call))
        except exceptions.NetworkServiceUnavailable:  # whether it was done shows later
            self.db.write(self._remember, call, self.engine.conf.network.call_timeout)
            raise
        except exceptions.NovaLiteException:
            self.take_back(instance_uuid, call.key)
            raise
        try:
            payload = {**payload, interfaces.MADE: made}
            return self.db.write(self.engine.accept_in, context, instance_uuid, KIND, payload)
        except exceptions.NovaLiteException:
            self.db.write(self._remember, call, 0.0)
            self.take_back(instance_uuid, call.key)
            raise

    def _plan(
        self, uow: UnitOfWork, context: RequestContext, instance_uuid: str, request: NetworkRequest
    ) -> NetworkCall:
        instance = instances.get_row(uow, context, instance_uuid, lock=True)
        check(context, instance, operations.ATTACH_INTERFACE)
        seconds = uow.conf.network.call_timeout
        key = str(context.request_id)
        for each in pending_attaches.of(uow, instance_uuid):
            if each.request_id == key and each.until <= uow.now:  # what its first try has made is being taken back
                raise exceptions.NetworkServiceUnavailable()
            if request.port_id and each.port_id == request.port_id and each.request_id != key:
                raise exceptions.PortInUse(port_id=request.port_id)  # it is let go, as soon as that may be
        pending_attaches.add(uow, instance_uuid, key, request.port_id, seconds)
        instance.network_call_until = uow.now + datetime.timedelta(seconds=seconds)
        call = network_calls.plan(uow, self.network, instance, context, NetworkMethod.ATTACH)
        call.networks, call.security_groups, call.key = [request], [], key
        return call

    def _remember(self, uow: UnitOfWork, call: NetworkCall, seconds: float) -> None:
        """Unless it is known or was accepted: who has looked for it when its time was over found it not made yet."""
        instances.lock(uow, call.instance_uuid)
        if any(each.request_id == call.key for each in pending_attaches.of(uow, call.instance_uuid)):
            return
        if actions.find_by_request(uow, call.key, KIND, call.instance_uuid) is None:
            assert isinstance(call.networks, list)
            (request,) = call.networks
            pending_attaches.add(uow, call.instance_uuid, call.key, request.port_id, seconds)

    # --- what came of nothing

    def due(self) -> list[tuple[str, str]]:
        """Instance and request of what is to be taken back now."""
        return self.db.read(pending_attaches.overdue) if self.network.has_remote_ports else []

    def take_back(self, instance_uuid: str, key: str) -> None:
        """If that cannot be, it is due again."""
        call = self.db.write(self._plan_back, instance_uuid, key)
        if call is None:
            return
        try:
            self.network.call(call)
        except exceptions.NovaLiteException as error:
            LOG.warning("What was made for %s is left at the network service: %s", instance_uuid, error.message)
            self.db.write(pending_attaches.put_off, instance_uuid, key, TRY_AGAIN)
            return
        self.db.write(_settled, instance_uuid, key)

    def _plan_back(self, uow: UnitOfWork, instance_uuid: str, key: str) -> NetworkCall | None:
        instance = instances.lock(uow, instance_uuid)
        found = [each for each in pending_attaches.of(uow, instance_uuid) if each.request_id == key]
        if instance is None or not found:
            pending_attaches.drop(uow, instance_uuid, key)
            return None
        brought = [NetworkRequest(port_id=each.port_id) for each in found if each.port_id]
        # From now on the action is not accepted any more: see `interfaces.AttachInterfaceHandler`.
        pending_attaches.put_off(uow, instance_uuid, key, 0.0)
        return NetworkCall(
            method=NetworkMethod.DETACH,
            context=get_admin_context(),
            instance_uuid=instance_uuid,
            networks=brought,
            key=key,
        )


def _was_accepted(uow: UnitOfWork, context: RequestContext, instance_uuid: str) -> bool:
    """Raises what the action would be refused with now, so that nobody else is asked in vain."""
    if actions.find_by_request(uow, context.request_id, KIND, instance_uuid) is not None:
        return True
    check(context, instances.get_row(uow, context, instance_uuid), operations.ATTACH_INTERFACE)
    return False


def _settled(uow: UnitOfWork, instance_uuid: str, key: str) -> None:
    instance = instances.lock(uow, instance_uuid)
    if instance is not None:
        network_calls.settled(uow, instance, key)
