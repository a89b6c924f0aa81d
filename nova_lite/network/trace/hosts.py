"""A host as its compute daemon has it: interfaces of its guests, packet filters, routers and floating addresses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from nova_lite.base import ip
from nova_lite.objects import VIF, HostRouter, Network, PortFilters, SecurityGroup, ipv6


class Interface(NamedTuple):
    """Interface of a guest of a host, with the settings that the host knows."""

    vif: VIF
    instance_uuid: str

    @property
    def id(self) -> str:
        return self.vif.id

    @property
    def network(self) -> Network:
        return self.vif.network

    @property
    def addresses(self) -> list[ip.Address]:
        """Return its own addresses, with the link-local one if it has IPv6."""
        more = [ip.parse(item.address) for item in self.vif.more]
        if any(item.version == 6 for item in more):
            more.append(ip.parse(ipv6.address_of(ipv6.LINK_LOCAL, self.vif.mac_address)))
        return [ip.parse(self.vif.address), *more]

    @property
    def pairs(self) -> list[tuple[ip.Network, str]]:
        """Return prefix and MAC address of its address pairs. IPv6 needs an IPv6 address."""
        made = [
            (ip.parse_network(item["ip_address"]), item["mac_address"].lower()) for item in self.vif.address_pairs or ()
        ]
        return [pair for pair in made if pair[0].version == 4 or self._has_ipv6]

    @property
    def _has_ipv6(self) -> bool:
        return any(item.version == 6 for item in self.addresses)

    @property
    def mac_address(self) -> str:
        return self.vif.mac_address.lower()

    def has(self, address: ip.Address) -> bool:
        return address in self.addresses

    def mac_of(self, address: ip.Address) -> str | None:
        """Return the MAC address at which it may have an address, None if it may not have it."""
        if self.has(address):
            return self.mac_address
        return next((mac for prefix, mac in self.pairs if address in prefix), None)


class Routing(NamedTuple):
    """Routing of a network on a host. ``router`` None: it is alone in its realm."""

    router: HostRouter | None
    external: bool
    snat: bool = True

    def connects(self, network: Network, version: int) -> bool:
        """Check whether its router connects a network for an IP version."""
        return self.router is not None and self.router.only.get(network.id, version) == version

    def leaves(self, network: Network, version: int) -> bool:
        """Check whether the network has a way out."""
        return self.external and (self.router is None or self.router.only.get(network.id, version) == version)

    def publishes(self, network: Network, version: int) -> bool:
        """Check whether the host has a route to the network."""
        is_operators = network.project_id is None and not network.needs_router
        return self.leaves(network, version) and (not self.snat or is_operators)


class Host:
    """A host. ``ports``: its guests' interfaces by instance. ``tunnel_ip``: where it gets packets of tunnels.

    ``addresses``: others that it has.
    """

    def __init__(
        self,
        name: str,
        filters: PortFilters,
        ports: Mapping[str, Sequence[VIF]],
        tunnel_ip: str | None = None,
        addresses: Iterable[str] = (),
    ) -> None:
        self.name = name
        self.filters = filters
        self.tunnel_ip = tunnel_ip
        self.addresses = [*map(ip.parse, dict.fromkeys((*addresses, *([tunnel_ip] if tunnel_ip else []))))]
        self.interfaces = [
            Interface(filters.current(vif), uuid)
            for uuid, vifs in sorted(ports.items())
            for vif in vifs
            if vif.vif_type is None
        ]
        self.routers = {
            network.id: router for router in (filters.routers or ()) if self.interfaces for network in router.networks
        }
        self.networks = {network.id: network for router in self.routers.values() for network in router.networks}
        self.networks |= {item.network.id: item.network for item in self.interfaces}
        by_id = {item.id: item for item in self.interfaces}
        #: Interfaces by the floating addresses that lead to them.
        self.floating = {
            ip.parse(address): by_id[vif.id]._replace(vif=vif)
            for address, vif in filters.leads({key: item.vif for key, item in by_id.items()})
        }

    def routing(self, network: Network) -> Routing:
        router = self.routers.get(network.id)
        if router is None:
            return Routing(None, not network.needs_router and network.gateway is not None)
        return Routing(router, router.external, router.snat)

    def realm(self, network: Network) -> list[Network]:
        """Return the networks that share the realm of this one."""
        router = self.routers.get(network.id)
        return [network] if router is None else [self.networks[item.id] for item in router.networks]

    def groups_of(self, interface: Interface) -> list[SecurityGroup]:
        """Return the groups of the port, or else those of its instance."""
        mine = self.filters.ports.get(interface.id, self.filters.instances.get(interface.instance_uuid, []))
        return [self.filters.groups[group_id] for group_id in mine if group_id in self.filters.groups]

    def members(self, group_id: str, network: Network, version: int) -> set[ip.Address]:
        """Return the members of a group in the realm of a network."""
        group = self.filters.groups.get(group_id)
        if group is None:
            return set()
        routing = self.routing(network)
        together = [network.id]
        if routing.router is not None and routing.connects(network, version):
            together = [item.id for item in routing.router.networks if routing.connects(item, version)]
        by_network = group.members_by_network
        texts = group.members
        if by_network is not None:
            texts = [text for key in together if key in by_network for text in by_network[key].members]
        return {address for address in map(ip.parse, texts) if address.version == version}

    def filtered_sender(self, network: Network, address: ip.Address, mac: str) -> Interface | None:
        """Return the interface whose groups decide on a packet with this source on a bridge."""
        return self._by_pair(network, address, mac) or self._by_address(network, address)

    #: The same, for the destination.
    filtered_receiver = filtered_sender

    def _by_pair(self, network: Network, address: ip.Address, mac: str) -> Interface | None:
        for item in self._filtered(network):
            if any(address in prefix and mac == other for prefix, other in item.pairs):
                return item
        return None

    def _by_address(self, network: Network, address: ip.Address) -> Interface | None:
        return next((item for item in self._filtered(network) if item.has(address)), None)

    def _filtered(self, network: Network) -> Iterator[Interface]:
        return (item for item in self.interfaces if item.network.id == network.id and item.vif.port_security_enabled)
