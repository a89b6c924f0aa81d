"""The way of a packet: what each part of a host does to it. `test_packet_traces` compares it with real packets."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from nova_lite.base import ip
from nova_lite.network.trace import frames, walk
from nova_lite.network.trace.hosts import Host
from nova_lite.network.trace.packets import (
    ANTI_SPOOFING,
    GATEWAY,
    HOST,
    METADATA,
    OUTSIDE,
    PORT,
    ROUTER,
    RULE,
    TUNNEL,
    Packet,
    Trace,
)
from nova_lite.objects import VIF, HostRouter, Network, PortFilters, SecurityGroup, SecurityGroupRule, StaticRoute, ipv6
from nova_lite.objects.security_group import NetworkMembers, outward_rules
from nova_lite.virt.libvirt.net import links
from tests.support import topologies

GROUP = "11111111-2222-3333-4444-555555555555"
A = Network(id="a", name="a", cidr="10.1.0.0/24", gateway="10.1.0.1", vni=101, project_id="p", needs_router=True)
B = Network(id="b", name="b", cidr="10.2.0.0/24", gateway="10.2.0.1", vni=102, project_id="p", needs_router=True)
ALONE = msgspec.structs.replace(B, vni=None)
FLOATING = "198.51.100.7"


def vif(network: Network, number: int, **values: Any) -> VIF:
    """Return an interface whose id is its network's with the number."""
    defaults = {
        "id": f"{network.id}{number}",
        "mac_address": f"fa:16:3e:00:00:{number:02x}",
        "address": network.cidr.replace("0/24", str(number)),
        "port_security_enabled": True,
    }
    return VIF(network=network, **(defaults | values))


def rule(**values: Any) -> SecurityGroupRule:
    return SecurityGroupRule(id="the-rule", security_group_id=GROUP, **values)


def filters(*rules: SecurityGroupRule, router: HostRouter | None = None, **values: Any) -> PortFilters:
    """Return filters whose only group has these rules. All ports are in it."""
    group = SecurityGroup(id=GROUP, name="web", rules=[*outward_rules(GROUP), *rules])
    members = {"a": NetworkMembers(members=["10.1.0.2", "10.1.0.3"]), "b": NetworkMembers(members=["10.2.0.2"])}
    group.members_by_network = members
    instances = {f"i{name}": [GROUP] for name in ("a2", "a3", "b2")}
    defaults: dict[str, Any] = {"instances": instances, "routers": [router] if router is not None else []}
    return PortFilters(groups={GROUP: group}, **(defaults | values))


def host(name: str, found: PortFilters, *vifs: VIF) -> Host:
    number = name[1:]
    return Host(name, found, {f"i{item.id}": [item] for item in vifs}, f"10.8.0.{number}", [f"192.0.2.{number}"])


def sent(
    source: str, target: str, *hosts: Host, port: int | None = None, spoofed: str | None = None, **values: Any
) -> Trace:
    """Trace a ping, or a TCP connection, of a port of the first host that has it."""
    cloud = walk.Cloud(hosts, pools=[ip.parse_network("198.51.100.0/24")], **values)
    at, sender = next((at, item) for at in hosts for item in at.interfaces if item.id == source)
    packet = Packet(ip.parse(spoofed or sender.vif.address), ip.parse(target), "tcp" if port else "icmp", port)
    return walk.from_port(cloud, at, sender, packet)


def from_outside(target: str, *hosts: Host, port: int | None = None) -> Trace:
    packet = Packet(ip.parse("203.0.113.5"), ip.parse(target), "tcp" if port else "icmp", port)
    return walk.from_outside(walk.Cloud(hosts, pools=[ip.parse_network("198.51.100.0/24")]), packet)


def kinds(trace: Trace) -> list[str]:
    return [hop.kind for hop in trace.hops]


def router(*networks: Network, **values: Any) -> HostRouter:
    neighbours = {"b": {"10.2.0.2": "fa:16:3e:00:00:02"}}
    return HostRouter(id="r", networks=list(networks), neighbours=neighbours, **values)


TO_A3 = "10.1.0.3"


def test_packet_on_one_network_is_accepted_by_a_rule_of_each_end() -> None:
    trace = sent("a2", TO_A3, host("h1", filters(rule(protocol="tcp")), vif(A, 2), vif(A, 3)), port=80)
    assert kinds(trace) == ["port", "anti-spoofing", "rule", "rule", "port"]
    assert (trace.arrives, trace.arrived_at) == (True, "a3")
    assert [(hop.id, hop.group_id) for hop in trace.hops[3:]] == [("the-rule", GROUP), ("a3", None)]


@pytest.mark.parametrize(
    ("accepted", "port"),
    [
        ({"protocol": "udp"}, 80),
        ({"protocol": "tcp", "port_range_min": 81, "port_range_max": 90}, 80),
        ({"protocol": "icmp", "port_range_min": 0}, None),
        ({"ethertype": "IPv6"}, 80),
        ({"remote_ip_prefix": "10.1.0.3/32"}, 80),
        ({"remote_group_id": "unknown"}, 80),
        ({"direction": "egress"}, 80),
    ],
)
def test_rule_that_does_not_match_accepts_nothing(accepted: dict[str, Any], port: int | None) -> None:
    trace = sent("a2", TO_A3, host("h1", filters(rule(**accepted)), vif(A, 2), vif(A, 3)), port=port)
    assert not trace.arrives
    assert trace.hops[-1].text == "No ingress rule of the groups of port a3 accepts it (groups: web)."


@pytest.mark.parametrize(
    "accepted",
    [
        {},
        {"protocol": "icmp", "port_range_min": 8, "port_range_max": 0},
        {"protocol": "1"},
        {"remote_ip_prefix": "10.1.0.0/16"},
        {"remote_group_id": GROUP},
    ],
)
def test_rule_that_matches_a_ping_accepts_it(accepted: dict[str, Any]) -> None:
    assert sent("a2", TO_A3, host("h1", filters(rule(**accepted)), vif(A, 2), vif(A, 3))).arrives


def test_member_of_a_group_in_another_realm_is_no_member() -> None:
    """A router makes the networks one realm. Both have members."""
    accepted = rule(remote_group_id=GROUP)
    apart = host("h1", filters(accepted), vif(A, 2), vif(ALONE, 2))
    assert apart.members(GROUP, A, 4) == {ip.parse("10.1.0.2"), ip.parse(TO_A3)}
    joined = host("h1", filters(accepted, router=router(A, ALONE)), vif(A, 2), vif(ALONE, 2))
    assert len(joined.members(GROUP, A, 4)) == 3
    assert sent("a2", "10.2.0.2", joined).arrives


def test_source_that_is_not_the_ports_is_stopped_unless_a_pair_or_no_port_security_allows_it() -> None:
    own = vif(A, 2)
    pair = vif(A, 2, address_pairs=[{"ip_address": "10.1.0.0/25", "mac_address": "fa:16:3e:00:00:02"}])
    free = vif(A, 2, unguarded=True, port_security_enabled=False)
    found = [
        sent("a2", TO_A3, host("h1", filters(rule()), item, vif(A, 3)), spoofed="10.1.0.77")
        for item in (own, pair, free)
    ]
    assert [trace.arrives for trace in found] == [False, True, True]
    assert kinds(found[0])[-1] == "anti-spoofing"
    gateway = sent("a2", TO_A3, host("h1", filters(rule()), pair, vif(A, 3)), spoofed="10.1.0.1")
    assert kinds(gateway)[-1] == "anti-spoofing"


def test_port_that_is_down_sends_and_gets_nothing() -> None:
    both = host("h1", filters(rule()), vif(A, 2), vif(A, 3))
    for down in ("a2", "a3"):
        trace = sent("a2", TO_A3, both, down={down})
        assert (trace.arrives, trace.hops[-1].id) == (False, down)
        assert "admin_state_up" in trace.hops[-1].text


def test_settings_that_the_host_got_later_hold() -> None:
    later = filters(
        rule(), unfiltered=["a2"], pairs={"a3": [{"ip_address": "10.1.0.9", "mac_address": "fa:16:3e:00:00:03"}]}
    )
    trace = sent("a2", "10.1.0.9", host("h1", later, vif(A, 2), vif(A, 3)), spoofed="10.1.0.77")
    assert trace.arrived_at == "a3"


def test_router_connects_networks_of_one_host() -> None:
    trace = sent("a2", "10.2.0.2", host("h1", filters(rule(), router=router(A, ALONE)), vif(A, 2), vif(ALONE, 2)))
    assert trace.arrived_at == "b2"
    assert [(hop.kind, hop.id) for hop in trace.hops if hop.kind == "router"] == [("router", "r")]


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (None, "Network a is on no router that is up, and has no way out."),
        (router(A), "Router r has no gateway, no network and no route for 10.2.0.2."),
        (router(A, ALONE, only={"b": 6}), "Router r does not connect a and b for IPv4."),
    ],
)
def test_missing_router_network_or_version_is_named(found: HostRouter | None, text: str) -> None:
    trace = sent("a2", "10.2.0.2", host("h1", filters(rule(), router=found), vif(A, 2), vif(ALONE, 2)))
    assert (trace.arrives, trace.hops[-1].text) == (False, text)


def test_network_without_gateway_gives_its_guests_no_route() -> None:
    bare = msgspec.structs.replace(A, gateway=None, host_address="10.1.0.1")
    trace = sent("a2", "10.2.0.2", host("h1", filters(rule()), vif(bare, 2)))
    assert trace.hops[-1].text == "The guest has no route: network a has no gateway."


def spanning(peers1: list[str], peers2: list[str], found: HostRouter | None = None) -> tuple[Host, Host]:
    both = found or router(A, B)
    one = host("h1", filters(rule(), router=both, peers={"a": peers1, "b": peers1}), vif(A, 2))
    return one, host("h2", filters(rule(), router=both, peers={"a": peers2, "b": peers2}), vif(A, 3), vif(B, 2))


@pytest.mark.parametrize("target", [TO_A3, "10.2.0.2"])
def test_tunnel_leads_to_a_guest_of_another_host(target: str) -> None:
    trace = sent("a2", target, *spanning(["10.8.0.2"], ["10.8.0.1"]))
    assert trace.arrives
    (tunnel,) = (hop for hop in trace.hops if hop.kind == "tunnel")
    assert tunnel.text.endswith("leads to 10.8.0.2.")


def test_missing_tunnel_is_named_with_the_host_where_the_packet_stops() -> None:
    here = sent("a2", TO_A3, *spanning([], ["10.8.0.1"]))
    assert here.hops[-1].text == "It stops at host h1: no tunnel to h2 for network a."
    there = sent("a2", TO_A3, *spanning(["10.8.0.2"], []))
    assert there.hops[-1].text == "It stops at host h2: no tunnel from h1."


def test_router_does_not_reach_a_guest_whose_mac_address_it_lacks() -> None:
    unknown = HostRouter(id="r", networks=[A, B])
    trace = sent("a2", "10.2.0.2", *spanning(["10.8.0.2"], ["10.8.0.1"], unknown))
    assert trace.hops[-1].text == "Router r does not know the MAC address of 10.2.0.2, which is on host h2."


def test_network_without_vni_does_not_reach_other_hosts() -> None:
    alone = msgspec.structs.replace(A, vni=None)
    trace = sent("a2", TO_A3, host("h1", filters(rule()), vif(alone, 2)), host("h2", filters(rule()), vif(alone, 3)))
    assert trace.hops[-1].text == "Network a has no VNI, so its guests on h2 are not reached from h1."


def test_guest_on_a_router_with_gateway_leaves_with_its_hosts_address() -> None:
    one = host("h1", filters(router=router(A, external=True)), vif(A, 2))
    trace = sent("a2", "203.0.113.5", one)
    assert trace.arrived_at == OUTSIDE
    assert kinds(trace)[-3:] == ["router", "nat", "outside"]
    assert sent("a2", "192.0.2.1", one).arrived_at == HOST
    assert not sent("a2", "192.0.2.1", one, port=22).arrives
    pair = vif(A, 2, address_pairs=[{"ip_address": "10.77.0.0/16", "mac_address": "fa:16:3e:00:00:02"}])
    stopped = sent("a2", "203.0.113.5", host("h1", filters(router=router(A, external=True)), pair), spoofed="10.77.0.1")
    assert stopped.hops[-1].text.startswith("10.77.0.1 is not in the subnet of network")


def test_floating_address_is_translated_both_ways() -> None:
    both = router(A, ALONE, external=True)
    accepted = rule(remote_ip_prefix="203.0.113.0/24")
    one = host("h1", filters(accepted, router=both, floating={"b2": FLOATING}), vif(A, 2), vif(ALONE, 2))
    assert from_outside(FLOATING, one).arrived_at == "b2"
    assert kinds(from_outside(FLOATING, one)) == ["outside", "nat", "router", "rule", "port"]
    assert not sent("a2", FLOATING, one).arrives, "its source is then an address of the host"
    of_host = rule(remote_ip_prefix=f"{walk.HOST_ON_LINKS[4]}/32")
    one = host("h1", filters(of_host, router=both, floating={"b2": FLOATING}), vif(A, 2), vif(ALONE, 2))
    assert sent("a2", FLOATING, one).arrives
    shut = host("h1", filters(rule(), router=router(ALONE), floating={"b2": FLOATING}), vif(ALONE, 2))
    assert from_outside(FLOATING, shut).hops[-1].text.startswith("Network b has a router without a gateway")


def test_floating_address_on_another_host_is_reached_through_the_outside() -> None:
    one = host("h1", filters(router=router(A, external=True), floating={"a2": "198.51.100.9"}), vif(A, 2))
    accepted = rule(remote_ip_prefix="198.51.100.9/32")
    two = host("h2", filters(accepted, router=router(B, external=True), floating={"b2": FLOATING}), vif(B, 2))
    assert sent("a2", FLOATING, one, two).arrived_at == "b2"
    assert sent("a2", "198.51.100.99", one, two).hops[-1].text == (
        "Floating address 198.51.100.99 leads to no port on a host."
    )


def test_others_reach_own_addresses_only_without_snat() -> None:
    for snat in (True, False):
        one = host("h1", filters(rule(), router=router(A, external=True, snat=snat)), vif(A, 2))
        trace = from_outside("10.1.0.2", one)
        assert trace.arrives is not snat
        assert (trace.hops[-1].text == "No host shows 10.1.0.2 outside of the cloud.") is snat
    operators = msgspec.structs.replace(A, project_id=None, needs_router=None)
    trace = from_outside("10.1.0.2", host("h1", filters(rule()), vif(operators, 2)))
    assert trace.hops[-1].text == "Network a has SNAT, so others reach its guests at floating addresses only."


def test_realm_answers_pings_dns_and_metadata_of_its_subnet() -> None:
    one = host("h1", filters(rule()), vif(A, 2))
    assert sent("a2", "10.1.0.1", one).arrived_at == GATEWAY
    assert sent("a2", "10.1.0.1", one, port=53).arrived_at == GATEWAY
    assert not sent("a2", "10.1.0.1", one, port=80).arrives
    assert sent("a2", "169.254.169.254", one, port=80).arrived_at == METADATA
    assert not sent("a2", "169.254.169.254", one, port=80, metadata=False).arrives
    assert "link-local" in sent("a2", "169.254.7.7", one).hops[-1].text
    free = vif(A, 2, unguarded=True, port_security_enabled=False)
    other = host("h1", filters(rule()), free)
    assert kinds(sent("a2", "10.1.0.1", other, spoofed="10.9.0.1"))[-1] == "host"
    assert kinds(sent("a2", "169.254.169.254", other, port=80, spoofed="10.1.0.9"))[-1] == "anti-spoofing"


def test_static_route_leads_to_a_guest_that_may_get_such_packets() -> None:
    through = router(A, ALONE, routes=[StaticRoute(destination="172.30.0.0/24", nexthop="10.2.0.2")])
    for values, arrives in (({}, False), ({"unguarded": True, "port_security_enabled": False}, True)):
        one = host("h1", filters(rule(), router=through), vif(A, 2), vif(ALONE, 2, **values))
        trace = sent("a2", "172.30.0.5", one)
        assert trace.arrives is arrives
        (routed,) = (hop for hop in trace.hops if hop.kind == "router")
        assert routed.text == "Router r routes it to network b through 10.2.0.2."


def test_router_of_one_ip_version_connects_that_one() -> None:
    dual = [msgspec.structs.replace(item, cidr6=f"fd00:{item.id}::/64") for item in (A, ALONE)]
    vifs = [vif(item, 2, more=ipv6.further_addresses(item, f"fd00:{item.id}::2")) for item in dual]
    accepted = rule(ethertype="IPv6", protocol="icmp", port_range_min=128)
    for only, arrives in (({}, True), ({"a": 6}, True), ({"b": 4}, False)):
        one = host("h1", filters(accepted, router=router(*dual, only=only)), *vifs)
        trace = sent("a2", "fd00:b::2", one, spoofed="fd00:a::2")
        assert trace.arrives is arrives
    assert trace.hops[-1].text == "Router r does not connect a and b for IPv6."


def test_addresses_of_hosts_on_links_are_those_of_the_realms() -> None:
    assert {4: links.HOST, 6: links.HOST6} == walk.HOST_ON_LINKS


def test_generated_packets_end_at_each_part_and_arrive_at_each_place() -> None:
    ends, arrivals = Counter[str](), Counter[str | None]()
    for seed in range(1, 61):
        topology = topologies.generate(seed)
        cloud, _ = topologies.merged([topology])
        for sender, packet in topology.packets:
            trace = topologies.traced(cloud, topology, sender, packet)
            assert all(hop.passes for hop in trace.hops[:-1])
            assert trace.hops[-1].passes is trace.arrives
            places = {OUTSIDE, METADATA, GATEWAY, HOST, None}
            arrivals[trace.arrived_at if trace.arrived_at in places else PORT] += 1
            ends[trace.hops[-1].kind] += not trace.arrives
    assert all(ends[kind] > 3 for kind in (PORT, ANTI_SPOOFING, RULE, ROUTER, TUNNEL, HOST, OUTSIDE))
    assert arrivals[PORT] > 50 and arrivals[OUTSIDE] > 20 and arrivals[GATEWAY] and arrivals[METADATA]


@pytest.mark.parametrize("protocol", ["icmp", "tcp", "udp"])
@pytest.mark.parametrize(("source", "target"), [("10.1.0.2", "10.1.0.3"), ("fd00::2", "fd00::3")])
def test_mark_of_a_packet_is_read_again(protocol: str, source: str, target: str) -> None:
    packet = Packet(ip.parse(source), ip.parse(target), protocol, None if protocol == "icmp" else 80)
    assert frames.seen(frames.make(packet, 0x12345678, 7)) == (0x12345678, False)
