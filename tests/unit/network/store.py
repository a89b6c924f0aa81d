"""A `NetworkStore` in memory."""

from __future__ import annotations

import uuid
from collections.abc import Collection

from nova_lite.network.driver import Addresses, StoredPort
from nova_lite.objects import VIF, Network


class MemoryStore:
    """Networks and ports in memory.

    ``reads``: number of addresses that lookups returned. ``faster``: addresses that another transaction takes first.
    ``of_users``: ports that project p1 made. ``ipv6``: IPv6 addresses of ports. ``pools``: ids of
    pools of floating addresses.
    """

    def __init__(self, *networks: Network) -> None:
        self._networks = {network.id: network for network in networks}
        self.ports: dict[str, list[VIF]] = {}
        self.of_users: list[VIF] = []
        self.free: dict[str, list[str]] = {}
        self.reads = 0
        self.faster: set[str] = set()
        self.ipv6: set[str] = set()
        self.pools: set[str] = set()
        self.shared: set[tuple[str, str | None]] = set()

    def networks(self, ids: Collection[str] | None = None) -> list[Network]:
        return [network for network in self._networks.values() if ids is None or network.id in ids]

    def is_external(self, network_id: str) -> bool:
        return network_id in self.pools

    def is_shared(self, network_id: str, project_id: str | None) -> bool:
        return (network_id, project_id) in self.shared

    def usable(self, project_id: str | None) -> list[Network]:
        return [
            network for network in self._networks.values() if network.cidr and network.project_id in (None, project_id)
        ]

    def locked(self, ids: Collection[str]) -> dict[str, Network]:
        return {network.id: network for network in self.networks(ids)}

    def links(self, network: Network, instance_uuid: str | None = None) -> list[Network]:
        of_network = [item for item in self._networks.values() if network.id in (item.id, item.parent_id)]
        return [item for item in of_network if item.cidr]

    def addresses(self, network_id: str, version: int = 4) -> list[str]:
        found = [vif for vifs in self.ports.values() for vif in vifs if vif.network.id == network_id]
        return [vif.address if version == 4 else vif.more[0].address for vif in found]

    def taken(self, network_id: str, addresses: Collection[str] | None = None, version: int = 4) -> set[str]:
        found = set(self.addresses(network_id, version))
        found = found if addresses is None else found & set(addresses)
        self.reads += len(found)
        return found

    def port(self, port_id: str) -> StoredPort | None:
        found = next((vif for vif in self.of_users if vif.id == port_id), None)
        if found is None:
            return None
        has_it = (uuid for uuid, vifs in self.ports.items() if found in vifs)
        return StoredPort(found.network.id, "p1", "p1", next(has_it, None))

    def bind_port(self, port_id: str, instance_uuid: str, position: int, tag: str | None) -> bool:
        port = self.port(port_id)
        if port is None or port.instance_uuid is not None:
            return False
        vif = next(vif for vif in self.of_users if vif.id == port_id)
        vif.position, vif.tag = position, tag
        self.ports.setdefault(instance_uuid, []).append(vif)
        return True

    def vifs(self, instance_uuid: str) -> list[VIF]:
        return sorted(self.ports.get(instance_uuid, []), key=lambda vif: vif.position)

    def add_port(
        self, instance_uuid: str, network_id: str, position: int, addresses: Addresses, tag: str | None
    ) -> str | None:
        network, (address, mac_address, address6) = self._networks[network_id], addresses
        if address in self.faster:
            self.faster.remove(address)
            self._add("somebody", network, address, "fa:16:3e:ff:ff:ff", None)
        macs = {vif.mac_address for vifs in self.ports.values() for vif in vifs}
        if address in self.addresses(network_id) or mac_address in macs:
            return None
        self.ipv6 |= {address6} if address6 is not None else set()
        return self._add(instance_uuid, network, address, mac_address, tag, position)

    def _add(
        self, instance_uuid: str, network: Network, address: str, mac_address: str, tag: str | None, position: int = 0
    ) -> str:
        named = {"mac_address": mac_address, "address": address, "network": network, "tag": tag, "position": position}
        vif = VIF(id=str(uuid.uuid4()), port_security_enabled=True, **named)
        self.ports.setdefault(instance_uuid, []).append(vif)
        return vif.id

    def remove_ports(self, instance_uuid: str) -> None:
        self.ports.pop(instance_uuid, None)

    def remove_port(self, instance_uuid: str, port_id: str) -> None:
        self.ports[instance_uuid] = [vif for vif in self.ports.get(instance_uuid, []) if vif.id != port_id]
