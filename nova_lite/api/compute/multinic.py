"""Server actions until 2.43 that add a fixed address to a server, and remove one.

An interface has a single address here. So a new address comes with a new interface, and removing an address detaches
its interface.
"""

from __future__ import annotations

from nova_lite.api.compute import schema_types as t
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Request, Response, action, declares
from nova_lite.base import exceptions
from nova_lite.objects import NetworkRequest
from nova_lite.policies import servers as policies

# --- schemas

_NETWORK: t.Schema = {"type": ["string", "number"], "minLength": 1, "maxLength": 255}

ADD_BODY: t.Schema = t.wrapped("addFixedIp", t.strict({"networkId": _NETWORK}, ("networkId",)))
REMOVE_BODY: t.Schema = t.wrapped("removeFixedIp", t.strict({"address": t.IP_ADDRESS}, ("address",)))


# --- routes

_LAST = Change.NO_ADDRESS_ACTIONS - 1


class FixedIPs(Extension):
    alias = "os-multinic"
    title = "Fixed addresses of servers"
    routes = (
        action("servers", "addFixedIp", "add", until=_LAST),
        action("servers", "removeFixedIp", "remove", until=_LAST),
    )

    @declares(policies.ADD_FIXED_IP, body=ADD_BODY, status=202)
    def add(self, req: Request, id: str) -> Response:
        network_id = str(req.data["addFixedIp"]["networkId"])
        try:
            self.compute.attach_interface(req.context, id, NetworkRequest(network_id=network_id))
        except (exceptions.NetworkUnavailable, exceptions.NoMoreFixedIps) as error:
            raise exceptions.Invalid(error.message) from error
        return Response(status=202)

    @declares(policies.REMOVE_FIXED_IP, body=REMOVE_BODY, status=202)
    def remove(self, req: Request, id: str) -> Response:
        address = req.data["removeFixedIp"]["address"]
        instance = self.conductor.instance_get(req.context, id)
        port_id = next((vif.id for vif in instance.vifs if vif.address == address), None)
        if port_id is None:
            raise exceptions.FixedIpNotFoundForInstance(instance_uuid=instance.uuid, ip=address)
        self.compute.detach_interface(req.context, id, port_id)
        return Response(status=202)
