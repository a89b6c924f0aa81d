"""Security groups: the traffic that interfaces of instances accept and send."""

from __future__ import annotations

import datetime
import functools
import hashlib
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from nova_lite.base.ids import derived_id
from nova_lite.objects import ipv6
from nova_lite.objects.floating_ip import HostForwarding
from nova_lite.objects.instance import VIF
from nova_lite.objects.network import Network
from nova_lite.objects.router import HostRouter

#: The group that every project has. A server without a requested group is in it.
DEFAULT = "default"
DEFAULT_DESCRIPTION = "Default security group"

#: Number of a group's members on a network from which on hosts get only changes.
LARGE = 256

#: Instead of a digest: the list is not in this message.
UNKNOWN = "unknown"

#: Instead of a group's id: names of guests.
NAMES = "names"

INGRESS, EGRESS = "ingress", "egress"
IPV4, IPV6 = "IPv4", "IPv6"

#: Numbers of IP protocols by the names that rules may have.
PROTOCOLS = {
    "ah": 51,
    "dccp": 33,
    "egp": 8,
    "esp": 50,
    "gre": 47,
    "hopopt": 0,
    "icmp": 1,
    "icmpv6": 58,
    "igmp": 2,
    "ipip": 4,
    "ipv6-encap": 41,
    "ipv6-frag": 44,
    "ipv6-icmp": 58,
    "ipv6-nonxt": 59,
    "ipv6-opts": 60,
    "ipv6-route": 43,
    "ospf": 89,
    "pgm": 113,
    "rsvp": 46,
    "sctp": 132,
    "tcp": 6,
    "udp": 17,
    "udplite": 136,
    "vrrp": 112,
}
ICMP, ICMPV6 = 1, 58
#: Protocols with ports, by number.
WITH_PORTS = {6: "tcp", 17: "udp", 33: "dccp", 132: "sctp", 136: "udplite"}
#: Numbers of protocols that only IPv6 has.
ONLY_IPV6 = frozenset(number for name, number in PROTOCOLS.items() if name.startswith("ipv6-"))

_NAMESPACE = uuid.UUID("6f1d6f2c-3c7e-5c1b-9a51-5d0f3b7c8e42")


class SecurityGroupRule(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Rule of a security group. Traffic that it matches is accepted.

    ``direction``: `INGRESS` or `EGRESS`. ``ethertype``: `IPV4` or `IPV6`. ``protocol``: a key of `PROTOCOLS`, a number
    as text, or None for all. The ports are a range of a protocol of `WITH_PORTS`, or type and code of ICMP; None: all.
    The remote side is in ``remote_ip_prefix``, or has an address of a member of ``remote_group_id``; if both are None,
    it is anyone. ``remote_address_group_id``, ``tags`` and ``created_at`` are for the network API only: hosts get a
    rule for each prefix of the address group.
    """

    id: str
    security_group_id: str
    direction: str = INGRESS
    ethertype: str = IPV4
    protocol: str | None = None
    port_range_min: int | None = None
    port_range_max: int | None = None
    remote_ip_prefix: str | None = None
    remote_group_id: str | None = None
    remote_group_name: str | None = None
    remote_address_group_id: str | None = None
    description: str | None = None
    project_id: str = ""
    tags: list[str] | None = None
    created_at: datetime.datetime | None = None


class NetworkMembers(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Addresses of a group's interfaces on one network, or names of guests there.

    ``base``: digest of the members that the host knows; then ``members`` were added to them, and ``removed`` were
    removed.
    """

    members: list[str]
    removed: list[str] = msgspec.field(default_factory=list)
    base: str | None = None


class SecurityGroup(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Security group. An interface accepts traffic that a rule of any of its groups matches, and replies to it.

    ``stateful`` False: replies need rules of their own. The groups of one interface are alike in this.
    ``members_by_network``: addresses of its interfaces by network, only in messages to hosts, and only networks that
    the host's guests reach. ``members``: the same addresses for hosts of older versions; then ``members_by_network`` is
    None. ``tags`` and ``shared``: for the network API only.
    """

    id: str
    name: str
    description: str | None = None
    project_id: str = ""
    stateful: bool = True
    rules: list[SecurityGroupRule] = msgspec.field(default_factory=list)
    members: list[str] = msgspec.field(default_factory=list)
    members_by_network: dict[str, NetworkMembers] | None = None
    tags: list[str] | None = None
    shared: bool = False
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None


def protocol_number(protocol: str, ethertype: str) -> int:
    """Return the number of a rule's protocol. ICMP of IPv6 has its own. Raises ValueError for an unknown protocol."""
    if protocol.isascii() and protocol.isdecimal() and len(protocol) <= 3:
        number = int(protocol)
    else:
        number = PROTOCOLS.get(protocol, -1)
    if not 0 <= number <= 255:
        raise ValueError(f"protocol {protocol[:16]!r}")
    return ICMPV6 if number == ICMP and ethertype == IPV6 else number


def members_digest(members: list[str]) -> str:
    """Return a digest of members, whatever their order."""
    return hashlib.blake2b("\n".join(sorted(members)).encode(), digest_size=16).hexdigest()


class QosLimits(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """Limits of a port or floating address, in kbit/s with the burst in kbit, as the guest sees the directions.

    ``dscp``: mark of the packets that the guest sends.
    """

    egress: tuple[int, int] | None = None
    ingress: tuple[int, int] | None = None
    dscp: int | None = None


def floating_key(port_id: str, fixed_address: str) -> str:
    """Return the key of a floating address that leads to a further address of a port. Older hosts know no such port."""
    return f"{port_id}/{fixed_address}"


class PortFilters(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Packet filters of a host.

    ``groups``: by id, the groups of the other fields, and groups that their rules name. ``instances``: uuid to group
    ids. ``ports``: id to group ids, for interfaces with other groups than their instance. ``floating``: the
    floating address that leads to a port on its own host only, by the port's id, or by the `floating_key` of a further
    address. ``peers``: network id to addresses of the other hosts with
    guests on it, for networks with a VNI; None: unknown. ``routers``: all that connect networks of the host's guests;
    None: unknown. ``networks``: by id, networks of the host's guests whose settings have changed since their creation;
    None: unknown. ``pairs``: by port id, the address pairs of ports that have some. ``unfiltered``: ids of ports
    without port security. Both are those of all guests on the host; None: unknown. ``qos``: by port id, limits of the
    ports of all guests on the host that have some; None: unknown. ``floating_qos``: those of floating addresses, by
    address. ``read_at``: the database's time before the read. ``names``: by id of a network that the host's guests
    reach, the names of its guests in DNS, each with ``address``, name and domain; None: unknown. ``forwardings``: those
    of floating addresses that the host holds, and of its guests. ``dhcp_options``: by port id, DHCP options of ports
    that have some; None: unknown. ``further``: by port id, further addresses of ports that have some; None: unknown.
    """

    groups: dict[str, SecurityGroup] = msgspec.field(default_factory=dict)
    instances: dict[str, list[str]] = msgspec.field(default_factory=dict)
    ports: dict[str, list[str]] = msgspec.field(default_factory=dict)
    floating: dict[str, str] = msgspec.field(default_factory=dict)
    peers: dict[str, list[str]] | None = None
    routers: list[HostRouter] | None = None
    networks: dict[str, Network] | None = None
    pairs: dict[str, list[dict[str, str]]] | None = None
    unfiltered: list[str] | None = None
    qos: dict[str, QosLimits] | None = None
    floating_qos: dict[str, QosLimits] = msgspec.field(default_factory=dict)
    read_at: datetime.datetime | None = None
    names: dict[str, NetworkMembers] | None = None
    forwardings: list[HostForwarding] = msgspec.field(default_factory=list)
    dhcp_options: dict[str, list[dict[str, Any]]] | None = None
    further: dict[str, list[str]] | None = None

    def current(self, vif: VIF) -> VIF:
        """Return an interface with its settings in these filters. An older conductor knows none."""
        settings: dict[str, Any] = {"network": (self.networks or {}).get(vif.network.id, vif.network)}
        if self.pairs is not None:
            settings["address_pairs"] = self.pairs.get(vif.id)
        if self.dhcp_options is not None:
            settings["dhcp_options"] = self.dhcp_options.get(vif.id)
        if self.further is not None:
            first = [item for item in vif.more if not item.is_further]
            settings["more"] = first + ipv6.further_addresses(vif.network, None, self.further.get(vif.id, ()))
        if self.unfiltered is not None:
            settings["unguarded"] = vif.id in self.unfiltered
            settings["port_security_enabled"] = not settings["unguarded"]
        return msgspec.structs.replace(vif, **settings)

    def leads(self, vifs: Mapping[str, VIF]) -> list[tuple[str, VIF]]:
        """Return floating addresses with their interfaces. ``vifs``: by id; each gets the address that is led to."""
        found = []
        for key, floating in self.floating.items():
            port_id, _, fixed = key.partition("/")
            if port_id in vifs:
                vif = vifs[port_id]
                found.append((floating, msgspec.structs.replace(vif, address=fixed) if fixed else vif))
        return found

    def of_firewall(self, routers: list[HostRouter] | None) -> PortFilters:
        """Return what the rules of security groups and floating addresses follow from, with other ``routers``."""
        known = {"groups", "instances", "ports", "floating", "read_at", "forwardings"}
        return PortFilters(**{name: getattr(self, name) for name in known}, routers=routers)


@functools.lru_cache(maxsize=1024)
def default_id(project_id: str | None) -> str:
    """Return the uuid of the project's default group. Every daemon derives the same one, with or without a row."""
    return derived_id(_NAMESPACE, project_id or "")


def is_default(reference: str, project_id: str | None) -> bool:
    """Check whether a reference names the project's default group: its name or its id."""
    return reference in (DEFAULT, default_id(project_id))


def default_group(project_id: str) -> SecurityGroup:
    """Return the project's default group in its initial state: members reach each other, and anyone."""
    group = SecurityGroup(
        id=default_id(project_id), name=DEFAULT, description=DEFAULT_DESCRIPTION, project_id=project_id
    )
    group.rules = [
        *outward_rules(group.id),
        *(
            SecurityGroupRule(
                id=_rule_id(group.id, INGRESS, ethertype),
                security_group_id=group.id,
                ethertype=ethertype,
                remote_group_id=group.id,
                remote_group_name=DEFAULT,
            )
            for ethertype in (IPV4, IPV6)
        ),
    ]
    return group


#: Group of services' ports on hosts, which let in what they serve themselves.
OPEN = SecurityGroup(id=derived_id(_NAMESPACE, "ports of services"), name="services")
OPEN.rules = [
    SecurityGroupRule(
        id=derived_id(_NAMESPACE, f"{direction}/{ethertype}"),
        security_group_id=OPEN.id,
        direction=direction,
        ethertype=ethertype,
    )
    for direction in (INGRESS, EGRESS)
    for ethertype in (IPV4, IPV6)
]


def outward_rules(group_id: str) -> list[SecurityGroupRule]:
    """Return the rules of a new group: its members reach anyone."""
    return [
        SecurityGroupRule(
            id=_rule_id(group_id, EGRESS, ethertype),
            security_group_id=group_id,
            direction=EGRESS,
            ethertype=ethertype,
        )
        for ethertype in (IPV4, IPV6)
    ]


@functools.lru_cache(maxsize=4096)
def _rule_id(group_id: str, direction: str, ethertype: str) -> str:
    return derived_id(uuid.UUID(group_id), f"{direction}/{ethertype}")
