"""Floating addresses of the built-in network backend: ``/os-floating-ips`` and their pools until 2.35.

The server actions that associate an address with a server exist until 2.43.
"""

from __future__ import annotations

from typing import Any

from nova_lite.api.compute import schema_types as t
from nova_lite.api.http.microversions import LAST_WITH_PROXIES, Change
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, action, declares
from nova_lite.objects import FloatingIp
from nova_lite.policies import floating_ips as policies

# --- schemas

CREATE_BODY: t.Schema = {
    "type": ["object", "null"],
    "properties": {"pool": {"type": ["string", "null"], "maxLength": 255}},
    "additionalProperties": False,
}
_ADDRESS: t.Schema = {"type": "string", "format": "ipv4"}
ADD_BODY = t.wrapped("addFloatingIp", t.strict({"address": _ADDRESS, "fixed_address": _ADDRESS}, ("address",)))
REMOVE_BODY = t.wrapped("removeFloatingIp", t.strict({"address": _ADDRESS}, ("address",)))


# --- routes

_PATH = "/os-floating-ips"
_LAST_ACTION = Change.NO_ADDRESS_ACTIONS - 1


class FloatingIps(Extension):
    alias = "os-floating-ips"
    title = "Floating addresses"
    routes = (
        Route("GET", "/os-floating-ip-pools", "pools", until=LAST_WITH_PROXIES),
        Route("GET", _PATH, "index", until=LAST_WITH_PROXIES),
        Route("POST", _PATH, "create", until=LAST_WITH_PROXIES),
        Route("GET", _PATH + "/{id}", "show", until=LAST_WITH_PROXIES),
        Route("DELETE", _PATH + "/{id}", "delete", until=LAST_WITH_PROXIES),
        action("servers", "addFloatingIp", "add", until=_LAST_ACTION),
        action("servers", "removeFloatingIp", "remove", until=_LAST_ACTION),
    )

    @declares(policies.POOLS, response="floating_ip_pools")
    def pools(self, req: Request) -> Response:
        pools = self.conductor.floating_ip_pool_list(req.context)
        return Response({"floating_ip_pools": [{"name": pool.name} for pool in pools]})

    @declares(policies.LIST, response="floating_ips")
    def index(self, req: Request) -> Response:
        return Response({"floating_ips": [_view(address) for address in self.conductor.floating_ip_list(req.context)]})

    @declares(policies.SHOW, response="floating_ip")
    def show(self, req: Request, id: str) -> Response:
        return Response({"floating_ip": _view(self.conductor.floating_ip_get(req.context, id))})

    @declares(policies.CREATE, body=CREATE_BODY, response="floating_ip")
    def create(self, req: Request) -> Response:
        pool = (req.data or {}).get("pool") or None
        return Response({"floating_ip": _view(self.conductor.floating_ip_create(req.context, pool))})

    @declares(policies.DELETE, status=202)
    def delete(self, req: Request, id: str) -> Response:
        self.conductor.floating_ip_delete(req.context, id)
        return Response(status=202)

    @declares(policies.ADD, body=ADD_BODY, status=202)
    def add(self, req: Request, id: str) -> Response:
        body = req.data["addFloatingIp"]
        self.conductor.floating_ip_associate(req.context, id, body["address"], body.get("fixed_address"))
        return Response(status=202)

    @declares(policies.REMOVE, body=REMOVE_BODY, status=202)
    def remove(self, req: Request, id: str) -> Response:
        self.conductor.floating_ip_disassociate(req.context, id, req.data["removeFloatingIp"]["address"])
        return Response(status=202)


def _view(floating_ip: FloatingIp) -> dict[str, Any]:
    return {
        "id": floating_ip.id,
        "ip": floating_ip.address,
        "pool": floating_ip.pool,
        "fixed_ip": floating_ip.fixed_address,
        "instance_id": floating_ip.instance_uuid,
    }
