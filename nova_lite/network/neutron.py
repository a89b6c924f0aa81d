"""Networks of Neutron: it has the networks, ports, addresses and security groups, and its agents connect them.

Neutron is asked as a user of its own (``[neutron]``), who has to be an admin there: what a server's user may have is
checked here, by whose it is. What it says of an instance's ports is kept with the instance, so that reading one asks
nobody.

No port twice: a port that is made gets a MAC address that follows from its instance and place, which Neutron gives once
in a network. So a request that is repeated, or carried out after its answer was not waited for any more, finds or meets
the first one's port. None left over: each has its instance's uuid as its device from the first moment, by which
DEALLOCATE finds all of them.
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
from nova_lite.network.driver import AUTO, NONE, NetworkBackend, NetworkCall, NetworkStore, Resolution, Verb
from nova_lite.network.neutron_client import Conversation, NeutronClient, NeutronRefusal
from nova_lite.objects import VIF, FixedIp, Network, NetworkRequest
from nova_lite.objects.instance import version_of

LOG = logging.getLogger(__name__)

#: How many MAC addresses are tried for one port; another one's has the same by chance, once in 16 million.
MAC_ATTEMPTS = 4

#: How often a port's groups are read and changed, where somebody else changes the port in between.
REGROUP_ATTEMPTS = 4

#: vif types of ports that nobody can connect.
UNBOUND, BINDING_FAILED = "unbound", "binding_failed"

OWNER = "compute:"

Body = dict[str, Any]


class NeutronNetworks(NetworkBackend):
    remote = True
    keeps_ports = True

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)
        self._client = NeutronClient(conf)
        self._verbs: dict[Verb, Callable[[Conversation, NetworkCall], Any]] = {
            Verb.RESOLVE: _resolve,
            Verb.ALLOCATE: _allocate,
            Verb.DEALLOCATE: _deallocate,
            Verb.ATTACH: _attach,
            Verb.DETACH: _detach,
            Verb.BIND: _bind_all,
            Verb.LOOK: _look,
            Verb.JOIN: _join,
            Verb.LEAVE: _leave,
            Verb.NETWORKS: _visible_networks,
        }

    def call(self, call: NetworkCall) -> Any:
        """`Resolution` for RESOLVE, networks for NETWORKS, else what the instance has then (ATTACH: the new one)."""
        neutron = self._client.within(self.conf.network.call_timeout, call.begun)
        try:
            return self._verbs[call.verb](neutron, call)
        except NeutronRefusal as error:
            LOG.error("Neutron refuses %s for %s: %s", call.verb, call.instance_uuid or "a new server", error.message)
            raise exceptions.InvalidInput(reason=error.message) from error

    # --- records

    def resolve(
        self, store: NetworkStore, context: RequestContext, networks: str | list[NetworkRequest], answer: Any = None
    ) -> list[NetworkRequest]:
        assert isinstance(answer, Resolution)
        return answer.requests

    def allocate(
        self, store: NetworkStore, instance_uuid: str, requests: list[NetworkRequest], answer: Any = None
    ) -> list[VIF]:
        vifs: list[VIF] = answer
        store.record(instance_uuid, vifs)
        return vifs

    def vifs(self, store: NetworkStore, instance_uuid: str) -> list[VIF]:
        return store.recorded(instance_uuid)

    def deallocate(self, store: NetworkStore, instance_uuid: str) -> None:
        store.record(instance_uuid, None)


# --- what a user asks for


def _resolve(neutron: Conversation, call: NetworkCall) -> Resolution:
    groups = [_group(neutron, call.context.project_id or "", each) for each in call.security_groups]
    return Resolution(
        requests=_requests(neutron, call.context, call.networks),
        security_groups=[group["id"] for group in groups],
        group_names=[group["name"] for group in groups],
    )


def _requests(
    neutron: Conversation, context: RequestContext, networks: str | list[NetworkRequest]
) -> list[NetworkRequest]:
    if networks == NONE:
        return []
    if networks == AUTO:
        network = _only(neutron, context)
        return [] if network is None else [NetworkRequest(network_id=network["id"])]
    if isinstance(networks, str):
        raise exceptions.InvalidInput(reason=f"networks is {networks!r}, and not auto, none or a list")
    return [_request(neutron, context, each) for each in networks]


def _request(neutron: Conversation, context: RequestContext, request: NetworkRequest) -> NetworkRequest:
    if request.port_id:
        port = _free_port(neutron, context, request.port_id, "")
        return NetworkRequest(network_id=port["network_id"], port_id=port["id"], tag=request.tag)
    if not request.network_id:
        only = _only(neutron, context)
        if only is None:
            raise exceptions.InvalidInput(reason="there is no network to take an address from")
        return msgspec.structs.replace(request, network_id=only["id"])
    network = _usable_network(neutron, context, request.network_id)
    if not network["subnets"]:
        raise exceptions.InvalidInput(
            reason=f"Network {network['id']} requires a subnet in order to boot instances on."
        )
    if request.fixed_ip:
        _check_address(neutron, network["id"], request.fixed_ip)
    return msgspec.structs.replace(request, network_id=network["id"])


def _only(neutron: Conversation, context: RequestContext) -> Body | None:
    """The one network that there is to choose from; raises `NetworkAmbiguous`."""
    found = [each for each in _networks(neutron, context) if not each["router:external"] or each["shared"]]
    if len(found) > 1:
        raise exceptions.NetworkAmbiguous()
    return found[0] if found else None


def _networks(neutron: Conversation, context: RequestContext) -> list[Body]:
    """The project's own and those that all share; with those that it was given a share of."""
    project_id = context.project_id or ""
    found = neutron.list("networks", project_id=project_id) + neutron.list("networks", shared="true")
    given = _given(neutron, project_id)
    found += neutron.list("networks", id=given) if given else []
    return list({each["id"]: each for each in found}.values())


def _visible_networks(neutron: Conversation, call: NetworkCall) -> list[Network]:
    """Those with a range of addresses, which the first of their subnets is taken for."""
    found = _networks(neutron, call.context)
    subnets = _by_id(neutron, "subnets", (each["subnets"][0] for each in found if each["subnets"]))
    return [
        _network(each, subnets[each["subnets"][0]])
        for each in sorted(found, key=lambda each: str(each["name"]))
        if each["subnets"] and each["subnets"][0] in subnets
    ]


def _network(network: Body, subnet: Body) -> Network:
    return Network(
        id=network["id"],
        name=network["name"],
        cidr=subnet["cidr"],
        gateway=subnet["gateway_ip"],
        dns=subnet["dns_nameservers"],
        bridge="brq" + network["id"][:11],
        mtu=int(network.get("mtu") or 1500),
        project_id=network["project_id"],
    )


def _given(neutron: Conversation, project_id: str) -> list[str]:
    policies = neutron.list(
        "rbac_policies", object_type="network", action="access_as_shared", target_tenant=[project_id, "*"]
    )
    return [each["object_id"] for each in policies]


def _usable_network(neutron: Conversation, context: RequestContext, network_id: str) -> Body:
    """Raises `NetworkUnavailable` for one that is not there for the project."""
    network = neutron.get("network", network_id) if uuidutils.is_uuid_like(network_id) else None
    if network is None:
        raise exceptions.NetworkUnavailable(network_id=network_id[:64])
    own = network["project_id"] == context.project_id or network["shared"] or context.is_admin
    if not own and network["id"] not in _given(neutron, context.project_id or ""):
        if network["router:external"]:
            raise exceptions.ExternalNetworkForbidden(network_id=network_id)
        raise exceptions.NetworkUnavailable(network_id=network_id)
    if network["router:external"] and not network["shared"] and not context.is_admin:
        raise exceptions.ExternalNetworkForbidden(network_id=network_id)
    return network


def _check_address(neutron: Conversation, network_id: str, address: str) -> None:
    """Raises `FixedIpInUse`; whether the network has such an address, Neutron says when it makes the port."""
    if neutron.list("ports", network_id=network_id, fixed_ips=f"ip_address={address}", fields="id"):
        raise exceptions.FixedIpInUse(address=address, network_id=network_id)


def _free_port(neutron: Conversation, context: RequestContext, port_id: str, instance_uuid: str) -> Body:
    """A port of the user's that is nobody's, or the instance's already."""
    port = neutron.get("port", port_id) if uuidutils.is_uuid_like(port_id) else None
    if port is None or (port["project_id"] != context.project_id and not context.is_admin):
        raise exceptions.PortUnavailable(port_id=port_id[:64])
    if port["device_id"] not in ("", instance_uuid):
        raise exceptions.PortInUse(port_id=port_id)
    if not port["fixed_ips"]:
        raise exceptions.PortRequiresFixedIP(port_id=port_id)
    return port


def _group(neutron: Conversation, project_id: str, reference: str) -> Body:
    """By its name or id, among the project's."""
    groups = neutron.list("security_groups", project_id=project_id, fields=["id", "name"])
    found = [each for each in groups if each["id"] == reference] or [
        each for each in groups if each["name"] == reference
    ]
    if not found:
        raise exceptions.SecurityGroupUnavailable(name=reference)
    if len(found) > 1:
        raise exceptions.SecurityGroupAmbiguous(name=reference)
    return found[0]


# --- an instance's ports


def _allocate(neutron: Conversation, call: NetworkCall) -> list[VIF]:
    """One that has interfaces already gets just those, at the host where it is to be now."""
    assert not isinstance(call.networks, str)
    if call.vifs:
        return _bind_all(neutron, call)
    there = {port["mac_address"]: port for port in _ports_of(neutron, call)}
    vifs = []
    for position, request in enumerate(call.networks):
        port = _port_for(neutron, call, request, str(position), there)
        vifs.append(_Told(position, request.tag, bool(request.port_id), port))
    return _connected(neutron, call, vifs)


def _attach(neutron: Conversation, call: NetworkCall) -> VIF:
    """``networks``: as RESOLVE has it."""
    assert not isinstance(call.networks, str)
    (request,) = call.networks
    there = {port["mac_address"]: port for port in _ports_of(neutron, call)}
    port = _port_for(neutron, call, request, call.key, there)
    try:
        (vif,) = _connected(neutron, call, [_Told(0, request.tag, bool(request.port_id), port)])
    except exceptions.PortBindingFailed:
        _let_go(neutron, port["id"], bool(request.port_id))
        raise
    return vif


def _deallocate(neutron: Conversation, call: NetworkCall) -> None:
    """All that have the instance as their device; those that a user brought are only let go."""
    assert not isinstance(call.networks, str)
    kept = {vif.id for vif in call.vifs if vif.kept} | {each.port_id for each in call.networks if each.port_id}
    for port in _ports_of(neutron, call):
        _let_go(neutron, port["id"], port["id"] in kept)


def _detach(neutron: Conversation, call: NetworkCall) -> None:
    for vif in call.vifs:
        port = neutron.get("port", vif.id)
        if port is not None and port["device_id"] == call.instance_uuid:
            _let_go(neutron, vif.id, vif.kept)
    if not call.key:
        return
    assert not isinstance(call.networks, str)
    brought = {request.port_id for request in call.networks}
    made = {mac_of(call.instance_uuid, call.key, attempt) for attempt in range(MAC_ATTEMPTS)}
    for port in _ports_of(neutron, call):
        if port["id"] in brought or (port["mac_address"] in made and not brought):
            _let_go(neutron, port["id"], bool(brought))


def _look(neutron: Conversation, call: NetworkCall) -> list[VIF]:
    """Of what was known; ports that are gone are left out."""
    there = {port["id"]: port for port in _ports_of(neutron, call)}
    known = [_Told(vif.position, vif.tag, vif.kept, there[vif.id], vif.state) for vif in call.vifs if vif.id in there]
    return _vifs(neutron, known)


def _bind_all(neutron: Conversation, call: NetworkCall) -> list[VIF]:
    there = {port["id"]: port for port in _ports_of(neutron, call)}
    told = [_Told(vif.position, vif.tag, vif.kept, there[vif.id], vif.state) for vif in call.vifs if vif.id in there]
    for each in told:
        if each.port.get("binding:host_id") != call.host or each.port["binding:vif_type"] in (BINDING_FAILED, UNBOUND):
            each.port = neutron.update("port", each.port["id"], _binding(call))
    return _connected(neutron, call, told)


def _join(neutron: Conversation, call: NetworkCall) -> list[VIF]:
    return _regroup(neutron, call, lambda known: list(dict.fromkeys([*known, *call.security_groups])))


def _leave(neutron: Conversation, call: NetworkCall) -> list[VIF]:
    return _regroup(neutron, call, lambda known: [each for each in known if each not in call.security_groups])


def _regroup(neutron: Conversation, call: NetworkCall, change: Callable[[list[str]], list[str]]) -> list[VIF]:
    """Each port has groups of its own, which somebody else may change at the same time."""
    for attempt in range(REGROUP_ATTEMPTS):
        try:
            for port in _ports_of(neutron, call):
                wanted = change(port["security_groups"])
                if port.get("port_security_enabled", True) and wanted != port["security_groups"]:
                    neutron.update("port", port["id"], {"security_groups": wanted}, port.get("revision_number"))
            break
        except NeutronRefusal as error:
            if error.status != 412 or attempt == REGROUP_ATTEMPTS - 1:
                raise
    return _look(neutron, call)


def _ports_of(neutron: Conversation, call: NetworkCall) -> list[Body]:
    return neutron.list("ports", device_id=call.instance_uuid)


def _binding(call: NetworkCall) -> Body:
    return {"binding:host_id": call.host, "device_owner": OWNER + (call.zone or "nova")}


def _port_for(
    neutron: Conversation, call: NetworkCall, request: NetworkRequest, key: str, there: Mapping[str, Body]
) -> Body:
    """The port of a request, by now: found, taken or made."""
    if request.port_id:
        return _taken(neutron, call, request.port_id)
    for attempt in range(MAC_ATTEMPTS):
        mac_address = mac_of(call.instance_uuid, key, attempt)
        found = there.get(mac_address)
        if found is not None:
            return found if found["binding:host_id"] == call.host else _bound(neutron, call, found)
        try:
            return neutron.create("port", _new_port(call, request, mac_address))
        except NeutronRefusal as error:
            if error.kind != "MacAddressInUse":
                raise _sense_of(error, request) from error
        met = neutron.list("ports", network_id=request.network_id, mac_address=mac_address)
        mine = [port for port in met if port["device_id"] == call.instance_uuid]
        if mine:
            return mine[0]
    raise exceptions.NetworkServiceUnavailable()


def _bound(neutron: Conversation, call: NetworkCall, port: Body) -> Body:
    return neutron.update("port", port["id"], _binding(call))


def _taken(neutron: Conversation, call: NetworkCall, port_id: str) -> Body:
    """A user's port; of two servers that want it at the same time one gets it."""
    context = get_admin_context()  # whose it is was asked when it was accepted
    port = _free_port(neutron, context, port_id, call.instance_uuid)
    values = {"device_id": call.instance_uuid, **_binding(call)}
    try:
        return neutron.update("port", port_id, values, port.get("revision_number"))
    except NeutronRefusal as error:
        if error.status != 412:
            raise
    _free_port(neutron, context, port_id, call.instance_uuid)
    return neutron.update("port", port_id, values)


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
    """The same for each try to make the same port. ``key``: its place, or the request that it is attached by."""
    digest = hashlib.sha256(f"{instance_uuid}/{key}/{attempt}".encode()).hexdigest()
    return "fa:16:3e:" + ":".join(digest[at : at + 2] for at in (0, 2, 4))


def _sense_of(error: NeutronRefusal, request: NetworkRequest) -> exceptions.NovaLiteException:
    network_id = request.network_id
    known: dict[str, exceptions.NovaLiteException] = {
        "IpAddressGenerationFailure": exceptions.NoMoreFixedIps(network_id=network_id),
        "OverQuota": exceptions.PortLimitExceeded(),
        "IpAddressInUse": exceptions.FixedIpInUse(address=request.fixed_ip, network_id=network_id),
        "IpAddressAlreadyAllocated": exceptions.FixedIpInUse(address=request.fixed_ip, network_id=network_id),
        "InvalidIpForNetwork": exceptions.FixedIpInvalid(address=request.fixed_ip, network_id=network_id),
        "InvalidIpForSubnet": exceptions.FixedIpInvalid(address=request.fixed_ip, network_id=network_id),
        "NetworkNotFound": exceptions.NetworkUnavailable(network_id=network_id),
    }
    return known.get(error.kind) or exceptions.InvalidInput(reason=error.message)


def _let_go(neutron: Conversation, port_id: str, kept: bool) -> None:
    if not kept:
        neutron.delete("port", port_id)
        return
    try:
        neutron.update("port", port_id, {"device_id": "", "device_owner": "", "binding:host_id": ""})
    except NeutronRefusal as error:
        if error.status != 404:
            raise


# --- in our words


class _Told(msgspec.Struct):
    """A port, and what only we know of it."""

    position: int
    tag: str | None
    kept: bool
    port: Body
    state: str | None = None


def _connected(neutron: Conversation, call: NetworkCall, told: list[_Told]) -> list[VIF]:
    """Raises `PortBindingFailed` for what no agent of its host can connect."""
    for each in told:
        vif_type = each.port.get("binding:vif_type") or UNBOUND
        if vif_type in (BINDING_FAILED, UNBOUND):
            raise exceptions.PortBindingFailed(port_id=each.port["id"], host=call.host, vif_type=vif_type)
    return _vifs(neutron, told)


def _vifs(neutron: Conversation, told: list[_Told]) -> list[VIF]:
    if not told:
        return []
    networks = _by_id(neutron, "networks", (each.port["network_id"] for each in told))
    addresses = [address for each in told for address in each.port["fixed_ips"]]
    subnets = _by_id(neutron, "subnets", (each["subnet_id"] for each in addresses))
    ids = {group for each in told for group in each.port.get("security_groups", [])}
    groups = _by_id(neutron, "security_groups", ids, fields=["id", "name"])
    ordered = sorted(told, key=lambda each: each.position)
    return [_vif(each, networks[each.port["network_id"]], subnets, groups) for each in ordered]


def _by_id(neutron: Conversation, what: str, ids: Iterable[str], **query: Any) -> dict[str, Body]:
    wanted = sorted(set(ids))
    return {each["id"]: each for each in neutron.list(what, id=wanted, **query)} if wanted else {}


def _vif(told: _Told, network: Body, subnets: Mapping[str, Body], groups: Mapping[str, Body]) -> VIF:
    """Of several addresses an IPv4 one comes first, as guests and clients expect."""
    port = told.port
    addresses = sorted(port["fixed_ips"], key=lambda each: version_of(each["ip_address"]))
    if not addresses:
        raise exceptions.PortRequiresFixedIP(port_id=port["id"])
    fixed = [_fixed_ip(each, subnets) for each in addresses]
    first, *more = fixed
    details = port.get("binding:vif_details") or {}
    known = [groups[each] for each in port.get("security_groups", []) if each in groups]
    bridged = _network(network, subnets[first.subnet_id])
    bridged.bridge = str(details.get("bridge_name") or bridged.bridge)
    return VIF(
        id=port["id"],
        mac_address=port["mac_address"],
        address=first.address,
        version=version_of(first.address),
        network=bridged,
        tag=told.tag,
        position=told.position,
        state=told.state,
        vif_type=port.get("binding:vif_type") or UNBOUND,
        vif_details=details,
        subnet_id=first.subnet_id,
        more=more,
        kept=told.kept,
        active=port["status"] == "ACTIVE",
        security_groups=[group["name"] for group in known],
        security_group_ids=[group["id"] for group in known],
    )


def _fixed_ip(address: Mapping[str, str], subnets: Mapping[str, Body]) -> FixedIp:
    subnet = subnets[address["subnet_id"]]
    return FixedIp(
        address=address["ip_address"],
        subnet_id=subnet["id"],
        cidr=subnet["cidr"],
        gateway=subnet["gateway_ip"],
        dns=subnet["dns_nameservers"],
    )
