"""Realms: the network namespaces in which the networks of a router meet, or a network without a router is alone.

Two realms may have the same addresses. A realm has the gateway of each of its networks: the end of a link whose other
end is in the network's bridge. The bridge has no address, so guests reach the host through a realm only. One more
link, the uplink, leads from the realm to the host, with an address that no other realm of the machine has. Packets that
leave have that address, or that of a floating address (`floating_ips`).

Several daemons of a machine share its realms. What another one has done already counts as done. The alias of the host's
end of a gateway names the realm.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import logging
import os
import re
from collections.abc import Mapping

from nova_lite.base import exceptions, ip
from nova_lite.objects import HostRouter, Network, StaticRoute, ipv6
from nova_lite.virt.libvirt.net import links, namespaces, nft
from nova_lite.virt.libvirt.net.links import Links
from nova_lite.virt.libvirt.net.names import (
    GATEWAY,
    OUTSIDE,
    bridge_mac,
    bridge_name,
    gateway_name,
    new_name,
    realm_name,
    tunnel_name,
    uplink_name,
)

LOG = logging.getLogger(__name__)

NET = "/sys/class/net"
#: Beginning of the alias of a bridge that we have made. The network's id follows.
ALIAS = "nova-lite:"
#: The address where guests look for the metadata service, and the link-local range around it.
METADATA_ADDRESS, METADATA_PORT = "169.254.169.254", 80
#: Larger than any network's, so that the way out of the host decides.
_MTU = 65535
#: Metric of the way out. A static route of a user comes first.
_LAST_METRIC = 4096
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")
_SETTINGS = (
    "ipv4/ip_forward=1",
    # The daemon has no capability for ports below 1024.
    f"ipv4/ip_unprivileged_port_start={METADATA_PORT}",
    "ipv4/conf/all/rp_filter=0",
    "ipv4/conf/default/rp_filter=0",
    "ipv4/conf/all/send_redirects=0",
    "ipv4/conf/default/send_redirects=0",
    # Otherwise the removal of a gateway's former address would remove the new one, too.
    "ipv4/conf/all/promote_secondaries=1",
)
_SETTINGS6 = ("ipv6/conf/all/forwarding=1", "ipv6/conf/default/accept_ra=0")


class Realms:
    """Makes and removes realms and gateways. Call each method with the lock of ``numbers``."""

    def __init__(self, numbers: Links) -> None:
        self.numbers = numbers

    def ensure(self, realm_id: str) -> None:
        """Make a realm with its uplink. Do nothing if it exists. Raises `VirtDriverError`."""
        name, uplink = realm_name(_plain(realm_id)), uplink_name(realm_id)
        if not namespaces.exists(name):
            namespaces.add(name)
        if os.path.exists(f"{NET}/{uplink}"):
            if _alias(uplink) == realm_id:
                return
            namespaces.ip_batch([f"link delete dev {uplink}"])
        number = self.numbers.number(realm_id)
        inner, inner6 = links.address(number), links.address6(number)
        has_ipv6 = _has_ipv6()
        namespaces.set_up((*_SETTINGS, *_SETTINGS6) if has_ipv6 else _SETTINGS, name)
        outer = [
            f"link add name {uplink} mtu {_MTU} type veth peer name {OUTSIDE} mtu {_MTU} netns {name}",
            f"link set dev {uplink} addrgenmode none",
            f"link set dev {uplink} up",
            f"address add {links.HOST}/32 dev {uplink}",
            f"route replace {inner}/32 dev {uplink}",
        ]
        within = [
            "link set dev lo up",
            f"link set dev {OUTSIDE} up",
            f"address replace {inner}/32 dev {OUTSIDE}",
            f"address replace {METADATA_ADDRESS}/32 dev lo",
            f"route replace {links.HOST}/32 dev {OUTSIDE}",
            f"route replace default via {links.HOST} dev {OUTSIDE} metric {_LAST_METRIC}",
        ]
        if has_ipv6:
            outer += [
                # The host asks for the MAC address of the realm by a link-local address, when it forwards a packet.
                f"address add fe80::1/64 dev {uplink} nodad",
                f"address add {links.HOST6}/128 dev {uplink} nodad",
                f"route replace {inner6}/128 dev {uplink}",
            ]
            within += [
                f"address replace {inner6}/128 dev {OUTSIDE} nodad",
                f"route replace {links.HOST6}/128 dev {OUTSIDE}",
                f"route replace default via {links.HOST6} dev {OUTSIDE} metric {_LAST_METRIC}",
            ]
        namespaces.ip_batch(outer)
        namespaces.ip_batch(within, name)
        # The alias comes last: a link without one, which a killed daemon has left, is made again.
        namespaces.ip_batch([f"link set dev {uplink} alias {realm_id}"])
        LOG.info("Realm %s is made, with address %s on its link %s", realm_id, inner, uplink)

    def remove(self, realm_id: str) -> None:
        """Remove a realm. Raises `VirtDriverError`."""
        if os.path.exists(f"{NET}/{uplink_name(realm_id)}"):
            namespaces.ip_batch([f"link delete dev {uplink_name(realm_id)}"])
        if namespaces.exists(realm_name(realm_id)):
            namespaces.remove(realm_name(realm_id))
        self.numbers.forget(realm_id)
        LOG.info("Realm %s is removed", realm_id)

    def make_bridge(self, network: Network) -> None:
        """Make the bridge of a network. Do nothing if it exists. Raises `VirtDriverError`."""
        bridge, new = bridge_name(network), new_name(network.id)
        if not os.path.exists(f"{NET}/{bridge}"):
            # A bridge without an alias is the operator's, so it gets its name last.
            lines = [f"link delete dev {new}"] if os.path.exists(f"{NET}/{new}") else []
            lines += [
                f"link add name {new} mtu {network.mtu:d} type bridge stp_state 0 forward_delay 0",
                f"link set dev {new} addrgenmode none alias {ALIAS}{_plain(network.id)}",
                f"link set dev {new} name {bridge}",
                f"link set dev {bridge} up",
            ]
            namespaces.ip_batch(lines)
            LOG.info("Network %s has bridge %s", network.id, bridge)

    def place(self, network: Network, realm_id: str) -> bool:
        """Give a network its gateway in a realm, with its present settings. Return whether it was elsewhere before.

        Raises `VirtDriverError`.
        """
        outer, inner, name = gateway_name(network.id), bridge_name(network), realm_name(realm_id)
        former = realm_of(network.id)
        is_new = former != realm_id or not namespaces.exists(name)
        if is_new and os.path.exists(f"{NET}/{outer}"):
            namespaces.ip_batch([f"link delete dev {outer}"])
        self.ensure(realm_id)
        if is_new:
            mac = bridge_mac(network.vni or 0)  # the same in another realm, so that guests need not learn it
            namespaces.ip_batch(
                [
                    # The alias comes last: a gateway without one is made again.
                    f"link add name {outer} mtu {network.mtu:d} type veth "
                    f"peer name {inner} mtu {network.mtu:d} address {mac} netns {name}",
                    f"link set dev {outer} addrgenmode none",
                    f"link set dev {outer} master {inner} up",
                    f"link set dev {outer} alias {realm_id}",
                ]
            )
        self._settle(network, name)
        return is_new

    def _settle(self, network: Network, name: str) -> None:
        """Give a gateway the addresses and the MTU that its network has, and no others."""
        inner = bridge_name(network)
        wanted = addresses(network)
        shown = json.loads(namespaces.run(*namespaces.inside(name), "ip", "-json", "address", "show", "dev", inner))
        (link,) = shown
        known = {
            f"{item['local']}/{item['prefixlen']}" for item in link.get("addr_info", ()) if item.get("scope") != "link"
        }
        lines = []
        if link.get("mtu") != network.mtu:
            for device in (gateway_name(network.id), *members(inner), inner):
                with contextlib.suppress(exceptions.VirtDriverError):  # a guest's device may have gone meanwhile
                    namespaces.ip_batch([f"link set dev {device} mtu {network.mtu:d}"])
            lines.append(f"link set dev {inner} mtu {network.mtu:d}")
        if link.get("operstate") == "DOWN" or "UP" not in link.get("flags", ()):
            lines.append(f"link set dev {inner} up")
        lines += [
            f"address replace {address} dev {inner}{' nodad' if ':' in address else ' broadcast +'}"
            for address in wanted
            if address not in known
        ]
        lines += [f"address delete {address} dev {inner}" for address in sorted(known - set(wanted))]
        namespaces.ip_batch(lines, name)

    def withdraw(self, network_id: str, bridge: str) -> bool:
        """Remove the gateway and the bridge of a network, unless guests use it. Return whether they are gone."""
        gateway = gateway_name(network_id)
        if bridge:
            if {name for name in members(bridge) if not name.startswith(tunnel_name())} - {gateway}:
                return False
            namespaces.ip_batch([f"link delete dev {bridge}"])
        if os.path.exists(f"{NET}/{gateway}"):
            namespaces.ip_batch([f"link delete dev {gateway}"])
        return True


def realm_of(network_id: str) -> str | None:
    """Return the realm in which a network has its gateway, None if it has none."""
    return _alias(gateway_name(network_id)) or None if os.path.exists(f"{NET}/{gateway_name(network_id)}") else None


def used() -> set[str]:
    """Return the realms with gateways."""
    names = os.listdir(NET) if os.path.isdir(NET) else []
    return {_alias(name) for name in names if name.startswith(GATEWAY)} - {""}


def network_on(bridge: str) -> str | None:
    """Return the id of the network for which we have made a bridge, None if we have not made it."""
    alias = _alias(bridge)
    return alias.removeprefix(ALIAS) if alias.startswith(ALIAS) else None


def bridge_of(network_id: str) -> str:
    """Return the bridge that we have made for a network, empty if there is none."""
    names = os.listdir(NET) if os.path.isdir(NET) else []
    new = new_name(network_id)
    return next((name for name in names if name != new and _alias(name) == f"{ALIAS}{network_id}"), "")


def members(bridge: str) -> set[str]:
    """Return the interfaces in a bridge."""
    path = f"{NET}/{bridge}/brif"
    return set(os.listdir(path)) if os.path.isdir(path) else set()


def _alias(device: str) -> str:
    try:
        with open(f"{NET}/{device}/ifalias") as file:
            return file.read().strip()
    except OSError:
        return ""


def addresses(network: Network) -> list[str]:
    """Return the addresses of a network's gateway, with the lengths of their prefixes."""
    found = [f"{host_address(network)}/{cidr_of(network).prefixlen}"]
    if network.cidr6:
        address6 = nft.address(ip.parse6(ipv6.host_address(network)))
        found.append(f"{address6}/{ip.parse_network6(network.cidr6).prefixlen}")
    return found


def cidr_of(network: Network) -> ipaddress.IPv4Network:
    """Return the range of a network. Raises `VirtDriverError` if it has none."""
    try:
        return ip.parse_network4(network.cidr, strict=False)
    except ValueError as error:
        raise exceptions.VirtDriverError(reason=f"network {network.name} is not IPv4: {network.cidr}") from error


def host_address(network: Network) -> str:
    """Return the host's address on a network: the gateway, else the choice of the conductor.

    Without either, it is the first address outside of the pool.
    """
    if known := network.gateway or network.host_address:
        return str(address_in(network, known))
    cidr = cidr_of(network)
    first = address_in(network, network.start) if network.start else cidr[1]
    last = address_in(network, network.end) if network.end else cidr[-2]
    for address in (cidr[1], cidr[-2]):
        if not int(first) <= int(address) <= int(last):
            return str(address)
    raise exceptions.VirtDriverError(
        reason=f"network {network.name} has no address for the host: no gateway, and all addresses are in its pool"
    )


def address_in(network: Network, text: str) -> ipaddress.IPv4Address:
    """Return an address of a network's settings. Raises `VirtDriverError`."""
    try:
        return ip.parse4(text)
    except ValueError as error:
        raise exceptions.VirtDriverError(reason=f"network {network.name} has an invalid address: {error}") from error


def _plain(name: str) -> str:
    if not _PLAIN_NAME.fullmatch(name):
        raise exceptions.VirtDriverError(reason=f"id {name!r} is not a plain name")
    return name


def _has_ipv6() -> bool:
    return os.path.exists("/proc/self/net/if_inet6")


# --- routes and neighbours


_EVERYTHING = {4: "0.0.0.0/0", 6: "::/0"}


def set_routes(router: HostRouter) -> bool:
    """Set the static routes of a router's realm to exactly these. Return whether they hold. A failure is logged."""
    name = realm_name(router.id)
    try:
        for version in (4, 6) if _has_ipv6() else (4,):
            wanted = routes(router, version)
            shown = json.loads(
                namespaces.run(
                    *namespaces.inside(name), "ip", "-json", f"-{version}", "route", "show", "proto", "static"
                )
                or "[]"
            )
            # A destination without a prefix length is one address.
            known = {
                nft.network(ip.parse_network(_EVERYTHING[version] if item["dst"] == "default" else item["dst"]))
                for item in shown
            }
            lines = [f"route replace {target} {way} proto static" for target, way in sorted(wanted.items())]
            lines += [f"route delete {target} proto static" for target in sorted(known - wanted.keys())]
            namespaces.ip_batch(lines, name)
    except exceptions.VirtDriverError as error:
        LOG.error("Static routes of router %s do not hold: %s", router.id, error.message)
        return False
    return True


def routes(router: HostRouter, version: int) -> dict[str, str]:
    """Return the static routes of a router for an IP version: by destination, the way to the next machine."""
    wanted = router.routes if version == 4 else router.routes6
    found = {}
    for target, nexthop in nft.usable("static route", wanted, lambda route: _route(version, route), _destination):
        for bridge, cidr in _ways(router, version):
            if ip.is_machine(nexthop, cidr):
                found[nft.network(target)] = f"via {nft.address(nexthop)} dev {bridge}"
    return found


def _destination(route: StaticRoute) -> str:
    return route.destination


def _route(version: int, route: StaticRoute) -> tuple[ip.Network, ip.Address]:
    target, nexthop = ip.parse_network(route.destination), ip.parse(route.nexthop)
    if (target.version, nexthop.version) != (version, version):
        raise ValueError(f"{target} through {nexthop} is not a route of IPv{version}")
    return target, nexthop


def _ways(router: HostRouter, version: int) -> list[tuple[str, ip.Network]]:
    """Return bridge and range of the subnets of this IP version that a router connects."""
    connected = [
        (bridge_name(network), network.cidr if version == 4 else network.cidr6)
        for network in router.networks
        if router.only.get(network.id, version) == version
    ]
    return [(bridge, ip.parse_network(cidr, strict=False)) for bridge, cidr in connected if cidr]


def set_neighbours(network: Network, realm_id: str, wanted: Mapping[str, str]) -> bool:
    """Set the permanent neighbours of a gateway to exactly these MAC addresses by address.

    Returns whether they hold. A failure is logged.
    """
    valid = dict(nft.usable("neighbour", wanted.items(), _neighbour, lambda item: item[0]))
    name, device = realm_name(realm_id), bridge_name(network)
    try:
        command = (*namespaces.inside(name), "ip", "-json", "neigh", "show", "dev", device, "nud", "permanent")
        known = {entry["dst"]: entry.get("lladdr", "") for entry in json.loads(namespaces.run(*command) or "[]")}
        lines = [f"neigh del {address} dev {device}" for address in sorted(known.keys() - valid.keys())]
        lines += [
            f"neigh replace {address} lladdr {mac} dev {device} nud permanent"
            for address, mac in sorted(valid.items())
            if known.get(address) != mac
        ]
        namespaces.ip_batch(lines, name)
    except exceptions.VirtDriverError as error:
        LOG.error("Guests of other hosts on network %s are not reached by routers: %s", network.id, error.message)
        return False
    return True


def _neighbour(item: tuple[str, str]) -> tuple[str, str]:
    address, mac = item
    return nft.address(ip.parse(address)), nft.mac(mac)
