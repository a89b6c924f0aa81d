"""Networks and bridges that existed before: they are used only if they are those of the network.

A guest on a bridge with another subnet would get no address, and nothing would say why.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import logging
import os
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import libvirt

from nova_lite.base import exceptions, files, ip
from nova_lite.objects import Network
from nova_lite.virt import images
from nova_lite.virt.libvirt.connection import Connection
from nova_lite.virt.libvirt.net import dhcp
from nova_lite.virt.libvirt.net.names import PREFIX, bridge_name, network_name, tunnel_name

LOG = logging.getLogger(__name__)

NET = "/sys/class/net"
#: libvirt's code for a network that another daemon has just removed.
_GONE = (libvirt.VIR_ERR_NO_NETWORK,)


def check_network(network: Network, root: ET.Element) -> None:
    """Check the XML of libvirt's network of this name. Raises `VirtDriverError` if its bridge or subnet is another."""
    bridge = root.find("bridge")
    name = "" if bridge is None else bridge.get("name", "")
    if name != bridge_name(network):
        raise _differs(network, f"has bridge {name}", bridge_name(network))
    subnets = _subnets(root)
    if ip.parse_network(network.cidr, strict=False) not in subnets:
        raise _differs(network, f"has subnet {', '.join(map(str, subnets)) or '(none)'}", network.cidr)


def parsed(connection: Connection, found: Any, flags: int = 0) -> ET.Element:
    """Return the XML of libvirt's network: as it runs, or with the flag for inactive ones as it is defined."""
    return ET.fromstring(connection.call(found.XMLDesc, flags))  # noqa: S314 libvirt's own


def move_bridge(bridge: str, cidr: ipaddress.IPv4Network, address: str) -> None:
    """Make ``address`` the only one of this subnet that the bridge has. Raises `VirtDriverError`.

    The new address comes first, so that the bridge's neighbours and routes stay.
    """
    known = [item for item in ipv4_addresses(bridge) if item.ip in cidr]
    obsolete = [item for item in known if str(item.ip) != address]
    add = ("ip", "address", "replace", f"{address}/{cidr.prefixlen}", "broadcast", "+", "dev", bridge)
    if len(obsolete) == len(known):
        with contextlib.suppress(OSError), open(f"/proc/sys/net/ipv4/conf/{bridge}/promote_secondaries", "w") as file:
            file.write("1")
        images.run(*add)
    for item in obsolete:
        images.run("ip", "address", "delete", str(item), "dev", bridge)
    if obsolete:
        images.run(*add)  # a kernel that does not promote it has removed it with the first one


def set_mtu(bridge: str, mtu: int) -> None:
    """Give a bridge, and all that is in it, this MTU. Raises `VirtDriverError`."""
    for name in (*_members(bridge), bridge):
        with contextlib.suppress(FileNotFoundError), open(f"{NET}/{name}/mtu") as file:
            if int(file.read()) != mtu:
                images.run("ip", "link", "set", "dev", name, "mtu", str(mtu))


def defined_mtu(root: ET.Element) -> int | None:
    """Return the MTU in libvirt's XML of a network."""
    size = root.find("mtu[@size]")
    return None if size is None else int(size.get("size", "0"))


def _subnets(root: ET.Element) -> list[ipaddress.IPv4Network]:
    return [_subnet(element) for element in root.findall("ip") if element.get("family", "ipv4") == "ipv4"]


def _subnet(element: ET.Element) -> ipaddress.IPv4Network:
    length = element.get("netmask") or element.get("prefix")
    return ip.parse_network4(f"{element.get('address')}/{length}", strict=False)


def _differs(network: Network, what: str, wanted: str) -> exceptions.VirtDriverError:
    name = network_name(network)
    return exceptions.VirtDriverError(
        reason=f"libvirt's network {name} {what}, and network {network.name} has {wanted}. Remove it when no guest "
        f"uses it: virsh net-destroy {name}; virsh net-undefine {name}"
    )


def remove_overlapping(connection: Connection, network: Network, is_reserved: Callable[[str], bool]) -> list[str]:
    """Remove our other libvirt networks with addresses of this network. Return their names.

    ``is_reserved``: whether the network of this name has an address for a guest.

    They are of networks that the cloud has deleted: a host does not learn of that. libvirt would not start the new
    one beside them. Raises `VirtDriverError` if guests use one.
    """
    cidr, removed = ip.parse_network(network.cidr, strict=False), []
    for other in connection.connect_call("listAllNetworks", 0):
        name = other.name()
        if not name.startswith(PREFIX) or name == network_name(network):
            continue
        xml = connection.call_unless(_GONE, other.XMLDesc, 0)
        if xml is None:
            continue
        root = ET.fromstring(xml)  # noqa: S314 libvirt's own
        if not any(subnet.overlaps(cidr) for subnet in _subnets(root)):
            continue
        bridges = [element.get("name", "") for element in root.findall("bridge")]
        if is_reserved(name) or any(map(_has_guests, bridges)):
            raise exceptions.VirtDriverError(
                reason=f"network {network.name} ({cidr}) has addresses of libvirt's network {name}, which guests use"
            )
        _remove(connection, other, bridges)
        LOG.info("Network %s is removed: no guest uses it, and network %s has its addresses", name, network.id)
        removed.append(name)
    return removed


def remove_unless_used(connection: Connection, name: str) -> bool:
    """Remove libvirt's network of this name, unless its bridge has interfaces of guests. Return whether it is gone."""
    found = connection.call_unless(_GONE, connection.get().networkLookupByName, name)
    if found is not None:
        bridge = connection.call_unless(_GONE, found.bridgeName)
        if bridge is not None and _has_guests(bridge):
            return False
        _remove(connection, found, [bridge] if bridge else [])
    return True


def _remove(connection: Connection, found: Any, bridges: list[str]) -> None:
    """Remove a network of libvirt, and the list of leases that it leaves for each of its bridges."""
    connection.call_unless((*_GONE, libvirt.VIR_ERR_OPERATION_INVALID), found.destroy)
    connection.call_unless(_GONE, found.undefine)
    for bridge in bridges:
        files.remove(os.path.join(dhcp.DIRECTORY, f"{bridge}.status"))


def _has_guests(bridge: str) -> bool:
    """Check whether a bridge has interfaces of guests."""
    return any(not name.startswith(tunnel_name()) for name in _members(bridge))


def _members(bridge: str) -> list[str]:
    return os.listdir(f"{NET}/{bridge}/brif") if os.path.exists(f"{NET}/{bridge}/brif") else []


def has_bridge(network: Network) -> bool:
    return os.path.exists(f"{NET}/{bridge_name(network)}/bridge")


def check_bridge(connection: Connection, network: Network) -> None:
    """Check an existing bridge that is not of libvirt's network of this name.

    Raises `VirtDriverError` if it belongs to another of our networks, or has only addresses of other subnets. A bridge
    without addresses is the operator's.
    """
    bridge = bridge_name(network)
    for other in connection.connect_call("listAllNetworks", 0):
        if other.name().startswith(PREFIX) and connection.call(other.bridgeName) == bridge:
            raise exceptions.VirtDriverError(
                reason=f"bridge {bridge} of network {network.name} belongs to libvirt's network {other.name()}. Remove "
                f"that when no guest uses it: virsh net-destroy {other.name()}; virsh net-undefine {other.name()}"
            )
    cidr = ip.parse_network(network.cidr, strict=False)
    addresses = ipv4_addresses(bridge)
    if addresses and not any(address.ip in cidr for address in addresses):
        others = ", ".join(map(str, addresses))
        raise exceptions.VirtDriverError(
            reason=f"bridge {bridge} exists with {others}, and network {network.name} has {cidr}. Give the network "
            "another bridge, or remove this one"
        )


def ipv4_addresses(device: str) -> list[ipaddress.IPv4Interface]:
    shown = json.loads(images.run("ip", "-json", "-4", "address", "show", "dev", device) or b"[]")
    return [
        ip.parse_interface4(f"{address['local']}/{address['prefixlen']}")
        for link in shown
        for address in link.get("addr_info", [])
    ]
