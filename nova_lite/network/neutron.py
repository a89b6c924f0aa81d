"""Backend ``neutron``: Neutron has the networks, ports, addresses and security groups, and OVN connects them.

Requests use the service user of ``[neutron]``, who must be an admin. So this module checks what a server's user may
use, by the owner of each resource. The conductor stores Neutron's data of an instance's ports, so reading an instance
sends no request.

A repeated request makes no second port. The MAC address of a port follows from its instance and position, and Neutron
accepts a MAC address only once per network. So a repeated or late request finds the port of the first one. No port is
left over either: each has the instance's uuid as its device from the start, by which DEALLOCATE finds it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from oslo_config import cfg
from oslo_utils import uuidutils

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.base.timing import TIMING, ClientTiming
from nova_lite.network.driver import (
    AUTO,
    NONE,
    NetworkBackend,
    NetworkCall,
    NetworkMethod,
    NetworkStore,
    PortQuota,
    ResolvedNetworks,
)
from nova_lite.network.neutron_client import NeutronClient, NeutronRefusal, NeutronSession
from nova_lite.objects import VIF, FixedIp, Network, NetworkRequest
from nova_lite.objects.instance import AddressMode, version_of
from nova_lite.objects.pci import NORMAL, OF_PORT, PORT_DEVICES

LOG = logging.getLogger(__name__)

#: MAC addresses to try for one port. Another port has the same one by chance, once in 16 million.
MAC_ATTEMPTS = 4

#: Attempts to change the groups of a port that others change at the same time.
REGROUP_ATTEMPTS = 4

#: Interface types of ports that no agent can connect.
UNBOUND, BINDING_FAILED = "unbound", "binding_failed"

OWNER = "compute:"

#: Attribute of a port that names its device on the host, and its keys for that.
PROFILE = "binding:profile"
_OF_DEVICE = ("pci_slot", "pci_vendor_info", "physical_network")

Body = dict[str, Any]


class NeutronNetworks(NetworkBackend):
    """Networks of a real Neutron."""

    remote = True
    has_remote_ports = True

    def __init__(self, conf: cfg.ConfigOpts, timing: ClientTiming = TIMING.clients) -> None:
        super().__init__(conf)
        self._client = NeutronClient(conf, timing)
        self._methods: dict[NetworkMethod, Callable[[NeutronSession, NetworkCall], Any]] = {
            NetworkMethod.RESOLVE: _resolve,
            NetworkMethod.ALLOCATE: _allocate,
            NetworkMethod.DEALLOCATE: _deallocate,
            NetworkMethod.ATTACH: _attach,
            NetworkMethod.DETACH: _detach,
            NetworkMethod.BIND: _bind_all,
            NetworkMethod.LOOK: _look,
            NetworkMethod.JOIN: _join,
            NetworkMethod.LEAVE: _leave,
            NetworkMethod.NETWORKS: _visible_networks,
        }

    def call(self, call: NetworkCall) -> Any:
        """Return `ResolvedNetworks` for RESOLVE, networks for NETWORKS, the new interface for ATTACH.

        The other methods return the interfaces that the instance has afterwards.
        """
        session = self._client.within(self.conf.network.call_timeout, call.started_at)
        try:
            return self._methods[call.method](session, call)
        except NeutronRefusal as error:
            LOG.error("Neutron refuses %s for %s: %s", call.method, call.instance_uuid or "a new server", error.message)
            raise exceptions.InvalidInput(reason=error.message) from error

    # --- stored data

    def resolve(
        self, store: NetworkStore, context: RequestContext, networks: str | list[NetworkRequest], result: Any = None
    ) -> list[NetworkRequest]:
        assert isinstance(result, ResolvedNetworks)
        return result.requests

    def allocate(
        self, store: NetworkStore, instance_uuid: str, requests: list[NetworkRequest], result: Any = None
    ) -> list[VIF]:
        vifs: list[VIF] = result
        store.record(instance_uuid, vifs)
        return vifs

    def vifs(self, store: NetworkStore, instance_uuid: str) -> list[VIF]:
        return store.recorded(instance_uuid)

    def deallocate(self, store: NetworkStore, instance_uuid: str) -> None:
        store.record(instance_uuid, None)


# --- networks, ports and groups that a user requests


def _resolve(session: NeutronSession, call: NetworkCall) -> ResolvedNetworks:
    groups = [_group(session, call.context.project_id or "", name) for name in call.security_groups]
    requests = _requests(session, call.context, call.networks)
    makes_ports = any(not request.port_id for request in requests)
    return ResolvedNetworks(
        requests=requests,
        security_groups=[group["id"] for group in groups],
        group_names=[group["name"] for group in groups],
        port_quota=_port_quota(session, call.context.project_id or "") if makes_ports else None,
    )


def _port_quota(session: NeutronSession, project_id: str) -> PortQuota | None:
    quota = session.get("quota", project_id) or {}
    limit = int(quota.get("port", -1))
    if limit < 0:
        return None
    return PortQuota(limit, len(session.list("ports", project_id=project_id, fields="id")))


def _requests(
    session: NeutronSession, context: RequestContext, networks: str | list[NetworkRequest]
) -> list[NetworkRequest]:
    if networks == NONE:
        return []
    if networks == AUTO:
        network = _only_network(session, context)
        return [] if network is None else [NetworkRequest(network_id=network["id"])]
    if isinstance(networks, str):
        raise exceptions.InvalidInput(reason=f"networks is {networks!r}, and not auto, none or a list")
    return [_request(session, context, request) for request in networks]


def _request(session: NeutronSession, context: RequestContext, request: NetworkRequest) -> NetworkRequest:
    if request.port_id:
        port = _free_port(session, context, request.port_id, "")
        kind = port.get("binding:vnic_type") or NORMAL
        return NetworkRequest(
            network_id=port["network_id"],
            port_id=port["id"],
            tag=request.tag,
            vnic_type=kind,
            physical_network=None if kind == NORMAL else _physical_network(session, port, kind),
        )
    if not request.network_id:
        only = _only_network(session, context)
        if only is None:
            raise exceptions.InvalidInput(reason="there is no network to take an address from")
        _check_choice(context, only, request)
        return msgspec.structs.replace(request, network_id=only["id"])
    network = _usable_network(session, context, request.network_id)
    if not network["subnets"]:
        raise exceptions.InvalidInput(
            reason=f"Network {network['id']} requires a subnet in order to boot instances on."
        )
    _check_choice(context, network, request)
    if request.fixed_ip:
        _check_address(session, network["id"], request.fixed_ip)
    return msgspec.structs.replace(request, network_id=network["id"])


def _physical_network(session: NeutronSession, port: Body, kind: str) -> str:
    """Return the physical network of a port that has a device of its host. Raises `InvalidInput`."""
    if kind not in PORT_DEVICES:
        raise exceptions.InvalidInput(
            reason=f"port {port['id']} has binding:vnic_type {kind}: servers have {', '.join((NORMAL, *PORT_DEVICES))}"
        )
    network = session.get("network", port["network_id"]) or {}
    named = (segment.get("provider:physical_network") for segment in (network, *network.get("segments", ())))
    found = next(filter(None, named), None)
    if found is None:
        raise exceptions.InvalidInput(
            reason=f"network {port['network_id']} has no provider:physical_network, in which a host could have a "
            f"device for port {port['id']} ({kind})"
        )
    return str(found)


def _check_choice(context: RequestContext, network: Body, request: NetworkRequest) -> None:
    """Check, as Neutron's default policy does, that the user may choose an address there.

    Neutron itself sees the service user's request, who may choose any.
    """
    if request.fixed_ip and not context.is_admin and network["project_id"] != context.project_id:
        raise exceptions.FixedIpForbidden(network_id=network["id"])


def _only_network(session: NeutronSession, context: RequestContext) -> Body | None:
    """Return the only network that the project can use, or None. Raises `NetworkAmbiguous`."""
    networks = [
        network for network in _networks(session, context) if not network["router:external"] or network["shared"]
    ]
    if len(networks) > 1:
        raise exceptions.NetworkAmbiguous()
    return networks[0] if networks else None


def _networks(session: NeutronSession, context: RequestContext) -> list[Body]:
    """Return the project's own networks, the shared ones, and the ones shared with this project."""
    project_id = context.project_id or ""
    networks = session.list("networks", project_id=project_id) + session.list("networks", shared="true")
    granted = _granted_networks(session, project_id)
    networks += session.list("networks", id=granted) if granted else []
    return list({network["id"]: network for network in networks}.values())


def _visible_networks(session: NeutronSession, call: NetworkCall) -> list[Network]:
    """Return the networks with a subnet, whose first subnet gives the range of addresses."""
    networks = [network for network in _networks(session, call.context) if network["subnets"]]
    subnets = _by_id(session, "subnets", (network["subnets"][0] for network in networks))
    return [
        _network(network, subnets[network["subnets"][0]])
        for network in sorted(networks, key=lambda network: str(network["name"]))
        if network["subnets"][0] in subnets
    ]


def _network(network: Body, subnet: Body) -> Network:
    return Network(
        id=network["id"],
        name=network["name"],
        cidr=subnet["cidr"],
        gateway=subnet["gateway_ip"],
        dns=subnet["dns_nameservers"],
        mtu=int(network.get("mtu") or 1500),
        project_id=network["project_id"],
    )


def _granted_networks(session: NeutronSession, project_id: str) -> list[str]:
    policies = session.list(
        "rbac_policies", object_type="network", action="access_as_shared", target_tenant=[project_id, "*"]
    )
    return [policy["object_id"] for policy in policies]


def _usable_network(session: NeutronSession, context: RequestContext, network_id: str) -> Body:
    """Return a network that the project may use. Raises `NetworkUnavailable` or `ExternalNetworkForbidden`."""
    network = session.get("network", network_id) if uuidutils.is_uuid_like(network_id) else None
    if network is None:
        raise exceptions.NetworkUnavailable(network_id=network_id[:64])
    own = network["project_id"] == context.project_id or network["shared"] or context.is_admin
    if not own and network["id"] not in _granted_networks(session, context.project_id or ""):
        if network["router:external"]:
            raise exceptions.ExternalNetworkForbidden(network_id=network_id)
        raise exceptions.NetworkUnavailable(network_id=network_id)
    if network["router:external"] and not network["shared"] and not context.is_admin:
        raise exceptions.ExternalNetworkForbidden(network_id=network_id)
    return network


def _check_address(session: NeutronSession, network_id: str, address: str) -> None:
    """Raise `FixedIpInUse`. Neutron itself checks that the address is on the network, when it makes the port."""
    if session.list("ports", network_id=network_id, fixed_ips=f"ip_address={address}", fields="id"):
        raise exceptions.FixedIpInUse(address=address, network_id=network_id)


def _free_port(session: NeutronSession, context: RequestContext, port_id: str, instance_uuid: str) -> Body:
    """Return a port of the user that is free or belongs to the instance already.

    Raises `PortUnavailable`, `PortInUse` or `PortRequiresFixedIP`.
    """
    port = session.get("port", port_id) if uuidutils.is_uuid_like(port_id) else None
    if port is None or (port["project_id"] != context.project_id and not context.is_admin):
        raise exceptions.PortUnavailable(port_id=port_id[:64])
    if port["device_id"] not in ("", instance_uuid):
        raise exceptions.PortInUse(port_id=port_id)
    if not port["fixed_ips"]:
        raise exceptions.PortRequiresFixedIP(port_id=port_id)
    return port


def _group(session: NeutronSession, project_id: str, reference: str) -> Body:
    """Return the project's security group with this name or id."""
    groups = session.list("security_groups", project_id=project_id, fields=["id", "name"])
    by_id = [group for group in groups if group["id"] == reference]
    matches = by_id or [group for group in groups if group["name"] == reference]
    if not matches:
        raise exceptions.SecurityGroupUnavailable(name=reference)
    if len(matches) > 1:
        raise exceptions.SecurityGroupAmbiguous(name=reference)
    return matches[0]


# --- ports of an instance


def _allocate(session: NeutronSession, call: NetworkCall) -> list[VIF]:
    """Make the interfaces. An instance that has interfaces already keeps them, bound to the new host."""
    assert not isinstance(call.networks, str)
    if call.vifs:
        return _bind_all(session, call)
    ports = {port["mac_address"]: port for port in _ports_of(session, call)}
    interfaces = []
    for position, request in enumerate(call.networks):
        port = _port_for(session, call, request, str(position), ports)
        interfaces.append(_InstancePort(position, request.tag, bool(request.port_id), port))
    return _connected(session, call, interfaces)


def _attach(session: NeutronSession, call: NetworkCall) -> VIF:
    """Make one interface. ``call.networks`` is a result of RESOLVE."""
    assert not isinstance(call.networks, str)
    (request,) = call.networks
    ports = {port["mac_address"]: port for port in _ports_of(session, call)}
    port = _port_for(session, call, request, call.key, ports)
    try:
        (vif,) = _connected(session, call, [_InstancePort(0, request.tag, bool(request.port_id), port)])
    except exceptions.PortBindingFailed:
        _release(session, port, bool(request.port_id))
        raise
    return vif


def _deallocate(session: NeutronSession, call: NetworkCall) -> None:
    """Delete all ports of the instance's device. The users' ports among them are only released."""
    assert not isinstance(call.networks, str)
    of_users = {vif.id for vif in call.vifs if vif.kept}
    of_users |= {request.port_id for request in call.networks if request.port_id}
    for port in _ports_of(session, call):
        _release(session, port, port["id"] in of_users)


def _detach(session: NeutronSession, call: NetworkCall) -> None:
    for vif in call.vifs:
        port = session.get("port", vif.id)
        if port is not None and port["device_id"] == call.instance_uuid:
            _release(session, port, vif.kept)
    if not call.key:
        return
    assert not isinstance(call.networks, str)
    of_users = {request.port_id for request in call.networks}
    own_addresses = {mac_of(call.instance_uuid, call.key, attempt) for attempt in range(MAC_ATTEMPTS)}
    for port in _ports_of(session, call):
        if port["id"] in of_users or (port["mac_address"] in own_addresses and not of_users):
            _release(session, port, bool(of_users))


def _look(session: NeutronSession, call: NetworkCall) -> list[VIF]:
    """Return the known interfaces as they are now, without ports that no longer exist."""
    ports = {port["id"]: port for port in _ports_of(session, call)}
    return _vifs(session, _known_ports(call, ports))


def _bind_all(session: NeutronSession, call: NetworkCall) -> list[VIF]:
    ports = {port["id"]: port for port in _ports_of(session, call)}
    interfaces = _known_ports(call, ports)
    for interface in interfaces:
        port = interface.port
        binding = _binding(call, port)
        is_there = all(port.get(name) == binding[name] for name in ("binding:host_id", PROFILE) if name in binding)
        if not is_there or port["binding:vif_type"] in (BINDING_FAILED, UNBOUND):
            interface.port = session.update("port", port["id"], binding)
    return _connected(session, call, interfaces)


def _known_ports(call: NetworkCall, ports: Mapping[str, Body]) -> list[_InstancePort]:
    return [
        _InstancePort(vif.position, vif.tag, vif.kept, ports[vif.id], vif.state) for vif in call.vifs if vif.id in ports
    ]


def _join(session: NeutronSession, call: NetworkCall) -> list[VIF]:
    return _regroup(session, call, lambda groups: list(dict.fromkeys([*groups, *call.security_groups])))


def _leave(session: NeutronSession, call: NetworkCall) -> list[VIF]:
    return _regroup(session, call, lambda groups: [group for group in groups if group not in call.security_groups])


def _regroup(session: NeutronSession, call: NetworkCall, change: Callable[[list[str]], list[str]]) -> list[VIF]:
    """Change the groups of each port. Repeats if another client changes a port at the same time."""
    for attempt in range(REGROUP_ATTEMPTS):
        try:
            for port in _ports_of(session, call):
                groups = change(port["security_groups"])
                if port.get("port_security_enabled", True) and groups != port["security_groups"]:
                    session.update("port", port["id"], {"security_groups": groups}, port.get("revision_number"))
            break
        except NeutronRefusal as error:
            if error.status != 412 or attempt == REGROUP_ATTEMPTS - 1:
                raise
    return _look(session, call)


def _ports_of(session: NeutronSession, call: NetworkCall) -> list[Body]:
    return session.list("ports", device_id=call.instance_uuid)


def _binding(call: NetworkCall, port: Body | None = None) -> Body:
    """Return the values that bind a port to the host. ``port``: an existing one, which may have a device there."""
    binding: Body = {"binding:host_id": call.host, "device_owner": OWNER + (call.zone or "nova")}
    alias = f"{OF_PORT}{port['id']}" if port else None
    for device in call.devices:
        if port and device.alias == alias:
            binding[PROFILE] = (port.get(PROFILE) or {}) | {
                "pci_slot": device.address,
                "pci_vendor_info": f"{device.vendor_id}:{device.product_id}",
                "physical_network": device.physical_network,
            }
    return binding


def _port_for(
    session: NeutronSession, call: NetworkCall, request: NetworkRequest, key: str, ports: Mapping[str, Body]
) -> Body:
    """Return the port for a request: an existing one, the user's one, or a new one."""
    if request.port_id:
        return _assign(session, call, request.port_id)
    for attempt in range(MAC_ATTEMPTS):
        mac_address = mac_of(call.instance_uuid, key, attempt)
        port = ports.get(mac_address)
        if port is not None:
            return port if port["binding:host_id"] == call.host else _bind(session, call, port)
        try:
            return session.create("port", _new_port(call, request, mac_address))
        except NeutronRefusal as error:
            if error.kind != "MacAddressInUse":
                raise _translated(error, request) from error
        colliding = session.list("ports", network_id=request.network_id, mac_address=mac_address)
        own = [port for port in colliding if port["device_id"] == call.instance_uuid]
        if own:
            return own[0]
    raise exceptions.NetworkServiceUnavailable()


def _bind(session: NeutronSession, call: NetworkCall, port: Body) -> Body:
    return session.update("port", port["id"], _binding(call, port))


def _assign(session: NeutronSession, call: NetworkCall, port_id: str) -> Body:
    """Assign a user's port to the instance. Of two servers that request it at the same time, one gets it."""
    context = get_admin_context()  # RESOLVE has checked the owner
    port = _free_port(session, context, port_id, call.instance_uuid)
    values = {"device_id": call.instance_uuid, **_binding(call, port)}
    try:
        return session.update("port", port_id, values, port.get("revision_number"))
    except NeutronRefusal as error:
        if error.status != 412:
            raise
    _free_port(session, context, port_id, call.instance_uuid)
    return session.update("port", port_id, values)


def _new_port(call: NetworkCall, request: NetworkRequest, mac_address: str) -> Body:
    port = {
        "network_id": request.network_id,
        "project_id": call.project_id,
        "admin_state_up": True,
        "device_id": call.instance_uuid,
        "mac_address": mac_address,
        **_binding(call),
    }
    if request.fixed_ip:
        port["fixed_ips"] = [{"ip_address": request.fixed_ip}]
    if call.security_groups:
        port["security_groups"] = call.security_groups
    return port


def mac_of(instance_uuid: str, key: str, attempt: int = 0) -> str:
    """Return the MAC address of an attempt to make a port. ``key``: its position, or the key of the ATTACH."""
    digest = hashlib.sha256(f"{instance_uuid}/{key}/{attempt}".encode()).hexdigest()
    return "fa:16:3e:" + ":".join(digest[at : at + 2] for at in (0, 2, 4))


def _translated(error: NeutronRefusal, request: NetworkRequest) -> exceptions.NovaLiteException:
    network_id = request.network_id
    known: dict[str, exceptions.NovaLiteException] = {
        "IpAddressGenerationFailure": exceptions.NoMoreFixedIps(network_id=network_id),
        "OverQuota": exceptions.PortLimitExceeded(f"Maximum number of ports exceeded: {error.message}"),
        "IpAddressInUse": exceptions.FixedIpInUse(address=request.fixed_ip, network_id=network_id),
        "IpAddressAlreadyAllocated": exceptions.FixedIpInUse(address=request.fixed_ip, network_id=network_id),
        "InvalidIpForNetwork": exceptions.FixedIpInvalid(address=request.fixed_ip, network_id=network_id),
        "InvalidIpForSubnet": exceptions.FixedIpInvalid(address=request.fixed_ip, network_id=network_id),
        "NetworkNotFound": exceptions.NetworkUnavailable(network_id=network_id),
    }
    return known.get(error.kind) or exceptions.InvalidInput(reason=error.message)


def _release(session: NeutronSession, port: Body, of_user: bool) -> None:
    """Delete the port, or make a user's port free again."""
    if not of_user:
        session.delete("port", port["id"])
        return
    free: Body = {"device_id": "", "device_owner": "", "binding:host_id": ""}
    if profile := port.get(PROFILE):
        free[PROFILE] = {name: value for name, value in profile.items() if name not in _OF_DEVICE}
    try:
        session.update("port", port["id"], free)
    except NeutronRefusal as error:
        if error.status != 404:
            raise


# --- conversion to our objects


class _InstancePort(msgspec.Struct):
    """Neutron's port together with our own data of the interface."""

    position: int
    tag: str | None
    kept: bool
    port: Body
    state: str | None = None


def _connected(session: NeutronSession, call: NetworkCall, interfaces: list[_InstancePort]) -> list[VIF]:
    """Return the interfaces. Raises `PortBindingFailed` for a port that no agent of its host can connect."""
    for interface in interfaces:
        vif_type = interface.port.get("binding:vif_type") or UNBOUND
        if vif_type in (BINDING_FAILED, UNBOUND):
            raise exceptions.PortBindingFailed(port_id=interface.port["id"], host=call.host, vif_type=vif_type)
    return _vifs(session, interfaces)


def _vifs(session: NeutronSession, interfaces: list[_InstancePort]) -> list[VIF]:
    if not interfaces:
        return []
    ports = [interface.port for interface in interfaces]
    networks = _by_id(session, "networks", (port["network_id"] for port in ports))
    subnets = _by_id(session, "subnets", (address["subnet_id"] for port in ports for address in port["fixed_ips"]))
    group_ids = {group for port in ports for group in port.get("security_groups", [])}
    groups = _by_id(session, "security_groups", group_ids, fields=["id", "name"])
    ordered = sorted(interfaces, key=lambda interface: interface.position)
    return [_vif(interface, networks[interface.port["network_id"]], subnets, groups) for interface in ordered]


def _by_id(session: NeutronSession, collection: str, ids: Iterable[str], **query: Any) -> dict[str, Body]:
    unique = sorted(set(ids))
    return {item["id"]: item for item in session.list(collection, id=unique, **query)} if unique else {}


def _vif(interface: _InstancePort, network: Body, subnets: Mapping[str, Body], groups: Mapping[str, Body]) -> VIF:
    """Return the interface. Its IPv4 addresses come first, as guests and clients expect."""
    port = interface.port
    addresses = sorted(port["fixed_ips"], key=lambda address: version_of(address["ip_address"]))
    if not addresses:
        raise exceptions.PortRequiresFixedIP(port_id=port["id"])
    first, *more = (_fixed_ip(address, subnets) for address in addresses)
    known_groups = [groups[id] for id in port.get("security_groups", []) if id in groups]
    described = _network(network, subnets[first.subnet_id])
    described.address_mode = first.address_mode
    details = port.get("binding:vif_details") or {}
    described.physical_network = (port.get(PROFILE) or {}).get("physical_network")
    described.vlan = int(details["vlan"]) if details.get("vlan") else None
    return VIF(
        id=port["id"],
        mac_address=port["mac_address"],
        address=first.address,
        version=version_of(first.address),
        network=described,
        tag=interface.tag,
        position=interface.position,
        state=interface.state,
        vif_type=port.get("binding:vif_type") or UNBOUND,
        vif_details=details,
        vnic_type=port.get("binding:vnic_type") or NORMAL,
        subnet_id=first.subnet_id,
        more=more,
        kept=interface.kept,
        active=port["status"] == "ACTIVE",
        security_groups=[group["name"] for group in known_groups],
        security_group_ids=[group["id"] for group in known_groups],
    )


def _fixed_ip(address: Mapping[str, str], subnets: Mapping[str, Body]) -> FixedIp:
    subnet = subnets[address["subnet_id"]]
    return FixedIp(
        address=address["ip_address"],
        subnet_id=subnet["id"],
        cidr=subnet["cidr"],
        gateway=subnet["gateway_ip"],
        dns=subnet["dns_nameservers"],
        address_mode=_address_mode(subnet),
    )


def _address_mode(subnet: Body) -> str:
    """Return how guests get addresses of the subnet."""
    if version_of(subnet["cidr"].partition("/")[0]) == 4:
        return AddressMode.DHCP if subnet.get("enable_dhcp") else AddressMode.STATIC
    return str(subnet.get("ipv6_address_mode") or AddressMode.STATIC)
