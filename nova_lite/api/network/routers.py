"""Routers. This network service has none, so lists of them are empty and creating one is refused."""

from __future__ import annotations

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import listing
from nova_lite.api.network.resource import Resource
from nova_lite.base import exceptions


class RouterResource(Resource):
    """Handlers of ``/routers``."""

    def routers(self, req: ServiceRequest) -> Response:
        return self.listed(req, "routers", listing.constant([]))

    def router(self, req: ServiceRequest, id: str) -> Response:
        raise exceptions.NotFound(f"Router {id[:64]} could not be found: this network service has no routers.")

    def create_router(self, req: ServiceRequest) -> Response:
        raise exceptions.NotServed(
            what="Making a router",
            instead=" The hosts route between its networks and to the outside, and floating addresses need no router.",
        )
