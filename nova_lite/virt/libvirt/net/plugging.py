"""The network of guests on this host: interfaces, routers, tunnels and filters."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Collection, Mapping

from nova_lite.objects import VIF, HostRouter, Instance, PortFilters
from nova_lite.virt import abilities
from nova_lite.virt.libvirt.context import HostContext, HostPart
from nova_lite.virt.libvirt.net.anti_spoofing import AntiSpoofing
from nova_lite.virt.libvirt.net.guest_interfaces import GuestInterfaces
from nova_lite.virt.libvirt.net.interfaces import InterfaceDevices
from nova_lite.virt.libvirt.net.networks import HostNetworks
from nova_lite.virt.libvirt.net.qos import HostQos
from nova_lite.virt.libvirt.net.routers import HostRouters
from nova_lite.virt.libvirt.net.security_groups import PortFirewall
from nova_lite.virt.libvirt.net.tunnels import Tunnels
from nova_lite.virt.libvirt.records import file_errors


@dataclasses.dataclass(frozen=True)
class NetworkParts:
    """Parts of the network of a host. ``records``: of the interfaces on it."""

    networks: HostNetworks
    anti_spoofing: AntiSpoofing
    port_firewall: PortFirewall
    tunnels: Tunnels
    routers: HostRouters
    records: GuestInterfaces
    qos: HostQos

    def prepare(self, context: HostContext) -> None:
        """Restore the network of the guests that the records name."""
        interfaces = {uuid: context.records.read_interfaces(uuid) for uuid in context.records.uuids()}
        self.routers.read()
        served = self.networks.init_host([vif for vifs in interfaces.values() for vif in vifs])
        unknown = {uuid: context.domains.taps(uuid) for uuid in context.records.unreadable_interfaces()}
        self.anti_spoofing.prepare(interfaces, served, unknown)
        self.routers.prepare(bool(self.anti_spoofing.instances()))
        self.port_firewall.prepare(interfaces)
        self.tunnels.prepare(interfaces, self.routers.active, self.port_firewall.forwardings)
        self.qos.prepare()


@dataclasses.dataclass(eq=False)
class HostSide(HostPart, abilities.Networks):
    """The host side of interfaces."""

    _parts: NetworkParts

    @file_errors()
    def plug(self, instance: Instance, vifs: list[VIF]) -> None:
        if not vifs:
            return
        parts = self._parts
        parts.records.record(instance.uuid, vifs)
        served = {vif.network.id for vif in vifs if parts.networks.plug(vif, _name_on(vif, instance))}

        def load(text: str) -> None:
            parts.port_firewall.plug(instance.uuid, vifs, text)

        parts.anti_spoofing.plug(instance.uuid, vifs, served, load)
        parts.tunnels.plug(instance.uuid, vifs)
        parts.routers.resume()
        parts.tunnels.route(parts.routers.active)

    @file_errors()
    def unplug(self, instance_uuid: str) -> None:
        parts = self._parts
        with parts.records.lock(instance_uuid):
            parts.anti_spoofing.unplug(instance_uuid, lambda text: parts.port_firewall.unplug(instance_uuid, text))
            parts.tunnels.unplug(instance_uuid)
            if not parts.anti_spoofing.instances():
                parts.routers.suspend()
                parts.tunnels.route([])
            for vif in self._records.read_interfaces(instance_uuid):
                parts.networks.unplug(vif)
            self._records.remove_interfaces(instance_uuid)

    def metadata_sockets(self) -> Mapping[str, socket.socket]:
        return self._parts.networks.metadata_sockets()

    @file_errors()
    def watch(self) -> None:
        self._parts.networks.watch()

    @file_errors()
    def remove_unused(self, minimum_age: float) -> list[str]:
        return self._parts.networks.remove_idle(minimum_age)


@dataclasses.dataclass(eq=False)
class GuestSide(HostPart, abilities.Interfaces):
    """Interfaces that are attached to guests and detached from them."""

    _devices: InterfaceDevices
    _parts: NetworkParts

    def attach(self, instance_uuid: str, vif: VIF) -> None:
        domain, _ = self._domains.get(instance_uuid)
        self._devices.attach(domain, vif)

    def detach(self, instance_uuid: str, vif: VIF) -> None:
        domain, _ = self._domains.get(instance_uuid)
        parts = self._parts
        self._devices.detach(domain, vif)
        with file_errors(), parts.records.lock(instance_uuid):
            rest = [other for other in self._records.read_interfaces(instance_uuid) if other.id != vif.id]
            parts.networks.unplug(vif)
            served = parts.networks.managed(rest)

            def load(text: str) -> None:
                parts.port_firewall.plug(instance_uuid, rest, text)

            parts.anti_spoofing.plug(instance_uuid, rest, served, load)
            parts.tunnels.plug(instance_uuid, rest)
            self._records.write_interfaces(instance_uuid, rest)


@dataclasses.dataclass(eq=False)
class HostFilters(abilities.Filters):
    """Filters of the interfaces, and what the conductor sends with them."""

    _parts: NetworkParts

    def instances(self) -> list[str]:
        return sorted({*self._parts.anti_spoofing.instances(), *self._parts.tunnels.begin_query()})

    def are_missing(self) -> bool:
        return self._parts.port_firewall.lacks_filters() or self._parts.tunnels.lacks_peers()

    def withdraw_addresses(self, instance_uuids: Collection[str]) -> None:
        self._parts.port_firewall.withdraw_addresses(instance_uuids)

    def keep_addresses(self, instance_uuids: Collection[str], seconds: int | None) -> None:
        self._parts.port_firewall.keep_addresses(instance_uuids, seconds)

    @file_errors()
    def apply(self, filters: PortFilters) -> None:
        parts = self._parts
        parts.anti_spoofing.restore()
        parts.records.update(filters)
        parts.routers.set(filters.routers)
        parts.networks.set_names(filters.names, parts.routers.active)
        # Floating addresses lead into realms, so a network that has moved to another one matters to the filters.
        bare = [
            HostRouter(id=router.id, networks=router.networks, only=router.only, address=router.address)
            for router in parts.routers.active
        ]
        relevant = filters.of_firewall(bare)
        parts.port_firewall.set(relevant)
        parts.tunnels.route(parts.routers.active)
        parts.tunnels.set(filters.peers, parts.port_firewall.forwardings)
        parts.qos.set(filters)


def _name_on(vif: VIF, instance: Instance) -> str:
    """Return the host name that DHCP gives a guest, which dnsmasq then answers: "" on another project's network."""
    return instance.hostname if vif.network.project_id in (None, instance.project_id) else ""
