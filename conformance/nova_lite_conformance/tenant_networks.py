"""``/os-tenant-networks`` until 2.35: the networks of a project, in the form of nova-network."""

from __future__ import annotations

from nova_lite.api.compute.networks import find
from nova_lite.api.http.microversions import LAST_WITH_PROXIES
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.objects import Network
from nova_lite_conformance import policies


class TenantNetworks(Extension):
    alias = "os-tenant-networks"
    title = "Networks of a project"
    routes = (
        Route("GET", "/os-tenant-networks", "index", until=LAST_WITH_PROXIES),
        Route("GET", "/os-tenant-networks/{id}", "show", until=LAST_WITH_PROXIES),
    )

    @declares(policies.TENANT_NETWORKS_LIST, response="networks")
    def index(self, req: Request) -> Response:
        return Response({"networks": [_view(network) for network in self.conductor.network_list(req.context)]})

    @declares(policies.TENANT_NETWORKS_SHOW, response="network")
    def show(self, req: Request, id: str) -> Response:
        return Response({"network": _view(find(self.conductor.network_list(req.context, id), id))})


def _view(network: Network) -> dict[str, str]:
    return {"id": network.id, "cidr": network.cidr, "label": network.name}
