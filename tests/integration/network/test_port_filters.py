"""The rules of security groups with real packets."""

from __future__ import annotations

import sys

import msgspec

from nova_lite.objects import HostRouter, PortFilters, SecurityGroup, SecurityGroupRule
from nova_lite.objects.security_group import default_group, outward_rules
from nova_lite.virt.libvirt.net.floating_ips import Lead
from nova_lite.virt.libvirt.net.floating_ips import ruleset as floating_ruleset
from nova_lite.virt.libvirt.net.security_groups import member_changes, ruleset
from tests.integration.network.packets import pinged, rule, tcp, unpinged
from tests.integration.network.room import BRIDGE, HOST_ADDRESS, NETWORK, OUTSIDE, Room


def group(name: str, *rules: SecurityGroupRule) -> SecurityGroup:
    return SecurityGroup(id=name, name=name, project_id="p", rules=[*outward_rules(default_group("p").id), *rules])


def apply(
    room: Room, groups: list[SecurityGroup], floating: dict[str, str] | None = None, **members: list[str]
) -> None:
    """Apply the groups. ``members``: groups by guest; ``floating``: outside address by guest.

    There are no realms here, so a floating address is translated to the guest's own at once.
    """
    filters = PortFilters(groups={group.id: group for group in groups}, instances=members)
    for group in groups:
        group.members = [room.guests[name].address for name, mine in members.items() if group.id in mine]
    ports = {name: [vif] for name, vif in room.guests.items()}
    vifs = {address: room.guests[name] for name, address in (floating or {}).items()}
    leads = [Lead(address, vif.address, vif.address) for address, vif in vifs.items()]
    text = ruleset("t", ports, filters) + floating_ruleset("t", leads, {})
    room.in_space(room.host, "nft", "-f", "-", text=text)


def test_port_is_opened_and_closed_for_everybody(room: Room) -> None:
    """The attempts come from another guest, from the host, and from outside."""
    a, _ = room.guest("a", 10), room.guest("b", 11)
    room.serve("a", 80, 81)
    everybody = ("b", "host", "out")
    assert all(room.reaches(who, a.address, 80) for who in everybody)
    shut = group("shut")
    apply(room, [shut], a=["shut"], b=["shut"])
    assert all(room.cut_off(who, a.address, 80) for who in everybody)
    assert all(room.unanswered(who, a.address, 80) for who in everybody)
    web = group("web", tcp(80, remote_ip_prefix="0.0.0.0/0"))
    apply(room, [shut, web], a=["shut", "web"], b=["shut"])
    assert all(room.reaches(who, a.address, 80) for who in everybody)
    assert all(room.cut_off(who, a.address, 81) for who in everybody)
    assert all(room.unanswered(who, a.address, 80) for who in everybody)
    apply(room, [shut, web], a=["shut"], b=["shut"])
    assert all(room.cut_off(who, a.address, 80) for who in everybody)


def test_replies_reach_the_guest(room: Room) -> None:
    a = room.guest("a", 10)
    room.serve("out", 53)
    room.serve("host", 54)
    apply(room, [group("shut")], a=["shut"])
    assert room.reaches("a", OUTSIDE, 53)
    assert room.answered("a", OUTSIDE, 53)
    assert room.answered("a", HOST_ADDRESS, 54)
    assert room.cut_off("out", a.address, 53)


def test_rules_by_address_and_by_group(room: Room) -> None:
    a, b, c = room.guest("a", 10), room.guest("b", 11), room.guest("c", 12)
    room.serve("a", 80, 81)
    friends = group("friends", rule(remote_group_id="friends"))
    from_c = group("from_c", tcp(80, remote_ip_prefix=f"{c.address}/32"))
    apply(room, [friends, from_c], a=["friends", "from_c"], b=["friends"], c=[])
    assert room.reaches("b", a.address, 81)
    assert room.cut_off("c", a.address, 80), "c is in no group that lets it out"
    apply(room, [friends, from_c], a=["friends", "from_c"], b=["friends"], c=["from_c"])
    assert room.reaches("c", a.address, 80)
    assert room.cut_off("c", a.address, 81)
    assert room.cut_off("host", a.address, 80)
    assert b.address in friends.members


def test_egress_rules_limit_what_guests_reach(room: Room) -> None:
    room.guest("a", 10)
    room.serve("out", 80, 81)
    only = SecurityGroup(id="only", name="only", rules=[tcp(80, direction="egress", remote_ip_prefix=f"{OUTSIDE}/32")])
    apply(room, [only], a=["only"])
    assert room.reaches("a", OUTSIDE, 80)
    assert room.cut_off("a", OUTSIDE, 81)


def test_port_without_filters_is_blocked(room: Room) -> None:
    a = room.guest("a", 10)
    room.serve("a", 80)
    apply(room, [], a=[])
    assert room.cut_off("out", a.address, 80)


def test_broadcasts_of_guests_reach_nobody(room: Room) -> None:
    room.guest("a", 10)
    room.guest("b", 11)
    room.serve("a", 9999)
    assert room.answered("b", "10.9.0.255", 9999)
    apply(room, [group("shut")], a=["shut"], b=["shut"])
    assert room.unanswered("b", "10.9.0.255", 9999)


def test_floating_address_works_in_both_directions(room: Room) -> None:
    """Groups apply to incoming connections. Outgoing ones have the floating address."""
    room.guest("a", 10)
    floating = "192.0.2.50"
    room.in_space(room.host, "ip", "address", "add", f"{floating}/32", "dev", "lo")
    room.serve("a", 80, 81)
    room.serve("out", 53)
    web = group("web", tcp(80))
    apply(room, [web], a=["web"])
    assert room.cut_off("out", floating, 80)
    apply(room, [web], {"a": floating}, a=["web"])
    assert all(room.reaches(who, floating, 80) for who in ("out", "host"))
    assert room.cut_off("out", floating, 81)
    room.in_space(room.space("out"), "ip", "route", "del", "10.9.0.0/24")
    assert room.reaches("out", floating, 80), "its replies have the floating address"
    assert room.reaches("a", OUTSIDE, 53), "its own connections, too"
    apply(room, [web], a=["web"])
    assert room.cut_off("a", OUTSIDE, 53)
    assert room.cut_off("out", floating, 80)


def test_ping_has_type_and_code(room: Room) -> None:
    """ICMP rules have them in place of ports."""
    a = room.guest("a", 10)
    echo = group("echo", rule(protocol="icmp", port_range_min=8, port_range_max=0))
    other = group("other", rule(protocol="icmp", port_range_min=13))
    apply(room, [other], a=["other"])
    assert unpinged(room, a.address)
    apply(room, [echo, other], a=["echo", "other"])
    assert pinged(room, a.address)


def test_bridge_is_configured_to_show_its_packets(room: Room) -> None:
    """The machine's default does not matter."""
    a = room.guest("a", 10)
    room.guest("b", 11)
    room.serve("a", 80)
    room.in_space(room.host, "sysctl", "-q", "-w", "net.bridge.bridge-nf-call-iptables=0")
    apply(room, [group("shut")], a=["shut"], b=["shut"])
    assert room.reaches("b", a.address, 80), "packets are not filtered"
    script = f"from nova_lite.virt.libvirt.net import security_groups; security_groups.show_packets_of({BRIDGE!r})"
    room.in_space(room.host, sys.executable, "-c", script)
    assert room.cut_off("b", a.address, 80)


def test_member_that_joins_or_leaves_is_loaded_alone(room: Room) -> None:
    a, b, c = room.guest("a", 10), room.guest("b", 11), room.guest("c", 12)
    room.serve("a", 80)
    friends = group("friends", rule(remote_group_id="friends"))
    apply(room, [friends], a=["friends"], b=["friends"], c=[])
    ids = {"a": ["friends"], "b": ["friends"]}
    others = group("out")
    apply(room, [friends, others], a=["friends"], b=["friends"], c=["out"])
    assert room.cut_off("c", a.address, 80)

    def filters(*members: str) -> PortFilters:
        return PortFilters(groups={"friends": msgspec.structs.replace(friends, members=list(members))}, instances=ids)

    ports = {name: [vif] for name, vif in room.guests.items()}
    changes = member_changes("t", ports, filters(a.address, b.address), filters(a.address, c.address))
    assert changes is not None and "chain" not in changes
    room.in_space(room.host, "nft", "-f", "-", text=changes)
    assert room.reaches("c", a.address, 80)
    assert room.cut_off("b", a.address, 80)


VIRTUAL = "10.9.0.77"


def give(room: Room, name: str, *ranges: str) -> None:
    """Give a guest address pairs, and a virtual address."""
    vif = room.guests[name]
    pairs = [{"ip_address": item, "mac_address": vif.mac_address} for item in ranges]
    room.guests[name] = msgspec.structs.replace(vif, address_pairs=pairs)
    room.in_space(room.space(name), "ip", "address", "replace", f"{VIRTUAL}/32", "dev", "eth0")


def test_groups_filter_a_virtual_address(room: Room) -> None:
    """The attempts come from another guest. What a realm sends crosses the bridge in the same way."""
    for number, name in enumerate(("a", "b", "c"), 10):
        room.guest(name, number)
    room.serve("a", 80, 81)
    give(room, "a", f"{VIRTUAL}/32")
    web, shut = group("web", tcp(80, remote_ip_prefix="0.0.0.0/0")), group("shut")
    apply(room, [web, shut], a=["web"], b=["shut"], c=["shut"])
    assert room.reaches("b", VIRTUAL, 80) and room.cut_off("b", VIRTUAL, 81)
    apply(room, [web, shut], a=["shut"], b=["shut"], c=["shut"])
    assert room.cut_off("b", VIRTUAL, 80)
    # Another guest with the same pair changes nothing: the bridge knows who has the address.
    give(room, "c", "10.9.0.64/26")
    room.in_space(room.space("c"), "ip", "address", "delete", f"{VIRTUAL}/32", "dev", "eth0")
    apply(room, [web, shut], a=["web"], b=["shut"], c=["shut"])
    assert room.reaches("b", VIRTUAL, 80) and room.cut_off("b", VIRTUAL, 81)


def test_pair_of_all_addresses_opens_nothing_to_others(room: Room) -> None:
    """Packets to another guest's own address are filtered by that guest's groups. Guests of other hosts are reached."""
    a, b = room.guest("a", 10), room.guest("b", 11)
    remote = room.guest("remote", 12)
    room.serve("a", 80)
    room.serve("b", 80)
    room.serve("remote", 80)
    give(room, "a", "0.0.0.0/0")
    del room.guests["remote"]
    web, shut = group("web", tcp(80, remote_ip_prefix="0.0.0.0/0")), group("shut")
    neighbours = {NETWORK.id: {remote.address: remote.mac_address}}
    filters = PortFilters(
        groups={"web": web, "shut": shut},
        instances={"a": ["web"], "b": ["shut"]},
        routers=[HostRouter(id="r", networks=[NETWORK], neighbours=neighbours)],
    )
    ports = {name: [vif] for name, vif in room.guests.items()}
    room.in_space(room.host, "nft", "-f", "-", text=ruleset("t", ports, filters))
    assert all(room.cut_off(who, b.address, 80) for who in ("a", "host", "out"))
    assert all(room.reaches(who, VIRTUAL, 80) for who in ("b", "host", "out"))
    assert all(room.reaches(who, a.address, 80) for who in ("b", "host", "out"))
    assert all(room.reaches(who, remote.address, 80) for who in ("b", "host", "out"))
    filters.routers = []
    room.in_space(room.host, "nft", "-f", "-", text=ruleset("t", ports, filters))
    assert room.cut_off("out", "10.9.0.13", 80), "an address of nobody"


def test_egress_rules_limit_a_virtual_address(room: Room) -> None:
    room.guest("a", 10)
    room.serve("host", 80, 81)
    give(room, "a", f"{VIRTUAL}/32")
    room.in_space(room.space("a"), "ip", "route", "replace", f"{HOST_ADDRESS}/32", "dev", "eth0", "src", VIRTUAL)
    only = SecurityGroup(id="only", name="only", rules=[tcp(80, direction="egress")])
    apply(room, [only], a=["only"])
    assert room.reaches("a", HOST_ADDRESS, 80)
    assert room.cut_off("a", HOST_ADDRESS, 81)


def stateless(name: str, *rules: SecurityGroupRule) -> SecurityGroup:
    return msgspec.structs.replace(group(name, *rules), stateful=False)


def test_replies_to_a_stateless_port_need_a_rule(room: Room) -> None:
    """The replies come from outside, from the host and from another guest."""
    b = room.guest("b", 11)
    room.guest("a", 10)
    for who in ("out", "host", "b"):
        room.serve(who, 53)
    servers = (OUTSIDE, HOST_ADDRESS, b.address)
    apply(room, [stateless("shut"), group("open", rule())], a=["shut"], b=["open"])
    assert all(room.unanswered("a", address, 53) for address in (OUTSIDE, b.address))
    assert all(room.cut_off("a", address, 53) for address in servers)
    replies = [rule(protocol=name, port_range_min=1024, port_range_max=65535) for name in ("tcp", "udp")]
    apply(room, [stateless("replies", *replies), group("open", rule())], a=["replies"], b=["open"])
    assert all(room.answered("a", address, 53) for address in servers)
    assert all(room.reaches("a", address, 53) for address in servers)


def test_stateless_server_needs_a_rule_for_what_it_replies(room: Room) -> None:
    a = room.guest("a", 10)
    room.serve("a", 80)
    inward, outward = tcp(80), rule(protocol="tcp", direction="egress", port_range_min=1024, port_range_max=65535)
    one_way = SecurityGroup(id="web", name="web", rules=[inward], stateful=False)
    apply(room, [one_way], a=["web"])
    assert room.cut_off("out", a.address, 80)
    apply(room, [msgspec.structs.replace(one_way, stateful=True)], a=["web"])
    assert room.reaches("out", a.address, 80), "a stateful group lets replies out"
    both = msgspec.structs.replace(one_way, rules=[inward, outward])
    apply(room, [both], a=["web"])
    assert room.reaches("out", a.address, 80)


def connections(room: Room, *between: str) -> list[str]:
    """Return the tracked connections of the host between these addresses."""
    lines = room.in_space(room.host, "cat", "/proc/net/nf_conntrack").splitlines()
    return [line for line in lines if all(f"src={address} " in line for address in between)]


def test_packets_between_stateless_ports_are_not_tracked(room: Room) -> None:
    a, b = room.guest("a", 10), room.guest("b", 11)
    room.serve("b", 80)
    every = stateless("every", rule())
    apply(room, [every], a=["every"], b=["every"])
    assert room.reaches("a", b.address, 80) and room.answered("a", b.address, 80)
    assert not connections(room, a.address, b.address)
    apply(room, [msgspec.structs.replace(every, stateful=True)], a=["every"], b=["every"])
    assert room.reaches("a", b.address, 80)
    assert connections(room, a.address, b.address)


def test_stateful_port_keeps_its_replies_beside_a_stateless_one(room: Room) -> None:
    """Each opens a connection to the other. Only the rules of the stateless one name both directions."""
    a, b = room.guest("a", 10), room.guest("b", 11)
    room.serve("a", 80)
    room.serve("b", 81)
    every = stateless("every", rule())
    apply(room, [every, group("web", tcp(81))], a=["every"], b=["web"])
    assert room.reaches("b", a.address, 80), "the reply needs no rule of b"
    silent = SecurityGroup(id="web", name="web", rules=[tcp(81)])
    apply(room, [every, silent], a=["every"], b=["web"])
    assert room.reaches("a", b.address, 81), "the reply needs no rule of b"
    assert room.cut_off("b", a.address, 80)


def test_stateful_virtual_address_keeps_its_replies_beside_a_stateless_port(room: Room) -> None:
    room.guest("a", 10)
    room.guest("b", 11)
    room.serve("b", 81)
    give(room, "b", f"{VIRTUAL}/32")
    silent = SecurityGroup(id="web", name="web", rules=[tcp(81)])
    apply(room, [stateless("every", rule()), silent], a=["every"], b=["web"])
    assert room.reaches("a", VIRTUAL, 81)
