"""Floating addresses of this host's guests: the machine has each as a /32, and its packets are led to the guest.

What goes out of the guest's network has the floating address; the answers find back. One that came from another host is
announced, where the interface is a real one.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket

import msgspec

from nova_lite.base import exceptions, files
from nova_lite.objects import VIF
from nova_lite.virt import images
from nova_lite.virt.libvirt.net.names import bridge_name

LOG = logging.getLogger(__name__)

_ARP = 0x0806


class FloatingAddresses:
    """What of these the machine has is kept in a file, written before it gets one: nothing is ever left that nobody
    knows."""

    def __init__(self, directory: str, host: str, interface: str) -> None:
        self._path = os.path.join(directory, f"floating@{host}.json")
        self._interface = interface
        self._here: set[str] | None = None

    def have(self, wanted: set[str]) -> None:
        """These and no others. Raises `VirtDriverError`."""
        if wanted == self._here:
            return
        before = self._read()
        if wanted | before:
            files.write_atomically(self._path, msgspec.json.encode(sorted(wanted | before)))
        for address in sorted(before - wanted):
            images.run("ip", "address", "replace", f"{address}/32", "dev", self._interface)  # so that there is one
            images.run("ip", "address", "del", f"{address}/32", "dev", self._interface)
        for address in sorted(wanted - (self._here or set())):
            images.run("ip", "address", "replace", f"{address}/32", "dev", self._interface)
            if address not in before:
                self._announce(address)
        if wanted | before:
            files.write_atomically(self._path, msgspec.json.encode(sorted(wanted)))
        self._here = set(wanted)

    def _read(self) -> set[str]:
        try:
            with open(self._path, "rb") as file:
                return set(msgspec.json.decode(file.read(), type=list[str]))
        except FileNotFoundError:
            return set()

    def _announce(self, address: str) -> None:
        """A gratuitous ARP request, so that neighbours that knew another host's MAC address learn this one's."""
        if self._interface == "lo":
            return
        try:
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ARP)) as raw:
                raw.bind((self._interface, _ARP))
                raw.send(gratuitous_arp(raw.getsockname()[4], address))
        except OSError as error:
            LOG.warning("Floating address %s could not be announced on %s: %s", address, self._interface, error)


def gratuitous_arp(mac_address: bytes, address: str) -> bytes:
    """The whole frame."""
    packed = ipaddress.IPv4Address(address).packed
    head = b"\xff" * 6 + mac_address + _ARP.to_bytes(2, "big")
    return head + bytes.fromhex("0001080006040001") + mac_address + packed + bytes(6) + packed


def ruleset(table: str, leads: dict[str, VIF]) -> str:
    """``leads``: floating address to interface. More of the table that filters."""
    if not leads:
        return ""
    pairs = {str(ipaddress.IPv4Address(address)): vif for address, vif in sorted(leads.items())}
    inward = ", ".join(f"{address} : {_fixed(vif)}" for address, vif in pairs.items())
    outward = "\n".join(
        f'    oifname != "{bridge_name(vif.network)}" ip saddr {_fixed(vif)} snat ip to {address}'
        for address, vif in pairs.items()
    )
    return f"""table inet {table} {{
  chain floating_in {{
    type nat hook prerouting priority dstnat; policy accept;
    dnat ip to ip daddr map {{ {inward} }}
  }}
  chain floating_local {{
    type nat hook output priority -100; policy accept;
    dnat ip to ip daddr map {{ {inward} }}
  }}
  chain floating_out {{
    type nat hook postrouting priority srcnat - 10; policy accept;
{outward}
  }}
}}
"""


def _fixed(vif: VIF) -> str:
    if vif.version != 4:
        raise exceptions.VirtDriverError(reason=f"{vif.address} is not IPv4: no floating address leads there")
    return str(ipaddress.IPv4Address(vif.address))
