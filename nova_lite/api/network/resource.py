"""Base class of the network API's resources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import webob

from nova_lite.api.http import rest, wsgi
from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import faults, listing, requests, views
from nova_lite.base import exceptions
from nova_lite.objects import NetworkResources

T = TypeVar("T")
H = TypeVar("H", bound=Callable[..., Any])


class Resource(rest.ServiceApplication):
    """Handlers of one kind of resource. `nova_lite.api.network.app.NetworkApp` inherits from all of them."""

    def _handle(self, req: ServiceRequest) -> Response | webob.Response:
        """Handle a request. The conductor compares the revision that a change names (``If-Match``)."""
        if req.method in ("PUT", "DELETE") and wsgi.CONTEXT in req.environ:
            req.context.revision = requests.expected_revision(req)
        return super()._handle(req)

    def fault(self, req: ServiceRequest, code: int, message: str) -> webob.Response:
        return faults.response(faults.name_of(code), code, message)

    def refusal(self, req: ServiceRequest, error: exceptions.NovaLiteException) -> webob.Response:
        return faults.response(*faults.name_and_status(error), error.message)

    def created(
        self,
        req: ServiceRequest,
        key: str,
        wanted: tuple[list[T], bool],
        create: Callable[[T], T],
        view: Callable[[T], views.View],
    ) -> Response:
        """Create one resource by ``create``, or several in one transaction, and return the response.

        ``wanted``: the resources, and whether the request is for several.
        """
        resources, is_bulk = wanted
        if not is_bulk:
            return Response({key: view(create(resources[0]))}, 201)
        plural = f"{key}s"
        lists: dict[str, Any] = {plural: resources}
        made = self.conductor.network_resources_create(req.context, NetworkResources(**lists))
        return Response({plural: [view(item) for item in getattr(made, plural)]}, 201)

    def listed(self, req: ServiceRequest, key: str, source: listing.Source[Any]) -> Response:
        """Return the response to a list request: filtered, sorted, and one page of it."""
        return listing.listed(req, key, source, views.ATTRIBUTES[key], self.conf.api.max_limit)


class NetworkResource(rest.ServiceResource):
    """Handlers of one kind of resource."""

    def listed(self, req: ServiceRequest, source: listing.Source[Any]) -> Response:
        """Return the response to a list request: filtered, sorted, and one page of it."""
        key = req.service_route.response or ""
        return listing.listed(req, key, source, views.ATTRIBUTES[key], self.conf.api.max_limit)


def lists(path: str, policy: str, key: str) -> Callable[[H], H]:
    """Declare the URL of a list, which may be filtered by each attribute of its resources."""
    return rest.route("GET", path, policy, query=listing.parameters(views.ATTRIBUTES[key]), response=key)


def shows(path: str, policy: str, key: str) -> Callable[[H], H]:
    """Declare the URL of one resource."""
    return rest.route("GET", path, policy, query=("fields",), response=key)
