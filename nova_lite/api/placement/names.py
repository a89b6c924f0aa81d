"""Names of resource classes and traits."""

from __future__ import annotations

from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.placement import queries, versions, views
from nova_lite.api.placement.resource import PlacementResource, respond
from nova_lite.api.placement.versions import Change
from nova_lite.base import exceptions
from nova_lite.policies import placement_service as policies


class ResourceClasses(PlacementResource):
    """Resource classes."""

    @route("GET", "/resource_classes", policies.CLASSES, response="resource_classes")
    def index(self, req: ServiceRequest) -> Response:
        versions.require(req, Change.RESOURCE_CLASSES)
        shown = [views.resource_class(name, req.script_name) for name in queries.STANDARD_CLASSES]
        return respond(req, {"resource_classes": shown})

    @route("GET", "/resource_classes/{name}", policies.CLASS)
    def show(self, req: ServiceRequest, name: str) -> Response:
        versions.require(req, Change.RESOURCE_CLASSES)
        if name not in queries.STANDARD_CLASSES:
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
