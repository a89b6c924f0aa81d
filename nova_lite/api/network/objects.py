"""Base class of the resources that only the network API knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from nova_lite.api.http.rest import ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import listing, views
from nova_lite.api.network.resource import NetworkResource
from nova_lite.base import exceptions
from nova_lite.objects import NetworkObject

T = TypeVar("T", bound=NetworkObject)


class NetworkObjects(NetworkResource, Generic[T]):
    """Resources of `nova_lite.objects.network_api_resources`. Each kind has routes to list, show and delete them.

    ``kind``: the conductor's name, and the key of a list. ``key``: of one resource. ``rules``: to read, create, change
    and delete them.
    """

    path: str
    kind: str
    key: str
    record: type[T]
    rules: tuple[str, str, str, str]

    def view(self, found: NetworkObject) -> views.View:
        raise NotImplementedError

    def missing(self, id: str) -> exceptions.NotFound:
        """Return the error for an id that the caller cannot see."""
        raise NotImplementedError

    @classmethod
    def declared_routes(cls) -> Iterator[ServiceRoute]:
        one, (get, _, _, delete) = f"{cls.path}/{{id}}", cls.rules
        query = listing.parameters(views.ATTRIBUTES[cls.kind])
        yield ServiceRoute("GET", cls.path, "index", get, query=query, response=cls.kind, resource=cls)
        yield ServiceRoute("GET", one, "show", get, query=("fields",), response=cls.key, resource=cls)
        yield ServiceRoute("DELETE", one, "delete", delete, status=204, resource=cls)
        yield from super().declared_routes()

    def index(self, req: ServiceRequest) -> Response:
        found = self.conductor.network_object_list(req.context, self.kind)
        return self.listed(req, listing.constant([self.view(item) for item in found]))

    def find(self, req: ServiceRequest, id: str) -> T:
        for item in self.conductor.network_object_list(req.context, self.kind, [id]):
            if item.id == id and isinstance(item, self.record):
                return item
        raise self.missing(id[:64])

    def show(self, req: ServiceRequest, id: str) -> views.View:
        return listing.cut(req, self.view(self.find(req, id)))

    def make(self, req: ServiceRequest, item: T) -> views.View:
        return self.view(self.conductor.network_object_create(req.context, item))

    def changed(self, req: ServiceRequest, found: T, changes: dict[str, Any]) -> views.View:
        return self.view(self.conductor.network_object_update(req.context, self.kind, found.id, changes))

    def delete(self, req: ServiceRequest, id: str) -> None:
        self.conductor.network_object_delete(req.context, self.kind, self.find(req, id).id)
