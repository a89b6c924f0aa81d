"""Routers with real packets: two hosts with guests on several networks, and machines outside."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from nova_lite.objects import VIF, HostRouter, Network, StaticRoute, Subnet6, ipv6
from nova_lite.virt.libvirt.net import realms
from nova_lite.virt.libvirt.net.names import bridge_name, tap_name
from tests.integration.network.conftest import OUTSIDE, Room

A = Network(id="a0000000-0000-4000-8000-000000000000", name="a", cidr="10.1.0.0/24", gateway="10.1.0.1", vni=101)
B = Network(id="b0000000-0000-4000-8000-000000000000", name="b", cidr="10.2.0.0/24", gateway="10.2.0.1", vni=102)
C = Network(id="c0000000-0000-4000-8000-000000000000", name="c", cidr="10.3.0.0/24", gateway="10.3.0.1", vni=103)
NETWORKS = [
    msgspec.structs.replace(network, mtu=1450, bridge=f"br{network.name}", project_id="p", needs_router=True)
    for network in (A, B, C)
]
A, B, C = NETWORKS
OLD = msgspec.structs.replace(C, needs_router=None)
FLOATING, UPLINK = "192.0.2.50", "192.0.2.1"

#: Program that acts as a compute daemon: it plugs its guests, once. libvirt has no networks of older versions.
_DRIVE = """
import json, sys
from types import SimpleNamespace
import msgspec
from nova_lite.objects import VIF, HostRouter, PortFilters, SecurityGroup, SecurityGroupRule
from nova_lite.virt.libvirt.net import dhcp, former_networks, names, namespaces
from nova_lite.virt.libvirt.net.anti_spoofing import AntiSpoofing
from nova_lite.virt.libvirt.net.networks import HostNetworks
from nova_lite.virt.libvirt.net.routers import HostRouters
from nova_lite.virt.libvirt.net.security_groups import PortFirewall
from nova_lite.virt.libvirt.net.tunnels import Tunnels
settings = json.load(sys.stdin)
conf = SimpleNamespace(
    my_ip="127.0.0.1",
    vxlan=SimpleNamespace(local_ip=settings["local_ip"], dstport=4789),
    network=SimpleNamespace(
        metadata_service=settings["metadata"], host_ports=settings["host_ports"], security_groups=True,
        public_interface="lo",
    ),
)
# `ip netns exec` has mounts of its own.
namespaces._by_manager = lambda: ("nsenter", f"--mount=/proc/{settings['pid']}/ns/mnt", "--")
names.REALM, dhcp.DIRECTORY = settings["prefix"], settings["directory"]
former_networks.take_over = lambda *_: set()
for name in ("remove", "remove_rules", "lead_to", "forget"):
    setattr(former_networks, name, lambda *_: None)
vifs = msgspec.convert(settings["vifs"], list[VIF])
wanted = msgspec.convert(settings["routers"], list[HostRouter])
ports = {vif.id: [vif] for vif in vifs}
networks = HostNetworks(conf, None, "t")
routers = HostRouters(networks, "t", settings["directory"])
routers.read()
served = networks.init_host(vifs)
for vif in vifs:
    assert networks.plug(vif, "guest")
routers.prepare(bool(vifs))
tunnels = Tunnels(conf, "t", settings["directory"])
tunnels.prepare(ports, routers.active)
routers.set(wanted)
AntiSpoofing("t").prepare(ports, networks.managed(vifs))
both = [
    SecurityGroupRule(id=way + kind, security_group_id="g", direction=way, ethertype=kind)
    for way in ("ingress", "egress")
    for kind in ("IPv4", "IPv6")
]
group = SecurityGroup(id="g", name="g", rules=both)
firewall = PortFirewall(conf, "t", settings["directory"], networks.numbers)
firewall.prepare(ports)
floating = {name: address for address, name in settings["floating"].items()}
firewall.set(PortFilters(groups={"g": group}, instances={key: ["g"] for key in ports}, floating=floating))
tunnels.route(routers.active)
tunnels.set(settings["peers"])
if settings["metadata"]:
    for network_id, listener in networks.metadata_sockets().items():
        connection, (address, _) = listener.accept()
        connection.sendall(f"{network_id} {address}".encode())
        connection.close()
"""


#: Program that prints the source of a connection.
_SOURCE = """
import socket
with socket.create_server(("0.0.0.0", 81)) as server:
    print("waiting", flush=True)
    print(server.accept()[1][0])
"""


class RoutedHost(Room):
    """A host with the bridges of all networks. ``peer``: its only peer."""

    def __init__(self, number: int, directory: Path) -> None:
        super().__init__()
        self.local_ip, self.peer = f"10.8.0.{number}", f"10.8.0.{3 - number}"
        self._directory = directory
        self._floating: dict[str, str] = {}
        self._prefix = f"{self.name}-r-"
        directory.mkdir()
        self.in_space(self.host, "ip", "route", "add", "default", "via", OUTSIDE)

    def realm(self, realm_id: str) -> str:
        """Return the name of a realm's namespace."""
        return f"{self._prefix}{realm_id}"

    def guest_on(self, network: Network, name: str, number: int) -> VIF:
        address6 = network.cidr6.replace("/64", str(number)) or None
        vif = VIF(
            id=str(uuid.uuid4()),
            mac_address=f"fa:16:3e:00:{network.vni:02x}:{number:02x}",
            address=network.cidr.replace("0/24", str(number)),
            network=network,
            port_security_enabled=True,
            more=ipv6.further_addresses(network, address6),
        )
        space = f"{self.name}-{name}"
        self._space(space)
        link = ("ip", "link", "add", tap_name(vif), "type", "veth", "peer", "name", "eth0", "netns", space)
        self.in_space(self.host, *link)
        bridge = bridge_name(network)
        if f": {bridge}:" not in self.in_space(self.host, "ip", "-oneline", "link", "show"):
            alias = ("alias", f"{realms.ALIAS}{network.id}")
            self.in_space(self.host, "ip", "link", "add", bridge, "mtu", "1450", "type", "bridge")
            self.in_space(self.host, "ip", "link", "set", bridge, "addrgenmode", "none", *alias, "up")
        self.in_space(self.host, "ip", "link", "set", tap_name(vif), "master", bridge, "up")
        self.in_space(space, "ip", "link", "set", "eth0", "address", vif.mac_address, "mtu", "1450", "up")
        self.in_space(space, "ip", "address", "add", f"{vif.address}/24", "dev", "eth0")
        self.in_space(space, "ip", "route", "add", "default", "via", network.gateway or "")
        if address6 is not None:
            self.in_space(space, "ip", "-6", "address", "add", f"{address6}/64", "dev", "eth0", "nodad")
            self.in_space(space, "ip", "-6", "route", "add", "default", "via", ipv6.gateway(network) or "")
        self.guests[name] = vif
        return vif

    def floating(self, address: str, name: str) -> None:
        self._floating[address] = self.guests[name].id

    def drive(self, *routers: HostRouter, peers: bool = True) -> None:
        """Run the daemon once with these routers."""
        settings = {
            "local_ip": self.local_ip,
            "directory": str(self._directory),
            "vifs": msgspec.to_builtins(list(self.guests.values())),
            "routers": msgspec.to_builtins(list(routers)),
            "peers": {network.id: [self.peer] if peers else [] for network in NETWORKS},
            "floating": self._floating,
            "prefix": self._prefix,
            "pid": os.getpid(),
            "metadata": False,
            "host_ports": [],
        }
        self.in_space(self.host, sys.executable, "-W", "ignore", "-c", _DRIVE, text=json.dumps(settings))

    def close(self) -> None:
        for path in self._directory.glob("*.pid"):
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(path.read_text()), signal.SIGKILL)
        for name in os.listdir("/run/netns"):
            if name.startswith(self._prefix):
                self._spaces.append(name)
        super().close()

    def source(self, space: str, who: str, address: str) -> str:
        """Return the source of a connection from ``who`` to ``address``, seen in a namespace."""
        command = ["ip", "netns", "exec", space, sys.executable, "-c", _SOURCE]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listener:
            assert listener.stdout is not None and listener.stdout.readline() == "waiting\n"
            try:
                assert self.reaches(who, address, 81)
            except AssertionError:
                listener.kill()
                raise
            return listener.stdout.readline().strip()


@pytest.fixture
def hosts(room: Room, tmp_path: Path) -> Iterator[tuple[RoutedHost, RoutedHost]]:
    with contextlib.ExitStack() as stack:
        made = []
        for number in (1, 2):
            host = RoutedHost(number, tmp_path / str(number))
            stack.callback(host.close)
            made.append(host)
        one, two = made
        link = ("ip", "link", "add", "under", "type", "veth", "peer", "name", "under", "netns", two.host)
        one.in_space(one.host, *link)
        for host in made:
            host.in_space(host.host, "ip", "address", "add", f"{host.local_ip}/24", "dev", "under")
            host.in_space(host.host, "ip", "link", "set", "under", "up")
        yield one, two


def router(*networks: Network, guests: list[VIF], external: bool = False, snat: bool = True) -> HostRouter:
    """Return a router that connects these networks of these guests."""
    neighbours: dict[str, dict[str, str]] = {}
    for vif in guests:
        addresses = [vif.address, *(item.address for item in vif.more)]
        neighbours.setdefault(vif.network.id, {}).update(dict.fromkeys(addresses, vif.mac_address))
    name = "".join(network.name for network in networks)
    return HostRouter(id=f"router-{name}", networks=list(networks), external=external, snat=snat, neighbours=neighbours)


def test_networks_of_one_host_meet_only_through_a_router(hosts: tuple[RoutedHost, RoutedHost]) -> None:
    one, _ = hosts
    guests = [one.guest_on(A, "a", 10), one.guest_on(B, "b", 10), one.guest_on(C, "c", 10)]
    _, b, c = guests
    for name in ("a", "b", "c"):
        one.serve(name, 80)
    one.drive()
    assert one.cut_off("a", b.address, 80)
    connecting = router(A, B, guests=guests[:2])
    one.drive(connecting)
    assert one.reaches("a", b.address, 80)
    assert one.reaches("b", guests[0].address, 80)
    assert one.cut_off("a", c.address, 80) and one.cut_off("c", b.address, 80)
    one.drive(router(A, guests=guests[:1]))
    assert one.cut_off("a", b.address, 80)


def test_connected_guest_sees_the_address_of_the_sender(hosts: tuple[RoutedHost, RoutedHost]) -> None:
    """Rules of security groups about members need it. Neither libvirt's NAT nor a floating address hides it."""
    one, _ = hosts
    guests = [one.guest_on(A, "a", 10), one.guest_on(B, "b", 10)]
    a, b = guests
    one.drive(router(A, B, guests=guests, external=True))
    assert one.source(one.space("b"), "a", b.address) == a.address
    one.floating(FLOATING, "a")
    one.drive(router(A, B, guests=guests, external=True))
    assert one.source(one.space("b"), "a", b.address) == a.address
    assert one.source(one.space("out"), "a", OUTSIDE) == FLOATING


def test_way_out_needs_a_gateway(hosts: tuple[RoutedHost, RoutedHost]) -> None:
    one, _ = hosts
    a = one.guest_on(A, "a", 10)
    one.serve("out", 80)
    one.serve("a", 80)
    one.in_space(one.space("out"), "ip", "route", "add", A.cidr, "via", UPLINK)
    one.drive(router(A, guests=[a]))
    assert one.cut_off("a", OUTSIDE, 80)
    one.drive(router(A, guests=[a], external=True))
    assert one.source(one.space("out"), "a", OUTSIDE) == UPLINK
    assert one.cut_off("out", a.address, 80), "the guest is behind the address of the host"
    one.drive(router(A, guests=[a], external=True, snat=False))
    assert one.source(one.space("out"), "a", OUTSIDE) == a.address
    assert one.reaches("out", a.address, 80)
    one.drive(router(A, guests=[a]))
    assert one.cut_off("a", OUTSIDE, 80) and one.cut_off("out", a.address, 80)


def test_network_of_an_older_version_keeps_its_way_out(hosts: tuple[RoutedHost, RoutedHost]) -> None:
    one, _ = hosts
    one.guest_on(OLD, "c", 10)
    a = one.guest_on(A, "a", 10)
    one.serve("out", 80)
    one.serve("c", 80)
    one.serve("a", 80)
    one.floating(FLOATING, "c")
    one.drive()
    assert one.reaches("c", OUTSIDE, 80)
    assert one.reaches("out", FLOATING, 80), "libvirt's rules do not keep others from the floating address"
    assert one.cut_off("c", a.address, 80) and one.cut_off("a", FLOATING, 80)


def test_floating_address_is_reached_from_outside_and_from_other_networks(
    hosts: tuple[RoutedHost, RoutedHost],
) -> None:
    one, _ = hosts
    guests = [one.guest_on(A, "a", 10), one.guest_on(C, "c", 10)]
    one.serve("a", 80)
    one.floating(FLOATING, "a")
    one.drive(router(A, guests=guests[:1], external=True), router(C, guests=guests[1:], external=True))
    assert one.reaches("out", FLOATING, 80) and one.reaches("host", FLOATING, 80)
    assert one.reaches("c", FLOATING, 80) and one.cut_off("c", guests[0].address, 80)
    one.drive(router(A, C, guests=guests, external=True))
    assert one.reaches("out", FLOATING, 80) and one.reaches("c", FLOATING, 80) and one.reaches("a", FLOATING, 80)


def test_router_connects_guests_of_two_hosts(hosts: tuple[RoutedHost, RoutedHost]) -> None:
    """Neither host has a guest on the network of the other's guest."""
    one, two = hosts
    a, b = one.guest_on(A, "a", 10), two.guest_on(B, "b", 20)
    one.serve("a", 80)
    two.serve("b", 80)
    for host in hosts:
        host.drive()
    assert one.cut_off("a", b.address, 80)
    for host in hosts:
        host.drive(router(A, B, guests=[a, b]))
    assert one.tunnel_devices() == two.tunnel_devices() == {"nlvx101", "nlvx102"}
    assert one.source(two.space("b"), "a", b.address) == a.address
    assert one.reaches("a", b.address, 80) and two.reaches("b", a.address, 80)
    one.in_space(one.space("a"), "ping", "-c", "1", "-w", "30", "-M", "do", "-s", str(1450 - 28), b.address)
    for host in hosts:
        host.drive(router(B, guests=[b]) if host is two else router(A, guests=[a]))
    assert one.cut_off("a", b.address, 80)
    assert one.tunnel_devices() == {"nlvx101"} and two.tunnel_devices() == {"nlvx102"}


def test_host_that_is_lost_takes_only_its_guests(hosts: tuple[RoutedHost, RoutedHost]) -> None:
    """Its guests are built again on the other host, with their addresses."""
    one, two = hosts
    a, b = one.guest_on(A, "a", 10), two.guest_on(B, "b", 20)
    one.serve("out", 80)
    through = router(A, B, guests=[a, b], external=True)
    for host in hosts:
        host.drive(through)
    two.serve("b", 80)
    assert one.reaches("a", b.address, 80)
    two.in_space(two.host, "ip", "link", "set", "under", "down")
    assert one.cut_off("a", b.address, 80) and one.reaches("a", OUTSIDE, 80)
    again = one.guest_on(B, "b", 20)
    assert (again.address, again.mac_address) == (b.address, b.mac_address)
    one.serve("b", 80)
    one.drive(through, peers=False)
    assert one.reaches("a", b.address, 80) and one.reaches("b", OUTSIDE, 80)


def with_ipv6(network: Network) -> Network:
    """Return a network with an IPv6 subnet."""
    cidr = f"fd00:{network.vni}::"
    return msgspec.structs.replace(network, cidr6=f"{cidr}/64", subnet6=Subnet6(gateway=f"{cidr}1"))


BEHIND, BEHIND6 = "10.77.0.5", "fd77::5"


def test_static_route_leads_through_a_guest(hosts: tuple[RoutedHost, RoutedHost]) -> None:
    """The guest has the addresses behind it by an address pair. Another router's guests do not use the route."""
    one, _ = hosts
    dual = with_ipv6(A), with_ipv6(B)
    a, b = one.guest_on(dual[0], "a", 10), one.guest_on(dual[1], "b", 10)
    one.guest_on(C, "c", 10)
    pairs = [{"ip_address": prefix, "mac_address": b.mac_address} for prefix in ("10.77.0.0/24", "fd77::/64")]
    one.guests["b"] = msgspec.structs.replace(b, address_pairs=pairs)
    one.in_space(one.space("b"), "ip", "address", "add", f"{BEHIND}/32", "dev", "eth0")
    one.in_space(one.space("b"), "ip", "address", "add", f"{BEHIND6}/128", "dev", "eth0", "nodad")
    one.serve("b", 80)
    plain = router(*dual, guests=[a, b])
    one.drive(plain)
    assert one.pinged("a", b.more[0].address)
    assert one.cut_off("a", BEHIND, 80) and one.unpinged("a", BEHIND6)
    route = StaticRoute(destination="10.77.0.0/24", nexthop=b.address)
    route6 = StaticRoute(destination="fd77::/64", nexthop=b.more[0].address)
    one.drive(msgspec.structs.replace(plain, routes=[route], routes6=[route6]))
    assert one.reaches("a", BEHIND, 80) and one.pinged("a", BEHIND6)
    assert one.reaches("a", b.address, 80), "networks of the router are reached as before"
    assert one.pinged("a", b.more[0].address)
    assert one.cut_off("c", BEHIND, 80)
    assert one.source(one.space("b"), "a", BEHIND) == a.address
    narrow = StaticRoute(destination=f"{BEHIND}/32", nexthop="10.2.0.99")
    narrow6 = StaticRoute(destination=f"{BEHIND6}/128", nexthop=b.more[0].address.replace("::10", "::99"))
    one.drive(msgspec.structs.replace(plain, routes=[route, narrow], routes6=[route6, narrow6]))
    assert one.cut_off("a", BEHIND, 80) and one.unpinged("a", BEHIND6), "the longest prefix decides"
    one.drive(msgspec.structs.replace(plain, routes=[route], routes6=[route6]))
    assert one.reaches("a", BEHIND, 80) and one.pinged("a", BEHIND6)
    one.drive(plain)
    assert one.cut_off("a", BEHIND, 80) and one.unpinged("a", BEHIND6)
