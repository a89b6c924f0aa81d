"""IPv6 and IPv4 with real packets: groups, and guests that announce forged addresses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import msgspec

from nova_lite.objects import VIF, PortFilters, SecurityGroup, SecurityGroupRule, ipv6
from nova_lite.objects.security_group import default_group
from nova_lite.virt.libvirt.net.security_groups import ruleset
from tests.integration.libvirt.conftest import PATIENCE
from tests.integration.network.room import BRIDGE, NETWORK, Room
from tests.support.waiting import wait_for

DUAL = msgspec.structs.replace(NETWORK, cidr6="fd00:9::/64")
ECHO = SecurityGroupRule(id="r", security_group_id="echo", ethertype="IPv6", protocol="icmp", port_range_min=128)
SHUT = SecurityGroup(id="shut", name="shut", rules=default_group("p").rules[:2])

#: The guest announces to the whole link an address ("neighbour") or itself as a router ("router").
_SAYS = """
import socket, struct, sys
kind, target, mac = sys.argv[1], socket.inet_pton(socket.AF_INET6, sys.argv[2]), bytes.fromhex(sys.argv[3])
if kind == "neighbour":
    message = struct.pack("!BBHI", 136, 0, 0, 0x20000000) + target + b"\\x02\\x01" + mac
else:
    message = struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0) + b"\\x01\\x01" + mac
with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as s:
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex("eth0"))
    s.sendto(message, ("ff02::1", 0))
"""


def dual(room: Room, name: str, number: int) -> VIF:
    """Add a guest with the address that is derived from its MAC address."""
    vif = room.guest(name, number)
    more = ipv6.further_addresses(DUAL, ipv6.address_on(DUAL, vif.mac_address))
    room.guests[name] = vif = msgspec.structs.replace(vif, network=DUAL, more=more)
    room.in_space(room.space(name), "ip", "-6", "address", "add", f"{address(vif)}/64", "dev", "eth0", "nodad")
    return vif


def address(vif: VIF) -> str:
    return vif.more[0].address


def apply(room: Room, **members: list[SecurityGroup]) -> None:
    groups = {group.id: group for mine in members.values() for group in mine}
    filters = PortFilters(
        groups=groups, instances={name: [group.id for group in mine] for name, mine in members.items()}
    )
    for group in groups.values():
        group.members = [address(room.guests[name]) for name, mine in members.items() if group in mine]
    text = ruleset("t", {name: [vif] for name, vif in room.guests.items()}, filters)
    room.in_space(room.host, "nft", "-f", "-", text=text)
    switches = ("nf_call_iptables", "1", "nf_call_ip6tables", "1")
    room.in_space(room.host, "ip", "link", "set", "dev", BRIDGE, "type", "bridge", *switches)


def announce(room: Room, who: str, kind: str, about: str) -> None:
    mac_address = room.guests[who].mac_address.replace(":", "")
    room.in_space(room.space(who), sys.executable, "-c", _SAYS, kind, about, mac_address)


def believed(check: Callable[[], bool], say: Callable[[], None]) -> bool:
    """Check whether an announcement, sent twice, has an effect. The link has no delay, so the effect is immediate."""
    say()
    say()
    return check()


def test_guest_is_reachable_as_its_groups_allow(room: Room) -> None:
    a, b = dual(room, "a", 10), dual(room, "b", 11)
    room.in_space(room.host, "ip", "-6", "address", "add", "fd00:9::1/64", "dev", BRIDGE, "nodad")
    wait_for("both exist", lambda: not (room.unpinged("b", address(a)) or room.unpinged("host", address(b))), PATIENCE)
    apply(room, a=[SHUT], b=[SHUT])
    for who in ("b", "host"):
        assert room.unpinged(who, address(a))
    assert room.pinged("a", "fd00:9::1"), "replies arrive"
    echo = SecurityGroup(id="echo", name="echo", rules=[ECHO])
    apply(room, a=[SHUT, echo], b=[SHUT])
    for who in ("b", "host"):
        room.in_space(room.space(who), "ip", "-6", "neigh", "flush", "all")
        assert room.pinged(who, address(a)), "neighbours are found"
    friends = SecurityGroup(id="friends", name="friends")
    friends.rules = [msgspec.structs.replace(ECHO, remote_group_id="friends")]
    apply(room, a=[SHUT, friends], b=[SHUT, friends])
    assert room.pinged("b", address(a)) and room.unpinged("host", address(a))
    apply(room, a=[SHUT], b=[SHUT])
    assert room.unpinged("b", address(a))


def test_guest_cannot_announce_the_address_of_another(room: Room) -> None:
    a, _ = dual(room, "a", 10), dual(room, "b", 11)
    c = dual(room, "c", 12)
    wait_for("b knows a", lambda: not room.unpinged("b", address(a)), PATIENCE)

    def where() -> str:
        known = json.loads(room.in_space(room.space("b"), "ip", "-6", "-json", "neigh", "show", address(a)))
        return str(known[0].get("lladdr"))

    def forge() -> None:
        announce(room, "c", "neighbour", address(a))

    assert where() == a.mac_address
    wait_for("packets are not filtered", lambda: believed(lambda: where() == c.mac_address, forge), PATIENCE)
    room.in_space(room.space("b"), "ip", "-6", "neigh", "flush", "all")
    apply(room, a=[SHUT, SecurityGroup(id="echo", name="echo", rules=[ECHO])], b=[SHUT], c=[SHUT])
    assert room.pinged("b", address(a))
    assert not believed(lambda: where() != a.mac_address, forge)
    announce(room, "a", "neighbour", address(a))
    assert room.pinged("b", address(a))


def test_guest_cannot_act_as_a_router(room: Room) -> None:
    dual(room, "b", 11)
    dual(room, "c", 12)

    def routes() -> str:
        return room.in_space(room.space("b"), "ip", "-6", "route", "show", "default")

    def offer() -> None:
        announce(room, "c", "router", "::")

    wait_for("c has sent", lambda: believed(lambda: bool(routes()), offer), PATIENCE)
    room.in_space(room.space("b"), "ip", "-6", "route", "flush", "default")
    apply(room, b=[SHUT], c=[SHUT])
    assert not believed(lambda: bool(routes()), offer)
