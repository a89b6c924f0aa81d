"""Guests that forge frames, with real packets: everything that their neighbours would believe is dropped."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.objects import VIF, PortFilters, SecurityGroup, SecurityGroupRule, ipv6
from nova_lite.objects.security_group import default_group
from nova_lite.virt.libvirt.net import anti_spoofing, names, security_groups
from nova_lite.virt.libvirt.net.names import tap_name
from tests.integration.network.frames import (
    arp,
    ether,
    fragment,
    ipv4,
    ipv6_packet,
    neighbour,
    octets,
    options,
    part4,
    udp,
)
from tests.integration.network.room import BRIDGE, HOST_ADDRESS, NETWORK, OUTSIDE, Room

DUAL = msgspec.structs.replace(NETWORK, cidr6="fd00:9::/64")
ROUTER = "52:54:00:00:00:01"
EVERYBODY = "ff:ff:ff:ff:ff:ff"

#: Prints each frame that arrives at eth0, except IPv6 of the kernel itself: its bytes in hexadecimal.
_LISTEN = """
import socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind(("eth0", 0))
print("listening", flush=True)
while True:
    frame, address = s.recvfrom(2000)
    if address[2] != socket.PACKET_OUTGOING:
        print(frame.hex(), flush=True)
"""
#: Sends frames, given in hexadecimal, from an interface. One CPU delivers them all, so they arrive in order.
_SEND = """
import os, socket, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind((sys.argv[1], 0))
for frame in sys.argv[2:]:
    s.send(bytes.fromhex(frame))
"""


def untagged(frame: bytes) -> bytes:
    """Return a frame as a socket gets it: the kernel takes its VLAN tag off."""
    return frame[:12] + frame[16:] if frame[12:14] in (b"\x81\x00", b"\x88\xa8") else frame


class Link:
    """Guests a and b on the bridge, guarded. Frames are sent by one, and listened for at the other."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.vifs = {name: self._guest(name, number) for name, number in (("a", 10), ("b", 11))}
        self.guards = {name: [vif] for name, vif in self.vifs.items()}
        self.apply()

    def _guest(self, name: str, number: int) -> VIF:
        vif = self.room.guest(name, number)
        more = ipv6.further_addresses(DUAL, ipv6.address_on(DUAL, vif.mac_address))
        self.room.guests[name] = made = msgspec.structs.replace(vif, network=DUAL, more=more)
        return made

    def apply(self, served: tuple[str, ...] = (NETWORK.id,)) -> None:
        wanted = {}
        for vifs in self.guards.values():
            wanted |= anti_spoofing.guards(vifs, served)
        self.room.in_space(self.room.host, "nft", "-f", "-", text=anti_spoofing.whole("t", wanted))

    def arrives(self, frame: bytes, sender: str = "a", receiver: str = "b") -> bool:
        """Check whether a frame arrives. A control frame that is allowed follows it and must arrive."""
        mark = uuid.uuid4().bytes
        allowed = self.control(sender, mark)
        space = self.room.space(receiver)
        command = ["ip", "netns", "exec", space, sys.executable, "-c", _LISTEN]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listener:
            assert listener.stdout is not None
            try:
                assert listener.stdout.readline() == "listening\n"
                device = BRIDGE if sender == "host" else "eth0"
                where = self.room.host if sender == "host" else self.room.space(sender)
                self.room.in_space(where, sys.executable, "-c", _SEND, device, frame.hex(), allowed.hex())
                deadline = time.monotonic() + 30
                seen = []
                while time.monotonic() < deadline:
                    line = bytes.fromhex(listener.stdout.readline().strip())
                    if mark in line:
                        return frame in seen or untagged(frame) in seen
                    seen.append(line)
                raise AssertionError("the control frame did not arrive")
            finally:
                listener.kill()

    def control(self, sender: str, mark: bytes) -> bytes:
        if sender == "host":
            return ether(ROUTER, EVERYBODY, 0x0800, ipv4(HOST_ADDRESS, "255.255.255.255", udp(9, 9, mark)))
        vif = self.vifs[sender]
        return ether(vif.mac_address, EVERYBODY, 0x0800, ipv4(vif.address, "255.255.255.255", udp(9, 9, mark)))


@pytest.fixture
def link(room: Room) -> Link:
    # No IP filter: only the guards decide.
    room.in_space(room.host, "sysctl", "-q", "-w", "net.ipv6.conf.all.forwarding=0")
    return Link(room)


A, B = "10.9.0.10", "10.9.0.11"
A_MAC, B_MAC = "fa:16:3e:00:00:0a", "fa:16:3e:00:00:0b"
A6, B6 = ipv6.address_of("fd00:9::/64", A_MAC), ipv6.address_of("fd00:9::/64", B_MAC)
A_LINK = ipv6.address_of("fe80::/64", A_MAC)
OTHER, OTHER6, OTHER_MAC = "10.9.0.99", "fd00:9::99", "fa:16:3e:00:00:99"
ALL6, ALL6_MAC = "ff02::1", "33:33:00:00:00:01"

HONEST = {
    "IPv4": ether(A_MAC, B_MAC, 0x0800, ipv4(A, B, udp(5, 5))),
    "IPv4 broadcast": ether(A_MAC, EVERYBODY, 0x0800, ipv4(A, "10.9.0.255", udp(5, 5))),
    "ARP request": ether(A_MAC, EVERYBODY, 0x0806, arp(1, A_MAC, A, B)),
    "ARP reply": ether(A_MAC, B_MAC, 0x0806, arp(2, A_MAC, A, B, B_MAC)),
    "ARP probe": ether(A_MAC, EVERYBODY, 0x0806, arp(1, A_MAC, "0.0.0.0", A)),
    "DHCP request": ether(A_MAC, EVERYBODY, 0x0800, ipv4("0.0.0.0", "255.255.255.255", udp(68, 67))),
    "IPv6": ether(A_MAC, B_MAC, 0x86DD, ipv6_packet(A6, B6, 17, udp(5, 5))),
    "IPv6 link-local": ether(A_MAC, B_MAC, 0x86DD, ipv6_packet(A_LINK, B6, 17, udp(5, 5))),
    "neighbour advertisement": ether(A_MAC, ALL6_MAC, 0x86DD, ipv6_packet(A6, ALL6, 58, neighbour(136, A6))),
    "duplicate address detection": ether(A_MAC, ALL6_MAC, 0x86DD, ipv6_packet("::", ALL6, 58, neighbour(135, A6))),
    "first fragment": ether(A_MAC, B_MAC, 0x86DD, ipv6_packet(A6, B6, 44, fragment(17, udp(5, 5, bytes(8))))),
    "next fragment": ether(A_MAC, B_MAC, 0x86DD, ipv6_packet(A6, B6, 44, fragment(17, bytes(8), 2, False))),
    "options": ether(A_MAC, B_MAC, 0x86DD, ipv6_packet(A6, B6, 60, options(17) + udp(5, 5))),
    "echo": ether(A_MAC, B_MAC, 0x86DD, ipv6_packet(A6, B6, 58, bytes([128]) + bytes(7))),
    "first fragment of IPv4": ether(A_MAC, B_MAC, 0x0800, part4(ipv4(A, B, udp(5, 5, bytes(8))))),
    "next fragment of IPv4": ether(A_MAC, B_MAC, 0x0800, part4(ipv4(A, B, bytes(8)), 2, False)),
}
ADVERTISEMENT, SOLICITED = bytes([134]) + bytes(15), neighbour(136, A6)
#: Packets whose kind is behind further headers, or in another fragment.
HIDDEN = {
    name: ether(A_MAC, ALL6_MAC, 0x86DD, ipv6_packet(A_LINK, ALL6, following, payload))
    for name, following, payload in (
        ("advertisement behind options", 60, options(58) + ADVERTISEMENT),
        ("advertisement behind options for each hop", 0, options(60) + options(58) + ADVERTISEMENT),
        ("advertisement in one fragment", 44, fragment(58, ADVERTISEMENT, 0, False)),
        ("start of an advertisement", 44, fragment(58, ADVERTISEMENT[:8])),
        ("fragment before an advertisement", 44, fragment(60, options(58))),
        ("options before a fragment", 60, options(44) + fragment(60, options(58))),
        ("nested fragments", 44, fragment(44, fragment(58, ADVERTISEMENT, 0, False), 0, False)),
        ("redirect behind options", 60, options(58) + bytes([137]) + bytes(39)),
        ("own neighbour advertisement in fragments", 44, fragment(58, SOLICITED[:8])),
        ("own neighbour advertisement in one fragment", 44, fragment(58, SOLICITED, 0, False)),
        ("neighbour of another behind options", 60, options(58) + neighbour(136, OTHER6)),
        ("neighbour solicitation in fragments", 44, fragment(58, neighbour(135, OTHER6)[:8])),
        ("DHCPv6 server behind options", 60, options(17) + udp(547, 546)),
        ("start of a DHCPv6 server's reply", 44, fragment(17, udp(547, 546))),
        ("fragment before a DHCPv6 server's reply", 44, fragment(60, options(17))),
        ("tagged advertisement", 44, fragment(60, options(58))),
    )
}
HIDDEN["tagged advertisement"] = ether(
    A_MAC, ALL6_MAC, 0x8100, bytes.fromhex("000586dd") + ipv6_packet(A_LINK, ALL6, 58, ADVERTISEMENT)
)
HIDDEN["start of a DHCP server's reply"] = ether(A_MAC, B_MAC, 0x0800, part4(ipv4(A, B, udp(67, 68))))
HIDDEN["tagged ARP"] = ether(A_MAC, B_MAC, 0x8100, bytes.fromhex("00050806") + arp(2, A_MAC, OTHER, B, B_MAC))
FORGED = {
    "MAC": ether(OTHER_MAC, B_MAC, 0x0800, ipv4(A, B, udp(5, 5))),
    "IPv4": ether(A_MAC, B_MAC, 0x0800, ipv4(OTHER, B, udp(5, 5))),
    "IPv4 of the gateway": ether(A_MAC, B_MAC, 0x0800, ipv4(HOST_ADDRESS, B, udp(5, 5))),
    "no IPv4": ether(A_MAC, B_MAC, 0x0800, ipv4("0.0.0.0", B, udp(68, 67))),
    "ARP of another address": ether(A_MAC, B_MAC, 0x0806, arp(2, A_MAC, HOST_ADDRESS, B, B_MAC)),
    "ARP request of another address": ether(A_MAC, EVERYBODY, 0x0806, arp(1, A_MAC, HOST_ADDRESS, B)),
    "ARP of another MAC": ether(A_MAC, B_MAC, 0x0806, arp(2, OTHER_MAC, A, B, B_MAC)),
    "ARP from another MAC": ether(OTHER_MAC, B_MAC, 0x0806, arp(2, A_MAC, A, B, B_MAC)),
    "ARP reply of nobody": ether(A_MAC, B_MAC, 0x0806, arp(3, A_MAC, A, B, B_MAC)),
    "DHCP server": ether(A_MAC, B_MAC, 0x0800, ipv4(A, B, udp(67, 68))),
    "DHCP server to all": ether(A_MAC, EVERYBODY, 0x0800, ipv4(A, "255.255.255.255", udp(67, 68))),
    "IPv6": ether(A_MAC, B_MAC, 0x86DD, ipv6_packet(OTHER6, B6, 17, udp(5, 5))),
    "IPv6 of nobody": ether(A_MAC, B_MAC, 0x86DD, ipv6_packet("::", B6, 17, udp(5, 5))),
    "router advertisement": ether(A_MAC, ALL6_MAC, 0x86DD, ipv6_packet(A_LINK, ALL6, 58, bytes([134]) + bytes(15))),
    "redirect": ether(A_MAC, B_MAC, 0x86DD, ipv6_packet(A_LINK, B6, 58, bytes([137]) + bytes(39))),
    "DHCPv6 server": ether(A_MAC, B_MAC, 0x86DD, ipv6_packet(A_LINK, B6, 17, udp(547, 546))),
    "neighbour advertisement of another": ether(
        A_MAC, ALL6_MAC, 0x86DD, ipv6_packet(A6, ALL6, 58, neighbour(136, OTHER6))
    ),
    "unaddressed advertisement": ether(A_MAC, ALL6_MAC, 0x86DD, ipv6_packet("::", ALL6, 58, neighbour(136, A6))),
    "VLAN": ether(A_MAC, B_MAC, 0x8100, bytes([0, 5, 8, 0]) + ipv4(A, B, udp(5, 5))),
    "priority tag": ether(A_MAC, B_MAC, 0x8100, bytes([0, 0, 8, 0]) + ipv4(A, B, udp(5, 5))),
    "provider VLAN": ether(A_MAC, B_MAC, 0x88A8, bytes([0, 5, 8, 0]) + ipv4(A, B, udp(5, 5))),
    "PPPoE": ether(A_MAC, B_MAC, 0x8864, bytes.fromhex("11000001001e0021") + ipv4(A, B, udp(5, 5))),
    "LLDP": ether(A_MAC, "01:80:c2:00:00:0e", 0x88CC, bytes(46)),
    "spanning tree": octets("01:80:c2:00:00:00") + octets(A_MAC) + bytes.fromhex("0026424203") + bytes(40),
    "RARP of another": ether(A_MAC, EVERYBODY, 0x8035, bytes.fromhex("0001080006040003") + octets(OTHER_MAC) * 3),
    # The last one, since a bridge without guards learns from it that b is where a is.
    "MAC of the neighbour": ether(B_MAC, B_MAC, 0x0800, ipv4(A, B, udp(5, 5))),
}
#: Frames to addresses of b that its security groups do not know, through its MAC address.
BESIDE = {
    "IPv4": ether(A_MAC, B_MAC, 0x0800, ipv4(A, OTHER, udp(5, 5))),
    "IPv4 loopback": ether(A_MAC, B_MAC, 0x0800, ipv4(A, "127.0.0.1", udp(5, 5))),
    "IPv4 TCP": ether(A_MAC, B_MAC, 0x0800, ipv4(A, "172.17.0.1", bytes(20), 6)),
    "IPv6": ether(A_MAC, B_MAC, 0x86DD, ipv6_packet(A6, OTHER6, 17, udp(5, 5))),
    "IPv6 loopback": ether(A_MAC, B_MAC, 0x86DD, ipv6_packet(A6, "::1", 17, udp(5, 5))),
}


def test_honest_frames_arrive(link: Link) -> None:
    assert {name: link.arrives(frame) for name, frame in HONEST.items()} == dict.fromkeys(HONEST, True)


def test_forged_frames_do_not_arrive(link: Link) -> None:
    assert {name: link.arrives(frame) for name, frame in FORGED.items()} == dict.fromkeys(FORGED, False)


def test_hidden_router_neighbours_and_servers_do_not_arrive(link: Link) -> None:
    assert {name: link.arrives(frame) for name, frame in HIDDEN.items()} == dict.fromkeys(HIDDEN, False)


def test_hidden_ones_of_a_machine_without_guards_do_not_reach_a_guest(link: Link) -> None:
    """Its own neighbour advertisements may be in one fragment: no guest believes them."""
    link.guards = {"b": [link.vifs["b"]]}
    link.apply()
    hidden = {name: frame for name, frame in HIDDEN.items() if "neighbour" not in name}
    assert {name: link.arrives(frame) for name, frame in hidden.items()} == dict.fromkeys(hidden, False)


def test_frames_to_other_addresses_of_a_guest_do_not_arrive(link: Link) -> None:
    assert {name: link.arrives(frame) for name, frame in BESIDE.items()} == dict.fromkeys(BESIDE, False)


def test_all_of_them_would_arrive_without_guards(link: Link) -> None:
    """Control: nothing else in this room drops them. Bridges themselves drop frames for link-local groups."""
    link.guards = {}
    link.apply()
    frames = {**BESIDE, **HIDDEN, **{f"forged {name}": frame for name, frame in FORGED.items()}}
    arrived = {name for name, frame in frames.items() if link.arrives(frame)}
    by_bridges = {"forged LLDP", "forged spanning tree", "forged MAC of the neighbour"}
    assert frames.keys() - arrived <= {*by_bridges, "advertisement behind options for each hop"}


def test_dhcp_server_and_router_is_the_host_only(link: Link) -> None:
    """A machine on the bridge without guards is neither, unless the operator's network has its own server."""
    link.guards = {"b": [link.vifs["b"]]}
    link.apply()
    offer = ether(A_MAC, B_MAC, 0x0800, ipv4(A, B, udp(67, 68)))
    advertisement = ether(A_MAC, ALL6_MAC, 0x86DD, ipv6_packet(A_LINK, ALL6, 58, bytes([134]) + bytes(15)))
    assert [link.arrives(frame) for frame in (offer, advertisement)] == [False, False]
    of_host = [
        ether(ROUTER, B_MAC, 0x0800, ipv4(HOST_ADDRESS, B, udp(67, 68))),
        ether(ROUTER, ALL6_MAC, 0x86DD, ipv6_packet("fe80::1", ALL6, 58, bytes([134]) + bytes(15))),
    ]
    assert [link.arrives(frame, "host") for frame in of_host] == [True, True]
    link.apply(served=())
    assert [link.arrives(frame) for frame in (offer, advertisement)] == [True, True]


def test_guest_without_ipv6_gets_and_sends_none(link: Link) -> None:
    link.guards = {name: [msgspec.structs.replace(vif, more=[])] for name, vif in link.vifs.items()}
    link.apply()
    for name in ("IPv6", "IPv6 link-local", "neighbour advertisement", "duplicate address detection"):
        assert not link.arrives(HONEST[name])
    assert link.arrives(HONEST["IPv4"])


def test_announcement_of_an_arrived_guest_passes_the_bridge(link: Link) -> None:
    """QEMU sends it by RARP, so that switches learn the new place. Guests need not hear it."""
    frame = ether(A_MAC, EVERYBODY, 0x8035, bytes.fromhex("0001080006040003") + (octets(A_MAC) + bytes(4)) * 2)
    link.guards = {"a": [link.vifs["a"]]}
    link.apply()
    assert link.arrives(frame)
    link.guards = {name: [vif] for name, vif in link.vifs.items()}
    link.apply()
    assert not link.arrives(frame)


def test_interface_with_invalid_values_is_closed_and_no_other(link: Link) -> None:
    link.guards["a"] = [msgspec.structs.replace(link.vifs["a"], address="fe80::1%lo")]
    link.apply()
    for name in ("IPv4", "ARP request", "DHCP request"):
        with pytest.raises(AssertionError, match="the control frame did not arrive"):
            arrives_soon(link, HONEST[name])
    assert link.arrives(ether(ROUTER, B_MAC, 0x0800, ipv4(OUTSIDE, B, udp(5, 5))), "host")


def arrives_soon(link: Link, frame: bytes) -> bool:
    """Check like `Link.arrives`, for frames of a closed interface: then the control frame is missing, too."""
    command = ["ip", "netns", "exec", link.room.space("b"), sys.executable, "-c", _LISTEN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout is not None
        try:
            assert listener.stdout.readline() == "listening\n"
            link.room.in_space(link.room.space("a"), sys.executable, "-c", _SEND, "eth0", frame.hex())
            mark = uuid.uuid4().bytes
            control = link.control("host", mark)
            link.room.in_space(link.room.host, sys.executable, "-c", _SEND, BRIDGE, control.hex())
            while mark not in (line := bytes.fromhex(listener.stdout.readline().strip())):
                if line == frame:
                    return True
            raise AssertionError("the control frame did not arrive")
        finally:
            listener.kill()


def test_guards_change_one_guest_at_a_time(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction of a change has only what changes, and leaves the same table as a new one."""
    room, texts = link.room, []

    def load(text: str) -> None:
        texts.append(text)
        command = ["ip", "netns", "exec", room.host, "nft", "-f", "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise exceptions.VirtDriverError(reason=done.stderr)

    def listed() -> object:
        table = names.spoofing_table("h")
        return sorted(
            json.dumps({kind: {k: v for k, v in value.items() if k != "handle"} for kind, value in item.items()})
            for item in json.loads(room.in_space(room.host, "nft", "-j", "list", "table", "bridge", table))["nftables"]
        )

    guard = anti_spoofing.AntiSpoofing("h")
    a, b = link.vifs["a"], link.vifs["b"]
    guard.plug("a", [a], [NETWORK.id], load)
    guard.plug("b", [b], [NETWORK.id], load)
    assert tap_name(a) not in texts[-1] and tap_name(b) in texts[-1]
    moved = msgspec.structs.replace(b, address="10.9.0.12")
    guard.plug("b", [moved], [], load)
    changed = listed()
    whole = anti_spoofing.whole(
        names.spoofing_table("h"),
        anti_spoofing.guards([a], [NETWORK.id]) | anti_spoofing.guards([moved], []),
    )
    load(whole)
    assert listed() == changed
    guard.unplug("b", load)
    assert "10.9.0.12" not in room.in_space(room.host, "nft", "list", "ruleset")
    room.in_space(room.host, "nft", "flush", "ruleset")
    guard.plug("b", [b], [], load)
    text = room.in_space(room.host, "nft", "list", "ruleset")
    assert tap_name(a) in text and tap_name(b) in text, "a table that somebody removed is loaded as a whole"
    guard.unplug("a", load)
    guard.unplug("b", load)
    assert "nova_lite_spoofing" not in room.in_space(room.host, "nft", "list", "ruleset")


def test_security_group_is_not_bypassed_through_another_address(link: Link) -> None:
    """A port that the group of b opens for no address is closed at each address that b has."""
    room, b = link.room, link.vifs["b"]
    room.in_space(room.space("b"), "ip", "address", "add", f"{OTHER}/32", "dev", "eth0")
    room.serve("b", 80)
    shut = SecurityGroup(id="shut", name="shut", rules=default_group("p").rules[:2])
    filters = PortFilters(groups={"shut": shut}, instances={"a": ["shut"], "b": ["shut"]})
    ports = {name: [vif] for name, vif in link.vifs.items()}
    room.in_space(room.host, "nft", "-f", "-", text=security_groups.ruleset("s", ports, filters))
    switches = ("nf_call_iptables", "1", "nf_call_ip6tables", "1")
    room.in_space(room.host, "ip", "link", "set", "dev", BRIDGE, "type", "bridge", *switches)
    for address in (OTHER, b.address):
        room.in_space(room.space("a"), "ip", "route", "replace", f"{address}/32", "dev", "eth0")
        words = ["ip", "neigh", "replace", address, "lladdr", b.mac_address, "dev", "eth0", "nud", "permanent"]
        room.in_space(room.space("a"), *words)
    assert room.cut_off("a", b.address, 80)
    assert room.cut_off("a", OTHER, 80)
    room.in_space(room.host, "nft", "delete", "table", "bridge", "t")
    assert room.reaches("a", OTHER, 80), "control: the security groups alone do not stop it"


VIRTUAL, VIRTUAL6, VIRTUAL_MAC = "10.9.0.77", "fd00:9::77", "00:00:5e:00:01:05"
METADATA = "169.254.169.254"
#: Frames of a guest with the pairs of the test below.
PAIRED = {
    "virtual address": ether(A_MAC, B_MAC, 0x0800, ipv4(VIRTUAL, B, udp(5, 5))),
    "virtual address in ARP": ether(A_MAC, EVERYBODY, 0x0806, arp(1, A_MAC, VIRTUAL, VIRTUAL)),
    "virtual MAC": ether(VIRTUAL_MAC, B_MAC, 0x0800, ipv4("10.9.0.78", B, udp(5, 5))),
    "virtual MAC in ARP": ether(VIRTUAL_MAC, EVERYBODY, 0x0806, arp(2, VIRTUAL_MAC, "10.9.0.78", B)),
    "address of a range": ether(A_MAC, B_MAC, 0x0800, ipv4("10.244.3.4", B, udp(5, 5))),
    "IPv6": ether(A_MAC, B_MAC, 0x86DD, ipv6_packet(VIRTUAL6, B6, 17, udp(5, 5))),
    "advertisement": ether(A_MAC, ALL6_MAC, 0x86DD, ipv6_packet(A6, ALL6, 58, neighbour(136, VIRTUAL6))),
    "own address": ether(A_MAC, B_MAC, 0x0800, ipv4(A, B, udp(5, 5))),
}
FORGED_PAIRS = {
    "address of another pair's MAC": ether(A_MAC, B_MAC, 0x0800, ipv4("10.9.0.78", B, udp(5, 5))),
    "own address from another MAC": ether(VIRTUAL_MAC, B_MAC, 0x0800, ipv4(VIRTUAL, B, udp(5, 5))),
    "ARP of another pair's MAC": ether(A_MAC, EVERYBODY, 0x0806, arp(2, A_MAC, "10.9.0.78", B)),
    "no pair": ether(A_MAC, B_MAC, 0x0800, ipv4(OTHER, B, udp(5, 5))),
    "another advertisement": ether(A_MAC, ALL6_MAC, 0x86DD, ipv6_packet(A6, ALL6, 58, neighbour(136, OTHER6))),
    "DHCP server": ether(A_MAC, B_MAC, 0x0800, ipv4(VIRTUAL, B, udp(67, 68))),
}
#: Frames of a guest with a pair of all addresses.
OF_HOSTS = {
    "gateway": ether(A_MAC, B_MAC, 0x0800, ipv4(HOST_ADDRESS, B, udp(5, 5))),
    "gateway in ARP": ether(A_MAC, B_MAC, 0x0806, arp(2, A_MAC, HOST_ADDRESS, B)),
    "metadata of another guest": ether(A_MAC, B_MAC, 0x0800, ipv4(B, METADATA, udp(5, 80))),
    "another MAC": ether(OTHER_MAC, B_MAC, 0x0800, ipv4(OTHER, B, udp(5, 5))),
}


def test_address_pairs_are_further_addresses(link: Link) -> None:
    pairs = [
        {"ip_address": VIRTUAL, "mac_address": A_MAC},
        {"ip_address": "10.9.0.78/32", "mac_address": VIRTUAL_MAC},
        {"ip_address": "10.244.0.0/16", "mac_address": A_MAC},
        {"ip_address": VIRTUAL6, "mac_address": A_MAC},
        {"ip_address": "invalid", "mac_address": A_MAC},
    ]
    link.guards["a"] = [msgspec.structs.replace(link.vifs["a"], address_pairs=pairs)]
    link.apply()
    assert {name: link.arrives(frame) for name, frame in PAIRED.items()} == dict.fromkeys(PAIRED, True)
    assert {name: link.arrives(frame) for name, frame in FORGED_PAIRS.items()} == dict.fromkeys(FORGED_PAIRS, False)
    to_pair = {
        target: ether(B_MAC, A_MAC, 0x0800, ipv4(B, target, udp(5, 5))) for target in (VIRTUAL, "10.244.3.4", OTHER)
    }
    assert {name: link.arrives(frame, "b", "a") for name, frame in to_pair.items()} == {
        VIRTUAL: True,
        "10.244.3.4": True,
        OTHER: False,
    }


#: UDP ports of the rules below: open for members of a group, and for all addresses.
FOR_FRIENDS, FOR_ALL = 5, 9


def datagram(address: str) -> bytes:
    """Return a frame of guest a to guest b with this source, for the port that is open for friends."""
    return ether(A_MAC, B_MAC, 0x0800, ipv4(address, B, udp(FOR_FRIENDS, FOR_FRIENDS)))


@pytest.fixture
def grouped(link: Link, monkeypatch: pytest.MonkeyPatch) -> Link:
    """Provide guests whose bridge shows its packets to the groups. Control frames are for a port open for all."""
    monkeypatch.setattr(
        link,
        "control",
        lambda sender, mark: ether(A_MAC, B_MAC, 0x0800, ipv4(A, B, udp(FOR_ALL, FOR_ALL, mark))),
    )
    switches = ("nf_call_iptables", "1", "nf_call_ip6tables", "1")
    link.room.in_space(link.room.host, "ip", "link", "set", "dev", BRIDGE, "type", "bridge", *switches)
    return link


def filters_of(*members: str) -> PortFilters:
    """Return filters of guest b: one port is open for ``members`` of its group, another one for all addresses."""
    outward = default_group("p").rules[:2]
    friends = SecurityGroup(
        id="friends",
        name="friends",
        rules=[
            *outward,
            *(
                SecurityGroupRule(
                    id="r",
                    security_group_id="friends",
                    protocol="udp",
                    port_range_min=port,
                    port_range_max=port,
                    remote_group_id=remote,
                )
                for port, remote in ((FOR_FRIENDS, "friends"), (FOR_ALL, None))
            ),
        ],
        members=list(members),
    )
    shut = SecurityGroup(id="shut", name="shut", rules=outward)
    return PortFilters(groups={"friends": friends, "shut": shut}, instances={"a": ["shut"], "b": ["friends"]})


def load_groups(link: Link, filters: PortFilters) -> None:
    ports = {name: [link.guards[name][0]] for name in ("a", "b")}
    link.room.in_space(link.room.host, "nft", "-f", "-", text=security_groups.ruleset("s", ports, filters))


def test_rule_about_a_group_is_not_bypassed_with_the_address_of_a_member(grouped: Link) -> None:
    load_groups(grouped, filters_of(B, OTHER))
    assert not grouped.arrives(datagram(A)), "a is no member"
    assert not grouped.arrives(datagram(OTHER)), "the address of a member is not that of a"
    grouped.room.in_space(grouped.room.host, "nft", "delete", "table", "bridge", "t")
    assert grouped.arrives(datagram(OTHER)), "control: the groups alone do not stop it"


def test_rule_about_a_group_does_not_include_address_pairs_of_its_members(grouped: Link) -> None:
    pairs = [{"ip_address": VIRTUAL, "mac_address": A_MAC}]
    grouped.guards["a"] = [msgspec.structs.replace(grouped.vifs["a"], address_pairs=pairs)]
    grouped.apply()
    load_groups(grouped, filters_of(A, B))
    assert grouped.arrives(datagram(A)), "the guest is a member"
    assert not grouped.arrives(datagram(VIRTUAL)), "its pair is none"
    load_groups(grouped, filters_of(A, B, VIRTUAL))
    assert grouped.arrives(datagram(VIRTUAL)), "control: only the list of members stops it"


def test_rule_about_a_group_follows_a_member_that_gets_another_address_or_group(grouped: Link) -> None:
    before, ports = filters_of(B, OTHER), {name: [grouped.guards[name][0]] for name in ("a", "b")}
    load_groups(grouped, before)
    for now, arrives in ((filters_of(A, B), True), (filters_of(B), False), (filters_of(A, B), True)):
        changes = security_groups.member_changes("s", ports, before, now)
        assert changes
        grouped.room.in_space(grouped.room.host, "nft", "-f", "-", text=changes)
        assert grouped.arrives(datagram(A)) is arrives
        before = now
    moved = msgspec.structs.replace(grouped.vifs["a"], address=OTHER)
    grouped.guards["a"] = [moved]
    grouped.apply()
    now = filters_of(B, OTHER)
    load_groups(grouped, now)
    grouped.control = lambda sender, mark: ether(A_MAC, B_MAC, 0x0800, ipv4(OTHER, B, udp(FOR_ALL, FOR_ALL, mark)))  # type: ignore[method-assign]
    assert not grouped.arrives(datagram(A)), "the former address is no member, and not that of a"
    assert grouped.arrives(datagram(OTHER))


def test_pair_of_all_addresses_is_not_the_host_and_not_another_guest_to_the_metadata_service(link: Link) -> None:
    """The guest still has one MAC address, and is no DHCP server."""
    everything = [{"ip_address": "0.0.0.0/0", "mac_address": A_MAC}, {"ip_address": "::/0", "mac_address": A_MAC}]
    network = msgspec.structs.replace(DUAL, gateway=HOST_ADDRESS)
    for name in ("a", "b"):
        pairs = everything if name == "a" else None
        link.guards[name] = [msgspec.structs.replace(link.vifs[name], address_pairs=pairs, network=network)]
    link.apply()
    for name in ("IPv4", "IPv6", "neighbour advertisement of another"):
        assert link.arrives(FORGED[name]), name
    refused = OF_HOSTS | {"DHCP server": FORGED_PAIRS["DHCP server"]}
    assert {name: link.arrives(frame) for name, frame in refused.items()} == dict.fromkeys(refused, False)


def test_guest_without_port_security_sends_and_receives_what_it_wants(link: Link) -> None:
    link.guards = {name: [msgspec.structs.replace(vif, unguarded=True)] for name, vif in link.vifs.items()}
    link.apply(served=())
    kinds = ("MAC", "IPv4", "ARP of another address", "DHCP server", "router advertisement", "PPPoE")
    assert {name: link.arrives(FORGED[name]) for name in kinds} == dict.fromkeys(kinds, True)
    assert link.arrives(BESIDE["IPv4"])
    assert not link.arrives(OF_HOSTS["metadata of another guest"])
