"""Floating addresses. The network that they come from is the operator's pool."""

from __future__ import annotations

from typing import Any

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import listing, requests, views
from nova_lite.api.network.resource import Resource
from nova_lite.objects import FloatingIp

_KNOWN = (
    *("floating_network_id", "floating_ip_address", "port_id", "fixed_ip_address", "description"),
    *("project_id", "tenant_id"),
)
_FIXED = ("dns_name", "dns_domain", "qos_policy_id", "subnet_id", "tags")


class FloatingIpResource(Resource):
    def floating_ips(self, req: ServiceRequest) -> Response:
        found = self.conductor.floating_ip_list(req.context, True)
        return self.listed(req, "floatingips", self._views(req, found))

    def floating_ip(self, req: ServiceRequest, id: str) -> Response:
        return listing.shown(req, "floatingip", self._one(req, self.conductor.floating_ip_get(req.context, id)))

    def _one(self, req: ServiceRequest, floating_ip: FloatingIp) -> dict[str, Any]:
        return self._views(req, [floating_ip])[0]

    def _views(self, req: ServiceRequest, found: list[FloatingIp]) -> list[dict[str, Any]]:
        ids = [each.port_id for each in found if each.port_id is not None]
        ports = {port.id: port for port in self.conductor.port_list(req.context, {"id": ids})} if ids else {}
        return [views.floating_ip(each, ports.get(each.port_id or "")) for each in found]

    def create_floating_ip(self, req: ServiceRequest) -> Response:
        wanted = requests.body(req, "floatingip", _KNOWN, _FIXED)
        said = FloatingIp(
            id="",
            pool="",
            pool_id=requests.needed_id(wanted, "floating_network_id"),
            address=_address(wanted, "floating_ip_address") or "",
            project_id=requests.project(req, wanted),
            port_id=requests.an_id(wanted, "port_id"),
            fixed_address=_address(wanted, "fixed_ip_address"),
            description=requests.text(wanted, "description"),
        )
        made = self.conductor.floating_ip_create(req.context, None, said)
        return Response({"floatingip": self._one(req, made)}, 201)

    def update_floating_ip(self, req: ServiceRequest, id: str) -> Response:
        """Without a port (null, or none said with a fixed address) it leads nowhere."""
        wanted = requests.body(req, "floatingip", ("port_id", "fixed_ip_address", "description"), _FIXED)
        changes: dict[str, Any] = dict(requests.texts(wanted, "description"))
        if "port_id" in wanted:
            changes["port_id"] = requests.an_id(wanted, "port_id")
            changes["fixed_address"] = _address(wanted, "fixed_ip_address")
        found = self.conductor.floating_ip_get(req.context, id)
        made = self.conductor.floating_ip_update(req.context, found.id, changes)
        return Response({"floatingip": self._one(req, made)})

    def delete_floating_ip(self, req: ServiceRequest, id: str) -> Response:
        self.conductor.floating_ip_delete(req.context, self.conductor.floating_ip_get(req.context, id).id)
        return Response(status=204)


def _address(wanted: dict[str, Any], name: str) -> str | None:
    return requests.address(wanted[name], name) if wanted.get(name) else None
