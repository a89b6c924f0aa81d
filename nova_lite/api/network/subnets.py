"""Subnets.

A network has one IPv4 subnet and one IPv6 subnet. Further subnets are on segments.
"""

from __future__ import annotations

import functools
from typing import Annotated, Any, TypeAlias

from msgspec import field

from nova_lite.api.http.bodies import SAME
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import fields, listing, networks, requests, views
from nova_lite.api.network.resource import lists, shows
from nova_lite.base import exceptions, ip
from nova_lite.network import factory
from nova_lite.objects import FloatingIpPool, ListQuery, NetworkRecord, Subnet6, ipv6
from nova_lite.objects.instance import version_of
from nova_lite.policies import network_service as policies

_PATH, _ONE, _KEY = "/subnets", "/subnets/{id}", "subnet"
#: Number of allocation pools of a subnet, and of its name servers.
MAX_POOLS = 100
_MAX_SERVERS = 5
#: Number of service types of a subnet, and how they begin in Neutron.
MAX_SERVICE_TYPES = 32
_OWNERS = ("compute:", "network:", "neutron:", "baremetal:", "trunk:")
#: Attributes that an external network's subnet does not have.
_NOT_EXTERNAL = (
    "dns", "host_routes", "tags", "description", "subnetpool_id", "use_default_subnetpool", "prefixlen",
    "service_types",
)  # fmt: skip
_TEXTS = {"name", "description"}
#: Settings of a subnet that requests name otherwise than the conductor.
_SENT = {"gateway": "gateway_ip", "pools": "allocation_pools", "dns": "dns_nameservers"}


def _gateway(value: Any, name: str) -> str:
    """Return the gateway of a new subnet: null is no gateway, and without the attribute the service chooses."""
    return factory.NO_GATEWAY if value is None else fields.address(value, name)


def _pools(value: Any, name: str) -> list[dict[str, str]]:
    """Return the ranges of addresses to allocate."""
    ends = {"start", "end"}
    if not isinstance(value, list) or not all(isinstance(pool, dict) and pool.keys() == ends for pool in value):
        raise fields.invalid(name, "It must be a list of objects with start and end.")
    if len(value) > MAX_POOLS:
        raise fields.invalid(name, f"At most {MAX_POOLS} are allowed.")
    return [{end: fields.address(pool[end], name) for end in ("start", "end")} for pool in value]


def _name_servers(value: Any, name: str) -> list[str]:
    servers = value or []
    if not isinstance(servers, list) or len(servers) > _MAX_SERVERS:
        raise fields.invalid(name, "It must be a list of up to five.")
    addresses = [fields.address(server, name) for server in servers]
    for address in addresses:
        if addresses.count(address) > 1:
            raise fields.invalid(name, f"Reason: Duplicate nameserver '{address}'.")
    return addresses


def _service_types(value: Any, name: str) -> list[str]:
    """Return owners of ports."""
    if not isinstance(value, list) or len(value) > MAX_SERVICE_TYPES:
        raise fields.invalid(name, f"It must be a list of up to {MAX_SERVICE_TYPES} owners of ports.")
    owners = [fields.text(item, name) for item in value]
    for owner in owners:
        if not owner.startswith(_OWNERS):
            raise fields.invalid(name, f"'{owner[:64]}' does not begin with one of {', '.join(_OWNERS)}.")
        if owners.count(owner) > 1:
            raise fields.invalid(name, f"'{owner[:64]}' is there twice.")
    return owners


Address: TypeAlias = Annotated[str | None, fields.checked(fields.address)]
Gateway: TypeAlias = Annotated[str | None, fields.checked(_gateway, null=True)]
Pools: TypeAlias = Annotated[list[dict[str, str]] | None, fields.checked(_pools, maxItems=MAX_POOLS)]
NameServers: TypeAlias = Annotated[list[str], fields.checked(_name_servers, maxItems=_MAX_SERVERS)]
ServiceTypes: TypeAlias = Annotated[list[str], fields.checked(_service_types, maxItems=MAX_SERVICE_TYPES)]
IpVersion: TypeAlias = Annotated[int | None, fields.within(4, 6)]


class NewSubnet(fields.Named, kw_only=True):
    network_id: fields.RequiredId
    cidr: fields.OptionalText = None
    subnetpool_id: fields.Id = None
    use_default_subnetpool: fields.Flag = False
    prefixlen: fields.Length = None
    ip_version: IpVersion = None
    ra_mode: fields.OptionalText = field(default=None, name="ipv6_ra_mode")
    address_mode: fields.OptionalText = field(default=None, name="ipv6_address_mode")
    gateway: Gateway = field(default=None, name="gateway_ip")
    pools: Pools = field(default=None, name="allocation_pools")
    dns: NameServers = field(default_factory=list, name="dns_nameservers")
    host_routes: fields.Routes = []
    enable_dhcp: fields.Flag = True
    tags: fields.Tags = []
    project_id: fields.Ignored = SAME
    tenant_id: fields.Ignored = SAME
    service_types: ServiceTypes = []
    segment_id: fields.OnlyNull = SAME


class ChangedSubnet(fields.Named):
    gateway: Address = field(default=None, name="gateway_ip")
    pools: Pools = field(default=SAME, name="allocation_pools")
    dns: NameServers = field(default_factory=list, name="dns_nameservers")
    host_routes: fields.Routes = []
    enable_dhcp: fields.Flag = SAME
    network_id: fields.Present = None
    cidr: fields.Present = None
    ip_version: fields.Present = None
    ipv6_ra_mode: fields.Present = None
    ipv6_address_mode: fields.Present = None
    project_id: fields.Present = None
    tenant_id: fields.Present = None
    service_types: ServiceTypes = []
    segment_id: fields.OnlyNull = SAME


class Subnets(networks.NetworkFinder):
    """Subnets."""

    @lists(_PATH, policies.SUBNET_GET, "subnets")
    def index(self, req: ServiceRequest) -> Response:
        filters = {"network_id": "id", "id": "subnet_id", "project_id": "project_id", "tenant_id": "project_id"}
        fetch = functools.partial(self._shown_items, req)
        return self.listed(req, listing.Source(fetch, _listed, filters, marker="subnet_id", hidden={"shared"}))

    @shows(_ONE, policies.SUBNET_GET, _KEY)
    def show(self, req: ServiceRequest, id: str) -> views.View:
        for item in self._shown_items(req, ListQuery(filters={"subnet_id": [id]})):
            for view in _views(item):
                if view["id"] == id:
                    return listing.cut(req, view)
        raise exceptions.SubnetNotFound(subnet_id=id[:64])

    def _shown_items(self, req: ServiceRequest, query: ListQuery) -> list[networks.Item]:
        """Return networks and pools; without pools for members: they see no subnets of external networks, as in
        Neutron.
        """
        items = self.items(req, query)
        return items if req.context.is_admin else [item for item in items if not isinstance(item, FloatingIpPool)]

    def _find_link(self, req: ServiceRequest, id: str) -> tuple[networks.Item, int]:
        """Return the network, segment or pool of a subnet, and its IP version.

        Raises `Forbidden` for an operator's IPv6 subnet, which cannot change.
        """
        for item in self.items(req, ListQuery(filters={"subnet_id": [id]})):
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

    @route("POST", _PATH, policies.SUBNET_CREATE, body=NewSubnet, key=_KEY, response=_KEY, status=201)
    def create(self, req: ServiceRequest) -> Response | views.View:
        bodies, is_bulk = requests.bulk(req, NewSubnet)
        if not is_bulk and isinstance(self.owned(req, bodies[0].network_id), FloatingIpPool):
            return self._create_external(req, bodies[0])
        for body in bodies:
            self.changeable(req, body.network_id)
        wanted = [_new_subnet(body) for body in bodies]
        shown = iter([views.subnet if subnet.subnet6 is None else views.subnet6 for subnet in wanted])
        return self.created(req, (wanted, is_bulk), self.conductor.subnet_create, lambda network: next(shown)(network))

    def _create_external(self, req: ServiceRequest, body: NewSubnet) -> views.View:
        if found := [name for name in _NOT_EXTERNAL if getattr(body, name)]:
            name = _SENT.get(found[0], found[0])
            raise fields.invalid(name, "Addresses of an external network are floating addresses only.")
        subnet = _new_subnet(body)
        if subnet.subnet6 is not None:
            raise fields.invalid("ip_version", "Floating addresses are IPv4.")
        return views.subnet_of_pool(self.conductor.external_subnet_create(req.context, subnet))

    @route("PUT", _ONE, policies.SUBNET_UPDATE, body=ChangedSubnet, key=_KEY, response=_KEY)
    def update(self, req: ServiceRequest, id: str) -> views.View:
        changes = requests.changes(req, ChangedSubnet)
        link, version = self._find_link(req, id)
        if isinstance(link, FloatingIpPool):
            return self._update_external(req, link, changes)
        view = views.subnet if version == 4 else views.subnet6
        requests.take_same(changes, view(link), networks.UNCHANGEABLE)
        texts = {f"subnet_{name}": changes[name] for name in _TEXTS & changes.keys()}
        others = {name: changes[name] for name in changes.keys() - _TEXTS}
        values = others | texts
        if version == 6:
            values = {"subnet6": changes}
            if "service_types" in changes:
                values["service_types6"] = changes.pop("service_types")
        return view(self.conductor.network_update(req.context, link.id, values))

    def _update_external(self, req: ServiceRequest, pool: FloatingIpPool, changes: dict[str, Any]) -> views.View:
        self.owned(req, pool.id)
        now, sent = views.subnet_of_pool(pool), {_SENT.get(name, name): changes[name] for name in changes}
        requests.take_same(sent, now, networks.UNCHANGEABLE, now.keys() - _TEXTS)
        texts = {"subnet_name": sent["name"]} if "name" in sent else {}
        return views.subnet_of_pool(self.conductor.external_network_update(req.context, pool.id, texts))

    @route("DELETE", _ONE, policies.SUBNET_DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        link, _ = self._find_link(req, id)
        if isinstance(link, FloatingIpPool):
            self.owned(req, link.id)
            self.conductor.external_subnet_delete(req.context, link.id)
        else:
            self.conductor.subnet_delete(req.context, id)

    def require_changeable(self, req: ServiceRequest, id: str) -> None:
        link, _ = self._find_link(req, id)
        if isinstance(link, FloatingIpPool):
            self.changeable(req, link.id)


def _views(item: networks.Item) -> list[views.View]:
    return views.subnets_of_pool(item) if isinstance(item, FloatingIpPool) else views.subnets(item)


def _listed(item: networks.Item) -> list[views.View]:
    """Return the subnets of an item for a list, which may be filtered by the network's ``shared``, as in Neutron."""
    is_shared = networks.view(item, for_admin=False)["shared"]
    return [view | {"shared": is_shared} for view in _views(item)]


def _new_subnet(body: NewSubnet) -> NetworkRecord:
    """Return the request for a subnet: a network with its settings."""
    pool_id, cidr = body.subnetpool_id, body.cidr
    if body.use_default_subnetpool:
        if pool_id is not None:
            raise exceptions.ValidationError(detail="subnetpool_id and use_default_subnetpool cannot both be specified")
        pool_id = "default"
    if pool_id is None and not cidr:
        raise exceptions.ValidationError(detail="A subnet needs a cidr, or a subnetpool_id to get one from.")
    if body.prefixlen is not None and (cidr or pool_id is None):
        raise fields.invalid("prefixlen", "It needs a subnetpool_id, and no cidr.")
    record = functools.partial(
        NetworkRecord,
        id=body.network_id,
        name="",
        prefixlen=body.prefixlen,
        gateway=body.gateway,
        no_pools=body.pools == [],
    )
    range_, pools = _network_of(cidr) if cidr else "", body.pools or []
    if _version(body) == 6:
        settings = Subnet6(**{**requests.common(Subnet6, body), "pools": pools})
        types = body.service_types or None
        return record(cidr="", cidr6=range_, subnet6_pool_id=pool_id, subnet6=settings, service_types6=types)
    only = pools[0] if len(pools) == 1 else {}
    return record(
        cidr=range_,
        subnet_pool_id=pool_id,
        dns=body.dns,
        start=only.get("start"),
        end=only.get("end"),
        pools=pools,
        host_routes=body.host_routes,
        enable_dhcp=body.enable_dhcp,
        subnet_name=body.name,
        subnet_description=body.description,
        subnet_tags=body.tags,
        service_types=body.service_types or None,
    )


def _version(body: NewSubnet) -> int:
    """Return the IP version of a new subnet. Raises a 400 for what Neutron refuses with the other one."""
    version, found = body.ip_version, None if body.cidr is None else version_of(body.cidr)
    if version == 5 or (None not in (version, found) and version != found):
        raise exceptions.InvalidInput(reason=f"cidr {body.cidr} does not match the ip_version '{version}'.")
    version = version or found or 4
    if version == 4 and (body.ra_mode, body.address_mode) != (None, None):
        raise fields.invalid("ipv6_ra_mode", "Only an IPv6 subnet has such modes.")
    return version


def _network_of(cidr: str) -> str:
    """Return a range without host bits. The conductor refuses an invalid one."""
    try:
        return str(ip.parse_network(cidr, strict=False))
    except ValueError:
        return cidr
