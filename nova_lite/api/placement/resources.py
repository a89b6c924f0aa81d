"""Resources of the Placement API: providers (hosts and devices), allocations, and names of classes and traits."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TypeVar

import msgspec

from nova_lite.api.http.rest import ServiceRequest, ServiceResource, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.placement import matching, queries, versions, views
from nova_lite.api.placement.matching import Needs
from nova_lite.api.placement.versions import Change
from nova_lite.base import exceptions
from nova_lite.hardware import traits
from nova_lite.objects import ListQuery, ResourceAllocation, ResourceProvider
from nova_lite.policies import placement_service as policies

_ONE = "/resource_providers/{id}"

T = TypeVar("T", ResourceProvider, ResourceAllocation)

Filters = dict[str, list[str]]


class PlacementResource(ServiceResource):
    """Resource of the Placement API."""

    def provider(self, req: ServiceRequest, uuid: str) -> ResourceProvider:
        for found in self.tree(req, "uuid", uuid.lower()):
            if found.uuid == uuid.lower():
                return found
        raise exceptions.NotFound(f"No resource provider with uuid {uuid[:64]} found")

    def tree(self, req: ServiceRequest, key: str, value: str) -> list[ResourceProvider]:
        """Return the node that has a uuid or name, or whose device has it, and its devices. Empty: there is none."""
        for node in self.nodes(req, {key: [value]}):
            return node.tree
        return next(
            (node.tree for node in self.nodes(req, {}) if any(getattr(item, key) == value for item in node.devices)), []
        )

    def providers(self, req: ServiceRequest) -> Iterator[ResourceProvider]:
        for node in self.nodes(req, {}):
            yield from node.tree

    def nodes(self, req: ServiceRequest, filters: Filters) -> Iterator[ResourceProvider]:
        return self._read(req, self.conductor.resource_provider_list, filters, "uuid")

    def allocations_of(self, req: ServiceRequest, filters: Filters) -> Iterator[ResourceAllocation]:
        """Yield the allocations, those of devices separately."""
        for found in self._read(req, self.conductor.resource_allocation_list, filters, "id"):
            yield found
            for provider, resources in found.devices.items():
                yield msgspec.structs.replace(found, provider=provider, resources=resources)

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
        return {trait for provider in self.providers(req) for trait in provider.traits}

    def check_names(self, req: ServiceRequest, groups: Collection[Needs]) -> None:
        """Refuse unknown resource classes and traits."""
        if not all(name in queries.STANDARD_CLASSES for needs in groups for name in needs.resources):
            queries.check_classes(groups, self.known_classes(req))
        queries.check_traits(groups, self.known_traits(req))

    def known_classes(self, req: ServiceRequest) -> list[str]:
        found = {name for provider in self.providers(req) for name in provider.inventories}
        return [*queries.STANDARD_CLASSES, *sorted(found.difference(queries.STANDARD_CLASSES))]


def respond(req: ServiceRequest, body: views.View, changed_at: datetime.datetime | None = None) -> Response:
    return Response(body, headers=versions.cache_headers(versions.minor_of(req), changed_at))


class Providers(PlacementResource):
    """Resource providers."""

    @route(
        "GET", "/resource_providers", policies.PROVIDERS, query=tuple(queries.PROVIDERS), response="resource_providers"
    )
    def index(self, req: ServiceRequest) -> Response:
        minor = versions.minor_of(req)
        needs = queries.of_providers(req.GET, minor)
        self.check_names(req, [needs])
        uuid, name = queries.uuid(req.GET, "uuid"), req.GET.get("name")
        if one := needs.in_tree or uuid:
            found: Iterable[ResourceProvider] = self.tree(req, "uuid", one)
        else:
            found = self.providers(req) if name is None else self.tree(req, "name", name)
        shown = [
            item
            for item in found
            if uuid in (None, item.uuid) and name in (None, item.name) and matching.matches(item, needs)
        ]
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
        of_node = self.allocations_of(req, {"provider": [found.parent or found.uuid]})
        allocations = [item for item in of_node if item.provider == found.uuid]
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
        self.check_names(req, [query.root, *query.groups.values()])
        trees = ([node] if minor < Change.CANDIDATES_TREES else node.tree for node in self.nodes(req, {}))
        found = (matching.candidate(tree, query.groups, query.root, query.separate) for tree in trees)
        shown = list(itertools.islice((item for item in found if item is not None), query.limit))
        return respond(req, views.candidates(shown, minor))


class ResourceClasses(PlacementResource):
    """Resource classes."""

    @route("GET", "/resource_classes", policies.CLASSES, response="resource_classes")
    def index(self, req: ServiceRequest) -> Response:
        versions.require(req, Change.RESOURCE_CLASSES)
        shown = [views.resource_class(name, req.script_name) for name in self.known_classes(req)]
        return respond(req, {"resource_classes": shown})

    @route("GET", "/resource_classes/{name}", policies.CLASS)
    def show(self, req: ServiceRequest, name: str) -> Response:
        versions.require(req, Change.RESOURCE_CLASSES)
        if name not in self.known_classes(req):
            raise exceptions.NotFound(f"No such resource class {name[:64]}.")
        return respond(req, views.resource_class(name, req.script_name))


class Traits(PlacementResource):
    """Traits."""

    @route("GET", "/traits", policies.TRAITS, query=("name", "associated"), response="traits")
    def index(self, req: ServiceRequest) -> Response:
        versions.require(req, Change.TRAITS)
        queries.check_names(req.GET, ("name", "associated"))
        associated = req.GET.get("associated", "false").lower()
        if associated not in ("true", "false"):
            raise exceptions.ValidationError(detail='The query parameter "associated" only accepts "true" or "false"')
        known = self.traits_of_providers(req) if associated == "true" else self.known_traits(req)
        is_named = queries.named(req.GET.get("name"))
        return respond(req, {"traits": sorted(name for name in known if is_named(name))})

    @route("GET", "/traits/{name}", policies.TRAIT)
    def show(self, req: ServiceRequest, name: str) -> Response:
        minor = versions.require(req, Change.TRAITS)
        if name not in self.known_traits(req):
            raise exceptions.NotFound(f"No such trait(s): {name[:64]}.")
        return Response(None, 204, versions.cache_headers(minor))
