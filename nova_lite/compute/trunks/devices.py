"""VLANs of guests' interfaces on bridges.

The kernel gives frames with the tag of a known VLAN to the VLAN's device, and not to the bridge of the interface. The
device is on the bridge of the subport's network, and has the name of a tap device: so packet filters, limits and
anti-spoofing guard it as they guard an interface. It goes with the interface.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket

from nova_lite.base import exceptions
from nova_lite.network.trunks import Assignment
from nova_lite.objects import VIF
from nova_lite.virt import images
from nova_lite.virt.libvirt.net import nft
from nova_lite.virt.libvirt.net.names import bridge_name, tap_name, tap_of

_NET = "/sys/class/net"
#: Group of messages about links (``linux/rtnetlink.h``).
_LINKS = 1


class LinkEvents:
    """Messages of the kernel about network devices that come, go or change."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.bind((0, _LINKS))
        self._socket.setblocking(False)

    def any(self) -> bool:
        """Check whether there were messages since the last call."""
        found = False
        while True:
            try:
                self._socket.recv(65536)
            except BlockingIOError:
                return found
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # messages are lost
                    raise
            found = True


def taps() -> set[str]:
    """Return the names of the interfaces of guests on this machine."""
    return {name for name in os.listdir(_NET) if name.startswith(tap_of(""))}


def is_connected(item: Assignment) -> bool:
    """Check whether the device of a subport is on its bridge, and leads to the interface that the guest has now."""
    device, parent = tap_name(item.vif), tap_of(item.parent_id)
    try:
        own, other = _number(device, "iflink"), _number(parent, "ifindex")
    except OSError:
        return False
    return own == other and os.path.basename(os.path.realpath(f"{_NET}/{device}/master")) == bridge_name(
        item.vif.network
    )


def _number(device: str, name: str) -> int:
    with open(f"{_NET}/{device}/{name}") as file:
        return int(file.read())


def connect(item: Assignment) -> bool:
    """Connect a subport whose filters are loaded. Return False while its guest has no interface.

    Raises `VirtDriverError`, or ValueError for an invalid name.
    """
    if is_connected(item):
        return True
    device, parent, bridge = tap_name(item.vif), tap_of(item.parent_id), bridge_name(item.vif.network)
    for name in (device, parent, bridge):
        nft.interface(name)
    disconnect(item.vif)
    if not os.path.exists(f"{_NET}/{parent}"):
        return False
    # The kernel refuses a larger MTU than that of the interface.
    mtu = min(int(item.vif.network.mtu), _number(parent, "mtu"))
    kind = ("type", "vlan", "id", str(int(item.segmentation_id)))
    images.run("ip", "link", "add", "link", parent, "name", device, "mtu", str(mtu), *kind)
    images.run("ip", "link", "set", "dev", device, "addrgenmode", "none", "master", bridge, "up")
    return True


def disconnect(vif: VIF) -> None:
    """Remove the device of a subport. Raises `VirtDriverError`."""
    device = tap_name(vif)
    if os.path.exists(f"{_NET}/{device}"):
        with contextlib.suppress(exceptions.VirtDriverError):
            images.run("ip", "link", "delete", device)
        if os.path.exists(f"{_NET}/{device}"):
            raise exceptions.VirtDriverError(reason=f"the interface {device} cannot be removed")
