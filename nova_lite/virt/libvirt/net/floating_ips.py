"""Floating addresses of this host's guests: the machine has each as a /32, and translates it to the guest's address.

Connections from the guest get the floating address as their source. An address that came from another host is
announced, if the interface is a physical one.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Collection, Mapping
from types import MappingProxyType

import msgspec

from nova_lite.base import files, ip
from nova_lite.objects import VIF
from nova_lite.virt import images
from nova_lite.virt.libvirt.net import nft
from nova_lite.virt.libvirt.net.names import bridge_name

LOG = logging.getLogger(__name__)

_ARP = 0x0806


class FloatingAddresses:
    """Manages the addresses of this machine. They are stored in a file before they are added, so that none is
    forgotten."""

    def __init__(self, directory: str, host: str, interface: str) -> None:
        self._host = host
        self._path = os.path.join(directory, f"floating@{host}.json")
        self._interface = interface
        self._here: set[str] | None = None

    def assign(self, addresses: set[str]) -> None:
        """Set the addresses of this machine to exactly these. Raises `VirtDriverError`."""
        if addresses == self._here:
            return
        before = self._read()
        if addresses | before:
            files.write_atomically(self._path, msgspec.json.encode(sorted(addresses | before)), writer=self._host)
        for address in sorted(before - addresses):
            # Added first, so that the removal succeeds even if the address is missing.
            images.run("ip", "address", "replace", f"{address}/32", "dev", self._interface)
            images.run("ip", "address", "del", f"{address}/32", "dev", self._interface)
        for address in sorted(addresses - (self._here or set())):
            images.run("ip", "address", "replace", f"{address}/32", "dev", self._interface)
            if address not in before:
                self._announce(address)
        if addresses | before:
            files.write_atomically(self._path, msgspec.json.encode(sorted(addresses)), writer=self._host)
        self._here = set(addresses)

    def _read(self) -> set[str]:
        try:
            with open(self._path, "rb") as file:
                stored = msgspec.json.decode(file.read(), type=list[str])
        except FileNotFoundError:
            return set()
        except (OSError, ValueError) as error:
            LOG.warning("%s cannot be read, so former addresses stay on %s: %s", self._path, self._interface, error)
            return set()
        return {address for address in stored if ip.is_address(address)}

    def _announce(self, address: str) -> None:
        """Send a gratuitous ARP request, so that neighbours replace another host's MAC address by this one's."""
        if self._interface == "lo":
            return
        try:
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ARP)) as raw:
                raw.bind((self._interface, _ARP))
                raw.send(gratuitous_arp(raw.getsockname()[4], address))
        except OSError as error:
            LOG.warning("Floating address %s could not be announced on %s: %s", address, self._interface, error)


def gratuitous_arp(mac_address: bytes, address: str) -> bytes:
    """Return the whole frame."""
    packed = ip.parse4(address).packed
    head = b"\xff" * 6 + mac_address + _ARP.to_bytes(2, "big")
    return head + bytes.fromhex("0001080006040001") + mac_address + packed + bytes(6) + packed


def ruleset(table: str, leads: dict[str, VIF], connected: Mapping[str, Collection[str]] = MappingProxyType({})) -> str:
    """Return the address translation rules, for the table of the security groups.

    ``leads``: interface by floating address. ``connected``: by network, bridges of networks on the same router. Guests
    show them their own addresses.
    """
    if not leads:
        return ""
    pairs = {nft.address(ip.parse4(address)): vif for address, vif in sorted(leads.items())}
    inward = ", ".join(f"{address} : {_fixed(vif)}" for address, vif in pairs.items())
    outward = "\n".join(
        f"    oifname != {_inside(vif, connected)} ip saddr {_fixed(vif)} snat ip to {address}"
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


def _inside(vif: VIF, connected: Mapping[str, Collection[str]]) -> str:
    bridges = [bridge_name(vif.network), *connected.get(vif.network.id, ())]
    names = ", ".join(map(nft.interface, bridges))
    return names if len(bridges) == 1 else f"{{ {names} }}"


def lead(item: tuple[str, VIF]) -> tuple[str, VIF]:
    """Return a floating address, in its usual form, with its interface. Raises ValueError unless both are valid."""
    address, vif = item
    _fixed(vif)
    nft.interface(bridge_name(vif.network))
    return nft.address(ip.parse4(address)), vif


def _fixed(vif: VIF) -> str:
    return nft.address(ip.parse4(vif.address))
