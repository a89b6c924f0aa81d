"""Changes of the catalog over the identity API. The built-in services cannot be changed."""

from __future__ import annotations

import functools
import re
import uuid
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

from nova_lite.api.http.bodies import changed, checked
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import catalog, requests, views
from nova_lite.api.identity.catalog import INTERFACES
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import CatalogEndpoint, CatalogRegion, CatalogService
from nova_lite.api.identity.requests import Extensible, or_null
from nova_lite.api.identity.resource import IdentityResource
from nova_lite.api.identity.views import View
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

MAX_NAME, MAX_TEXT = 255, 4096


_label = requests.sized(MAX_NAME)
_is_interface = requests.valid(
    lambda value: value in INTERFACES, f"The interface of an endpoint is one of {', '.join(INTERFACES)}."
)
_is_flag = requests.valid(lambda value: isinstance(value, bool), "{} must be a boolean.")


def _url(sent: dict[str, Any], name: str) -> str:
    value: str = _label(sent, name)
    if not re.match(r"[a-zA-Z0-9+.-]+:.", value):
        raise exceptions.ValidationError(detail="The url of an endpoint starts with a scheme, such as http:.")
    if (unknown := catalog.unknown_variable(value)) is not None:
        raise exceptions.ValidationError(
            detail=f"The url of an endpoint cannot have {unknown}. Variables are "
            f"{', '.join(f'%({name})s' for name in catalog.VARIABLES)}."
        )
    return value


def _region_id(sent: dict[str, Any], name: str) -> Any:
    if "/" in (value := _label(sent, name)):
        raise exceptions.ValidationError(detail="The id of a region has no slash.")
    return value


def _text(sent: dict[str, Any], name: str, longest: int) -> str | None:
    value = None if sent[name] is None else requests.text_field(sent, name)
    if len(value or "") > longest:
        raise exceptions.ValidationError(detail=f"{name} has at most {longest} characters.")
    return value


_Label: TypeAlias = Annotated[str, checked(_label, minLength=1, maxLength=MAX_NAME)]
_Interface: TypeAlias = Annotated[
    str, checked(lambda sent, name: _is_interface({name: _label(sent, name)}, name), enum=INTERFACES)
]
_Url: TypeAlias = Annotated[str, checked(_url, maxLength=MAX_NAME)]
_Region: TypeAlias = Annotated[str | None, checked(or_null(_label))]
_Name: TypeAlias = Annotated[str, checked(functools.partial(_text, longest=MAX_NAME), maxLength=MAX_NAME)]
_Description: TypeAlias = Annotated[str, checked(functools.partial(_text, longest=MAX_TEXT), maxLength=MAX_TEXT)]
_Enabled: TypeAlias = Annotated[bool, checked(_is_flag)]


class NewService(Extensible, kw_only=True):
    type: _Label
    name: _Name = ""
    description: _Description = ""
    enabled: _Enabled = True


class NewEndpoint(Extensible, kw_only=True):
    service_id: _Label
    interface: _Interface
    url: _Url
    enabled: _Enabled = True
    region: _Region = None
    region_id: _Region = None


class ChangedRegion(Extensible):
    description: _Description = ""
    parent_region_id: _Region = None


class NewRegion(ChangedRegion):
    id: Annotated[str | None, checked(or_null(_region_id))] = None


_FORMS: dict[str, Callable[[Any], View]] = {
    "services": catalog.service,
    "endpoints": catalog.endpoint,
    "regions": catalog.region,
}


class _InCatalog(IdentityResource):
    """Built-in things of the catalog, and those of operators."""

    kinds = ""

    def view(self, req: ServiceRequest, item: CatalogService | CatalogEndpoint | CatalogRegion) -> View:
        form = requests.attribute_values(item.extra) | _FORMS[self.kinds](item)
        return views.linked(form, req.base_url, self.kinds)

    def all(self, req: ServiceRequest) -> list[View]:
        built_in = (views.linked(item, req.base_url, self.kinds) for item in getattr(self.catalog, self.kinds))
        return [*built_in, *(self.view(req, item) for item in getattr(self.content, self.kinds))]


class Services(_InCatalog):
    """Services."""

    kinds = "services"

    @route("GET", "/v3/services", policies.SERVICES_LIST, response="services")
    def index(self, req: ServiceRequest) -> Response:
        return self.listed(req, self.all(req))

    @route("GET", "/v3/services/{id}", policies.SERVICES_SHOW, response="service")
    def show(self, req: ServiceRequest, id: str) -> View:
        return requests.found("service", id, self.all(req))

    @route("POST", "/v3/services", policies.SERVICES_CREATE, body=NewService, key="service", status=201)
    def create(self, req: ServiceRequest) -> View:
        made = requests.new(req, CatalogService, requests.read(req, NewService))
        self.change(lambda content: content.services.append(made))
        return self.view(req, made)

    @route("PATCH", "/v3/services/{id}", policies.SERVICES_UPDATE, body=changed(NewService), key="service")
    def update(self, req: ServiceRequest, id: str) -> View:
        return self.view(req, self.updated(req, lambda content: self._service(content, id)))

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


class Endpoints(_InCatalog):
    """Endpoints of services."""

    kinds = "endpoints"

    @route("GET", "/v3/endpoints", policies.ENDPOINTS_LIST, response="endpoints")
    def index(self, req: ServiceRequest) -> Response:
        return self.listed(req, self.all(req))

    @route("GET", "/v3/endpoints/{id}", policies.ENDPOINTS_SHOW, response="endpoint")
    def show(self, req: ServiceRequest, id: str) -> View:
        return requests.found("endpoint", id, self.all(req))

    @route("POST", "/v3/endpoints", policies.ENDPOINTS_CREATE, body=NewEndpoint, key="endpoint", status=201)
    def create(self, req: ServiceRequest) -> View:
        body = requests.read(req, NewEndpoint)
        made = requests.new(req, CatalogEndpoint, body)

        def create(content: Content) -> None:
            self._check_service(content, made.service_id)
            made.region = self._region_of(content, body.region_id, body.region)
            content.endpoints.append(made)

        self.change(create)
        return self.view(req, made)

    @route("PATCH", "/v3/endpoints/{id}", policies.ENDPOINTS_UPDATE, body=changed(NewEndpoint), key="endpoint")
    def update(self, req: ServiceRequest, id: str) -> View:
        changed = requests.changes(req)

        def update(content: Content) -> CatalogEndpoint:
            found = self._endpoint(content, id)
            requests.update(req, found, changed)
            self._check_service(content, found.service_id)
            if {"region_id", "region"} & changed.keys():
                found.region = self._region_of(content, changed.get("region_id"), changed.get("region"))
            return found

        return self.view(req, self.change(update))

    @route("DELETE", "/v3/endpoints/{id}", policies.ENDPOINTS_DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self.change(lambda content: _remove_endpoint(content, self._endpoint(content, id)))

    def _endpoint(self, content: Content, id: str) -> CatalogEndpoint:
        _refuse_built_in("endpoint", id, self.catalog.endpoints)
        return requests.require("endpoint", id, content.find(CatalogEndpoint, id))

    def _check_service(self, content: Content, service_id: str) -> None:
        if all(item["id"] != service_id for item in self.catalog.all_services(content)):
            raise exceptions.ValidationError(detail=f"Could not find service: {service_id[:64]}.")

    def _region_of(self, content: Content, region_id: str | None, old: str | None) -> str | None:
        """Return the region of an endpoint. The ``old`` field of it creates the region, as in Keystone."""
        name = region_id if region_id is not None else old
        if name is not None and all(item["id"] != name for item in self.catalog.all_regions(content)):
            if region_id is not None:
                raise exceptions.ValidationError(detail=f"Could not find region: {name[:64]}.")
            content.regions.append(CatalogRegion(id=name))
        return name


class Regions(_InCatalog):
    """Regions of services."""

    kinds = "regions"

    @route("GET", "/v3/regions", policies.REGIONS_LIST, response="regions")
    def index(self, req: ServiceRequest) -> Response:
        return self.listed(req, self.all(req))

    @route("GET", "/v3/regions/{id}", policies.REGIONS_SHOW, response="region")
    def show(self, req: ServiceRequest, id: str) -> View:
        return requests.found("region", id, self.all(req))

    @route("POST", "/v3/regions", policies.REGIONS_CREATE, body=NewRegion, key="region", status=201)
    @route("PUT", "/v3/regions/{id}", policies.REGIONS_CREATE, body=NewRegion, key="region", status=201)
    def create(self, req: ServiceRequest, id: str | None = None) -> View:
        body = requests.read(req, NewRegion)
        if id is not None and body.id not in (None, id):
            raise exceptions.ValidationError(detail="The id of the region is another one in the URL.")
        id = body.id if id is None else _region_id({"id": id}, "id")
        made = requests.new(req, CatalogRegion, body, id=id or uuid.uuid4().hex)

        def create(content: Content) -> None:
            if any(item["id"] == made.id for item in self.catalog.all_regions(content)):
                raise exceptions.Conflict(f"Region {made.id} already exists.")
            made.parent = self._parent(content, made.id, body.parent_region_id)
            content.regions.append(made)

        self.change(create)
        return self.view(req, made)

    @route("PATCH", "/v3/regions/{id}", policies.REGIONS_UPDATE, body=ChangedRegion, key="region")
    def update(self, req: ServiceRequest, id: str) -> View:
        changed = requests.changes(req)

        def update(content: Content) -> CatalogRegion:
            found = self._region(content, id)
            requests.update(req, found, changed)
            if "parent_region_id" in changed:
                found.parent = self._parent(content, id, changed["parent_region_id"])
            return found

        return self.view(req, self.change(update))

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

    def _parent(self, content: Content, id: str, parent: str | None) -> str | None:
        parents = {item["id"]: item["parent_region_id"] for item in self.catalog.all_regions(content)}
        if parent is not None and parent not in parents:
            raise exceptions.NotFound(f"Could not find region: {parent[:64]}.")
        above = parent
        while above is not None:
            if above == id:
                raise exceptions.ValidationError(detail="A region cannot be below itself.")
            above = parents.get(above)
        return parent


def _remove_endpoint(content: Content, endpoint: CatalogEndpoint) -> None:
    content.endpoints.remove(endpoint)
    for project in content.projects:
        if endpoint.id in project.endpoint_ids:
            project.endpoint_ids.remove(endpoint.id)


def _refuse_built_in(kind: str, id: str, built_in: list[dict[str, Any]]) -> None:
    if any(item["id"] == id for item in built_in):
        raise exceptions.Forbidden(
            f"This {kind} is built in: [api] enabled_apis and the options [identity] *_endpoint define it."
        )
