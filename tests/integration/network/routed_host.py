"""A host with realms, in network namespaces: its guests are namespaces, and its daemon runs once for each change."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from nova_lite.objects import VIF, HostForwarding, HostRouter, Network, ipv6
from nova_lite.objects.security_group import NetworkMembers, floating_key
from nova_lite.virt.libvirt.net import realms
from nova_lite.virt.libvirt.net.names import bridge_name, network_name, tap_name
from tests.integration.libvirt.namespaces import DISCOVER
from tests.integration.network.room import OUTSIDE, Room

A = Network(id="a0000000-0000-4000-8000-000000000000", name="a", cidr="10.1.0.0/24", gateway="10.1.0.1", vni=101)
B = Network(id="b0000000-0000-4000-8000-000000000000", name="b", cidr="10.2.0.0/24", gateway="10.2.0.1", vni=102)
C = Network(id="c0000000-0000-4000-8000-000000000000", name="c", cidr="10.3.0.0/24", gateway="10.3.0.1", vni=103)
NETWORKS = [
    msgspec.structs.replace(network, mtu=1450, bridge=f"br{network.name}", project_id="p", needs_router=True)
    for network in (A, B, C)
]
A, B, C = NETWORKS

#: Program that acts as a compute daemon: it plugs its guests, once. libvirt has no networks of older versions.
_DRIVE = """
import json, selectors, sys
from types import SimpleNamespace
import msgspec
from nova_lite.objects import VIF, HostForwarding, HostRouter, PortFilters, SecurityGroup, SecurityGroupRule
from nova_lite.objects.security_group import NetworkMembers
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
        metadata_service=settings["metadata"] or bool(settings["filters"]), host_ports=settings["host_ports"],
        security_groups=True,
        public_interface="lo", dns_domain="cloud.test",
    ),
)
# `ip netns exec` has mounts of its own.
namespaces._by_manager = lambda: ("nsenter", f"--mount=/proc/{settings['pid']}/ns/mnt", "--")
names.REALM, dhcp.DIRECTORY = settings["prefix"], settings["directory"]
former_networks.take_over = lambda *_: set()
for name in ("remove", "remove_rules", "lead_to", "forget"):
    setattr(former_networks, name, lambda *_: None)
if settings["filters"]:
    dhcp.run, dhcp.is_running = lambda *_: None, lambda _: True
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
known = {"groups": {"g": group}, "floating": floating}
known["instances"] = {key: [] if key in settings["closed"] else ["g"] for key in ports}
if settings["filters"]:
    known = msgspec.structs.asdict(msgspec.convert(settings["filters"], PortFilters)) | {"routers": routers.active}
else:
    known["routers"] = wanted
forwardings = msgspec.convert(settings["forwardings"], list[HostForwarding])
firewall.set(PortFilters(**known | {"forwardings": forwardings}))
networks.set_names(msgspec.convert(settings["names"], dict[str, NetworkMembers]), routers.active)
tunnels.route(routers.active)
tunnels.set(settings["peers"], firewall.forwardings)
if settings["filters"]:
    print(json.dumps(networks.places()))
if settings["metadata"]:
    selector = selectors.DefaultSelector()
    for network_id, listener in networks.metadata_sockets().items():
        selector.register(listener, selectors.EVENT_READ, network_id)
    print("serving", flush=True)
    while True:
        for key, _ in selector.select():
            connection, (address, _) = key.fileobj.accept()
            connection.sendall(f"{key.data} {address}".encode())
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

    def __init__(self, number: int) -> None:
        super().__init__()
        self.local_ip, self.peer = f"10.8.0.{number}", f"10.8.0.{3 - number}"
        # dnsmasq reads it as another user.
        self._directory = Path(tempfile.mkdtemp(prefix=f"{self.name}.", dir="/var/tmp"))
        self._directory.chmod(0o755)
        self._floating: dict[str, str] = {}
        #: Guests without a security group.
        self.closed: set[str] = set()
        self.forwardings: list[HostForwarding] = []
        #: Names of guests, by network.
        self.names: dict[str, NetworkMembers] = {}
        self._prefix = f"{self.name}-r-"
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

    def floating(self, address: str, name: str, fixed: str | None = None) -> None:
        """Lead a floating address to a guest: to its first address, or to a further one (``fixed``)."""
        vif = self.guests[name]
        self._floating[address] = floating_key(vif.id, fixed) if fixed else vif.id

    def drive(self, *routers: HostRouter, peers: bool = True) -> None:
        """Run the daemon once with these routers."""
        text = json.dumps(self._settings(routers, peers))
        self.in_space(self.host, sys.executable, "-W", "ignore", "-c", _DRIVE, text=text)

    @contextlib.contextmanager
    def serving_metadata(self, *routers: HostRouter) -> Iterator[None]:
        """Run a daemon whose metadata service answers with a network's id and the guest's address."""
        command = ["ip", "netns", "exec", self.host, sys.executable, "-W", "ignore", "-c", _DRIVE]
        daemon = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert daemon.stdin is not None and daemon.stdout is not None
        json.dump(self._settings(routers, True) | {"metadata": True}, daemon.stdin)
        daemon.stdin.close()
        try:
            assert daemon.stdout.readline() == "serving\n"
            yield
        finally:
            daemon.kill()
            daemon.wait()

    def realms(self) -> set[str]:
        """Return the realms of this host."""
        names = os.listdir("/run/netns")
        return {name.removeprefix(self._prefix) for name in names if name.startswith(self._prefix)}

    def offer(self, vif: VIF, *options: int) -> dict[str, Any]:
        """Return what the DHCP server offers to a guest. ``options``: numbers of further options to ask for."""
        (name,) = (name for name, other in self.guests.items() if other.id == vif.id)
        numbers = map(str, options)
        found: dict[str, Any] = json.loads(
            self.in_space(self.space(name), sys.executable, "-c", DISCOVER, vif.mac_address, "20", *numbers)
        )
        return found

    def dhcp_server(self, network: Network) -> int:
        """Return the number of the process that is the DHCP server of a network."""
        return int((self._directory / f"{network_name(network)}.pid").read_text())

    def reaches_dns(self, who: str, address: str) -> bool:
        """Check whether a name server takes a connection."""
        return self.reaches(who, address, 53)

    def _settings(self, routers: tuple[HostRouter, ...], peers: bool) -> dict[str, Any]:
        """Return what the daemon needs to know."""
        networks = {vif.network.id for vif in self.guests.values()} | {network.id for network in NETWORKS}
        return {
            "local_ip": self.local_ip,
            "directory": str(self._directory),
            "vifs": msgspec.to_builtins(list(self.guests.values())),
            "routers": msgspec.to_builtins(list(routers)),
            "peers": {network_id: [self.peer] if peers else [] for network_id in networks},
            "floating": self._floating,
            "closed": [self.guests[name].id for name in self.closed],
            "forwardings": msgspec.to_builtins(self.forwardings),
            "names": msgspec.to_builtins(self.names),
            "prefix": self._prefix,
            "pid": os.getpid(),
            "metadata": False,
            "host_ports": [],
            # Filters of hosts without DHCP servers; None: all groups are open.
            "filters": None,
        }

    def close(self) -> None:
        for path in self._directory.glob("*.pid"):
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(path.read_text()), signal.SIGKILL)
        for name in os.listdir("/run/netns"):
            if name.startswith(self._prefix):
                self._spaces.append(name)
        super().close()
        shutil.rmtree(self._directory)

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


def router(*networks: Network, guests: list[VIF], external: bool = False, snat: bool = True) -> HostRouter:
    """Return a router that connects these networks of these guests."""
    neighbours: dict[str, dict[str, str]] = {}
    for vif in guests:
        addresses = [vif.address, *(item.address for item in vif.more)]
        neighbours.setdefault(vif.network.id, {}).update(dict.fromkeys(addresses, vif.mac_address))
    name = "".join(network.name for network in networks)
    return HostRouter(id=f"router-{name}", networks=list(networks), external=external, snat=snat, neighbours=neighbours)
