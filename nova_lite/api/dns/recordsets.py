"""Record sets of zones."""

from __future__ import annotations

import functools
import uuid
from typing import Annotated, Any, TypeAlias

import msgspec

from nova_lite.api.dns import resource, views
from nova_lite.api.dns.resource import DnsResource, accepted, parameters
from nova_lite.api.dns.zones import Name, Ttl
from nova_lite.api.http.bodies import SAME, Body
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import fields, requests
from nova_lite.dns.objects import TYPES, RecordSet
from nova_lite.policies import dns as policies

_PATH = "/zones/{zone_id}/recordsets"
_ONE = f"{_PATH}/{{recordset_id}}"
_FILTERS = ("name", "type", "ttl", "data", "description", "status", "zone_id")
_SORT_KEYS = ("created_at", "id", "name", "updated_at", "status", "ttl", "type", "zone_id")
_MAX_RECORD = 4000


def _records(value: Any, name: str) -> list[str]:
    texts = isinstance(value, list) and all(isinstance(item, str) and len(item) <= _MAX_RECORD for item in value)
    if not texts or not all(item.isprintable() for item in value):
        raise fields.invalid(name, "It must be a list of printable texts.")
    return [item.strip() for item in value]


def _type(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise fields.invalid(name, f"It must be one of {', '.join(TYPES)}.")
    return value.upper()


Records: TypeAlias = Annotated[list[str], fields.checked(_records)]
Type: TypeAlias = Annotated[str, fields.checked(_type, null=True, enum=TYPES)]


class NewRecordSet(Body):
    name: Name
    type: Type
    records: Records = []
    ttl: Ttl = None
    description: fields.OptionalText = None


class ChangedRecordSet(Body):
    records: Records = SAME
    ttl: Ttl = None
    description: fields.OptionalText = None
    name: fields.Present = SAME
    type: fields.Present = SAME


class RecordSets(DnsResource):
    """Record sets."""

    kind = "recordset"

    @route("GET", "/recordsets", policies.RECORDSETS, query=parameters(_FILTERS), response="recordsets")
    @route("GET", _PATH, policies.RECORDSETS, query=parameters(_FILTERS), response="recordsets")
    def index(self, req: ServiceRequest, zone_id: str | None = None) -> Response:
        """List the record sets of a zone, or of all zones of the project."""
        query = self.query(req, _FILTERS, _SORT_KEYS)
        page = msgspec.to_builtins(self.read(req, "recordset_list", query=query, zone_id=zone_id))
        return self.listed(req, "recordsets", page, query, functools.partial(self._view, req))

    def _view(self, req: ServiceRequest, found: Any) -> views.View:
        return views.recordset(msgspec.convert(msgspec.to_builtins(found), RecordSet), self.url(req))

    @route("GET", _ONE, policies.RECORDSET_GET)
    def show(self, req: ServiceRequest, zone_id: str, recordset_id: str) -> views.View:
        return self._view(req, self.read(req, "recordset_get", zone_id=zone_id, recordset_id=recordset_id))

    @route("POST", _PATH, policies.RECORDSET_CREATE, body=NewRecordSet, status=202)
    def create(self, req: ServiceRequest, zone_id: str) -> Response:
        sent = resource.body(req, NewRecordSet)
        wanted = RecordSet(**requests.common(RecordSet, sent), id=str(uuid.uuid4()), project_id="", zone_id=zone_id)
        return accepted(self._view(req, self.change(req, "recordset_create", recordset=wanted)))

    @route("PUT", _ONE, policies.RECORDSET_UPDATE, body=ChangedRecordSet, status=202)
    def update(self, req: ServiceRequest, zone_id: str, recordset_id: str) -> Response:
        changes = resource.changes(req, ChangedRecordSet)
        ids = {"zone_id": zone_id, "recordset_id": recordset_id}
        for name in changes.keys() & {"name", "type"}:
            if changes.pop(name) != self.show(req, zone_id, recordset_id)[name]:
                raise fields.invalid(name, "It cannot be changed: make another record set.")
        return accepted(self._view(req, self.change(req, "recordset_update", **ids, changes=changes)))

    @route("DELETE", _ONE, policies.RECORDSET_DELETE, status=202)
    def delete(self, req: ServiceRequest, zone_id: str, recordset_id: str) -> Response:
        ids = {"zone_id": zone_id, "recordset_id": recordset_id}
        return accepted(self._view(req, self.change(req, "recordset_delete", **ids)))
