"""Ports: of servers, and of users, who assign them to servers through the compute API."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Mapping
from typing import Any

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import listing, requests, views
from nova_lite.api.network.resource import Resource
from nova_lite.base import exceptions
from nova_lite.objects import ListQuery, Port, ipv6
from nova_lite.policies import network_service as policies

_PORT = (
    "name", "description", "network_id", "fixed_ips", "mac_address", "security_groups", "project_id", "tenant_id",
    "device_id", "device_owner", "binding:host_id", "admin_state_up", "port_security_enabled",
    "allowed_address_pairs",
)  # fmt: skip
_NEW_PORT = (*_PORT, "tags")
_PORT_ONLY_DEFAULT = (
    "extra_dhcp_opts",
    "binding:profile",
    "binding:vnic_type",
    "dns_name",
    "dns_domain",
    "qos_policy_id",
    "propagate_uplink_status",
    "numa_affinity_policy",
)

_DEVICE = ("device_id", "device_owner")
#: Beginnings of the owners of servers' and routers' ports.
_RESERVED_OWNERS = ("compute:", "network:")
_RELEASES = {"Server": "detach it with the compute API", "Router": "remove it by remove_router_interface"}
_NO_BINDING = "The host of a port is that of its server: give it to a server by the compute API."

#: Filters that the conductor applies, so that it does not send all ports.
_CONDUCTOR_FILTERS = {
    **{name: name for name in ("id", "network_id", "device_id", "mac_address", "name", "project_id")},
    "tenant_id": "project_id",
    "binding:host_id": "host",
}


class PortResource(Resource):
    """Handlers of ``/ports``."""

    def ports(self, req: ServiceRequest) -> Response:
        for_admin = req.allows(policies.PORT_GET_BINDING)
        source = listing.Source(
            lambda query: self.conductor.port_list(req.context, query.filters, query),
            lambda port: [views.port(port, for_admin)],
            _CONDUCTOR_FILTERS,
        )
        return self.listed(req, "ports", source)

    def port(self, req: ServiceRequest, id: str) -> Response:
        return listing.shown(req, "port", self._view(req, self.conductor.port_get(req.context, id)))

    def _view(self, req: ServiceRequest, port: Port) -> dict[str, Any]:
        return views.port(port, req.allows(policies.PORT_GET_BINDING))

    def create_port(self, req: ServiceRequest) -> Response:
        bodies, is_bulk = requests.bodies(req, "port", _NEW_PORT, _PORT_ONLY_DEFAULT)
        wanted = [self._new_port(req, fields) for fields in bodies]
        create = functools.partial(self.conductor.port_create, req.context)
        return self.created(req, "port", (wanted, is_bulk), create, functools.partial(self._view, req))

    def _new_port(self, req: ServiceRequest, fields: dict[str, Any]) -> Port:
        device = self._device(req, fields, None, policies.PORT_CREATE_OWNER)
        network_id = requests.required_id(fields, "network_id")
        subnets = functools.partial(self._subnets, req, network_id)
        address, address6, link_id = requests.fixed_addresses(fields, {}, subnets) or ("", None, None)
        port = Port(
            id=str(uuid.uuid4()),
            network_id=network_id,
            project_id=requests.project(req, fields),
            name=requests.text(fields, "name") or "",
            description=requests.text(fields, "description") or "",
            address=address,
            address6=address6,
            segment_id=link_id,
            mac_address=requests.mac_address(fields),
            security_groups=requests.ids(fields, "security_groups"),
            tags=requests.tags(fields),
            admin_state_up=requests.state_up(fields),
            port_security_enabled=_port_security(fields),
            address_pairs=requests.address_pairs(fields),
            device_id=device.get("device_id", ""),
            device_owner=device.get("device_owner", ""),
        )
        chosen = {
            policies.PORT_CREATE_MAC: port.mac_address,
            policies.PORT_CREATE_ADDRESS: {address, address6} - {"", None, requests.NO_ADDRESS},
            policies.PORT_CREATE_SECURITY: port.port_security_enabled is False,
            policies.PORT_CREATE_PAIRS: port.address_pairs,
        }
        self._authorize_choice(req, network_id, chosen, is_new=True)
        return port

    def update_port(self, req: ServiceRequest, id: str) -> Response:
        fields = requests.body(req, "port", _PORT, _PORT_ONLY_DEFAULT)
        port = self.conductor.port_get(req.context, id)
        now = views.port(port, for_admin=True)
        device = self._device(req, fields, port, policies.PORT_UPDATE_OWNER)
        for name in fields.keys() & {"network_id", "project_id", "tenant_id"}:
            if fields[name] != now[name]:
                raise exceptions.ValidationError(detail=f"{name} of a port cannot be changed: make another port.")
        changes: dict[str, Any] = {**requests.texts(fields, "name", "description"), **device}
        if "admin_state_up" in fields:
            changes["admin_state_up"] = requests.state_up(fields)
        if (groups := requests.ids(fields, "security_groups")) is not None:
            changes["security_groups"] = groups
        chosen: dict[str, Any] = {}
        if "allowed_address_pairs" in fields:
            changes["address_pairs"] = chosen[policies.PORT_UPDATE_PAIRS] = requests.address_pairs(fields) or []
        if (is_secure := _port_security(fields)) is not None:
            changes["port_security_enabled"] = is_secure
            chosen[policies.PORT_UPDATE_SECURITY] = port.port_security_enabled and not is_secure
        mac_address = requests.mac_address(fields)
        if mac_address and mac_address != port.mac_address:
            self._authorize_choice(req, port.network_id, {policies.PORT_UPDATE_MAC: mac_address})
            changes["mac_address"] = mac_address
        subnets = functools.partial(self._subnets, req, port.network_id)
        addresses = ((4, port.address), (6, port.address6))
        present = {views.subnet_of_port(port, version): (version, port.link_id) for version, has in addresses if has}
        if (wanted := requests.fixed_addresses(fields, present, subnets)) is not None:
            moved = _moved(port, wanted)
            changes |= moved
            named = {moved.get("address"), moved.get("address6")}
            chosen[policies.PORT_UPDATE_ADDRESS] = named - {None, "", requests.NO_ADDRESS}
        self._authorize_choice(req, port.network_id, chosen)
        return Response({"port": self._view(req, self.conductor.port_update(req.context, id, changes))})

    def _device(self, req: ServiceRequest, fields: dict[str, Any], now: Port | None, rule: str) -> dict[str, str]:
        """Return what a request says about the device of a port. Raises a 400 or 403."""
        shown = {} if now is None else views.port(now, for_admin=True)
        _require_same(fields, {"binding:host_id": shown.get("binding:host_id", "")}, _NO_BINDING)
        if now is not None and (now.instance_uuid or now.router_id):
            kind = "Server" if now.instance_uuid else "Router"
            texts = {name: shown[name] for name in _DEVICE}
            _require_same(fields, texts, f"{kind} {shown['device_id']} has the port: {_RELEASES[kind]}.")
            return {}
        device = requests.texts(fields, *_DEVICE)
        owner = device.get("device_owner", "")
        if owner.startswith(_RESERVED_OWNERS) and owner != shown.get("device_owner"):
            req.authorize(rule)
        return device

    def _subnets(self, req: ServiceRequest, network_id: str) -> requests.Subnets:
        """Return the subnets of a network, if the caller sees it."""
        query = ListQuery(filters={"id": [network_id]})
        found = self.conductor.network_record_list(req.context, query)
        links = [link for network in found if network.id == network_id for link in (network, *network.segments)]
        return {
            ipv6.subnet_id_of(link, version): (version, link.id)
            for link in links
            for version, cidr in ((4, link.cidr), (6, link.cidr6))
            if cidr
        }

    def _authorize_choice(
        self, req: ServiceRequest, network_id: str, chosen: Mapping[str, Any], is_new: bool = False
    ) -> None:
        """Check that the caller may choose these values, by rule. On a network that the caller cannot see, as one of
        another project on which an admin has made the port, only an admin may.
        """
        rules = [rule for rule, value in chosen.items() if value]
        query = ListQuery(filters={"id": [network_id]})
        networks = self.conductor.network_record_list(req.context, query) if rules else []
        owners = [network.project_id for network in networks if network.id == network_id]
        if rules and is_new and not owners:
            raise exceptions.NetworkNotFound(network_id=network_id)
        for rule in rules:
            req.authorize(rule, {"network_project_id": (owners[0] if owners else None) or ""})

    def delete_port(self, req: ServiceRequest, id: str) -> Response:
        self.conductor.port_delete(req.context, id)
        return Response(status=204)


def _moved(port: Port, wanted_ones: requests.FixedAddresses) -> dict[str, str]:
    """Return the changes of a port's addresses to the requested ones."""
    address, address6, link_id = wanted_ones
    if link_id not in (None, port.link_id):
        return {"address": address, "address6": address6, "segment_id": link_id}
    changes = {}
    for name, wanted, present in (("address", address, port.address), ("address6", address6, port.address6)):
        is_same = wanted in ("", present) if present else wanted == requests.NO_ADDRESS
        if not is_same:
            changes[name] = wanted
    return changes


def _port_security(fields: dict[str, Any]) -> bool | None:
    """Return whether a port is to have port security, or None if the request does not say so."""
    if fields.get("port_security_enabled") is None:
        return None
    return requests.flag(fields, "port_security_enabled")


def _require_same(fields: dict[str, Any], now: Mapping[str, str], why: str) -> None:
    """Check that a request does not change what only other requests change. Raises a 400, or a 409 for a removal."""
    for name in fields.keys() & now.keys():
        if (fields[name] or "") == now[name]:
            continue
        if now[name] and not fields[name]:
            raise exceptions.Conflict(why)
        raise exceptions.ValidationError(detail=f"Invalid input for {name}. {why}")
