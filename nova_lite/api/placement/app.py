"""The Placement API. It reads, and changes nothing."""

from __future__ import annotations

from typing import Any

import webob
import webob.exc

from nova_lite.api.http import deploy, wsgi
from nova_lite.api.http.rest import ServiceApplication, ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.placement import versions
from nova_lite.api.placement.resources import Allocations, Providers, ResourceClasses, Traits
from nova_lite.api.placement.versions import Change

READ_ONLY = (
    "This cloud places servers itself, by its own claims: its Placement API only shows them. Create, move or delete "
    "the server with the compute API."
)
#: Code of errors that have none of their own.
_CODE = "placement.undefined_code"


def app_factory(global_conf: dict[str, str], **local_conf: str) -> PlacementApp:
    del global_conf, local_conf
    return PlacementApp(deploy.services())


class PlacementApp(ServiceApplication):
    """WSGI application, mounted at the root."""

    api = "placement"
    resources = (Providers, Allocations, ResourceClasses, Traits)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        """Add the version header to every response."""
        return super().__call__(environ, versions.with_header(environ, start_response))

    def _handle(self, req: ServiceRequest) -> Response | webob.Response:
        versions.minor_of(req)
        if req.method not in ("GET", "HEAD"):
            raise webob.exc.HTTPMethodNotAllowed(explanation=READ_ONLY, headers={"Allow": "GET"})
        return super()._handle(req)

    def fault(self, req: ServiceRequest, code: int, message: str) -> webob.Response:
        fault: dict[str, Any] = {"status": code, "title": webob.exc.status_map[code].title, "detail": message}
        fault["request_id"] = req.environ.get(wsgi.REQUEST_ID, "")
        try:
            if versions.minor_of(req) >= Change.ERROR_CODES:
                fault["code"] = _CODE
        except webob.exc.HTTPError:
            fault |= {"min_version": f"1.{versions.MINIMUM}", "max_version": f"1.{versions.MAXIMUM}"}
        return wsgi.to_response(Response({"errors": [fault]}, code))
