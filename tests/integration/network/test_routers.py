"""Routers with real packets: two hosts with guests on several networks, and machines outside."""

from __future__ import annotations

import msgspec

from nova_lite.objects import Network, StaticRoute, Subnet6
from tests.integration.network.room import OUTSIDE
from tests.integration.network.routed_host import A, B, C, RoutedHost, router

OLD = msgspec.structs.replace(C, needs_router=None)
FLOATING, OTHER, UPLINK = "192.0.2.50", "192.0.2.51", "192.0.2.1"


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


def test_address_of_a_router_is_the_source_of_its_guests(hosts: tuple[RoutedHost, RoutedHost]) -> None:
    one, _ = hosts
    a, b, c = one.guest_on(A, "a", 10), one.guest_on(B, "b", 10), one.guest_on(C, "c", 10)
    connecting = router(A, B, guests=[a, b], external=True)
    has_address = msgspec.structs.replace(connecting, address=FLOATING)
    one.floating(OTHER, "b")
    one.drive(has_address, router(C, guests=[c], external=True))
    assert one.source(one.space("out"), "a", OUTSIDE) == FLOATING
    assert one.source(one.space("out"), "b", OUTSIDE) == OTHER, "a floating address comes first"
    assert one.source(one.space("out"), "c", OUTSIDE) == UPLINK, "it is of another router"
    assert one.source(one.space("b"), "a", b.address) == a.address
    one.serve("a", 80)
    one.serve("host", 80)
    assert one.reaches("out", UPLINK, 80), "the host has a service"
    assert one.cut_off("out", FLOATING, 80) and one.cut_off("a", FLOATING, 80)
    one.in_space(one.space("out"), "ping", "-c", "1", "-w", "30", FLOATING)
    one.drive(connecting)
    assert one.source(one.space("out"), "a", OUTSIDE) == UPLINK


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
