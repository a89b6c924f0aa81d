"""Access of guests to this host, to link-local addresses around it, and to other networks: one nftables table per
network.

A network reaches the networks that a router connects it with, and the outside if it has a gateway. libvirt's own rules
let guests out and replies in, but do not protect the host. Here the whole host is blocked except
DHCP, DNS, ping, the operator's ports, and the metadata service. 169.254.169.254 is redirected to an address of the API.
The machine may itself use a metadata service of an outer cloud at that address; guests do not reach it.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterable
from typing import NamedTuple

from oslo_config import cfg

from nova_lite.base import exceptions, ip
from nova_lite.objects import HostRouter, Network, ipv6
from nova_lite.virt import images
from nova_lite.virt.libvirt.net import nft
from nova_lite.virt.libvirt.net.names import bridge_name, network_table

LOG = logging.getLogger(__name__)

#: The address where guests look for the service, and the link-local range, which may matter to this machine itself.
METADATA_ADDRESS, METADATA_PORT = "169.254.169.254", 80
#: Table of libvirt's own rules with its backend nftables.
_OF_LIBVIRT = "table ip libvirt_network"
LINK_LOCAL = ipaddress.IPv4Network("169.254.0.0/16")


class Routing(NamedTuple):
    """Routing of a network. ``connected``: bridges of networks on the same router. ``external``: it has a way out.
    ``static``: its router has static routes, perhaps through machines on this network.

    ``snat``: without it others may open connections from outside, since guests show their own addresses there.
    ``connected6``: as ``connected``, for IPv6; None: the same bridges. ``only``: version of the subnet that the router
    connects, if it connects one of both.
    """

    connected: tuple[str, ...] = ()
    external: bool = True
    snat: bool = True
    static: bool = False
    connected6: tuple[str, ...] | None = None
    only: int | None = None

    def bridges(self, version: int) -> tuple[str, ...]:
        """Return the bridges of the networks that packets of this IP version reach."""
        return self.connected if version == 4 or self.connected6 is None else self.connected6

    def leaves(self, version: int) -> bool:
        """Check whether packets of this IP version have a way out."""
        return self.external and self.only in (None, version)


def default_routing(network: Network) -> Routing:
    """Return how a network without a router is routed."""
    return Routing(external=not network.needs_router and network.gateway is not None)


def routings(routers: Iterable[HostRouter]) -> dict[str, Routing]:
    """Return how the networks of these routers are routed, by their ids."""
    found = {}
    for router in routers:
        for network in router.networks:
            by_version = {version: _reached(router, network, version) for version in (4, 6)}
            found[network.id] = Routing(
                by_version[4],
                router.external,
                router.snat,
                bool(router.routes or router.routes6),
                by_version[6] if by_version[6] != by_version[4] else None,
                router.only.get(network.id),
            )
    return found


def _reached(router: HostRouter, network: Network, version: int) -> tuple[str, ...]:
    """Return the bridges of the networks that a router connects with this one for an IP version."""
    connected = [item for item in router.networks if router.only.get(item.id, version) == version]
    if network not in connected:
        return ()
    return tuple(sorted(bridge_name(other) for other in connected if other.id != network.id))


def connected_bridges(routers: Iterable[HostRouter]) -> dict[str, list[str]]:
    """Return, by network, the bridges of the networks that a router connects it with."""
    return {
        network_id: sorted({*routing.bridges(4), *routing.bridges(6)})
        for network_id, routing in routings(routers).items()
    }


class Firewall:
    def __init__(self, conf: cfg.ConfigOpts) -> None:
        #: Networks whose tables were made, with the text that makes them.
        self._known: dict[str, tuple[Network, str]] = {}
        self._routing: dict[str, Routing] = {}
        self._warned = False
        self._metadata: tuple[str, int] | None = None
        if conf.network.metadata_service:
            self._metadata = conf.api.metadata_listen, conf.api.metadata_listen_port
        self._host_ports: list[int] = conf.network.host_ports
        self._works = False

    def prepare(self) -> None:
        """Check the options. Raises `ConfigurationError` if guests are to reach a metadata service, and cannot."""
        error = nft.run("list tables\n")
        self._works = not error
        if error and self._metadata is not None:
            raise exceptions.ConfigurationError(reason=f"[network] metadata_service: {error}")
        if error:
            LOG.warning("Guests can reach services of this host, and link-local addresses: %s", error)
        if self._metadata is not None:
            address = _checked(self._metadata[0])
            if address in LINK_LOCAL:
                images.run("ip", "address", "replace", f"{address}/32", "dev", "lo", "scope", "host")

    def serves(self, network: Network) -> bool:
        """Check whether guests there reach the metadata service. Without a gateway they have no route to its
        address, and without DHCP none of their own."""
        return self._metadata is not None and network.gateway is not None and network.enable_dhcp

    def rules(self, networks: Iterable[Network]) -> str:
        """Return the nft commands that replace the tables of these networks. Raises `VirtDriverError`."""
        if not self._works:
            return ""
        try:
            return "".join(map(self._ruleset, networks))
        except ValueError as error:
            raise exceptions.VirtDriverError(reason=f"a network cannot be filtered: {error}") from error

    def rules_of_valid(self, networks: Iterable[Network]) -> str:
        """Return the nft commands like `rules`, without networks that are invalid, which are logged."""
        if not self._works:
            return ""
        return "".join(nft.usable("network", networks, self._ruleset, lambda network: network.id))

    def _ruleset(self, network: Network) -> str:
        text = ruleset(network, self._metadata, self._host_ports, self._routing_of(network))
        self._known[network.id] = network, text
        return text

    def _routing_of(self, network: Network) -> Routing:
        return self._routing.get(network.id, default_routing(network))

    def knows(self, network: Network) -> bool:
        """Check whether the table of a network was made."""
        return network.id in self._known

    def is_outdated6(self, network: Network) -> bool:
        """Check whether the table of a network was made for another IPv6 subnet."""
        known = self._known.get(network.id)
        return known is not None and (known[0].cidr6, known[0].subnet6) != (network.cidr6, network.subnet6)

    def is_outdated(self, network: Network) -> bool:
        """Check whether the table of a network was made for other settings."""
        known = self._known.get(network.id)
        return known is not None and known[0] != network

    def routed(self) -> list[tuple[Network, Routing]]:
        """Return the networks of this host, and how they are routed."""
        return [(network, self._routing_of(network)) for network, _ in list(self._known.values())]

    def forget(self, network_id: str) -> None:
        """Delete the table of a network that was removed. Raises `VirtDriverError`."""
        self._known.pop(network_id, None)
        if self._works:
            table = f"inet {network_table(network_id)}"
            nft.apply(f"add table {table}\ndelete table {table}\n")

    def set_routing(self, routing: dict[str, Routing]) -> None:
        """Replace how networks are routed, by their ids, and load the tables that change or are gone.

        Raises `VirtDriverError`.
        """
        self._routing = routing
        if not self._known or not self._works:
            return
        loaded = images.run("nft", "list", "tables").decode().split("\n")
        if _OF_LIBVIRT in loaded and not self._warned:
            self._warned = True
            LOG.error(
                "libvirt filters its networks by nftables, which refuses floating addresses and packets of routers: "
                'set firewall_backend = "iptables" in its network.conf'
            )
        lines = []
        for network, text in list(self._known.values()):
            for wanted in nft.usable("network", [network], self._ruleset, lambda network: network.id):
                is_gone = f"table inet {network_table(network.id)}" not in loaded
                lines += [wanted] if is_gone or wanted != text else []
        nft.apply("".join(lines))


def _checked(text: str) -> ipaddress.IPv4Address:
    try:
        address = ip.parse4(text)
    except ValueError:
        address = ipaddress.IPv4Address(0)
    if address.is_loopback or address.is_unspecified or text == METADATA_ADDRESS:
        raise exceptions.ConfigurationError(
            reason=f"[network] metadata_service: guests cannot reach [api] metadata_listen = {text}. It has to be "
            f"an IPv4 address of this machine, or one of {LINK_LOCAL}, such as 169.254.87.75, that it is then given "
            f"({METADATA_ADDRESS} may be its own cloud's)."
        )
    return address


def ruleset(
    network: Network, metadata: tuple[str, int] | None, host_ports: list[int], routing: Routing | None = None
) -> str:
    """Return the nft commands that replace a table in one transaction. Raises ValueError for an invalid network."""
    sent, received = _passing(default_routing(network) if routing is None else routing)
    table, bridge = f"inet {network_table(network.id)}", nft.interface(bridge_name(network))
    to_host = ["udp dport { 53, 67 } accept", "tcp dport 53 accept", "meta l4proto { icmp, ipv6-icmp } accept"]
    if ipv6.is_assigned(network) or ipv6.is_stateless(network):
        to_host.append("meta nfproto ipv6 udp dport 547 accept")
    if host_ports:
        to_host.append(f"tcp dport {{ {', '.join(map(str, sorted(host_ports)))} }} accept")
    leads, only_led = "", ""
    if metadata is not None:
        text, port = metadata
        address = nft.address(ip.parse4(text))
        leads = f"iifname {bridge} ip daddr {METADATA_ADDRESS} tcp dport {METADATA_PORT} dnat ip to {address}:{port:d}"
        to_host.append(f"ip daddr {address} tcp dport {port:d} ct status dnat accept")
        if ip.parse4(text) in LINK_LOCAL:
            only_led = f'iifname != "lo" ip daddr {address} ct status ! dnat drop'
    lines = "\n    ".join(to_host)
    # A guest with address pairs, or without port security, may have any address. Replies go to the subnet only.
    own = f"ip saddr != {{ {nft.network(ip.parse_network4(network.cidr, strict=False))}, 0.0.0.0/32 }} drop"
    if network.cidr6:
        own += f"\n    ip6 saddr != {{ {nft.network(ip.parse_network6(network.cidr6))}, fe80::/10, ::/128 }} drop"
    return f"""
add table {table}
delete table {table}
table {table} {{
  comment "bridge {bridge_name(network)}"
  chain prerouting {{
    type nat hook prerouting priority dstnat; policy accept;
    {leads}
  }}
  chain input {{
    type filter hook input priority filter; policy accept;
    {only_led}
    iifname != {bridge} accept
    ct state established,related accept
    {own}
    {lines}
    reject
  }}
  chain forward {{
    type filter hook forward priority filter; policy accept;
    iifname {bridge} ip daddr {LINK_LOCAL} reject
    iifname {bridge} oifname {bridge} accept
    iifname {bridge} jump sent
    oifname {bridge} jump received
  }}
  chain sent {{
    {sent}
  }}
  chain received {{
    {received}
  }}
}}
"""


def _passing(routing: Routing) -> tuple[str, str]:
    """Return the rules for packets of a network's guests to other networks, and for packets from there."""
    sent, received = [], []
    is_same = routing.connected6 is None and routing.only is None
    for version in (4,) if is_same else (4, 6):
        family = "" if is_same else f"meta nfproto ipv{version} "
        if routing.bridges(version):
            bridges = ", ".join(map(nft.interface, routing.bridges(version)))
            sent.append(f"{family}oifname {{ {bridges} }} accept")
            received.append(f"{family}iifname {{ {bridges} }} accept")
        if routing.leaves(version):
            received += [f"{family}ct state established,related accept", f"{family}ct status dnat accept"]
            sent.append(f"{family}accept")
        if routing.leaves(version) and not routing.snat:
            received.append(f"{family}accept")
    for chain in (sent, received):
        if chain[-1:] != ["accept"]:
            chain.append("reject with icmpx admin-prohibited")
    return "\n    ".join(sent), "\n    ".join(received)
