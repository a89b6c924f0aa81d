"""Zones."""

from __future__ import annotations

import functools
import uuid
from typing import Annotated, Any, TypeAlias

import msgspec

from nova_lite.api.dns import resource, views
from nova_lite.api.dns.resource import DnsResource, accepted, parameters
from nova_lite.api.http.bodies import SAME, Body
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import fields, requests
from nova_lite.base import exceptions
from nova_lite.dns.objects import DEFAULT_TTL, MAX_TTL, MIN_TTL, Zone
from nova_lite.policies import dns as policies

_PATH, _ONE = "/zones", "/zones/{zone_id}"
_FILTERS = ("name", "email", "status", "ttl", "description", "type")
_SORT_KEYS = ("created_at", "id", "name", "updated_at", "status", "ttl", "serial", "email")


def _required_name(value: Any, name: str) -> str:
    if value is None:
        raise fields.missing(name)
    return fields.text(value, name).lower()


def _ttl(value: Any, name: str) -> int:
    if isinstance(value, str):
        raise fields.invalid(name, "It must be a number.")
    return fields.number(value, name, MIN_TTL, MAX_TTL)


Ttl: TypeAlias = Annotated[int | None, fields.checked(_ttl, minimum=MIN_TTL, maximum=MAX_TTL)]
Name: TypeAlias = Annotated[str, fields.checked(_required_name, null=True, required=False, maxLength=255)]


class NewZone(Body):
    name: Name
    email: fields.Text = ""
    ttl: Ttl = DEFAULT_TTL
    description: fields.OptionalText = None
    type: Annotated[Any, fields.only("PRIMARY", why="Zones are of the type PRIMARY here.")] = SAME
    masters: fields.OnlyEmptyList = SAME
    attributes: fields.Ignored = SAME


class ChangedZone(Body):
    email: fields.Text = SAME
    ttl: Ttl = DEFAULT_TTL
    description: fields.OptionalText = None
    masters: fields.OnlyEmptyList = SAME


class Zones(DnsResource):
    """Zones."""

    @route("GET", _PATH, policies.ZONES, query=parameters(_FILTERS), response="zones")
    def index(self, req: ServiceRequest) -> Response:
        query = self.query(req, _FILTERS, _SORT_KEYS)
        if query.filters.pop("type", "PRIMARY") != "PRIMARY":
            return self.listed(req, "zones", {"items": [], "total": 0}, query, dict)
        page = msgspec.to_builtins(self.read(req, "zone_list", query=query))
        return self.listed(req, "zones", page, query, functools.partial(self._view, req))

    def _view(self, req: ServiceRequest, zone: Any) -> views.View:
        return views.zone(msgspec.convert(zone, Zone), self.url(req))

    @route("GET", _ONE, policies.ZONE_GET)
    def show(self, req: ServiceRequest, zone_id: str) -> views.View:
        return self._view(req, msgspec.to_builtins(self.read(req, "zone_get", zone_id=zone_id)))

    @route("POST", _PATH, policies.ZONE_CREATE, body=NewZone, status=202)
    def create(self, req: ServiceRequest) -> Response:
        wanted = resource.body(req, NewZone)
        if not req.context.project_id:
            raise exceptions.Forbidden("A zone belongs to a project; this token is for none.")
        zone = Zone(**requests.common(Zone, wanted), id=str(uuid.uuid4()), project_id=req.context.project_id)
        return accepted(self._view(req, msgspec.to_builtins(self.change(req, "zone_create", zone=zone))))

    @route("PATCH", _ONE, policies.ZONE_UPDATE, body=ChangedZone, status=202)
    def update(self, req: ServiceRequest, zone_id: str) -> Response:
        changes = resource.changes(req, ChangedZone)
        changed = self.change(req, "zone_update", zone_id=zone_id, changes=changes)
        return accepted(self._view(req, msgspec.to_builtins(changed)))

    @route("DELETE", _ONE, policies.ZONE_DELETE, status=202)
    def delete(self, req: ServiceRequest, zone_id: str) -> Response:
        return accepted(self._view(req, msgspec.to_builtins(self.change(req, "zone_delete", zone_id=zone_id))))
