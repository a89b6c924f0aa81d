"""Resource providers: the hosts, with their inventories, usages, allocations, traits and aggregates."""

from __future__ import annotations

from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.placement import matching, queries, versions, views
from nova_lite.api.placement.resource import PlacementResource, respond
from nova_lite.api.placement.versions import Change
from nova_lite.base import exceptions
from nova_lite.policies import placement_service as policies

_ONE = "/resource_providers/{id}"


class Providers(PlacementResource):
    """Resource providers."""

    @route(
        "GET", "/resource_providers", policies.PROVIDERS, query=tuple(queries.PROVIDERS), response="resource_providers"
    )
    def index(self, req: ServiceRequest) -> Response:
        minor = versions.minor_of(req)
        needs = queries.of_providers(req.GET, minor)
        uuid = queries.uuid(req.GET, "uuid") or needs.in_tree
        filters = {} if uuid is None else {"uuid": [uuid]}
        if "name" in req.GET:
            filters["name"] = [req.GET["name"]]
        found = list(self.providers(req, filters))
        queries.check_traits([needs], self.known_traits(req))
        shown = [item for item in found if matching.matches(item, needs)]
        views_ = [views.provider(item, req.script_name, minor) for item in shown]
        changed_at = max((item.changed_at for item in shown if item.changed_at is not None), default=None)
        return respond(req, {"resource_providers": views_}, changed_at)

    @route("GET", _ONE, policies.PROVIDER)
    def show(self, req: ServiceRequest, id: str) -> Response:
        found = self.provider(req, id)
        return respond(req, views.provider(found, req.script_name, versions.minor_of(req)), found.changed_at)

    @route("GET", f"{_ONE}/inventories", policies.INVENTORIES, response="inventories")
    def inventories(self, req: ServiceRequest, id: str) -> Response:
        found = self.provider(req, id)
        shown = {name: views.inventory(item) for name, item in found.inventories.items()}
        return respond(req, {"inventories": shown, views.GENERATION: found.generation}, found.changed_at)

    @route("GET", f"{_ONE}/inventories/{{name}}", policies.INVENTORY)
    def inventory(self, req: ServiceRequest, id: str, name: str) -> Response:
        found = self.provider(req, id)
        if name not in found.inventories:
            raise exceptions.NotFound(f"No inventory of class {name[:64]} for {found.uuid}")
        shown = views.inventory(found.inventories[name]) | {views.GENERATION: found.generation}
        return respond(req, shown, found.changed_at)

    @route("GET", f"{_ONE}/usages", policies.PROVIDER_USAGES, response="usages")
    def usages(self, req: ServiceRequest, id: str) -> Response:
        found = self.provider(req, id)
        return respond(req, {"usages": views.usages(found), views.GENERATION: found.generation})

    @route("GET", f"{_ONE}/allocations", policies.PROVIDER_ALLOCATIONS, response="allocations")
    def allocations(self, req: ServiceRequest, id: str) -> Response:
        found = self.provider(req, id)
        allocations = self.allocations_of(req, {"provider": [found.uuid]})
        minor = versions.minor_of(req)
        return respond(req, views.allocations_of_provider(found, allocations, minor))

    @route("GET", f"{_ONE}/traits", policies.PROVIDER_TRAITS, response="traits")
    def traits(self, req: ServiceRequest, id: str) -> Response:
        versions.require(req, Change.TRAITS)
        found = self.provider(req, id)
        return respond(req, {"traits": found.traits, views.GENERATION: found.generation}, found.changed_at)

    @route("GET", f"{_ONE}/aggregates", policies.PROVIDER_AGGREGATES, response="aggregates")
    def aggregates(self, req: ServiceRequest, id: str) -> Response:
        minor = versions.require(req, Change.AGGREGATES)
        found = self.provider(req, id)
        shown: views.View = {"aggregates": found.aggregates}
        if minor >= Change.AGGREGATES_GENERATION:
            shown[views.GENERATION] = found.generation
        return respond(req, shown)
