"""What old clients (until 2.35) ask here of the network service: the built-in networks are all networks."""

from __future__ import annotations

from nova_lite.api.compute import networks
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.objects import Network
from nova_lite.policies import proxies as policies


class TenantNetworks(Extension):
    alias = "os-tenant-networks"
    title = "Networks of a project"
    routes = (
        Route("GET", "/os-tenant-networks", "index", until=networks.LAST),
        Route("GET", "/os-tenant-networks/{id}", "show", until=networks.LAST),
    )

    @declares(policies.TENANT_NETWORKS_LIST, answer="networks")
    def index(self, req: Request) -> Response:
        return Response({"networks": [_network(network) for network in self.conductor.network_list(req.context)]})

    @declares(policies.TENANT_NETWORKS_SHOW, answer="network")
    def show(self, req: Request, id: str) -> Response:
        return Response({"network": _network(networks.find(self.conductor.network_list(req.context), id))})


def _network(network: Network) -> dict[str, str]:
    return {"id": network.id, "cidr": network.cidr, "label": network.name}
