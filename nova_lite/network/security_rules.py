"""Checks of a new security group rule. They are pure, and run before its transaction begins."""

from __future__ import annotations

from nova_lite.base import exceptions, ip
from nova_lite.objects import SecurityGroupRule
from nova_lite.objects.security_group import (
    EGRESS,
    ICMP,
    ICMPV6,
    INGRESS,
    IPV4,
    IPV6,
    ONLY_IPV6,
    PROTOCOLS,
    WITH_PORTS,
    protocol_number,
)


def checked(rule: SecurityGroupRule) -> SecurityGroupRule:
    """Check a rule and return it with its protocol in lower case, and a prefix length.

    Raises `SecurityGroupRuleInvalid` for a rule that contradicts itself.
    """
    if rule.direction not in (INGRESS, EGRESS) or rule.ethertype not in (IPV4, IPV6):
        reason = f"A rule is of {INGRESS} or {EGRESS}, and of {IPV4} or {IPV6}."
        raise _refused("SecurityGroupRuleInvalidEtherType", reason)
    low, high = rule.port_range_min, rule.port_range_max
    number = None
    if rule.protocol is not None:
        number = _checked_protocol(rule)
    elif low is not None or high is not None:
        reason = "A rule with ports needs a protocol that has ports, such as tcp or udp."
        raise _refused("SecurityGroupProtocolRequiredWithPorts", reason)
    if number in (ICMP, ICMPV6):
        _check_icmp(low, high)
    elif number is not None and number not in WITH_PORTS and (low is not None or high is not None):
        names = ", ".join(name.upper() for name in WITH_PORTS.values())
        reason = f"Invalid protocol {rule.protocol} for port range, only supported for {names} and ICMP."
        raise _refused("SecurityGroupInvalidProtocolForPort", reason)
    else:
        _check_ports(rule)
    _check_remote(rule)
    return rule


def _refused(kind: str, reason: str) -> exceptions.SecurityGroupRuleInvalid:
    """Return the error for a rule. ``kind``: its type in Neutron."""
    return exceptions.SecurityGroupRuleInvalid(reason=reason, neutron_type=kind)


def _checked_protocol(rule: SecurityGroupRule) -> int:
    """Return the number of the rule's protocol, whose text becomes lower case."""
    rule.protocol = str(rule.protocol).lower()
    try:
        number = protocol_number(rule.protocol, rule.ethertype)
    except ValueError as error:
        names = ", ".join(PROTOCOLS)
        reason = f"Invalid IP protocol {rule.protocol[:16]}: it is a number from 0 to 255, or one of {names}."
        raise _refused("SecurityGroupRuleInvalidProtocol", reason) from error
    rule.protocol = str(int(rule.protocol)) if rule.protocol.isdecimal() else rule.protocol
    if number in ONLY_IPV6 and rule.ethertype == IPV4:
        reason = f"Invalid ethertype {IPV4} for protocol {rule.protocol}."
        raise _refused("SecurityGroupEthertypeConflictWithProtocol", reason)
    return number


def _check_icmp(kind: int | None, code: int | None) -> None:
    if code is not None and kind is None:
        reason = "ICMP type (port-range-min) is missing: for ICMP, a code needs a type."
        raise _refused("SecurityGroupMissingIcmpType", reason)
    for name, item in (("type", kind), ("code", code)):
        if item is not None and not 0 <= item <= 255:
            reason = (
                f"Invalid value for ICMP {name} {item}. For ICMP, the type:code must be valid: each is a number from 0 "
                "to 255."
            )
            raise _refused("SecurityGroupInvalidIcmpValue", reason)


def _check_ports(rule: SecurityGroupRule) -> None:
    low, high = rule.port_range_min, rule.port_range_max
    if (low is None) != (high is None):
        reason = "A range of ports has two ends: port_range_min must be <= port_range_max."
        raise _refused("SecurityGroupInvalidPortRange", reason)
    if low is None or high is None:
        return
    if not (1 <= low <= 65535 and 1 <= high <= 65535):
        reason = f"Valid {str(rule.protocol).upper()} ports should be between 1-65535."
        raise _refused("SecurityGroupInvalidPortValue", reason)
    if low > high:
        reason = (
            f"Invalid port range {low}:{high}: port_range_min must be <= port_range_max. The former value cannot be "
            "greater than the later."
        )
        raise _refused("SecurityGroupInvalidPortRange", reason)


def _check_remote(rule: SecurityGroupRule) -> None:
    if [rule.remote_ip_prefix, rule.remote_group_id, rule.remote_address_group_id].count(None) < 2:
        reason = "Only one of remote_ip_prefix, remote_group_id and remote_address_group_id may be provided."
        raise _refused("SecurityGroupMultipleRemoteEntites", reason)
    if rule.remote_ip_prefix is None:
        return
    try:
        prefix = ip.parse_network(rule.remote_ip_prefix, strict=False)
    except ValueError as error:
        raise _refused("InvalidCIDR", f"Invalid cidr {rule.remote_ip_prefix[:64]}: {error}.") from error
    if prefix.version != (4 if rule.ethertype == IPV4 else 6):
        reason = f"Conflicting value ethertype {rule.ethertype} for CIDR {rule.remote_ip_prefix}"
        raise _refused("SecurityGroupRuleParameterConflict", reason)
    if "/" not in rule.remote_ip_prefix:
        rule.remote_ip_prefix = str(prefix)
