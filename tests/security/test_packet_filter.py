"""Texts of users, of the conductor and of files never become words of nft.

Each table is made from arbitrary values, in all fields that hold text, and loaded by the real nft in a private network
namespace. nft must accept it, and it must be the only table.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nova_lite.base import exceptions
from nova_lite.objects import VIF, FixedIp, HostRouter, Network, PortFilters, SecurityGroup, SecurityGroupRule
from nova_lite.objects.security_group import NetworkMembers
from nova_lite.virt.libvirt.net import (
    anti_spoofing,
    firewall,
    floating_ips,
    links,
    migration_peers,
    names,
    nft,
    security_groups,
    tunnels,
)

SETTINGS = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

#: Texts that end a statement, a block, a string or a comment of nft, and texts that a parser may take for an address.
HOSTILE = (
    "fe80::%lo/64",
    "fe80::1%lo",
    "::%0/0",
    "fe80::%eth0 accept",
    "10.0.0.0/8 accept",
    "0.0.0.0/0; accept",
    "} table inet other { }",
    '" accept comment "',
    "\n flush ruleset\n",
    "x # y",
    "\\",
    "@members",
    "$a",
    "{ }",
    "",
    " ",
    "0",
    "lo",
    "::",
    "::/0",
    "127.0.0.1",
    "10.0.0.0/255.0.255.0",
    "\u0661.1.1.1",
    "1" * 300,
    "\x00",
    "\ud800",
)
TEXT = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=20))
ADDRESS = st.one_of(st.ip_addresses().map(str), TEXT)
PREFIX = st.one_of(st.ip_addresses().flatmap(lambda item: st.integers(0, 32).map(lambda bits: f"{item}/{bits}")), TEXT)
MAC = st.one_of(st.binary(min_size=6, max_size=6).map(lambda octets: octets.hex(":")), TEXT)
BRIDGE = st.one_of(st.sampled_from(["br0", "nlbr12345678", "br-int"]), TEXT)
ID = st.one_of(st.uuids().map(str), st.sampled_from(["one", "two"]), TEXT)
NUMBER = st.one_of(st.none(), st.sampled_from([-1, 0, 1, 8, 255, 256, 65535, 65536, 2**40]), st.integers())

RULES = st.builds(
    SecurityGroupRule,
    id=ID,
    security_group_id=ID,
    direction=st.one_of(st.sampled_from(["ingress", "egress"]), TEXT),
    ethertype=st.one_of(st.sampled_from(["IPv4", "IPv6"]), TEXT),
    protocol=st.one_of(st.none(), st.sampled_from(["tcp", "udp", "icmp"]), TEXT),
    port_range_min=NUMBER,
    port_range_max=NUMBER,
    remote_ip_prefix=st.one_of(st.none(), PREFIX),
    remote_group_id=st.one_of(st.none(), ID),
)
NETWORKS = st.builds(
    Network,
    id=ID,
    name=TEXT,
    cidr=st.one_of(st.just("10.0.0.0/24"), PREFIX),
    cidr6=st.one_of(st.sampled_from(["", "fd00::/64"]), PREFIX),
    bridge=BRIDGE,
)
NETWORK = Network(id="n", name="n", cidr="10.0.0.0/24", bridge="br0")
VIFS = st.builds(
    VIF,
    id=ID,
    mac_address=MAC,
    address=ADDRESS,
    network=NETWORKS,
    version=st.sampled_from([4, 6]),
    more=st.lists(st.builds(FixedIp, address=ADDRESS, subnet_id=ID, cidr=PREFIX), max_size=2),
    port_security_enabled=st.just(True),
)


@st.composite
def filtered(draw: st.DrawFn) -> tuple[dict[str, list[VIF]], PortFilters]:
    """Return interfaces by instance, and filters that mostly refer to them and to each other."""
    groups = draw(
        st.lists(
            st.builds(
                SecurityGroup,
                id=ID,
                name=TEXT,
                rules=st.lists(RULES, max_size=4),
                members=st.lists(ADDRESS, max_size=3),
            ),
            max_size=3,
        )
    )
    ports = draw(st.dictionaries(ID, st.lists(VIFS, max_size=2), max_size=3))
    networks = [vif.network for mine in ports.values() for vif in mine]
    for group in groups:
        if draw(st.booleans()):
            lists = {network.id: NetworkMembers(members=draw(st.lists(ADDRESS, max_size=3))) for network in networks}
            group.members_by_network = lists
    ids = st.lists(st.sampled_from([group.id for group in groups]) if groups else ID, max_size=3)
    vifs = [vif.id for mine in ports.values() for vif in mine]
    return ports, PortFilters(
        groups={group.id: group for group in groups},
        instances={instance: draw(ids) for instance in ports},
        ports={port: draw(ids) for port in vifs},
        floating={port: draw(ADDRESS) for port in vifs},
        routers=[HostRouter(id=draw(ID), networks=networks[:2], only={network.id: 4 for network in networks[:1]})],
    )


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    if os.geteuid() or not all(map(shutil.which, ("ip", "nft"))):
        pytest.skip("needs root, ip and nft")
    name = f"nlt{uuid.uuid4().hex[:6]}-nft"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        yield name
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=False)


def load(namespace: str, text: str, *tables: str) -> None:
    """Load the rules into an empty ruleset, and check that it has these tables only."""
    enter = ["ip", "netns", "exec", namespace, "nft"]
    done = subprocess.run([*enter, "-f", "-"], input="flush ruleset\n" + text, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stderr}\n{text}"
    found = subprocess.run([*enter, "list", "tables"], capture_output=True, text=True, check=True).stdout
    assert sorted(line.removeprefix("table ") for line in found.splitlines()) == sorted(tables)


def listing(namespace: str) -> str:
    command = ["ip", "netns", "exec", namespace, "nft", "list", "ruleset"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@SETTINGS
@given(filtered())
def test_filters_of_any_text_are_loaded(namespace: str, values: tuple[dict[str, list[VIF]], PortFilters]) -> None:
    ports, filters = values
    vifs = {vif.id: vif for mine in ports.values() for vif in mine}
    floating = [(address, vifs[port]) for port, address in filters.floating.items() if port in vifs]
    leads = dict(nft.usable("floating address", floating, floating_ips.lead, lambda item: item[0]))
    table = names.ports_table("host")
    ways = [
        floating_ips.Lead(address, links.address(number), floating_ips._fixed(vif))
        for number, (address, vif) in enumerate(leads.items(), 2)
    ]
    text = security_groups.ruleset(table, ports, filters) + floating_ips.ruleset(table, ways, {})
    text += floating_ips.realm_ruleset("realm", ways)
    loaded = [f"inet {table}"] if any(ports.values()) or ways else []
    load(namespace, text, *loaded, *(["inet realm"] if ways else []))


@SETTINGS
@given(st.lists(ADDRESS, max_size=6), st.lists(ADDRESS, max_size=6), ID)
def test_members_of_any_text_are_added_and_removed(
    namespace: str, before: list[str], after: list[str], group_id: str
) -> None:
    vif = VIF(id="p", mac_address="fa:16:3e:00:00:01", address="10.0.0.2", network=NETWORK, port_security_enabled=True)
    rules = [
        SecurityGroupRule(id=kind, security_group_id=group_id, ethertype=kind, remote_group_id=group_id)
        for kind in ("IPv4", "IPv6")
    ]

    def filters(members: list[str]) -> PortFilters:
        known = {NETWORK.id: NetworkMembers(members=members)}
        group = SecurityGroup(id=group_id, name="g", rules=rules, members_by_network=known)
        return PortFilters(groups={group_id: group}, instances={"i": [group_id]})

    rules = [
        SecurityGroupRule(id=kind, security_group_id=group_id, ethertype=kind, remote_group_id=group_id)
        for kind in ("IPv4", "IPv6")
    ]
    old, new, ports = filters(before), filters(after), {"i": [vif]}
    whole = security_groups.ruleset("t", ports, new)
    changes = security_groups.member_changes("t", ports, old, new)
    changed = whole if changes is None else security_groups.ruleset("t", ports, old) + changes
    load(namespace, whole, "inet t")
    listed = listing(namespace)
    load(namespace, changed, "inet t")
    assert listing(namespace) == listed


@SETTINGS
@given(st.lists(VIFS, max_size=4), st.lists(VIFS, max_size=4), st.booleans())
def test_guards_of_any_text_are_loaded_and_changed(
    namespace: str, before: list[VIF], after: list[VIF], served: bool
) -> None:
    networks = {vif.network.id for vif in before} if served else set()
    old, new = anti_spoofing.guards(before, networks), anti_spoofing.guards(after, networks)
    table = names.spoofing_table("host")
    expected = [f"bridge {table}"] if new else []
    load(namespace, anti_spoofing.whole(table, new), *expected)
    if old:
        load(namespace, anti_spoofing.whole(table, old) + anti_spoofing.changes(table, old, new), *expected)


@SETTINGS
@given(st.lists(NETWORKS, max_size=3), st.booleans(), st.lists(st.integers(1, 65535), max_size=3))
def test_networks_of_any_text_are_loaded(
    namespace: str, networks: list[Network], metadata: bool, host_ports: list[int]
) -> None:
    def rules(network: Network) -> tuple[str, str]:
        routing = firewall.default_routing(network)
        return names.network_table(network.id), firewall.ruleset(network, routing, host_ports, metadata)

    made = dict(nft.usable("network", networks, rules, lambda network: network.id))
    load(namespace, "".join(made.values()), *(f"inet {table}" for table in made))


@SETTINGS
@given(st.dictionaries(ID, st.lists(ADDRESS, max_size=4), max_size=3), st.integers(1, 65535))
def test_peers_of_any_text_are_loaded(namespace: str, peers: dict[str, list[str]], port: int) -> None:
    valid = sorted({peer for addresses in peers.values() for peer in tunnels.valid_peers(addresses)})
    load(namespace, tunnels.ruleset("t", port, valid, True), "bridge t", "inet t")


@SETTINGS
@given(ID, ADDRESS, st.lists(ADDRESS, max_size=4))
def test_sources_of_migrations_of_any_text_are_loaded(namespace: str, host: str, own: str, peers: list[str]) -> None:
    table = nft.table("nova_lite_migrations_", host)
    load(namespace, migration_peers.ruleset(table, own, peers), f"inet {table}")


@given(st.one_of(st.text(), TEXT))
def test_name_of_a_host_is_a_plain_table(host: str) -> None:
    name = names.ports_table(host)
    assert name.isascii() and name.replace("_", "a").isalnum() and len(name) < 256


def test_former_text_of_a_zone_broke_the_whole_table(namespace: str) -> None:
    """Control: this harness notices a text that reaches nft."""
    text = "table inet t {\n  chain c {\n    ip6 saddr fe80::%lo/64 accept\n  }\n}\n"
    with pytest.raises(AssertionError, match="fe80::%lo"):
        load(namespace, text, "inet t")


def test_interface_of_any_text_is_refused_when_it_is_plugged() -> None:
    bad: dict[str, Any] = {"id": "p", "mac_address": "fa:16:3e:00:00:01", "address": "fe80::1%lo"}
    with pytest.raises(exceptions.VirtDriverError, match="interface p cannot be filtered"):
        security_groups.check_filterable(VIF(**bad, network=Network(id="n", name="n", cidr="10.0.0.0/24", bridge="b")))
