"""Which parts of Neutron's API are here: the names by which clients ask."""

from __future__ import annotations

from typing import Any

_KNOWN = {
    "agent": ("agent", "The compute hosts, each as an agent"),
    "availability_zone": ("Availability Zone", "Those of the compute hosts"),
    "binding": ("Port Binding", "On which host a port is, for admins"),
    "external-net": ("Neutron external network", "Pools of floating addresses are external networks"),
    "filter-validation": ("Filter parameters validation", "A filter that is not known is refused"),
    "fip-port-details": ("Floating IP Port Details Extension", "Floating addresses tell where they lead"),
    "net-mtu": ("Network MTU", "Networks tell their MTU"),
    "network_availability_zone": ("Network Availability Zone", "Networks are in all zones"),
    "pagination": ("Pagination support", "Lists come in pages"),
    "port-security": ("Port Security", "Ports are always filtered"),
    "project-id": ("project_id field enabled", "Things tell their project as project_id and tenant_id"),
    "quota_details": ("Quota details management support", "Quotas tell what is used"),
    "quotas": ("Quota management support", "Quotas of projects"),
    "router": ("Neutron L3 Router", "Floating addresses; there are no routers"),
    "security-group": ("security-group", "Security groups and their rules"),
    "sorting": ("Sorting support", "Lists are sorted by any attribute"),
    "standard-attr-description": ("standard-attr-description", "Things have a description"),
    "standard-attr-timestamp": ("Resource timestamps", "Things tell when they were made and changed"),
}


def views() -> list[dict[str, Any]]:
    return [
        {"alias": alias, "name": name, "description": text, "updated": "2026-01-01T00:00:00-00:00", "links": []}
        for alias, (name, text) in _KNOWN.items()
    ]
