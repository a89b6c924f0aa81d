"""Version document of the identity API, which needs no authentication."""

from __future__ import annotations

from typing import Any

from nova_lite.api.http.rest import PUBLIC, ServiceRequest, ServiceResource, route
from nova_lite.api.http.wsgi import Response


class Versions(ServiceResource):
    """Versions of the identity API."""

    @route("GET", "/", PUBLIC, response="versions", status=300)
    def index(self, req: ServiceRequest) -> Response:
        return Response({"versions": {"values": [_document(req.base_url)]}}, 300, {"Vary": "X-Auth-Token"})

    @route("GET", "/v3", PUBLIC, response="version")
    def show(self, req: ServiceRequest) -> Response:
        return Response({"version": _document(req.base_url)}, 200, {"Vary": "X-Auth-Token"})


def _document(base_url: str) -> dict[str, Any]:
    return {
        "id": "v3.14",
        "status": "stable",
        "updated": "2020-04-07T00:00:00Z",
        "links": [{"rel": "self", "href": f"{base_url}/v3/"}],
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}],
    }
