"""Files that a network's dnsmasq reads: reservations of guests, and settings that users change.

A reservation is a file with a line: MAC address, addresses, host name, lease time.
"""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import re
import time

from nova_lite.base import exceptions, files, ip
from nova_lite.objects import VIF, Network, ipv6
from nova_lite.objects.instance import version_of
from nova_lite.virt.libvirt.net import dhcp, links, names_of_guests, nft, port_options
from nova_lite.virt.libvirt.net.firewall import DNS_PORT
from nova_lite.virt.libvirt.net.names import PREFIX, network_name
from nova_lite.virt.libvirt.net.realms import address_in

LOG = logging.getLogger(__name__)

LEASE_TIME = "24h"

_HOSTNAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_MAC_ADDRESS = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")


def settings(network: Network, domain: str) -> dict[str, str]:
    """Return the files with settings of a network that can change, in dnsmasq's format.

    ``domain``: of guests on networks without one.
    """
    routes = [
        (nft.network(ip.parse_network4(route["destination"])), nft.address(ip.parse4(route["nexthop"])))
        for route in nft.usable("host route", network.host_routes or [], _valid_route, str)
    ]
    if routes and network.gateway:
        # A guest that gets this option ignores the one of the gateway (RFC 3442).
        routes.append(("0.0.0.0/0", str(address_in(network, network.gateway))))
    words = ",".join(word for route in routes for word in route)
    options = [f"option:router,{address_in(network, network.gateway)}" if network.gateway else "option:router"]
    options += [f"option:classless-static-route,{words}", f"249,{words}"] if routes else []
    options += names_of_guests.options(network, domain)
    options.append(f"option:mtu,{network.mtu}")  # comes before the option of the network's start
    servers = [*names_of_guests.servers(domain), *(f"server={address}" for address in name_servers(network))]
    return {"options": "\n".join([*options, ""]), "servers": "\n".join([*servers, ""])}


def _valid_route(route: dict[str, str]) -> dict[str, str]:
    ip.parse_network4(route["destination"]), ip.parse4(route["nexthop"])
    return route


def name_servers(network: Network) -> list[str]:
    """Return the name servers of a network, for its dnsmasq: those of its subnets, or else this machine's."""
    dns = [*network.dns, *(network.subnet6.dns if network.subnet6 is not None else ())]
    own = nft.usable("name server", dns, lambda text: nft.address(ip.parse(text)), str)
    return own or [f"{links.HOST}#{DNS_PORT}"]


def write_settings(network: Network, host: str, domain: str) -> bool:
    """Write the files of `settings` that differ. Return whether there were any."""
    written = False
    for kind, text in settings(network, domain).items():
        path = dhcp.path_of(network_name(network), kind)
        content = text.encode()
        with contextlib.suppress(OSError), open(path, "rb") as file:
            if file.read() == content:
                continue
        files.write_atomically(path, content, mode=0o644, writer=host)
        written = True
    return written


def names_path(network_id: str) -> str:
    """Return the path of the file with names of guests."""
    return dhcp.path_of(f"{PREFIX}{_plain(network_id)}", "names")


def directory_for(network: Network, is_served: bool = True) -> str:
    """Return the directory of the reservations. ``is_served``: dnsmasq reads it."""
    _plain(network.id)
    return directory_of(network_name(network), is_served)


def _plain(network_id: str) -> str:
    if not _PLAIN_NAME.fullmatch(network_id):
        raise exceptions.VirtDriverError(reason=f"network id {network_id!r} is not a plain name")
    return network_id


def directory_of(name: str, is_served: bool = True) -> str:
    return os.path.join(dhcp.DIRECTORY, f"{name}.{'d' if is_served else 'off'}")


def has_any(name: str) -> bool:
    """Check whether the network of this name has addresses of guests, served by DHCP or not."""
    directories = (directory_of(name, is_served) for is_served in (True, False))
    names = [found for directory in directories if os.path.isdir(directory) for found in os.listdir(directory)]
    return any(not found.startswith(files.TEMPORARY) for found in names)


def known_networks() -> set[str]:
    """Return the ids of networks with a directory of reservations."""
    paths = [path for served in (True, False) for path in glob.glob(directory_of(f"{PREFIX}*", served))]
    return {os.path.basename(path).rpartition(".")[0].removeprefix(PREFIX) for path in paths}


def touch(network: Network) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.utime(directory_for(network))


def age_of(name: str) -> float:
    """Return the seconds since the last use of the network of this name. A directory changes with each reservation."""
    used = []
    for is_served in (True, False):
        with contextlib.suppress(FileNotFoundError):
            used.append(os.stat(directory_of(name, is_served)).st_mtime)
    return time.time() - max(used, default=time.time())


def remove_files(name: str) -> None:
    """Remove the settings and the empty directories of the network of this name."""
    for kind in dhcp.KINDS:
        files.remove(dhcp.path_of(name, kind))
    for directory in (*(directory_of(name, is_served) for is_served in (True, False)), port_options.directory_of(name)):
        with contextlib.suppress(OSError):  # a new reservation keeps it
            os.rmdir(directory)


def path_of(vif: VIF, is_served: bool = True) -> str:
    if not _PLAIN_NAME.fullmatch(vif.id):
        raise exceptions.VirtDriverError(reason=f"VIF id {vif.id!r} is not a plain name")
    return os.path.join(directory_for(vif.network, is_served), vif.id)


def place(network: Network) -> bool:
    """Move all reservations to where dnsmasq reads them, or does not without DHCP. Return whether there were any."""
    is_served = has_dhcp(network)
    source, target = (directory_for(network, flag) for flag in (not is_served, is_served))
    os.makedirs(target, mode=0o755, exist_ok=True)
    moved = False
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(source):
            if not name.startswith(files.TEMPORARY):
                with contextlib.suppress(FileNotFoundError):  # a guest has just gone
                    os.rename(os.path.join(source, name), os.path.join(target, name))
                    moved = True
    return moved


def has_dhcp(network: Network) -> bool:
    """Check whether dnsmasq answers guests, by DHCP or DHCPv6."""
    return network.enable_dhcp or ipv6.is_assigned(network) or ipv6.is_stateless(network)


def reservation(vif: VIF, hostname: str) -> str:
    """Return a line in dnsmasq's format: MAC address, addresses, host name (its first label), lease time."""
    mac_address = vif.mac_address.lower()
    if not _MAC_ADDRESS.fullmatch(mac_address):
        raise exceptions.VirtDriverError(reason=f"{vif.mac_address!r} is not a MAC address")
    try:
        fields = [mac_address, str(ip.parse4(vif.address))]
        if ipv6.is_assigned(vif.network) or ipv6.is_stateless(vif.network):
            # dnsmasq knows a guest of DHCPv6 by an address of the subnet, also if it assigns none.
            addresses = [] if not vif.network.enable_dhcp else fields[1:]
            first = [item for item in vif.more if not item.is_further]
            assigned = [ip.parse6(item.address) for item in first if version_of(item.address) == 6]
            fields = [mac_address, *addresses, *(f"[{address}]" for address in assigned)]
    except ValueError as error:
        raise exceptions.VirtDriverError(reason=f"port {vif.id} has an invalid address: {error}") from error
    name = hostname.partition(".")[0]
    if _HOSTNAME.fullmatch(name):
        fields.append(name)
    return ",".join([*fields, LEASE_TIME]) + "\n"


def reserve(vif: VIF, hostname: str, host: str) -> None:
    """Write the reservation, and remove outdated ones of the same address or MAC address. ``host``: this host."""
    line = reservation(vif, hostname)
    path = path_of(vif, has_dhcp(vif.network))
    keys = set(line.split(",")[:2])
    directory = os.path.dirname(path)
    os.makedirs(directory, mode=0o755, exist_ok=True)
    for name in os.listdir(directory):
        other = os.path.join(directory, name)
        if other != path and not name.startswith(files.TEMPORARY) and keys & _keys(other):
            LOG.warning("Removing the outdated reservation %s on network %s", name, vif.network.id)
            files.remove(other)
    files.write_atomically(path, line.encode(), durable=False, mode=0o644, writer=host)


def _keys(path: str) -> set[str]:
    """Return the MAC address and address of a reservation; empty if it has just been removed."""
    with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8", errors="replace") as file:
        return set(file.read().split(",")[:2])
    return set()
