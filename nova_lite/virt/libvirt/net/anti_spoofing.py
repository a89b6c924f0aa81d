"""Protection against forged frames: one nftables table per daemon, with two chains for each interface of a guest.

A guest sends frames from its own MAC address only: IPv4 and IPv6 packets from its own addresses, and ARP and neighbour
advertisements for them. It is a DHCP client, and no DHCP server and no router. It receives ARP, and packets for its own
addresses, broadcasts and groups. Otherwise a neighbour could reach another address of the guest that security groups do
not know. Where this host is the DHCP server, replies and router advertisements come from it alone. Nothing of that is
hidden by IPv6: a first fragment without its protocol, and neighbour discovery in fragments, is dropped.

Address pairs are addresses that a guest has, too (`address_pairs`). A guest without port security sends and receives
what it wants. Neither may take part in another guest's metadata, which the service finds by the source of a request.

The table has the family ``bridge``, before the IP tables. A verdict map finds the chain of an interface by the name of
its tap device. A guest is added or removed in one transaction, together with its security groups. An interface with
invalid values gets no chain: its frames are dropped.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from nova_lite.base import exceptions, ip
from nova_lite.objects import VIF, ipv6
from nova_lite.virt.libvirt.net import address_pairs, dual_stack, nft
from nova_lite.virt.libvirt.net.address_pairs import Pair
from nova_lite.virt.libvirt.net.names import GATEWAY, spoofing_table, tap_name
from nova_lite.virt.libvirt.net.realms import METADATA_ADDRESS

LOG = logging.getLogger(__name__)

#: Priority of the chains. The hook that shows bridged packets to the IP tables has 0, so the chains come first.
_PRIORITY = -300

_RARP = "0x8035"
#: The rule against all other kinds. An explicit one, because a match of addresses looks into frames with a VLAN tag.
_KINDS = f"ether type != {{ ip, ip6, arp, {_RARP} }} drop"
#: The kinds of neighbour discovery that a guest sends while it has no address yet.
_UNADDRESSED = "nd-neighbor-solicit, nd-router-solicit, mld-listener-report, mld-listener-done, mld2-listener-report"

#: Matches of IPv6 packets that pass: with a byte of the protocol's header, or a further fragment. A first fragment may
#: have extension headers alone. What follows may be a router advertisement, of which no rule sees the type.
_KNOWN = ("@th,0,8 >= 0", "frag frag-off != 0")
#: Match of neighbour discovery in fragments, which no guest may believe (RFC 6980). One may end before its target.
_SPLIT = "exthdr frag exists icmpv6 type 133-137"

#: Loads the text by nft. Raises `VirtDriverError`.
Apply = Callable[[str], None]


class Guard(NamedTuple):
    """Rules of one interface. None: all its frames are dropped. ``is_served``: this host is its DHCP server, or
    advertises its IPv6 routes. ``is_separate``: the host has no address on its bridge, and takes no frame from it."""

    sent: tuple[str, ...] | None
    received: tuple[str, ...] | None
    is_served: bool
    is_separate: bool = False

    def sets(self) -> list[str]:
        """Return the sets in which the interface is."""
        return ["served"] * self.is_served + ["separate"] * self.is_separate


class AntiSpoofing:
    """Guards all interfaces of built-in networks on this host."""

    def __init__(self, host: str) -> None:
        self._table = spoofing_table(host)
        self._lock = threading.Lock()
        self._ports: dict[str, dict[str, Guard]] = {}
        self._loaded: dict[str, Guard] = {}

    def prepare(
        self, ports: dict[str, list[VIF]], served: Collection[str], unknown: Mapping[str, Collection[str]] | None = None
    ) -> None:
        """Load the table. Raises `ConfigurationError` if guests cannot be guarded.

        ``ports``: of this host's guests, by instance. ``served``: networks with this host's DHCP server. ``unknown``:
        tap devices by instance, whose addresses are unknown. They stay closed until the instance is plugged again.
        """
        with self._lock:
            self._ports = {uuid: guards(vifs, served) for uuid, vifs in ports.items()}
            for uuid, taps in (unknown or {}).items():
                self._ports[uuid] = {tap: Guard(None, None, False) for tap in taps}
            wanted = self._wanted()
            if error := nft.run(whole(self._table, wanted)) if wanted else "":
                raise exceptions.ConfigurationError(reason=f"guests cannot be kept from forging addresses: {error}")
            self._loaded = wanted

    def plug(self, instance_uuid: str, vifs: list[VIF], served: Collection[str], apply: Apply) -> None:
        """Guard the interfaces of an instance, and no others of it. ``apply`` loads the rules.

        Raises `VirtDriverError`. Then the interfaces are guarded as before, or closed.
        """
        with self._lock:
            before = self._ports.pop(instance_uuid, None)
            if added := guards(vifs, served):
                self._ports[instance_uuid] = added
            wanted = self._wanted()
            try:
                self._load(wanted, apply)
            except exceptions.VirtDriverError:
                self._ports.pop(instance_uuid, None)
                if before is not None:
                    self._ports[instance_uuid] = before
                raise
            self._loaded = wanted

    def instances(self) -> list[str]:
        """Return the instances with guarded interfaces here."""
        with self._lock:
            return sorted(self._ports)

    def unplug(self, instance_uuid: str, apply: Apply) -> None:
        self.plug(instance_uuid, [], (), apply)

    def restore(self) -> None:
        """Load the table again if an administrator has removed it, as a restart of ``nftables.service`` does.

        Raises `VirtDriverError`.
        """
        with self._lock:
            if self._loaded and nft.run(f"list map bridge {self._table} sent\n"):
                LOG.warning("The table %s is gone and loaded again", self._table)
                nft.apply(whole(self._table, self._loaded))

    def _load(self, wanted: dict[str, Guard], apply: Apply) -> None:
        """Load what has changed, or all if another program has changed or removed the table."""
        try:
            apply(changes(self._table, self._loaded, wanted) if self._loaded else whole(self._table, wanted))
        except exceptions.VirtDriverError:
            if not self._loaded:
                raise
            apply(whole(self._table, wanted))

    def _wanted(self) -> dict[str, Guard]:
        return {tap: guard for mine in self._ports.values() for tap, guard in mine.items()}


def guards(vifs: Iterable[VIF], served: Collection[str]) -> dict[str, Guard]:
    """Return the rules of these interfaces by tap device. Open vSwitch guards the ports of Neutron."""
    mine = nft.usable("interface", [vif for vif in vifs if vif.vif_type is None], _named, lambda vif: vif.id)
    found: dict[str, Guard] = {}
    for vif in mine:
        found[tap_name(vif)] = Guard(None, None, False)
        for sent, received in nft.usable("interface", [vif], rules, lambda vif: vif.id):
            is_served = vif.network.enable_dhcp or ipv6.is_advertised(vif.network)
            has_gateway = vif.network.id in served
            found[tap_name(vif)] = Guard(sent, received, is_served and has_gateway, has_gateway)
    return found


def _named(vif: VIF) -> VIF:
    """Return an interface whose tap device can have its name. libvirt refuses another one, too."""
    nft.interface(tap_name(vif))
    return vif


def rules(vif: VIF) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the rules for sent frames, and for received frames. Raises ValueError."""
    mac = nft.mac(vif.mac_address)
    first = nft.address(ip.parse4(vif.address))
    further = [nft.address(ip.parse4(item)) for item in dual_stack.addresses4(vif)[1:]]
    broadcast = ip.parse_network4(vif.network.cidr, strict=False)[-1]
    own = ", ".join([first, *further])
    identified = f"ip daddr {METADATA_ADDRESS} ip saddr != {first} drop"
    if vif.unguarded:
        return (identified, "accept"), ("accept",)
    pairs = address_pairs.of(vif)
    macs = sorted({mac, *(pair.mac_address for pair in pairs)})
    sent = [
        f"ether saddr != {{ {', '.join(macs)} }} drop" if pairs else f"ether saddr != {mac} drop",
        _KINDS,
        "arp htype != 1 drop",
        *(_not_of_hosts(vif) if pairs else []),
        f"arp operation {{ request, reply }} arp saddr ether {mac} arp saddr ip {{ {own}, 0.0.0.0 }} accept",
        *(_said_by_arp(pair) for pair in pairs if pair.prefix.version == 4),
        "ether type ip udp sport 67 drop",
        *([identified] if pairs or further else []),
        f"ip saddr {{ {own} }} accept" if further else f"ip saddr {first} accept",
        *(line for pair in pairs if pair.prefix.version == 4 for line in _sent(pair)),
        "ip saddr 0.0.0.0 ip daddr 255.255.255.255 udp sport 68 udp dport 67 accept",
    ]
    received = [
        _KINDS,
        "ether type arp accept",
        f"ip daddr {{ {own}, {nft.address(broadcast)}, 255.255.255.255, 224.0.0.0/4 }} accept",
        *(f"{pair.text('daddr')} accept" for pair in pairs if pair.prefix.version == 4),
    ]
    if own6 := [ip.parse6(item) for item in dual_stack.addresses(vif)]:
        text = ", ".join(sorted(map(nft.address, own6)))
        targets = ", ".join(sorted(f"0x{int(item):032x}" for item in own6))
        sent += [
            f"{_SPLIT} drop",
            "icmpv6 type { nd-router-advert, nd-redirect } drop",
            "ether type ip6 udp sport 547 drop",
            *(line for pair in pairs if pair.prefix.version == 6 for line in _said_by_neighbours(pair, text)),
            # The target of an advertisement are the 16 bytes after the first 8 of ICMPv6.
            f"icmpv6 type nd-neighbor-advert @th,64,128 != {{ {targets} }} drop",
            *_accepted(f"ip6 saddr {{ {text} }}"),
            *(line for pair in pairs if pair.prefix.version == 6 for line in _sent(pair)),
            f"ip6 saddr :: icmpv6 type {{ {_UNADDRESSED} }} accept",
        ]
        if not ipv6.is_advertised(vif.network):
            # The host's dnsmasq advertises every IPv6 subnet.
            received.append("icmpv6 type nd-router-advert drop")
        of_pairs = [f"{pair.text('daddr')}" for pair in pairs if pair.prefix.version == 6]
        received.append(f"{_SPLIT} drop")
        for match in (*of_pairs, f"ip6 daddr {{ {text}, ff00::/8 }}"):
            received += _accepted(match)
    # QEMU announces a guest that has arrived by RARP: operation 3, and the guest's MAC address as the sender's.
    sent.append(f"ether type {_RARP} @nh,48,16 3 @nh,64,48 0x{mac.replace(':', '')} accept")
    return (*sent, "drop"), (*received, "drop")


def _not_of_hosts(vif: VIF) -> list[str]:
    """Return rules that no pair includes the addresses of the hosts: guests would send to another one instead."""
    of_hosts6 = ipv6.host_address(vif.network) if vif.network.subnet6 is not None else ipv6.gateway(vif.network)
    hosts = [text for text in (vif.network.gateway or vif.network.host_address, of_hosts6) if text]
    lines = []
    for address in map(ip.parse, hosts):
        text = nft.address(address)
        if address.version == 4:
            lines += [f"arp saddr ip {text} drop", f"ip saddr {text} drop"]
        else:
            lines += [f"icmpv6 type nd-neighbor-advert @th,64,128 0x{int(address):032x} drop", f"ip6 saddr {text} drop"]
    return lines


def _said_by_arp(pair: Pair) -> str:
    mac = pair.mac_address
    return f"arp operation {{ request, reply }} ether saddr {mac} arp saddr ether {mac} {pair.arp()}accept"


def _said_by_neighbours(pair: Pair, own: str) -> list[str]:
    """Return rules for neighbour advertisements of a pair, from the pair's address or one of ``own``."""
    return [
        f"ether saddr {pair.mac_address} {source} {pair.target()} accept"
        for source in (f"ip6 saddr {{ {own} }}", pair.text("saddr"))
    ]


def _sent(pair: Pair) -> list[str]:
    match = f"ether saddr {pair.mac_address} {pair.text('saddr')}"
    return _accepted(match) if pair.prefix.version == 6 else [f"{match} accept"]


def _accepted(match: str) -> list[str]:
    """Return rules that accept IPv6 packets which hide nothing."""
    return [f"{match} {known} accept" for known in _KNOWN]


def whole(table: str, wanted: dict[str, Guard]) -> str:
    """Return the nft commands that replace the table, or only remove it if there are no interfaces."""
    gone = f"add table bridge {table}\ndelete table bridge {table}\n"
    if not wanted:
        return gone
    return f"""{gone}table bridge {table} {{
  map sent {{ type ifname : verdict; }}
  map received {{ type ifname : verdict; }}
  set served {{ type ifname; }}
  set separate {{ type ifname; }}
  chain prerouting {{
    type filter hook prerouting priority {_PRIORITY}; policy accept;
    iifname vmap @sent
  }}
  chain forward {{
    type filter hook forward priority {_PRIORITY}; policy accept;
    iifname != "{GATEWAY}*" oifname @served ether type ip udp sport 67 drop
    iifname != "{GATEWAY}*" oifname @served ether type ip6 udp sport 547 drop
    iifname != "{GATEWAY}*" oifname @served icmpv6 type {{ nd-router-advert, nd-redirect }} drop
    oifname vmap @received
  }}
  chain input {{
    type filter hook input priority {_PRIORITY}; policy accept;
    iifname "{GATEWAY}*" drop
    iifname @separate drop
  }}
  chain output {{
    type filter hook output priority {_PRIORITY}; policy accept;
    oifname vmap @received
  }}
}}
""" + "".join(_added(table, tap, guard) for tap, guard in sorted(wanted.items()))


def changes(table: str, before: dict[str, Guard], wanted: dict[str, Guard]) -> str:
    """Return the nft commands that change a loaded table."""
    if not wanted:
        return whole(table, {})
    removed = sorted(tap for tap, guard in before.items() if wanted.get(tap) != guard)
    added = sorted(tap for tap, guard in wanted.items() if before.get(tap) != guard)
    return "".join(
        [
            *(_removed(table, tap, before[tap]) for tap in removed),
            *(_added(table, tap, wanted[tap]) for tap in added),
        ]
    )


def _added(table: str, tap: str, guard: Guard) -> str:
    lines = []
    for direction, chain in (("sent", guard.sent), ("received", guard.received)):
        verdict = "drop"
        if chain is not None:
            name = f"{direction}_{nft.identifier(tap)}"
            body = "".join(f"    {line}\n" for line in chain)
            lines.append(f"table bridge {table} {{\n  chain {name} {{\n{body}  }}\n}}\n")
            verdict = f"goto {name}"
        lines.append(f"add element bridge {table} {direction} {{ {nft.interface(tap)} : {verdict} }}\n")
    lines += [f"add element bridge {table} {name} {{ {nft.interface(tap)} }}\n" for name in guard.sets()]
    return "".join(lines)


def _removed(table: str, tap: str, guard: Guard) -> str:
    lines = []
    for direction, chain in (("sent", guard.sent), ("received", guard.received)):
        lines.append(f"delete element bridge {table} {direction} {{ {nft.interface(tap)} }}\n")
        if chain is not None:
            lines.append(f"delete chain bridge {table} {direction}_{nft.identifier(tap)}\n")
    lines += [f"delete element bridge {table} {name} {{ {nft.interface(tap)} }}\n" for name in guard.sets()]
    return "".join(lines)
