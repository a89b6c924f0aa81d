"""What another network service is asked for an instance, made from its rows."""

from __future__ import annotations

import msgspec

from nova_lite.base.context import RequestContext
from nova_lite.db import networks, pending_attaches
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.models import Instance
from nova_lite.network.driver import NetworkBackend, NetworkCall, NetworkMethod
from nova_lite.objects import NetworkRequest

#: In the payload of an action that is about one interface.
PORT_ID = "port_id"


def plan(
    uow: UnitOfWork, network: NetworkBackend, instance: Instance, context: RequestContext, method: NetworkMethod
) -> NetworkCall:
    asked = [msgspec.convert(item, NetworkRequest) for item in instance.request.get("networks", [])]
    if network.has_remote_ports:
        pending = pending_attaches.of(uow, instance.uuid)
        asked += [NetworkRequest(port_id=each.port_id) for each in pending if each.port_id]
    return NetworkCall(
        method=method,
        context=context,
        instance_uuid=instance.uuid,
        networks=asked,
        vifs=network.vifs(networks.Store(uow), instance.uuid),
        project_id=instance.project_id,
        host=instance.host or "",
        zone=instance.availability_zone or "",
        security_groups=instance.request.get("security_groups", []),
    )


def settled(uow: UnitOfWork, instance: Instance, key: str) -> None:
    """What came of the attach is recorded, or taken back."""
    pending_attaches.drop(uow, instance.uuid, key)
    if not pending_attaches.of(uow, instance.uuid):
        instance.network_call_until = None
