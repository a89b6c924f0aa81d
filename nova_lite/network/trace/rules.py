"""The rule of a security group that accepts a packet."""

from __future__ import annotations

from nova_lite.base import ip
from nova_lite.network.trace.hosts import Host, Interface
from nova_lite.network.trace.packets import Packet
from nova_lite.objects import SecurityGroup, SecurityGroupRule
from nova_lite.objects.security_group import ICMP, ICMPV6, INGRESS, IPV4, protocol_number


def accepting(
    host: Host, interface: Interface, packet: Packet, direction: str
) -> tuple[SecurityGroup, SecurityGroupRule] | None:
    """Return the first rule of an interface's groups that accepts the packet, with its group; None if none does."""
    for group in host.groups_of(interface):
        for rule in group.rules:
            if rule.direction == direction and _matches(host, interface, packet, rule):
                return group, rule
    return None


def _matches(host: Host, interface: Interface, packet: Packet, rule: SecurityGroupRule) -> bool:
    if packet.version != (4 if rule.ethertype == IPV4 else 6):
        return False
    remote = packet.source if rule.direction == INGRESS else packet.destination
    if rule.remote_ip_prefix is not None and remote not in ip.parse_network(rule.remote_ip_prefix, strict=False):
        return False
    if rule.remote_group_id is not None and remote not in host.members(
        rule.remote_group_id, interface.network, packet.version
    ):
        return False
    if rule.protocol is None:
        return True
    if protocol_number(rule.protocol, rule.ethertype) != packet.number:
        return False
    low, high = rule.port_range_min, rule.port_range_max
    if packet.number in (ICMP, ICMPV6):
        return all(wanted in (None, found) for wanted, found in zip((low, high), packet.icmp, strict=True))
    return low is None or high is None or low <= (packet.port or 0) <= high
