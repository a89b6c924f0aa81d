"""Networks, in the form of the compute API."""

from __future__ import annotations

import ipaddress
from typing import Any

from nova_lite.api.http.wsgi import Request
from nova_lite.objects import Network, ipv6

#: What the form has besides and the built-in networks do not: always null, and for admins only.
_UNKNOWN_TO_ADMINS = (
    *("created_at", "updated_at", "deleted_at", "deleted", "injected", "vlan", "vpn_public_address"),
    *("vpn_public_port", "vpn_private_address", "host", "bridge_interface", "multi_host", "priority", "rxtx_base"),
    *("dhcp_server", "enable_dhcp", "share_address"),
)


def show(req: Request, network: Network) -> dict[str, Any]:
    subnet = ipaddress.IPv4Network(network.cidr)
    dns = [*network.dns, None, None]
    view: dict[str, Any] = {
        "id": network.id,
        "label": network.name,
        "cidr": network.cidr,
        "netmask": str(subnet.netmask),
        "gateway": network.gateway,
        "broadcast": str(subnet.broadcast_address),
        "dns1": dns[0],
        "dns2": dns[1],
        "cidr_v6": network.cidr6 or None,
        "gateway_v6": ipv6.gateway(network),
        "netmask_v6": str(ipaddress.IPv6Network(network.cidr6).prefixlen) if network.cidr6 else None,
    }
    if req.context.is_admin:
        view |= dict.fromkeys(_UNKNOWN_TO_ADMINS)
        view |= {
            "bridge": network.bridge,
            "dhcp_start": network.start,
            "mtu": network.mtu,
            "project_id": network.project_id,
        }
    return view
