"""``/servers/{server_id}/ips``: the addresses of a server."""

from __future__ import annotations

from nova_lite.api.compute import schema_types as t
from nova_lite.api.compute.servers import view
from nova_lite.api.http.wsgi import ANY_KEY, Extension, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.policies import servers as policies

_IPS = "/servers/{server_id}/ips"


class Ips(Extension):
    alias = "ips"
    title = "Addresses of a server"
    routes = (
        Route("GET", _IPS, "index"),
        Route("GET", _IPS + "/{label}", "show"),
    )

    @declares(policies.IPS_INDEX, query=t.NO_PARAMETERS, response="addresses")
    def index(self, req: Request, server_id: str) -> Response:
        return Response({"addresses": view.addresses(self.conductor.instance_get(req.context, server_id))})

    @declares(policies.IPS_SHOW, query=t.NO_PARAMETERS, response=ANY_KEY)
    def show(self, req: Request, server_id: str, label: str) -> Response:
        networks = view.addresses(self.conductor.instance_get(req.context, server_id))
        if label not in networks:
            raise exceptions.NotFound("Instance is not a member of specified network")
        return Response({label: networks[label]})
