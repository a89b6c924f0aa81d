"""Security groups on a host: one nftables table with the allowed incoming and outgoing traffic of its guests.

A guest is identified by its bridge and its address, which libvirt's filter prevents it from forging. Packets that only
cross a bridge also pass the IP tables, because the bridge is configured to show them (``nf_call_iptables``). So both
kinds of connections are tracked, and replies to allowed connections pass.

The table has four parts: the rules of each group (``in_…``, ``out_…``, and sets of members' addresses), the groups of
each interface (``port_in_…``, ``port_out_…``), the assignment of packets to interfaces, and the zones of connections.
Interfaces with stateless groups have no connections (`untracked`): each packet of theirs needs a rule.
The table is replaced as a whole in one step. Established connections continue until they end. The chains of a group
with rules about members are there for each realm (`group_members`) of its interfaces.

nft refuses a table with a single wrong word. So every word is made from a parsed value (`nft`). A rule, an address or
an interface without a valid value is left out, with a line in the log, and so allows nothing.
"""

from __future__ import annotations

import ipaddress
import itertools
import logging
import os
import socket
import subprocess
import threading
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec
from oslo_config import cfg

from nova_lite.base import exceptions, files, ip
from nova_lite.objects import VIF, HostForwarding, PortFilters, SecurityGroup, SecurityGroupRule, ipv6
from nova_lite.objects.ready import prepare_decoders
from nova_lite.objects.security_group import (
    EGRESS,
    ICMP,
    ICMPV6,
    INGRESS,
    IPV4,
    WITH_PORTS,
    protocol_number,
)
from nova_lite.virt import images
from nova_lite.virt.libvirt.net import address_pairs, dual_stack, floating_ips, group_members, nft, untracked
from nova_lite.virt.libvirt.net.address_pairs import Pair
from nova_lite.virt.libvirt.net.conntrack_zones import ConntrackZones
from nova_lite.virt.libvirt.net.group_members import FAMILIES, VERSIONS, MemberSet, Place, Realms
from nova_lite.virt.libvirt.net.links import Links
from nova_lite.virt.libvirt.net.names import bridge_name, ports_table

LOG = logging.getLogger(__name__)

BRIDGE_SYSCTL = "/proc/sys/net/bridge"
BRIDGE_SWITCHES = {"nf_call_iptables": "1", "nf_call_ip6tables": "1"}

prepare_decoders(PortFilters)


class PortFirewall:
    """Filters the ports of this host.

    The last filters from the conductor are stored on disk. They stay valid until they are replaced, also after a
    restart of the daemon or the machine. But a machine that has booted has no floating addresses until the conductor
    sends them.
    """

    def __init__(self, conf: cfg.ConfigOpts, host: str, directory: str, numbers: Links | None = None) -> None:
        """Make the filters. ``numbers``: of links to realms; None: the host has no realms and no floating addresses."""
        self.enabled: bool = conf.network.security_groups
        self._table = ports_table(host)
        self._host = host
        self._path = os.path.join(directory, f"_port-filters@{host}.json")
        self._floating = floating_ips.FloatingAddresses(directory, host, conf.network.public_interface)
        self._translations = None if numbers is None else floating_ips.Translations(host, numbers)
        self._zones = ConntrackZones()
        self._lock = threading.Lock()
        #: All interfaces of this host's guests, by instance.
        self._interfaces: dict[str, list[VIF]] = {}
        self._filters = PortFilters()
        self._is_applied = self._has_withdrawn = False

    @property
    def forwardings(self) -> list[HostForwarding]:
        """Valid port forwardings of this host."""
        known = self._filters.forwardings if self.enabled else []
        return nft.usable("port forwarding", known, floating_ips.valid_forwarding, lambda item: item.floating)

    @property
    def _ports(self) -> dict[str, list[VIF]]:
        """Return the filtered interfaces."""
        return {uuid: filtered_vifs(vifs) for uuid, vifs in self._interfaces.items()}

    def prepare(self, ports: dict[str, list[VIF]]) -> None:
        """Load the filters. ``ports``: of this host's guests, by instance. Raises `ConfigurationError` if filtering is
        impossible."""
        if not self.enabled:
            LOG.warning("[network] security_groups is off: all machines can reach the guests of this host")
            return
        error = show_bridged_packets() or nft.run("list tables\n")
        if error:
            raise exceptions.ConfigurationError(
                reason=f"[network] security_groups: {error}. Guests cannot be filtered then; false means that they "
                "need not be."
            )
        with self._lock:
            self._interfaces = dict(ports)
            stored = self._read()
            # Another host may have got an address since this machine lost it by a reboot: the conductor decides.
            self._filters = floating_ips.only(stored, self._floating.present(floating_ips.held(stored)))
            self._apply()

    def plug(self, instance_uuid: str, vifs: list[VIF], beside: str = "") -> None:
        """Block everything but replies for these interfaces until their filters are set. Stored filters apply
        immediately.

        ``beside``: further rules for the same run of nft.
        """
        if not self.enabled:
            nft.apply(beside)
            return
        with self._lock:
            before = self._interfaces.get(instance_uuid)
            self._interfaces[instance_uuid] = vifs
            try:
                for vif in filtered_vifs(vifs):
                    check_filterable(vif)
                    show_packets_of(bridge_name(vif.network))
                self._apply(beside)
            except exceptions.VirtDriverError:
                # Otherwise each later change would fail, too.
                self._interfaces.pop(instance_uuid)
                if before is not None:
                    self._interfaces[instance_uuid] = before
                raise

    def unplug(self, instance_uuid: str, beside: str = "") -> None:
        with self._lock:
            vifs = self._interfaces.pop(instance_uuid, None)
            if vifs or (vifs is not None and not self._interfaces):
                self._apply(beside)
            else:
                nft.apply(beside)

    def set(self, filters: PortFilters) -> None:
        """Replace the filters. They are stored on disk before they apply."""
        if not self.enabled:
            return
        with self._lock:
            changes, self._has_withdrawn = None, False
            if filters != self._filters:
                files.write_atomically(self._path, msgspec.json.encode(filters), writer=self._host)
                if self._is_applied and any(self._ports.values()):
                    changes = member_changes(self._table, self._ports, self._filters, filters)
                self._filters, self._is_applied = filters, False
            if changes is not None and not nft.run(changes):
                self._is_applied = True
                return
            # A failure means that another program has changed the table. Then it is replaced.
            if not self._is_applied or self._is_gone():
                self._apply()

    def withdraw_addresses(self, instance_uuids: Collection[str]) -> None:
        """Remove the floating addresses of these instances until `set`. Raises `VirtDriverError`."""
        with self._lock:
            filters = floating_ips.only(self._filters, self._held_without(instance_uuids))
            if filters != self._filters:
                self._filters, self._has_withdrawn = filters, True
                self._apply()

    def keep_addresses(self, instance_uuids: Collection[str], seconds: int | None) -> None:
        """Keep the floating addresses of these instances for some seconds (None: permanently).

        Raises `VirtDriverError`.
        """
        with self._lock:
            others = set(self._held_without(instance_uuids))
            self._floating.keep(floating_ips.held(self._filters) - others, seconds)

    def _held_without(self, instance_uuids: Collection[str]) -> Collection[str]:
        gone = [vif for uuid in instance_uuids for vif in self._interfaces.get(uuid, ())]
        left = [vif for uuid, vifs in self._interfaces.items() if uuid not in instance_uuids for vif in vifs]
        return floating_ips.held_without(self._filters, gone, left)

    def _is_gone(self) -> bool:
        """Check whether an administrator has removed the table, as a restart of ``nftables.service`` does."""
        if not any(self._ports.values()) or not nft.run(f"list chain inet {self._table} ingress_forward\n"):
            return False
        LOG.warning("The table %s is gone and loaded again", self._table)
        return True

    def instances(self) -> list[str]:
        """Return the instances whose ports are filtered here."""
        with self._lock:
            return sorted(uuid for uuid, vifs in self._ports.items() if vifs)

    def lacks_filters(self) -> bool:
        """Check whether the filters of any port are missing, or were incomplete since `withdraw_addresses`."""
        with self._lock:
            return self._has_withdrawn or any(
                vifs and uuid not in self._filters.instances for uuid, vifs in self._ports.items()
            )

    def _apply(self, beside: str = "") -> None:
        bridges = {bridge_name(vif.network) for vifs in self._ports.values() for vif in vifs}
        for bridge in sorted(bridges):
            try:
                show_packets_of(bridge)
            except exceptions.VirtDriverError as error:
                LOG.error("Packets that cross bridge %s are not filtered: %s", bridge, error.message)
        # A floating address may lead to a port without port security, too. Connections of such ports need a zone as
        # those of others, where another program shows packets of all bridges.
        mine = {vif.id: vif for vifs in self._interfaces.values() for vif in vifs if vif.vif_type is None}
        bridges |= {bridge_name(vif.network) for vif in mine.values()}
        leads = dict(nft.usable("floating address", self._filters.leads(mine), floating_ips.lead, lambda item: item[0]))
        held = {item.floating for item in self._filters.forwardings if item.is_held and item.port_id in mine}
        forwards = [item for item in self.forwardings if item.floating in held]
        self._is_applied = False
        ways: list[floating_ips.Way] = []
        of_routers: dict[str, str] = {}
        try:
            if self._translations is not None:
                ways = self._translations.assign(leads, forwards)
                # A host without guests may have missed that another one has the addresses now.
                of_routers = self._translations.of_routers(self._filters.routers or () if self._interfaces else ())
                self._floating.assign({way.floating for way in ways} | {*of_routers.values()})
        finally:
            # The kernel may show packets of bridges without filtered ports, too, if another program wants that.
            every = {bridge_name(vif.network) for vif in mine.values()}
            text = ruleset(self._table, self._ports, self._filters) + self._zones.ruleset(self._table, every)
            nft.apply(beside + text + floating_ips.ruleset(self._table, ways, of_routers))
        self._is_applied = True

    def _read(self) -> PortFilters:
        try:
            with open(self._path, "rb") as file:
                return msgspec.json.decode(file.read(), type=PortFilters)
        except FileNotFoundError:
            return PortFilters()
        except (OSError, ValueError) as error:
            LOG.warning("%s cannot be read and will be queried again: %s", self._path, error)
            return PortFilters()


def filtered_vifs(vifs: Iterable[VIF]) -> list[VIF]:
    return [vif for vif in vifs if vif.port_security_enabled and vif.vif_type is None]


def show_bridged_packets() -> str:
    """Load the kernel module that shows bridged packets. Return an error message, empty on success.

    If it was not loaded before, other bridges of this machine stay unchanged: only guests' bridges are configured.
    """
    if os.path.isdir(BRIDGE_SYSCTL):
        return ""
    try:
        result = subprocess.run(["modprobe", "br_netfilter"], capture_output=True, text=True, check=False)
    except OSError as error:
        return f"modprobe br_netfilter cannot be run: {error.strerror}"
    if not os.path.isdir(BRIDGE_SYSCTL):
        return f"the kernel has no br_netfilter ({' '.join(result.stderr.split())})"
    for name in ("bridge-nf-call-iptables", "bridge-nf-call-ip6tables", "bridge-nf-call-arptables"):
        with open(os.path.join(BRIDGE_SYSCTL, name), "w") as file:
            file.write("0")
    return ""


def show_packets_of(bridge: str) -> None:
    """Show packets that cross the bridge to the IP tables. Raises `VirtDriverError`."""
    try:
        socket.if_nametoindex(bridge)
    except (OSError, ValueError):
        return  # it is created when its first guest is plugged, or cannot exist
    if not _shows_packets(bridge):
        switches = [word for switch in BRIDGE_SWITCHES.items() for word in switch]
        images.run("ip", "link", "set", "dev", bridge, "type", "bridge", *switches)


def _shows_packets(bridge: str) -> bool:
    """Check whether the bridge is configured already."""
    try:
        return all(_switch(bridge, name) == value for name, value in BRIDGE_SWITCHES.items())
    except OSError:
        return False


def _switch(bridge: str, name: str) -> str:
    with open(f"/sys/class/net/{bridge}/bridge/{name}") as file:
        return file.read().strip()


def check_filterable(vif: VIF) -> None:
    """Raise `VirtDriverError` for an interface without valid addresses and bridge."""
    try:
        _filterable(vif)
    except ValueError as error:
        raise exceptions.VirtDriverError(reason=f"interface {vif.id} cannot be filtered: {error}") from error


def _filterable(vif: VIF) -> VIF:
    nft.interface(bridge_name(vif.network))
    nft.mac(vif.mac_address)
    for address in dual_stack.addresses4(vif):
        ip.parse(address)
    for address in dual_stack.addresses(vif):
        ip.parse6(address)
    if vif.version == 4:
        ip.parse_network4(vif.network.cidr, strict=False)
    return vif


def ruleset(table: str, ports: dict[str, list[VIF]], filters: PortFilters) -> str:
    """Return the nft commands that replace the table in one transaction, or only remove it if there are no guests."""
    gone = f"add table inet {table}\ndelete table inet {table}\n"
    if not any(ports.values()):
        return gone
    realms = Realms(filters.routers or ())
    vifs = _filtered_by(ports, filters)
    chains = _chains(vifs, realms)
    parts = group_members.definitions(_member_sets(chains, filters), filters, realms)
    parts += [part for _, (group, place) in sorted(chains.items()) for part in _group(group, filters.groups, place)]
    parts += [
        part
        for vif, mine in vifs
        for part in _port(
            vif, [_chain_name(group, realms.place(vif.network.id)) for group in mine], untracked.is_stateful(mine)
        )
    ]
    only = [vif for vif, _ in vifs]
    paired = [(vif, pairs) for vif in only if (pairs := address_pairs.of(vif))]
    outward = [*_sent_by_pairs(paired), *_verdicts(only, EGRESS)]
    inward = [*_broadcast_rules(only), *_bridged_to_pairs(paired), *_verdicts(only, INGRESS)]
    parts += [
        _hook("egress_forward", "forward", -6, outward),
        _hook("egress_input", "input", -6, outward),
        _hook("ingress_forward", "forward", -5, inward),
        _hook("ingress_output", "output", -5, _verdicts(only, INGRESS)),
    ]
    if lines := untracked.rules([(vif, untracked.is_stateful(mine)) for vif, mine in vifs]):
        parts.append(_hook("untracked", "prerouting", untracked.PRIORITY, lines))
    body = "\n".join(parts)
    return f"{gone}table inet {table} {{\n{body}\n}}\n"


def _filtered_by(ports: dict[str, list[VIF]], filters: PortFilters) -> list[tuple[VIF, list[SecurityGroup]]]:
    """Return the valid interfaces with their groups."""
    return [
        (vif, _groups_of(uuid, vif, filters))
        for uuid, mine in sorted(ports.items())
        for vif in nft.usable("interface", mine, _filterable, lambda vif: vif.id)
    ]


def _groups_of(instance_uuid: str, vif: VIF, filters: PortFilters) -> list[SecurityGroup]:
    """Return the groups of the port, or else those of its instance."""
    mine = filters.ports.get(vif.id, filters.instances.get(instance_uuid, []))
    return [filters.groups[group_id] for group_id in mine if group_id in filters.groups]


def _chains(vifs: Iterable[tuple[VIF, list[SecurityGroup]]], realms: Realms) -> dict[str, tuple[SecurityGroup, Place]]:
    """Return the groups of these interfaces with the places where they are, by the end of the names of their chains."""
    found = [(group, realms.place(vif.network.id)) for vif, groups in vifs for group in groups]
    return {_chain_name(group, place): (group, place) for group, place in found}


def _chain_name(group: SecurityGroup, place: Place) -> str:
    name = nft.identifier(group.id)
    return f"{name}_{place.name}" if any(rule.remote_group_id is not None for rule in group.rules) else name


def _member_sets(chains: dict[str, tuple[SecurityGroup, Place]], filters: PortFilters) -> set[MemberSet]:
    """Return the sets that the rules of these chains name."""
    return {
        place.members(rule.remote_group_id, rule.ethertype)
        for group, place in chains.values()
        for rule in group.rules
        if rule.remote_group_id in filters.groups and rule.ethertype in FAMILIES
    }


def member_changes(table: str, ports: dict[str, list[VIF]], before: PortFilters, after: PortFilters) -> str | None:
    """Return the nft commands that change a loaded table, as `group_members.changes` does."""

    def needed(filters: PortFilters) -> set[MemberSet]:
        return _member_sets(_chains(_filtered_by(ports, filters), Realms(filters.routers or ())), filters)

    return group_members.changes(table, before, after, needed)


def _group(group: SecurityGroup, known: Collection[str], place: Place) -> list[str]:
    return [
        _chain(
            f"{name}_{_chain_name(group, place)}",
            nft.usable(
                "rule",
                _alike(rule for rule in group.rules if rule.direction == direction and _is_complete(rule, known)),
                lambda rules: _text(rules, place),
                lambda rules: rules[0].id,
            ),
        )
        for name, direction in (("in", INGRESS), ("out", EGRESS))
    ]


def _is_complete(rule: SecurityGroupRule, known: Collection[str]) -> bool:
    """Check whether the rule's remote group is known. A rule with an unknown group matches no address."""
    return rule.remote_group_id is None or rule.remote_group_id in known


def _alike(rules: Iterable[SecurityGroupRule]) -> list[list[SecurityGroupRule]]:
    """Return rules with those beside them that differ only in their prefix: they are of one address group."""
    return [list(found) for _, found in itertools.groupby(rules, key=_without_prefix)]


def _without_prefix(rule: SecurityGroupRule) -> tuple[bool, SecurityGroupRule]:
    return rule.remote_ip_prefix is None, msgspec.structs.replace(rule, remote_ip_prefix=None)


def rule_text(rule: SecurityGroupRule, place: Place) -> str:
    """Return one rule in nft's syntax. Raises ValueError for a rule that the API would refuse."""
    return _text([rule], place)


def _text(rules: list[SecurityGroupRule], place: Place) -> str:
    """Return rules that differ only in their prefix as one rule: nft loads a set faster than a rule for each."""
    rule = rules[0]
    if rule.ethertype not in FAMILIES:
        raise ValueError(f"ethertype {rule.ethertype!r}")
    family = FAMILIES[rule.ethertype]
    words = [f"meta nfproto {'ipv4' if rule.ethertype == IPV4 else 'ipv6'}"]
    side = "saddr" if rule.direction == INGRESS else "daddr"
    if rule.remote_ip_prefix is not None:
        prefixes = [ip.parse_network(str(item.remote_ip_prefix), strict=False) for item in rules]
        for prefix in prefixes:
            if prefix.version != VERSIONS[rule.ethertype]:
                raise ValueError(f"{prefix} is not {rule.ethertype}")
        words += [f"{family} {side} {_set_of(prefixes)}"] if all(prefix.prefixlen for prefix in prefixes) else []
    if rule.remote_group_id is not None:
        words.append(f"{family} {side} @{place.members(rule.remote_group_id, rule.ethertype).name}")
    return " ".join([*words, *_protocol(rule), "accept"])


def _set_of(prefixes: list[Any]) -> str:
    """Return prefixes as one word, or as a set without prefixes that overlap."""
    texts = [nft.network(prefix) for prefix in ipaddress.collapse_addresses(prefixes)]
    return texts[0] if len(texts) == 1 else f"{{ {', '.join(texts)} }}"


def _protocol(rule: SecurityGroupRule) -> list[str]:
    low, high = rule.port_range_min, rule.port_range_max
    if rule.protocol is None:
        if low is not None or high is not None:
            raise ValueError("it has ports without a protocol")
        return []
    number = protocol_number(rule.protocol, rule.ethertype)
    if number in (ICMP, ICMPV6):
        return _icmp(number, low, high)
    if (low is None) != (high is None):
        raise ValueError("its range of ports has one end")
    if low is None or high is None:
        return [f"meta l4proto {number:d}"]
    if number not in WITH_PORTS:
        raise ValueError(f"protocol {number} has no ports")
    if not 0 <= low <= high <= 65535:
        raise ValueError(f"ports {low} to {high}")
    return [f"{WITH_PORTS[number]} dport {low:d}-{high:d}"]


def _icmp(number: int, kind: int | None, code: int | None) -> list[str]:
    if kind is None and code is not None:
        raise ValueError("it has an ICMP code without a type")
    if any(number is not None and not 0 <= number <= 255 for number in (kind, code)):
        raise ValueError(f"ICMP type {kind}, code {code}")
    name = "icmp" if number == ICMP else "icmpv6"
    words = [f"meta l4proto {number:d}"]
    words += [f"{name} type {kind:d}"] if kind is not None else []
    words += [f"{name} code {code:d}"] if code is not None else []
    return words


def _port(vif: VIF, groups: list[str], is_stateful: bool) -> list[str]:
    """Return the rules of a port: replies and related packets pass, then the groups decide, and the rest is dropped.

    ``groups``: ends of the names of their chains. Without ``is_stateful``, the groups decide on replies, too.

    Some rules do not depend on groups. A guest may be a DHCP client but not a DHCP server. With IPv6 it may announce
    its own addresses, but not act as a router.
    """
    name = nft.identifier(vif.id)
    both = ["ct state established,related accept", "ct state invalid drop"] if is_stateful else []
    own6 = dual_stack.addresses(vif)
    assigned = own6 and (ipv6.is_assigned(vif.network) or ipv6.is_stateless(vif.network))
    inward = [
        *(_NEIGHBOURS_IN if own6 else []),
        "udp sport 67 udp dport 68 accept",
        *(["meta nfproto ipv6 udp sport 547 udp dport 546 accept"] if assigned else []),
        *both,
    ]
    outward = [
        *_neighbour_rules(vif),
        "udp sport 67 drop",
        "udp sport 68 udp dport 67 accept",
        *(["meta nfproto ipv6 udp sport 546 udp dport 547 accept"] if assigned else []),
        *both,
    ]
    accepted = [f"jump in_{group}" for group in groups]
    return [
        _chain(f"port_in_{name}", [*inward, *accepted, "drop"]),
        _chain(f"port_out_{name}", [*outward, *(f"jump out_{group}" for group in groups), "drop"]),
    ]


_NEIGHBOURS_IN = ["icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-advert } accept"]


def _neighbour_rules(vif: VIF) -> list[str]:
    """Return the rules for outgoing neighbour discovery of a port with IPv6.

    The target of an advertisement are the 16 bytes after the first 8 of ICMPv6.
    """
    own = dual_stack.addresses(vif)
    if not own:
        return []
    targets = ", ".join(sorted(f"0x{int(ip.parse6(address)):032x}" for address in own))
    return [
        "icmpv6 type { nd-router-advert, nd-redirect } drop",
        "meta nfproto ipv6 udp sport 547 drop",
        *(f"{pair.target()} accept" for pair in address_pairs.of(vif) if pair.prefix.version == 6),
        f"icmpv6 type nd-neighbor-advert @th,64,128 != {{ {targets} }} drop",
        "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit } accept",
        "icmpv6 type { mld-listener-report, mld-listener-done, mld2-listener-report } accept",
    ]


def _verdicts(vifs: list[VIF], direction: str) -> list[str]:
    """Return the rules that select the chain of a packet by bridge and address."""
    interface, side, chain = (
        ("oifname", "daddr", "port_in") if direction == INGRESS else ("iifname", "saddr", "port_out")
    )
    lines = []
    owners = {
        (bridge_name(vif.network), address): vif.id for vif in vifs for address in map(ip.parse, dual_stack.every(vif))
    }
    for version, family in ((4, "ip"), (6, "ip6")):
        found = sorted(
            f"{nft.interface(bridge)} . {nft.address(address)} : goto {chain}_{nft.identifier(vif_id)}"
            for (bridge, address), vif_id in owners.items()
            if address.version == version
        )
        if found:
            lines.append(f"{interface} . {family} {side} vmap {{ {', '.join(found)} }}")
    return lines


_Paired = Sequence[tuple[VIF, list[Pair]]]


def _sent_by_pairs(paired: _Paired) -> list[str]:
    """Return the rules that select the chain of a packet of an address pair, by bridge, MAC address and address."""
    return [
        f"iifname {nft.interface(bridge_name(vif.network))} ether saddr {pair.mac_address} {pair.inet('saddr')} "
        f"goto port_out_{nft.identifier(vif.id)}"
        for vif, pairs in paired
        for pair in pairs
    ]


def _bridged_to_pairs(paired: _Paired) -> list[str]:
    """Return the rules that select the chain of a packet that crosses the bridge to an address pair."""
    lines = []
    for vif, pairs in paired:
        bridge = nft.interface(bridge_name(vif.network))
        for pair in pairs:
            lines.append(
                f"iifname {bridge} oifname {bridge} ether daddr {pair.mac_address} {pair.inet('daddr')} "
                f"goto port_in_{nft.identifier(vif.id)}"
            )
    return lines


_DISCOVERY = "nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, nd-router-advert"


def _broadcast_rules(vifs: list[VIF]) -> list[str]:
    """Return rules that drop broadcasts, except DHCP and IPv6 neighbour discovery."""
    lines = []
    for bridge, network in sorted({bridge_name(vif.network): vif.network for vif in vifs if vif.version == 4}.items()):
        broadcast = ip.parse_network4(network.cidr, strict=False)[-1]
        everybody = f"255.255.255.255, 224.0.0.0/4, {nft.address(broadcast)}"
        between = f"iifname {nft.interface(bridge)} oifname {nft.interface(bridge)} ip daddr {{ {everybody} }}"
        lines += [f"{between} udp dport {{ 67, 68 }} accept", f"{between} drop"]
        if network.cidr6:
            between = f"iifname {nft.interface(bridge)} oifname {nft.interface(bridge)} ip6 daddr ff00::/8"
            # The realm advertises routes and answers DHCPv6. No guest does (`anti_spoofing`).
            lines += [f"{between} icmpv6 type {{ {_DISCOVERY} }} accept", f"{between} udp dport 547 accept"]
            lines.append(f"{between} drop")
    return lines


def _chain(name: str, lines: Iterable[str]) -> str:
    body = "".join(f"    {line}\n" for line in lines)
    return f"  chain {name} {{\n{body}  }}"


def _hook(name: str, hook: str, priority: int, lines: Iterable[str]) -> str:
    return _chain(name, [f"type filter hook {hook} priority {priority}; policy accept;", *lines])
