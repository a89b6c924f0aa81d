"""Rules of realms, and between realms and their host. The integration tests apply them."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

import msgspec
import pytest

from nova_lite.objects import HostRouter, Network, Subnet6, ipv6
from nova_lite.virt.libvirt.net import firewall, names
from nova_lite.virt.libvirt.net.firewall import Published, Routing
from tests.support.guests import make_network

REFUSED = "reject with icmpx admin-prohibited"
REPLIES = ["ct state established,related accept", "ct status dnat accept"]
OF_HOST = "ct direction reply ct state established accept"
OUT, IN = 'oifname "nlup" accept', 'iifname "nlup" accept'


def chain(text: str, name: str) -> list[str]:
    """Return the rules of a chain, without its header."""
    found = re.search(rf"chain {name} {{\n(.*?)\n  }}", text, re.DOTALL)
    assert found is not None
    lines = [line.strip() for line in found[1].split("\n")]
    return [line for line in lines if line and not line.startswith("type ")]


def of_project(**changes: Any) -> Network:
    return make_network(project_id="p", needs_router=True, **changes)


def test_guests_reach_dhcp_dns_ping_and_metadata_of_their_realm() -> None:
    text = firewall.ruleset(make_network(), Routing(), has_metadata=True)
    assert chain(text, "prerouting") == []
    assert chain(text, "input") == [
        'iifname != "nltest0" accept',
        "ct state established,related accept",
        "ip saddr != { 10.76.0.0/24, 0.0.0.0/32 } drop",
        "udp dport { 53, 67 } accept",
        "tcp dport 53 accept",
        "meta l4proto { icmp, ipv6-icmp } accept",
        "ip daddr 169.254.169.254 tcp dport 80 accept",
        "reject",
    ]
    without = chain(firewall.ruleset(make_network(), Routing()), "input")
    assert without[-2:] == ["meta l4proto { icmp, ipv6-icmp } accept", "reject"]


def test_addresses_of_others_and_links_are_refused_before_anything_passes() -> None:
    assert chain(firewall.ruleset(make_network(), Routing()), "forward") == [
        'iifname "nltest0" oifname "nlup" ip saddr != 10.76.0.0/24 drop',
        'iifname "nltest0" oifname "nlup" meta nfproto ipv6 drop',
        'iifname "nltest0" ip daddr 169.254.0.0/16 ct direction original ct status ! dnat reject',
        'iifname "nltest0" ip daddr 169.254.192.1 ct status dnat accept',
        'iifname "nltest0" oifname "nltest0" accept',
        'iifname "nltest0" jump sent',
        'oifname "nltest0" jump received',
    ]


def test_guests_leave_with_ipv6_addresses_of_their_subnet_only() -> None:
    network = msgspec.structs.replace(make_network(), cidr6="fd00:1::/64")
    assert 'iifname "nltest0" oifname "nlup" ip6 saddr != fd00:1::/64 drop' in chain(
        firewall.ruleset(network, Routing()), "forward"
    )


def test_ports_of_the_operator_lead_to_the_host() -> None:
    closed = of_project()
    text = firewall.ruleset(closed, firewall.default_routing(closed), [8774, 80])
    assert chain(text, "prerouting") == [
        'iifname "nltest0" fib daddr type local tcp dport { 80, 8774 } dnat ip to 169.254.192.1'
    ]
    assert chain(text, "postrouting") == ['ip saddr 10.76.0.0/24 oifname "nlup" ct status dnat masquerade']
    assert chain(text, "received") == [OF_HOST, REFUSED], "replies return, although the network has no way out"


@pytest.mark.parametrize(
    ("network", "routing", "sent", "received"),
    [
        (of_project(), Routing(external=False), [REFUSED], [OF_HOST, REFUSED]),
        (of_project(), Routing(), [OUT, REFUSED], [*REPLIES, OF_HOST, REFUSED]),
        (make_network(), Routing(), [OUT, REFUSED], [*REPLIES, IN, OF_HOST, REFUSED]),
        (of_project(), Routing(snat=False), [OUT, REFUSED], [*REPLIES, IN, OF_HOST, REFUSED]),
        (of_project(), Routing(external=False, snat=False), [REFUSED], [OF_HOST, REFUSED]),
        (
            of_project(),
            Routing(("br1", "br2"), external=False),
            ['oifname { "br1", "br2" } accept', REFUSED],
            ['iifname { "br1", "br2" } accept', OF_HOST, REFUSED],
        ),
    ],
)
def test_network_reaches_what_its_router_connects(
    network: Network, routing: Routing, sent: list[str], received: list[str]
) -> None:
    text = firewall.ruleset(network, routing)
    assert (chain(text, "sent"), chain(text, "received")) == (sent, received)


def test_versions_that_a_router_connects_differently_have_rules_of_their_own() -> None:
    network = of_project(cidr6="fd00:76::/64")
    text = firewall.ruleset(network, Routing(("br1",), connected6=(), only=4))
    assert chain(text, "sent") == [
        'meta nfproto ipv4 oifname { "br1" } accept',
        f"meta nfproto ipv4 {OUT}",
        REFUSED,
    ]
    assert chain(text, "received")[0] == 'meta nfproto ipv4 iifname { "br1" } accept'
    assert not any("ipv6" in line for line in chain(text, "received"))
    assert chain(text, "postrouting") == ['ip saddr 10.76.0.0/24 oifname "nlup" masquerade']


@pytest.mark.parametrize(
    ("routing", "versions"),
    [(Routing(), ["ip", "ip6"]), (Routing(snat=False), []), (Routing(external=False), []), (Routing(only=6), ["ip6"])],
)
def test_guests_show_the_address_of_the_link_outside(routing: Routing, versions: list[str]) -> None:
    ranges = {"ip": "10.76.0.0/24", "ip6": "fd00:76::/64"}
    text = firewall.ruleset(make_network(cidr6=ranges["ip6"]), routing)
    assert chain(text, "postrouting") == [
        f'{version} saddr {ranges[version]} oifname "nlup" masquerade' for version in versions
    ]


@pytest.mark.parametrize(("mode", "opened"), [(ipv6.SLAAC, False), (ipv6.STATELESS, True), (ipv6.STATEFUL, True)])
def test_dhcpv6_is_open_where_the_realm_answers_it(mode: str, opened: bool) -> None:
    subnet = Subnet6(ra_mode=mode, address_mode=mode, enable_dhcp=True)
    rules = chain(firewall.ruleset(make_network(cidr6="fd00:76::/64", subnet6=subnet), Routing()), "input")
    assert ("meta nfproto ipv6 udp dport 547 accept" in rules) is opened
    assert "ip6 saddr != { fd00:76::/64, fe80::/10, ::/128 } drop" in rules


@pytest.mark.parametrize("bridge", ['br" accept', "b" * 16, ""])
def test_invalid_bridge_gets_no_table(bridge: str) -> None:
    network = make_network(bridge=bridge, id='x" accept' if not bridge else "net-1")
    with pytest.raises(ValueError, match="is not the name of an interface"):
        firewall.ruleset(network, Routing())


@pytest.mark.parametrize(
    ("changes", "external"),
    [({}, True), ({"gateway": None}, False), ({"needs_router": True}, False)],
)
def test_network_without_a_router_has_its_implicit_way_out(changes: dict[str, Any], external: bool) -> None:
    assert firewall.default_routing(make_network(**changes)) == Routing((), external)


def test_router_connects_its_networks_for_their_versions() -> None:
    one, two, three = (make_network(id=f"net-{i}", bridge=f"br{i}", cidr6=f"fd0{i}::/64") for i in (1, 2, 3))
    router = HostRouter(id="r", networks=[one, two, three], external=True, only={"net-2": 4, "net-3": 6})
    found = firewall.routings([router])
    assert found["net-1"] == Routing(("br2",), True, connected6=("br3",))
    assert found["net-2"] == Routing(("br1",), True, connected6=(), only=4)
    assert found["net-3"] == Routing((), True, connected6=("br1",), only=6)


def test_network_has_its_own_table() -> None:
    found = {names.network_table(network_id) for network_id in ("net-1", "net-2", "5f3f3c1e-64a4")}
    assert len(found) == 3
    assert all(re.fullmatch(r"[A-Za-z0-9_]+", name) for name in found)


def test_realm_accepts_only_replies_and_neighbours_through_its_uplink() -> None:
    assert chain(firewall.REALM_RULES, "input") == [
        'iifname "nlup" icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept',
        'iifname "nlup" ct state != { established, related } drop',
    ]


# --- the host's table


def test_realms_reach_the_name_server_ping_and_ports_of_the_operator_on_the_host() -> None:
    assert chain(firewall.host_ruleset("t", [], {}, [8774, 80]), "input") == [
        "iifname != @uplinks accept",
        "ct state established,related accept",
        "ip daddr 169.254.192.1 meta l4proto { tcp, udp } th dport 9053 accept",
        "meta l4proto { icmp, ipv6-icmp } accept",
        "tcp dport { 80, 8774 } accept",
        "reject",
    ]
    assert "tcp dport { 80" not in firewall.host_ruleset("t", [], {}, [])


def test_host_forwards_links_published_ranges_and_replies_only() -> None:
    assert chain(firewall.host_ruleset("t", [], {}, []), "forward") == [
        "ct direction reply accept",
        "iifname @uplinks ip saddr != 169.254.192.0/18 ip saddr != @open4 drop",
        "iifname @uplinks ip6 saddr != fd6e:6f76:616c::/112 ip6 saddr != @open6 drop",
        "oifname @uplinks ip daddr 169.254.192.0/18 ct status ! dnat drop",
        "oifname @uplinks ip6 daddr fd6e:6f76:616c::/112 drop",
        "oifname @uplinks ip daddr @closed4 drop",
        "oifname @uplinks ip6 daddr @closed6 drop",
    ]


def test_ranges_with_their_own_addresses_are_open_and_those_of_the_operator_closed() -> None:
    published = [
        Published(ipaddress.ip_network(cidr), is_open)
        for cidr, is_open in (("10.2.0.0/24", True), ("10.1.0.0/24", False), ("fd02::/64", True), ("fd01::/64", False))
    ]
    text = firewall.host_ruleset("t", published, {"br2": "nlu2", "br1": "nlu1"}, [])
    for name, kind, cidr in (
        ("open4", "ipv4_addr", "10.2.0.0/24"),
        ("closed4", "ipv4_addr", "10.1.0.0/24"),
        ("open6", "ipv6_addr", "fd02::/64"),
        ("closed6", "ipv6_addr", "fd01::/64"),
    ):
        assert f"set {name} {{ type {kind}; flags interval; auto-merge; elements = {{ {cidr} }}; }}" in text
    assert 'set bridges { type ifname; elements = { "br1", "br2" }; }' in text
    assert 'set uplinks { type ifname; elements = { "nlu1", "nlu2" }; }' in text
    assert "set bridges { type ifname; }" in firewall.host_ruleset("t", [], {}, [])


def test_no_rule_of_the_host_translates_packets_on_bridges() -> None:
    """Tables of the host see them, and another program's rule may come before ours."""
    text = firewall.host_ruleset("t", [], {"br1": "nlu1"}, [])
    assert chain(text, "untranslated_in") == [
        "iifname @bridges meta nfproto ipv4 dnat ip to ip daddr",
        "iifname @bridges meta nfproto ipv6 dnat ip6 to ip6 daddr",
    ]
    assert chain(text, "untranslated_out") == [
        "oifname @bridges meta nfproto ipv4 snat ip to ip saddr",
        "oifname @bridges meta nfproto ipv6 snat ip6 to ip6 saddr",
    ]
    assert chain(text, "postrouting") == [
        'ip saddr 169.254.192.0/18 ip saddr != 169.254.192.1 oifname != "lo" masquerade',
        'ip6 saddr fd6e:6f76:616c::/112 ip6 saddr != fd6e:6f76:616c::1 oifname != "lo" masquerade',
    ]
