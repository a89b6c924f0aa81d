"""Allocations of servers, usages of projects, and candidates for new allocations."""

from __future__ import annotations

from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.placement import matching, queries, versions, views
from nova_lite.api.placement.resource import PlacementResource, respond
from nova_lite.api.placement.versions import Change
from nova_lite.base import exceptions
from nova_lite.objects import ResourceProvider
from nova_lite.policies import placement_service as policies


class Allocations(PlacementResource):
    """Allocations, usages and candidates."""

    @route("GET", "/allocations/{id}", policies.ALLOCATIONS, response="allocations")
    def show(self, req: ServiceRequest, id: str) -> Response:
        """Show the allocations of a consumer. An unknown consumer has none."""
        found = list(self.allocations_of(req, {"consumer": [id]}))
        changed_at = max((item.created_at for item in found if item.created_at is not None), default=None)
        return respond(req, views.allocations_of_consumer(found, versions.minor_of(req)), changed_at)

    @route("GET", "/usages", policies.USAGES, authorizes=True, query=("project_id", "user_id", "consumer_type"))
    def usages(self, req: ServiceRequest) -> Response:
        minor = versions.require(req, Change.USAGES)
        project_id, types = req.GET.get("project_id"), {"consumer_type"} if minor >= Change.CONSUMER_TYPES else set()
        req.authorize(policies.USAGES, {"project_id": project_id})
        queries.check_names(req.GET, {"project_id", "user_id", *types})
        if not project_id:
            raise exceptions.ValidationError(
                detail="Invalid query string parameters: 'project_id' is a required property"
            )
        filters = {"project_id": [project_id]}
        if "user_id" in req.GET:
            filters["user_id"] = [req.GET["user_id"]]
        allocations = self.allocations_of(req, filters)
        return respond(req, views.total_usages(allocations, minor, req.GET.get("consumer_type")))

    @route("GET", "/allocation_candidates", policies.CANDIDATES, query=tuple(queries.CANDIDATES))
    def candidates(self, req: ServiceRequest) -> Response:
        minor = versions.require(req, Change.CANDIDATES)
        query = queries.of_candidates(req.GET, minor)
        queries.check_traits([query.root, *query.groups.values()], self.known_traits(req))
        found: list[ResourceProvider] = []
        if not query.separate:
            found = matching.candidates(self.providers(req, {}), query.groups.values(), query.root)
        return respond(req, views.candidates(found[: query.limit], query.groups, minor))
