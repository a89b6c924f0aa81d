"""Network namespaces of load balancers, and their addresses.

A namespace has one interface, whose other end is on the bridge of the network like a guest's tap device. Its address
has a lifetime: the kernel removes it when the host's lease ends, whatever becomes of the daemon. The kernel also
announces the address when the interface comes up, so that the network learns where it is.
"""

from __future__ import annotations

import contextlib
import os
import uuid

from nova_lite.base import exceptions, ip
from nova_lite.objects import VIF
from nova_lite.virt import images
from nova_lite.virt.libvirt.net import namespaces, nft
from nova_lite.virt.libvirt.net.names import bridge_name, tap_name

#: Prefix of the namespaces' names, before the id of the load balancer.
PREFIX = "nova-lite-lb-"

_NET = "/sys/class/net"
_INTERFACE = "eth0"
#: A process may bind an address that comes later, and low ports without a right. Nothing but IPv4 is spoken.
_SETTINGS = (
    "ipv4/ip_nonlocal_bind=1",
    "ipv4/ip_unprivileged_port_start=0",
    "ipv6/conf/all/disable_ipv6=1",
    "ipv6/conf/default/disable_ipv6=1",
)


def name_of(balancer_id: str) -> str:
    return f"{PREFIX}{uuid.UUID(balancer_id)}"


def inside(balancer_id: str) -> list[str]:
    """Return the beginning of commands that run in the namespace."""
    return [*namespaces.inside(name_of(balancer_id))]


def make(balancer_id: str) -> None:
    """Make the namespace, unless it exists. Raises `VirtDriverError`."""
    name = name_of(balancer_id)
    if not namespaces.exists(name):
        namespaces.add(name)
    namespaces.set_up(_SETTINGS, name)
    images.run("ip", "-n", name, "link", "set", "lo", "up")


def remove(balancer_id: str) -> None:
    """Remove the namespace with its interface. Raises `VirtDriverError`."""
    if namespaces.exists(name_of(balancer_id)):
        namespaces.remove(name_of(balancer_id))


def _tap(vif: VIF) -> str:
    """Return the name of the other end. Raises ValueError."""
    nft.interface(tap_name(vif))
    return tap_name(vif)


def is_connected(vif: VIF) -> bool:
    """Check whether the interface exists."""
    return os.path.exists(f"{_NET}/{tap_name(vif)}")


def connect(balancer_id: str, vif: VIF, seconds: int) -> None:
    """Give the namespace its interface, on a bridge that exists, and the address for some seconds.

    Raises `VirtDriverError`, or ValueError for an invalid address.
    """
    name, tap, bridge = name_of(balancer_id), _tap(vif), bridge_name(vif.network)
    nft.interface(bridge)
    if not is_connected(vif):
        pair = ("type", "veth", "peer", "name", _INTERFACE, "address", nft.mac(vif.mac_address), "netns", name)
        images.run("ip", "link", "add", tap, "mtu", str(int(vif.network.mtu)), *pair)
        images.run("ip", "-n", name, "link", "set", _INTERFACE, "mtu", str(int(vif.network.mtu)))
        namespaces.set_up([f"ipv4/conf/{_INTERFACE}/arp_notify=1"], name)
    if os.path.basename(os.path.realpath(f"{_NET}/{tap}/master")) != bridge:
        images.run("ip", "link", "set", tap, "master", bridge, "up")
    prefix = ip.parse_network4(vif.network.cidr, strict=False).prefixlen
    address = f"{ip.parse4(vif.address)}/{prefix}"
    lifetime = ("valid_lft", str(seconds), "preferred_lft", str(seconds))
    images.run("ip", "-n", name, "address", "replace", address, "dev", _INTERFACE, *lifetime)
    images.run("ip", "-n", name, "link", "set", _INTERFACE, "up")
    if vif.network.gateway:
        gateway = str(ip.parse4(vif.network.gateway))
        images.run("ip", "-n", name, "route", "replace", "default", "via", gateway, "dev", _INTERFACE)


def disconnect(vif: VIF) -> None:
    """Remove the interface with its address. Raises `VirtDriverError`."""
    if is_connected(vif):
        with contextlib.suppress(exceptions.VirtDriverError):
            images.run("ip", "link", "delete", _tap(vif))
        if is_connected(vif):
            raise exceptions.VirtDriverError(reason=f"the interface {tap_name(vif)} cannot be removed")
