"""Security groups as the compute API has shown them since it had its own: what comes in, and of IPv4 or IPv6 alike."""

from __future__ import annotations

from typing import Any

from nova_lite.objects import SecurityGroup, SecurityGroupRule
from nova_lite.objects.security_group import INGRESS, IPV4

_ALL_PORTS = (1, 65535)
_NONE = (-1, -1)


def group(found: SecurityGroup) -> dict[str, Any]:
    return {
        "id": found.id,
        "name": found.name,
        "description": found.description or "",
        "tenant_id": found.project_id,
        "rules": [rule(each, found.project_id) for each in found.rules if each.direction == INGRESS],
    }


def rule(found: SecurityGroupRule, project_id: str) -> dict[str, Any]:
    low, high = _ports(found)
    everybody = "0.0.0.0/0" if found.ethertype == IPV4 else "::/0"
    by_group = found.remote_group_id is not None
    return {
        "id": found.id,
        "parent_group_id": found.security_group_id,
        "ip_protocol": found.protocol,
        "from_port": low,
        "to_port": high,
        "group": {"name": found.remote_group_name, "tenant_id": project_id} if by_group else {},
        "ip_range": {} if by_group else {"cidr": found.remote_ip_prefix or everybody},
    }


def _ports(found: SecurityGroupRule) -> tuple[int, int]:
    low, high = found.port_range_min, found.port_range_max
    if found.protocol in ("tcp", "udp") and low is None:
        return _ALL_PORTS
    return _NONE if low is None else (low, -1 if high is None else high)
