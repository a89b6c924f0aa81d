"""Further addresses of ports, with real packets: guests in namespaces, nftables and dnsmasq of a host."""

from __future__ import annotations

import msgspec

from nova_lite.objects import VIF, ipv6
from tests.integration.network.room import OUTSIDE
from tests.integration.network.routed_host import A, B, RoutedHost, router

FURTHER = "10.1.0.50"


def give(host: RoutedHost, name: str, *addresses: str) -> VIF:
    """Give a guest's port further addresses. The guest configures ``FURTHER`` in any case."""
    vif = host.guests[name]
    host.guests[name] = msgspec.structs.replace(vif, more=ipv6.further_addresses(vif.network, None, addresses))
    host.in_space(host.space(name), "ip", "address", "replace", f"{FURTHER}/24", "dev", "eth0")
    return host.guests[name]


def source_is(host: RoutedHost, name: str, address: str) -> None:
    """Let a guest send from one of its addresses."""
    for network in (A, B):
        route = ("ip", "route", "replace", network.cidr, "src", address)
        way = ("dev", "eth0") if network.cidr == host.guests[name].network.cidr else ("via", "10.1.0.1")
        host.in_space(host.space(name), *route, *way)


def test_guest_sends_from_and_is_reached_at_its_further_address_only_while_the_port_has_it(host: RoutedHost) -> None:
    """The other guest is on its bridge, or behind the router."""
    host.guest_on(A, "one", 10)
    host.serve("one", 22)
    others = [host.guest_on(A, "two", 11), host.guest_on(B, "far", 10)]
    host.drive(router(A, B, guests=[give(host, "one", FURTHER), *others]))
    for other in ("two", "far"):
        assert host.reaches(other, FURTHER, 22)
        assert host.reaches(other, "10.1.0.10", 22)
    source_is(host, "one", FURTHER)
    assert host.source(host.space("two"), "one", "10.1.0.11") == FURTHER
    assert host.source(host.space("far"), "one", "10.2.0.10") == FURTHER
    host.drive(router(A, B, guests=[give(host, "one"), *others]))
    for other in ("two", "far"):
        assert host.cut_off(other, FURTHER, 22)
        assert host.reaches(other, "10.1.0.10", 22)
    assert host.cut_off("one", "10.1.0.11", 22), "it sends from an address that is not its own any more"


def test_dhcp_offers_the_first_address_alone(host: RoutedHost) -> None:
    host.guest_on(A, "one", 10)
    vif = give(host, "one", FURTHER)
    host.drive()
    assert host.offer(vif)["address"] == "10.1.0.10"


def test_metadata_service_is_reached_from_the_first_address_alone(host: RoutedHost) -> None:
    vif = host.guest_on(A, "one", 10)
    give(host, "one", FURTHER)
    with host.serving_metadata(router(A, guests=[vif])):
        assert host.reaches("one", "169.254.169.254", 80)
        host.in_space(host.space("one"), "ip", "route", "add", "169.254.169.254", "via", "10.1.0.1", "src", FURTHER)
        assert host.cut_off("one", "169.254.169.254", 80)


def test_floating_address_leads_to_the_chosen_address_in_both_directions(host: RoutedHost) -> None:
    host.guest_on(A, "one", 10)
    vif = give(host, "one", FURTHER)
    host.floating("192.0.2.40", "one")
    host.floating("192.0.2.50", "one", FURTHER)
    host.drive(router(A, guests=[vif], external=True))
    host.serve("one", 22)
    for address in ("192.0.2.40", "192.0.2.50"):
        assert host.reaches("out", address, 22)
    assert host.source(host.space("out"), "one", OUTSIDE) == "192.0.2.40"
    host.in_space(host.space("one"), "ip", "route", "replace", "default", "via", "10.1.0.1", "src", FURTHER)
    assert host.source(host.space("out"), "one", OUTSIDE) == "192.0.2.50"
    host.guests["one"] = give(host, "one")
    host.drive(router(A, guests=[vif], external=True))
    assert host.reaches("out", "192.0.2.40", 22)
    assert host.cut_off("out", "192.0.2.50", 22), "the port has the address no more"
