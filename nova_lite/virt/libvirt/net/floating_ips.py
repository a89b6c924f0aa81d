"""Floating addresses of this host's guests, and addresses of their routers: the machine has each as a /32.

A floating address is translated in two steps.

A port forwarding leads from some ports of such an address to a guest, perhaps of another host. The host translates the
address, and the realm the ports with it.

Guests of several realms may have one address. So the host translates a floating address to one on the link to the
guest's realm, which no other floating address has, and the realm translates that to the guest's address. Connections
from the guest get the floating address as their source in the same way. Others that leave the realm of a router get
the address of the router, if this host has one. An address that came from another host is announced, if the interface
is a physical one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from nova_lite.base import exceptions, files, ip
from nova_lite.objects import VIF, HostForwarding, HostRouter, PortFilters
from nova_lite.objects.security_group import WITH_PORTS
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

    def keep(self, addresses: Collection[str], seconds: int | None) -> None:
        """Keep some of the addresses for some seconds only: then the kernel removes them. None: keep them permanently.

        Raises `VirtDriverError`.
        """
        life = "forever" if seconds is None else str(max(1, seconds))
        lines = [
            f"address replace {address}/32 dev {self._interface} valid_lft {life} preferred_lft {life}\n"
            for address in sorted((self._here or set()) & set(addresses))
        ]
        if lines:
            images.run("ip", "-batch", "-", text="".join(lines))

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


def held(filters: PortFilters) -> set[str]:
    """Return the addresses that the filters give to this host: floating ones, and those of routers."""
    found = {*filters.floating.values(), *(item.floating for item in filters.forwardings if item.is_held)}
    return found | {router.address for router in filters.routers or () if router.address}


def held_without(filters: PortFilters, gone: Iterable[VIF], left: Iterable[VIF]) -> set[str]:
    """Return the addresses that this host keeps without the interfaces that are ``gone``. ``left``: all others."""
    ports = {vif.id: vif.network.id for vif in gone}
    ended = {*ports.values()} - {vif.network.id for vif in left}
    lost = {address for key, address in filters.floating.items() if key.partition("/")[0] in ports}
    lost |= {item.floating for item in filters.forwardings if item.is_held and item.port_id in ports}
    for router in filters.routers or ():
        networks = {network.id for network in router.networks}
        if networks & ended and not networks & {vif.network.id for vif in left}:
            lost.add(router.address)
    return held(filters) - lost


def only(filters: PortFilters, addresses: Collection[str]) -> PortFilters:
    """Return the filters without this host's other addresses."""
    floating = {port_id: address for port_id, address in filters.floating.items() if address in addresses}
    forwardings = [
        item if item.floating in addresses else msgspec.structs.replace(item, is_held=False)
        for item in filters.forwardings
    ]
    routers = filters.routers and [
        router if router.address in addresses else msgspec.structs.replace(router, address="")
        for router in filters.routers
    ]
    return msgspec.structs.replace(filters, floating=floating, forwardings=forwardings, routers=routers)


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


class Forward(NamedTuple):
    """Way of some ports of a floating address: ``link`` is the address on the link to the guest's realm."""

    floating: str
    link: str
    fixed: str
    protocol: str
    external: tuple[int, int]
    internal: tuple[int, int]

    def ports(self) -> str:
        """Return the match of the outer ports, which are the same on the link."""
        return f"{self.protocol} dport {port_range(self.external)}"

    def target(self) -> str:
        """Return the translation of the realm. nft would map a range to another one by no order."""
        if self.external == self.internal:
            return f"dnat ip to {self.fixed}"
        first, last = self.internal
        if first == last:
            return f"dnat ip to {self.fixed}:{first}"
        pairs = zip(range(self.external[0], self.external[1] + 1), range(first, last + 1), strict=True)
        found = ", ".join(f"{outer} : {self.fixed} . {inner}" for outer, inner in pairs)
        return f"dnat ip to {self.protocol} dport map {{ {found} }}"


#: Way of a whole address, or of some of its ports.
Way: TypeAlias = Lead | Forward


class Translations:
    """Ways of floating addresses into realms. ``numbers``: of this machine's links."""

    def __init__(self, host: str, numbers: Links) -> None:
        self._table = floating_table(host)
        self._numbers = numbers
        self._loaded: dict[str, str] = {}
        self._ways: dict[tuple[str, str], list[Way]] = {}

    def assign(self, wanted: Mapping[str, VIF], forwardings: Iterable[HostForwarding] = ()) -> list[Way]:
        """Set the ways to exactly these, by floating address and by forwarding. Returns them. Raises `VirtDriverError`.

        An address whose guest has no realm here is left out, and so is a forwarding whose router has none.
        """
        known = realms.used() if forwardings else set()
        targets: dict[tuple[str, str], list[VIF | HostForwarding]] = {}
        for address, vif in wanted.items():
            if (realm_id := realms.realm_of(vif.network.id)) is not None:
                targets[realm_id, address] = [vif]
        for item in forwardings:
            if item.router_id in known:
                targets.setdefault((item.router_id, item.floating), []).append(item)
        if not wanted and not targets and not self._ways:
            return []
        with self._numbers.lock():
            ways: dict[tuple[str, str], list[Way]] = {}
            for (realm_id, address), found in targets.items():
                link = links.address(self._numbers.number(f"floating:{address}"))
                ways[realm_id, address] = [_way(address, link, target) for target in found]
            for realm_id in sorted({realm_id for realm_id, _ in (*ways, *self._ways)}):
                self._load(
                    realm_id, [way for (other, _), mine in sorted(ways.items()) if other == realm_id for way in mine]
                )
            kept = {address for _, address in ways}
            for (_, address), (way, *_) in self._ways.items():
                if address not in kept:
                    with contextlib.suppress(exceptions.VirtDriverError):  # it has gone with its device
                        namespaces.ip_batch([f"route delete {way.link}/32"])
                    self._numbers.forget(f"floating:{address}")
        self._ways = ways
        return [way for _, mine in sorted(ways.items()) for way in mine]

    def of_routers(self, routers: Iterable[HostRouter]) -> dict[str, str]:
        """Return the external addresses of routers with a realm here, by the address of the realm on its link."""
        here = [router for router in routers if router.address and namespaces.exists(realm_name(router.id))]
        known = nft.usable("address of router", here, _own, lambda router: router.id)
        if not known:
            return {}
        with self._numbers.lock():
            return {links.address(self._numbers.number(router_id)): address for router_id, address in known}

    def _load(self, realm_id: str, ways: list[Way]) -> None:
        text = realm_ruleset(self._table, ways)
        name, uplink = realm_name(realm_id), uplink_name(realm_id)
        route = f"via {links.address(self._numbers.number(realm_id))} dev {uplink}"
        known = f"{route} {text}"
        if self._loaded.get(realm_id) == known:
            return
        if ways or namespaces.exists(name):
            nft.apply(text, name)
            namespaces.ip_batch(f"route replace {link}/32 {route}" for link in dict.fromkeys(way.link for way in ways))
        self._loaded[realm_id] = known


def _way(floating: str, link: str, target: VIF | HostForwarding) -> Way:
    if isinstance(target, HostForwarding):
        return Forward(floating, link, target.address, target.protocol, target.external, target.internal)
    return Lead(floating, link, _fixed(target))


def _apart(ways: Iterable[Way]) -> tuple[list[Lead], list[Forward]]:
    known = list(ways)
    return [way for way in known if isinstance(way, Lead)], [way for way in known if isinstance(way, Forward)]


def realm_ruleset(table: str, ways: Iterable[Way]) -> str:
    """Return the nft commands that replace a realm's table: link addresses are translated to those of guests."""
    gone = f"add table inet {table}\ndelete table inet {table}\n"
    leads, forwards = _apart(ways)
    if not leads and not forwards:
        return gone
    inward = [f'iifname "{OUTSIDE}" ip daddr {item.link} {item.ports()} {item.target()}' for item in forwards]
    inward += _mapped(f'iifname "{OUTSIDE}" dnat ip to ip daddr', {lead.link: lead.fixed for lead in leads})
    outward = _mapped(f'oifname "{OUTSIDE}" snat ip to ip saddr', {lead.fixed: lead.link for lead in leads})
    return f"""{gone}table inet {table} {{
  chain floating_in {{
    type nat hook prerouting priority dstnat - 5; policy accept;
    {_lines(inward)}
  }}
  chain floating_out {{
    type nat hook postrouting priority srcnat - 10; policy accept;
    {_lines(outward)}
  }}
}}
"""


def ruleset(table: str, ways: Iterable[Way], of_routers: Mapping[str, str]) -> str:
    """Return the address translation rules of the host, for the table of the security groups.

    ``of_routers``: addresses of routers, by those of their realms on links. Of the host they answer ping only.
    """
    leads, forwards = _apart(ways)
    if not leads and not forwards and not of_routers:
        return ""
    inward = [f"ip daddr {item.floating} {item.ports()} dnat ip to {item.link}" for item in forwards]
    inward += _mapped("dnat ip to ip daddr", {lead.floating: lead.link for lead in leads})
    outward = {lead.link: lead.floating for lead in leads} | dict(sorted(of_routers.items()))
    # Other ports of a forwarded address would lead to services of the host itself.
    closed = []
    if shared := ", ".join(sorted({item.floating for item in forwards})):
        closed.append(f"ct direction original ip daddr {{ {shared} }} meta l4proto != icmp reject")
    if own := ", ".join(sorted(of_routers.values())):
        closed += [f"ip daddr {{ {own} }} icmp type echo-request accept", f"ip daddr {{ {own} }} drop"]
    return f"""table inet {table} {{
  chain floating_input {{
    type filter hook input priority filter - 6; policy accept;
    {_lines(closed)}
  }}
  chain floating_in {{
    type nat hook prerouting priority dstnat; policy accept;
    {_lines(inward)}
  }}
  chain floating_local {{
    type nat hook output priority -100; policy accept;
    {_lines(inward)}
  }}
  chain floating_out {{
    type nat hook postrouting priority srcnat - 10; policy accept;
    {_lines(_mapped("snat ip to ip saddr", outward))}
  }}
}}
"""


def _mapped(rule: str, elements: Mapping[str, str]) -> list[str]:
    """Return a rule with a map, or none without elements, which nft would refuse."""
    found = ", ".join(f"{key} : {value}" for key, value in elements.items())
    return [f"{rule} map {{ {found} }}"] if found else []


def _lines(lines: Iterable[str]) -> str:
    return "\n    ".join(lines)


def _own(router: HostRouter) -> tuple[str, str]:
    """Return a router's id with its address here. Raises ValueError unless it is valid."""
    return router.id, nft.address(ip.parse4(router.address))


def lead(item: tuple[str, VIF]) -> tuple[str, VIF]:
    """Return a floating address, in its usual form, with its interface. Raises ValueError unless both are valid."""
    address, vif = item
    _fixed(vif)
    return nft.address(ip.parse4(address)), vif


def valid_forwarding(item: HostForwarding) -> HostForwarding:
    """Return a forwarding with addresses in their usual form. Raises ValueError unless it is valid."""
    external, internal = item.external, item.internal
    if item.protocol not in WITH_PORTS.values():
        raise ValueError(f"protocol {item.protocol!r} has no ports")
    if not all(0 < first <= last < 65536 for first, last in (external, internal)):
        raise ValueError(f"ports {external} and {internal}")
    if internal[1] - internal[0] not in (0, external[1] - external[0]):
        raise ValueError(f"ranges {external} and {internal} differ in length")
    addresses = (nft.address(ip.parse4(text)) for text in (item.floating, item.address))
    return msgspec.structs.replace(item, **dict(zip(("floating", "address"), addresses, strict=True)))


def port_range(ports: tuple[int, int]) -> str:
    return f"{ports[0]:d}-{ports[1]:d}" if ports[0] != ports[1] else f"{ports[0]:d}"


def _fixed(vif: VIF) -> str:
    return nft.address(ip.parse4(vif.address))
