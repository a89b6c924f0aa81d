"""Networks and their subnets. A network has one subnet of IPv4 at most, whose id is the network's, and may have one of
IPv6 from the first."""

from __future__ import annotations

import uuid
from typing import Any

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import listing, requests, views
from nova_lite.api.network.resource import Resource
from nova_lite.base import exceptions
from nova_lite.network import factory
from nova_lite.objects import FloatingIpPool, NetworkRecord
from nova_lite.policies import network_service as policies

_NETWORK = ("name", "description", "mtu", "shared", "project_id", "tenant_id")
_NETWORK_FIXED = (
    *("admin_state_up", "port_security_enabled", "tags", "availability_zone_hints", "dns_domain", "qos_policy_id"),
    *("router:external", "is_default", "vlan_transparent"),
)
_SUBNET = (
    *("name", "description", "network_id", "cidr", "gateway_ip", "allocation_pools", "dns_nameservers"),
    *("project_id", "tenant_id"),
)
_SUBNET_FIXED = (
    *("ip_version", "enable_dhcp", "host_routes", "service_types", "subnetpool_id", "segment_id", "tags"),
    *("ipv6_ra_mode", "ipv6_address_mode", "use_default_subnetpool"),
)
_UNCHANGEABLE = "Hosts have been told of it: make another one instead"


class NetworkResource(Resource):
    def networks(self, req: ServiceRequest) -> Response:
        """The networks of servers, and those of floating addresses."""
        for_admin = req.allows(policies.PROVIDER_GET)
        shown = [views.network(each, for_admin) for each in self.conductor.network_record_list(req.context)]
        shown += [views.pool(each, for_admin) for each in self.conductor.floating_ip_pool_list(req.context)]
        return self.listed(req, "networks", shown)

    def network(self, req: ServiceRequest, id: str) -> Response:
        found, for_admin = self._find(req, id), req.allows(policies.PROVIDER_GET)
        view = views.pool(found, for_admin) if isinstance(found, FloatingIpPool) else views.network(found, for_admin)
        return listing.shown(req, "network", view)

    def _find(self, req: ServiceRequest, id: str) -> NetworkRecord | FloatingIpPool:
        for network in self.conductor.network_record_list(req.context):
            if network.id == id:
                return network
        for pool in self.conductor.floating_ip_pool_list(req.context):
            if pool.id == id:
                return pool
        raise exceptions.NetworkNotFound(network_id=id[:64])

    def create_network(self, req: ServiceRequest) -> Response:
        wanted = requests.body(req, "network", _NETWORK, _NETWORK_FIXED)
        project_id: str | None = requests.project(req, wanted)
        if requests.flag(wanted, "shared"):
            req.authorize(policies.NETWORK_CREATE_SHARED)
            project_id = None
        elif not project_id:
            raise exceptions.Forbidden("A network belongs to a project; this token is for none.")
        network = NetworkRecord(
            id=str(uuid.uuid4()),
            name=requests.text(wanted, "name") or "",
            description=requests.text(wanted, "description") or "",
            cidr="",
            mtu=requests.number(wanted, "mtu", 68, 9000) or 1500,
            project_id=project_id,
        )
        made = self.conductor.network_create(req.context, network)
        return Response({"network": views.network(made, req.allows(policies.PROVIDER_GET))}, 201)

    def update_network(self, req: ServiceRequest, id: str) -> Response:
        wanted = requests.body(req, "network", _NETWORK, _NETWORK_FIXED)
        found = self._changeable(req, id)
        now: dict[str, Any] = {"mtu": found.mtu, "shared": found.project_id is None}
        _require_same(wanted, now | dict.fromkeys(("project_id", "tenant_id"), found.project_id or ""))
        made = self.conductor.network_update(req.context, id, requests.texts(wanted, "name", "description"))
        return Response({"network": views.network(made, req.allows(policies.PROVIDER_GET))})

    def delete_network(self, req: ServiceRequest, id: str) -> Response:
        self._changeable(req, id)
        self.conductor.network_delete(req.context, id)
        return Response(status=204)

    def _changeable(self, req: ServiceRequest, id: str) -> NetworkRecord:
        found = self._find(req, id)
        if isinstance(found, FloatingIpPool):
            raise exceptions.Forbidden("The operator makes and deletes pools of floating addresses (nova-lite-manage).")
        return found

    # --- subnets

    def subnets(self, req: ServiceRequest) -> Response:
        return self.listed(req, "subnets", self._subnets(req))

    def _subnets(self, req: ServiceRequest) -> list[views.View]:
        networks = self.conductor.network_record_list(req.context)
        shown = [view for each in networks for view in views.subnets(each)]
        return shown + [views.subnet_of_pool(each) for each in self.conductor.floating_ip_pool_list(req.context)]

    def subnet(self, req: ServiceRequest, id: str) -> Response:
        for view in self._subnets(req):
            if view["id"] == id:
                return listing.shown(req, "subnet", view)
        raise exceptions.SubnetNotFound(subnet_id=id[:64])

    def _find_subnet(self, req: ServiceRequest, id: str) -> NetworkRecord | FloatingIpPool:
        """One that may be changed; that of IPv6 may not."""
        try:
            found = self._find(req, id)
        except exceptions.NetworkNotFound as error:
            if any(view["id"] == id for view in self._subnets(req)):
                raise exceptions.Forbidden("A subnet of IPv6 comes with its network, and goes with it.") from error
            raise exceptions.SubnetNotFound(subnet_id=id[:64]) from error
        if not found.cidr:
            raise exceptions.SubnetNotFound(subnet_id=id[:64])
        return found

    def create_subnet(self, req: ServiceRequest) -> Response:
        wanted = requests.body(req, "subnet", _SUBNET, _SUBNET_FIXED)
        network = self._changeable(req, requests.needed_id(wanted, "network_id"))
        cidr = requests.text(wanted, "cidr")
        if not cidr:
            raise exceptions.ValidationError(detail="A subnet has to be told its cidr: there are no subnet pools here.")
        start, end = _pool(wanted)
        subnet = NetworkRecord(
            id=network.id,
            name="",
            cidr=cidr,
            gateway=_gateway(wanted),
            dns=_name_servers(wanted),
            start=start,
            end=end,
            subnet_name=requests.text(wanted, "name") or "",
            subnet_description=requests.text(wanted, "description") or "",
        )
        return Response({"subnet": views.subnet(self.conductor.subnet_create(req.context, subnet))}, 201)

    def update_subnet(self, req: ServiceRequest, id: str) -> Response:
        wanted = requests.body(req, "subnet", _SUBNET, _SUBNET_FIXED)
        found = self._find_subnet(req, id)
        if isinstance(found, FloatingIpPool):
            found = self._changeable(req, id)
        _require_same(wanted, views.subnet(found))
        changes = {f"subnet_{name}": value for name, value in requests.texts(wanted, "name", "description").items()}
        return Response({"subnet": views.subnet(self.conductor.network_update(req.context, id, changes))})

    def delete_subnet(self, req: ServiceRequest, id: str) -> Response:
        if isinstance(self._find_subnet(req, id), FloatingIpPool):
            self._changeable(req, id)
        self.conductor.subnet_delete(req.context, id)
        return Response(status=204)


def _require_same(wanted: dict[str, Any], now: dict[str, Any]) -> None:
    """What cannot be changed may be said as it is."""
    for name in wanted.keys() & now.keys() - {"name", "description"}:
        if wanted[name] != now[name]:
            raise exceptions.ValidationError(detail=f"{name} cannot be changed. {_UNCHANGEABLE}.")


def _pool(wanted: dict[str, Any]) -> tuple[str | None, str | None]:
    """First and last address to give out, if they are said."""
    said = wanted.get("allocation_pools") or []
    if not isinstance(said, list) or len(said) > 1 or not all(isinstance(each, dict) for each in said):
        raise exceptions.ValidationError(
            detail="Invalid input for allocation_pools. It has to be a list of one object: one range of addresses."
        )
    if not said:
        return None, None
    start, end = (requests.address(said[0].get(name), "allocation_pools") for name in ("start", "end"))
    return start, end


def _gateway(wanted: dict[str, Any]) -> str | None:
    """None: which is chosen."""
    if "gateway_ip" not in wanted:
        return None
    said = wanted["gateway_ip"]
    return factory.NO_GATEWAY if said is None else requests.address(said, "gateway_ip")


def _name_servers(wanted: dict[str, Any]) -> list[str]:
    said = wanted.get("dns_nameservers") or []
    if not isinstance(said, list) or len(said) > 5:
        raise exceptions.ValidationError(detail="Invalid input for dns_nameservers. It has to be a list of up to five.")
    return [requests.address(each, "dns_nameservers") for each in said]
