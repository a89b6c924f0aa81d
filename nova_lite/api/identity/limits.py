"""Unified limits, over the identity API: what operators register for services that look their limits up there.

nova_lite's own quotas are elsewhere: these limits change none of its APIs.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from nova_lite.api.http.rest import ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import listing, requests, views
from nova_lite.api.identity.authority import Authority
from nova_lite.api.identity.catalog import Catalog
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import Limit, RegisteredLimit
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

T = TypeVar("T")
#: Service, region and resource of a limit.
_Place: TypeAlias = tuple[str, str | None, str]

#: Limits, and registered limits, of the cloud. Each API process has all of them in memory.
MAX_LIMITS = 10_000
MAX_TEXT = 255

_REGISTERED = "/v3/registered_limits"
_LIMITS = "/v3/limits"
_MODEL = {
    "name": "flat",
    "description": "Limit enforcement and validation does not take project hierarchy into consideration.",
}


class IdentityLimits:
    """Mixin of `IdentityApp`: the handlers of unified limits."""

    authority: Authority
    service_catalog: Catalog
    routes: tuple[ServiceRoute, ...] = (
        ServiceRoute("GET", _REGISTERED, "list_registered", policies.REGISTERED_LIST),
        ServiceRoute("POST", _REGISTERED, "create_registered", policies.REGISTERED_CREATE),
        ServiceRoute("GET", f"{_REGISTERED}/{{id}}", "show_registered", policies.REGISTERED_SHOW),
        ServiceRoute("PATCH", f"{_REGISTERED}/{{id}}", "update_registered", policies.REGISTERED_UPDATE),
        ServiceRoute("DELETE", f"{_REGISTERED}/{{id}}", "delete_registered", policies.REGISTERED_DELETE),
        ServiceRoute("GET", f"{_LIMITS}/model", "limit_model", policies.LIMIT_MODEL),
        ServiceRoute("GET", _LIMITS, "list_limits", policies.LIMITS_LIST),
        ServiceRoute("POST", _LIMITS, "create_limits", policies.LIMITS_CREATE),
        ServiceRoute("GET", f"{_LIMITS}/{{id}}", "show_limit", policies.LIMITS_SHOW, authorizes=True),
        ServiceRoute("PATCH", f"{_LIMITS}/{{id}}", "update_limit", policies.LIMITS_UPDATE),
        ServiceRoute("DELETE", f"{_LIMITS}/{{id}}", "delete_limit", policies.LIMITS_DELETE),
    )

    # --- registered limits: the defaults of all projects

    def list_registered(self, req: ServiceRequest) -> Response:
        shown = [_registered(item, req.base_url) for item in self.authority.content.registered_limits]
        return listing.listed(req, "registered_limits", shown)

    def create_registered(self, req: ServiceRequest) -> Response:
        items = _items(req, "registered_limits")

        def create(content: Content) -> list[RegisteredLimit]:
            made = []
            for body in items:
                item = RegisteredLimit(id=uuid.uuid4().hex, service_id="", resource_name="", default_limit=0)
                body = {"region_id": None, "description": None} | body
                self._set_registered(content, item, body, self._place(content, body))
                content.registered_limits.append(item)
                made.append(item)
            _check_number(content.registered_limits)
            return made

        shown = [_registered(item, req.base_url) for item in self._change(create)]
        return Response({"registered_limits": shown}, 201)

    def show_registered(self, req: ServiceRequest, id: str) -> Response:
        found = _require(self.authority.content, RegisteredLimit, id)
        return Response({"registered_limit": _registered(found, req.base_url)})

    def update_registered(self, req: ServiceRequest, id: str) -> Response:
        body = requests.body_object(req, "registered_limit")

        def update(content: Content) -> RegisteredLimit:
            item = _require(content, RegisteredLimit, id)
            is_moved = any(body.get(name, getattr(item, name)) != getattr(item, name) for name in _PLACE)
            if is_moved and _limits_of(content, item):
                raise exceptions.Forbidden("This registered limit has limits of projects. Delete those first.")
            # The service or region of a limit that stays where it is may have been deleted.
            wanted = {name: getattr(item, name) for name in item.__struct_fields__} | body
            self._set_registered(content, item, wanted, self._place(content, wanted) if is_moved else _place_of(item))
            return item

        return Response({"registered_limit": _registered(self._change(update), req.base_url)})

    def delete_registered(self, req: ServiceRequest, id: str) -> Response:
        def delete(content: Content) -> None:
            item = _require(content, RegisteredLimit, id)
            if _limits_of(content, item):
                raise exceptions.Forbidden("This registered limit has limits of projects. Delete those first.")
            content.registered_limits.remove(item)

        self._change(delete)
        return Response(status=204)

    def _set_registered(self, content: Content, item: RegisteredLimit, body: dict[str, Any], place: _Place) -> None:
        if any(_place_of(other) == place for other in content.registered_limits if other is not item):
            raise exceptions.Conflict(f"There is a registered limit of {place[2]} for this service and region already.")
        item.service_id, item.region_id, item.resource_name = place
        item.default_limit = _number(body, "default_limit")
        item.description = _text(body)

    # --- limits of single projects and domains

    def limit_model(self, req: ServiceRequest) -> Response:
        return Response({"model": _MODEL})

    def list_limits(self, req: ServiceRequest) -> Response:
        """List the limits that the caller may see: those of the project or domain of the token, or all."""
        shown = [_limit(item, req.base_url) for item in self.authority.content.limits if _may_see(req, item)]
        return listing.listed(req, "limits", shown)

    def create_limits(self, req: ServiceRequest) -> Response:
        items = _items(req, "limits")

        def create(content: Content) -> list[Limit]:
            made = []
            for body in items:
                item = self._new_limit(content, body)
                content.limits.append(item)
                made.append(item)
            _check_number(content.limits)
            return made

        return Response({"limits": [_limit(item, req.base_url) for item in self._change(create)]}, 201)

    def _new_limit(self, content: Content, body: dict[str, Any]) -> Limit:
        project_id, domain_id = (body.get(name) for name in ("project_id", "domain_id"))
        if (project_id is None) == (domain_id is None):
            raise exceptions.ValidationError(detail="A limit is of a project_id or of a domain_id.")
        if project_id is not None:
            id = requests.text_field(body, "project_id")
            requests.require("project", id, content.project(id))
        else:
            id = requests.text_field(body, "domain_id")
            requests.require("domain", id, content.domain(id))
        place = self._place(content, body)
        if all(_place_of(item) != place for item in content.registered_limits):
            raise exceptions.Forbidden(f"There is no registered limit of {place[2]} for this service and region.")
        whose = project_id, domain_id
        if any((_place_of(item), (item.project_id, item.domain_id)) == (place, whose) for item in content.limits):
            raise exceptions.Conflict(f"There is a limit of {place[2]} for this project or domain already.")
        return Limit(
            id=uuid.uuid4().hex,
            service_id=place[0],
            region_id=place[1],
            resource_name=place[2],
            resource_limit=_number(body, "resource_limit"),
            project_id=project_id,
            domain_id=domain_id,
            description=_text(body),
        )

    def show_limit(self, req: ServiceRequest, id: str) -> Response:
        item = self.authority.content.find(Limit, id)
        req.authorize(policies.LIMITS_SHOW, _owner(item) if item is not None else {"project_id": "", "domain_id": ""})
        return Response({"limit": _limit(_require(self.authority.content, Limit, id), req.base_url)})

    def update_limit(self, req: ServiceRequest, id: str) -> Response:
        body = requests.body_object(req, "limit")

        def update(content: Content) -> Limit:
            item = _require(content, Limit, id)
            if "resource_limit" in body:
                item.resource_limit = _number(body, "resource_limit")
            item.description = _text({"description": item.description} | body)
            return item

        return Response({"limit": _limit(self._change(update), req.base_url)})

    def delete_limit(self, req: ServiceRequest, id: str) -> Response:
        self._change(lambda content: content.limits.remove(_require(content, Limit, id)))
        return Response(status=204)

    def _place(self, content: Content, body: dict[str, Any]) -> _Place:
        """Return service, region and resource of a limit. Raises `ValidationError` if one does not exist."""
        service_id, name = requests.text_field(body, "service_id"), requests.text_field(body, "resource_name")
        if all(item["id"] != service_id for item in self.service_catalog.all_services(content)):
            raise exceptions.ValidationError(detail=f"Could not find service: {service_id[:64]}.")
        region_id = requests.text_field(body, "region_id") if body.get("region_id") is not None else None
        regions = (item["id"] for item in self.service_catalog.all_regions(content))
        if region_id is not None and region_id not in regions:
            raise exceptions.ValidationError(detail=f"Could not find region: {region_id[:64]}.")
        if not 0 < len(name) <= MAX_TEXT:
            raise exceptions.ValidationError(detail=f"resource_name has 1 to {MAX_TEXT} characters.")
        return service_id, region_id, name

    def _change(self, function: Callable[[Content], T]) -> T:
        return self.authority.replica.change(function)


_PLACE = ("service_id", "region_id", "resource_name")


def _place_of(item: RegisteredLimit | Limit) -> _Place:
    return item.service_id, item.region_id, item.resource_name


def _limits_of(content: Content, registered: RegisteredLimit) -> list[Limit]:
    return [item for item in content.limits if _place_of(item) == _place_of(registered)]


def _owner(item: Limit) -> dict[str, str]:
    return {"project_id": item.project_id or "", "domain_id": item.domain_id or ""}


def _may_see(req: ServiceRequest, item: Limit) -> bool:
    return req.allows(policies.LIMITS_SHOW, _owner(item))


def _require(content: Content, kind: type[T], id: str) -> T:
    return requests.require("limit", id, content.find(kind, id))


def _check_number(items: list[Any]) -> None:
    if len(items) > MAX_LIMITS:
        raise exceptions.Forbidden(f"There are at most {MAX_LIMITS} limits. Delete the unused ones.")


def _items(req: ServiceRequest, name: str) -> list[dict[str, Any]]:
    items = req.json_object().get(name)
    if not isinstance(items, list) or not items or not all(isinstance(item, dict) for item in items):
        raise exceptions.ValidationError(detail=f"Expecting to find {name} in the request, as a list of objects.")
    return items


def _number(body: dict[str, Any], name: str) -> int:
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value < 2**31:
        raise exceptions.ValidationError(
            detail=f"{name} must be an integer from -1, which is no limit, to {2**31 - 1}."
        )
    return value


def _text(body: dict[str, Any]) -> str | None:
    value = body.get("description")
    if value is not None and (not isinstance(value, str) or len(value) > MAX_TEXT):
        raise exceptions.ValidationError(detail=f"description must be a string of at most {MAX_TEXT} characters.")
    return value


def _registered(item: RegisteredLimit, base_url: str) -> dict[str, Any]:
    names = ("id", *_PLACE, "default_limit", "description")
    return views.linked({name: getattr(item, name) for name in names}, base_url, "registered_limits")


def _limit(item: Limit, base_url: str) -> dict[str, Any]:
    names = ("id", *_PLACE, "resource_limit", "description", "project_id", "domain_id")
    return views.linked({name: getattr(item, name) for name in names}, base_url, "limits")
