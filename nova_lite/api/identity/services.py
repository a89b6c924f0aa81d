"""Changes of the catalog over the identity API. The built-in services cannot be changed."""

from __future__ import annotations

import re
import uuid
from typing import Any

from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import catalog, requests, views
from nova_lite.api.identity.catalog import INTERFACES
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import CatalogEndpoint, CatalogRegion, CatalogService
from nova_lite.api.identity.resource import IdentityResource
from nova_lite.api.identity.views import View
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

MAX_NAME, MAX_TEXT = 255, 4096
#: Fields of the service itself. Others are kept for clients.
_SERVICE = ("id", "type", "name", "description", "enabled", "links")
_ENDPOINT = ("id", "service_id", "interface", "url", "enabled", "region", "region_id", "links")
_REGION = ("id", "description", "parent_region_id", "links")


class Services(IdentityResource):
    """Services."""

    @route("GET", "/v3/services", policies.SERVICES_LIST, response="services")
    def index(self, req: ServiceRequest) -> Response:
        return self.listed(req, self._all(req))

    @route("GET", "/v3/services/{id}", policies.SERVICES_SHOW, response="service")
    def show(self, req: ServiceRequest, id: str) -> View:
        return requests.found("service", id, self._all(req))

    def _all(self, req: ServiceRequest) -> list[View]:
        built_in = (views.linked(item, req.base_url, "services") for item in self.catalog.services)
        return [*built_in, *(shown_service(item, req.base_url) for item in self.content.services)]

    @route("POST", "/v3/services", policies.SERVICES_CREATE, key="service", response="service", status=201)
    def create(self, req: ServiceRequest) -> View:
        body = requests.body_object(req, "service")
        made = CatalogService(id=uuid.uuid4().hex, type=_name(body, "type"))
        _set_service(req, made, body)
        self.change(lambda content: content.services.append(made))
        return shown_service(made, req.base_url)

    @route("PATCH", "/v3/services/{id}", policies.SERVICES_UPDATE, key="service", response="service")
    def update(self, req: ServiceRequest, id: str) -> View:
        body = requests.body_object(req, "service")

        def update(content: Content) -> CatalogService:
            found = self._service(content, id)
            _set_service(req, found, body)
            return found

        return shown_service(self.change(update), req.base_url)

    @route("DELETE", "/v3/services/{id}", policies.SERVICES_DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        """Delete the service with its endpoints. Limits stay, as in Keystone."""

        def delete(content: Content) -> None:
            content.services.remove(self._service(content, id))
            for endpoint in [item for item in content.endpoints if item.service_id == id]:
                _remove_endpoint(content, endpoint)

        self.change(delete)

    def _service(self, content: Content, id: str) -> CatalogService:
        _refuse_built_in("service", id, self.catalog.services)
        return requests.require("service", id, content.find(CatalogService, id))


class Endpoints(IdentityResource):
    """Endpoints of services."""

    @route("GET", "/v3/endpoints", policies.ENDPOINTS_LIST, response="endpoints")
    def index(self, req: ServiceRequest) -> Response:
        return self.listed(req, self._all(req))

    @route("GET", "/v3/endpoints/{id}", policies.ENDPOINTS_SHOW, response="endpoint")
    def show(self, req: ServiceRequest, id: str) -> View:
        return requests.found("endpoint", id, self._all(req))

    def _all(self, req: ServiceRequest) -> list[View]:
        built_in = (views.linked(item, req.base_url, "endpoints") for item in self.catalog.endpoints)
        return [*built_in, *(shown_endpoint(item, req.base_url) for item in self.content.endpoints)]

    @route("POST", "/v3/endpoints", policies.ENDPOINTS_CREATE, key="endpoint", response="endpoint", status=201)
    def create(self, req: ServiceRequest) -> View:
        body = requests.body_object(req, "endpoint")
        service_id, interface, url = (_name(body, name) for name in ("service_id", "interface", "url"))
        made = CatalogEndpoint(id=uuid.uuid4().hex, service_id=service_id, interface=interface, url=url)

        def create(content: Content) -> None:
            self._set_endpoint(req, content, made, body)
            content.endpoints.append(made)

        self.change(create)
        return shown_endpoint(made, req.base_url)

    @route("PATCH", "/v3/endpoints/{id}", policies.ENDPOINTS_UPDATE, key="endpoint", response="endpoint")
    def update(self, req: ServiceRequest, id: str) -> View:
        body = requests.body_object(req, "endpoint")

        def update(content: Content) -> CatalogEndpoint:
            found = self._endpoint(content, id)
            self._set_endpoint(req, content, found, body)
            return found

        return shown_endpoint(self.change(update), req.base_url)

    @route("DELETE", "/v3/endpoints/{id}", policies.ENDPOINTS_DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self.change(lambda content: _remove_endpoint(content, self._endpoint(content, id)))

    def _endpoint(self, content: Content, id: str) -> CatalogEndpoint:
        _refuse_built_in("endpoint", id, self.catalog.endpoints)
        return requests.require("endpoint", id, content.find(CatalogEndpoint, id))

    def _set_endpoint(
        self, req: ServiceRequest, content: Content, changed: CatalogEndpoint, body: dict[str, Any]
    ) -> None:
        changed.extra = requests.attributes(req, "endpoint", _ENDPOINT, changed.extra)
        for name in {"service_id", "interface", "url"} & body.keys():
            setattr(changed, name, _name(body, name))
        changed.enabled = _flag(body, changed.enabled)
        if changed.interface not in INTERFACES:
            raise exceptions.ValidationError(detail=f"The interface of an endpoint is one of {', '.join(INTERFACES)}.")
        if not re.match(r"[a-zA-Z0-9+.-]+:.", changed.url):
            raise exceptions.ValidationError(detail="The url of an endpoint starts with a scheme, such as http:.")
        if (unknown := catalog.unknown_variable(changed.url)) is not None:
            raise exceptions.ValidationError(
                detail=f"The url of an endpoint cannot have {unknown}. Variables are "
                f"{', '.join(f'%({name})s' for name in catalog.VARIABLES)}."
            )
        if all(item["id"] != changed.service_id for item in self.catalog.all_services(content)):
            raise exceptions.ValidationError(detail=f"Could not find service: {changed.service_id[:64]}.")
        if {"region_id", "region"} & body.keys():
            changed.region = self._region_of(content, body)

    def _region_of(self, content: Content, body: dict[str, Any]) -> str | None:
        """Return the region of an endpoint. The old field ``region`` creates the region, as in Keystone."""
        field = "region_id" if body.get("region_id") is not None else "region"
        if body.get(field) is None:
            return None
        name = _name(body, field)
        if all(item["id"] != name for item in self.catalog.all_regions(content)):
            if field == "region_id":
                raise exceptions.ValidationError(detail=f"Could not find region: {name[:64]}.")
            content.regions.append(CatalogRegion(id=name))
        return name


class Regions(IdentityResource):
    """Regions of services."""

    @route("GET", "/v3/regions", policies.REGIONS_LIST, response="regions")
    def index(self, req: ServiceRequest) -> Response:
        return self.listed(req, self._all(req))

    @route("GET", "/v3/regions/{id}", policies.REGIONS_SHOW, response="region")
    def show(self, req: ServiceRequest, id: str) -> View:
        return requests.found("region", id, self._all(req))

    def _all(self, req: ServiceRequest) -> list[View]:
        built_in = (views.linked(item, req.base_url, "regions") for item in self.catalog.regions)
        return [*built_in, *(shown_region(item, req.base_url) for item in self.content.regions)]

    @route("POST", "/v3/regions", policies.REGIONS_CREATE, key="region", response="region", status=201)
    @route("PUT", "/v3/regions/{id}", policies.REGIONS_CREATE, key="region", response="region", status=201)
    def create(self, req: ServiceRequest, id: str | None = None) -> View:
        body = requests.body_object(req, "region")
        given = _name(body, "id") if body.get("id") is not None else _name({"id": id}, "id") if id is not None else None
        if id not in (None, given):
            raise exceptions.ValidationError(detail="The id of the region is another one in the URL.")
        made = CatalogRegion(id=given or uuid.uuid4().hex)
        if "/" in made.id:
            raise exceptions.ValidationError(detail="The id of a region has no slash.")

        def create(content: Content) -> None:
            if any(item["id"] == made.id for item in self.catalog.all_regions(content)):
                raise exceptions.Conflict(f"Region {made.id} already exists.")
            self._set_region(req, content, made, body)
            content.regions.append(made)

        self.change(create)
        return shown_region(made, req.base_url)

    @route("PATCH", "/v3/regions/{id}", policies.REGIONS_UPDATE, key="region", response="region")
    def update(self, req: ServiceRequest, id: str) -> View:
        body = requests.body_object(req, "region")

        def update(content: Content) -> CatalogRegion:
            found = self._region(content, id)
            self._set_region(req, content, found, body)
            return found

        return shown_region(self.change(update), req.base_url)

    @route("DELETE", "/v3/regions/{id}", policies.REGIONS_DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        def delete(content: Content) -> None:
            found = self._region(content, id)
            used = {item.region for item in content.endpoints} | {item.parent for item in content.regions}
            if id in used:
                raise exceptions.Forbidden(f"Region {id} has endpoints or other regions. Delete those first.")
            content.regions.remove(found)

        self.change(delete)

    def _region(self, content: Content, id: str) -> CatalogRegion:
        if id == self.catalog.region:
            raise exceptions.Forbidden("This region is [identity] region of the configuration. It cannot be changed.")
        return requests.require("region", id, content.find(CatalogRegion, id))

    def _set_region(self, req: ServiceRequest, content: Content, changed: CatalogRegion, body: dict[str, Any]) -> None:
        changed.extra = requests.attributes(req, "region", _REGION, changed.extra)
        changed.description = _text(body, "description", changed.description)
        if "parent_region_id" not in body:
            return
        parent = None if body["parent_region_id"] is None else _name(body, "parent_region_id")
        parents = {item["id"]: item["parent_region_id"] for item in self.catalog.all_regions(content)}
        if parent is not None and parent not in parents:
            raise exceptions.NotFound(f"Could not find region: {parent[:64]}.")
        above = parent
        while above is not None:
            if above == changed.id:
                raise exceptions.ValidationError(detail="A region cannot be below itself.")
            above = parents.get(above)
        changed.parent = parent


def _remove_endpoint(content: Content, endpoint: CatalogEndpoint) -> None:
    content.endpoints.remove(endpoint)
    for project in content.projects:
        if endpoint.id in project.endpoint_ids:
            project.endpoint_ids.remove(endpoint.id)


def shown_service(item: CatalogService, base_url: str) -> dict[str, Any]:
    return views.linked(requests.attribute_values(item.extra) | catalog.service(item), base_url, "services")


def shown_endpoint(item: CatalogEndpoint, base_url: str) -> dict[str, Any]:
    return views.linked(requests.attribute_values(item.extra) | catalog.endpoint(item), base_url, "endpoints")


def shown_region(item: CatalogRegion, base_url: str) -> dict[str, Any]:
    return views.linked(requests.attribute_values(item.extra) | catalog.region(item), base_url, "regions")


def _refuse_built_in(kind: str, id: str, built_in: list[dict[str, Any]]) -> None:
    if any(item["id"] == id for item in built_in):
        raise exceptions.Forbidden(
            f"This {kind} is built in: [api] enabled_apis and the options [identity] *_endpoint define it."
        )


def _set_service(req: ServiceRequest, changed: CatalogService, body: dict[str, Any]) -> None:
    if "type" in body:
        changed.type = _name(body, "type")
    changed.name = _text(body, "name", changed.name, MAX_NAME)
    changed.extra = requests.attributes(req, "service", _SERVICE, changed.extra)
    changed.description = _text(body, "description", changed.description)
    changed.enabled = _flag(body, changed.enabled)


def _name(body: dict[str, Any], field: str) -> str:
    value = requests.text_field(body, field)
    if not 0 < len(value) <= MAX_NAME:
        raise exceptions.ValidationError(detail=f"{field} has 1 to {MAX_NAME} characters.")
    return value


def _text(body: dict[str, Any], field: str, before: str, longest: int = MAX_TEXT) -> str:
    if body.get(field) is None:
        return "" if field in body else before
    value = requests.text_field(body, field)
    if len(value) > longest:
        raise exceptions.ValidationError(detail=f"{field} has at most {longest} characters.")
    return value


def _flag(body: dict[str, Any], before: bool) -> bool:
    value = body.get("enabled", before)
    if not isinstance(value, bool):
        raise exceptions.ValidationError(detail="enabled must be a boolean.")
    return value
