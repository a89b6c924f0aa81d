"""Networks and bridges that existed before: they are used only if they are those of the network.

A guest on a bridge with another subnet would get no address, and nothing would say why.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import xml.etree.ElementTree as ET
from typing import Any

from nova_lite.base import exceptions, ip
from nova_lite.objects import Network
from nova_lite.virt import images
from nova_lite.virt.libvirt.connection import Connection
from nova_lite.virt.libvirt.net.names import PREFIX, bridge_name, network_name

NET = "/sys/class/net"


def check_network(connection: Connection, network: Network, found: Any) -> None:
    """Check libvirt's network of this name. Raises `VirtDriverError` if its bridge or subnet is another."""
    root = parsed(connection, found)
    bridge = root.find("bridge")
    name = "" if bridge is None else bridge.get("name", "")
    if name != bridge_name(network):
        raise _differs(network, f"has bridge {name}", bridge_name(network))
    subnets = [_subnet(element) for element in root.findall("ip") if element.get("family", "ipv4") == "ipv4"]
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


def _subnet(element: ET.Element) -> ipaddress.IPv4Network:
    length = element.get("netmask") or element.get("prefix")
    return ip.parse_network4(f"{element.get('address')}/{length}", strict=False)


def _differs(network: Network, what: str, wanted: str) -> exceptions.VirtDriverError:
    name = network_name(network)
    return exceptions.VirtDriverError(
        reason=f"libvirt's network {name} {what}, and network {network.name} has {wanted}. Remove it when no guest "
        f"uses it: virsh net-destroy {name}; virsh net-undefine {name}"
    )


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
