"""Port forwardings: ports of a floating address that lead to ports of interfaces."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeAlias

from msgspec import field

from nova_lite.api.http.bodies import Body
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import fields, listing, requests, views
from nova_lite.api.network.floating_ips import Address
from nova_lite.api.network.resource import NetworkResource, lists, shows
from nova_lite.base import exceptions
from nova_lite.objects import FloatingIp, PortForwarding
from nova_lite.objects.security_group import WITH_PORTS
from nova_lite.policies import network_service as policies

_GET, _CREATE, _UPDATE, _DELETE = policies.FORWARDING
_PATH, _KIND, _KEY = "/floatingips/{floatingip_id}/port_forwardings", "port_forwardings", "port_forwarding"
_ONE = f"{_PATH}/{{id}}"
_MAX_PORT = 65535
_RANGE = re.compile(r"([0-9]{1,5})(?::([0-9]{1,5}))?")


def _protocol(value: Any, name: str) -> str:
    if not isinstance(value, str) or value.lower() not in WITH_PORTS.values():
        raise fields.invalid(name, f"It must be one of {', '.join(WITH_PORTS.values())}.")
    return value.lower()


def _range(value: Any, name: str) -> tuple[int, int]:
    found = _RANGE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise fields.invalid(name, "It must be two port numbers with a colon between them, as 8000:8010.")
    first, last = int(found[1]), int(found[2] or found[1])
    if not 1 <= first <= last <= _MAX_PORT:
        raise fields.invalid(name, f"It must be port numbers from 1 to {_MAX_PORT}, the lower one first.")
    return first, last


Protocol: TypeAlias = Annotated[str, fields.checked(_protocol, required=True, enum=list(WITH_PORTS.values()))]
Number: TypeAlias = Annotated[int | None, fields.within(1, _MAX_PORT)]
Range: TypeAlias = Annotated[str | None, fields.checked(_range, pattern=f"^{_RANGE.pattern}$")]


class _PortForwarding(Body, kw_only=True):
    address: Address = field(default=None, name="internal_ip_address")
    internal_port: Number = None
    internal_port_range: Range = None
    external_port: Number = None
    external_port_range: Range = None
    description: fields.Text = ""


class NewPortForwarding(_PortForwarding, kw_only=True):
    port_id: fields.RequiredId = field(name="internal_port_id")
    protocol: Protocol
    project_id: fields.Text = ""
    tenant_id: fields.Text = ""


class ChangedPortForwarding(_PortForwarding, kw_only=True):
    port_id: fields.Id = field(default=None, name="internal_port_id")
    protocol: Annotated[str | None, fields.checked(_protocol, enum=[None, *WITH_PORTS.values()])] = None


class PortForwardings(NetworkResource):
    """Port forwardings of a floating address."""

    @lists(_PATH, _GET, _KIND)
    def index(self, req: ServiceRequest, floatingip_id: str) -> Response:
        found = self._of(req, self._floating(req, floatingip_id), None)
        return self.listed(req, listing.constant([views.port_forwarding(item) for item in found]))

    @shows(_ONE, _GET, _KEY)
    def show(self, req: ServiceRequest, floatingip_id: str, id: str) -> views.View:
        return listing.cut(req, views.port_forwarding(self._find(req, floatingip_id, id)))

    @route("POST", _PATH, _CREATE, body=NewPortForwarding, key=_KEY, response=_KEY, status=201)
    def create(self, req: ServiceRequest, floatingip_id: str) -> views.View:
        floating, body = self._floating(req, floatingip_id), requests.read(req, NewPortForwarding)
        ports = {
            **_ports("internal", body.internal_port, body.internal_port_range),
            **_ports("external", body.external_port, body.external_port_range),
        }
        for side in ("internal", "external"):
            if f"{side}_first" not in ports:
                raise fields.missing(f"{side}_port")
        wanted = requests.new(
            req, PortForwarding, body, floating_ip_id=floating.id, address=body.address or "", **ports
        )
        return views.port_forwarding(self.conductor.network_object_create(req.context, wanted))

    @route("PUT", _ONE, _UPDATE, body=ChangedPortForwarding, key=_KEY, response=_KEY)
    def update(self, req: ServiceRequest, floatingip_id: str, id: str) -> views.View:
        """Change what a request names. Null changes nothing but the description."""
        sent = requests.changes(req, ChangedPortForwarding)
        changes = {name: value for name, value in sent.items() if value is not None}
        for side in ("internal", "external"):
            names = f"{side}_port", f"{side}_port_range"
            changes |= _ports(side, *(changes.pop(name, None) for name in names))
        found = self._find(req, floatingip_id, id)
        return views.port_forwarding(self.conductor.network_object_update(req.context, _KIND, found.id, changes))

    @route("DELETE", _ONE, _DELETE, status=204)
    def delete(self, req: ServiceRequest, floatingip_id: str, id: str) -> None:
        self.conductor.network_object_delete(req.context, _KIND, self._find(req, floatingip_id, id).id)

    def _floating(self, req: ServiceRequest, floatingip_id: str) -> FloatingIp:
        found = self.conductor.floating_ip_get(req.context, floatingip_id)
        if found.id != floatingip_id:  # the conductor finds addresses, too
            raise exceptions.FloatingIpNotFound(reference=floatingip_id[:64])
        return found

    def _of(self, req: ServiceRequest, floating: FloatingIp, id: str | None) -> list[PortForwarding]:
        found = self.conductor.network_object_list(req.context, _KIND, [id or floating.id])
        known = [item for item in found if isinstance(item, PortForwarding)]
        return [item for item in known if item.floating_ip_id == floating.id]

    def _find(self, req: ServiceRequest, floatingip_id: str, id: str) -> PortForwarding:
        for found in self._of(req, self._floating(req, floatingip_id), id):
            if found.id == id:
                return found
        raise exceptions.PortForwardingNotFound(id=id[:64])


def _ports(side: str, number: int | None, ports: Any) -> dict[str, int]:
    """Return the range of ports that a request names by one number or by a range. Raises a 400 if both differ."""
    found: tuple[int, int] | None = ports
    if number is not None:
        if found not in (None, (number, number)):
            raise fields.invalid(f"{side}_port_range", f"Give it or {side}_port.")
        found = number, number
    return {} if found is None else {f"{side}_first": found[0], f"{side}_last": found[1]}
