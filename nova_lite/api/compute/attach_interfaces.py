"""``/servers/{server_id}/os-interface``: the network interfaces of a server."""

from __future__ import annotations

from typing import Any

from nova_lite.api.compute import schema_types as t
from nova_lite.api.http.microversions import Change, Versioned
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.objects import VIF, Instance, NetworkRequest, ipv6
from nova_lite.operations.states import PowerState
from nova_lite.policies import servers as policies

# --- schemas

_ADDRESS = t.strict({"ip_address": t.IP_ADDRESS}, ("ip_address",))
_FIXED_IPS: t.Schema = {"type": "array", "minItems": 1, "maxItems": 1, "items": _ADDRESS}
_21: t.Schema = {"net_id": t.UUID, "port_id": t.UUID, "fixed_ips": _FIXED_IPS}
_249: t.Schema = {**_21, "tag": t.TAG}


def _create(properties: t.Schema) -> t.Schema:
    return t.wrapped("interfaceAttachment", t.strict(properties))


CREATE_BODY = Versioned({1: _create(_21), Change.ATTACHMENT_TAGS: _create(_249)})


# --- routes

_SERVER = "/servers/{server_id}"


class AttachInterfaces(Extension):
    alias = "os-attach-interfaces"
    title = "Interfaces of a server"
    routes = (
        Route("GET", _SERVER + "/os-interface", "interfaces"),
        Route("POST", _SERVER + "/os-interface", "attach"),
        Route("GET", _SERVER + "/os-interface/{port_id}", "interface"),
        Route("DELETE", _SERVER + "/os-interface/{port_id}", "detach"),
    )

    @declares(policies.INTERFACES_LIST, query=t.NO_PARAMETERS, response="interfaceAttachments")
    def interfaces(self, req: Request, server_id: str) -> Response:
        instance = self.conductor.instance_get(req.context, server_id)
        return Response({"interfaceAttachments": [_view(req, instance, vif) for vif in instance.vifs]})

    @declares(policies.INTERFACES_CREATE, body=CREATE_BODY, response="interfaceAttachment")
    def attach(self, req: Request, server_id: str) -> Response:
        """Request an interface. Its state becomes ACTIVE when the guest has it."""
        body = req.data["interfaceAttachment"]
        addresses = [fixed_ip["ip_address"] for fixed_ip in body.get("fixed_ips", [])]
        if body.get("net_id") and body.get("port_id"):
            raise exceptions.InvalidInput(reason="Must not input both network_id and port_id")
        if addresses and not body.get("net_id"):
            raise exceptions.InvalidInput(reason="Must input network_id when request IP address")
        request = NetworkRequest(
            network_id=body.get("net_id"),
            port_id=body.get("port_id"),
            fixed_ip=addresses[0] if addresses else None,
            tag=body.get("tag"),
        )
        try:
            instance, vif = self.compute.attach_interface(req.context, server_id, request)
        except (exceptions.NetworkUnavailable, exceptions.PortUnavailable) as error:
            raise exceptions.NotFound(error.message) from error
        except exceptions.NoMoreFixedIps as error:
            raise exceptions.Invalid(error.message) from error
        except exceptions.FixedIpInUse as error:
            raise exceptions.Conflict(error.message) from error
        return Response({"interfaceAttachment": _view(req, instance, vif)})

    @declares(policies.INTERFACES_DELETE, status=202)
    def detach(self, req: Request, server_id: str, port_id: str) -> Response:
        """Request the detachment. The interface disappears when the guest has released it."""
        self.compute.detach_interface(req.context, server_id, port_id)
        return Response(status=202)

    @declares(policies.INTERFACES_SHOW, query=t.NO_PARAMETERS, response="interfaceAttachment")
    def interface(self, req: Request, server_id: str, port_id: str) -> Response:
        instance = self.conductor.instance_get(req.context, server_id)
        for vif in instance.vifs:
            if vif.id == port_id:
                return Response({"interfaceAttachment": _view(req, instance, vif)})
        raise exceptions.NotFound(f"Instance {server_id} does not have a port with id {port_id[:64]}")


def _view(req: Request, instance: Instance, vif: VIF) -> dict[str, Any]:
    """Return the view of an interface."""
    addresses = [(vif.subnet_id or ipv6.subnet_id_of(vif.network), vif.address)]
    addresses += [(address.subnet_id, address.address) for address in vif.more]
    view: dict[str, Any] = {
        "net_id": vif.network.public_id,
        "port_id": vif.id,
        "mac_addr": vif.mac_address,
        "port_state": _state(instance, vif),
        "fixed_ips": [{"subnet_id": subnet_id, "ip_address": address} for subnet_id, address in addresses],
    }
    if req.has(Change.INTERFACE_TAGS):
        view["tag"] = vif.tag
    return view


def _state(instance: Instance, vif: VIF) -> str:
    """Return the state of the port, in the terms of Neutron."""
    if vif.state is not None:
        return "BUILD" if vif.state == "attaching" else "DOWN"
    return "ACTIVE" if instance.power_state == PowerState.RUNNING and vif.active else "DOWN"
