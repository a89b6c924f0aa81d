"""Attaches interfaces to running servers if another service has the ports.

The service makes the port before the request is accepted. It is called between two transactions. The first one writes a
row (`pending_attaches`). The second one accepts or refuses the action, and deletes the row. If the reply is lost or the
conductor dies, the row expires. Then the reconciler deletes the port that may have been made for it. A conductor that
stood still meanwhile may make the port even later. It finds its row gone, and writes it again.
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
from nova_lite.db.core import actions
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.network import pending_attaches
from nova_lite.db.servers import instances
from nova_lite.network.driver import NetworkCall, NetworkMethod
from nova_lite.objects import ActionCommand, NetworkRequest
from nova_lite.objects.pci import NORMAL

LOG = logging.getLogger(__name__)

KIND = operations.ATTACH_INTERFACE.kind

#: Seconds until another try to delete a port.
RETRY_DELAY = 10.0


class InterfaceAttacher:
    """Accepts attaches whose ports another service makes, and deletes the ports of attaches that were not accepted."""

    def __init__(self, engine: ActionEngine) -> None:
        self.engine = engine
        self.db = engine.db
        self.network = engine.network

    def accept(self, context: RequestContext, instance_uuid: str, payload: dict[str, Any]) -> ActionCommand:
        """Let the service make the port, and accept the action.

        Raises the errors of RESOLVE and ATTACH, or of the refused action.
        """
        request = msgspec.convert(payload["request"], NetworkRequest)
        if self.db.read(_was_accepted, context, instance_uuid):
            return self.db.write(self.engine.accept_in, context, instance_uuid, KIND, payload)
        resolve = NetworkCall(method=NetworkMethod.RESOLVE, context=context, networks=[request])
        (request,) = self.network.call(resolve).requests
        if request.vnic_type != NORMAL:
            raise exceptions.InvalidInput(
                reason=f"port {request.port_id} has binding:vnic_type {request.vnic_type}: a server of Neutron's ports "
                "gets it when it is created, or not at all"
            )
        begun = time.monotonic()
        call = self.db.write(self._plan, context, instance_uuid, request)
        call.started_at = begun
        try:
            made = msgspec.to_builtins(self.network.call(call))
        except exceptions.NetworkServiceUnavailable:  # the port may exist nevertheless
            self.db.write(self._remember, call, self.engine.conf.network.call_timeout)
            raise
        except exceptions.NovaLiteException:
            self.delete_port(instance_uuid, call.key)
            raise
        try:
            payload = {**payload, interfaces.MADE: made}
            return self.db.write(self.engine.accept_in, context, instance_uuid, KIND, payload)
        except exceptions.NovaLiteException:
            self.db.write(self._remember, call, 0.0)
            self.delete_port(instance_uuid, call.key)
            raise

    def _plan(
        self, uow: UnitOfWork, context: RequestContext, instance_uuid: str, request: NetworkRequest
    ) -> NetworkCall:
        instance = instances.get_row(uow, context, instance_uuid, lock=True)
        check(context, instance, operations.ATTACH_INTERFACE)
        seconds = uow.conf.network.call_timeout
        key = str(context.request_id)
        for row in pending_attaches.of(uow, instance_uuid):
            if row.request_id == key and row.until <= uow.now:  # the port of its first try is being deleted
                raise exceptions.NetworkServiceUnavailable()
            if request.port_id and row.port_id == request.port_id and row.request_id != key:
                raise exceptions.PortInUse(port_id=request.port_id)  # until the other request is settled
        pending_attaches.add(uow, instance_uuid, key, request.port_id, seconds)
        instance.network_call_until = uow.now + datetime.timedelta(seconds=seconds)
        call = network_calls.plan(uow, self.network, instance, context, NetworkMethod.ATTACH)
        call.networks, call.security_groups, call.key = [request], [], key
        return call

    def _remember(self, uow: UnitOfWork, call: NetworkCall, seconds: float) -> None:
        """Write the row again, unless it exists or the action was accepted.

        The reconciler may have deleted the row because the port did not exist yet.
        """
        instances.lock(uow, call.instance_uuid)
        if any(row.request_id == call.key for row in pending_attaches.of(uow, call.instance_uuid)):
            return
        if actions.find_by_request(uow, call.key, KIND, call.instance_uuid) is None:
            assert isinstance(call.networks, list)
            (request,) = call.networks
            pending_attaches.add(uow, call.instance_uuid, call.key, request.port_id, seconds)

    # --- attaches that were not accepted

    def due(self) -> list[tuple[str, str]]:
        """Return instance and request of each expired attach."""
        return self.db.read(pending_attaches.overdue) if self.network.has_remote_ports else []

    def delete_port(self, instance_uuid: str, key: str) -> None:
        """Delete the port of an attach that was not accepted. If the service fails, the attach is due again."""
        call = self.db.write(self._plan_back, instance_uuid, key)
        if call is None:
            return
        try:
            self.network.call(call)
        except exceptions.NovaLiteException as error:
            LOG.warning("A port of %s is left at the network service: %s", instance_uuid, error.message)
            self.db.write(pending_attaches.put_off, instance_uuid, key, RETRY_DELAY)
            return
        self.db.write(_settled, instance_uuid, key)

    def _plan_back(self, uow: UnitOfWork, instance_uuid: str, key: str) -> NetworkCall | None:
        instance = instances.lock(uow, instance_uuid)
        rows = [row for row in pending_attaches.of(uow, instance_uuid) if row.request_id == key]
        if instance is None or not rows:
            pending_attaches.drop(uow, instance_uuid, key)
            return None
        user_ports = [NetworkRequest(port_id=row.port_id) for row in rows if row.port_id]
        # The action is not accepted any more: see `interfaces.AttachInterfaceHandler`.
        pending_attaches.put_off(uow, instance_uuid, key, 0.0)
        return NetworkCall(
            method=NetworkMethod.DETACH,
            context=get_admin_context(),
            instance_uuid=instance_uuid,
            networks=user_ports,
            key=key,
        )


def _was_accepted(uow: UnitOfWork, context: RequestContext, instance_uuid: str) -> bool:
    """Check whether the action exists.

    Otherwise raise the error if it would be refused, before any service is called.
    """
    if actions.find_by_request(uow, context.request_id, KIND, instance_uuid) is not None:
        return True
    check(context, instances.get_row(uow, context, instance_uuid), operations.ATTACH_INTERFACE)
    return False


def _settled(uow: UnitOfWork, instance_uuid: str, key: str) -> None:
    instance = instances.lock(uow, instance_uuid)
    if instance is not None:
        network_calls.settled(uow, instance, key)
