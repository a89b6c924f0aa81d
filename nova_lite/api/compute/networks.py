"""``/os-networks`` until 2.35: the built-in networks, which clients find by name."""

from __future__ import annotations

from typing import Any

from nova_lite.api.http.microversions import LAST_WITH_PROXIES
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.base import exceptions, ip
from nova_lite.objects import Network, ipv6
from nova_lite.policies import networks as policies


class Networks(Extension):
    alias = "os-networks"
    title = "Networks"
    routes = (
        Route("GET", "/os-networks", "index", until=LAST_WITH_PROXIES),
        Route("GET", "/os-networks/{id}", "show", until=LAST_WITH_PROXIES),
    )

    @declares(policies.LIST, response="networks")
    def index(self, req: Request) -> Response:
        networks = self.conductor.network_list(req.context)
        return Response({"networks": [_view(req, network) for network in networks]})

    @declares(policies.SHOW, response="network")
    def show(self, req: Request, id: str) -> Response:
        return Response({"network": _view(req, find(self.conductor.network_list(req.context, id), id))})


def find(networks: list[Network], id: str) -> Network:
    """Return the network with this id. Raises `NetworkNotFound`."""
    for network in networks:
        if network.id == id:
            return network
    raise exceptions.NetworkNotFound(network_id=id[:64])


# --- views

#: Properties that only admins see, and that built-in networks do not have: always null.
_NULL_FOR_ADMINS = (
    "created_at", "updated_at", "deleted_at", "deleted", "injected", "vlan", "vpn_public_address", "vpn_public_port",
    "vpn_private_address", "host", "bridge_interface", "multi_host", "priority", "rxtx_base", "dhcp_server",
    "enable_dhcp", "share_address",
)  # fmt: skip


def _view(req: Request, network: Network) -> dict[str, Any]:
    subnet = ip.parse_network4(network.cidr)
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
        "netmask_v6": str(ip.parse_network6(network.cidr6).prefixlen) if network.cidr6 else None,
    }
    if req.context.is_admin:
        view |= dict.fromkeys(_NULL_FOR_ADMINS)
        view |= {
            "bridge": network.bridge or None,
            "dhcp_start": network.start,
            "mtu": network.mtu,
            "project_id": network.project_id,
        }
    return view
