"""Port forwardings with real packets: ports of one floating address lead to guests of two hosts."""

from __future__ import annotations

import msgspec

from nova_lite.objects import VIF, HostForwarding
from tests.integration.network.packets import pinged
from tests.integration.network.room import OUTSIDE
from tests.integration.network.routed_host import A, B, RoutedHost, router

FLOATING = "192.0.2.50"


def forwarding(
    vif: VIF, protocol: str, external: tuple[int, int], internal: tuple[int, int], peer: str | None = None
) -> HostForwarding:
    return HostForwarding(
        floating=FLOATING,
        router_id="router-ab",
        network_id=vif.network.id,
        port_id=vif.id,
        address=vif.address,
        protocol=protocol,
        external=external,
        internal=internal,
        peer=peer,
    )


def test_ports_of_one_address_lead_to_guests_of_two_hosts(hosts: tuple[RoutedHost, RoutedHost]) -> None:
    """The host of the first guest has the address. Each guest sees the address of the sender."""
    one, two = hosts
    a, b = one.guest_on(A, "a", 10), two.guest_on(B, "b", 20)
    both = router(A, B, guests=[a, b], external=True)
    one.serve("host", 7777)
    one.serve("a", 22, 53, 81)
    two.serve("b", 22, 53, 82)
    near = [
        forwarding(a, "tcp", (2222, 2222), (22, 22)),
        forwarding(a, "udp", (53, 53), (53, 53)),
        forwarding(a, "tcp", (8080, 8082), (80, 82)),
    ]
    far = [
        forwarding(b, "tcp", (2223, 2223), (22, 22), two.local_ip),
        forwarding(b, "udp", (5353, 5353), (53, 53), two.local_ip),
        forwarding(b, "tcp", (9000, 9010), (82, 82), two.local_ip),
    ]
    one.forwardings = near + far
    two.forwardings = [msgspec.structs.replace(item, is_held=False, peer=one.local_ip) for item in far]
    for host in hosts:
        host.drive(both)
    assert one.reaches("out", FLOATING, 2222) and one.answered("out", FLOATING, 53)
    assert one.reaches("out", FLOATING, 8081), "the second of a range leads to the second"
    assert one.cut_off("out", FLOATING, 22) and one.unanswered("out", FLOATING, 2222)
    assert one.reaches("out", "192.0.2.1", 7777) and one.cut_off("out", FLOATING, 7777), "a service of the host"
    assert pinged(one, FLOATING)
    assert one.reaches("out", FLOATING, 2223) and one.answered("out", FLOATING, 5353)
    assert one.reaches("out", FLOATING, 9007), "a range leads to one port"
    assert one.reaches("host", FLOATING, 2223) and one.reaches("a", FLOATING, 2223)
    assert one.reaches("a", b.address, 22) and two.reaches("b", a.address, 22), "connected networks need no forwarding"
    web = forwarding(b, "tcp", (81, 81), (81, 81), two.local_ip)
    one.forwardings = [forwarding(a, "tcp", (80, 80), (81, 81)), web]
    two.forwardings = [msgspec.structs.replace(web, is_held=False, peer=one.local_ip)]
    for host in hosts:
        host.drive(both)
    assert one.cut_off("out", FLOATING, 2223) and one.cut_off("out", FLOATING, 2222)
    assert one.source(two.space("b"), "out", FLOATING) == OUTSIDE
    one.forwardings = []
    one.drive(both)
    assert one.cut_off("out", FLOATING, 81) and one.cut_off("out", FLOATING, 80)
    shown = one.in_space(one.host, "ip", "-oneline", "address", "show", "dev", "lo")
    assert FLOATING not in shown, "nobody has the address any more"


def test_guest_of_another_host_is_reached_through_its_forwarded_ports_alone(
    hosts: tuple[RoutedHost, RoutedHost],
) -> None:
    """Packets for other ports, and replies from them, do not pass the tunnel between gateway and guest."""
    one, two = hosts
    a, b = one.guest_on(A, "a", 10), two.guest_on(B, "b", 20)
    two.serve("b", 22, 23)
    near = forwarding(a, "tcp", (80, 80), (80, 80))
    wide = forwarding(b, "tcp", (22, 23), (22, 23), two.local_ip)
    narrow = forwarding(b, "tcp", (22, 22), (22, 22), two.local_ip)
    both = router(A, B, guests=[a, b], external=True)
    for there, reached in (([wide], True), ([narrow], False)):
        one.forwardings = [near, wide]
        two.forwardings = [msgspec.structs.replace(item, is_held=False, peer=one.local_ip) for item in there]
        for host in hosts:
            host.drive(both)
        assert one.reaches("out", FLOATING, 22)
        assert (one.reaches if reached else one.cut_off)("out", FLOATING, 23)
