"""Base class of the network API's resources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from nova_lite.api.http import rest
from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import listing, views
from nova_lite.base.context import RequestContext
from nova_lite.objects import NetworkResources

T = TypeVar("T")
H = TypeVar("H", bound=Callable[..., Any])


class NetworkResource(rest.ServiceResource):
    """Handlers of one kind of resource."""

    def require_changeable(self, req: ServiceRequest, id: str) -> None:
        """Raise an error for a resource that no user changes. The conductor refuses those of other projects."""

    def change_tags(
        self, req: ServiceRequest, kind: str, id: str, add: list[str], remove: list[str] | None
    ) -> list[str]:
        """Change the tags of a resource, and return them. ``kind``: the conductor's name of its kind."""
        return self.conductor.network_tags_change(req.context, kind, id, add, remove)

    def created(
        self,
        req: ServiceRequest,
        wanted: tuple[list[T], bool],
        create: Callable[[RequestContext, T], T],
        view: Callable[[T], views.View],
    ) -> Response | views.View:
        """Create one resource by ``create``, or several in one transaction, and return the response.

        ``wanted``: the resources, and whether the request is for several.
        """
        resources, is_bulk = wanted
        if not is_bulk:
            return view(create(req.context, resources[0]))
        plural = f"{req.service_route.response}s"
        lists: dict[str, Any] = {plural: resources}
        made = self.conductor.network_resources_create(req.context, NetworkResources(**lists))
        return Response({plural: [view(item) for item in getattr(made, plural)]}, 201)

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
