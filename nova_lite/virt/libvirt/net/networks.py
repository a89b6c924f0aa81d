"""The host side of built-in networks: one libvirt network each, with a bridge, NAT, and DHCP by reservation only.

Each reservation is a file in a directory that the network's dnsmasq reads. libvirt's own way is a change of the
network. That removes and restores all its firewall rules, and cuts its guests off for up to two seconds. For the same
reason, settings that users change are in files that dnsmasq reads again (`settings`). A subnet without DHCP has its
reservations in another directory, which dnsmasq does not read: it ignores requests of guests without one.

Several compute daemons may share one libvirtd. So all steps are repeatable, and what another daemon has done already
counts as done. The network stays when its last reservation is removed, until it was idle for some time
(`HostNetworks.remove_idle`), or another one needs its addresses. Each use touches the directory of its reservations.
"""

from __future__ import annotations

import contextlib
import glob
import ipaddress
import json
import logging
import os
import re
import signal
import threading
import time
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from typing import Any

import libvirt
from oslo_config import cfg

from nova_lite.base import exceptions, files, ip
from nova_lite.network import factory
from nova_lite.objects import VIF, HostRouter, Network, ipv6
from nova_lite.objects.instance import version_of
from nova_lite.objects.security_group import MemberList
from nova_lite.virt import images
from nova_lite.virt.libvirt.connection import Connection
from nova_lite.virt.libvirt.net import dhcp, existing, names_of_guests, neutron, nft
from nova_lite.virt.libvirt.net.firewall import Firewall, Routing
from nova_lite.virt.libvirt.net.names import PREFIX, bridge_mac, bridge_name, network_name
from nova_lite.virt.libvirt.net.uses import NetworkUses

LOG = logging.getLogger(__name__)

LEASE_TIME = "24h"
PID_DIRECTORY = "/run/libvirt/network"

RESOLV_CONF = "/etc/resolv.conf"

_DNSMASQ = "http://libvirt.org/schemas/network/dnsmasq/1.0"
_OPTION = f"{{{_DNSMASQ}}}option"
#: dnsmasq's option for advertisements without a way out, and the beginning of that for DHCPv6 without addresses.
_NO_ROUTER, _STATELESS = "ra-param=*,0,0", "dhcp-range="
#: Identifier of a DHCPv6 client that does not exist.
_NOBODY = "00:04:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00"
_HOSTNAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_MAC_ADDRESS = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")

ET.register_namespace("dnsmasq", _DNSMASQ)


class HostNetworks:
    def __init__(self, conf: cfg.ConfigOpts, connection: Connection, host: str) -> None:
        self._connection = connection
        self._host = host
        self._firewall = Firewall(conf)
        #: Definitions that libvirt has, by network.
        self._defined: dict[str, str] = {}
        self._resolvers = _own_name_servers()
        self._domain: str = conf.network.dns_domain
        #: Names of guests, and routers, that the files of names have; and the networks with such files.
        self._named: object = None
        self._with_names: set[str] = set()
        self._uses = NetworkUses()
        #: Held while a network of another IPv6 subnet is removed.
        self._replacing = threading.Lock()

    def init_host(self, vifs: list[VIF]) -> set[str]:
        """Restore the rules of existing networks, which do not survive a reboot. ``vifs``: of this host's guests.

        Returns the ids of the networks that libvirt manages.
        """
        self._firewall.prepare()
        patterns = (dhcp.DIRECTORY, reservations_directory_of("*"), reservations_directory_of("*", is_served=False))
        for directory in (path for pattern in patterns for path in glob.glob(pattern)):
            files.remove_unfinished(directory, self._host)
        on_each = {vif.network.id: vif for vif in vifs}
        found = sorted(self.run_by_libvirt(list(on_each.values())))
        nft.apply(self._firewall.rules_of_valid([on_each[network_id].network for network_id in found]))
        return set(found)

    def rules(self, networks: Iterable[Network]) -> str:
        """Return the nft commands for networks that libvirt manages. The caller of `plug` executes them."""
        return self._firewall.rules(networks)

    def set_routing(self, routing: dict[str, Routing]) -> None:
        """Replace how networks are routed, by their ids. Raises `VirtDriverError`."""
        self._firewall.set_routing(routing)

    def routed(self) -> list[tuple[Network, Routing]]:
        """Return the networks that libvirt manages here, and how they are routed."""
        return self._firewall.routed()

    def start(self, network: Network) -> bool:
        """Start a network that a router needs here. Return False if its bridge is the operator's own."""
        with self._uses.use(network.id):
            is_there = os.path.exists(f"{existing.NET}/{bridge_name(network)}") and self._firewall.knows(network)
            if not is_there or self._firewall.is_outdated6(network):
                if not self._ensure(network):
                    return False
                nft.apply(self._firewall.rules([network]))
            _touch(network)
            return True

    def reach_metadata(self, vifs: list[VIF]) -> bool:
        """Check whether a guest with these interfaces reaches a metadata service."""
        served = [vif for vif in vifs if vif.vif_type is None and self._firewall.serves(vif.network)]
        return bool(served and self.run_by_libvirt(served))

    def plug(self, vif: VIF, hostname: str) -> bool:
        """Start the network and reserve the VIF's address for its MAC address.

        Returns whether libvirt manages the network: then the caller has to apply its `rules`.
        """
        if vif.is_device:
            return False
        if vif.vif_type is not None:
            neutron.plug(vif)
            return False
        with self._uses.use(vif.network.id):
            if not self._ensure(vif.network):
                return False
            _reserve(vif, hostname, self._host)
        _place_reservations(vif.network)
        self._reload(vif.network)
        # The lease of a former guest would keep dnsmasq from assigning the address to its new owner.
        dhcp.release(bridge_name(vif.network), vif.address, lambda mac_address: mac_address != vif.mac_address.lower())
        return True

    def unplug(self, vif: VIF) -> None:
        """Remove the VIF's reservation and lease, if any, or its port of Open vSwitch."""
        if vif.vif_type is not None:
            neutron.unplug(vif)
            return
        paths = [path for path in (_reservation_path(vif, True), _reservation_path(vif, False)) if os.path.exists(path)]
        if not paths:
            return
        for path in paths:
            files.remove(path)
        self._reload(vif.network)
        dhcp.release(bridge_name(vif.network), vif.address, lambda mac_address: mac_address == vif.mac_address.lower())

    def run_by_libvirt(self, vifs: list[VIF]) -> set[str]:
        """Return the ids of networks that libvirt manages, without those on an operator's bridge."""
        ours = (vif for vif in vifs if vif.vif_type is None)
        return {vif.network.id for vif in ours if self._lookup(vif.network) is not None}

    def update(self, network: Network) -> None:
        """Carry out changed settings of a network whose guests are plugged. Raises `VirtDriverError`.

        Guests get them with their next lease.
        """
        found = self._lookup(network)
        if found is None or not self._connection.call(found.isActive):
            return
        os.makedirs(reservations_directory(network), mode=0o755, exist_ok=True)
        self._follow(network, found)
        moved = _place_reservations(network)
        if _write_settings(network, self._host, self._domain) or moved:
            self._reload(network)
        if self._firewall.is_outdated(network):
            nft.apply(self._firewall.rules([network]))

    def remove_idle(self, minimum_age: float) -> list[str]:
        """Remove networks that no guest and no router has used here for ``minimum_age`` seconds. Return their ids.

        The next guest starts its network again. A network that cannot be removed is logged, and tried again later.
        """
        removed = []
        for network_id in sorted(_known_ids()):
            name = f"{PREFIX}{network_id}"
            with self._uses.remove(network_id) as is_free:
                if not is_free or _has_reservations(name) or _age(name) < minimum_age:
                    continue
                try:
                    if not existing.remove_unless_used(self._connection, name):
                        continue
                    self._firewall.forget(network_id)
                except exceptions.VirtDriverError as error:
                    LOG.warning("Network %s is not removed, although it is idle: %s", name, error.message)
                    continue
                self._defined.pop(network_id, None)
                _remove_files(name)
                removed.append(network_id)
        return removed

    def follow_name_servers(self) -> None:
        """Give networks without name servers those of this machine again, if these have changed."""
        current = _own_name_servers()
        if current == self._resolvers:
            return
        for network, _ in self._firewall.routed():
            if not _name_servers(network) and _write_settings(network, self._host, self._domain):
                self._reload(network)
        self._resolvers = current

    def set_names(self, names: Mapping[str, MemberList] | None, routers: list[HostRouter]) -> None:
        """Publish the names of guests, by their networks, to the guests that they reach."""
        if names is None or (names, routers) == self._named:
            return
        found = names_of_guests.texts(names, routers, self._domain)
        for network_id, text in (dict.fromkeys(self._with_names - names.keys(), "") | found).items():
            if names_of_guests.write(_names_path(network_id), text, self._host):
                _reload(f"{PREFIX}{network_id}")
        self._named, self._with_names = (names, routers), set(names)

    def _follow(self, network: Network, found: Any) -> None:
        """Give the bridge of libvirt's network ``found`` the host's address and the MTU, which may have changed.

        The definition follows for the next start.
        """
        xml = network_xml(network)
        if self._defined.get(network.id) == xml:
            return
        defined = existing.parsed(self._connection, found, libvirt.VIR_NETWORK_XML_INACTIVE)
        address = defined.find("ip[@address]")
        is_moved = address is None or address.get("address") != host_address(network)
        if is_moved or existing.defined_mtu(defined) != network.mtu:
            self._connection.connect_call("networkDefineXML", xml)
        existing.move_bridge(bridge_name(network), _cidr(network), host_address(network))
        existing.set_mtu(bridge_name(network), network.mtu)
        self._defined[network.id] = xml

    def _lookup(self, network: Network) -> Any:
        return self._connection.call_unless(
            (libvirt.VIR_ERR_NO_NETWORK,), self._connection.get().networkLookupByName, network_name(network)
        )

    def _ensure(self, network: Network) -> bool:
        """Define and start the network. Return False if its bridge is the operator's own, who then provides DHCP."""
        with self._replacing:
            found, root = self._current(network)
        if found is None and existing.has_bridge(network):
            found = self._lookup(network)  # another daemon may have started the network since the first look
            if found is None:
                existing.check_bridge(self._connection, network)
                LOG.info("Bridge %s is used unchanged: libvirt did not make it", bridge_name(network))
                return False
        if found is None:
            xml = network_xml(network)
            found = self._connection.connect_call("networkDefineXML", xml)
            self._defined[network.id] = xml
            LOG.info("Network %s is defined, with bridge %s", network_name(network), bridge_name(network))
        else:
            existing.check_network(network, existing.parsed(self._connection, found) if root is None else root)
        os.makedirs(reservations_directory(network), mode=0o755, exist_ok=True)
        _touch(network)
        is_changed = _write_settings(network, self._host, self._domain)
        if self._connection.call(found.isActive):
            self._follow(network, found)
            if is_changed:
                self._reload(network)
        else:
            for name in existing.remove_overlapping(self._connection, network, _has_reservations):
                self._firewall.forget(name.removeprefix(PREFIX))
            # libvirt's code for a network that another daemon has just started.
            # A call that is repeated after a broken connection fails with the same code.
            self._connection.call_unless((libvirt.VIR_ERR_OPERATION_INVALID,), found.create)
            self._connection.call(found.setAutostart, 1)
        return True

    def _current(self, network: Network) -> tuple[Any, ET.Element | None]:
        """Return libvirt's network and its XML, if there is one. One of another IPv6 subnet is removed, as no guest
        uses it.
        """
        found = self._lookup(network)
        if found is None:
            return None, None
        root = existing.parsed(self._connection, found)
        if ipv6_settings(root) == ipv6_settings(ET.fromstring(network_xml(network))):  # noqa: S314 our own
            return found, root
        if _has_reservations(network_name(network)) or not existing.remove_unless_used(
            self._connection, network_name(network)
        ):
            LOG.warning(
                "Network %s was started without its present IPv6 subnet, and guests use it: remove it when none does "
                "(virsh net-destroy %s)",
                network.id,
                network_name(network),
            )
            return found, root
        LOG.info("Network %s is started again, since its IPv6 subnet has changed", network.id)
        self._defined.pop(network.id, None)
        return None, None

    @staticmethod
    def _reload(network: Network) -> None:
        _reload(network_name(network))


def _reload(name: str) -> None:
    """Make dnsmasq read its reservations again. It notices new files itself, but not removed ones."""
    with contextlib.suppress(FileNotFoundError, ValueError, ProcessLookupError):
        with open(os.path.join(PID_DIRECTORY, f"{name}.pid")) as file:
            pid = int(file.read())
        with open(f"/proc/{pid}/comm") as file:
            if file.read().strip() == "dnsmasq":
                os.kill(pid, signal.SIGHUP)


def network_xml(network: Network) -> str:
    """Return the network's XML. It is the same on each host: name, uuid and bridge follow from the network's id.

    A network without a gateway is one with NAT, too, so that it can get one: its firewall decides what passes. With
    IPv6 of an operator libvirt would advertise a way out.
    """
    root = ET.Element("network")
    _text(root, "name", network_name(network))
    _text(root, "uuid", _network_uuid(network.id))
    if network.gateway or not network.cidr6 or network.subnet6 is not None:
        forward = ET.SubElement(root, "forward", mode="nat")
        if network.cidr6:
            ET.SubElement(forward, "nat", ipv6="yes")
    ET.SubElement(root, "bridge", name=bridge_name(network), stp="off", delay="0")
    if network.vni is not None:
        # The same on all hosts, so that a guest finds its gateway after a move.
        ET.SubElement(root, "mac", address=bridge_mac(network.vni))
    ET.SubElement(root, "mtu", size=str(network.mtu))
    cidr = _cidr(network)
    ET.SubElement(root, "ip", address=host_address(network), netmask=str(cidr.netmask))
    if network.cidr6:
        # dnsmasq advertises the prefix, and itself as the router if the network has a gateway.
        prefix = ip.parse_network6(network.cidr6).prefixlen
        address = ET.SubElement(root, "ip", family="ipv6", address=ipv6.host_address(network), prefix=str(prefix))
        if ipv6.is_assigned(network):
            # libvirt's dnsmasq assigns reserved addresses if there is one, and lets guests derive none.
            ET.SubElement(ET.SubElement(address, "dhcp"), "host", id=_NOBODY, ip=ipv6.host_address(network))
    options = ET.SubElement(root, f"{{{_DNSMASQ}}}options")
    for option in (
        *_options6(network),
        f"dhcp-range={cidr.network_address},static,{cidr.netmask}",
        f"dhcp-hostsdir={reservations_directory(network)}",
        f"dhcp-optsfile={_settings_path(network, 'options')}",
        f"servers-file={_settings_path(network, 'servers')}",
        f"addn-hosts={_names_path(network.id)}",
        "no-resolv",
        f"dhcp-option=option:mtu,{network.mtu}",
        # Authoritative for its guests only: it ignores others, and refuses no request of theirs.
        "dhcp-ignore=tag:!known",
        "dhcp-authoritative",
        "dhcp-no-override",
    ):
        ET.SubElement(options, f"{{{_DNSMASQ}}}option", value=option)
    return ET.tostring(root, encoding="unicode")


def _options6(network: Network) -> list[str]:
    """Return dnsmasq's options for an IPv6 subnet that are not libvirt's."""
    if network.subnet6 is None:
        return []
    options = [_NO_ROUTER] if network.subnet6.gateway is None else []
    if ipv6.is_stateless(network):
        options.append(f"{_STATELESS}{ip.parse_network6(network.cidr6).network_address},ra-stateless,64")
    return options


def ipv6_settings(root: ET.Element) -> set[tuple[str, ...]]:
    """Return how a network of libvirt does IPv6, which does not change while it runs."""
    subnets = {
        (element.get("address", ""), element.get("prefix", ""), str(element.find("dhcp") is not None))
        for element in root.iterfind("ip[@family='ipv6']")
    }
    options = {str(option.get("value")) for option in root.iter(_OPTION)}
    return subnets | {(option,) for option in options if option == _NO_ROUTER or option.endswith(",ra-stateless,64")}


def _cidr(network: Network) -> ipaddress.IPv4Network:
    try:
        return ip.parse_network4(network.cidr, strict=False)
    except ValueError as error:
        raise exceptions.VirtDriverError(reason=f"network {network.name} is not IPv4: {network.cidr}") from error


def settings(network: Network, name_servers: list[str], domain: str) -> dict[str, str]:
    """Return the files with settings of a network that can change, in dnsmasq's format.

    ``domain``: of guests on networks without one.
    """
    routes = [
        (nft.network(ip.parse_network4(route["destination"])), nft.address(ip.parse4(route["nexthop"])))
        for route in nft.usable("host route", network.host_routes or [], _valid_route, str)
    ]
    if routes and network.gateway:
        # A guest that gets this option ignores the one of the gateway (RFC 3442).
        routes.append(("0.0.0.0/0", str(_address(network, network.gateway))))
    words = ",".join(word for route in routes for word in route)
    options = [f"option:router,{_address(network, network.gateway)}" if network.gateway else "option:router"]
    options += [f"option:classless-static-route,{words}", f"249,{words}"] if routes else []
    options += names_of_guests.options(network, domain)
    options.append(f"option:mtu,{network.mtu}")  # comes before the option of the network's start
    servers = [*names_of_guests.servers(domain), *(f"server={address}" for address in name_servers)]
    return {"options": "\n".join([*options, ""]), "servers": "\n".join([*servers, ""])}


def _valid_route(route: dict[str, str]) -> dict[str, str]:
    ip.parse_network4(route["destination"]), ip.parse4(route["nexthop"])
    return route


def _write_settings(network: Network, host: str, domain: str) -> bool:
    """Write the files of `settings` that differ. Return whether there were any."""
    written = False
    for kind, text in settings(network, _name_servers(network) or _own_name_servers(), domain).items():
        path = _settings_path(network, kind)
        content = text.encode()
        with contextlib.suppress(OSError), open(path, "rb") as file:
            if file.read() == content:
                continue
        files.write_atomically(path, content, mode=0o644, writer=host)
        written = True
    return written


def _settings_path(network: Network, kind: str) -> str:
    return f"{reservations_directory(network).removesuffix('.d')}.{kind}"


def _names_path(network_id: str) -> str:
    if not _PLAIN_NAME.fullmatch(network_id):
        raise exceptions.VirtDriverError(reason=f"network id {network_id!r} is not a plain name")
    return os.path.join(dhcp.DIRECTORY, f"{PREFIX}{network_id}.names")


def _own_name_servers() -> list[str]:
    """Return the name servers of this machine, for networks that name none."""
    try:
        with open(RESOLV_CONF, encoding="utf-8", errors="replace") as file:
            words = [line.split() for line in file]
    except OSError as error:
        LOG.warning("Guests find no names, unless their subnet has name servers: %s", error)
        return []
    found = [line[1] for line in words if len(line) > 1 and line[0] == "nameserver"]
    return nft.usable("name server", found, lambda text: nft.address(ip.parse(text)), str)


def _name_servers(network: Network) -> list[str]:
    """Return the name servers of a network, leaving out services of this machine.

    dnsmasq would send queries of guests to services that only this machine may use. Only an operator may want that.
    """
    dns = [*network.dns, *(network.subnet6.dns if network.subnet6 is not None else ())]
    here = set() if network.project_id is None or not dns else own_addresses()

    def remote(text: str) -> str:
        address = ip.parse(text)
        if not factory.is_remote(address) or str(address) in here:
            raise ValueError("it is not the address of another machine")
        return str(address)

    return nft.usable("name server", dns, remote, str)


def own_addresses() -> set[str]:
    """Return the addresses of this machine."""
    links = json.loads(images.run("ip", "-json", "address", "show"))
    return {info["local"] for link in links for info in link.get("addr_info", ()) if "local" in info}


def _network_uuid(network_id: str) -> str:
    try:
        return str(uuid.UUID(network_id))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"urn:nova-lite:network:{network_id}"))


def host_address(network: Network) -> str:
    """Return the bridge's address: the gateway, else the choice of the conductor.

    Without either, it is the first address outside of the pool.
    """
    if known := network.gateway or network.host_address:
        return str(_address(network, known))
    cidr = _cidr(network)
    first = _address(network, network.start) if network.start else cidr[1]
    last = _address(network, network.end) if network.end else cidr[-2]
    for address in (cidr[1], cidr[-2]):
        if not int(first) <= int(address) <= int(last):
            return str(address)
    raise exceptions.VirtDriverError(
        reason=f"network {network.name} has no address for the host: no gateway, and all addresses are in its pool"
    )


def _address(network: Network, text: str) -> ipaddress.IPv4Address:
    try:
        return ip.parse4(text)
    except ValueError as error:
        raise exceptions.VirtDriverError(reason=f"network {network.name} has an invalid address: {error}") from error


# --- reservations


def reservations_directory(network: Network, is_served: bool = True) -> str:
    """Return the directory of the reservations. ``is_served``: dnsmasq reads it."""
    if not _PLAIN_NAME.fullmatch(network.id):
        raise exceptions.VirtDriverError(reason=f"network id {network.id!r} is not a plain name")
    return reservations_directory_of(network_name(network), is_served)


def reservations_directory_of(name: str, is_served: bool = True) -> str:
    return os.path.join(dhcp.DIRECTORY, f"{name}.{'d' if is_served else 'off'}")


def _has_reservations(name: str) -> bool:
    """Check whether the network of this name has addresses of guests, served by DHCP or not."""
    directories = (reservations_directory_of(name, is_served) for is_served in (True, False))
    names = [found for directory in directories if os.path.isdir(directory) for found in os.listdir(directory)]
    return any(not found.startswith(files.TEMPORARY) for found in names)


def _known_ids() -> set[str]:
    """Return the ids of networks with a directory of reservations."""
    paths = [path for served in (True, False) for path in glob.glob(reservations_directory_of(f"{PREFIX}*", served))]
    return {os.path.basename(path).rpartition(".")[0].removeprefix(PREFIX) for path in paths}


def _touch(network: Network) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.utime(reservations_directory(network))


def _age(name: str) -> float:
    """Return the seconds since the last use of the network of this name. A directory changes with each reservation."""
    used = []
    for is_served in (True, False):
        with contextlib.suppress(FileNotFoundError):
            used.append(os.stat(reservations_directory_of(name, is_served)).st_mtime)
    return time.time() - max(used, default=time.time())


def _remove_files(name: str) -> None:
    """Remove the settings and the empty directories of the network of this name."""
    for kind in ("options", "servers", "names"):
        files.remove(os.path.join(dhcp.DIRECTORY, f"{name}.{kind}"))
    for is_served in (True, False):
        with contextlib.suppress(OSError):  # a new reservation keeps it
            os.rmdir(reservations_directory_of(name, is_served))


def _reservation_path(vif: VIF, is_served: bool = True) -> str:
    if not _PLAIN_NAME.fullmatch(vif.id):
        raise exceptions.VirtDriverError(reason=f"VIF id {vif.id!r} is not a plain name")
    return os.path.join(reservations_directory(vif.network, is_served), vif.id)


def _place_reservations(network: Network) -> bool:
    """Move all reservations to where dnsmasq reads them, or does not without DHCP. Return whether there were any."""
    is_served = _is_served(network)
    source, target = (reservations_directory(network, flag) for flag in (not is_served, is_served))
    os.makedirs(target, mode=0o755, exist_ok=True)
    moved = False
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(source):
            if not name.startswith(files.TEMPORARY):
                with contextlib.suppress(FileNotFoundError):  # a guest has just gone
                    os.rename(os.path.join(source, name), os.path.join(target, name))
                    moved = True
    return moved


def _is_served(network: Network) -> bool:
    """Check whether dnsmasq assigns addresses."""
    return network.enable_dhcp or ipv6.is_assigned(network)


def reservation(vif: VIF, hostname: str) -> str:
    """Return a line in dnsmasq's format: MAC address, addresses, host name (its first label), lease time."""
    mac_address = vif.mac_address.lower()
    if not _MAC_ADDRESS.fullmatch(mac_address):
        raise exceptions.VirtDriverError(reason=f"{vif.mac_address!r} is not a MAC address")
    try:
        fields = [mac_address, str(ip.parse4(vif.address))]
        if ipv6.is_assigned(vif.network):
            addresses = [] if not vif.network.enable_dhcp else fields[1:]
            assigned = [ip.parse6(item.address) for item in vif.more if version_of(item.address) == 6]
            fields = [mac_address, *addresses, *(f"[{address}]" for address in assigned)]
    except ValueError as error:
        raise exceptions.VirtDriverError(reason=f"port {vif.id} has an invalid address: {error}") from error
    name = hostname.partition(".")[0]
    if _HOSTNAME.fullmatch(name):
        fields.append(name)
    return ",".join([*fields, LEASE_TIME]) + "\n"


def _reserve(vif: VIF, hostname: str, host: str) -> None:
    """Write the reservation, and remove outdated ones of the same address or MAC address. ``host``: this host."""
    line = reservation(vif, hostname)
    path = _reservation_path(vif, _is_served(vif.network))
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


def _text(parent: ET.Element, tag: str, text: str) -> None:
    ET.SubElement(parent, tag).text = text
