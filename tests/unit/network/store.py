"""A `NetworkStore` in memory."""

from __future__ import annotations

import uuid
from collections.abc import Collection

from nova_lite.objects import VIF, Network


class MemoryStore:
    """``reads`` counts the addresses that lookups handed out; ``faster`` are addresses that somebody else takes right
    before we do."""

    def __init__(self, *networks: Network) -> None:
        self._networks = {network.id: network for network in networks}
        self.ports: dict[str, list[VIF]] = {}
        self.reads = 0
        self.faster: set[str] = set()

    def networks(self, ids: Collection[str] | None = None) -> list[Network]:
        return [network for network in self._networks.values() if ids is None or network.id in ids]

    def addresses(self, network_id: str) -> list[str]:
        return [vif.address for vifs in self.ports.values() for vif in vifs if vif.network.id == network_id]

    def taken(self, network_id: str, addresses: Collection[str] | None = None) -> set[str]:
        found = set(self.addresses(network_id))
        found = found if addresses is None else found & set(addresses)
        self.reads += len(found)
        return found

    def vifs(self, instance_uuid: str) -> list[VIF]:
        return list(self.ports.get(instance_uuid, []))

    def add_port(
        self, instance_uuid: str, network_id: str, position: int, address: str, mac_address: str, tag: str | None
    ) -> str | None:
        network = self._networks[network_id]
        if address in self.faster:
            self.faster.remove(address)
            self._add("somebody", network, address, "fa:16:3e:ff:ff:ff", None)
        macs = {vif.mac_address for vifs in self.ports.values() for vif in vifs}
        if address in self.addresses(network_id) or mac_address in macs:
            return None
        return self._add(instance_uuid, network, address, mac_address, tag)

    def _add(self, instance_uuid: str, network: Network, address: str, mac_address: str, tag: str | None) -> str:
        vif = VIF(id=str(uuid.uuid4()), mac_address=mac_address, address=address, network=network, tag=tag)
        self.ports.setdefault(instance_uuid, []).append(vif)
        return vif.id

    def remove_ports(self, instance_uuid: str) -> None:
        self.ports.pop(instance_uuid, None)
