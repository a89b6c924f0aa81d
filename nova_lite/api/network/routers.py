"""Routers: their gateways and interfaces.

The hosts of the guests route. A gateway leads to a pool of floating addresses, which is an external network.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import field

from nova_lite.api.http.bodies import SAME, Body
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import fields, listing, requests, views
from nova_lite.api.network.fixed_addresses import fixed_ips
from nova_lite.api.network.resource import NetworkResource, lists, shows
from nova_lite.base import exceptions
from nova_lite.objects import Port, Router, RouterAddress, StaticRoute
from nova_lite.objects.instance import version_of
from nova_lite.policies import network_service as policies

_PATH, _ONE, _KEY = "/routers", "/routers/{id}", "router"
_ADDRESSES = "external_fixed_ips"
_GATEWAY = ("network_id", "enable_snat", _ADDRESSES, "qos_policy_id")
#: Addresses of a router, as of a port in Neutron.
MAX_ADDRESSES = 5


def _gateway(value: Any, name: str) -> dict[str, Any]:
    """Return the attributes of a router that its gateway sets. Null or an empty object is no gateway."""
    info = value or {}
    if not isinstance(info, dict):
        raise fields.invalid(name, "It must be an object or null.")
    if unknown := sorted(info.keys() - set(_GATEWAY)):
        raise fields.invalid(name, f"Allowed are {', '.join(_GATEWAY)}, not '{unknown[0][:64]}'.")
    if info.get("qos_policy_id") is not None:
        raise fields.invalid(name, "This cloud's networks do not support QoS.")
    pool_id = info.get("network_id")
    if pool_id is None and info:
        raise fields.invalid(name, "It needs a network_id.")
    if pool_id is not None:
        fields.an_id(pool_id, "network_id")
    snat = info.get("enable_snat", True)
    found = {"pool_id": pool_id, "enable_snat": fields.flag(snat, "enable_snat")}
    if info.get("external_fixed_ips") is not None:
        found["addresses"] = _addresses(info["external_fixed_ips"])
    return found


def _addresses(value: Any) -> list[RouterAddress]:
    """Return what ``external_fixed_ips`` requests."""
    items = fixed_ips(value, _ADDRESSES)
    if len(items) > MAX_ADDRESSES:
        raise fields.invalid(_ADDRESSES, f"A router has at most {MAX_ADDRESSES} addresses.")
    given = [item.address for item in items if item.address]
    if any(version_of(address) != 4 for address in given):
        raise fields.invalid(_ADDRESSES, "External networks are IPv4.")
    if len(set(given)) < len(given):
        raise fields.invalid(_ADDRESSES, "It has duplicate items.")
    return [RouterAddress(subnet_id=item.subnet_id, address=item.address) for item in items]


def _required_routes(value: Any, name: str) -> list[dict[str, str]]:
    if value is None:
        raise fields.invalid(name, "The request needs a list of routes.")
    return fields.routes(value, name)


Gateway: TypeAlias = Annotated[dict[str, Any] | None, fields.checked(_gateway, null=True)]
RequiredRoutes: TypeAlias = Annotated[list[dict[str, str]], fields.checked(_required_routes, null=True)]
OnlyWithoutHa: TypeAlias = Annotated[
    Any, fields.only(False, why="The hosts of the guests route: the loss of one does not stop the others.")
]
OnlyOwnHost: TypeAlias = Annotated[
    Any,
    fields.only(False, why="Each host is the router of its own guests, whatever the request says: leave it out."),
]


class _Router(fields.Named):
    admin_state_up: fields.StateUp = True
    routes: fields.Routes = []
    gateway: Gateway = field(default_factory=dict, name="external_gateway_info")
    ha: OnlyWithoutHa = SAME
    distributed: OnlyOwnHost = SAME
    availability_zone_hints: fields.OnlyEmptyList = SAME
    flavor_id: fields.OnlyNull = SAME
    service_type_id: fields.OnlyNull = SAME


class NewRouter(_Router):
    project_id: fields.Text = ""
    tenant_id: fields.Text = ""
    tags: fields.Tags = []


class ChangedRouter(_Router):
    project_id: fields.Present = None
    tenant_id: fields.Present = None


class RouterRoutes(Body):
    routes: RequiredRoutes


class RouterInterface(Body):
    subnet_id: fields.Id = None
    port_id: fields.Id = None


class Routers(NetworkResource):
    """Routers."""

    @lists(_PATH, policies.ROUTER_GET, "routers")
    def index(self, req: ServiceRequest) -> Response:
        shown = [views.router(router) for router in self.conductor.router_list(req.context)]
        return self.listed(req, listing.constant(shown))

    @shows(_ONE, policies.ROUTER_GET, _KEY)
    def show(self, req: ServiceRequest, id: str) -> views.View:
        return listing.cut(req, views.router(self.conductor.router_get(req.context, id)))

    @route("POST", _PATH, policies.ROUTER_CREATE, body=NewRouter, key=_KEY, response=_KEY, status=201)
    def create(self, req: ServiceRequest) -> Response | views.View:
        bodies, is_bulk = requests.bulk(req, NewRouter)
        for body in bodies:
            _authorize_gateway(req, body.gateway or {}, policies.ROUTER_CREATE_SNAT, policies.ROUTER_CREATE_ADDRESSES)
        wanted = [
            requests.new(
                req, Router, body, routes=[StaticRoute(**item) for item in body.routes], **(body.gateway or {})
            )
            for body in bodies
        ]
        return self.created(req, (wanted, is_bulk), self.conductor.router_create, views.router)

    @route("PUT", _ONE, policies.ROUTER_UPDATE, body=ChangedRouter, key=_KEY, response=_KEY)
    def update(self, req: ServiceRequest, id: str) -> views.View:
        changes = requests.changes(req, ChangedRouter)
        now = views.router(self.conductor.router_get(req.context, id))
        requests.take_same(changes, now, "{name} of a router cannot be changed: make another router.")
        gateway = changes.pop("gateway", {})
        _authorize_gateway(req, gateway, policies.ROUTER_UPDATE_SNAT, policies.ROUTER_UPDATE_ADDRESSES)
        if "addresses" in gateway:
            gateway["addresses"] = msgspec.to_builtins(gateway["addresses"])
        return views.router(self.conductor.router_update(req.context, id, changes | gateway))

    @route("DELETE", _ONE, policies.ROUTER_DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self.conductor.router_delete(req.context, id)

    @route("PUT", f"{_ONE}/add_extraroutes", policies.ROUTER_ADD_ROUTES, body=RouterRoutes, key=_KEY, response=_KEY)
    def add_routes(self, req: ServiceRequest, id: str) -> views.View:
        return self._change_routes(req, id, "add_routes")

    @route(
        "PUT", f"{_ONE}/remove_extraroutes", policies.ROUTER_REMOVE_ROUTES, body=RouterRoutes, key=_KEY, response=_KEY
    )
    def remove_routes(self, req: ServiceRequest, id: str) -> views.View:
        return self._change_routes(req, id, "remove_routes")

    def _change_routes(self, req: ServiceRequest, id: str, kind: str) -> views.View:
        self.conductor.router_get(req.context, id)
        changes = {kind: requests.read(req, RouterRoutes).routes}
        return views.router(self.conductor.router_update(req.context, id, changes))

    @route("PUT", f"{_ONE}/add_router_interface", policies.ROUTER_ADD, body=RouterInterface)
    def add_interface(self, req: ServiceRequest, id: str) -> views.View:
        body = _interface(req)
        if body.subnet_id is not None and body.port_id is not None:
            raise exceptions.ValidationError(detail="Cannot specify both subnet-id and port-id")
        port = self.conductor.router_interface_add(req.context, id, body.subnet_id, body.port_id)
        return _interface_view(id, port)

    @route("PUT", f"{_ONE}/remove_router_interface", policies.ROUTER_REMOVE, body=RouterInterface)
    def remove_interface(self, req: ServiceRequest, id: str) -> views.View:
        body = _interface(req)
        port = self.conductor.router_interface_remove(req.context, id, body.subnet_id, body.port_id)
        return _interface_view(id, port)


def _authorize_gateway(req: ServiceRequest, gateway: dict[str, Any], of_snat: str, of_addresses: str) -> None:
    if not gateway.get("enable_snat", True):
        req.authorize(of_snat)
    if gateway.get("addresses"):
        req.authorize(of_addresses)


def _interface(req: ServiceRequest) -> RouterInterface:
    requests.require_known(req.json_object(), RouterInterface)
    body = requests.read(req, RouterInterface)
    if body.subnet_id is None and body.port_id is None:
        raise exceptions.ValidationError(detail="Either subnet_id or port_id must be specified")
    return body


def _interface_view(router_id: str, port: Port) -> views.View:
    subnet_id = views.subnet_of_port(port, 4 if port.address else 6)
    return {
        "id": router_id,
        "port_id": port.id,
        "network_id": port.network_id,
        "subnet_id": subnet_id,
        "subnet_ids": [subnet_id],
        "project_id": port.project_id,
        "tenant_id": port.project_id,
        "tags": [],
    }
