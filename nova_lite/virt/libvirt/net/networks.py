"""The host side of built-in networks: one libvirt network each, with a bridge, NAT, and DHCP by reservation only.

Each reservation is a file in a directory that the network's dnsmasq reads. libvirt's own way is a change of the
network. That removes and restores all its firewall rules, and cuts its guests off for up to two seconds.

Several compute daemons may share one libvirtd. So all steps are repeatable, and what another daemon has done already
counts as done. The network stays when its last reservation is removed.
"""

from __future__ import annotations

import contextlib
import glob
import ipaddress
import json
import logging
import os
import re
import signal
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from typing import Any

import libvirt
from oslo_config import cfg

from nova_lite.base import exceptions, files, ip
from nova_lite.network import factory
from nova_lite.objects import VIF, Network, ipv6
from nova_lite.virt import images
from nova_lite.virt.libvirt.connection import Connection
from nova_lite.virt.libvirt.net import dhcp, existing, neutron, nft
from nova_lite.virt.libvirt.net.firewall import Firewall, Routing
from nova_lite.virt.libvirt.net.names import bridge_mac, bridge_name, network_name

LOG = logging.getLogger(__name__)

LEASE_TIME = "24h"
PID_DIRECTORY = "/run/libvirt/network"

_DNSMASQ = "http://libvirt.org/schemas/network/dnsmasq/1.0"
_HOSTNAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_MAC_ADDRESS = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")

ET.register_namespace("dnsmasq", _DNSMASQ)


class HostNetworks:
    def __init__(self, conf: cfg.ConfigOpts, connection: Connection, host: str) -> None:
        self._connection = connection
        self._host = host
        self._firewall = Firewall(conf)

    def init_host(self, vifs: list[VIF]) -> set[str]:
        """Restore the rules of existing networks, which do not survive a reboot. ``vifs``: of this host's guests.

        Returns the ids of the networks that libvirt manages.
        """
        self._firewall.prepare()
        for directory in glob.glob(reservations_directory_of("*")):
            files.remove_unfinished(directory, self._host)
        on_each = {vif.network.id: vif for vif in vifs}
        found = sorted(self.run_by_libvirt(list(on_each.values())))
        nft.apply(self._firewall.rules_of_valid([on_each[network_id].network for network_id in found]))
        return set(found)

    def rules(self, networks: Iterable[Network]) -> str:
        """Return the nft commands for networks that libvirt manages. The caller of `plug` executes them."""
        return self._firewall.rules(networks)

    def set_routing(self, routing: dict[str, Routing]) -> None:
        """Replace how networks are routed, by their ids. Raises `VirtDriverError`."""
        self._firewall.set_routing(routing)

    def routed(self) -> list[tuple[Network, Routing]]:
        """Return the networks that libvirt manages here, and how they are routed."""
        return self._firewall.routed()

    def start(self, network: Network) -> bool:
        """Start a network that a router needs here. Return False if its bridge is the operator's own."""
        if not os.path.exists(f"{existing.NET}/{bridge_name(network)}") or not self._firewall.knows(network):
            if not self._ensure(network):
                return False
            nft.apply(self._firewall.rules([network]))
        return True

    def reach_metadata(self, vifs: list[VIF]) -> bool:
        """Check whether a guest with these interfaces reaches a metadata service."""
        served = [vif for vif in vifs if vif.vif_type is None and self._firewall.serves(vif.network)]
        return bool(served and self.run_by_libvirt(served))

    def plug(self, vif: VIF, hostname: str) -> bool:
        """Start the network and reserve the VIF's address for its MAC address.

        Returns whether libvirt manages the network: then the caller has to apply its `rules`.
        """
        if vif.vif_type is not None:
            neutron.plug(vif)
            return False
        if not self._ensure(vif.network):
            return False
        _reserve(vif, hostname, self._host)
        self._reload(vif.network)
        # The lease of a former guest would keep dnsmasq from assigning the address to its new owner.
        dhcp.release(bridge_name(vif.network), vif.address, lambda mac_address: mac_address != vif.mac_address.lower())
        return True

    def unplug(self, vif: VIF) -> None:
        """Remove the VIF's reservation and lease, if any."""
        if vif.vif_type is not None:
            return
        path = _reservation_path(vif)
        if not os.path.exists(path):
            return
        files.remove(path)
        self._reload(vif.network)
        dhcp.release(bridge_name(vif.network), vif.address, lambda mac_address: mac_address == vif.mac_address.lower())

    def run_by_libvirt(self, vifs: list[VIF]) -> set[str]:
        """Return the ids of networks that libvirt manages, without those on an operator's bridge."""
        ours = (vif for vif in vifs if vif.vif_type is None)
        return {vif.network.id for vif in ours if self._lookup(vif.network) is not None}

    def _lookup(self, network: Network) -> Any:
        return self._connection.call_unless(
            (libvirt.VIR_ERR_NO_NETWORK,), self._connection.get().networkLookupByName, network_name(network)
        )

    def _ensure(self, network: Network) -> bool:
        """Define and start the network. Return False if its bridge is the operator's own, who then provides DHCP."""
        found = self._lookup(network)
        if found is None and existing.has_bridge(network):
            found = self._lookup(network)  # another daemon may have started the network since the first look
            if found is None:
                existing.check_bridge(self._connection, network)
                LOG.info("Bridge %s is used unchanged: libvirt did not make it", bridge_name(network))
                return False
        if found is None:
            found = self._connection.connect_call("networkDefineXML", network_xml(network))
            LOG.info("Network %s is defined, with bridge %s", network_name(network), bridge_name(network))
        else:
            existing.check_network(self._connection, network, found)
        os.makedirs(reservations_directory(network), mode=0o755, exist_ok=True)
        if not self._connection.call(found.isActive):
            # libvirt's code for a network that another daemon has just started.
            # A call that is repeated after a broken connection fails with the same code.
            self._connection.call_unless((libvirt.VIR_ERR_OPERATION_INVALID,), found.create)
            self._connection.call(found.setAutostart, 1)
        return True

    @staticmethod
    def _reload(network: Network) -> None:
        """Make dnsmasq read its reservations again. It notices new files itself, but not removed ones."""
        with contextlib.suppress(FileNotFoundError, ValueError, ProcessLookupError):
            with open(os.path.join(PID_DIRECTORY, f"{network_name(network)}.pid")) as file:
                pid = int(file.read())
            with open(f"/proc/{pid}/comm") as file:
                if file.read().strip() == "dnsmasq":
                    os.kill(pid, signal.SIGHUP)


def network_xml(network: Network) -> str:
    """Return the network's XML. It is the same on each host: name, uuid and bridge follow from the network's id."""
    root = ET.Element("network")
    _text(root, "name", network_name(network))
    _text(root, "uuid", _network_uuid(network.id))
    if network.gateway:
        forward = ET.SubElement(root, "forward", mode="nat")
        if network.cidr6:
            ET.SubElement(forward, "nat", ipv6="yes")
    ET.SubElement(root, "bridge", name=bridge_name(network), stp="off", delay="0")
    if network.vni is not None:
        # The same on all hosts, so that a guest finds its gateway after a move.
        ET.SubElement(root, "mac", address=bridge_mac(network.vni))
    ET.SubElement(root, "mtu", size=str(network.mtu))
    if servers := _name_servers(network):
        dns = ET.SubElement(root, "dns")
        for address in servers:
            ET.SubElement(dns, "forwarder", addr=address)
    cidr = _cidr(network)
    ET.SubElement(root, "ip", address=_host_address(network), netmask=str(cidr.netmask))
    if network.cidr6:
        # dnsmasq advertises the prefix, and itself as the router if the network has a gateway.
        ET.SubElement(root, "ip", family="ipv6", address=ipv6.host_address(network), prefix="64")
    options = ET.SubElement(root, f"{{{_DNSMASQ}}}options")
    for option in (
        f"dhcp-range={cidr.network_address},static,{cidr.netmask}",
        f"dhcp-hostsdir={reservations_directory(network)}",
        f"dhcp-option=option:mtu,{network.mtu}",
        "dhcp-authoritative",
        "dhcp-no-override",
    ):
        ET.SubElement(options, f"{{{_DNSMASQ}}}option", value=option)
    return ET.tostring(root, encoding="unicode")


def _cidr(network: Network) -> ipaddress.IPv4Network:
    try:
        return ip.parse_network4(network.cidr, strict=False)
    except ValueError as error:
        raise exceptions.VirtDriverError(reason=f"network {network.name} is not IPv4: {network.cidr}") from error


def _name_servers(network: Network) -> list[str]:
    """Return the name servers of a network, without those of an older version that are on this machine.

    dnsmasq would send queries of guests to services that only this machine may use. Only an operator may want that.
    """
    here = set() if network.project_id is None else own_addresses()

    def remote(text: str) -> str:
        address = ip.parse4(text)
        if not factory.is_remote(address) or str(address) in here:
            raise ValueError("it is not the address of another machine")
        return str(address)

    return nft.usable("name server", network.dns, remote, str)


def own_addresses() -> set[str]:
    """Return the addresses of this machine."""
    links = json.loads(images.run("ip", "-json", "address", "show"))
    return {info["local"] for link in links for info in link.get("addr_info", ()) if "local" in info}


def _network_uuid(network_id: str) -> str:
    try:
        return str(uuid.UUID(network_id))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"urn:nova-lite:network:{network_id}"))


def _host_address(network: Network) -> str:
    """Return the bridge's address: the gateway, else the first address outside of the pool."""
    if network.gateway:
        return str(_address(network, network.gateway))
    cidr = _cidr(network)
    first = _address(network, network.start) if network.start else cidr[1]
    last = _address(network, network.end) if network.end else cidr[-2]
    for address in (cidr[1], cidr[-2]):
        if not int(first) <= int(address) <= int(last):
            return str(address)
    raise exceptions.VirtDriverError(
        reason=f"network {network.name} has no address for the host: no gateway, and all addresses are in its pool"
    )


def _address(network: Network, text: str) -> ipaddress.IPv4Address:
    try:
        return ip.parse4(text)
    except ValueError as error:
        raise exceptions.VirtDriverError(reason=f"network {network.name} has an invalid address: {error}") from error


# --- reservations


def reservations_directory(network: Network) -> str:
    if not _PLAIN_NAME.fullmatch(network.id):
        raise exceptions.VirtDriverError(reason=f"network id {network.id!r} is not a plain name")
    return reservations_directory_of(network_name(network))


def reservations_directory_of(name: str) -> str:
    return os.path.join(dhcp.DIRECTORY, f"{name}.d")


def _reservation_path(vif: VIF) -> str:
    if not _PLAIN_NAME.fullmatch(vif.id):
        raise exceptions.VirtDriverError(reason=f"VIF id {vif.id!r} is not a plain name")
    return os.path.join(reservations_directory(vif.network), vif.id)


def reservation(vif: VIF, hostname: str) -> str:
    """Return a line in dnsmasq's format: MAC address, address, host name (its first label), lease time."""
    mac_address = vif.mac_address.lower()
    if not _MAC_ADDRESS.fullmatch(mac_address):
        raise exceptions.VirtDriverError(reason=f"{vif.mac_address!r} is not a MAC address")
    try:
        fields = [mac_address, str(ip.parse4(vif.address))]
    except ValueError as error:
        raise exceptions.VirtDriverError(reason=f"{vif.address!r} is not an IPv4 address") from error
    name = hostname.partition(".")[0]
    if _HOSTNAME.fullmatch(name):
        fields.append(name)
    return ",".join([*fields, LEASE_TIME]) + "\n"


def _reserve(vif: VIF, hostname: str, host: str) -> None:
    """Write the reservation, and remove outdated ones of the same address or MAC address. ``host``: this host."""
    line = reservation(vif, hostname)
    path = _reservation_path(vif)
    keys = set(line.split(",")[:2])
    directory = os.path.dirname(path)
    for name in os.listdir(directory):
        other = os.path.join(directory, name)
        if other != path and not name.startswith(files.TEMPORARY) and keys & _keys(other):
            LOG.warning("Removing the outdated reservation %s on network %s", name, vif.network.id)
            files.remove(other)
    files.write_atomically(path, line.encode(), durable=False, mode=0o644, writer=host)


def _keys(path: str) -> set[str]:
    """Return the MAC address and address of a reservation; empty if it has just been removed."""
    with contextlib.suppress(FileNotFoundError), open(path) as file:
        return set(file.read().split(",")[:2])
    return set()


def _text(parent: ET.Element, tag: str, text: str) -> None:
    ET.SubElement(parent, tag).text = text
