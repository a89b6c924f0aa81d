"""Networks that this machine uses outside of the cloud's bridges: subnets of members would cut them off."""

from __future__ import annotations

import functools
import logging
import os
import socket
from collections.abc import Iterator

from oslo_config import cfg
from oslo_messaging import TransportURL

from nova_lite.base import ip

LOG = logging.getLogger(__name__)

#: Beginning of the names of the cloud's bridges, tunnels and other devices.
CLOUD_DEVICES = "nl"
PROC, RESOLV_CONF = "/proc/self/net", "/etc/resolv.conf"
#: Flags of routes: to nowhere, and of addresses of the machine itself.
_REJECT, _LOCAL = 0x200, 0x80000000


def used(conf: cfg.ConfigOpts, *servers: str, proc: str = PROC, resolv_conf: str = RESOLV_CONF) -> list[str]:
    """Return routed networks, and addresses of name servers, message brokers and ``servers``, as sorted texts."""
    names = [*servers, *(str(host.hostname) for host in TransportURL.parse(conf).hosts if host.hostname)]
    addresses = [*_name_servers(resolv_conf), *(address for name in names for address in _addresses(name))]
    found = [*_routes4(proc), *_routes6(proc), *(ip.parse_network(address) for address in addresses)]
    return sorted({str(network) for network in found if _is_used(network)})


def _is_used(network: ip.Network) -> bool:
    """Leave out default routes, and the loopback and link-local networks of each machine."""
    first = network.network_address
    return bool(network.prefixlen) and not (first.is_loopback or first.is_link_local or first.is_multicast)


def _routes4(proc: str) -> Iterator[ip.Network]:
    for device, target, _, flags, _, _, _, mask, *_ in _table(os.path.join(proc, "route"))[1:]:
        if not device.startswith(CLOUD_DEVICES) and not int(flags, 16) & _REJECT:
            address, netmask = (socket.inet_ntoa(bytes.fromhex(text)[::-1]) for text in (target, mask))
            yield ip.parse_network4(f"{address}/{netmask}", strict=False)


def _routes6(proc: str) -> Iterator[ip.Network]:
    for target, length, *_, flags, device in _table(os.path.join(proc, "ipv6_route")):
        if not device.startswith(CLOUD_DEVICES) and not int(flags, 16) & (_REJECT | _LOCAL):
            address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(target))
            yield ip.parse_network6(f"{address}/{int(length, 16)}", strict=False)


def _table(path: str) -> list[list[str]]:
    try:
        with open(path, encoding="ascii") as file:
            return [line.split() for line in file]
    except FileNotFoundError:  # the kernel has no such protocol
        return []


def _name_servers(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            words = [line.split() for line in file]
    except OSError:
        return []
    return [line[1] for line in words if len(line) > 1 and line[0] == "nameserver" and ip.is_address(line[1])]


@functools.cache
def _addresses(name: str) -> tuple[str, ...]:
    """Return the addresses of a machine. A name is looked up once, as daemons keep their connections to it."""
    if ip.is_address(name):
        return (name,)
    try:
        return tuple({str(item[4][0]) for item in socket.getaddrinfo(name, None) if ip.is_address(str(item[4][0]))})
    except OSError as error:
        LOG.warning("The addresses of %s are unknown, and not kept from subnets: %s", name, error)
        return ()
