"""Floating addresses. ``floating_network_id`` is the id of a pool, which an operator has made."""

from __future__ import annotations

import functools
from typing import Any

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import listing, requests, views
from nova_lite.api.network.resource import Resource
from nova_lite.base import exceptions
from nova_lite.objects import FloatingIp, ListQuery

_KNOWN = (
    "floating_network_id",
    "floating_ip_address",
    "port_id",
    "fixed_ip_address",
    "description",
    "project_id",
    "tenant_id",
    "subnet_id",
    "tags",
)
_ONLY_DEFAULT = ("dns_name", "dns_domain", "qos_policy_id")

#: Filters that the conductor applies, so that it does not send all addresses.
_CONDUCTOR_FILTERS = {
    "id": "id",
    "floating_ip_address": "address",
    "floating_network_id": "pool_id",
    "port_id": "port_id",
    "project_id": "project_id",
    "tenant_id": "project_id",
}


class FloatingIpResource(Resource):
    """Handlers of ``/floatingips``."""

    def floating_ips(self, req: ServiceRequest) -> Response:
        source = listing.Source(functools.partial(self._addresses, req), lambda found: [found.view], _CONDUCTOR_FILTERS)
        return self.listed(req, "floatingips", source)

    def _addresses(self, req: ServiceRequest, query: ListQuery) -> list[listing.Shown]:
        addresses = self.conductor.floating_ip_list(req.context, True, query)
        return [listing.Shown(view["id"], view) for view in self._views(req, addresses)]

    def floating_ip(self, req: ServiceRequest, id: str) -> Response:
        return listing.shown(req, "floatingip", self._one(req, self.conductor.floating_ip_get(req.context, id)))

    def _one(self, req: ServiceRequest, floating_ip: FloatingIp) -> dict[str, Any]:
        return self._views(req, [floating_ip])[0]

    def _views(self, req: ServiceRequest, addresses: list[FloatingIp]) -> list[dict[str, Any]]:
        ids = [address.port_id for address in addresses if address.port_id is not None]
        ports = {port.id: port for port in self.conductor.port_list(req.context, {"id": ids})} if ids else {}
        return [views.floating_ip(address, ports.get(address.port_id or "")) for address in addresses]

    def create_floating_ip(self, req: ServiceRequest) -> Response:
        fields = requests.body(req, "floatingip", _KNOWN, _ONLY_DEFAULT)
        _check_port(fields)
        pool_id = requests.required_id(fields, "floating_network_id")
        if (subnet_id := requests.an_id(fields, "subnet_id")) is not None:
            self._check_subnet(req, pool_id, subnet_id)
        requested = FloatingIp(
            id="",
            pool="",
            pool_id=pool_id,
            address=_address(fields, "floating_ip_address") or "",
            project_id=requests.project(req, fields),
            port_id=requests.an_id(fields, "port_id"),
            fixed_address=_address(fields, "fixed_ip_address"),
            description=requests.text(fields, "description"),
            tags=requests.tags(fields),
        )
        try:
            created = self.conductor.floating_ip_create(req.context, None, requested)
        except exceptions.FloatingIpPoolNotFound as error:
            if self.conductor.network_record_list(req.context, ListQuery(filters={"id": [pool_id]}, limit=1)):
                raise exceptions.ValidationError(detail=f"Network {pool_id} is not a valid external network") from error
            raise
        return Response({"floatingip": self._one(req, created)}, 201)

    def _check_subnet(self, req: ServiceRequest, pool_id: str, subnet_id: str) -> None:
        """Raise `SubnetNotFound` unless the external network has this subnet."""
        pools = self.conductor.floating_ip_pool_list(req.context)
        if (pool_id, subnet_id) not in [(pool.id, pool.subnet_id or pool.id) for pool in pools if pool.cidr]:
            raise exceptions.SubnetNotFound(subnet_id=subnet_id)

    def update_floating_ip(self, req: ServiceRequest, id: str) -> Response:
        """Change the description or the port. Without a port (null), the address is disassociated. A request without
        any field has the same effect: it was the way before an address had a description.
        """
        fields = requests.body(req, "floatingip", ("port_id", "fixed_ip_address", "description"), _ONLY_DEFAULT)
        _check_port(fields)
        fields = fields or {"port_id": None}
        changes: dict[str, Any] = dict(requests.texts(fields, "description"))
        if "port_id" in fields:
            changes["port_id"] = requests.an_id(fields, "port_id")
            changes["fixed_address"] = _address(fields, "fixed_ip_address")
        current = self.conductor.floating_ip_get(req.context, id)
        updated = self.conductor.floating_ip_update(req.context, current.id, changes)
        return Response({"floatingip": self._one(req, updated)})

    def delete_floating_ip(self, req: ServiceRequest, id: str) -> Response:
        self.conductor.floating_ip_delete(req.context, self.conductor.floating_ip_get(req.context, id).id)
        return Response(status=204)


def _check_port(fields: dict[str, Any]) -> None:
    if fields.get("fixed_ip_address") and not fields.get("port_id"):
        raise exceptions.ValidationError(detail="fixed_ip_address cannot be specified without a port_id")


def _address(fields: dict[str, Any], name: str) -> str | None:
    return requests.address(fields[name], name) if fields.get(name) else None
