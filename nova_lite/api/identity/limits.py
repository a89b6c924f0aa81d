"""Unified limits, over the identity API: what operators register for services that look their limits up there.

nova_lite's own quotas are elsewhere: these limits change none of its APIs.
"""

from __future__ import annotations

import functools
from typing import Annotated, Any, TypeAlias

from nova_lite.api.http import bodies
from nova_lite.api.http.bodies import Body, changed, checked
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import requests, views
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import Limit, RegisteredLimit
from nova_lite.api.identity.requests import Open, OptionalWords, Words, is_number, is_text, valid
from nova_lite.api.identity.resource import IdentityResource
from nova_lite.api.identity.views import View
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

#: Limits, and registered limits, of the cloud. Each API process has all of them in memory.
MAX_LIMITS = 10_000
MAX_TEXT = 255

_REGISTERED = "/v3/registered_limits"
_LIMITS = "/v3/limits"
_MODEL = {
    "name": "flat",
    "description": "Limit enforcement and validation does not take project hierarchy into consideration.",
}


def _items(kind: type[Body], sent: dict[str, Any], name: str) -> list[Any]:
    items = sent.get(name)
    if not isinstance(items, list) or not items or not all(isinstance(item, dict) for item in items):
        raise exceptions.ValidationError(detail=f"Expecting to find {name} in the request, as a list of objects.")
    return [bodies.read(kind, item) for item in items]


_is_limit = valid(
    lambda value: is_number(value, -1, 2**31 - 1),
    f"{{}} must be an integer from -1, which is no limit, to {2**31 - 1}.",
)
_is_description = valid(
    lambda value: is_text(value, MAX_TEXT), f"{{}} must be a string of at most {MAX_TEXT} characters."
)
_Number: TypeAlias = Annotated[int, checked(_is_limit, minimum=-1)]
_Text: TypeAlias = Annotated[str | None, checked(_is_description, maxLength=MAX_TEXT)]
_Resource: TypeAlias = Annotated[str, checked(requests.sized(MAX_TEXT), minLength=1, maxLength=MAX_TEXT)]


class _Place(Open):
    service_id: Words
    resource_name: _Resource
    region_id: OptionalWords = None
    description: _Text = None


class NewRegisteredLimit(_Place, kw_only=True):
    default_limit: _Number


class NewLimit(_Place, kw_only=True):
    resource_limit: _Number
    project_id: OptionalWords = None
    domain_id: OptionalWords = None


class NewRegisteredLimits(Open):
    registered_limits: Annotated[list[NewRegisteredLimit], checked(functools.partial(_items, NewRegisteredLimit))]


class NewLimits(Open):
    limits: Annotated[list[NewLimit], checked(functools.partial(_items, NewLimit))]


class ChangedLimit(Open):
    resource_limit: _Number = -1
    description: _Text = None


class _Limits(IdentityResource):
    """Limits of resources of the services in the catalog."""

    def check_place(self, content: Content, item: RegisteredLimit | Limit) -> None:
        """Raise `ValidationError` if the service or the region of a limit does not exist."""
        if all(known["id"] != item.service_id for known in self.catalog.all_services(content)):
            raise exceptions.ValidationError(detail=f"Could not find service: {item.service_id[:64]}.")
        regions = (known["id"] for known in self.catalog.all_regions(content))
        if item.region_id is not None and item.region_id not in regions:
            raise exceptions.ValidationError(detail=f"Could not find region: {item.region_id[:64]}.")


class RegisteredLimits(_Limits):
    """Registered limits: the defaults of all projects."""

    @route("GET", _REGISTERED, policies.REGISTERED_LIST, response="registered_limits")
    def index(self, req: ServiceRequest) -> Response:
        shown = [_registered(item, req.base_url) for item in self.content.registered_limits]
        return self.listed(req, shown)

    @route(
        "POST",
        _REGISTERED,
        policies.REGISTERED_CREATE,
        body=NewRegisteredLimits,
        response="registered_limits",
        status=201,
    )
    def create(self, req: ServiceRequest) -> list[View]:
        items = requests.read(req, NewRegisteredLimits).registered_limits
        made = [requests.new(req, RegisteredLimit, item) for item in items]

        def create(content: Content) -> None:
            for item in made:
                self.check_place(content, item)
                _check_registered(content, item)
                content.registered_limits.append(item)
            _check_number(content.registered_limits)

        self.change(create)
        return [_registered(item, req.base_url) for item in made]

    @route("GET", f"{_REGISTERED}/{{id}}", policies.REGISTERED_SHOW, response="registered_limit")
    def show(self, req: ServiceRequest, id: str) -> View:
        found = requests.require("limit", id, self.content.find(RegisteredLimit, id))
        return _registered(found, req.base_url)

    @route(
        "PATCH",
        f"{_REGISTERED}/{{id}}",
        policies.REGISTERED_UPDATE,
        body=changed(NewRegisteredLimit),
        key="registered_limit",
    )
    def update(self, req: ServiceRequest, id: str) -> View:
        changed = requests.changes(req)

        def update(content: Content) -> RegisteredLimit:
            item = requests.require("limit", id, content.find(RegisteredLimit, id))
            before, had_limits = _place_of(item), bool(_limits_of(content, item))
            requests.update(req, item, changed)
            # The service or region of a limit that stays where it is may have been deleted.
            if _place_of(item) != before:
                if had_limits:
                    raise exceptions.Forbidden("This registered limit has limits of projects. Delete those first.")
                self.check_place(content, item)
            _check_registered(content, item)
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


class Limits(_Limits):
    """Limits of single projects and domains."""

    @route("GET", f"{_LIMITS}/model", policies.LIMIT_MODEL, response="model")
    def model(self, req: ServiceRequest) -> View:
        return _MODEL

    @route("GET", _LIMITS, policies.LIMITS_LIST, response="limits")
    def index(self, req: ServiceRequest) -> Response:
        """List the limits that the caller may see: those of the project or domain of the token, or all."""
        shown = [_limit(item, req.base_url) for item in self.content.limits if _may_see(req, item)]
        return self.listed(req, shown)

    @route("POST", _LIMITS, policies.LIMITS_CREATE, body=NewLimits, response="limits", status=201)
    def create(self, req: ServiceRequest) -> list[View]:
        items = requests.read(req, NewLimits).limits
        made = [requests.new(req, Limit, item) for item in items]

        def create(content: Content) -> None:
            for item in made:
                self._check_new(content, item)
                content.limits.append(item)
            _check_number(content.limits)

        self.change(create)
        return [_limit(item, req.base_url) for item in made]

    def _check_new(self, content: Content, item: Limit) -> None:
        if (item.project_id is None) == (item.domain_id is None):
            raise exceptions.ValidationError(detail="A limit is of a project_id or of a domain_id.")
        if item.project_id is not None:
            requests.project(content, item.project_id)
        else:
            requests.domain(content, str(item.domain_id))
        self.check_place(content, item)
        place = _place_of(item)
        if all(_place_of(registered) != place for registered in content.registered_limits):
            raise exceptions.Forbidden(f"There is no registered limit of {place[2]} for this service and region.")
        if any((_place_of(other), _owner(other)) == (place, _owner(item)) for other in content.limits):
            raise exceptions.Conflict(f"There is a limit of {place[2]} for this project or domain already.")

    @route("GET", f"{_LIMITS}/{{id}}", policies.LIMITS_SHOW, authorizes=True, response="limit")
    def show(self, req: ServiceRequest, id: str) -> View:
        item = self.content.find(Limit, id)
        req.authorize(policies.LIMITS_SHOW, _owner(item) if item is not None else {"project_id": "", "domain_id": ""})
        return _limit(requests.require("limit", id, self.content.find(Limit, id)), req.base_url)

    @route("PATCH", f"{_LIMITS}/{{id}}", policies.LIMITS_UPDATE, body=ChangedLimit, key="limit")
    def update(self, req: ServiceRequest, id: str) -> View:
        found = self.updated(req, lambda content: requests.require("limit", id, content.find(Limit, id)))
        return _limit(found, req.base_url)

    @route("DELETE", f"{_LIMITS}/{{id}}", policies.LIMITS_DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self.change(lambda content: content.limits.remove(requests.require("limit", id, content.find(Limit, id))))


_PLACE = ("service_id", "region_id", "resource_name")


def _place_of(item: RegisteredLimit | Limit) -> tuple[str, str | None, str]:
    return item.service_id, item.region_id, item.resource_name


def _limits_of(content: Content, registered: RegisteredLimit) -> list[Limit]:
    return [item for item in content.limits if _place_of(item) == _place_of(registered)]


def _owner(item: Limit) -> dict[str, str]:
    return {"project_id": item.project_id or "", "domain_id": item.domain_id or ""}


def _may_see(req: ServiceRequest, item: Limit) -> bool:
    return req.allows(policies.LIMITS_SHOW, _owner(item))


def _check_registered(content: Content, item: RegisteredLimit) -> None:
    place = _place_of(item)
    if any(_place_of(other) == place for other in content.registered_limits if other is not item):
        raise exceptions.Conflict(f"There is a registered limit of {place[2]} for this service and region already.")


def _check_number(items: list[Any]) -> None:
    if len(items) > MAX_LIMITS:
        raise exceptions.Forbidden(f"There are at most {MAX_LIMITS} limits. Delete the unused ones.")


def _registered(item: RegisteredLimit, base_url: str) -> dict[str, Any]:
    names = ("id", *_PLACE, "default_limit", "description")
    return views.linked({name: getattr(item, name) for name in names}, base_url, "registered_limits")


def _limit(item: Limit, base_url: str) -> dict[str, Any]:
    names = ("id", *_PLACE, "resource_limit", "description", "project_id", "domain_id")
    return views.linked({name: getattr(item, name) for name in names}, base_url, "limits")
