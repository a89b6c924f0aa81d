"""Two networks of one host with the same addresses and ports: real packets on two bridges."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from nova_lite.objects import PortFilters, SecurityGroup
from nova_lite.objects.security_group import NetworkMembers, outward_rules
from nova_lite.virt.libvirt.net.security_groups import ruleset
from tests.integration.network.packets import rule, tcp
from tests.integration.network.room import BRIDGE, HOST_ADDRESS, NETWORK, OUTSIDE, Room, within_patience

TWIN = msgspec.structs.replace(NETWORK, id="66666666-7777-8888-9999-000000000000", name="twin", bridge="brtwin")
A, B = 10, 11

#: Sends a datagram from a port of its own, and prints the reply.
_TALK = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.bind(("0.0.0.0", 5555))
    s.settimeout(0.7)
    s.sendto(b"hello", (sys.argv[1], int(sys.argv[2])))
    try:
        print(s.recvfrom(100)[0].decode())
    except TimeoutError:
        print("nothing")
"""
#: Sends fragments of a datagram of 16 bytes, numbered in the rest of the arguments, with the identification 7.
_FRAGMENTS = """
import socket, struct, sys
source, to, *numbers = sys.argv[1:]
whole = struct.pack("!HHHH", 5555, 53, 24, 0) + b"first888second88"
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
for number in numbers:
    offset, part = ((0x2000, whole[:16]), (2, whole[16:]))[int(number)]
    addresses = socket.inet_aton(source) + socket.inet_aton(to)
    s.sendto(struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(part), 7, offset, 64, 17, 0) + addresses + part, (to, 0))
"""
_RECEIVE = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.bind(("0.0.0.0", 53))
    s.settimeout(2)
    print("ready", flush=True)
    try:
        print(s.recv(100).decode())
    except TimeoutError:
        print("nothing")
"""
_RULES = "import sys; from nova_lite.virt.libvirt.net import conntrack_zones, nft; nft.apply(sys.stdin.read() + "
_RULES += "conntrack_zones.ConntrackZones().ruleset('t', sys.argv[1:]))"


@pytest.fixture
def twins(room: Room) -> Room:
    """Two guests on each of the two networks."""
    room.bridge(TWIN)
    for name, network in (("1", NETWORK), ("2", TWIN)):
        room.guest(f"a{name}", A, network)
        room.guest(f"b{name}", B, network)
    return room


def group(name: str, *rules: object) -> SecurityGroup:
    return SecurityGroup(id=name, name=name, rules=[*outward_rules(TWIN.id), *rules])  # type: ignore[list-item]


def apply(room: Room, *groups: SecurityGroup, **members: list[str]) -> None:
    """Apply the groups, and the zones. ``members``: groups by guest."""
    filters = PortFilters(groups={item.id: item for item in groups}, instances=members)
    ports = {name: [vif] for name, vif in room.guests.items()}
    text = ruleset("t", ports, filters)
    room.in_space(room.host, sys.executable, "-c", _RULES, BRIDGE, TWIN.bridge, text=text)


def heard(room: Room, who: str, to: str) -> bool:
    address = room.guests[to].address
    return room.in_space(room.space(who), sys.executable, "-c", _TALK, address, "80") == "heard\n"


def test_connection_of_one_network_opens_nothing_on_another_with_its_addresses(twins: Room) -> None:
    """The guests of both networks have the same addresses and ports. Replies pass where the connection was allowed."""
    for name in ("a1", "a2", "b1", "b2"):
        twins.serve(name, 80)
    web, shut = group("web", rule(protocol="udp")), group("shut")
    apply(twins, web, shut, a1=["web"], b1=["shut"], a2=["shut"], b2=["shut"])
    assert within_patience(lambda: heard(twins, "b1", "a1"))
    assert not heard(twins, "b2", "a2"), "the other network has the connection"
    assert not heard(twins, "a2", "b2")
    assert heard(twins, "b1", "a1")
    apply(twins, web, shut, a1=["shut"], b1=["shut"], a2=["web"], b2=["shut"])
    assert heard(twins, "b1", "a1"), "its zone stays, and established connections continue"
    assert within_patience(lambda: heard(twins, "b2", "a2"))


def test_fragments_of_two_networks_are_not_reassembled_together(twins: Room) -> None:
    web = group("web", rule(protocol="udp"))
    apply(twins, web, **{name: ["web"] for name in twins.guests})
    source, to = twins.guests["b1"].address, twins.guests["a1"].address

    def received(**sent: str) -> str:
        """Return what a guest receives of these fragments by sender. The network of the first one gets the packet."""
        command = ["ip", "netns", "exec", twins.space("a1"), sys.executable, "-c", _RECEIVE]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
            assert receiver.stdout is not None and receiver.stdout.readline() == "ready\n"
            for who, numbers in sent.items():
                twins.in_space(twins.space(who), sys.executable, "-c", _FRAGMENTS, source, to, *numbers)
            return receiver.stdout.read()

    assert within_patience(lambda: received(b1="01") == "first888second88\n")
    assert received(b1="0", b2="1") == "nothing\n"


def test_member_counts_on_its_own_network_only(twins: Room) -> None:
    for name in ("a1", "a2"):
        twins.serve(name, 81)
    friends = group("friends", tcp(81, remote_group_id="friends"))
    friends.members_by_network = {
        NETWORK.id: NetworkMembers(members=[twins.guests[name].address for name in ("a1", "b1")])
    }
    apply(twins, friends, group("out"), a1=["friends"], b1=["friends"], a2=["friends"], b2=["out"])
    assert twins.reaches("b1", twins.guests["a1"].address, 81)
    assert twins.cut_off("b2", twins.guests["a2"].address, 81)
    friends.members_by_network[TWIN.id] = NetworkMembers(members=[twins.guests["b2"].address])
    apply(twins, friends, group("out"), a1=["friends"], b1=["friends"], a2=["friends"], b2=["out"])
    assert twins.reaches("b2", twins.guests["a2"].address, 81)


def test_host_and_outside_are_reached_from_a_bridge_with_a_zone(room: Room) -> None:
    """The host replies, and routes, outside of the bridge."""
    a = room.guest("a", A)
    room.serve("a", 80)
    room.serve("host", 53)
    room.serve("out", 53)
    web = group("web", tcp(80))
    text = ruleset("t", {"a": [a]}, PortFilters(groups={"web": web}, instances={"a": ["web"]}))
    room.in_space(room.host, sys.executable, "-c", _RULES, BRIDGE, "brgone", text=text)
    assert room.answered("a", HOST_ADDRESS, 53) and room.answered("a", OUTSIDE, 53)
    assert all(room.reaches(who, a.address, 80) for who in ("host", "out"))
