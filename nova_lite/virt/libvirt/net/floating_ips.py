"""Floating addresses of this host's guests: the machine has each as a /32, and translates it in two steps.

Guests of several realms may have one address. So the host translates a floating address to one on the link to the
guest's realm, which no other floating address has, and the realm translates that to the guest's address. Connections
from the guest get the floating address as their source in the same way. An address that came from another host is
announced, if the interface is a physical one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from nova_lite.base import exceptions, files, ip
from nova_lite.objects import VIF
from nova_lite.virt import images
from nova_lite.virt.libvirt.net import links, namespaces, nft, realms
from nova_lite.virt.libvirt.net.links import Links
from nova_lite.virt.libvirt.net.names import OUTSIDE, floating_table, realm_name, uplink_name

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

    def present(self, addresses: set[str]) -> set[str]:
        """Return which of these addresses the interface has. Raises `VirtDriverError`."""
        if not addresses:
            return set()
        words = images.run("ip", "-4", "-oneline", "address", "show", "dev", self._interface).decode().split()
        return {address for address in addresses if f"{address}/32" in words}

    def assign(self, addresses: set[str]) -> None:
        """Set the addresses of this machine to exactly these. Raises `VirtDriverError`."""
        if addresses == self._here:
            return
        before = self._read()
        if addresses | before:
            files.write_atomically(self._path, msgspec.json.encode(sorted(addresses | before)), writer=self._host)
        here = self.present(addresses | before)
        for address in sorted(before & here - addresses):
            images.run("ip", "address", "del", f"{address}/32", "dev", self._interface)
        for address in sorted(addresses - (self._here or set())):
            images.run("ip", "address", "replace", f"{address}/32", "dev", self._interface)
            if address not in here:
                announce(self._interface, address)
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


def announce(interface: str, address: str) -> None:
    """Send a gratuitous ARP request, so that neighbours replace another MAC address by this one's."""
    if interface == "lo":
        return
    try:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ARP)) as raw:
            raw.bind((interface, _ARP))
            raw.send(gratuitous_arp(raw.getsockname()[4], address))
    except OSError as error:
        LOG.warning("Address %s could not be announced on %s: %s", address, interface, error)


def gratuitous_arp(mac_address: bytes, address: str) -> bytes:
    """Return the whole frame."""
    packed = ip.parse4(address).packed
    head = b"\xff" * 6 + mac_address + _ARP.to_bytes(2, "big")
    return head + bytes.fromhex("0001080006040001") + mac_address + packed + bytes(6) + packed


class Lead(NamedTuple):
    """Way of a floating address to a guest: address on the link to the guest's realm, and the guest's own address."""

    floating: str
    link: str
    fixed: str


class Translations:
    """Ways of floating addresses into realms. ``numbers``: of this machine's links."""

    def __init__(self, host: str, numbers: Links) -> None:
        self._table = floating_table(host)
        self._numbers = numbers
        self._loaded: dict[str, str] = {}
        self._leads: dict[tuple[str, str], Lead] = {}

    def assign(self, wanted: dict[str, VIF]) -> list[Lead]:
        """Set the ways to exactly these, by floating address. Returns them. Raises `VirtDriverError`.

        An address whose guest has no realm here is left out.
        """
        realm_of = {address: realms.realm_of(vif.network.id) for address, vif in wanted.items()}
        leads: dict[tuple[str, str], Lead] = {}
        if not wanted and not self._leads:
            return []
        with self._numbers.lock():
            for address, realm_id in realm_of.items():
                if realm_id is not None:
                    link = links.address(self._numbers.number(f"floating:{address}"))
                    leads[realm_id, address] = Lead(address, link, _fixed(wanted[address]))
            for realm_id in sorted({realm_id for realm_id, _ in (*leads, *self._leads)}):
                self._load(realm_id, [lead for (other, _), lead in sorted(leads.items()) if other == realm_id])
            kept = {address for _, address in leads}
            for (_, address), lead in self._leads.items():
                if address not in kept:
                    with contextlib.suppress(exceptions.VirtDriverError):  # it has gone with its device
                        namespaces.ip_batch([f"route delete {lead.link}/32"])
                    self._numbers.forget(f"floating:{address}")
        self._leads = leads
        return [lead for _, lead in sorted(leads.items())]

    def _load(self, realm_id: str, leads: list[Lead]) -> None:
        text = realm_ruleset(self._table, leads)
        name, uplink = realm_name(realm_id), uplink_name(realm_id)
        way = f"via {links.address(self._numbers.number(realm_id))} dev {uplink}"
        known = f"{way} {text}"
        if self._loaded.get(realm_id) == known:
            return
        if leads or namespaces.exists(name):
            nft.apply(text, name)
            namespaces.ip_batch(f"route replace {lead.link}/32 {way}" for lead in leads)
        self._loaded[realm_id] = known


def realm_ruleset(table: str, leads: list[Lead]) -> str:
    """Return the nft commands that replace a realm's table: link addresses are translated to those of guests."""
    gone = f"add table inet {table}\ndelete table inet {table}\n"
    if not leads:
        return gone
    inward = ", ".join(f"{lead.link} : {lead.fixed}" for lead in leads)
    outward = ", ".join(f"{lead.fixed} : {lead.link}" for lead in {lead.fixed: lead for lead in leads}.values())
    return f"""{gone}table inet {table} {{
  chain floating_in {{
    type nat hook prerouting priority dstnat - 5; policy accept;
    iifname "{OUTSIDE}" dnat ip to ip daddr map {{ {inward} }}
  }}
  chain floating_out {{
    type nat hook postrouting priority srcnat - 10; policy accept;
    oifname "{OUTSIDE}" snat ip to ip saddr map {{ {outward} }}
  }}
}}
"""


def ruleset(table: str, leads: Iterable[Lead]) -> str:
    """Return the address translation rules of the host, for the table of the security groups."""
    known = list(leads)
    if not known:
        return ""
    inward = ", ".join(f"{lead.floating} : {lead.link}" for lead in known)
    outward = ", ".join(f"{lead.link} : {lead.floating}" for lead in known)
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
    snat ip to ip saddr map {{ {outward} }}
  }}
}}
"""


def lead(item: tuple[str, VIF]) -> tuple[str, VIF]:
    """Return a floating address, in its usual form, with its interface. Raises ValueError unless both are valid."""
    address, vif = item
    _fixed(vif)
    return nft.address(ip.parse4(address)), vif


def _fixed(vif: VIF) -> str:
    return nft.address(ip.parse4(vif.address))
