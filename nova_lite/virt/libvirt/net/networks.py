"""The host side of built-in networks: a bridge for each, a gateway in its realm, and DHCP by reservation only.

Several compute daemons may share one machine. So all steps are repeatable, and what another daemon has done already
counts as done. The network stays when its last reservation is removed, until it was idle for some time
(`HostNetworks.remove_idle`), or its realm is needed elsewhere. Each use touches the directory of its reservations.
"""

from __future__ import annotations

import contextlib
import glob
import json
import logging
import os
import socket
import time
from collections.abc import Mapping
from typing import NamedTuple

from oslo_config import cfg

from nova_lite.base import exceptions, files, ip
from nova_lite.objects import VIF, HostRouter, Network
from nova_lite.objects.packet_probe import AT_GATEWAY, AT_PORT, AT_TUNNEL, AT_WAY_OUT
from nova_lite.objects.security_group import NetworkMembers
from nova_lite.virt.libvirt.connection import Connection
from nova_lite.virt.libvirt.net import (
    dhcp,
    firewall,
    floating_ips,
    former_networks,
    links,
    names_of_guests,
    namespaces,
    neutron,
    nft,
    port_options,
    realms,
    reservations,
)
from nova_lite.virt.libvirt.net.firewall import Published, Routing, default_routing
from nova_lite.virt.libvirt.net.links import Links
from nova_lite.virt.libvirt.net.names import (
    CHAIN,
    PREFIX,
    UPLINK,
    bridge_name,
    gateway_name,
    links_table,
    network_name,
    network_table,
    realm_name,
    tap_of,
    tunnel_name,
    uplink_name,
)
from nova_lite.virt.libvirt.net.realms import METADATA_ADDRESS, METADATA_PORT, Realms
from nova_lite.virt.libvirt.net.uses import NetworkUses

LOG = logging.getLogger(__name__)

#: Seconds after which it is checked again whether other programs have changed what was made.
CHECK_SECONDS = 10.0
#: Routers that are looked at again then: so many, or such a part of all.
_AGAIN, _PARTS = 8, 10
#: Connections to the metadata service that wait.
_BACKLOG = 128


class _Placed(NamedTuple):
    """A network with the settings that its gateway has, and its realm."""

    network: Network
    realm_id: str


class HostNetworks:
    """Networks of this host. ``connection``: libvirt's, which may still have networks of older versions."""

    def __init__(
        self, conf: cfg.ConfigOpts, connection: Connection, host: str, check_seconds: float = CHECK_SECONDS
    ) -> None:
        self._check_seconds = check_seconds
        self._connection = connection
        self._host = host
        self.numbers = Links(dhcp.DIRECTORY)
        self._realms = Realms(self.numbers)
        self._uses = NetworkUses()
        self._domain: str = conf.network.dns_domain
        #: Names of guests, and routers, that the files of names have; and the networks with such files.
        self._named: object = None
        self._with_names: set[str] = set()
        self._has_metadata: bool = conf.network.metadata_service
        self._host_ports: list[int] = conf.network.host_ports
        self._table = links_table(host)
        self._is_prepared = False
        #: Networks with a gateway that this daemon needs, by id; and those of its guests' ports, by the ports' ids.
        self._placed: dict[str, _Placed] = {}
        self._ports: dict[str, str] = {}
        #: Routers by the ids of their networks, and how these are routed.
        self._routers: dict[str, HostRouter] = {}
        self._routing: dict[str, Routing] = {}
        #: Loaded rules and routes: realm and table by network, the host's table, its routes by range.
        self._loaded: dict[str, tuple[str, str]] = {}
        self._links = ""
        #: Routers whose routes and neighbours are set, longest ago first; and when some were last looked at again.
        self._carried: dict[str, HostRouter] = {}
        self._carried_at = self._restored_at = float("-inf")
        self._routes: dict[str, str] = {}
        self._sockets: dict[str, tuple[str, socket.socket]] = {}
        self._unserved: set[str] = set()

    # --- start of the daemon

    def init_host(self, vifs: list[VIF]) -> set[str]:
        """Restore the networks of this host's guests, which do not survive a reboot. ``vifs``: of these guests.

        Returns the ids of the networks that have a gateway here. A network that fails is logged.
        """
        if self._has_metadata and (problem := nft.run("list tables\n")):
            raise exceptions.ConfigurationError(reason=f"[network] metadata_service: {problem}")
        of_ports = (
            reservations.directory_of("*"),
            reservations.directory_of("*", False),
            port_options.directory_of("*"),
        )
        for pattern in (dhcp.DIRECTORY, *of_ports):
            for directory in glob.glob(pattern):
                files.remove_unfinished(directory, self._host)
        with self.numbers.lock():
            files.remove_unfinished(dhcp.DIRECTORY, links.WRITER)
        ours = [vif for vif in vifs if vif.vif_type is None]
        self._ports = {vif.id: vif.network.id for vif in ours}
        networks = {vif.network.id: vif.network for vif in ours}
        former_networks.remove(self._connection, lambda network_id: network_id in networks)
        former_networks.remove_rules(self._host)
        for network in networks.values():
            try:
                self._ensure(network)
            except exceptions.VirtDriverError as error:
                LOG.error("Network %s of guests is not restored: %s", network.id, error.message)
        for vif in ours:
            self.update_options(vif)  # the daemon may have died before it did
        return self.managed(vifs)

    def _prepare(self) -> None:
        """Prepare the host for realms: it forwards packets, and has a name server for them."""
        if self._is_prepared:
            return
        namespaces.set_up(["ipv4/ip_forward=1"])
        namespaces.ip_batch([f"address replace {links.HOST}/32 dev lo"])
        dhcp.make_room()
        dhcp.run(dhcp.RESOLVER, dhcp.resolver_configuration(), None)
        _accept_links()
        self._is_prepared = True

    # --- networks

    def start(self, network: Network) -> bool:
        """Start a network that a router or a service needs here. Return False if its bridge is the operator's own."""
        with self._uses.use(network.id):
            return self._ensure(network)

    def serves(self, network: Network) -> bool:
        """Check whether guests there reach the metadata service. Without a gateway they have no route to its
        address, and without DHCP none of their own."""
        return self._has_metadata and network.gateway is not None and network.enable_dhcp

    def reach_metadata(self, vifs: list[VIF]) -> bool:
        """Check whether a guest with these interfaces reaches a metadata service."""
        return bool(self.managed([vif for vif in vifs if self.serves(vif.network)]))

    def plug(self, vif: VIF, hostname: str) -> bool:
        """Start the network and reserve the VIF's address for its MAC address.

        Returns whether the network has a gateway here. It has none on an operator's bridge.
        """
        if vif.is_device:
            return False
        if vif.vif_type is not None:
            neutron.plug(vif)
            return False
        with self._uses.use(vif.network.id):
            self._ports[vif.id] = vif.network.id
            if not self._ensure(vif.network):
                return False
            self.update_options(vif)
            reservations.reserve(vif, hostname, self._host)
        reservations.place(vif.network)
        dhcp.reload(network_name(vif.network))
        # The lease of a former guest would keep dnsmasq from assigning the address to its new owner.
        self._release(vif, is_own=False)
        return True

    def unplug(self, vif: VIF) -> None:
        """Remove the VIF's reservation and lease, if any, or its port of Open vSwitch."""
        if vif.vif_type is not None:
            neutron.unplug(vif)
            return
        self._ports.pop(vif.id, None)
        port_options.remove(vif)
        paths = [path for flag in (True, False) if os.path.exists(path := reservations.path_of(vif, flag))]
        for path in paths:
            files.remove(path)
        if paths:
            dhcp.reload(network_name(vif.network))
            self._release(vif, is_own=True)

    def _release(self, vif: VIF, is_own: bool) -> None:
        """Release leases of the VIF's address: its own, or those of others."""
        realm_id, own = realms.realm_of(vif.network.id), vif.mac_address.lower()
        if realm_id is not None:
            dhcp.release(vif.network, realm_id, vif.address, lambda mac_address: (mac_address == own) is is_own)

    def managed(self, vifs: list[VIF]) -> set[str]:
        """Return the ids of networks that have a gateway here, without those on an operator's bridge."""
        ours = {vif.network.id: vif.network for vif in vifs if vif.vif_type is None}
        return {key for key, network in ours.items() if realms.network_on(bridge_name(network)) == key}

    def update(self, network: Network) -> None:
        """Carry out changed settings of a network whose guests are plugged. Raises `VirtDriverError`.

        Guests get them with their next lease.
        """
        if network.id not in self._placed:
            return
        os.makedirs(reservations.directory_for(network), mode=0o755, exist_ok=True)
        self._ensure(network)
        moved = reservations.place(network)
        if reservations.write_settings(network, self._host, self._domain) or moved:
            dhcp.reload(network_name(network))

    def update_options(self, vif: VIF) -> None:
        """Carry out changed DHCP options of a port. Its guest gets them with its next lease."""
        placed = self._placed.get(vif.network.id)
        if placed is None or not port_options.write(vif, self._host):
            return
        if vif.dhcp_options:
            with self.numbers.lock():
                self._serve(placed)
        dhcp.reload(network_name(vif.network))

    def places(self) -> dict[str, tuple[str, str]]:
        """Return the places of a packet: kind and id of ports, gateways, ways out and tunnels, by their devices."""
        found = {tap_of(port_id): (AT_PORT, port_id) for port_id in list(self._ports)}
        for network, realm_id in list(self._placed.values()):
            found |= {gateway_name(network.id): (AT_GATEWAY, network.id), uplink_name(realm_id): (AT_WAY_OUT, realm_id)}
            if network.vni is not None:
                found[tunnel_name(network)] = AT_TUNNEL, network.id
        return found

    def remove_idle(self, minimum_age: float) -> list[str]:
        """Remove networks that no guest and no router has used here for ``minimum_age`` seconds. Return their ids.

        The next guest starts its network again. A network that cannot be removed is logged, and tried again later.
        """
        removed = []
        for network_id in sorted(reservations.known_networks()):
            name = f"{PREFIX}{network_id}"
            with self._uses.remove(network_id) as is_free:
                if not is_free or reservations.has_any(name) or reservations.age_of(name) < minimum_age:
                    continue
                try:
                    if not self._remove(network_id):
                        continue
                except exceptions.VirtDriverError as error:
                    LOG.warning("Network %s is not removed, although it is idle: %s", name, error.message)
                    continue
                reservations.remove_files(name)
                removed.append(network_id)
        return removed

    def _remove(self, network_id: str) -> bool:
        with self.numbers.lock():
            realm_id = realms.realm_of(network_id)
            bridge = realms.bridge_of(network_id)
            if not self._realms.withdraw(network_id, bridge):
                return False
            dhcp.stop(f"{PREFIX}{network_id}")
            self._forget(network_id)
            former_networks.forget(self._connection, network_id)
            if realm_id is not None:
                self._drop(network_id, realm_id)
        self._publish()
        return True

    def restore(self) -> None:
        """Repair what other programs have ended or removed, from time to time. A failure is logged."""
        if time.monotonic() < self._restored_at + self._check_seconds:
            return
        self._restored_at = time.monotonic()
        try:
            if self._is_prepared:
                _accept_links()
                dhcp.run(dhcp.RESOLVER, dhcp.resolver_configuration(), None)
            if self._links and nft.run(f"list chain inet {self._table} forward\n"):
                LOG.warning("The table %s is gone and loaded again", self._table)
                self._links = ""
                self._publish()
        except exceptions.VirtDriverError as error:
            LOG.error("Networks of this host are not restored: %s", error.message)
        self._revive()

    def watch(self) -> None:
        """Start DHCP servers again that have ended, where no systemd does. A failure is logged."""
        if not namespaces.has_manager():
            self._revive()

    def _revive(self) -> None:
        needed = {*self._ports.values(), *self._routers}
        for network, _ in list(self._placed.values()):
            if network.id not in needed or dhcp.is_running(network_name(network)):
                continue
            with self.numbers.lock():  # no other thread or daemon is starting it
                has_ended = not dhcp.is_running(network_name(network))
            if has_ended:
                LOG.warning("The DHCP server of network %s has ended and starts again", network.id)
                try:
                    self._ensure(network)
                except exceptions.VirtDriverError as error:
                    LOG.error("Network %s of this host is not restored: %s", network.id, error.message)

    def _ensure(self, network: Network) -> bool:
        """Make what a network needs. Return False if its bridge is the operator's own, who then provides DHCP."""
        if self._is_there(network):
            reservations.touch(network)
            return True
        with self.numbers.lock():
            guests = former_networks.take_over(self._connection, network)
            bridge = bridge_name(network)
            if os.path.exists(f"{realms.NET}/{bridge}") and realms.network_on(bridge) != network.id:
                _check_bridge(network)
                LOG.info("Bridge %s is used unchanged: it is the operator's", bridge)
                return False
            self._prepare()
            if network.cidr6:
                _forward6()
            realm_id, former = self._realm_for(network), realms.realm_of(network.id)
            self._realms.make_bridge(network)
            namespaces.ip_batch(f"link set dev {name} master {bridge}" for name in sorted(guests))
            os.makedirs(reservations.directory_for(network), mode=0o755, exist_ok=True)
            os.makedirs(port_options.directory_of(network_name(network)), mode=0o755, exist_ok=True)
            reservations.touch(network)
            is_changed = reservations.write_settings(network, self._host, self._domain)
            self._settle(network, realm_id, former)
            if guests:
                _announce(network, realm_id)
            if is_changed:
                dhcp.reload(network_name(network))
            former_networks.lead_to(self._connection, network)
        self._publish()
        return True

    def _settle(self, network: Network, realm_id: str, former: str | None) -> None:
        """Run a network's gateway and DHCP server in a realm, and leave its ``former`` one."""
        name = network_name(network)
        # The host refuses packets of the uplink before there are any.
        self._publish_locked({bridge_name(network): uplink_name(realm_id)})
        if self._realms.place(network, realm_id):
            dhcp.stop(name)
            # Another daemon may have removed its realm meanwhile: table and socket were of the former one.
            self._loaded.pop(network.id, None)
            self._close_socket(network.id)
            self._carried.pop(realm_id, None)
        self._placed[network.id] = placed = _Placed(network, realm_id)
        self._load(network.id)
        self._serve(placed)
        if former not in (None, realm_id):
            self._drop(network.id, str(former))

    def _serve(self, placed: _Placed) -> None:
        """Run a network's DHCP server. It starts again, with its leases, when a port gets its first options."""
        network, name = placed.network, network_name(placed.network)
        directories = reservations.directory_for(network), port_options.directory_of(name)
        text = dhcp.configuration(network, name, *directories, port_options.tags(name))
        dhcp.run(name, text, placed.realm_id)

    def _is_there(self, network: Network) -> bool:
        """Check whether all that a network needs was made already."""
        realm_id = realms.realm_of(network.id)
        return (
            realm_id is not None
            and self._placed.get(network.id) == (network, realm_id)
            and self._realm_for(network) == realm_id
            and realms.network_on(bridge_name(network)) == network.id
            and dhcp.is_running(network_name(network))
        )

    def _realm_for(self, network: Network) -> str:
        """Return the realm of a network: its router's, or its own. Another daemon may know its router first."""
        if network.id in self._routers:
            return self._routers[network.id].id
        return realms.realm_of(network.id) or network.id

    def _forget(self, network_id: str) -> None:
        self._placed.pop(network_id, None)
        self._loaded.pop(network_id, None)
        self._close_socket(network_id)

    def _close_socket(self, network_id: str) -> None:
        _, listener = self._sockets.pop(network_id, (None, None))
        if listener is not None:
            listener.close()

    def _drop(self, network_id: str, realm_id: str) -> None:
        """Remove a network's table from a realm where it is not any more, and the realm if nothing is there."""
        if realm_id not in realms.used():
            self._realms.remove(realm_id)
        else:
            table = f"inet {network_table(network_id)}"
            nft.apply(f"add table {table}\ndelete table {table}\n", realm_name(realm_id))

    # --- routers

    def set_routers(self, routers: list[HostRouter]) -> None:
        """Replace the routers, before `init_host` or `route` carries them out."""
        self._routers = {network.id: router for router in routers for network in router.networks}
        self._routing = firewall.routings(routers)

    def route(self, routers: list[HostRouter]) -> None:
        """Replace the routers, and place the networks of this host accordingly. A failure is logged."""
        self.set_routers(routers)
        alone = {*self._ports.values()} - self._routers.keys()
        for network, realm_id in list(self._placed.values()):
            try:
                if network.id in alone and realm_id != network.id:
                    # A realm of its own, not of its former router.
                    with self.numbers.lock():
                        self._settle(network, network.id, realm_id)
                elif network.id in self._routers or network.id in alone:
                    self._ensure(network)
                    self._load(network.id)
            except exceptions.VirtDriverError as error:
                LOG.error("Network %s is not routed: %s", network.id, error.message)
        self._publish()
        known = {router.id for router in routers if self._carried.get(router.id) == router}
        if time.monotonic() >= self._carried_at + self._check_seconds:
            again = max(_AGAIN, len(routers) // _PARTS)
            known -= set(list(self._carried)[:again])
            self._carried_at = time.monotonic()
        self._carried = {key: router for key, router in self._carried.items() if key in known}
        self._carried |= {router.id: router for router in routers if router.id not in known and _carry_out(router)}

    def _routing_of(self, network: Network) -> Routing:
        return self._routing.get(network.id, default_routing(network))

    def _load(self, network_id: str) -> None:
        """Load a network's table in its realm, if it has changed. Raises `VirtDriverError`."""
        network, realm_id = self._placed[network_id]
        text = firewall.ruleset(network, self._routing_of(network), self._host_ports, self.serves(network))
        if self._loaded.get(network_id) != (realm_id, text):
            nft.apply(firewall.REALM_RULES + text, realm_name(realm_id))
            self._loaded[network_id] = realm_id, text

    def _publish(self) -> None:
        """Load what passes between the host and its realms, and the routes to networks whose guests show themselves."""
        with self.numbers.lock():
            self._publish_locked()

    def _publish_locked(self, coming: Mapping[str, str] | None = None) -> None:
        """Load them. ``coming``: bridges that are about to have a gateway, with the uplinks of their realms."""
        published, routes = [], {}
        for network, realm_id in list(self._placed.values()):
            if realms.realm_of(network.id) != realm_id:
                continue  # another daemon of this machine has removed the network
            routing = self._routing_of(network)
            for version, text in ((4, network.cidr), (6, network.cidr6)):
                if text and routing.publishes(network, version):
                    cidr = ip.parse_network(text, strict=False)
                    published.append(Published(cidr, not routing.snat))
                    routes[nft.network(cidr)] = self._way(realm_id, version)
        bridges = {bridge_name(network): uplink_name(realm_id) for network, realm_id in list(self._placed.values())}
        bridges |= coming or {}
        text = firewall.host_ruleset(self._table, published, bridges, self._host_ports)
        if text != self._links:
            nft.apply(text)
            self._links = text
        for target, way in routes.items():
            if self._routes.get(target) != way:
                _add_route(target, way)
        for target in self._routes.keys() - routes.keys():
            with contextlib.suppress(exceptions.VirtDriverError):  # it has gone with its device
                namespaces.ip_batch([f"route delete {target} {self._routes[target]}"])
        self._routes = routes

    def _way(self, realm_id: str, version: int) -> str:
        number = self.numbers.number(realm_id)
        address = links.address(number) if version == 4 else links.address6(number)
        return f"via {address} dev {uplink_name(realm_id)}"

    # --- services

    def set_names(self, names: Mapping[str, NetworkMembers] | None, routers: list[HostRouter]) -> None:
        """Publish the names of guests, by their networks, to the guests that they reach."""
        if names is None or (names, routers) == self._named:
            return
        found = names_of_guests.texts(names, routers, self._domain)
        for network_id, text in (dict.fromkeys(self._with_names - names.keys(), "") | found).items():
            if names_of_guests.write(reservations.names_path(network_id), text, self._host):
                dhcp.reload(f"{PREFIX}{network_id}")
        self._named, self._with_names = (names, routers), set(names)

    def metadata_sockets(self) -> dict[str, socket.socket]:
        """Return a listening socket for the metadata service of each network that has one, by the network's id."""
        for network, realm_id in list(self._placed.values()):
            former, listener = self._sockets.get(network.id, ("", None))
            if listener is not None and (former != realm_id or not self.serves(network)):
                self._sockets.pop(network.id)
                listener.close()
            if network.id not in self._sockets and self.serves(network):
                try:
                    self._sockets[network.id] = realm_id, _listen(network, realm_id)
                except (OSError, exceptions.VirtDriverError) as error:
                    if network.id not in self._unserved:
                        LOG.warning("Network %s has no metadata service: %s", network.id, error)
                    self._unserved.add(network.id)
                else:
                    self._unserved.discard(network.id)
        return {network_id: listener for network_id, (_, listener) in self._sockets.items()}


def _carry_out(router: HostRouter) -> bool:
    """Set routes and neighbours of a router that has a realm here. Return whether all hold."""
    if not namespaces.exists(realm_name(router.id)):
        return False
    spanning = [network for network in router.networks if network.vni is not None]
    here = [network for network in spanning if realms.realm_of(network.id) == router.id]
    held = [realms.set_neighbours(item, router.id, router.neighbours.get(item.id, {})) for item in here]
    return realms.set_routes(router) and all(held)


def _listen(network: Network, realm_id: str) -> socket.socket:
    """Return a socket that accepts connections from the guests of one network."""
    listener = namespaces.make_socket(realm_name(realm_id))
    try:
        # APIs may still have the socket of an earlier daemon, and another daemon of this machine has one, too.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, bridge_name(network).encode())
        listener.bind((METADATA_ADDRESS, METADATA_PORT))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _announce(network: Network, realm_id: str) -> None:
    """Tell guests the MAC address of their gateway, which was another one in libvirt's network."""
    with namespaces.within(realm_name(realm_id)):
        floating_ips.announce(bridge_name(network), realms.host_address(network))


def _accept_links() -> None:
    """Let iptables accept what links pass, before other programs' rules refuse it. Other rules of ours decide."""
    for program in ("iptables", "ip6tables"):
        try:
            rules = namespaces.run(program, "--wait", "-S", "FORWARD").splitlines()
        except exceptions.VirtDriverError:
            continue  # no such program, so there are no rules of it
        first = next((rule for rule in rules if rule.startswith("-A ")), "")
        if first.endswith(f"-j {CHAIN}"):
            continue
        text = f"*filter\n:{CHAIN} - [0:0]\n-A {CHAIN} -i {UPLINK}+ -j ACCEPT\n-A {CHAIN} -o {UPLINK}+ -j ACCEPT\n"
        namespaces.run(f"{program}-restore", "--noflush", "--wait", text=f"{text}-I FORWARD -j {CHAIN}\nCOMMIT\n")


def _forward6() -> None:
    """Let the host forward IPv6. Interfaces that learn their routes from advertisements continue with that."""
    settings = "/proc/sys/net/ipv6/conf"
    with open(f"{settings}/all/forwarding") as file:
        if file.read().strip() != "0":
            return
    learning = []
    for name in os.listdir(settings):
        with contextlib.suppress(FileNotFoundError), open(f"{settings}/{name}/accept_ra") as file:
            learning += [f"ipv6/conf/{name}/accept_ra=2"] if file.read().strip() == "1" else []
    namespaces.set_up([*learning, "ipv6/conf/all/forwarding=1"])


def _add_route(target: str, way: str) -> None:
    """Add a route of the host to a network. A route that the machine has itself stays, and this is logged."""
    version = "-6" if ":" in target else "-4"
    shown = json.loads(namespaces.run("ip", "-json", version, "route", "show", target) or "[]")
    if others := [item.get("dev", "") for item in shown if not str(item.get("dev", "")).startswith(UPLINK)]:
        LOG.error("This machine does not reach guests of %s: it has that range on %s", target, ", ".join(others))
        return
    namespaces.ip_batch([f"route replace {target} {way}"])


def _check_bridge(network: Network) -> None:
    """Check an existing bridge that is not of this network.

    Raises `VirtDriverError` if it belongs to another of our networks, or has only addresses of other subnets. A bridge
    without addresses is the operator's.
    """
    bridge = bridge_name(network)
    if (other := realms.network_on(bridge)) is not None:
        raise exceptions.VirtDriverError(
            reason=f"bridge {bridge} of network {network.name} belongs to network {other}. Remove that bridge when no "
            f"guest uses it: ip link delete {bridge}"
        )
    cidr = ip.parse_network(network.cidr, strict=False)
    (link,) = json.loads(namespaces.run("ip", "-json", "-4", "address", "show", "dev", bridge) or "[{}]") or [{}]
    found = [ip.parse_interface4(f"{item['local']}/{item['prefixlen']}") for item in link.get("addr_info", ())]
    if found and not any(item.ip in cidr for item in found):
        raise exceptions.VirtDriverError(
            reason=f"bridge {bridge} exists with {', '.join(map(str, found))}, and network {network.name} has {cidr}. "
            "Give the network another bridge, or remove this one"
        )
