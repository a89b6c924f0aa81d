"""Two tenants with every address in common, on two hosts: real packets."""

from __future__ import annotations

import subprocess
import sys

import msgspec

from nova_lite.objects.security_group import NetworkMembers
from nova_lite.virt.libvirt.net.names import bridge_name
from tests.integration.network.room import OUTSIDE, within_patience
from tests.integration.network.routed_host import A, B, RoutedHost, router
from tests.integration.network.tenants import FLOATING, OTHER_FLOATING, SAME, answer

_RESOLVE = """
import sys, dns.message, dns.query
reply = dns.query.udp(dns.message.make_query(sys.argv[2], sys.argv[3]), sys.argv[1], 1)
print(*sorted(str(item) for answer in reply.answer for item in answer))
"""


def test_each_tenant_reaches_its_own_guest_of_an_address(tenants: tuple[RoutedHost, RoutedHost]) -> None:
    one, two = tenants
    assert within_patience(lambda: answer(one, "p1", "10.1.0.20") == "p2")
    assert within_patience(lambda: answer(one, "q1", "10.1.0.20") == "q2")
    assert within_patience(lambda: answer(two, "p2", "10.1.0.10") == "p1")
    assert within_patience(lambda: answer(two, "q2", "10.1.0.10") == "q1")


def test_floating_address_leads_to_the_guest_of_its_tenant(tenants: tuple[RoutedHost, RoutedHost]) -> None:
    one, _ = tenants
    for who in ("out", "host", "p1", "q1"):
        assert within_patience(lambda who=who: answer(one, who, FLOATING) == "p1")  # type: ignore[misc]
        assert within_patience(lambda who=who: answer(one, who, OTHER_FLOATING) == "q1")  # type: ignore[misc]


def test_guests_with_equal_addresses_leave_with_their_own_floating_addresses(
    tenants: tuple[RoutedHost, RoutedHost],
) -> None:
    one, _ = tenants
    assert one.source(one.space("out"), "p1", OUTSIDE) == FLOATING
    assert one.source(one.space("out"), "q1", OUTSIDE) == OTHER_FLOATING


def test_equal_connections_of_two_tenants_at_once_are_told_apart(tenants: tuple[RoutedHost, RoutedHost]) -> None:
    """The connections have the same addresses and ports at both ends, at the same time."""
    one, _ = tenants
    ask = (
        "import socket, sys, time\n"
        "client = socket.socket()\n"
        "client.settimeout(20)\n"
        "client.bind(('10.1.0.10', 40000))\n"
        "client.connect(('10.1.0.20', 80))\n"
        "print(client.recv(200).decode(), flush=True)\n"
        "time.sleep(float(sys.argv[1]))\n"
    )
    assert within_patience(lambda: answer(one, "p1", "10.1.0.20") == "p2")
    assert within_patience(lambda: answer(one, "q1", "10.1.0.20") == "q2")
    both = [
        subprocess.Popen(
            ["ip", "netns", "exec", one.space(who), sys.executable, "-c", ask, "1"], stdout=subprocess.PIPE, text=True
        )
        for who in ("p1", "q1")
    ]
    assert [process.communicate(timeout=60)[0].strip() for process in both] == ["p2", "q2"]


def test_metadata_service_knows_the_network_of_a_guest(hosts: tuple[RoutedHost, RoutedHost]) -> None:
    one, _ = hosts
    vifs = {name: one.guest_on(network, name, 10) for name, network in (("p1", A), ("q1", SAME), ("b1", B))}
    made = [msgspec.structs.replace(router(SAME, B, guests=[]), id="router-q")]
    one.drive(*made)
    with one.serving_metadata(*made):
        for name, vif in vifs.items():
            found = within_patience(lambda name=name: bool(answer(one, name, "169.254.169.254")))  # type: ignore[misc]
            assert found
            assert answer(one, name, "169.254.169.254") == f"{vif.network.id} {vif.address}"
    assert {bridge_name(vif.network) for vif in vifs.values()} == {"bra", "brsame", "brb"}


def test_network_moves_into_the_realm_of_its_router_and_back(hosts: tuple[RoutedHost, RoutedHost]) -> None:
    one, _ = hosts
    vif = one.guest_on(A, "a", 10)
    one.drive()
    assert one.realms() == {A.id}
    assert one.offer(vif)["address"] == "10.1.0.10"
    made = router(A, guests=[vif], external=True)
    one.drive(made)
    assert one.realms() == {made.id}
    assert one.offer(vif)["address"] == "10.1.0.10"
    assert one.reaches_dns("a", "10.1.0.1")
    one.drive()
    assert one.realms() == {A.id}
    assert one.offer(vif)["address"] == "10.1.0.10"


def resolved(host: RoutedHost, who: str, name: str, kind: str = "A") -> str:
    """Return what the name server of a guest's network answers, empty without an answer."""
    command = ["ip", "netns", "exec", host.space(who), sys.executable, "-c", _RESOLVE, "10.1.0.1", name, kind]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.strip()


def test_each_tenant_resolves_its_own_guest_of_a_name(hosts: tuple[RoutedHost, RoutedHost]) -> None:
    """The tenants have the same names and addresses, but not the same guest of each name."""
    one, _ = hosts
    made = [router(A, B, guests=[one.guest_on(A, "p1", 10)]), router(SAME, guests=[one.guest_on(SAME, "q1", 10)])]
    one.names = {
        A.id: NetworkMembers(members=["10.1.0.10 web ", "10.1.0.20 db "]),
        B.id: NetworkMembers(members=["10.2.0.30 mail "]),
        SAME.id: NetworkMembers(members=["10.1.0.20 web ", "10.1.0.10 db "]),
    }
    one.drive(*made)
    for who, web, db, own in (("p1", "10.1.0.10", "10.1.0.20", "web"), ("q1", "10.1.0.20", "10.1.0.10", "db")):
        assert within_patience(lambda who=who, web=web: resolved(one, who, "web.cloud.test") == web)  # type: ignore[misc]
        assert (resolved(one, who, "web"), resolved(one, who, "db.cloud.test")) == (web, db)
        assert resolved(one, who, "10.0.1.10.in-addr.arpa", "PTR") == f"{own}.cloud.test."
    assert (resolved(one, "p1", "mail.cloud.test"), resolved(one, "q1", "mail.cloud.test")) == ("10.2.0.30", "")
    one.names[SAME.id] = NetworkMembers(members=["10.1.0.30 web "])
    one.drive(*made)
    assert within_patience(lambda: resolved(one, "q1", "web.cloud.test") == "10.1.0.30")
    assert (resolved(one, "p1", "web.cloud.test"), resolved(one, "q1", "db.cloud.test")) == ("10.1.0.10", "")
