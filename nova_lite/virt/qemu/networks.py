"""The host side of guests' interfaces: a bridge for each network, and a tap device for each interface.

A network with a bridge of the operator's is used as it is. For another one the host makes a bridge without an address,
on which the network's guests of this host reach each other. There is no router, no tunnel and no DHCP server: config
drives have the addresses. Security groups and the protection against forged frames are those of hosts with libvirt.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Collection

from nova_lite.base import exceptions
from nova_lite.objects import VIF, Instance, Network, PortFilters
from nova_lite.virt import abilities, images
from nova_lite.virt.libvirt.net.anti_spoofing import AntiSpoofing
from nova_lite.virt.libvirt.net.guest_interfaces import GuestInterfaces
from nova_lite.virt.libvirt.net.names import bridge_name, tap_name
from nova_lite.virt.libvirt.net.qos import HostQos
from nova_lite.virt.libvirt.net.security_groups import PortFirewall
from nova_lite.virt.libvirt.records import Records, file_errors
from nova_lite.virt.qemu.guest import vif_id

NET = "/sys/class/net"
#: Mark of a bridge that a host has made.
ALIAS = "nova-lite"


class Bridges:
    """Bridges and tap devices. ``owner`` returns the user of qemu, who opens the tap devices."""

    def __init__(self, owner: Callable[[], tuple[int, int]]) -> None:
        self._owner = owner
        self._lock = threading.Lock()

    def plug(self, vif: VIF) -> None:
        """Make the interface's tap device, and the bridge of its network. Do nothing if both exist."""
        tap, bridge, mtu = vif_id(vif), bridge_name(vif.network), str(vif.network.mtu)
        with self._lock:
            if not os.path.exists(f"{NET}/{bridge}"):
                _ip("link", "add", "name", bridge, "mtu", mtu, "type", "bridge")
                # Guests do not reach the host, not even at a link-local address.
                _ip("link", "set", "dev", bridge, "addrgenmode", "none", "alias", ALIAS, "up")
            if not os.path.exists(f"{NET}/{tap}"):
                _ip("tuntap", "add", "dev", tap, "mode", "tap", "user", str(self._owner()[0]))
            _ip("link", "set", "dev", tap, "mtu", mtu, "addrgenmode", "none", "master", bridge, "up")

    def unplug(self, vif: VIF) -> None:
        """Remove the tap device, and the bridge if this host has made it and no guest uses it."""
        tap, bridge = tap_name(vif), bridge_name(vif.network)
        with self._lock:
            if os.path.exists(f"{NET}/{tap}"):
                _ip("link", "delete", "dev", tap)
            if self._is_ours(bridge) and not os.listdir(f"{NET}/{bridge}/brif"):
                _ip("link", "delete", "dev", bridge)

    @staticmethod
    def _is_ours(bridge: str) -> bool:
        path = f"{NET}/{bridge}/ifalias"
        if not os.path.exists(path):
            return False
        with open(path) as file:
            return file.read().strip() == ALIAS

    # --- for `GuestInterfaces`

    def managed(self, vifs: list[VIF]) -> set[str]:
        """Return the ids of networks with a gateway of this host: none."""
        return set()

    def restore(self) -> None:
        """Do nothing: config drives have the name servers."""

    def update(self, network: Network) -> None:
        """Do nothing: guests get changed settings with their next config drive."""

    def update_options(self, vif: VIF) -> None:
        """Do nothing: there is no DHCP server."""


def _ip(*arguments: str) -> None:
    images.run("ip", *arguments)


@dataclasses.dataclass(eq=False)
class HostSide(abilities.Networks):
    """The host side of interfaces, with their filters."""

    _records: Records
    _bridges: Bridges
    _anti_spoofing: AntiSpoofing
    _port_firewall: PortFirewall
    interfaces: GuestInterfaces
    qos: HostQos

    def prepare(self) -> None:
        """Restore the interfaces of this host's guests, which do not survive a reboot."""
        ports = {uuid: self._records.read_interfaces(uuid) for uuid in self._records.uuids()}
        for vif in (vif for vifs in ports.values() for vif in vifs):
            self._bridges.plug(vif)
        self._anti_spoofing.prepare(ports, ())
        self._port_firewall.prepare(ports)
        self.qos.prepare()

    @file_errors()
    def plug(self, instance: Instance, vifs: list[VIF]) -> None:
        if not vifs:
            return
        if any(vif.vif_type is not None for vif in vifs):
            raise exceptions.NotImplementedByDriver(operation="ports of Neutron")
        for vif in vifs:
            vif_id(vif)  # An invalid interface is not recorded.
        self.interfaces.record(instance.uuid, vifs)
        for vif in vifs:
            self._bridges.plug(vif)
        self.guard(instance.uuid, vifs)

    def guard(self, instance_uuid: str, vifs: list[VIF]) -> None:
        """Filter the interfaces of an instance, and no others of it."""

        def load(text: str) -> None:
            self._port_firewall.plug(instance_uuid, vifs, text)

        self._anti_spoofing.plug(instance_uuid, vifs, (), load)

    @file_errors()
    def unplug(self, instance_uuid: str) -> None:
        with self.interfaces.lock(instance_uuid):
            for vif in self._records.read_interfaces(instance_uuid):
                self._bridges.unplug(vif)
            self._anti_spoofing.unplug(instance_uuid, lambda text: self._port_firewall.unplug(instance_uuid, text))
            self._records.remove_interfaces(instance_uuid)

    @file_errors()
    def detach(self, instance_uuid: str, vif: VIF) -> None:
        """Remove one interface."""
        with self.interfaces.lock(instance_uuid):
            rest = [other for other in self._records.read_interfaces(instance_uuid) if other.id != vif.id]
            self._bridges.unplug(vif)
            self.guard(instance_uuid, rest)
            self._records.write_interfaces(instance_uuid, rest)


@dataclasses.dataclass(eq=False)
class HostFilters(abilities.Filters):
    """Filters of the interfaces."""

    _anti_spoofing: AntiSpoofing
    _port_firewall: PortFirewall
    _interfaces: GuestInterfaces
    _qos: HostQos

    def instances(self) -> list[str]:
        return self._anti_spoofing.instances()

    def are_missing(self) -> bool:
        return self._port_firewall.lacks_filters()

    def withdraw_addresses(self, instance_uuids: Collection[str]) -> None:
        """Do nothing: such a host has no floating addresses."""

    def keep_addresses(self, instance_uuids: Collection[str], seconds: int | None) -> None:
        """Do nothing, either."""

    @file_errors()
    def apply(self, filters: PortFilters) -> None:
        self._anti_spoofing.restore()
        self._interfaces.update(filters)
        relevant = filters.of_firewall(None)
        self._port_firewall.set(relevant)
        self._qos.set(filters)
