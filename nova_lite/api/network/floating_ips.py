"""Floating addresses. ``floating_network_id`` is the id of a pool, which an operator has made."""

from __future__ import annotations

import functools
from typing import Annotated, Any, TypeAlias

from msgspec import field

from nova_lite.api.http.bodies import Body
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import dns, fields, listing, requests, views
from nova_lite.api.network.resource import NetworkResource, lists, shows
from nova_lite.base import exceptions
from nova_lite.objects import FloatingIp, ListQuery
from nova_lite.policies import network_service as policies

_PATH, _ONE, _KEY = "/floatingips", "/floatingips/{id}", "floatingip"
#: Filters that the conductor applies, so that it does not send all addresses.
_CONDUCTOR_FILTERS = {
    "id": "id",
    "floating_ip_address": "address",
    "floating_network_id": "pool_id",
    "port_id": "port_id",
    "project_id": "project_id",
    "tenant_id": "project_id",
}


def _address(value: Any, name: str) -> str | None:
    return fields.address(value, name) if value else None


Address: TypeAlias = Annotated[str | None, fields.checked(_address)]


class _FloatingIp(Body):
    port_id: fields.Id = None
    fixed_address: Address = field(default=None, name="fixed_ip_address")
    dns_name: dns.Name = ""
    dns_domain: dns.Domain = ""
    qos_policy_id: fields.Id = None


class NewFloatingIp(_FloatingIp, kw_only=True):
    pool_id: fields.RequiredId = field(name="floating_network_id")
    address: Address = field(default="", name="floating_ip_address")
    description: fields.OptionalText = None
    subnet_id: fields.Id = None
    project_id: fields.Text = ""
    tenant_id: fields.Text = ""
    tags: fields.Tags = []


class ChangedFloatingIp(_FloatingIp):
    description: fields.Text = ""


class FloatingIps(NetworkResource):
    """Floating addresses."""

    @lists(_PATH, policies.FLOATING_GET, "floatingips")
    def index(self, req: ServiceRequest) -> Response:
        source = listing.Source(functools.partial(self._addresses, req), lambda found: [found.view], _CONDUCTOR_FILTERS)
        return self.listed(req, source)

    def _addresses(self, req: ServiceRequest, query: ListQuery) -> list[listing.Shown]:
        addresses = self.conductor.floating_ip_list(req.context, True, query)
        return [listing.Shown(view["id"], view) for view in self._views(req, addresses)]

    @shows(_ONE, policies.FLOATING_GET, _KEY)
    def show(self, req: ServiceRequest, id: str) -> views.View:
        return listing.cut(req, self._view(req, self.conductor.floating_ip_get(req.context, id)))

    def _view(self, req: ServiceRequest, floating_ip: FloatingIp) -> views.View:
        return self._views(req, [floating_ip])[0]

    def _views(self, req: ServiceRequest, addresses: list[FloatingIp]) -> list[views.View]:
        ids = [address.port_id for address in addresses if address.port_id is not None]
        ports = {port.id: port for port in self.conductor.port_list(req.context, {"id": ids})} if ids else {}
        return [views.floating_ip(address, ports.get(address.port_id or "")) for address in addresses]

    @route("POST", _PATH, policies.FLOATING_CREATE, body=NewFloatingIp, key=_KEY, response=_KEY, status=201)
    def create(self, req: ServiceRequest) -> views.View:
        body = requests.read(req, NewFloatingIp)
        _check_port(body.fixed_address, body.port_id)
        dns.check_floating(body.dns_name, body.dns_domain)
        if body.subnet_id is not None:
            self._check_subnet(req, body.pool_id, body.subnet_id)
        requested = requests.new(req, FloatingIp, body, id="", pool="")
        try:
            created = self.conductor.floating_ip_create(req.context, None, requested)
        except exceptions.FloatingIpPoolNotFound as error:
            query = ListQuery(filters={"id": [body.pool_id]}, limit=1)
            if self.conductor.network_record_list(req.context, query):
                raise exceptions.ValidationError(
                    detail=f"Network {body.pool_id} is not a valid external network"
                ) from error
            raise
        return self._view(req, created)

    def _check_subnet(self, req: ServiceRequest, pool_id: str, subnet_id: str) -> None:
        """Raise `SubnetNotFound` unless the external network has this subnet."""
        pools = self.conductor.floating_ip_pool_list(req.context)
        if (pool_id, subnet_id) not in [(pool.id, pool.subnet_id or pool.id) for pool in pools if pool.cidr]:
            raise exceptions.SubnetNotFound(subnet_id=subnet_id)

    @route("PUT", _ONE, policies.FLOATING_UPDATE, body=ChangedFloatingIp, key=_KEY, response=_KEY)
    def update(self, req: ServiceRequest, id: str) -> views.View:
        """Change the description or the port. Without a port (null), the address is disassociated. A request without
        any field has the same effect: it was the way before an address had a description.
        """
        changes = requests.changes(req, ChangedFloatingIp)
        _check_port(fixed_address := changes.pop("fixed_address", None), changes.get("port_id"))
        if not req.json_object()[_KEY]:
            changes = {"port_id": None}
        if "port_id" in changes:
            changes["fixed_address"] = fixed_address
        current = self.conductor.floating_ip_get(req.context, id)
        dns.take_unchanged(changes, current)
        return self._view(req, self.conductor.floating_ip_update(req.context, current.id, changes))

    @route("DELETE", _ONE, policies.FLOATING_DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self.conductor.floating_ip_delete(req.context, self.conductor.floating_ip_get(req.context, id).id)


def _check_port(fixed_address: str | None, port_id: str | None) -> None:
    if fixed_address and not port_id:
        raise exceptions.ValidationError(detail="fixed_ip_address cannot be specified without a port_id")
