"""Packet filters of realms, and between realms and their host: nftables tables of the realms, and one of the host.

A network reaches the networks that a router connects it with, and the outside if it has a gateway. Of the realm itself
guests reach DHCP, DNS, ping and the metadata service, and of the host the operator's ports. The host accepts from
realms what goes elsewhere, and nothing for itself but DNS queries and these ports.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from nova_lite.base import ip
from nova_lite.objects import HostRouter, Network, ipv6
from nova_lite.virt.libvirt.net import links, nft
from nova_lite.virt.libvirt.net.names import OUTSIDE, bridge_name, network_table
from nova_lite.virt.libvirt.net.realms import METADATA_ADDRESS, METADATA_PORT

LINK_LOCAL = ipaddress.IPv4Network("169.254.0.0/16")
#: Port of the host's name server for realms.
DNS_PORT = 9053


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

    def publishes(self, network: Network, version: int) -> bool:
        """Check whether the host has a route to guests: without SNAT, and on an operator's network."""
        return self.leaves(version) and (not self.snat or (network.project_id is None and not network.needs_router))


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


#: Table of each realm: through its uplink it takes replies and IPv6 neighbours, and packets for guests.
REALM_RULES = f"""add table inet nova_lite_realm
delete table inet nova_lite_realm
table inet nova_lite_realm {{
  chain input {{
    type filter hook input priority filter - 5; policy accept;
    iifname "{OUTSIDE}" icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} accept
    iifname "{OUTSIDE}" ct state != {{ established, related }} drop
  }}
}}
"""


def ruleset(network: Network, routing: Routing, host_ports: Sequence[int] = (), has_metadata: bool = False) -> str:
    """Return the nft commands that replace a network's table in its realm. Raises ValueError for an invalid network."""
    bridge = nft.interface(bridge_name(network))
    sent, received = _passing(routing, network)
    cidr = nft.network(ip.parse_network4(network.cidr, strict=False))
    to_realm = ["udp dport { 53, 67 } accept", "tcp dport 53 accept", "meta l4proto { icmp, ipv6-icmp } accept"]
    if ipv6.is_assigned(network) or ipv6.is_stateless(network):
        to_realm.append("meta nfproto ipv6 udp dport 547 accept")
    if has_metadata:
        to_realm.append(f"ip daddr {METADATA_ADDRESS} tcp dport {METADATA_PORT} accept")
    to_host = ""
    if host_ports:
        ports = f"tcp dport {{ {', '.join(map(str, sorted(host_ports)))} }}"
        to_host = f"iifname {bridge} fib daddr type local {ports} dnat ip to {links.HOST}"
    # A guest with address pairs, or without port security, may have any address. Replies go to the subnet only.
    own = f"ip saddr != {{ {cidr}, 0.0.0.0/32 }} drop"
    # Addresses of links would be those of other realms, and those of published networks those of other tenants.
    outward = [f"ip saddr != {cidr}", "meta nfproto ipv6"]
    leaving = [f'ip saddr {cidr} oifname "{OUTSIDE}" ct status dnat masquerade'] if host_ports else []
    if routing.leaves(4) and routing.snat:
        leaving.append(f'ip saddr {cidr} oifname "{OUTSIDE}" masquerade')
    if network.cidr6:
        cidr6 = nft.network(ip.parse_network6(network.cidr6))
        own += f"\n    ip6 saddr != {{ {cidr6}, fe80::/10, ::/128 }} drop"
        outward[1] = f"ip6 saddr != {cidr6}"
        if routing.leaves(6) and routing.snat:
            leaving.append(f'ip6 saddr {cidr6} oifname "{OUTSIDE}" masquerade')
    table = f"inet {network_table(network.id)}"
    return f"""add table {table}
delete table {table}
table {table} {{
  comment "bridge {bridge_name(network)}"
  chain prerouting {{
    type nat hook prerouting priority dstnat; policy accept;
    {to_host}
  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    {_lines(leaving)}
  }}
  chain input {{
    type filter hook input priority filter; policy accept;
    iifname != {bridge} accept
    ct state established,related accept
    {own}
    {_lines(to_realm)}
    reject
  }}
  chain forward {{
    type filter hook forward priority filter; policy accept;
    {_lines(f'iifname {bridge} oifname "{OUTSIDE}" {words} drop' for words in outward)}
    iifname {bridge} ip daddr {LINK_LOCAL} ct direction original ct status ! dnat reject
    iifname {bridge} ip daddr {links.HOST} ct status dnat accept
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


def _lines(lines: Iterable[str]) -> str:
    return "\n    ".join(lines)


def _passing(routing: Routing, network: Network) -> tuple[str, str]:
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
            sent.append(f'{family}oifname "{OUTSIDE}" accept')
        if routing.publishes(network, version):
            # The host refuses connections of other machines to networks with SNAT.
            received.append(f'{family}iifname "{OUTSIDE}" accept')
    # Replies to host_ports, which have no other way out.
    received.append("ct direction reply ct state established accept")
    return _lines([*sent, _REJECT]), _lines([*received, _REJECT])


_REJECT = "reject with icmpx admin-prohibited"


class Published(NamedTuple):
    """Range of a network whose guests show the host their own addresses. ``is_open``: to other machines, too."""

    cidr: ip.Network
    is_open: bool


def host_ruleset(
    table: str, published: Iterable[Published], bridges: Mapping[str, str], host_ports: Sequence[int]
) -> str:
    """Return the nft commands that replace the host's table.

    ``bridges``: of networks with a gateway here, with the uplinks of their realms. Another daemon of this machine has
    rules for other realms.

    The kernel shows packets on bridges to the host's tables, too. No rule of the host, or of another program, may
    translate their addresses: they are those of a realm. So the first rules translate each to itself.
    Of the host itself realms reach the name server, ``host_ports`` and ping. Packets with other sources than links,
    published ranges and their replies do not leave. Each packet that leaves from a link gets an address of the host.
    So does a packet that returns into its realm: the realm would refuse its own address. The host's own stay unchanged.
    """
    known = list(published)
    ports = f"\n    tcp dport {{ {', '.join(map(str, sorted(host_ports)))} }} accept" if host_ports else ""
    sets = "\n".join(
        f"  set {name} {{ type ipv{key[0]}_addr; flags interval; auto-merge;"
        f"{_elements(nft.network(item.cidr) for item in known if (item.cidr.version, item.is_open) == key)} }}"
        for key, name in (((4, False), "closed4"), ((4, True), "open4"), ((6, False), "closed6"), ((6, True), "open6"))
    )
    return f"""add table inet {table}
delete table inet {table}
table inet {table} {{
{sets}
  set bridges {{ type ifname;{_elements(map(nft.interface, bridges))} }}
  set uplinks {{ type ifname;{_elements(map(nft.interface, set(bridges.values())))} }}
  chain untranslated_in {{
    type nat hook prerouting priority dstnat - 20; policy accept;
    iifname @bridges meta nfproto ipv4 dnat ip to ip daddr
    iifname @bridges meta nfproto ipv6 dnat ip6 to ip6 daddr
  }}
  chain untranslated_out {{
    type nat hook postrouting priority srcnat - 20; policy accept;
    oifname @bridges meta nfproto ipv4 snat ip to ip saddr
    oifname @bridges meta nfproto ipv6 snat ip6 to ip6 saddr
  }}
  chain input {{
    type filter hook input priority filter - 5; policy accept;
    iifname != @uplinks accept
    ct state established,related accept
    ip daddr {links.HOST} meta l4proto {{ tcp, udp }} th dport {DNS_PORT} accept
    meta l4proto {{ icmp, ipv6-icmp }} accept{ports}
    reject
  }}
  chain forward {{
    type filter hook forward priority filter - 5; policy accept;
    ct direction reply accept
    iifname @uplinks ip saddr != {links.RANGE} ip saddr != @open4 drop
    iifname @uplinks ip6 saddr != {links.RANGE6} ip6 saddr != @open6 drop
    oifname @uplinks ip daddr {links.RANGE} ct status ! dnat drop
    oifname @uplinks ip6 daddr {links.RANGE6} drop
    oifname @uplinks ip daddr @closed4 drop
    oifname @uplinks ip6 daddr @closed6 drop
  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {links.RANGE} ip saddr != {links.HOST} oifname != "lo" masquerade
    ip6 saddr {links.RANGE6} ip6 saddr != {links.HOST6} oifname != "lo" masquerade
  }}
}}
"""


def _elements(words: Iterable[str]) -> str:
    found = ", ".join(sorted(words))
    return f" elements = {{ {found} }};" if found else ""
