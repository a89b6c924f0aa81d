"""The host side of the built-in networks: a libvirt network each, with a bridge, NAT, and DHCP by reservation only.

Several compute daemons may share one libvirtd, so nothing here relies on being alone: defining and starting are
repeatable, a reservation is added or removed by itself, and what somebody else did first counts as done. The network
stays when its last reservation goes.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import uuid
import xml.etree.ElementTree as ET
from typing import Any

import libvirt

from nova_lite import exception
from nova_lite.objects import VIF, Network
from nova_lite.virt.libvirt import dhcp
from nova_lite.virt.libvirt.connection import Connection, LibvirtFailure
from nova_lite.virt.libvirt.guestxml import bridge_name

LOG = logging.getLogger(__name__)

LEASE_HOURS = "24"
_UPDATE_ATTEMPTS = 5
_HOSTNAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")


class Networks:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def plug(self, vif: VIF, hostname: str) -> None:
        """Have the network up and the VIF's address reserved for its MAC address."""
        network = self._ensure(vif)
        if network is not None:
            self._reserve(network, vif, hostname)
            # A lease that outlived its guest would keep dnsmasq from giving the address to its new owner.
            dhcp.release(bridge_name(vif), vif.address, lambda mac_address: mac_address != vif.mac_address.lower())

    def unplug(self, vif: VIF) -> None:
        """Remove the VIF's reservation and lease; quiet when there are none."""
        network = self._lookup(vif.network)
        if network is None:
            return
        for _ in range(_UPDATE_ATTEMPTS):
            hosts = [host for host in self._hosts(network) if same_vif(host, vif)]
            if not hosts:
                break
            self._update(network, libvirt.VIR_NETWORK_UPDATE_COMMAND_DELETE, hosts[0])
        dhcp.release(bridge_name(vif), vif.address, lambda mac_address: mac_address == vif.mac_address.lower())

    # --- the network

    def _lookup(self, network: Network) -> Any:
        return self._connection.call_unless(
            (libvirt.VIR_ERR_NO_NETWORK,),
            self._connection.get().networkLookupByName,
            libvirt_name(network),
        )

    def _ensure(self, vif: VIF) -> Any:
        """The network, defined and running; None when its bridge is the operator's own, who then answers DHCP too."""
        network = self._lookup(vif.network)
        if network is None:
            if os.path.exists(f"/sys/class/net/{bridge_name(vif)}/bridge"):
                LOG.info("Bridge %s is used as it is: libvirt did not make it", bridge_name(vif))
                return None
            network = self._connection.connect_call("networkDefineXML", network_xml(vif))
            LOG.info("Network %s is now defined, with bridge %s", libvirt_name(vif.network), bridge_name(vif))
        if not self._connection.call(network.isActive):
            # "Invalid operation" is libvirt's word for a network that another daemon has just started.
            self._connection.call_unless((libvirt.VIR_ERR_OPERATION_INVALID,), network.create)
            self._connection.call(network.setAutostart, 1)
        return network

    # --- reservations

    def _reserve(self, network: Any, vif: VIF, hostname: str) -> None:
        """Add the reservation; one that another instance left behind on the same address or MAC address gives way."""
        for attempt in range(_UPDATE_ATTEMPTS):
            hosts = self._hosts(network)
            if any(same_vif(host, vif) for host in hosts):
                return
            stale = [host for host in hosts if host.get("mac") == vif.mac_address or host.get("ip") == vif.address]
            for host in stale:
                self._update(network, libvirt.VIR_NETWORK_UPDATE_COMMAND_DELETE, host)
            taken = {host.get("name") for host in hosts if host not in stale}
            try:
                self._update(
                    network,
                    libvirt.VIR_NETWORK_UPDATE_COMMAND_ADD_LAST,
                    reservation(vif, None if hostname in taken else hostname),
                )
            except LibvirtFailure as error:
                if attempt == _UPDATE_ATTEMPTS - 1:
                    raise
                LOG.debug("The reservation of %s is tried again: %s", vif.address, error.message)
        raise exception.VirtDriverError(reason=f"address {vif.address} could not be reserved")

    def _hosts(self, network: Any) -> list[ET.Element]:
        return parse_hosts(self._connection.call(network.XMLDesc, 0))

    def _update(self, network: Any, command: int, host: ET.Element) -> None:
        """Change running network and definition. Removing what is gone meanwhile is no error."""
        gone = (libvirt.VIR_ERR_OPERATION_INVALID,) if command == libvirt.VIR_NETWORK_UPDATE_COMMAND_DELETE else ()
        self._connection.call_unless(
            gone,
            network.update,
            command,
            libvirt.VIR_NETWORK_SECTION_IP_DHCP_HOST,
            0,
            ET.tostring(host, encoding="unicode"),
            libvirt.VIR_NETWORK_UPDATE_AFFECT_LIVE | libvirt.VIR_NETWORK_UPDATE_AFFECT_CONFIG,
        )


def libvirt_name(network: Network) -> str:
    return f"nova-lite-{network.id}"


def network_xml(vif: VIF) -> str:
    """The definition, the same whoever makes it: name, uuid and bridge all follow from the network's id."""
    network = vif.network
    root = ET.Element("network")
    _text(root, "name", libvirt_name(network))
    _text(root, "uuid", _network_uuid(network.id))
    if network.gateway:
        ET.SubElement(root, "forward", mode="nat")
    ET.SubElement(root, "bridge", name=bridge_name(vif), stp="off", delay="0")
    ET.SubElement(root, "mtu", size=str(network.mtu))
    if network.dns:
        dns = ET.SubElement(root, "dns")
        for address in network.dns:
            ET.SubElement(dns, "forwarder", addr=address)
    cidr = ipaddress.ip_network(network.cidr, strict=False)
    if cidr.version != 4:
        raise exception.VirtDriverError(reason=f"network {network.name} is not IPv4: {network.cidr}")
    ip = ET.SubElement(root, "ip", address=_host_address(network), netmask=str(cidr.netmask))
    ET.SubElement(ip, "dhcp")
    return ET.tostring(root, encoding="unicode")


def _network_uuid(network_id: str) -> str:
    try:
        return str(uuid.UUID(network_id))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"urn:nova-lite:network:{network_id}"))


def _host_address(network: Network) -> str:
    """The bridge's own address: the gateway, else the first that is not in the pool."""
    if network.gateway:
        return network.gateway
    cidr = ipaddress.ip_network(network.cidr, strict=False)
    first = ipaddress.ip_address(network.start) if network.start else cidr[1]
    last = ipaddress.ip_address(network.end) if network.end else cidr[-2]
    for address in (cidr[1], cidr[-2]):
        if not int(first) <= int(address) <= int(last):
            return str(address)
    raise exception.VirtDriverError(
        reason=f"network {network.name} leaves no address for the host: it has no gateway, and its pool is all of it"
    )


def reservation(vif: VIF, hostname: str | None) -> ET.Element:
    """A ``<host>``; libvirt wants names to be unique, so a second guest of one name goes without."""
    host = ET.Element("host", mac=vif.mac_address, ip=vif.address)
    if hostname is not None and _HOSTNAME.fullmatch(hostname):
        host.set("name", hostname)
    ET.SubElement(host, "lease", expiry=LEASE_HOURS, unit="hours")
    return host


def parse_hosts(network_xml_text: str) -> list[ET.Element]:
    root = ET.fromstring(network_xml_text)  # noqa: S314 libvirt's own output
    return root.findall("./ip/dhcp/host")


def same_vif(host: ET.Element, vif: VIF) -> bool:
    return host.get("mac", "").lower() == vif.mac_address.lower() and host.get("ip") == vif.address


def _text(parent: ET.Element, tag: str, text: str) -> None:
    ET.SubElement(parent, tag).text = text
