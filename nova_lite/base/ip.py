"""Parsers of IP addresses and networks. A unit test checks that all other modules use them.

Python's ``ipaddress`` accepts IPv6 addresses with a zone, as in ``fe80::1%eth0``. A zone names an interface of one
machine. It means nothing to another machine or to a packet filter, and its text is arbitrary. So these parsers refuse
it. Every error is a `ValueError` that names the wrong text.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def parse(text: str) -> Address:
    """Return an address of either version."""
    return ipaddress.ip_address(_without_zone(text))


def parse4(text: str) -> IPv4Address:
    return IPv4Address(_without_zone(text))


def parse6(text: str) -> IPv6Address:
    return IPv6Address(_without_zone(text))


def parse_network(text: str, strict: bool = True) -> Network:
    """Return a network of either version. Unless ``strict``, the text may have host bits, which are cleared."""
    return ipaddress.ip_network(_without_zone(text), strict=strict)


def parse_network4(text: str, strict: bool = True) -> IPv4Network:
    return IPv4Network(_without_zone(text), strict=strict)


def parse_network6(text: str, strict: bool = True) -> IPv6Network:
    return IPv6Network(_without_zone(text), strict=strict)


def client_of(address: str) -> str:
    """Return the client that counts for the address of a connection: limits are those of clients.

    It is an IPv4 address, or the network of 64 bits of an IPv6 address: one machine has all addresses of that. A text
    that is no address is its own client.
    """
    try:
        found = parse(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:
        return str(found)
    return str(found.ipv4_mapped or parse_network6(f"{found}/64", strict=False))


def within(wanted: Network, ranges: Iterable[str]) -> list[Network]:
    """Return the ranges that have the version of ``wanted``."""
    return [item for item in map(parse_network, ranges) if item.version == wanted.version]


def is_subnet(inner: Network, outer: Network) -> bool:
    """Check whether ``outer`` has all addresses of ``inner``."""
    return inner.version == outer.version and inner[0] in outer and inner[-1] in outer


def is_machine(address: Address, network: Network) -> bool:
    """Check whether a machine of a network may have the address. Linux refuses routes through others of the network.

    These are the first address, and the last one of IPv4, for broadcasts. Networks of two addresses have no such ones.
    """
    if network.num_addresses <= 2:
        return address in network
    others = {network[0], network[-1]} if network.version == 4 else {network[0]}
    return address in network and address not in others


def parse_interface4(text: str) -> IPv4Interface:
    """Return an address with its network, as in ``10.0.0.5/24``."""
    return IPv4Interface(_without_zone(text))


def is_address(text: str) -> bool:
    """Check whether ``text`` is an address of either version."""
    try:
        parse(text)
    except ValueError:
        return False
    return True


def in_url(address: str) -> str:
    """Return an address or a host name as part of a URL: an IPv6 address is in brackets."""
    return f"[{address}]" if ":" in address else address


def is_loopback(text: str) -> bool:
    """Check whether ``text`` is a loopback address or localhost."""
    if text == "localhost":
        return True
    try:
        return parse(text).is_loopback
    except ValueError:
        return False


def own_networks(ipv4: str = "/proc/self/net/fib_trie", ipv6: str = "/proc/self/net/if_inet6") -> list[Network]:
    """Return the addresses of this machine, as networks. ``ipv4``, ``ipv6``: files of the kernel."""
    found: list[Network] = []
    leaf = ""
    for line in _lines(ipv4):
        if "|--" in line:
            leaf = line.split()[-1]
        elif line.endswith(" host LOCAL"):
            found.append(IPv4Network(leaf + line.split()[0]))
    found += [IPv6Network(int(line.split()[0], 16)) for line in _lines(ipv6)]
    return found


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().splitlines()
    except FileNotFoundError:  # there is no such protocol
        return []


def _without_zone(text: str) -> str:
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is not a text")
    if "%" in text:
        raise ValueError(f"{text[:64]!r} has a zone (%), which only its own machine understands")
    return text
