"""The walk of a packet: through the sender's bridge, the realm of its router, the host, and the receiver's bridge.

Each step adds a hop. The last hop is where the packet arrives or is stopped. The steps follow the tables of hosts:
`nova_lite.virt.libvirt.net.anti_spoofing`, `security_groups`, `firewall`, `floating_ips` and `tunnels`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NoReturn

import msgspec

from nova_lite.base import ip
from nova_lite.network.trace import rules
from nova_lite.network.trace.hosts import Host, Interface
from nova_lite.network.trace.packets import (
    ANTI_SPOOFING,
    GATEWAY,
    HOST,
    METADATA,
    NAT,
    OUTSIDE,
    PORT,
    ROUTER,
    RULE,
    TUNNEL,
    Hop,
    Packet,
    Trace,
)
from nova_lite.objects import HostRouter, Network, Place, ipv6
from nova_lite.objects.packet_probe import AT_GATEWAY, AT_OUTSIDE, AT_PORT, AT_TUNNEL, AT_WAY_OUT
from nova_lite.objects.security_group import EGRESS, INGRESS

METADATA_ADDRESS = ip.parse("169.254.169.254")
_LINK_LOCAL = ip.parse_network("169.254.0.0/16")
#: Addresses of a host on its links to realms.
HOST_ON_LINKS = {4: ip.parse("169.254.192.1"), 6: ip.parse("fd6e:6f76:616c::1")}
#: UDP ports of services that each host has itself.
_HOST_PORTS = (67, 68, 546, 547)
#: A packet that is routed more often is in a loop.
_MOST_HOPS = 64

_VERBS = {INGRESS: "lets it in", EGRESS: "lets it out"}


class _Ended(Exception):
    """The way has ended."""

    def __init__(self, arrived_at: str | None) -> None:
        super().__init__()
        self.arrived_at = arrived_at


class Cloud:
    """Hosts of a cloud, as far as a packet may meet them.

    ``metadata``: hosts serve metadata. ``pools``: ranges of floating addresses. ``down``: ids of ports that are down.
    """

    def __init__(
        self,
        hosts: Collection[Host],
        metadata: bool = True,
        pools: Collection[ip.Network] = (),
        down: Collection[str] = (),
    ) -> None:
        self.hosts: Mapping[str, Host] = {host.name: host for host in hosts}
        self.metadata = metadata
        self.pools = pools
        self.down = down

    def on(self, network: Network) -> Iterator[tuple[Host, Interface]]:
        """Return the interfaces on a network, with their hosts."""
        for host in self.hosts.values():
            yield from ((host, item) for item in host.interfaces if item.network.id == network.id)


def from_port(cloud: Cloud, host: Host, interface: Interface, packet: Packet) -> Trace:
    """Return the way of a packet that a guest sends."""
    walk = _Walk(cloud, packet)
    return walk.trace(lambda: walk.from_port(host, interface))


def from_outside(cloud: Cloud, packet: Packet) -> Trace:
    """Return the way of a packet of a machine outside of the cloud."""
    walk = _Walk(cloud, packet)
    return walk.trace(walk.from_outside)


def neighbour(cloud: Cloud, host: Host, interface: Interface, packet: Packet) -> str | None:
    """Return the MAC address to which a guest sends a packet, empty for its gateway's. None: no neighbour takes it."""
    walk, found = _Walk(cloud, packet), None
    with contextlib.suppress(_Ended):
        nexthop = walk.guests_route(host, interface)
        if nexthop == host_address(interface.network, packet.version):
            return ""
        found = walk.holder(host, interface.network, nexthop, is_routed=False)
    return None if found is None else found[2]


def host_address(network: Network, version: int) -> ip.Address | None:
    """Return the address of a network's gateway on hosts."""
    if version == 6:
        return ip.parse(ipv6.host_address(network)) if network.cidr6 else None
    known = network.gateway or network.host_address
    return ip.parse(known) if known else None


def cidr_of(network: Network, version: int) -> ip.Network | None:
    text = network.cidr if version == 4 else network.cidr6
    return ip.parse_network(text, strict=False) if text else None


def _is_in(address: ip.Address, network: Network) -> bool:
    cidr = cidr_of(network, address.version)
    return cidr is not None and address in cidr


class _Walk:
    def __init__(self, cloud: Cloud, packet: Packet) -> None:
        self._cloud = cloud
        self._packet = packet
        self._hops: list[Hop] = []
        self._first = str(packet)
        #: The source has the address of a link, which the host translates when the packet leaves.
        self._has_link = False

    def trace(self, begin: Callable[[], NoReturn]) -> Trace:
        try:
            begin()
        except _Ended as end:
            return Trace(
                packet=self._first, arrives=end.arrived_at is not None, arrived_at=end.arrived_at, hops=self._hops
            )

    # --- hops

    def _pass(
        self,
        kind: str,
        text: str,
        host: Host | None = None,
        id: str | None = None,
        group_id: str | None = None,
        place: Place | None = None,
    ) -> None:
        if len(self._hops) >= _MOST_HOPS:
            self._stop(ROUTER, "The packet is in a loop of routes.", host)
        name = host.name if host else None
        self._hops.append(Hop(kind=kind, host=name, id=id, group_id=group_id, text=text, place=place))

    def _stop(self, kind: str, text: str, host: Host | None = None, id: str | None = None) -> NoReturn:
        self._hops.append(Hop(kind=kind, host=host.name if host else None, id=id, passes=False, text=text))
        raise _Ended(None)

    # --- beginnings

    def from_port(self, host: Host, sender: Interface) -> NoReturn:
        network, packet = sender.network, self._packet
        if sender.id in self._cloud.down:
            self._stop(PORT, "The port or its network is down (admin_state_up), so it sends nothing.", host, sender.id)
        place = Place(AT_PORT, sender.id, enters=True)
        self._pass(PORT, f"Server {sender.instance_uuid} sends from {packet.source}.", host, sender.id, place=place)
        nexthop = self.guests_route(host, sender)
        self._check_source(host, sender)
        if nexthop == host_address(network, packet.version):
            self._cross(host, network, sender.mac_address, "")
            self._enter(host, network)
        self._to_neighbour(host, network, nexthop, sender)

    def guests_route(self, host: Host, sender: Interface) -> ip.Address:
        """Return the next machine to which a guest sends the packet."""
        network, target = sender.network, self._packet.destination
        if _is_in(target, network):
            return target
        routes = network.host_routes if target.version == 4 else network.subnet6 and network.subnet6.host_routes
        found = [
            (ip.parse_network(item["destination"]), ip.parse(item["nexthop"]))
            for item in routes or ()
            if target in ip.parse_network(item["destination"])
        ]
        if found:
            return max(found, key=lambda item: item[0].prefixlen)[1]
        gateway = network.gateway if target.version == 4 else ipv6.gateway(network)
        if gateway is None:
            self._stop(PORT, f"The guest has no route: network {network.name} has no gateway.", host, sender.id)
        return ip.parse(gateway)

    def from_outside(self) -> NoReturn:
        packet = self._packet
        for host in self._cloud.hosts.values():
            if packet.destination in host.floating or self._published(host) is not None:
                self._pass(OUTSIDE, f"{packet.source} outside of the cloud sends to host {host.name}.", host)
                self._at_host(host)
        self._nowhere()

    def _nowhere(self) -> NoReturn:
        target = self._packet.destination
        if any(target in pool for pool in self._cloud.pools):
            self._stop(OUTSIDE, f"Floating address {target} leads to no port on a host.")
        self._stop(OUTSIDE, f"No host shows {target} outside of the cloud.")

    # --- bridges

    def _check_source(self, host: Host, sender: Interface) -> None:
        """Let a host check that its guest has the address that it sends from."""
        source, target = self._packet.source, self._packet.destination
        is_own = sender.has(source)
        if target == METADATA_ADDRESS and source != ip.parse(sender.vif.address):
            self._stop(ANTI_SPOOFING, f"Only {sender.vif.address} reaches the metadata service.", host, sender.id)
        if sender.vif.unguarded:
            self._pass(ANTI_SPOOFING, "The port has no port security, so it sends from any address.", host, sender.id)
            return
        of_hosts = host_address(sender.network, source.version)
        if not is_own and (source == of_hosts or sender.mac_of(source) is None):
            self._stop(ANTI_SPOOFING, f"{source} is no address of the port, nor in its address pairs.", host, sender.id)
        kind = "own address" if is_own else "address pair"
        self._pass(ANTI_SPOOFING, f"{source} is an {kind} of the port.", host, sender.id)

    def _check_target(self, host: Host, receiver: Interface) -> None:
        target = self._packet.destination
        if not receiver.vif.unguarded and receiver.mac_of(target) is None:
            text = f"The port gets no packets for {target}, which is not its address, nor in its address pairs."
            self._stop(ANTI_SPOOFING, text, host, receiver.id)

    def _cross(self, host: Host, network: Network, sender_mac: str, receiver_mac: str) -> None:
        """Pass a bridge, where the groups of the ports with the packet's addresses decide."""
        sender = host.filtered_sender(network, self._packet.source, sender_mac)
        receiver = host.filtered_receiver(network, self._packet.destination, receiver_mac)
        for interface, direction in ((sender, EGRESS), (receiver, INGRESS)):
            if interface is not None:
                self._decide(host, interface, direction)

    def _decide(self, host: Host, interface: Interface, direction: str) -> None:
        if interface.id in self._cloud.down:
            text = "The port or its network is down (admin_state_up), so nothing passes."
            self._stop(PORT, text, host, interface.id)
        found = rules.accepting(host, interface, self._packet, direction)
        if found is not None:
            group, rule = found
            self._pass(RULE, f"Rule {rule.id} of group {group.name} {_VERBS[direction]}.", host, rule.id, group.id)
            return
        names = ", ".join(group.name for group in host.groups_of(interface)) or "none"
        text = f"No {direction} rule of the groups of port {interface.id} accepts it (groups: {names})."
        self._stop(RULE, text, host, interface.id)

    def _to_neighbour(self, host: Host, network: Network, address: ip.Address, sender: Interface | None) -> NoReturn:
        """Deliver the packet to a machine of a network. ``sender`` None: the realm of the network's router sends it."""
        found = self.holder(host, network, address, is_routed=sender is None)
        if found is None:
            self._stop(HOST, f"No port of network {network.name} has address {address}.", host, network.id)
        if sender is None:
            # A router sends nothing into a network before it knows the MAC address.
            place = Place(AT_GATEWAY, network.id, enters=True)
            self._hops[-1] = msgspec.structs.replace(self._hops[-1], place=place)
        there, receiver, mac = found
        own = sender.mac_address if sender is not None else ""
        if there.name == host.name:
            self._check_target(host, receiver)
            self._cross(host, network, own, mac)
        else:
            self._cross(host, network, own, mac)
            self._tunnel(host, there, network, sender is None)
            self._check_target(there, receiver)
            # Routed packets come from an address of their host, which no guest has.
            self._cross(there, network, own, mac)
        text = f"Server {receiver.instance_uuid} gets it: {self._packet}."
        self._pass(PORT, text, there, receiver.id, place=Place(AT_PORT, receiver.id, enters=False))
        raise _Ended(receiver.id)

    def holder(
        self, host: Host, network: Network, address: ip.Address, is_routed: bool
    ) -> tuple[Host, Interface, str] | None:
        """Return the host, the interface and the MAC address of an address. Ports with an own address come first."""
        found = [
            (there, item, mac) for there, item in self._cloud.on(network) if (mac := item.mac_of(address)) is not None
        ]
        found.sort(key=lambda item: (not item[1].has(address), item[0] is not host))
        if not found:
            return None
        there = found[0][0]
        if there is host:
            return found[0]
        if network.vni is None:
            text = f"Network {network.name} has no VNI, so its guests on {there.name} are not reached from {host.name}."
            self._stop(TUNNEL, text, host, network.id)
        router = host.routers.get(network.id)
        if is_routed and router is not None and not _knows(router, network, address):
            text = f"Router {router.id} does not know the MAC address of {address}, which is on host {there.name}."
            self._stop(ROUTER, text, host, router.id)
        return found[0]

    def _tunnel(self, host: Host, there: Host, network: Network, is_routed: bool) -> None:
        packet = self._packet
        router = host.routers.get(network.id)
        if is_routed and not any(
            _is_in(packet.source, other)
            for other in (router.networks if router is not None else ())
            if other.id != network.id and other.vni is not None
        ):
            text = f"{packet.source} is on no network of the router that spans hosts, so it passes no tunnel."
            self._stop(TUNNEL, text, host, network.id)
        if packet.protocol == "udp" and packet.port in _HOST_PORTS:
            self._stop(TUNNEL, "DHCP stays on its host.", host, network.id)
        peers, known_there = host.filters.peers or {}, there.filters.peers or {}
        if there.tunnel_ip is None or there.tunnel_ip not in peers.get(network.id, ()):
            text = f"It stops at host {host.name}: no tunnel to {there.name} for network {network.name}."
            self._stop(TUNNEL, text, host, network.id)
        if not any(host.tunnel_ip in known for known in known_there.values()):
            text = f"It stops at host {there.name}: no tunnel from {host.name}."
            self._stop(TUNNEL, text, there, network.id)
        text, place = f"The tunnel {network.vni} leads to {there.tunnel_ip}.", Place(AT_TUNNEL, network.id, enters=True)
        self._pass(TUNNEL, text, there, network.id, place=place)

    # --- realms

    def _enter(self, host: Host, network: Network) -> NoReturn:
        """Pass the gateway of a network into its realm."""
        target, version = self._packet.destination, self._packet.version
        together, routing = host.realm(network), host.routing(network)
        if target == METADATA_ADDRESS or any(target == host_address(item, version) for item in together):
            self._in_realm(host, network)
        if version == 4 and target in _LINK_LOCAL:
            self._stop(ROUTER, f"{target} is link-local, and no guest reaches it.", host, network.id)
        out, nexthop = self._route(host, together, routing.router)
        if out is None:
            self._leave(host, network)
        assert out is not None
        name = f"Router {routing.router.id}" if routing.router is not None else f"The gateway of {network.name}"
        if out.id != network.id and not (routing.connects(network, version) and routing.connects(out, version)):
            text = f"{name} does not connect {network.name} and {out.name} for IPv{version}."
            self._stop(ROUTER, text, host, _id(routing.router))
        way = "" if nexthop == target else f" through {nexthop}"
        self._pass(ROUTER, f"{name} routes it to network {out.name}{way}.", host, _id(routing.router))
        self._to_neighbour(host, out, nexthop, None)

    def _route(
        self, host: Host, together: list[Network], router: HostRouter | None
    ) -> tuple[Network | None, ip.Address]:
        """Return the network on which the packet leaves the realm, and its next machine. None: it leaves the host."""
        target, version = self._packet.destination, self._packet.version
        found: list[tuple[int, Network, ip.Address]] = []
        for network in together:
            if (cidr := cidr_of(network, version)) is not None and target in cidr:
                found.append((cidr.prefixlen, network, target))
        for route in (router.routes if version == 4 else router.routes6) if router is not None else ():
            prefix, nexthop = ip.parse_network(route.destination), ip.parse(route.nexthop)
            for network in together:
                is_connected = router is not None and router.only.get(network.id, version) == version
                cidr = cidr_of(network, version)
                if target in prefix and is_connected and cidr is not None and ip.is_machine(nexthop, cidr):
                    found.append((prefix.prefixlen, network, nexthop))
        if not found:
            return None, target
        _, network, nexthop = max(found, key=lambda item: item[0])
        return network, nexthop

    def _in_realm(self, host: Host, network: Network) -> NoReturn:
        """Pass to what the realm itself serves."""
        packet = self._packet
        at = METADATA if packet.destination == METADATA_ADDRESS else GATEWAY
        is_served = self._cloud.metadata and network.gateway is not None and network.enable_dhcp
        if not _is_in(packet.source, network) and not (packet.version == 6 and packet.source.is_link_local):
            text = f"The gateway answers to addresses of its subnet only, and not to {packet.source}."
            self._stop(HOST, text, host, network.id)
        if (
            packet.protocol == "icmp"
            or (packet.protocol, packet.port) in (("udp", 53), ("udp", 67), ("tcp", 53))
            or (at == METADATA and is_served and (packet.protocol, packet.port) == ("tcp", 80))
        ):
            self._pass(HOST, f"The host answers at {packet.destination}.", host, network.id)
            raise _Ended(at)
        if at == METADATA and not self._cloud.metadata:
            text = "[network] metadata_service is off."
        elif at == METADATA and not is_served:
            text = f"Network {network.name} has no metadata service: that needs a gateway and DHCP."
        else:
            text = f"At {packet.destination} guests reach DHCP, DNS, ping, metadata and [network] host_ports only."
        self._stop(HOST, text, host, network.id)

    def _leave(self, host: Host, network: Network) -> NoReturn:
        """Leave the realm towards the host."""
        packet, routing = self._packet, host.routing(network)
        version = packet.version
        router_id = _id(routing.router)
        if not routing.leaves(network, version):
            self._no_way_out(host, network)
        place = Place(AT_WAY_OUT, router_id or network.id, enters=True)
        self._pass(ROUTER, f"The way out of network {network.name}.", host, router_id, place=place)
        if not _is_in(packet.source, network):
            text = f"{packet.source} is not in the subnet of network {network.name}, and leaves no router."
            self._stop(ROUTER, text, host, router_id)
        floating = self._floating_of(host, host.realm(network))
        if floating is not None:
            self._has_link = True
            self._pass(NAT, f"Source {packet.source} becomes its floating address {floating}.", host)
            self._packet = packet._replace(source=floating)
        elif routing.snat:
            self._has_link = True
            self._pass(NAT, f"Source {packet.source} becomes an address of the host.", host)
            self._packet = packet._replace(source=HOST_ON_LINKS[version])
        self._at_host(host)

    def _no_way_out(self, host: Host, network: Network) -> NoReturn:
        target, routing = self._packet.destination, host.routing(network)
        if routing.router is None:
            text = f"Network {network.name} is on no router that is up, and has no way out."
            self._stop(ROUTER, text, host, network.id)
        router_id = routing.router.id
        for other in self._cloud.hosts.values():
            for item in other.networks.values():
                if _is_in(target, item) and other.routers.get(item.id, routing.router).id == router_id:
                    missing = item.id not in host.networks and item.id in other.routers
                    if missing:
                        text = f"Network {item.name} of the router has no VNI, and exists on host {other.name} apart."
                        self._stop(ROUTER, text, host, router_id)
        text = f"Router {router_id} has no gateway, no network and no route for {target}."
        self._stop(ROUTER, text, host, router_id)

    def _floating_of(self, host: Host, realm: Collection[Network]) -> ip.Address | None:
        """Return the floating address that the packet's source has in a realm of a host."""
        ids = {network.id for network in realm}
        for address, interface in host.floating.items():
            if interface.network.id in ids and ip.parse(interface.vif.address) == self._packet.source:
                return address
        return None

    # --- hosts and the outside

    @staticmethod
    def _is_open(host: Host, network: Network, version: int) -> bool:
        """Check whether machines outside open connections to a network."""
        routing = host.routing(network)
        return routing.publishes(network, version) and not routing.snat

    def _published(self, host: Host) -> Network | None:
        """Return the network to which a host has a route for the packet."""
        for network in host.networks.values():
            target = self._packet.destination
            if _is_in(target, network) and host.routing(network).publishes(network, target.version):
                return network
        return None

    def _at_host(self, host: Host) -> NoReturn:
        """Pass through the host, from one of its realms or from outside."""
        target, version = self._packet.destination, self._packet.version
        is_own, self._has_link = self._has_link, False
        if (receiver := host.floating.get(target)) is not None:
            fixed = ip.parse(receiver.vif.address)
            self._pass(NAT, f"Destination {target} is a floating address, and becomes {fixed}.", host, receiver.id)
            self._packet = self._packet._replace(destination=fixed)
            self._into(host, receiver.network, is_translated=True)
        if (network := self._published(host)) is not None:
            if not self._is_open(host, network, version):
                text = f"Network {network.name} has SNAT, so others reach its guests at floating addresses only."
                self._stop(HOST, text, host, network.id)
            self._into(host, network, is_translated=False)
        if target in host.addresses:
            if self._packet.protocol != "icmp":
                self._stop(HOST, "Of a host, guests reach ping and [network] host_ports only.", host)
            self._pass(HOST, f"The host answers at {target}.", host)
            raise _Ended(HOST)
        if is_own and self._packet.source == HOST_ON_LINKS[version]:
            known = [address for address in host.addresses if address.version == version]
            self._packet = self._packet._replace(source=known[0] if known else self._packet.source)
        self._pass(OUTSIDE, f"The packet leaves host {host.name}.", host, place=Place(AT_OUTSIDE, "", enters=False))
        for other in self._cloud.hosts.values():
            if other is not host and target in other.floating:
                self._pass(HOST, f"Host {other.name} has floating address {target}.", other)
                self._at_host(other)
        if any(target in pool for pool in self._cloud.pools):
            self._nowhere()
        raise _Ended(OUTSIDE)

    def _into(self, host: Host, network: Network, is_translated: bool) -> NoReturn:
        """Pass from the host into a realm."""
        version, routing = self._packet.version, host.routing(network)
        out, nexthop = self._route(host, host.realm(network), routing.router)
        out = out or network
        rules_of = host.routing(out)
        is_let_in = rules_of.publishes(out, version) or (is_translated and rules_of.leaves(out, version))
        router_id = _id(routing.router)
        if not is_let_in:
            why = "is on no router that is up" if routing.router is None else "has a router without a gateway"
            self._stop(ROUTER, f"Network {out.name} {why}, so nobody outside reaches it.", host, router_id or out.id)
        self._pass(ROUTER, f"The packet enters network {out.name}.", host, router_id)
        self._to_neighbour(host, out, nexthop, None)


def _id(router: HostRouter | None) -> str | None:
    return None if router is None else router.id


def _knows(router: HostRouter, network: Network, address: ip.Address) -> bool:
    return str(address) in router.neighbours.get(network.id, {})
