"""Ports: those of servers, and those that users make and give to servers through the compute API."""

from __future__ import annotations

import uuid
from typing import Any

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import listing, requests, views
from nova_lite.api.network.resource import Resource
from nova_lite.base import exceptions
from nova_lite.objects import Port
from nova_lite.policies import network_service as policies

_PORT = (
    *("name", "description", "network_id", "fixed_ips", "mac_address", "security_groups", "project_id", "tenant_id"),
    *("device_id", "device_owner", "binding:host_id"),
)
_PORT_FIXED = (
    *("admin_state_up", "port_security_enabled", "allowed_address_pairs", "extra_dhcp_opts", "binding:profile"),
    *("binding:vnic_type", "dns_name", "dns_domain", "qos_policy_id", "propagate_uplink_status"),
    *("numa_affinity_policy", "tags"),
)

#: Filters that the conductor counts by, so that not all ports come here.
_NARROW = {
    **{name: name for name in ("id", "network_id", "device_id", "mac_address", "name", "project_id")},
    "tenant_id": "project_id",
}


class PortResource(Resource):
    def ports(self, req: ServiceRequest) -> Response:
        filters: dict[str, list[str]] = {}
        for asked, known in _NARROW.items():
            if values := [value for value in req.GET.getall(asked) if value]:
                filters.setdefault(known, values)
        for_admin = req.allows(policies.PORT_GET_BINDING)
        found = self.conductor.port_list(req.context, filters)
        return self.listed(req, "ports", [views.port(each, for_admin) for each in found])

    def port(self, req: ServiceRequest, id: str) -> Response:
        return listing.shown(req, "port", self._view(req, self.conductor.port_get(req.context, id)))

    def _view(self, req: ServiceRequest, port: Port) -> dict[str, Any]:
        return views.port(port, req.allows(policies.PORT_GET_BINDING))

    def create_port(self, req: ServiceRequest) -> Response:
        wanted = requests.body(req, "port", _PORT, _PORT_FIXED)
        _require_no_device(wanted, "", "", "")
        network_id = requests.needed_id(wanted, "network_id")
        port = Port(
            id=str(uuid.uuid4()),
            network_id=network_id,
            project_id=requests.project(req, wanted),
            name=requests.text(wanted, "name") or "",
            description=requests.text(wanted, "description") or "",
            address=requests.fixed_address(wanted, network_id) or "",
            mac_address=requests.mac_address(wanted),
            security_groups=requests.ids(wanted, "security_groups"),
        )
        return Response({"port": self._view(req, self.conductor.port_create(req.context, port))}, 201)

    def update_port(self, req: ServiceRequest, id: str) -> Response:
        wanted = requests.body(req, "port", _PORT, _PORT_FIXED)
        found = self.conductor.port_get(req.context, id)
        now = views.port(found, for_admin=True)
        _require_no_device(wanted, now["device_id"], now["device_owner"], now["binding:host_id"])
        for name in wanted.keys() & {"network_id", "mac_address", "project_id", "tenant_id"}:
            if wanted[name] != now[name]:
                raise exceptions.ValidationError(detail=f"{name} of a port cannot be changed: make another one.")
        changes: dict[str, Any] = dict(requests.texts(wanted, "name", "description"))
        if (groups := requests.ids(wanted, "security_groups")) is not None:
            changes["security_groups"] = groups
        if address := requests.fixed_address(wanted, found.network_id):
            changes["address"] = address
        return Response({"port": self._view(req, self.conductor.port_update(req.context, id, changes))})

    def delete_port(self, req: ServiceRequest, id: str) -> Response:
        self.conductor.port_delete(req.context, id)
        return Response(status=204)


def _require_no_device(wanted: dict[str, Any], device_id: str, device_owner: str, host: str) -> None:
    """What has a port is for the compute API to say; here it may be said as it is."""
    now = {"device_id": device_id, "device_owner": device_owner, "binding:host_id": host}
    for name in wanted.keys() & now.keys():
        if (wanted[name] or "") == now[name]:
            continue
        if now[name] and not wanted[name]:
            raise exceptions.Conflict(f"Server {device_id} has the port: the compute API detaches it.")
        raise exceptions.ValidationError(
            detail=f"Invalid input for {name}. A server is given a port by the compute API: when it is created, or by "
            "attaching an interface."
        )
