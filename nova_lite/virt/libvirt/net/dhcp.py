"""Giving back a DHCP lease on behalf of a guest that is gone.

A guest whose power is cut never says that it is done with its address. dnsmasq would keep the lease until it ends, and
list it. So we send the DHCPRELEASE (RFC 2131, 4.4.6) that the guest would have sent, from this host and out of the
bridge's own interface.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import json
import logging
import os
import secrets
import socket
import struct
from collections.abc import Callable

LOG = logging.getLogger(__name__)

#: Where libvirt keeps what belongs to its dnsmasq processes; they run as another user, who can read it.
DIRECTORY = "/var/lib/libvirt/dnsmasq"

_SERVER_PORT = 67
_MAGIC = b"\x63\x82\x53\x63"
_SIOCGIFADDR = 0x8915


def release(bridge: str, address: str, wanted: Callable[[str], bool], directory: str = DIRECTORY) -> None:
    """Release the leases of ``address`` on ``bridge`` held by MAC addresses (in small letters) that are ``wanted``.

    A lease ends by itself in any case, so a failure is only logged.
    """
    for lease in find_leases(os.path.join(directory, f"{bridge}.status"), address):
        mac_address = lease["mac-address"].lower()
        if wanted(mac_address):
            _send_release(bridge, mac_address, address, lease.get("client-id"))


def _send_release(bridge: str, mac_address: str, address: str, client_id: str | None) -> None:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            server = _interface_address(sender, bridge)
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, bridge.encode() + b"\0")
            sender.sendto(release_packet(mac_address, address, server, client_id), (server, _SERVER_PORT))
    except OSError as error:
        LOG.warning("The DHCP lease of %s on %s stays until it ends: %s", address, bridge, error)


def find_leases(status_path: str, address: str) -> list[dict[str, str]]:
    """In libvirt's list of a bridge's leases; the list is rewritten whole, so it may be caught missing or empty."""
    with contextlib.suppress(OSError, ValueError):
        with open(status_path, encoding="utf-8") as file:
            leases = json.load(file)
        return [lease for lease in leases if lease.get("ip-address") == address and lease.get("mac-address")]
    return []


def release_packet(mac_address: str, address: str, server: str, client_id: str | None) -> bytes:
    """``client_id``: as libvirt lists it, bytes in hex with colons."""
    hardware = bytes.fromhex(mac_address.replace(":", ""))
    client = ipaddress.IPv4Address(address).packed
    request, ethernet = 1, 1
    header = struct.pack("!BBBB4sHH", request, ethernet, len(hardware), 0, secrets.token_bytes(4), 0, 0)
    addresses = client + bytes(12)
    names = hardware.ljust(16, b"\0") + bytes(64 + 128)
    options = b"\x35\x01\x07" + b"\x36\x04" + ipaddress.IPv4Address(server).packed
    if client_id:
        identifier = bytes.fromhex(client_id.replace(":", ""))
        options += bytes([61, len(identifier)]) + identifier
    return (header + addresses + names + _MAGIC + options + b"\xff").ljust(300, b"\0")


def _interface_address(any_socket: socket.socket, interface: str) -> str:
    answer = fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
    return socket.inet_ntoa(answer[20:24])
