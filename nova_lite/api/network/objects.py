"""Base class of the resources that only the network API knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import listing, views
from nova_lite.api.network.resource import Resource
from nova_lite.base import exceptions
from nova_lite.objects import NetworkObject

T = TypeVar("T", bound=NetworkObject)


class ObjectResource(Resource):
    """Lists and finds resources of `nova_lite.objects.network_api_resources`."""

    def listed_objects(self, req: ServiceRequest, kind: str, view: Callable[[Any], views.View]) -> Response:
        shown = [view(item) for item in self.conductor.network_object_list(req.context, kind)]
        return self.listed(req, kind, listing.constant(shown))

    def find_object(
        self, req: ServiceRequest, which: tuple[str, str], kind: type[T], missing: exceptions.NotFound
    ) -> T:
        """Return the resource ``which``, a kind and an id, that the caller may see. Raises ``missing``."""
        name, object_id = which
        for item in self.conductor.network_object_list(req.context, name, [object_id]):
            if item.id == object_id and isinstance(item, kind):
                return item
        raise missing
