"""Networks, subnets, ports and routers."""

from __future__ import annotations

from typing import Any, Protocol

from nova_lite import rpc
from nova_lite.base.context import RequestContext
from nova_lite.objects import (
    BuildNetworks,
    ListQuery,
    Network,
    NetworkObject,
    NetworkRecord,
    NetworkResources,
    PacketWay,
    Port,
    ProjectLimits,
    Router,
)


class NetworkRPC(Protocol):
    """Networks, subnets, ports and routers."""

    @rpc.list_(rpc.API)
    def network_list(self, context: RequestContext, network_id: str | None = None) -> list[Network]:
        """Return the networks of the built-in backend that the context's project may use. ``network_id``: only this
        one, but older conductors return all.
        """

    @rpc.list_(rpc.API)
    def network_record_list(self, context: RequestContext, query: ListQuery | None = None) -> list[NetworkRecord]:
        """Return all that is stored of these networks, including networks without a subnet.

        ``query``: filters by ``id``, ``name``, ``project_id``, ``cidr``, and ``subnet_id``.
        """

    @rpc.change(rpc.API)
    def network_create(self, context: RequestContext, network: NetworkRecord) -> NetworkRecord:
        """Create a network without a subnet, under the id that the API chose. ``project_id`` None: for all projects."""

    @rpc.change(rpc.API)
    def network_update(self, context: RequestContext, network_id: str, changes: dict[str, Any]) -> NetworkRecord:
        """Set ``name``, ``description``, ``admin_state_up``, ``shared``, names of the subnet, and its settings.

        Settings of the subnet are ``gateway`` (None: none), ``dns``, ``pools``, ``host_routes`` and ``enable_dhcp``.
        ``subnet6`` has such settings of the IPv6 subnet, and its ``name`` and ``description``. An older conductor
        refuses them.
        """

    @rpc.delete(rpc.API)
    def network_delete(self, context: RequestContext, network_id: str) -> None:
        """Delete a network. Raises `NetworkInUse` while it has a port."""

    @rpc.change(rpc.API)
    def subnet_create(self, context: RequestContext, subnet: NetworkRecord) -> NetworkRecord:
        """Give the network ``subnet.id`` its addresses, with ``subnet6`` its IPv6 addresses.

        Raises a 400 for addresses that it cannot have. An older conductor raises it for IPv6.
        """

    @rpc.delete(rpc.API)
    def subnet_delete(self, context: RequestContext, network_id: str) -> None:
        """Delete a subnet. Raises `NetworkInUse` while it has a port. ``network_id``: also the id of an IPv6 subnet."""

    @rpc.change(rpc.API)
    def network_resources_create(self, context: RequestContext, wanted: NetworkResources) -> NetworkResources:
        """Create networks, subnets, ports, routers, security groups and rules in one transaction. Return them."""

    @rpc.list_(rpc.API)
    def network_object_list(
        self, context: RequestContext, kind: str, ids: list[str] | None = None
    ) -> list[NetworkObject]:
        """Return the ``subnetpools``, ``address_scopes``, ``address_groups``, ``rbac_policies``, ``policies`` (QoS)
        or ``port_forwardings`` of a project.

        ``ids``: only of these, if they are there. The list includes resources that other projects share with it, but
        only own policies. Admins get all.
        """

    @rpc.change(rpc.API)
    def network_object_create(self, context: RequestContext, wanted: NetworkObject) -> NetworkObject:
        """Create such a resource under the id that the API chose."""

    @rpc.change(rpc.API)
    def network_object_update(
        self, context: RequestContext, kind: str, object_id: str, changes: dict[str, Any]
    ) -> NetworkObject:
        """Set fields of a resource of the caller's own.

        ``add`` and ``remove`` change prefixes and addresses by parts. ``add_rule``, ``change_rule`` and
        ``remove_rule`` change rules of a QoS policy.
        """

    @rpc.delete(rpc.API)
    def network_object_delete(self, context: RequestContext, kind: str, object_id: str) -> None:
        """Delete a resource of the caller's own. Raises an error while something uses it."""

    @rpc.change(rpc.API)
    def network_tags_change(
        self, context: RequestContext, kind: str, resource_id: str, add: list[str], remove: list[str] | None
    ) -> list[str]:
        """Remove tags of a resource (None: all), then add tags. Return its tags.

        ``kind``: plural of the network API, such as ``ports``. Raises a 404 for a missing resource, or a missing tag in
        ``remove``.
        """

    @rpc.list_(rpc.API)
    def port_list(
        self, context: RequestContext, filters: dict[str, list[str]], query: ListQuery | None = None
    ) -> list[Port]:
        """Return the project's ports, for an admin all projects'.

        ``filters``: ``id``, ``network_id``, ``device_id``, ``mac_address``, ``name``, ``project_id``, ``address``,
        ``host``, each with the accepted values.
        """

    @rpc.read(rpc.API)
    def port_get(self, context: RequestContext, port_id: str) -> Port:
        """Return a port. Like the next methods, raises `NoSuchPort` for a port of another project."""

    @rpc.read(rpc.API, since="2.1")
    def packet_way_get(
        self,
        context: RequestContext,
        port_id: str,
        destination: str,
        protocol: str,
        port: int | None,
        version: int,
    ) -> PacketWay:
        """Return the way of a packet of a port, as the port's project may see it.

        ``destination``: a port or an address. ``port``: of tcp and udp. ``version``: of IP, for a port as destination.
        Raises `Conflict` for a port that is on no host.
        """

    @rpc.change(rpc.API)
    def port_create(self, context: RequestContext, port: Port) -> Port:
        """Create a port under the id that the API chose. Chooses ``address`` and ``mac_address`` unless given."""

    @rpc.change(rpc.API)
    def port_update(self, context: RequestContext, port_id: str, changes: dict[str, Any]) -> Port:
        """Set ``name``, ``description``, ``admin_state_up``, ``security_groups``; addresses while the port is free."""

    @rpc.delete(rpc.API)
    def port_delete(self, context: RequestContext, port_id: str) -> None:
        """Delete a port. Raises `PortInUse` while a server has it."""

    @rpc.list_(rpc.API)
    def router_list(self, context: RequestContext) -> list[Router]:
        """Return the project's routers, for an admin all projects'."""

    @rpc.read(rpc.API)
    def router_get(self, context: RequestContext, router_id: str) -> Router:
        """Return a router. Like the next methods, raises `RouterNotFound` for a router of another project."""

    @rpc.change(rpc.API)
    def router_create(self, context: RequestContext, router: Router) -> Router:
        """Create a router under the id that the API chose."""

    @rpc.change(rpc.API)
    def router_update(self, context: RequestContext, router_id: str, changes: dict[str, Any]) -> Router:
        """Set ``name``, ``description``, ``admin_state_up``, ``pool_id`` (None: no gateway), ``enable_snat``,
        ``addresses`` (all of the router's own).

        ``routes`` replaces the static routes, ``add_routes`` and ``remove_routes`` change some. An older conductor
        refuses these three.
        """

    @rpc.delete(rpc.API)
    def router_delete(self, context: RequestContext, router_id: str) -> None:
        """Delete a router. Raises `RouterInUse` while it has an interface."""

    @rpc.change(rpc.API)
    def router_interface_add(
        self, context: RequestContext, router_id: str, subnet_id: str | None, port_id: str | None
    ) -> Port:
        """Connect a network, named by its subnet or by a free port. Return the interface's port."""

    @rpc.change(rpc.API)
    def router_interface_remove(
        self, context: RequestContext, router_id: str, subnet_id: str | None, port_id: str | None
    ) -> Port:
        """Disconnect a network, named by its subnet or by the interface's port, and delete that port. Return it."""

    @rpc.read(rpc.API)
    def network_limits_get(self, context: RequestContext, project_id: str) -> ProjectLimits:
        """Return the project's limits and use of networks and related resources, in Neutron's terms."""

    @rpc.list_(rpc.API)
    def network_limits_list(self, context: RequestContext) -> list[ProjectLimits]:
        """Return the limits of the projects that have own ones, without use. Only an admin gets the limits of
        others."""

    @rpc.read(rpc.API)
    def network_address_counts_get(self, context: RequestContext, network_ids: list[str]) -> dict[str, int]:
        """Return the number of used IPv4 addresses by network, for an admin."""

    @rpc.change(rpc.API)
    def network_limits_update(
        self, context: RequestContext, project_id: str, limits: dict[str, int | None]
    ) -> ProjectLimits:
        """Set these limits (-1: unlimited; None: the default). Return all, as `network_limits_get` does."""

    @rpc.report(rpc.COMPUTE, own="host")
    def interfaces_bind(self, context: RequestContext, instance_uuid: str, host: str) -> BuildNetworks:
        """Let the network service connect the instance's interfaces at this host. Return how.

        A repeated call returns the same. Raises `StaleReport` for an instance that does not concern the host.
        """

    @rpc.report(rpc.COMPUTE, own="host", replay_safe=True)
    def interfaces_active(self, context: RequestContext, instance_uuid: str, host: str, refresh: bool) -> bool:
        """Check whether the network service has connected all interfaces of an instance.

        ``refresh``: query the network service; else the last known state counts.
        """

    @rpc.report(rpc.API)
    def interfaces_event(self, context: RequestContext, instance_uuid: str, event: str, port_id: str | None) -> None:
        """Record an event of the network service about a port (Nova's ``network-…`` names).

        ``port_id`` None: any port of the instance.
        """
