"""External networks and floating addresses."""

from __future__ import annotations

from typing import Any, Protocol

from nova_lite import rpc
from nova_lite.base.context import RequestContext
from nova_lite.objects import (
    FloatingIp,
    FloatingIpPool,
    ListQuery,
    NetworkRecord,
)


class FloatingIpsRPC(Protocol):
    """External networks and floating addresses."""

    @rpc.list_(rpc.API)
    def floating_ip_pool_list(self, context: RequestContext) -> list[FloatingIpPool]: ...

    @rpc.change(rpc.API)
    def external_network_create(self, context: RequestContext, pool: FloatingIpPool) -> FloatingIpPool:
        """Create an external network without a subnet, or make the network with this id one. Raises a 4xx."""

    @rpc.change(rpc.API)
    def external_network_update(self, context: RequestContext, pool_id: str, changes: dict[str, Any]) -> FloatingIpPool:
        """Set ``name``, ``description`` or ``subnet_name``."""

    @rpc.delete(rpc.API)
    def external_network_delete(self, context: RequestContext, pool_id: str) -> None:
        """Delete an external network, and its floating addresses without a port. Raises `NetworkInUse`."""

    @rpc.change(rpc.API)
    def external_subnet_create(self, context: RequestContext, subnet: NetworkRecord) -> FloatingIpPool:
        """Give the external network ``subnet.id`` its range. Raises a 400, or `Conflict` if it has one."""

    @rpc.delete(rpc.API)
    def external_subnet_delete(self, context: RequestContext, pool_id: str) -> None:
        """Take the range from an external network. Raises `Conflict` while projects have addresses of it."""

    @rpc.list_(rpc.API)
    def floating_ip_list(
        self, context: RequestContext, all_projects: bool = False, query: ListQuery | None = None
    ) -> list[FloatingIp]:
        """Return the project's floating addresses. ``all_projects``: for an admin, also those of others.

        ``query``: filters by ``id``, ``address``, ``pool_id``, ``port_id``, ``project_id``.
        """

    @rpc.read(rpc.API)
    def floating_ip_get(self, context: RequestContext, reference: str) -> FloatingIp:
        """Return the floating address with this id or address. Raises `FloatingIpNotFound` for another project's."""

    @rpc.change(rpc.API)
    def floating_ip_create(
        self,
        context: RequestContext,
        pool: str | None,
        request: FloatingIp | None = None,
    ) -> FloatingIp:
        """Allocate a floating address. ``pool``: name or id of its pool; None: the first pool.

        ``request``: its ``pool_id``, and optionally ``address``, ``description``, ``project_id``, ``port_id`` and
        ``fixed_address``.
        """

    @rpc.change(rpc.API)
    def floating_ip_update(self, context: RequestContext, reference: str, changes: dict[str, Any]) -> FloatingIp:
        """Set ``description``, or the target: ``port_id`` (None: no target), optionally with ``fixed_address``."""

    @rpc.delete(rpc.API)
    def floating_ip_delete(self, context: RequestContext, reference: str) -> None: ...

    @rpc.change(rpc.API)
    def floating_ip_associate(
        self, context: RequestContext, instance_uuid: str, address: str, fixed_address: str | None
    ) -> None:
        """Let the address lead to this interface of the instance. ``fixed_address`` None: to the first interface."""

    @rpc.change(rpc.API)
    def floating_ip_disassociate(self, context: RequestContext, instance_uuid: str, address: str) -> None: ...
