"""Names of the addresses of floating addresses."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from nova_lite.api.dns import resource, views
from nova_lite.api.dns.resource import DnsResource, accepted
from nova_lite.api.dns.zones import Ttl
from nova_lite.api.http.bodies import Body
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import fields
from nova_lite.base import exceptions
from nova_lite.dns.objects import RecordSet
from nova_lite.policies import dns as policies

_PATH, _ONE = "/reverse/floatingips", "/reverse/floatingips/{key}"


def _name(value: Any, name: str) -> str:
    return fields.text(value, name).lower()


class ChangedPointer(Body):
    ptrdname: Annotated[str | None, fields.checked(_name, maxLength=255)] = None
    ttl: Ttl = None
    description: fields.OptionalText = None


class FloatingIps(DnsResource):
    """Names of the addresses of floating addresses."""

    kind = "floatingip"

    @route("GET", _PATH, policies.FLOATING_GET, response="floatingips")
    def index(self, req: ServiceRequest) -> Response:
        found = [self._view(req, item) for item in self.read(req, "pointers")]
        links = {"self": f"{self.url(req)}{_PATH}"}
        return Response({"floatingips": found, "links": links, "metadata": {"total_count": len(found)}})

    def _view(self, req: ServiceRequest, found: Any) -> views.View:
        pointer = msgspec.convert(msgspec.to_builtins(found), RecordSet)
        return views.pointer(pointer, self.conf.identity.region, self.url(req))

    def _id(self, key: str) -> str:
        """Return the id of a floating address by the key of this API. Raises a 404."""
        region, _, id = key.rpartition(":")
        if region != self.conf.identity.region:
            raise exceptions.NotFound(f"Could not find FloatingIP {key[:64]}")
        return id

    @route("GET", _ONE, policies.FLOATING_GET)
    def show(self, req: ServiceRequest, key: str) -> views.View:
        return self._view(req, self.read(req, "pointers", ids=[self._id(key)])[0])

    @route("PATCH", _ONE, policies.FLOATING_UPDATE, body=ChangedPointer, status=202)
    def update(self, req: ServiceRequest, key: str) -> Response:
        """Name the address. Without a ``ptrdname`` (null), it has no name."""
        wanted = resource.body(req, ChangedPointer)
        values = {"name": wanted.ptrdname, "ttl": wanted.ttl, "description": wanted.description}
        return accepted(self._view(req, self.change(req, "set_pointer", floating_ip_id=self._id(key), **values)))
