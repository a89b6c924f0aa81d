"""Built-in networks: addresses from the conductor's own pools, one bridge per network on each host."""

from __future__ import annotations

import random
from typing import Any

from oslo_config import cfg

from nova_lite import exception
from nova_lite.context import RequestContext
from nova_lite.network.driver import AUTO, NONE, NetworkBackend, NetworkStore
from nova_lite.network.pool import Pool
from nova_lite.objects import VIF, Network, NetworkRequest
from nova_lite.objects.instance import version_of

#: Random addresses looked up together; all of them in use means that the pool is nearly full.
SAMPLE = 16

#: How often somebody else may take the chosen address, or our MAC address may exist, before we call the pool empty.
MAX_COLLISIONS = 64


class LocalNetworks(NetworkBackend):
    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)
        self._random = random.SystemRandom()

    def resolve(
        self, store: NetworkStore, context: RequestContext, networks: str | list[NetworkRequest], answer: Any = None
    ) -> list[NetworkRequest]:
        if networks == NONE:
            return []
        if networks == AUTO:
            network = self._default(store, context)
            return [] if network is None else [NetworkRequest(network_id=network.id)]
        if isinstance(networks, str):
            raise exception.InvalidInput(reason=f"networks is {networks!r}, and not auto, none or a list")
        return [self._resolve_one(store, context, request) for request in networks]

    def _default(self, store: NetworkStore, context: RequestContext) -> Network | None:
        """The project's own default, else the shared default, else the only network there is."""
        usable = [network for network in store.networks() if network.project_id in (None, context.project_id)]
        own = [network for network in usable if network.is_default and network.project_id is not None]
        shared = [network for network in usable if network.is_default]
        choice = own or shared or usable
        if len(choice) > 1:
            raise exception.NetworkAmbiguous()
        return choice[0] if choice else None

    def _resolve_one(self, store: NetworkStore, context: RequestContext, request: NetworkRequest) -> NetworkRequest:
        if request.port_id:
            raise exception.InvalidInput(reason=f"Port {request.port_id} could not be found.")
        network = self._named(store, context, request)
        address = None
        if request.fixed_ip:
            address = self._check_fixed_ip(store, network, request.fixed_ip)
        return NetworkRequest(network_id=network.id, fixed_ip=address, tag=request.tag)

    def _named(self, store: NetworkStore, context: RequestContext, request: NetworkRequest) -> Network:
        if not request.network_id:
            network = self._default(store, context)
            if network is None:
                raise exception.InvalidInput(reason="there is no network to take an address from")
            return network
        for network in store.networks([request.network_id]):
            if context.is_admin or network.project_id in (None, context.project_id):
                return network
        raise exception.NetworkUnavailable(network_id=request.network_id)

    @staticmethod
    def _check_fixed_ip(store: NetworkStore, network: Network, text: str) -> str:
        address = Pool(network).parse(text)
        if address is None:
            raise exception.FixedIpInvalid(address=text, network_id=network.id)
        if store.taken(network.id, [str(address)]):
            raise exception.FixedIpInUse(address=text, network_id=network.id)
        return str(address)

    def allocate(
        self, store: NetworkStore, instance_uuid: str, requests: list[NetworkRequest], answer: Any = None
    ) -> list[VIF]:
        present = store.vifs(instance_uuid)
        if present or not requests:
            return present
        networks = {network.id: network for network in store.networks([r.network_id or "" for r in requests])}
        made = []
        for position, request in enumerate(requests):
            network = networks.get(request.network_id or "")
            if network is None:
                raise exception.NetworkUnavailable(network_id=request.network_id)
            made.append(self._add_port(store, instance_uuid, position, network, request))
        return made

    def _add_port(
        self, store: NetworkStore, instance_uuid: str, position: int, network: Network, request: NetworkRequest
    ) -> VIF:
        """Choose, try, and choose again when somebody was faster; the table's unique keys decide."""
        for _ in range(MAX_COLLISIONS):
            address = request.fixed_ip or self._free_address(store, network)
            mac_address = self._mac_address()
            port_id = store.add_port(instance_uuid, network.id, position, address, mac_address, request.tag)
            if port_id is not None:
                return VIF(
                    id=port_id,
                    mac_address=mac_address,
                    address=address,
                    network=network,
                    version=version_of(address),
                    tag=request.tag,
                )
            if request.fixed_ip and store.taken(network.id, [address]):
                raise exception.FixedIpInUse(address=address, network_id=network.id)
        raise exception.NoMoreFixedIps(network_id=network.id)

    def _free_address(self, store: NetworkStore, network: Network) -> str:
        """A free address at random: a short lookup unless the pool is nearly full, and then an exact one.

        Random ones collide less between conductors, and one that was just given back is seldom given out at once.
        """
        pool = Pool(network)
        sample = pool.sample(SAMPLE, self._random)
        taken = store.taken(network.id, sample) if sample else set()
        free = next((address for address in sample if address not in taken), None)
        if free is None:
            taken = store.taken(network.id)
            free = next((address for address in pool.all() if address not in taken), None)
        if free is None:
            raise exception.NoMoreFixedIps(network_id=network.id)
        return free

    def _mac_address(self) -> str:
        return "fa:16:3e:" + ":".join(f"{self._random.randrange(256):02x}" for _ in range(3))

    def deallocate(self, store: NetworkStore, instance_uuid: str) -> None:
        store.remove_ports(instance_uuid)
