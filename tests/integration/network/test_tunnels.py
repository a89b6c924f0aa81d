"""Two hosts whose guests are on one network with a VNI: the kernel's VXLAN, and protection against forgeries."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from nova_lite.objects import VIF, PortFilters, SecurityGroup
from nova_lite.objects.security_group import default_group
from nova_lite.virt.libvirt.net.names import bridge_mac, gateway_name
from nova_lite.virt.libvirt.net.security_groups import ruleset
from tests.integration.network.packets import pinged, tcp, unpinged
from tests.integration.network.room import BRIDGE, HOST_ADDRESS, NETWORK, Room, run

WIDE = msgspec.structs.replace(NETWORK, vni=77, mtu=1450)
TABLE = "nova_lite_tunnels_t"
#: Packets that leave through a device get its address.
SHARE = "table ip share {{ chain out {{ type nat hook postrouting priority 100; oifname {device} masquerade; }}; }}"

#: Program that acts as a compute daemon there.
_DRIVE = """
import json, sys
from types import SimpleNamespace
import msgspec
from nova_lite.objects import VIF
from nova_lite.virt.libvirt.net.tunnels import Tunnels
settings = json.load(sys.stdin)
conf = SimpleNamespace(my_ip="127.0.0.1", vxlan=SimpleNamespace(local_ip=settings["local_ip"], dstport=4789))
tunnels = Tunnels(conf, "t", settings["directory"])
vifs = msgspec.convert(settings["vifs"], list[VIF])
tunnels.prepare({"i": vifs} if vifs else {})
if vifs:
    tunnels.plug("i", vifs)
    tunnels.set(settings["peers"])
if settings["unplug"]:
    tunnels.unplug("i")
"""
#: A forged frame within VXLAN: a datagram for port 9999.
_FORGE = """
import socket, struct, sys
to, vni, mac, address = sys.argv[1], int(sys.argv[2]), bytes.fromhex(sys.argv[3].replace(":", "")), sys.argv[4]
data = b"forged"
udp = struct.pack("!HHHH", 5, 9999, 8 + len(data), 0) + data
head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, socket.inet_aton("10.9.0.99"),
                   socket.inet_aton(address))
total = sum(struct.unpack("!10H", head))
total = (total & 0xffff) + (total >> 16)
head = head[:10] + struct.pack("!H", ~(total + (total >> 16)) & 0xffff) + head[12:]
frame = mac + bytes.fromhex("fa163e0000630800") + head + udp
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    for _ in range(3):
        s.sendto(struct.pack("!II", 0x08000000, vni << 8) + frame, (to, 4789))
"""
_HEARS = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.bind(("0.0.0.0", 9999))
    print("listening", flush=True)
    sys.stdin.readline()
    s.settimeout(2.0)
    try:
        print(s.recv(100).decode())
    except TimeoutError:
        print("nothing")
"""


class Host(Room):
    """A host whose gateway is in a realm, as `HostNetworks` makes it: a namespace with a link to the bridge."""

    def __init__(self, local_ip: str, directory: Path) -> None:
        super().__init__()
        self.local_ip = local_ip
        gateway, realm = gateway_name(WIDE.id), self.space("realm")
        self._space(realm)
        for space, command in (
            (self.host, f"ip address delete {HOST_ADDRESS}/24 dev {BRIDGE}"),
            (self.host, f"ip link set dev {BRIDGE} alias nova-lite:{WIDE.id}"),
            (self.host, f"ip link add {gateway} type veth peer name {BRIDGE} address {bridge_mac(77)} netns {realm}"),
            (self.host, f"ip link set dev {gateway} master {BRIDGE} up"),
            (realm, f"ip address add {HOST_ADDRESS}/24 dev {BRIDGE}"),
            (realm, f"ip link set {BRIDGE} up"),
            (self.host, f"ip link add uplink type veth peer name uplink netns {realm}"),
            (self.host, "ip address add 10.7.0.1/24 dev uplink"),
            (self.host, "ip link set uplink up"),
            (realm, "ip address add 10.7.0.2/24 dev uplink"),
            (realm, "ip link set uplink up"),
            (realm, "ip route add default via 10.7.0.1"),
            (realm, "sysctl -q -w net.ipv4.ip_forward=1"),
        ):
            self.in_space(space, *command.split())
        self.in_space(realm, "nft", SHARE.format(device="uplink"))
        self._directory = directory
        directory.mkdir()

    def wide_guest(self, name: str, number: int) -> VIF:
        self.guests[name] = msgspec.structs.replace(self.guest(name, number), network=WIDE)
        self.in_space(self.space(name), "ip", "link", "set", "eth0", "mtu", "1450")
        return self.guests[name]

    def span(self, *peers: str, unplug: bool = False) -> None:
        settings = {
            "local_ip": self.local_ip,
            "directory": str(self._directory),
            "vifs": msgspec.to_builtins(list(self.guests.values())),
            "peers": {WIDE.id: list(peers)},
            "unplug": unplug,
        }
        self.in_space(self.host, sys.executable, "-c", _DRIVE, text=json.dumps(settings))

    def destinations(self) -> set[str]:
        """Return the MAC addresses that are sent to other hosts."""
        known = json.loads(self.in_space(self.host, "bridge", "-json", "fdb", "show", "dev", "nlvx77"))
        return {entry["mac"] for entry in known if "dst" in entry}


@pytest.fixture
def hosts(room: Room, tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    with contextlib.ExitStack() as stack:
        made = []
        for number in (1, 2):
            host = Host(f"10.8.0.{number}", tmp_path / str(number))
            stack.callback(host.close)
            made.append(host)
        one, two = made
        command = ("ip", "link", "add", "under", "type", "veth", "peer", "name", "under", "netns", two.host)
        one.in_space(one.host, *command)
        for host in made:
            host.in_space(host.host, "ip", "address", "add", f"{host.local_ip}/24", "dev", "under")
            host.in_space(host.host, "ip", "link", "set", "under", "up")
        yield one, two


def filters(host: Host, *groups: SecurityGroup) -> None:
    """Set these groups for all guests of the host."""
    known = PortFilters(groups={group.id: group for group in groups}, instances={"i": [group.id for group in groups]})
    text = ruleset("nova_lite_ports_t", {"i": list(host.guests.values())}, known)
    host.in_space(host.host, "nft", "-f", "-", text=text)
    host.in_space(host.host, "ip", "link", "set", "dev", BRIDGE, "type", "bridge", "nf_call_iptables", "1")


def test_guests_of_two_hosts_are_connected_while_both_exist(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    one.wide_guest("a", 10)
    b = two.wide_guest("b", 20)
    two.serve("b", 80)
    assert one.cut_off("a", b.address, 80), "guests of separate hosts are not connected"
    one.span(two.local_ip)
    two.span(one.local_ip)
    assert one.tunnel_devices() == two.tunnel_devices() == {"nlvx77"}
    assert one.reaches("a", b.address, 80)
    one.in_space(one.space("a"), "ping", "-c", "1", "-w", "30", "-M", "do", "-s", str(1450 - 28), b.address)
    two.in_space(two.host, "ip", "link", "delete", f"tap{b.id[:11]}")
    two.span(one.local_ip, unplug=True)
    assert two.tunnel_devices() == set()
    assert TABLE not in two.in_space(two.host, "nft", "list", "tables")
    assert one.destinations() == {"00:00:00:00:00:00", b.mac_address}
    one.span()
    assert one.destinations() == set(), "what was learned is forgotten with the peer"


def test_security_groups_hold_across_hosts(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    a, b = one.wide_guest("a", 10), two.wide_guest("b", 20)
    two.serve("b", 80)
    one.span(two.local_ip)
    two.span(one.local_ip)
    shut = SecurityGroup(id="shut", name="shut", rules=default_group("p").rules[:2])
    web = SecurityGroup(id="web", name="web", rules=[tcp(80, remote_group_id="friends")])
    friends = SecurityGroup(id="friends", name="friends", members=[])
    filters(one, shut)
    filters(two, shut, web, friends)
    assert one.cut_off("a", b.address, 80)
    friends.members = [a.address]
    filters(two, shut, web, friends)
    assert one.reaches("a", b.address, 80)
    filters(two, shut, web)
    assert one.cut_off("a", b.address, 80)


def test_host_is_the_gateway_of_its_own_guests_only(hosts: tuple[Host, Host]) -> None:
    """The hosts both have the gateway's address. Neither receives packets of the other, or of the other's guests."""
    one, two = hosts
    one.wide_guest("a", 10)
    b = two.wide_guest("b", 20)
    one.span(two.local_ip)
    two.span(one.local_ip)
    assert pinged(one, HOST_ADDRESS, "a") and pinged(one, b.address, "a")
    assert unpinged(one, b.address, "realm")
    one.in_space(one.space("realm"), "ip", "address", "del", f"{HOST_ADDRESS}/24", "dev", BRIDGE)
    one.in_space(one.space("a"), "ip", "neigh", "flush", "dev", "eth0")
    assert unpinged(one, HOST_ADDRESS, "a"), "the other host's gateway"
    assert pinged(one, b.address, "a")


def test_dhcp_stays_on_the_host(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    one.wide_guest("a", 10)
    two.wide_guest("b", 20)
    two.serve("b", 67, 9999)
    one.span(two.local_ip)
    two.span(one.local_ip)
    assert one.answered("a", "10.9.0.255", 9999)
    assert one.unanswered("a", "10.9.0.255", 67)
    assert one.unanswered("a", "10.9.0.20", 67)


@pytest.mark.parametrize("guarded", ["hers", "his"])
def test_guest_cannot_send_into_the_tunnel(hosts: tuple[Host, Host], guarded: str) -> None:
    """A guest's VXLAN packets have its host's address, if they leave at all. If the sender's host lets them out, the
    receiver's host accepts them only from hosts that have guests on the network."""
    one, two = hosts
    one.wide_guest("a", 10)
    b = two.wide_guest("b", 20)
    peers = [one.local_ip] if guarded == "hers" else []
    one.span(two.local_ip)
    two.span(*peers)
    one.in_space(one.host, "nft", SHARE.format(device="under"))
    if guarded == "his":
        one.in_space(one.host, "nft", "delete", "table", "inet", TABLE)
    assert received(one, two, b) == "nothing"
    unguarded = one if guarded == "hers" else two
    unguarded.in_space(unguarded.host, "nft", "delete", "table", "inet", TABLE)
    assert received(one, two, b) == "forged"


def received(one: Host, two: Host, b: VIF) -> str:
    """Return what b receives while a, a guest of the other host, sends."""
    command = ["ip", "netns", "exec", two.space("b"), sys.executable, "-c", _HEARS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdin is not None and listener.stdout is not None
        assert listener.stdout.readline() == "listening\n"
        forge = (sys.executable, "-c", _FORGE, two.local_ip, "77", b.mac_address, b.address)
        run("ip", "netns", "exec", one.space("a"), *forge)
        listener.stdin.write("it is sent\n")
        listener.stdin.flush()
        return listener.stdout.readline().strip()
