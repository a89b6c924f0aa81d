"""Calls to a network service about an instance, made from its rows."""

from __future__ import annotations

import msgspec

from nova_lite.base.context import RequestContext
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.db.network import builtin_networks, pending_attaches
from nova_lite.network.driver import NetworkBackend, NetworkCall, NetworkMethod
from nova_lite.objects import NetworkRequest, PCIDevice

#: Key in the payload of an action on one interface.
PORT_ID = "port_id"


def plan(
    uow: UnitOfWork, network: NetworkBackend, instance: Instance, context: RequestContext, method: NetworkMethod
) -> NetworkCall:
    """Return a call with everything that the service has to know about the instance."""
    requests = [msgspec.convert(item, NetworkRequest) for item in instance.request.get("networks", [])]
    if network.has_remote_ports:
        pending = pending_attaches.of(uow, instance.uuid)
        requests += [NetworkRequest(port_id=row.port_id) for row in pending if row.port_id]
    return NetworkCall(
        method=method,
        context=context,
        instance_uuid=instance.uuid,
        networks=requests,
        vifs=network.vifs(builtin_networks.Store(uow), instance.uuid),
        project_id=instance.project_id,
        host=instance.host or "",
        zone=instance.availability_zone or "",
        security_groups=instance.request.get("security_groups", []),
        devices=msgspec.convert(instance.pci or [], list[PCIDevice]),
    )


def settled(uow: UnitOfWork, instance: Instance, key: str) -> None:
    """Forget a pending attach, because its port is recorded or deleted."""
    pending_attaches.drop(uow, instance.uuid, key)
    if not pending_attaches.of(uow, instance.uuid):
        instance.network_call_until = None
