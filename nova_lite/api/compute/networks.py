"""``/os-networks`` until 2.35: the built-in networks, by which clients find one by name."""

from __future__ import annotations

from nova_lite.api.compute.views import networks as views
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.objects import Network
from nova_lite.policies import proxies as policies

LAST = Change.NO_PROXIES - 1


class Networks(Extension):
    alias = "os-networks"
    title = "Networks"
    routes = (
        Route("GET", "/os-networks", "index", until=LAST),
        Route("GET", "/os-networks/{id}", "show", until=LAST),
    )

    @declares(policies.NETWORKS_LIST, answer="networks")
    def index(self, req: Request) -> Response:
        networks = self.conductor.network_list(req.context)
        return Response({"networks": [views.show(req, network) for network in networks]})

    @declares(policies.NETWORKS_SHOW, answer="network")
    def show(self, req: Request, id: str) -> Response:
        return Response({"network": views.show(req, find(self.conductor.network_list(req.context), id))})


def find(networks: list[Network], id: str) -> Network:
    """Raises `NetworkNotFound`."""
    for network in networks:
        if network.id == id:
            return network
    raise exceptions.NetworkNotFound(network_id=id[:64])
