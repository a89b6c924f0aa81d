"""Backend ``local``: networks and ports are rows of the conductor's database. Hosts have a bridge per network."""

from __future__ import annotations

import contextlib
import random
from typing import Any

from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.network.address_pool import AddressPool
from nova_lite.network.driver import AUTO, NONE, Addresses, NetworkBackend, NetworkStore
from nova_lite.objects import VIF, Network, NetworkRequest, ipv6
from nova_lite.objects.instance import version_of
from nova_lite.objects.pci import NORMAL, PORT_DEVICES

#: Random addresses that are looked up together. If all are in use, the pool is nearly full.
SAMPLE = 16

_KINDS = " or ".join(PORT_DEVICES)

#: Collisions with addresses and MAC addresses of others before the pool counts as empty.
MAX_COLLISIONS = 64


class LocalNetworks(NetworkBackend):
    """The built-in network service."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)
        self._random = random.SystemRandom()

    def resolve(
        self, store: NetworkStore, context: RequestContext, networks: str | list[NetworkRequest], result: Any = None
    ) -> list[NetworkRequest]:
        if networks == NONE:
            return []
        if networks == AUTO:
            network = self._default(store, context)
            return [] if network is None else [NetworkRequest(network_id=network.id)]
        if isinstance(networks, str):
            raise exceptions.InvalidInput(reason=f"networks is {networks!r}, and not auto, none or a list")
        return [self._resolve_one(store, context, request) for request in networks]

    def _default(self, store: NetworkStore, context: RequestContext) -> Network | None:
        """Return the project's default network, else the shared default, else the only usable network.

        Raises `NetworkAmbiguous`.
        """
        usable = [
            network
            for network in store.usable(context.project_id)
            if network.physical_network is None and store.links(network)
        ]
        own = [network for network in usable if network.is_default and network.project_id is not None]
        shared = [network for network in usable if network.is_default]
        choice = own or shared or usable
        if len(choice) > 1:
            raise exceptions.NetworkAmbiguous()
        return choice[0] if choice else None

    def _resolve_one(self, store: NetworkStore, context: RequestContext, request: NetworkRequest) -> NetworkRequest:
        if request.port_id:
            return self._with_port(store, context, request)
        network = self._named(store, context, request)
        if not store.links(network):
            raise exceptions.NetworkRequiresSubnet(network_id=network.id)
        check_device(network.id, network.physical_network, NORMAL)
        address = None
        if request.fixed_ip:
            if not context.is_admin and network.project_id != context.project_id:
                raise exceptions.FixedIpForbidden(network_id=network.id)
            address = self._check_fixed_ip(store, network, request.fixed_ip)
        return NetworkRequest(network_id=network.id, fixed_ip=address, tag=request.tag)

    @staticmethod
    def _with_port(store: NetworkStore, context: RequestContext, request: NetworkRequest) -> NetworkRequest:
        port = store.port(request.port_id or "")
        # A port of another project is reported as missing, and a port that was made with its server as in use.
        if port is None or port.owner != context.project_id:
            raise exceptions.PortUnavailable(port_id=request.port_id)
        if port.project_id is None or port.instance_uuid is not None or port.is_routers or port.device_id:
            raise exceptions.PortInUse(port_id=request.port_id)
        if not port.has_address:
            raise exceptions.PortRequiresFixedIP(port_id=request.port_id)
        return NetworkRequest(
            network_id=port.network_id,
            port_id=request.port_id,
            tag=request.tag,
            vnic_type=port.vnic_type,
            physical_network=port.physical_network,
        )

    def _named(self, store: NetworkStore, context: RequestContext, request: NetworkRequest) -> Network:
        if not request.network_id:
            network = self._default(store, context)
            if network is None:
                raise exceptions.InvalidInput(reason="there is no network to take an address from")
            return network
        for network in store.networks([request.network_id]):
            if network.parent_id is not None:
                break
            if context.is_admin or network.project_id in (None, context.project_id):
                return network
            if store.is_shared(network.id, context.project_id):
                return network
        if store.is_external(request.network_id):
            raise exceptions.ExternalNetworkForbidden(network_id=request.network_id)
        raise exceptions.NetworkUnavailable(network_id=request.network_id)

    @staticmethod
    def _check_fixed_ip(store: NetworkStore, network: Network, text: str) -> str:
        for link in store.links(network):
            if (address := _chosen(link, text)) is None:
                continue
            if store.taken(link.id, [address], version_of(address)):
                raise exceptions.FixedIpInUse(address=text, network_id=network.id)
            return address
        raise exceptions.FixedIpInvalid(address=text, network_id=network.id)

    def reserve(self, store: NetworkStore, instance_uuid: str, requests: list[NetworkRequest]) -> None:
        for position, request in enumerate(requests):
            if request.port_id and not store.bind_port(request.port_id, instance_uuid, position, request.tag):
                raise exceptions.PortInUse(port_id=request.port_id)

    def allocate(
        self, store: NetworkStore, instance_uuid: str, requests: list[NetworkRequest], result: Any = None
    ) -> list[VIF]:
        present = store.vifs(instance_uuid)
        positions = {vif.position for vif in present}
        missing = [(position, request) for position, request in enumerate(requests) if position not in positions]
        if not missing:
            return present
        networks = store.locked([request.network_id or "" for _, request in missing])
        added = []
        for position, request in missing:
            network = networks.get(request.network_id or "")
            if network is None:
                raise exceptions.NetworkUnavailable(network_id=request.network_id)
            links = store.links(network, instance_uuid)
            if not links:
                raise exceptions.NetworkRequiresSubnet(network_id=network.id)
            added.append(self._connect(store, instance_uuid, position, links, request))
        return sorted([*present, *added], key=lambda vif: vif.position)

    def _connect(
        self, store: NetworkStore, instance_uuid: str, position: int, links: list[Network], request: NetworkRequest
    ) -> VIF:
        if not request.port_id:
            return self._add_port_on(store, instance_uuid, position, links, request)
        if not store.bind_port(request.port_id, instance_uuid, position, request.tag):
            raise exceptions.PortInUse(port_id=request.port_id)
        return next(vif for vif in store.vifs(instance_uuid) if vif.id == request.port_id)

    def attach(self, store: NetworkStore, context: RequestContext, instance_uuid: str, request: NetworkRequest) -> VIF:
        if self.remote:
            return super().attach(store, context, instance_uuid, request)
        resolved = self._resolve_one(store, context, request)
        network = store.locked([resolved.network_id or ""]).get(resolved.network_id or "")
        links = [] if network is None else store.links(network, instance_uuid)
        if not links:
            raise exceptions.NetworkUnavailable(network_id=resolved.network_id)
        position = 1 + max((vif.position for vif in store.vifs(instance_uuid)), default=-1)
        return self._connect(store, instance_uuid, position, links, resolved)

    def _add_port_on(
        self, store: NetworkStore, instance_uuid: str, position: int, links: list[Network], request: NetworkRequest
    ) -> VIF:
        """Add an interface on the network or segment of the requested address, else on the first one with room."""
        if request.fixed_ip:
            chosen = [link for link in links if _chosen(link, request.fixed_ip)]
            if not chosen:
                raise exceptions.FixedIpInvalid(address=request.fixed_ip, network_id=links[0].public_id)
            links = chosen
        for link in links[:-1]:
            with contextlib.suppress(exceptions.NoMoreFixedIps):
                return self._add_port(store, instance_uuid, position, link, request)
        return self._add_port(store, instance_uuid, position, links[-1], request)

    def _add_port(
        self, store: NetworkStore, instance_uuid: str, position: int, network: Network, request: NetworkRequest
    ) -> VIF:
        """Choose addresses and store them. Choose again if another transaction has stored the same ones first."""
        wanted = {version_of(request.fixed_ip): request.fixed_ip} if request.fixed_ip else {}
        for _ in range(MAX_COLLISIONS):
            address = wanted.get(4) or free_address(store, network, self._random)
            mac_address = random_mac_address(self._random)
            address6 = wanted.get(6) or free_address6(store, network, mac_address, self._random)
            addresses = Addresses(address, mac_address, address6)
            port_id = store.add_port(instance_uuid, network.id, position, addresses, request.tag)
            if port_id is not None:
                return VIF(
                    id=port_id,
                    mac_address=mac_address,
                    address=address,
                    network=network,
                    version=version_of(address),
                    more=ipv6.further_addresses(network, address6),
                    tag=request.tag,
                    port_security_enabled=network.port_security_enabled,
                    unguarded=not network.port_security_enabled,
                    security_groups=None if network.port_security_enabled else [],
                    position=position,
                )
            for version, text in wanted.items():
                if store.taken(network.id, [text], version):
                    raise exceptions.FixedIpInUse(address=text, network_id=network.public_id)
        raise exceptions.NoMoreFixedIps(network_id=network.public_id)

    def deallocate(self, store: NetworkStore, instance_uuid: str) -> None:
        store.remove_ports(instance_uuid)


def check_device(network_id: str, physical_network: str | None, vnic_type: str) -> None:
    """Raise `InvalidInput` unless ports of this kind reach the network: hosts bridge only networks of their own."""
    if (vnic_type == NORMAL) == (physical_network is None):
        return
    if vnic_type == NORMAL:
        why = f"it is the physical network {physical_network}, which only ports with binding:vnic_type {_KINDS} reach"
    else:
        why = f"it has no provider:physical_network, in which a host could have a device for vnic_type {vnic_type}"
    raise exceptions.InvalidInput(reason=f"network {network_id} cannot have this port: {why}")


def _chosen(link: Network, text: str) -> str | None:
    """Return a requested address of a network or segment, in its usual form; None if it is no address there.

    Interfaces derive their IPv6 addresses on a subnet with SLAAC, so no user chooses one.
    """
    if version_of(text) == 4:
        found = AddressPool(link).parse(text)
    elif not link.cidr6 or ipv6.is_derived(link.subnet6):
        found = None
    else:
        found = AddressPool(ipv6.as_subnet(link)).parse(text)
    return None if found is None else str(found)


def free_address6(store: NetworkStore, network: Network, mac_address: str, rng: random.Random) -> str | None:
    """Return the derived or a random free IPv6 address, None without an IPv6 subnet. Raises `NoMoreFixedIps`."""
    if not network.cidr6:
        return None
    return ipv6.address_on(network, mac_address) or free_address(store, network, rng, version=6)


def free_address(store: NetworkStore, network: Network, rng: random.Random, version: int = 4) -> str:
    """Return a random free address. Raises `NoMoreFixedIps`.

    Looks up a few random addresses, and all of them only if the pool is nearly full. Other free addresses that it finds
    serve later calls of the same transaction. Random addresses seldom collide between conductors, and a released
    address is seldom used again at once.
    """
    addresses = store.free.setdefault(ipv6.subnet_id_of(network, version), [])
    if addresses:
        return addresses.pop()
    pool = AddressPool(network if version == 4 else ipv6.as_subnet(network))
    sample = pool.sample(SAMPLE, rng)
    taken = store.taken(network.id, sample, version) if sample else set()
    addresses += [address for address in sample if address not in taken]
    if addresses:
        return addresses.pop()
    taken = store.taken(network.id, version=version)
    free = next((address for address in pool.all() if address not in taken), None)
    if free is None:
        raise exceptions.NoMoreFixedIps(network_id=network.public_id)
    return free


def random_mac_address(rng: random.Random) -> str:
    return "fa:16:3e:" + ":".join(f"{rng.randrange(256):02x}" for _ in range(3))
