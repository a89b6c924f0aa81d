"""Routers: their gateways and interfaces.

The hosts of the guests route. A gateway leads to a pool of floating addresses, which is an external network.
"""

from __future__ import annotations

import functools
import uuid
from typing import Any

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import listing, requests, views
from nova_lite.api.network.resource import Resource
from nova_lite.base import exceptions
from nova_lite.objects import Port, Router, StaticRoute
from nova_lite.policies import network_service as policies

_ROUTER = ("name", "description", "external_gateway_info", "project_id", "tenant_id", "admin_state_up", "routes")
_NEW_ROUTER = (*_ROUTER, "tags")
_ROUTER_ONLY_DEFAULT = (
    "ha",
    "distributed",
    "availability_zone_hints",
    "flavor_id",
    "service_type_id",
)
_GATEWAY = ("network_id", "enable_snat", "external_fixed_ips", "qos_policy_id")
_INTERFACE = ("subnet_id", "port_id")


class RouterResource(Resource):
    """Handlers of ``/routers``."""

    def routers(self, req: ServiceRequest) -> Response:
        shown = [views.router(router) for router in self.conductor.router_list(req.context)]
        return self.listed(req, "routers", listing.constant(shown))

    def router(self, req: ServiceRequest, id: str) -> Response:
        return listing.shown(req, "router", views.router(self.conductor.router_get(req.context, id)))

    def create_router(self, req: ServiceRequest) -> Response:
        bodies, is_bulk = requests.bodies(req, "router", _NEW_ROUTER, _ROUTER_ONLY_DEFAULT)
        wanted = [
            Router(
                id=str(uuid.uuid4()),
                project_id=requests.project(req, fields),
                name=requests.text(fields, "name") or "",
                description=requests.text(fields, "description") or "",
                tags=requests.tags(fields),
                admin_state_up=requests.state_up(fields),
                routes=[StaticRoute(**route) for route in requests.routes(fields, "routes") or []],
                **_gateway(req, fields, policies.ROUTER_CREATE_SNAT),
            )
            for fields in bodies
        ]
        create = functools.partial(self.conductor.router_create, req.context)
        return self.created(req, "router", (wanted, is_bulk), create, views.router)

    def update_router(self, req: ServiceRequest, id: str) -> Response:
        fields = requests.body(req, "router", _ROUTER, _ROUTER_ONLY_DEFAULT)
        router = self.conductor.router_get(req.context, id)
        for name in fields.keys() & {"project_id", "tenant_id"}:
            if fields[name] != router.project_id:
                raise exceptions.ValidationError(detail=f"{name} of a router cannot be changed: make another router.")
        changes: dict[str, Any] = dict(requests.texts(fields, "name", "description"))
        if "admin_state_up" in fields:
            changes["admin_state_up"] = requests.state_up(fields)
        if "routes" in fields:
            changes["routes"] = requests.routes(fields, "routes") or []
        changes |= _gateway(req, fields, policies.ROUTER_UPDATE_SNAT)
        return Response({"router": views.router(self.conductor.router_update(req.context, id, changes))})

    def delete_router(self, req: ServiceRequest, id: str) -> Response:
        self.conductor.router_delete(req.context, id)
        return Response(status=204)

    def add_extraroutes(self, req: ServiceRequest, id: str) -> Response:
        return self._change_routes(req, id, "add_routes")

    def remove_extraroutes(self, req: ServiceRequest, id: str) -> Response:
        return self._change_routes(req, id, "remove_routes")

    def _change_routes(self, req: ServiceRequest, id: str, kind: str) -> Response:
        self.conductor.router_get(req.context, id)
        routes = requests.routes(requests.body(req, "router", ("routes",), ()), "routes")
        if routes is None:
            raise exceptions.ValidationError(detail="Invalid input for routes. The request needs a list of routes.")
        return Response({"router": views.router(self.conductor.router_update(req.context, id, {kind: routes}))})

    def add_router_interface(self, req: ServiceRequest, id: str) -> Response:
        subnet_id, port_id = _interface(req, only_one=True)
        return _interface_view(id, self.conductor.router_interface_add(req.context, id, subnet_id, port_id))

    def remove_router_interface(self, req: ServiceRequest, id: str) -> Response:
        subnet_id, port_id = _interface(req, only_one=False)
        return _interface_view(id, self.conductor.router_interface_remove(req.context, id, subnet_id, port_id))


def _gateway(req: ServiceRequest, fields: dict[str, Any], snat_rule: str) -> dict[str, Any]:
    """Return the fields of a router that ``external_gateway_info`` sets. Null or an empty object is no gateway."""
    if "external_gateway_info" not in fields:
        return {}
    info = fields["external_gateway_info"] or {}
    if not isinstance(info, dict):
        raise _invalid_gateway("It must be an object or null.")
    if unknown := sorted(info.keys() - set(_GATEWAY)):
        raise _invalid_gateway(f"Allowed are {', '.join(_GATEWAY)}, not '{unknown[0][:64]}'.")
    if info.get("qos_policy_id") is not None:
        raise _invalid_gateway("This cloud's networks do not support QoS.")
    if info.get("external_fixed_ips"):
        raise _invalid_gateway(
            "A router has no address of its own here: connections leave with an address of the guest's host, or with a "
            "floating address."
        )
    pool_id = requests.an_id(info, "network_id")
    if pool_id is None and info:
        raise _invalid_gateway("It needs a network_id.")
    snat = info.get("enable_snat", True)
    if not isinstance(snat, bool):
        raise exceptions.ValidationError(detail="Invalid input for enable_snat. It must be true or false.")
    if not snat:
        req.authorize(snat_rule)
    return {"pool_id": pool_id, "enable_snat": snat}


def _invalid_gateway(reason: str) -> exceptions.ValidationError:
    return exceptions.ValidationError(detail=f"Invalid input for external_gateway_info. {reason}")


def _interface(req: ServiceRequest, only_one: bool) -> tuple[str | None, str | None]:
    """Return subnet and port of a request, one of which it names."""
    fields = req.json_object()
    if unknown := sorted(fields.keys() - set(_INTERFACE)):
        raise exceptions.ValidationError(detail=f"Unrecognized attribute(s) '{unknown[0][:64]}'")
    subnet_id, port_id = (requests.an_id(fields, name) for name in _INTERFACE)
    if subnet_id is None and port_id is None:
        raise exceptions.ValidationError(detail="Either subnet_id or port_id must be specified")
    if only_one and subnet_id is not None and port_id is not None:
        raise exceptions.ValidationError(detail="Cannot specify both subnet-id and port-id")
    return subnet_id, port_id


def _interface_view(router_id: str, port: Port) -> Response:
    subnet_id = views.subnet_of_port(port, 4 if port.address else 6)
    return Response(
        {
            "id": router_id,
            "port_id": port.id,
            "network_id": port.network_id,
            "subnet_id": subnet_id,
            "subnet_ids": [subnet_id],
            "project_id": port.project_id,
            "tenant_id": port.project_id,
            "tags": [],
        }
    )
