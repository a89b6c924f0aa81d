"""Base class of the resources that only the network API knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import listing, views
from nova_lite.api.network.resource import NetworkResource
from nova_lite.base import exceptions
from nova_lite.objects import NetworkObject

T = TypeVar("T", bound=NetworkObject)


class Kind(NamedTuple, Generic[T]):
    """Kind of `nova_lite.objects.network_api_resources`.

    ``name``: in requests to the conductor. ``missing``: returns the error for an id that the caller cannot see.
    """

    name: str
    record: type[T]
    view: Callable[[NetworkObject], views.View]
    missing: Callable[[str], exceptions.NotFound]


class NetworkObjects(NetworkResource, Generic[T]):
    """Resources that only the network API knows."""

    kind: Kind[T]

    def listed_objects(self, req: ServiceRequest) -> Response:
        found = self.conductor.network_object_list(req.context, self.kind.name)
        return self.listed(req, listing.constant([self.kind.view(item) for item in found]))

    def find(self, req: ServiceRequest, id: str) -> T:
        for item in self.conductor.network_object_list(req.context, self.kind.name, [id]):
            if item.id == id and isinstance(item, self.kind.record):
                return item
        raise self.kind.missing(id[:64])

    def shown(self, req: ServiceRequest, id: str) -> views.View:
        return listing.cut(req, self.kind.view(self.find(req, id)))

    def make(self, req: ServiceRequest, item: T) -> views.View:
        return self.kind.view(self.conductor.network_object_create(req.context, item))

    def changed(self, req: ServiceRequest, found: T, changes: dict[str, Any]) -> views.View:
        return self.kind.view(self.conductor.network_object_update(req.context, self.kind.name, found.id, changes))

    def deleted(self, req: ServiceRequest, id: str) -> None:
        self.conductor.network_object_delete(req.context, self.kind.name, self.find(req, id).id)
