"""Networks of servers, and pools of floating addresses, which are external networks."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import field

from nova_lite.api.http.bodies import SAME
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import dns, fields, listing, requests, views
from nova_lite.api.network.resource import NetworkResource, lists, shows
from nova_lite.base import exceptions
from nova_lite.network import factory
from nova_lite.objects import FloatingIpPool, ListQuery, NetworkRecord
from nova_lite.policies import network_service as policies

Item: TypeAlias = NetworkRecord | FloatingIpPool

_PATH, _ONE, _KEY = "/networks", "/networks/{id}", "network"
#: Attributes that an external network does not have, because it has no ports, with the only value.
_OF_PORTS = {
    "shared": False, "admin_state_up": True, "port_security_enabled": True, "mtu": 1500, "tags": [],
    "dns_domain": "",
    "network_type": None, "physical_network": None, "vlan": None, "qos_policy_id": None,
}  # fmt: skip
_OPERATORS = "The operator makes and deletes pools of floating addresses (nova-lite-manage)."
#: Reason to refuse a change of a network or subnet.
UNCHANGEABLE = "{name} cannot be changed. Hosts already use it: make another one instead."

Mtu: TypeAlias = Annotated[int, fields.within(factory.MIN_MTU, factory.MAX_MTU)]
Vlan: TypeAlias = Annotated[int | None, fields.within(1, 4094)]


class _Network(fields.Named):
    mtu: Mtu = SAME
    shared: fields.Flag = False
    external: fields.Flag = field(default=False, name="router:external")
    admin_state_up: fields.StateUp = True
    availability_zone_hints: fields.OnlyEmptyList = SAME
    dns_domain: dns.Domain = ""
    qos_policy_id: fields.Id = None
    is_default: fields.OnlyFalse = SAME
    vlan_transparent: fields.OnlyFalse = SAME


class NewNetwork(_Network):
    mtu: Mtu = factory.ETHERNET_MTU
    port_security_enabled: fields.Flag = True
    project_id: fields.Text = ""
    tenant_id: fields.Text = ""
    tags: fields.Tags = []
    network_type: fields.OptionalText = field(default=None, name="provider:network_type")
    physical_network: fields.OptionalText = field(default=None, name="provider:physical_network")
    vlan: Vlan = field(default=None, name="provider:segmentation_id")


class ChangedNetwork(_Network):
    external: fields.Flag = field(default=SAME, name="router:external")
    port_security_enabled: fields.Flag = SAME
    project_id: fields.Present = None
    tenant_id: fields.Present = None


class NetworkFinder(NetworkResource):
    """Networks of servers and pools of floating addresses."""

    def items(self, req: ServiceRequest, query: ListQuery, only_pools: bool = False) -> list[Item]:
        """Return the networks of a page, and all pools: an operator makes a few of them."""
        networks = [] if only_pools else self.conductor.network_record_list(req.context, query)
        return [*networks, *self.conductor.floating_ip_pool_list(req.context)]

    def find(self, req: ServiceRequest, id: str) -> Item:
        for item in self.items(req, ListQuery(filters={"id": [id]})):
            if item.id == id:
                return item
        raise exceptions.NetworkNotFound(network_id=id[:64])

    def owned(self, req: ServiceRequest, id: str) -> Item:
        """Return a network, or an external network that this API has made. Raises `Forbidden` for the operator's."""
        item = self.find(req, id)
        if isinstance(item, FloatingIpPool) and item.project_id is None:
            raise exceptions.Forbidden(_OPERATORS)
        return item

    def changeable(self, req: ServiceRequest, id: str) -> NetworkRecord:
        """Return a network. Raises `Forbidden` for an external one."""
        item = self.find(req, id)
        if isinstance(item, FloatingIpPool):
            raise exceptions.Forbidden(_OPERATORS)
        return item


class Networks(NetworkFinder):
    """Networks."""

    @lists(_PATH, policies.NETWORK_GET, "networks")
    def index(self, req: ServiceRequest) -> Response:
        """List the networks of servers and the pools of floating addresses."""
        for_admin = req.allows(policies.PROVIDER_GET)
        external = req.GET.getall("router:external")
        only_pools = bool(external) and all(value.lower() == "true" for value in external)
        source = listing.Source(
            functools.partial(self.items, req, only_pools=only_pools),
            lambda item: [view(item, for_admin)],
            {"id": "id", "name": "name", "project_id": "project_id", "tenant_id": "project_id"},
        )
        return self.listed(req, source)

    @shows(_ONE, policies.NETWORK_GET, _KEY)
    def show(self, req: ServiceRequest, id: str) -> views.View:
        return listing.cut(req, self._view(req, self.find(req, id)))

    def _view(self, req: ServiceRequest, item: Item) -> views.View:
        return view(item, req.allows(policies.PROVIDER_GET))

    @route("POST", _PATH, policies.NETWORK_CREATE, body=NewNetwork, key=_KEY, response=_KEY, status=201)
    def create(self, req: ServiceRequest) -> Response | views.View:
        bodies, is_bulk = requests.bulk(req, NewNetwork)
        if any(body.external for body in bodies):
            if is_bulk:
                raise exceptions.ValidationError(detail="Create external networks in a request each.")
            return self._create_external(req, bodies[0])
        wanted = [self._new_network(req, body) for body in bodies]
        return self.created(req, (wanted, is_bulk), self.conductor.network_create, functools.partial(self._view, req))

    def _create_external(self, req: ServiceRequest, body: NewNetwork) -> views.View:
        req.authorize(policies.NETWORK_CREATE_EXTERNAL)
        _check_external(msgspec.structs.asdict(body))
        pool = requests.new(req, FloatingIpPool, body, cidr="")
        if not pool.project_id:
            raise exceptions.Forbidden("A network belongs to a project; this token has none.")
        return self._view(req, self.conductor.external_network_create(req.context, pool))

    def _update_external(self, req: ServiceRequest, pool: FloatingIpPool, changes: dict[str, Any]) -> views.View:
        _check_external(changes)
        if not changes.get("external", True):
            raise fields.invalid("router:external", "An external network stays one: delete it instead.")
        texts: dict[str, Any] = {name: changes[name] for name in ("name", "description") if name in changes}
        return self._view(req, self.conductor.external_network_update(req.context, pool.id, texts))

    @staticmethod
    def _new_network(req: ServiceRequest, body: NewNetwork) -> NetworkRecord:
        if body.network_type or body.physical_network or body.vlan:
            req.authorize(policies.PROVIDER_CREATE)
            _check_provider(body)
        network = requests.new(req, NetworkRecord, body, cidr="", shared=False)
        if body.shared:
            req.authorize(policies.NETWORK_CREATE_SHARED)
            network.project_id = None
        elif not network.project_id:
            raise exceptions.Forbidden("A network belongs to a project; this token has none.")
        if not body.port_security_enabled:
            req.authorize(policies.NETWORK_CREATE_SECURITY)
        return network

    @route("PUT", _ONE, policies.NETWORK_UPDATE, body=ChangedNetwork, key=_KEY, response=_KEY)
    def update(self, req: ServiceRequest, id: str) -> views.View:
        changes = requests.changes(req, ChangedNetwork)
        item = self.owned(req, id)
        is_external = changes.get("external", False)
        if isinstance(item, NetworkRecord) and is_external:
            req.authorize(policies.NETWORK_UPDATE_EXTERNAL)
        requests.take_same(changes, self._view(req, item), UNCHANGEABLE)
        if isinstance(item, FloatingIpPool):
            return self._update_external(req, item, changes)
        if is_external:
            _check_external(changes)
            pool = FloatingIpPool(id=item.id, name=item.name, cidr="", project_id=item.project_id)
            return self._update_external(req, self.conductor.external_network_create(req.context, pool), changes)
        changes.pop("external", None)
        if changes.get("mtu") == item.mtu:
            del changes["mtu"]
        is_shared = item.shared or item.project_id is None
        if changes.get("shared", is_shared) == is_shared:
            changes.pop("shared", None)
        else:
            req.authorize(policies.NETWORK_UPDATE_SHARED)
        if "port_security_enabled" in changes:
            req.authorize(policies.NETWORK_UPDATE_SECURITY)
        return self._view(req, self.conductor.network_update(req.context, id, changes))

    @route("DELETE", _ONE, policies.NETWORK_DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        if isinstance(self.owned(req, id), FloatingIpPool):
            self.conductor.external_network_delete(req.context, id)
        else:
            self.conductor.network_delete(req.context, id)

    def require_changeable(self, req: ServiceRequest, id: str) -> None:
        self.changeable(req, id)


def view(item: Item, for_admin: bool) -> views.View:
    return views.pool(item, for_admin) if isinstance(item, FloatingIpPool) else views.network(item, for_admin)


def _check_provider(body: NewNetwork) -> None:
    """Check that a physical network, or its VLAN, is described completely. Raises a 400."""
    if body.network_type not in ("flat", "vlan"):
        raise fields.invalid("provider:network_type", "It must be flat or vlan for a physical network.")
    if not body.physical_network:
        raise fields.invalid("provider:physical_network", "Devices of hosts have its name (physical_network).")
    if (body.network_type == "vlan") != (body.vlan is not None):
        raise fields.invalid("provider:segmentation_id", "It is the number of a VLAN, if network_type is vlan.")


def _check_external(values: Mapping[str, Any]) -> None:
    """Check that a request sets nothing of an external network that only ports have."""
    for name, only in _OF_PORTS.items():
        if values.get(name) not in (None, only):
            raise fields.invalid(name, "An external network has no ports here, only floating addresses.")
