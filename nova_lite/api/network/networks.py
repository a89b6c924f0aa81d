"""Networks and subnets.

A network has one IPv4 subnet and one IPv6 subnet. Further subnets are on segments.
"""

from __future__ import annotations

import functools
import uuid
from typing import Any, TypeAlias

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import listing, requests, views
from nova_lite.api.network.resource import Resource
from nova_lite.base import exceptions, ip
from nova_lite.network import factory
from nova_lite.objects import FloatingIpPool, ListQuery, NetworkRecord, Subnet6, ipv6
from nova_lite.objects.instance import version_of
from nova_lite.policies import network_service as policies

_NETWORK = (
    "name",
    "description",
    "mtu",
    "shared",
    "project_id",
    "tenant_id",
    "admin_state_up",
    "port_security_enabled",
    "router:external",
)
_NEW_NETWORK = (*_NETWORK, "tags")
_NETWORK_ONLY_DEFAULT = (
    "availability_zone_hints",
    "dns_domain",
    "qos_policy_id",
    "is_default",
    "vlan_transparent",
)
_SUBNET = (
    "name", "description", "network_id", "cidr", "gateway_ip", "allocation_pools", "dns_nameservers", "project_id",
    "tenant_id", "enable_dhcp", "host_routes", "ip_version", "ipv6_ra_mode", "ipv6_address_mode",
)  # fmt: skip
_NEW_SUBNET = (*_SUBNET, "tags", "prefixlen", "subnetpool_id", "use_default_subnetpool")
_SUBNET_ONLY_DEFAULT = ("service_types", "segment_id")
#: Attributes that an external network does not have, because it has no ports, with the only value.
_OF_PORTS = {"shared": False, "admin_state_up": True, "port_security_enabled": True, "mtu": 1500, "tags": []}
_Item: TypeAlias = NetworkRecord | FloatingIpPool
#: Number of allocation pools of a subnet.
MAX_POOLS = 100
_MODES = ("ipv6_ra_mode", "ipv6_address_mode")
#: Settings of a subnet that can be changed.
_SETTINGS = {"gateway_ip", "allocation_pools", "dns_nameservers", "enable_dhcp", "host_routes"}
_UNCHANGEABLE = "Hosts already use it: make another one instead"


class NetworkResource(Resource):
    """Handlers of ``/networks`` and ``/subnets``."""

    def networks(self, req: ServiceRequest) -> Response:
        """List the networks of servers and the pools of floating addresses."""
        for_admin = req.allows(policies.PROVIDER_GET)
        asked = req.GET.getall("router:external")
        source = listing.Source(
            functools.partial(self._items, req, bool(asked) and all(value.lower() == "true" for value in asked)),
            lambda item: [_view(item, for_admin)],
            {"id": "id", "name": "name", "project_id": "project_id", "tenant_id": "project_id"},
        )
        return self.listed(req, "networks", source)

    def network(self, req: ServiceRequest, id: str) -> Response:
        return listing.shown(req, "network", _view(self._find(req, id), req.allows(policies.PROVIDER_GET)))

    def _items(self, req: ServiceRequest, only_pools: bool, query: ListQuery) -> list[_Item]:
        """Return the networks of a page, and all pools: an operator makes a few of them."""
        networks = [] if only_pools else self.conductor.network_record_list(req.context, query)
        return [*networks, *self.conductor.floating_ip_pool_list(req.context)]

    def _items_with_subnets(self, req: ServiceRequest, query: ListQuery) -> list[_Item]:
        """Return the same without pools for members: they see no subnets of external networks, as in Neutron."""
        items = self._items(req, False, query)
        return items if req.context.is_admin else [item for item in items if not isinstance(item, FloatingIpPool)]

    def _find(self, req: ServiceRequest, id: str) -> _Item:
        for item in self._items(req, False, ListQuery(filters={"id": [id]})):
            if item.id == id:
                return item
        raise exceptions.NetworkNotFound(network_id=id[:64])

    def create_network(self, req: ServiceRequest) -> Response:
        bodies, is_bulk = requests.bodies(req, "network", _NEW_NETWORK, _NETWORK_ONLY_DEFAULT)
        if any(requests.flag(fields, "router:external") for fields in bodies):
            if is_bulk:
                raise exceptions.ValidationError(detail="Create external networks in a request each.")
            return self._create_external(req, bodies[0])
        wanted = [self._new_network(req, fields) for fields in bodies]
        for_admin = req.allows(policies.PROVIDER_GET)
        return self.created(
            req,
            "network",
            (wanted, is_bulk),
            functools.partial(self.conductor.network_create, req.context),
            lambda network: views.network(network, for_admin),
        )

    def _create_external(self, req: ServiceRequest, fields: dict[str, Any]) -> Response:
        req.authorize(policies.NETWORK_CREATE_EXTERNAL)
        _check_external(fields)
        project_id = requests.project(req, fields)
        if not project_id:
            raise exceptions.Forbidden("A network belongs to a project; this token has none.")
        pool = FloatingIpPool(
            id=str(uuid.uuid4()),
            name=requests.text(fields, "name") or "",
            cidr="",
            project_id=project_id,
            description=requests.text(fields, "description") or "",
        )
        created = self.conductor.external_network_create(req.context, pool)
        return Response({"network": views.pool(created, req.allows(policies.PROVIDER_GET))}, 201)

    def _update_external(self, req: ServiceRequest, pool: FloatingIpPool, fields: dict[str, Any]) -> Response:
        _require_same(fields, dict.fromkeys(("project_id", "tenant_id"), pool.project_id))
        _check_external(fields)
        if not requests.flag(fields, "router:external", default=True):
            raise exceptions.ValidationError(
                detail="Invalid input for router:external. An external network stays one: delete it instead."
            )
        changes = dict(requests.texts(fields, "name", "description"))
        updated = self.conductor.external_network_update(req.context, pool.id, changes)
        return Response({"network": views.pool(updated, req.allows(policies.PROVIDER_GET))})

    def _owned_pool(self, req: ServiceRequest, id: str) -> FloatingIpPool | None:
        """Return an external network that this API has made, or None."""
        item = self._find(req, id)
        return item if isinstance(item, FloatingIpPool) and item.project_id is not None else None

    @staticmethod
    def _new_network(req: ServiceRequest, fields: dict[str, Any]) -> NetworkRecord:
        project_id: str | None = requests.project(req, fields)
        if requests.flag(fields, "shared"):
            req.authorize(policies.NETWORK_CREATE_SHARED)
            project_id = None
        elif not project_id:
            raise exceptions.Forbidden("A network belongs to a project; this token has none.")
        if not (is_secure := requests.flag(fields, "port_security_enabled", default=True)):
            req.authorize(policies.NETWORK_CREATE_SECURITY)
        return NetworkRecord(
            id=str(uuid.uuid4()),
            name=requests.text(fields, "name") or "",
            description=requests.text(fields, "description") or "",
            cidr="",
            mtu=_mtu(fields) or factory.ETHERNET_MTU,
            project_id=project_id,
            tags=requests.tags(fields),
            admin_state_up=requests.state_up(fields),
            port_security_enabled=is_secure,
        )

    def update_network(self, req: ServiceRequest, id: str) -> Response:
        fields = requests.body(req, "network", _NETWORK, _NETWORK_ONLY_DEFAULT)
        if (pool := self._owned_pool(req, id)) is not None:
            return self._update_external(req, pool, fields)
        network = self._changeable(req, id)
        if requests.flag(fields, "router:external"):
            req.authorize(policies.NETWORK_UPDATE_EXTERNAL)
            _check_external(fields)
            pool = FloatingIpPool(id=network.id, name=network.name, cidr="", project_id=network.project_id)
            return self._update_external(req, self.conductor.external_network_create(req.context, pool), fields)
        _require_same(fields, dict.fromkeys(("project_id", "tenant_id"), network.project_id or ""))
        changes: dict[str, Any] = dict(requests.texts(fields, "name", "description"))
        if (mtu := _mtu(fields)) is not None and mtu != network.mtu:
            changes["mtu"] = mtu
        if "admin_state_up" in fields:
            changes["admin_state_up"] = requests.state_up(fields)
        is_shared = network.shared or network.project_id is None
        if requests.flag(fields, "shared") and not is_shared:
            req.authorize(policies.NETWORK_UPDATE_SHARED)
            changes["shared"] = True
        elif "shared" in fields and is_shared and not requests.flag(fields, "shared"):
            req.authorize(policies.NETWORK_UPDATE_SHARED)
            changes["shared"] = False
        if fields.get("port_security_enabled") is not None:
            changes["port_security_enabled"] = requests.flag(fields, "port_security_enabled")
            req.authorize(policies.NETWORK_UPDATE_SECURITY)
        updated = self.conductor.network_update(req.context, id, changes)
        return Response({"network": views.network(updated, req.allows(policies.PROVIDER_GET))})

    def delete_network(self, req: ServiceRequest, id: str) -> Response:
        if self._owned_pool(req, id) is not None:
            self.conductor.external_network_delete(req.context, id)
            return Response(status=204)
        self._changeable(req, id)
        self.conductor.network_delete(req.context, id)
        return Response(status=204)

    def _changeable(self, req: ServiceRequest, id: str) -> NetworkRecord:
        network = self._find(req, id)
        if isinstance(network, FloatingIpPool):
            raise exceptions.Forbidden("The operator makes and deletes pools of floating addresses (nova-lite-manage).")
        return network

    # --- subnets

    def subnets(self, req: ServiceRequest) -> Response:
        filters = {"network_id": "id", "id": "subnet_id", "project_id": "project_id", "tenant_id": "project_id"}
        fetch = functools.partial(self._items_with_subnets, req)
        source = listing.Source(fetch, _listed_subnets, filters, marker="subnet_id", hidden={"shared"})
        return self.listed(req, "subnets", source)

    def subnet(self, req: ServiceRequest, id: str) -> Response:
        return listing.shown(req, "subnet", self._subnet(req, id))

    def _subnet(self, req: ServiceRequest, id: str) -> views.View:
        for item in self._items_with_subnets(req, ListQuery(filters={"subnet_id": [id]})):
            for view in _subnet_views(item):
                if view["id"] == id:
                    return view
        raise exceptions.SubnetNotFound(subnet_id=id[:64])

    def _find_subnet(self, req: ServiceRequest, id: str) -> tuple[_Item, int]:
        """Return the network, segment or pool of a subnet, and its IP version.

        Raises `Forbidden` for an operator's IPv6 subnet, which cannot change.
        """
        for item in self._items(req, False, ListQuery(filters={"subnet_id": [id]})):
            if isinstance(item, FloatingIpPool):
                if item.cidr and id == (item.subnet_id or item.id):
                    return item, 4
                continue
            for link in (item, *item.segments):
                if link.cidr and ipv6.subnet_id_of(link) == id:
                    return link, 4
                if link.cidr6 and ipv6.subnet_id_of(link, version=6) == id:
                    if link.subnet6 is None:
                        raise exceptions.Forbidden("An operator's IPv6 subnet is created and deleted with its network.")
                    return link, 6
        raise exceptions.SubnetNotFound(subnet_id=id[:64])

    def create_subnet(self, req: ServiceRequest) -> Response:
        bodies, is_bulk = requests.bodies(req, "subnet", _NEW_SUBNET, _SUBNET_ONLY_DEFAULT)
        if not is_bulk and self._owned_pool(req, requests.required_id(bodies[0], "network_id")) is not None:
            return self._create_external_subnet(req, bodies[0])
        wanted = [self._new_subnet(req, fields) for fields in bodies]
        create = functools.partial(self.conductor.subnet_create, req.context)
        shown = iter([views.subnet if subnet.subnet6 is None else views.subnet6 for subnet in wanted])
        return self.created(req, "subnet", (wanted, is_bulk), create, lambda network: next(shown)(network))

    def _create_external_subnet(self, req: ServiceRequest, fields: dict[str, Any]) -> Response:
        unknown = ("dns_nameservers", "host_routes", "tags", "description", "subnetpool_id", "use_default_subnetpool")
        if found := [name for name in (*unknown, "prefixlen") if fields.get(name)]:
            raise exceptions.ValidationError(
                detail=f"Invalid input for {found[0]}. Addresses of an external network are floating addresses only."
            )
        subnet = self._subnet_of(fields, requests.required_id(fields, "network_id"))
        if subnet.subnet6 is not None:
            raise exceptions.ValidationError(detail="Invalid input for ip_version. Floating addresses are IPv4.")
        created = self.conductor.external_subnet_create(req.context, subnet)
        return Response({"subnet": views.subnet_of_pool(created)}, 201)

    def _new_subnet(self, req: ServiceRequest, fields: dict[str, Any]) -> NetworkRecord:
        return self._subnet_of(fields, self._changeable(req, requests.required_id(fields, "network_id")).id)

    @staticmethod
    def _subnet_of(fields: dict[str, Any], network_id: str) -> NetworkRecord:
        cidr = requests.text(fields, "cidr")
        pool_id = requests.an_id(fields, "subnetpool_id")
        if requests.flag(fields, "use_default_subnetpool"):
            if pool_id is not None:
                raise exceptions.ValidationError(
                    detail="subnetpool_id and use_default_subnetpool cannot both be specified"
                )
            pool_id = "default"
        prefixlen = requests.number(fields, "prefixlen", 0, 128)
        if pool_id is None and not cidr:
            raise exceptions.ValidationError(detail="A subnet needs a cidr, or a subnetpool_id to get one from.")
        if prefixlen is not None and (cidr or pool_id is None):
            raise exceptions.ValidationError(
                detail="Invalid input for prefixlen. It needs a subnetpool_id, and no cidr."
            )
        if _version(fields, cidr) == 6:
            return _subnet6_of(fields, network_id, cidr or "", pool_id, prefixlen)
        pools = _pools(fields)
        only = pools[0] if len(pools) == 1 else {}
        return NetworkRecord(
            id=network_id,
            name="",
            cidr=_network_of(cidr) if cidr else "",
            subnet_pool_id=pool_id,
            prefixlen=prefixlen,
            gateway=_gateway(fields),
            dns=_name_servers(fields),
            start=only.get("start"),
            end=only.get("end"),
            pools=pools,
            no_pools=fields.get("allocation_pools") == [],
            host_routes=_host_routes(fields),
            enable_dhcp=requests.flag(fields, "enable_dhcp", default=True),
            subnet_name=requests.text(fields, "name") or "",
            subnet_description=requests.text(fields, "description") or "",
            subnet_tags=requests.tags(fields),
        )

    def update_subnet(self, req: ServiceRequest, id: str) -> Response:
        fields = requests.body(req, "subnet", _SUBNET, _SUBNET_ONLY_DEFAULT)
        network, version = self._find_subnet(req, id)
        if version == 6 and isinstance(network, NetworkRecord):
            return self._update_subnet6(req, network, fields)
        if isinstance(network, FloatingIpPool):
            if network.project_id is not None:
                return self._update_external_subnet(req, network, fields)
            network = self._changeable(req, network.id)
        _require_same({name: fields[name] for name in fields.keys() - _SETTINGS}, views.subnet(network))
        changes: dict[str, Any] = {
            f"subnet_{name}": value for name, value in requests.texts(fields, "name", "description").items()
        }
        changes |= _settings(fields)
        return Response({"subnet": views.subnet(self.conductor.network_update(req.context, network.id, changes))})

    def _update_subnet6(self, req: ServiceRequest, network: NetworkRecord, fields: dict[str, Any]) -> Response:
        _require_same({name: fields[name] for name in fields.keys() - _SETTINGS}, views.subnet6(network))
        changes = dict(requests.texts(fields, "name", "description")) | _settings(fields)
        updated = self.conductor.network_update(req.context, network.id, {"subnet6": changes})
        return Response({"subnet": views.subnet6(updated)})

    def _update_external_subnet(self, req: ServiceRequest, pool: FloatingIpPool, fields: dict[str, Any]) -> Response:
        _require_same(fields, views.subnet_of_pool(pool))
        changes = {f"subnet_{name}": value for name, value in requests.texts(fields, "name").items()}
        updated = self.conductor.external_network_update(req.context, pool.id, changes)
        return Response({"subnet": views.subnet_of_pool(updated)})

    def require_changeable_network(self, req: ServiceRequest, id: str) -> None:
        """Raise an error for a network that is not there or that users do not change."""
        self._changeable(req, id)

    def require_changeable_subnet(self, req: ServiceRequest, id: str) -> None:
        """Raise an error for a subnet that is not there or that users do not change."""
        network, _ = self._find_subnet(req, id)
        if isinstance(network, FloatingIpPool):
            self._changeable(req, network.id)

    def delete_subnet(self, req: ServiceRequest, id: str) -> Response:
        network, _ = self._find_subnet(req, id)
        if isinstance(network, FloatingIpPool) and network.project_id is not None:
            self.conductor.external_subnet_delete(req.context, network.id)
            return Response(status=204)
        self.require_changeable_subnet(req, id)
        self.conductor.subnet_delete(req.context, id)
        return Response(status=204)


def _view(item: _Item, for_admin: bool) -> views.View:
    return views.pool(item, for_admin) if isinstance(item, FloatingIpPool) else views.network(item, for_admin)


def _subnet_views(item: _Item) -> list[views.View]:
    return views.subnets_of_pool(item) if isinstance(item, FloatingIpPool) else views.subnets(item)


def _listed_subnets(item: _Item) -> list[views.View]:
    """Return the subnets of an item for a list, which may be filtered by the network's ``shared``, as in Neutron."""
    is_shared = _view(item, for_admin=False)["shared"]
    return [view | {"shared": is_shared} for view in _subnet_views(item)]


def _mtu(fields: dict[str, Any]) -> int | None:
    return requests.number(fields, "mtu", factory.MIN_MTU, factory.MAX_MTU)


def _check_external(fields: dict[str, Any]) -> None:
    """Check that a request sets nothing of an external network that only ports have."""
    for name, only in _OF_PORTS.items():
        if fields.get(name) not in (None, only):
            raise exceptions.ValidationError(
                detail=f"Invalid input for {name}. An external network has no ports here, only floating addresses."
            )


def _require_same(fields: dict[str, Any], now: dict[str, Any]) -> None:
    """Check that fields that cannot change have their current values."""
    for name in fields.keys() & now.keys() - {"name", "description"}:
        if fields[name] != now[name]:
            raise exceptions.ValidationError(detail=f"{name} cannot be changed. {_UNCHANGEABLE}.")


def _version(fields: dict[str, Any], cidr: str | None) -> int:
    """Return the IP version of a new subnet. Raises a 400 for what Neutron refuses with the other one."""
    version = requests.number(fields, "ip_version", 4, 6)
    found = None if cidr is None else version_of(cidr)
    if version == 5 or (None not in (version, found) and version != found):
        raise exceptions.InvalidInput(reason=f"cidr {cidr} does not match the ip_version '{version}'.")
    version = version or found or 4
    if version == 4 and any(fields.get(name) is not None for name in _MODES):
        raise exceptions.ValidationError(detail="Invalid input for ipv6_ra_mode. Only an IPv6 subnet has such modes.")
    return version


def _subnet6_of(
    fields: dict[str, Any], network_id: str, cidr: str, pool_id: str | None, prefixlen: int | None
) -> NetworkRecord:
    """Return the request for an IPv6 subnet."""
    ra_mode, address_mode = (requests.text(fields, name) for name in _MODES)
    return NetworkRecord(
        id=network_id,
        name="",
        cidr="",
        cidr6=_network_of(cidr) if cidr else "",
        subnet6_pool_id=pool_id,
        prefixlen=prefixlen,
        no_pools=fields.get("allocation_pools") == [],
        gateway=_gateway(fields),
        subnet6=Subnet6(
            name=requests.text(fields, "name") or "",
            description=requests.text(fields, "description") or "",
            tags=requests.tags(fields),
            pools=_pools(fields),
            dns=_name_servers(fields),
            host_routes=_host_routes(fields),
            enable_dhcp=requests.flag(fields, "enable_dhcp", default=True),
            ra_mode=ra_mode,
            address_mode=address_mode,
        ),
    )


def _network_of(cidr: str) -> str:
    """Return a range without host bits. The conductor refuses an invalid one."""
    try:
        return str(ip.parse_network(cidr, strict=False))
    except ValueError:
        return cidr


def _settings(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the changes of a subnet's settings."""
    changes: dict[str, Any] = {}
    if "gateway_ip" in fields:
        gateway = fields["gateway_ip"]
        changes["gateway"] = None if gateway is None else requests.address(gateway, "gateway_ip")
    if fields.get("allocation_pools") is not None:
        changes["pools"] = _pools(fields)
    if "dns_nameservers" in fields:
        changes["dns"] = _name_servers(fields)
    if "host_routes" in fields:
        changes["host_routes"] = _host_routes(fields)
    if fields.get("enable_dhcp") is not None:
        changes["enable_dhcp"] = requests.flag(fields, "enable_dhcp", default=True)
    return changes


def _pools(fields: dict[str, Any]) -> list[dict[str, str]]:
    """Return the ranges of addresses to allocate; no range if the request does not set them."""
    pools = fields.get("allocation_pools")
    pools = [] if pools is None else pools
    ends = {"start", "end"}
    if not isinstance(pools, list) or not all(isinstance(pool, dict) and pool.keys() == ends for pool in pools):
        raise exceptions.ValidationError(
            detail="Invalid input for allocation_pools. It must be a list of objects with start and end."
        )
    if len(pools) > MAX_POOLS:
        raise exceptions.ValidationError(detail=f"Invalid input for allocation_pools. At most {MAX_POOLS} are allowed.")
    return [{name: requests.address(pool[name], "allocation_pools") for name in ("start", "end")} for pool in pools]


def _host_routes(fields: dict[str, Any]) -> list[dict[str, str]]:
    return requests.routes(fields, "host_routes") or []


def _gateway(fields: dict[str, Any]) -> str | None:
    """Return the gateway. None leaves the choice to the service, `factory.NO_GATEWAY` is no gateway."""
    if "gateway_ip" not in fields:
        return None
    gateway = fields["gateway_ip"]
    return factory.NO_GATEWAY if gateway is None else requests.address(gateway, "gateway_ip")


def _name_servers(fields: dict[str, Any]) -> list[str]:
    servers = fields.get("dns_nameservers") or []
    if not isinstance(servers, list) or len(servers) > 5:
        raise exceptions.ValidationError(detail="Invalid input for dns_nameservers. It must be a list of up to five.")
    addresses = [requests.address(server, "dns_nameservers") for server in servers]
    for address in addresses:
        if addresses.count(address) > 1:
            raise exceptions.ValidationError(
                detail=f"Invalid input for dns_nameservers. Reason: Duplicate nameserver '{address}'."
            )
    return addresses
