"""Unified limits, over the identity API: what operators register for services that look their limits up there.

nova_lite's own quotas are elsewhere: these limits change none of its APIs.
"""

from __future__ import annotations

import uuid
from typing import Any, TypeAlias

from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import requests, views
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import Limit, RegisteredLimit
from nova_lite.api.identity.resource import IdentityResource
from nova_lite.api.identity.views import View
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

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


class _Places(IdentityResource):
    """Limits of resources of the services in the catalog."""

    def place(self, content: Content, body: dict[str, Any]) -> _Place:
        """Return service, region and resource of a limit. Raises `ValidationError` if one does not exist."""
        service_id, name = requests.text_field(body, "service_id"), requests.text_field(body, "resource_name")
        if all(item["id"] != service_id for item in self.catalog.all_services(content)):
            raise exceptions.ValidationError(detail=f"Could not find service: {service_id[:64]}.")
        region_id = requests.text_field(body, "region_id") if body.get("region_id") is not None else None
        regions = (item["id"] for item in self.catalog.all_regions(content))
        if region_id is not None and region_id not in regions:
            raise exceptions.ValidationError(detail=f"Could not find region: {region_id[:64]}.")
        if not 0 < len(name) <= MAX_TEXT:
            raise exceptions.ValidationError(detail=f"resource_name has 1 to {MAX_TEXT} characters.")
        return service_id, region_id, name


class RegisteredLimits(_Places):
    """Registered limits: the defaults of all projects."""

    @route("GET", _REGISTERED, policies.REGISTERED_LIST, response="registered_limits")
    def index(self, req: ServiceRequest) -> Response:
        shown = [_registered(item, req.base_url) for item in self.content.registered_limits]
        return self.listed(req, shown)

    @route("POST", _REGISTERED, policies.REGISTERED_CREATE, response="registered_limits", status=201)
    def create(self, req: ServiceRequest) -> list[View]:
        items = _items(req, "registered_limits")

        def create(content: Content) -> list[RegisteredLimit]:
            made = []
            for body in items:
                item = RegisteredLimit(id=uuid.uuid4().hex, service_id="", resource_name="", default_limit=0)
                body = {"region_id": None, "description": None} | body
                self._set_registered(content, item, body, self.place(content, body))
                content.registered_limits.append(item)
                made.append(item)
            _check_number(content.registered_limits)
            return made

        return [_registered(item, req.base_url) for item in self.change(create)]

    @route("GET", f"{_REGISTERED}/{{id}}", policies.REGISTERED_SHOW, response="registered_limit")
    def show(self, req: ServiceRequest, id: str) -> View:
        found = requests.require("limit", id, self.content.find(RegisteredLimit, id))
        return _registered(found, req.base_url)

    @route(
        "PATCH",
        f"{_REGISTERED}/{{id}}",
        policies.REGISTERED_UPDATE,
        key="registered_limit",
        response="registered_limit",
    )
    def update(self, req: ServiceRequest, id: str) -> View:
        body = requests.body_object(req, "registered_limit")

        def update(content: Content) -> RegisteredLimit:
            item = requests.require("limit", id, content.find(RegisteredLimit, id))
            is_moved = any(body.get(name, getattr(item, name)) != getattr(item, name) for name in _PLACE)
            if is_moved and _limits_of(content, item):
                raise exceptions.Forbidden("This registered limit has limits of projects. Delete those first.")
            # The service or region of a limit that stays where it is may have been deleted.
            wanted = {name: getattr(item, name) for name in item.__struct_fields__} | body
            self._set_registered(content, item, wanted, self.place(content, wanted) if is_moved else _place_of(item))
            return item

        return _registered(self.change(update), req.base_url)

    @route("DELETE", f"{_REGISTERED}/{{id}}", policies.REGISTERED_DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        def delete(content: Content) -> None:
            item = requests.require("limit", id, content.find(RegisteredLimit, id))
            if _limits_of(content, item):
                raise exceptions.Forbidden("This registered limit has limits of projects. Delete those first.")
            content.registered_limits.remove(item)

        self.change(delete)

    def _set_registered(self, content: Content, item: RegisteredLimit, body: dict[str, Any], place: _Place) -> None:
        if any(_place_of(other) == place for other in content.registered_limits if other is not item):
            raise exceptions.Conflict(f"There is a registered limit of {place[2]} for this service and region already.")
        item.service_id, item.region_id, item.resource_name = place
        item.default_limit = _number(body, "default_limit")
        item.description = _text(body)


class Limits(_Places):
    """Limits of single projects and domains."""

    @route("GET", f"{_LIMITS}/model", policies.LIMIT_MODEL, response="model")
    def model(self, req: ServiceRequest) -> View:
        return _MODEL

    @route("GET", _LIMITS, policies.LIMITS_LIST, response="limits")
    def index(self, req: ServiceRequest) -> Response:
        """List the limits that the caller may see: those of the project or domain of the token, or all."""
        shown = [_limit(item, req.base_url) for item in self.content.limits if _may_see(req, item)]
        return self.listed(req, shown)

    @route("POST", _LIMITS, policies.LIMITS_CREATE, response="limits", status=201)
    def create(self, req: ServiceRequest) -> list[View]:
        items = _items(req, "limits")

        def create(content: Content) -> list[Limit]:
            made = []
            for body in items:
                item = self._new_limit(content, body)
                content.limits.append(item)
                made.append(item)
            _check_number(content.limits)
            return made

        return [_limit(item, req.base_url) for item in self.change(create)]

    def _new_limit(self, content: Content, body: dict[str, Any]) -> Limit:
        project_id, domain_id = (body.get(name) for name in ("project_id", "domain_id"))
        if (project_id is None) == (domain_id is None):
            raise exceptions.ValidationError(detail="A limit is of a project_id or of a domain_id.")
        if project_id is not None:
            id = requests.text_field(body, "project_id")
            requests.project(content, id)
        else:
            id = requests.text_field(body, "domain_id")
            requests.domain(content, id)
        place = self.place(content, body)
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

    @route("GET", f"{_LIMITS}/{{id}}", policies.LIMITS_SHOW, authorizes=True, response="limit")
    def show(self, req: ServiceRequest, id: str) -> View:
        item = self.content.find(Limit, id)
        req.authorize(policies.LIMITS_SHOW, _owner(item) if item is not None else {"project_id": "", "domain_id": ""})
        return _limit(requests.require("limit", id, self.content.find(Limit, id)), req.base_url)

    @route("PATCH", f"{_LIMITS}/{{id}}", policies.LIMITS_UPDATE, key="limit", response="limit")
    def update(self, req: ServiceRequest, id: str) -> View:
        body = requests.body_object(req, "limit")

        def update(content: Content) -> Limit:
            item = requests.require("limit", id, content.find(Limit, id))
            if "resource_limit" in body:
                item.resource_limit = _number(body, "resource_limit")
            item.description = _text({"description": item.description} | body)
            return item

        return _limit(self.change(update), req.base_url)

    @route("DELETE", f"{_LIMITS}/{{id}}", policies.LIMITS_DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self.change(lambda content: content.limits.remove(requests.require("limit", id, content.find(Limit, id))))


_PLACE = ("service_id", "region_id", "resource_name")


def _place_of(item: RegisteredLimit | Limit) -> _Place:
    return item.service_id, item.region_id, item.resource_name


def _limits_of(content: Content, registered: RegisteredLimit) -> list[Limit]:
    return [item for item in content.limits if _place_of(item) == _place_of(registered)]


def _owner(item: Limit) -> dict[str, str]:
    return {"project_id": item.project_id or "", "domain_id": item.domain_id or ""}


def _may_see(req: ServiceRequest, item: Limit) -> bool:
    return req.allows(policies.LIMITS_SHOW, _owner(item))


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
