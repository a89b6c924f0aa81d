"""Base of the Placement API's resources: what they read, and the headers of their responses."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import TypeVar

from nova_lite.api.http.rest import ServiceRequest, ServiceResource
from nova_lite.api.http.wsgi import Response
from nova_lite.api.placement import versions, views
from nova_lite.base import exceptions
from nova_lite.hardware import traits
from nova_lite.objects import ListQuery, ResourceAllocation, ResourceProvider

T = TypeVar("T", ResourceProvider, ResourceAllocation)

Filters = dict[str, list[str]]


class PlacementResource(ServiceResource):
    """Resource of the Placement API."""

    def provider(self, req: ServiceRequest, uuid: str) -> ResourceProvider:
        for found in self.providers(req, {"uuid": [uuid.lower()]}):
            return found
        raise exceptions.NotFound(f"No resource provider with uuid {uuid[:64]} found")

    def providers(self, req: ServiceRequest, filters: Filters) -> Iterator[ResourceProvider]:
        return self._read(req, self.conductor.resource_provider_list, filters, "uuid")

    def allocations_of(self, req: ServiceRequest, filters: Filters) -> Iterator[ResourceAllocation]:
        return self._read(req, self.conductor.resource_allocation_list, filters, "id")

    def _read(self, req: ServiceRequest, fetch: Callable[..., list[T]], filters: Filters, key: str) -> Iterator[T]:
        """Yield all records, page by page. ``key``: the attribute by which a page continues."""
        marker = None
        while True:
            page = fetch(req.context, ListQuery(filters=filters, marker=marker, limit=self.conf.api.max_limit))
            yield from page
            if len(page) < self.conf.api.max_limit:
                return
            marker = str(getattr(page[-1], key))

    def known_traits(self, req: ServiceRequest) -> set[str]:
        return self.traits_of_providers(req).union(traits.KNOWN)

    def traits_of_providers(self, req: ServiceRequest) -> set[str]:
        return {trait for provider in self.providers(req, {}) for trait in provider.traits}


def respond(req: ServiceRequest, body: views.View, changed_at: datetime.datetime | None = None) -> Response:
    return Response(body, headers=versions.cache_headers(versions.minor_of(req), changed_at))
