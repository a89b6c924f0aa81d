"""Ports: of servers, and of users, who assign them to servers through the compute API."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from msgspec import field

from nova_lite.api.http.bodies import SAME
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import dns, fields, listing, requests, trunks, views
from nova_lite.api.network.fixed_addresses import NO_ADDRESS, FixedAddresses, FixedIps, Subnets, fixed_addresses
from nova_lite.api.network.resource import NetworkResource, lists, shows
from nova_lite.base import exceptions
from nova_lite.network.trace.packets import PROTOCOLS
from nova_lite.objects import ListQuery, Port, ipv6
from nova_lite.objects.network import ANY_ADDRESS
from nova_lite.objects.pci import NORMAL, PORT_DEVICES
from nova_lite.policies import network_service as policies

_PATH, _ONE, _KEY = "/ports", "/ports/{id}", "port"
_DEVICE = ("device_id", "device_owner")
#: Beginnings of the owners of servers' and routers' ports, and of subports.
_RESERVED_OWNERS = ("compute:", "network:", "trunk:")
_RELEASES = {"Server": "detach it with the compute API", "Router": "remove it by remove_router_interface"}
_NO_OTHER_KIND = "The kind of a port cannot be changed: make another port."
_NO_BINDING = "The host of a port is that of its server: give it to a server by the compute API."

#: Values that choose no address.
_NOT_CHOSEN = {None, "", NO_ADDRESS, *ANY_ADDRESS.values()}

#: Parameters of the way of a packet.
_OF_PACKET = ("destination", "protocol", "port", "ip_version")
_MAX_PORT = 65535

#: Filters that the conductor applies, so that it does not send all ports.
_CONDUCTOR_FILTERS = {
    **{name: name for name in ("id", "network_id", "device_id", "mac_address", "name", "project_id")},
    "tenant_id": "project_id",
    "binding:host_id": "host",
}

MacAddress: TypeAlias = Annotated[str, fields.checked(fields.mac_address)]
Groups: TypeAlias = Annotated[list[str], fields.checked(fields.ids)]
Pairs: TypeAlias = Annotated[list[dict[str, str]], fields.checked(fields.address_pairs)]
DhcpOptions: TypeAlias = Annotated[
    list[dict[str, Any]], fields.checked(fields.dhcp_options, maxItems=fields.MAX_DHCP_OPTIONS)
]
OnlyEmptyObject: TypeAlias = Annotated[Any, fields.only({})]
VnicType: TypeAlias = Annotated[str, fields.checked(fields.vnic_type, enum=[NORMAL, *PORT_DEVICES])]


class _Port(fields.Named):
    fixed_ips: FixedIps = None
    mac_address: MacAddress = ""
    security_groups: Groups = SAME
    admin_state_up: fields.StateUp = True
    device_id: fields.Text = ""
    device_owner: fields.Text = ""
    host_id: fields.Present = field(default="", name="binding:host_id")
    profile: OnlyEmptyObject = field(default=SAME, name="binding:profile")
    vnic_type: VnicType = field(default=SAME, name="binding:vnic_type")
    dhcp_options: DhcpOptions = field(default=SAME, name="extra_dhcp_opts")
    dns_name: dns.Name = ""
    dns_domain: dns.Domain = ""
    qos_policy_id: fields.Id = None
    propagate_uplink_status: fields.OnlyFalse = SAME
    numa_affinity_policy: fields.OnlyNull = SAME


class NewPort(_Port, kw_only=True):
    network_id: fields.RequiredId
    project_id: fields.Text = ""
    tenant_id: fields.Text = ""
    tags: fields.Tags = []
    port_security_enabled: fields.OptionalFlag = None
    address_pairs: Pairs = field(default=SAME, name="allowed_address_pairs")


class ChangedPort(_Port):
    network_id: fields.Present = None
    project_id: fields.Present = None
    tenant_id: fields.Present = None
    port_security_enabled: fields.Flag = SAME
    address_pairs: Pairs = field(default_factory=list, name="allowed_address_pairs")


class Ports(NetworkResource):
    """Ports."""

    @lists(_PATH, policies.PORT_GET, "ports")
    def index(self, req: ServiceRequest) -> Response:
        for_admin, domain = req.allows(policies.PORT_GET_BINDING), self.conf.network.dns_domain
        of_trunks: dict[str, views.View] = {}

        def fetch(query: ListQuery) -> list[Port]:
            found = self.conductor.port_list(req.context, query.filters, query)
            of_trunks.update(trunks.of_ports(self, req, found))
            return found

        source = listing.Source(
            fetch,
            lambda port: [views.port(port, for_admin, domain) | of_trunks.get(port.id, {})],
            _CONDUCTOR_FILTERS,
        )
        return self.listed(req, source)

    @shows(_ONE, policies.PORT_GET, _KEY)
    def show(self, req: ServiceRequest, id: str) -> views.View:
        return listing.cut(req, self._view(req, self.conductor.port_get(req.context, id)))

    def _view(self, req: ServiceRequest, port: Port) -> views.View:
        shown = views.port(port, req.allows(policies.PORT_GET_BINDING), self.conf.network.dns_domain)
        return shown | trunks.of_ports(self, req, [port]).get(port.id, {})

    @route("GET", f"{_ONE}/trace", policies.PORT_TRACE, query=_OF_PACKET, response="trace")
    def trace(self, req: ServiceRequest, id: str) -> views.View:
        """Show what becomes of a packet: which rule, router or host lets it pass, and where it stops."""
        destination, protocol, port, version = (req.GET.get(name, "") for name in _OF_PACKET)
        if not destination:
            raise fields.missing("destination")
        for name, value, known in (("protocol", protocol, (*PROTOCOLS, "")), ("ip_version", version, ("4", "6", ""))):
            if value not in known:
                raise fields.invalid(name, f"It must be one of {', '.join(filter(None, known))}.")
        if (protocol in ("icmp", "")) is not (port == ""):
            raise fields.invalid("port", "tcp and udp need one, and icmp has none.")
        if port and not (port.isascii() and port.isdecimal() and 0 < int(port) <= _MAX_PORT):
            raise fields.invalid("port", f"It must be a number from 1 to {_MAX_PORT}.")
        way = self.conductor.packet_way_get(
            req.context, id, destination, protocol or "icmp", int(port) if port else None, int(version or 4)
        )
        return {
            "packet": way.packet,
            "arrives": way.arrives,
            "arrived_at": way.arrived_at,
            "parts": [{name: getattr(part, name) for name in part.__struct_fields__} for part in way.parts],
        }

    @route("POST", _PATH, policies.PORT_CREATE, body=NewPort, key=_KEY, response=_KEY, status=201)
    def create(self, req: ServiceRequest) -> Response | views.View:
        bodies, is_bulk = requests.bulk(req, NewPort)
        wanted = [self._new_port(req, body) for body in bodies]
        return self.created(req, (wanted, is_bulk), self.conductor.port_create, functools.partial(self._view, req))

    def _new_port(self, req: ServiceRequest, body: NewPort) -> Port:
        _require_same("binding:host_id", body.host_id, "", _NO_BINDING)
        dns.check_port_name(body.dns_name, self.conf.network.dns_domain)
        if body.device_owner.startswith(_RESERVED_OWNERS):
            req.authorize(policies.PORT_CREATE_OWNER)
        address, address6, link_id, further = "", None, None, list[str]()
        if body.fixed_ips is not None:
            subnets = functools.partial(self._subnets, req, body.network_id)
            address, address6, link_id, further = fixed_addresses(body.fixed_ips, {}, subnets)
        addresses = {"address": address, "address6": address6, "segment_id": link_id, "further": further}
        port = requests.new(req, Port, body, **addresses)
        chosen = {
            policies.PORT_CREATE_MAC: port.mac_address,
            policies.PORT_CREATE_ADDRESS: {address, address6, *further} - _NOT_CHOSEN,
            policies.PORT_CREATE_SECURITY: port.port_security_enabled is False,
            policies.PORT_CREATE_PAIRS: port.address_pairs,
        }
        self._authorize_choice(req, port.network_id, chosen, is_new=True)
        return port

    @route("PUT", _ONE, policies.PORT_UPDATE, body=ChangedPort, key=_KEY, response=_KEY)
    def update(self, req: ServiceRequest, id: str) -> views.View:
        changes = requests.changes(req, ChangedPort)
        port = self.conductor.port_get(req.context, id)
        now = views.port(port, for_admin=True)
        _check_device(req, changes, port, now)
        dns.check_port_name(changes.get("dns_name", ""), self.conf.network.dns_domain)
        requests.take_same(changes, now, "{name} of a port cannot be changed: make another port.")
        chosen = {
            policies.PORT_UPDATE_PAIRS: changes.get("address_pairs"),
            policies.PORT_UPDATE_SECURITY: port.port_security_enabled
            and not changes.get("port_security_enabled", True),
        }
        if (mac_address := changes.pop("mac_address", "")) not in ("", port.mac_address):
            changes["mac_address"] = chosen[policies.PORT_UPDATE_MAC] = mac_address
        if (items := changes.pop("fixed_ips", None)) is not None:
            subnets = functools.partial(self._subnets, req, port.network_id)
            addresses = dns.addresses(port)
            present = {views.subnet_of_port(port, version): (version, port.link_id) for version, _ in addresses}
            moved = _moved(port, fixed_addresses(items, present, subnets, addresses))
            changes |= moved
            named = {moved.get("address"), moved.get("address6"), *moved.get("further", ())}
            chosen[policies.PORT_UPDATE_ADDRESS] = named - _NOT_CHOSEN - {text for _, text in addresses}
        self._authorize_choice(req, port.network_id, chosen)
        return self._view(req, self.conductor.port_update(req.context, id, changes))

    def _subnets(self, req: ServiceRequest, network_id: str) -> Subnets:
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

    @route("DELETE", _ONE, policies.PORT_DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self.conductor.port_delete(req.context, id)


def _check_device(req: ServiceRequest, changes: dict[str, Any], port: Port, now: views.View) -> None:
    """Check changes of a port's host, kind and device. Raises a 400, 403 or 409. What really changes stays."""
    if "host_id" in changes:
        _require_same("binding:host_id", changes.pop("host_id"), now["binding:host_id"], _NO_BINDING)
    if "vnic_type" in changes:
        _require_same("binding:vnic_type", changes.pop("vnic_type"), port.vnic_type, _NO_OTHER_KIND)
    if port.instance_uuid or port.router_id:
        kind = "Server" if port.instance_uuid else "Router"
        why = f"{kind} {now['device_id']} has the port: {_RELEASES[kind]}."
        for name in changes.keys() & set(_DEVICE):
            _require_same(name, changes.pop(name), now[name], why)
    owner = changes.get("device_owner", "")
    if owner.startswith(_RESERVED_OWNERS) and owner != now["device_owner"]:
        req.authorize(policies.PORT_UPDATE_OWNER)


def _moved(port: Port, wanted_ones: FixedAddresses) -> dict[str, Any]:
    """Return the changes of a port's addresses to the requested ones."""
    address, address6, link_id, further = wanted_ones
    changes: dict[str, Any] = {} if further == (port.further or []) else {"further": further}
    if link_id not in (None, port.link_id):
        return changes | {"address": address, "address6": address6, "segment_id": link_id}
    for name, wanted, present in (("address", address, port.address), ("address6", address6, port.address6)):
        is_same = wanted in ("", present) if present else wanted == NO_ADDRESS
        if not is_same:
            changes[name] = wanted
    return changes


def _require_same(name: str, wanted: Any, now: str, why: str) -> None:
    """Check that a request does not change what only other requests change. Raises a 400, or a 409 for a removal."""
    if (wanted or "") == now:
        return
    if now and not wanted:
        raise exceptions.Conflict(why)
    raise fields.invalid(name, f"{why}")
