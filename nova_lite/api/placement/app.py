"""The Placement API: its routes and handlers. It reads, and changes nothing."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import webob
import webob.exc

from nova_lite.api.http import deploy, rest, wsgi
from nova_lite.api.http.rest import ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.api.placement import matching, queries, versions, views
from nova_lite.api.placement.versions import Change
from nova_lite.base import exceptions
from nova_lite.hardware import traits
from nova_lite.objects import ListQuery, ResourceAllocation, ResourceProvider
from nova_lite.policies import placement_service as policies

READ_ONLY = (
    "This cloud places servers itself, by its own claims: its Placement API only shows them. Create, move or delete "
    "the server with the compute API."
)
_PROVIDER = "/resource_providers/{id}"
#: Code of errors that have none of their own.
_CODE = "placement.undefined_code"


def app_factory(global_conf: dict[str, str], **local_conf: str) -> PlacementApp:
    del global_conf, local_conf
    return PlacementApp(deploy.services())


class PlacementApp(rest.ServiceApplication):
    """WSGI application, mounted at the root."""

    routes = (
        ServiceRoute("GET", "/resource_providers", "providers", policies.PROVIDERS),
        ServiceRoute("GET", _PROVIDER, "provider", policies.PROVIDER),
        ServiceRoute("GET", f"{_PROVIDER}/inventories", "inventories", policies.INVENTORIES),
        ServiceRoute("GET", f"{_PROVIDER}/inventories/{{name}}", "inventory", policies.INVENTORY),
        ServiceRoute("GET", f"{_PROVIDER}/usages", "provider_usages", policies.PROVIDER_USAGES),
        ServiceRoute("GET", f"{_PROVIDER}/allocations", "provider_allocations", policies.PROVIDER_ALLOCATIONS),
        ServiceRoute("GET", f"{_PROVIDER}/traits", "provider_traits", policies.PROVIDER_TRAITS),
        ServiceRoute("GET", f"{_PROVIDER}/aggregates", "provider_aggregates", policies.PROVIDER_AGGREGATES),
        ServiceRoute("GET", "/allocations/{id}", "allocations", policies.ALLOCATIONS),
        ServiceRoute("GET", "/allocation_candidates", "candidates", policies.CANDIDATES),
        ServiceRoute("GET", "/usages", "usages", policies.USAGES, authorizes=True),
        ServiceRoute("GET", "/resource_classes", "resource_classes", policies.CLASSES),
        ServiceRoute("GET", "/resource_classes/{name}", "resource_class", policies.CLASS),
        ServiceRoute("GET", "/traits", "traits", policies.TRAITS),
        ServiceRoute("GET", "/traits/{name}", "trait", policies.TRAIT),
    )

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        """Add the version header to every response."""
        return super().__call__(environ, versions.with_header(environ, start_response))

    def _handle(self, req: ServiceRequest) -> Response | webob.Response:
        versions.minor_of(req.headers)
        if req.method not in ("GET", "HEAD"):
            raise webob.exc.HTTPMethodNotAllowed(explanation=READ_ONLY, headers={"Allow": "GET"})
        return super()._handle(req)

    def fault(self, req: ServiceRequest, code: int, message: str) -> webob.Response:
        fault: dict[str, Any] = {"status": code, "title": webob.exc.status_map[code].title, "detail": message}
        fault["request_id"] = req.environ.get(wsgi.REQUEST_ID, "")
        try:
            if versions.minor_of(req.headers) >= Change.ERROR_CODES:
                fault["code"] = _CODE
        except webob.exc.HTTPError:
            fault |= {"min_version": f"1.{versions.MINIMUM}", "max_version": f"1.{versions.MAXIMUM}"}
        return wsgi.to_response(Response({"errors": [fault]}, code))

    # --- resource providers

    def providers(self, req: ServiceRequest) -> Response:
        minor = versions.minor_of(req.headers)
        needs = queries.of_providers(req.GET, minor)
        uuid = queries.uuid(req.GET, "uuid") or needs.in_tree
        filters = {} if uuid is None else {"uuid": [uuid]}
        if "name" in req.GET:
            filters["name"] = [req.GET["name"]]
        found = list(self._providers(req, filters))
        queries.check_traits([needs], self._known_traits(req))
        shown = [item for item in found if matching.matches(item, needs)]
        views_ = [views.provider(item, req.script_name, minor) for item in shown]
        changed_at = max((item.changed_at for item in shown if item.changed_at is not None), default=None)
        return _response(req, {"resource_providers": views_}, changed_at)

    def provider(self, req: ServiceRequest, id: str) -> Response:
        found = self._provider(req, id)
        return _response(req, views.provider(found, req.script_name, versions.minor_of(req.headers)), found.changed_at)

    def inventories(self, req: ServiceRequest, id: str) -> Response:
        found = self._provider(req, id)
        shown = {name: views.inventory(item) for name, item in found.inventories.items()}
        return _response(req, {"inventories": shown, views.GENERATION: found.generation}, found.changed_at)

    def inventory(self, req: ServiceRequest, id: str, name: str) -> Response:
        found = self._provider(req, id)
        if name not in found.inventories:
            raise exceptions.NotFound(f"No inventory of class {name[:64]} for {found.uuid}")
        shown = views.inventory(found.inventories[name]) | {views.GENERATION: found.generation}
        return _response(req, shown, found.changed_at)

    def provider_usages(self, req: ServiceRequest, id: str) -> Response:
        found = self._provider(req, id)
        return _response(req, {"usages": views.usages(found), views.GENERATION: found.generation})

    def provider_allocations(self, req: ServiceRequest, id: str) -> Response:
        found = self._provider(req, id)
        allocations = self._allocations(req, {"provider": [found.uuid]})
        minor = versions.minor_of(req.headers)
        return _response(req, views.allocations_of_provider(found, allocations, minor))

    def provider_traits(self, req: ServiceRequest, id: str) -> Response:
        _require(req, Change.TRAITS)
        found = self._provider(req, id)
        return _response(req, {"traits": found.traits, views.GENERATION: found.generation}, found.changed_at)

    def provider_aggregates(self, req: ServiceRequest, id: str) -> Response:
        minor = _require(req, Change.AGGREGATES)
        found = self._provider(req, id)
        shown: views.View = {"aggregates": found.aggregates}
        if minor >= Change.AGGREGATES_GENERATION:
            shown[views.GENERATION] = found.generation
        return _response(req, shown)

    # --- allocations

    def allocations(self, req: ServiceRequest, id: str) -> Response:
        """Show the allocations of a consumer. An unknown consumer has none."""
        found = list(self._allocations(req, {"consumer": [id]}))
        changed_at = max((item.created_at for item in found if item.created_at is not None), default=None)
        return _response(req, views.allocations_of_consumer(found, versions.minor_of(req.headers)), changed_at)

    def usages(self, req: ServiceRequest) -> Response:
        minor = _require(req, Change.USAGES)
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
        allocations = self._allocations(req, filters)
        return _response(req, views.total_usages(allocations, minor, req.GET.get("consumer_type")))

    def candidates(self, req: ServiceRequest) -> Response:
        minor = _require(req, Change.CANDIDATES)
        query = queries.of_candidates(req.GET, minor)
        queries.check_traits([query.root, *query.groups.values()], self._known_traits(req))
        found: list[ResourceProvider] = []
        if not query.separate:
            found = matching.candidates(self._providers(req, {}), query.groups.values(), query.root)
        return _response(req, views.candidates(found[: query.limit], query.groups, minor))

    # --- resource classes and traits

    def resource_classes(self, req: ServiceRequest) -> Response:
        _require(req, Change.RESOURCE_CLASSES)
        shown = [views.resource_class(name, req.script_name) for name in queries.STANDARD_CLASSES]
        return _response(req, {"resource_classes": shown})

    def resource_class(self, req: ServiceRequest, name: str) -> Response:
        _require(req, Change.RESOURCE_CLASSES)
        if name not in queries.STANDARD_CLASSES:
            raise exceptions.NotFound(f"No such resource class {name[:64]}.")
        return _response(req, views.resource_class(name, req.script_name))

    def traits(self, req: ServiceRequest) -> Response:
        _require(req, Change.TRAITS)
        queries.check_names(req.GET, ("name", "associated"))
        associated = req.GET.get("associated", "false").lower()
        if associated not in ("true", "false"):
            raise exceptions.ValidationError(detail='The query parameter "associated" only accepts "true" or "false"')
        known = self._traits_of_providers(req) if associated == "true" else self._known_traits(req)
        is_named = queries.named(req.GET.get("name"))
        return _response(req, {"traits": sorted(name for name in known if is_named(name))})

    def trait(self, req: ServiceRequest, name: str) -> Response:
        minor = _require(req, Change.TRAITS)
        if name not in self._known_traits(req):
            raise exceptions.NotFound(f"No such trait(s): {name[:64]}.")
        return Response(None, 204, versions.cache_headers(minor))

    # --- reads

    def _provider(self, req: ServiceRequest, uuid: str) -> ResourceProvider:
        for found in self._providers(req, {"uuid": [uuid.lower()]}):
            return found
        raise exceptions.NotFound(f"No resource provider with uuid {uuid[:64]} found")

    def _providers(self, req: ServiceRequest, filters: dict[str, list[str]]) -> Iterator[ResourceProvider]:
        marker = None
        while True:
            query = ListQuery(filters=filters, marker=marker, limit=self.conf.api.max_limit)
            page = self.conductor.resource_provider_list(req.context, query)
            yield from page
            if len(page) < self.conf.api.max_limit:
                return
            marker = page[-1].uuid

    def _allocations(self, req: ServiceRequest, filters: dict[str, list[str]]) -> Iterator[ResourceAllocation]:
        marker = None
        while True:
            query = ListQuery(filters=filters, marker=marker, limit=self.conf.api.max_limit)
            page = self.conductor.resource_allocation_list(req.context, query)
            yield from page
            if len(page) < self.conf.api.max_limit:
                return
            marker = str(page[-1].id)

    def _known_traits(self, req: ServiceRequest) -> set[str]:
        return self._traits_of_providers(req).union(traits.KNOWN)

    def _traits_of_providers(self, req: ServiceRequest) -> set[str]:
        return {trait for provider in self._providers(req, {}) for trait in provider.traits}


def _require(req: ServiceRequest, change: Change) -> int:
    """Return the request's minor version. Raises `UnknownUrl` if that version does not have the URL."""
    minor = versions.minor_of(req.headers)
    if minor < change:
        raise wsgi.UnknownUrl()
    return minor


def _response(req: ServiceRequest, body: views.View, changed_at: datetime.datetime | None = None) -> Response:
    return Response(body, headers=versions.cache_headers(versions.minor_of(req.headers), changed_at))
