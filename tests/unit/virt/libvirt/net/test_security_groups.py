"""Port filters of a host, as rules. tests/integration/network applies them to real packets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import msgspec
import pytest

from nova_lite.base import exceptions, metrics
from nova_lite.objects import (
    VIF,
    FixedIp,
    HostForwarding,
    HostRouter,
    PortFilters,
    SecurityGroup,
    SecurityGroupRule,
    ipv6,
)
from nova_lite.objects.security_group import NetworkMembers
from nova_lite.virt.libvirt.net import conntrack_zones, floating_ips, plugging, security_groups
from nova_lite.virt.libvirt.net.group_members import Place
from nova_lite.virt.libvirt.net.links import Links
from nova_lite.virt.libvirt.net.security_groups import PortFirewall, rule_text
from tests.support.config_drives import make_conf
from tests.support.guests import make_network, make_vif

PLACE = Place("r-4", "r-6")
WEB = SecurityGroup(id="web", name="web", rules=[SecurityGroupRule(id="r", security_group_id="web")])
NETWORK_ID = make_network().id
#: End of the names of chains and sets for the network.
HERE = NETWORK_ID.replace("-", "_")


def friends(*members: str, **values: Any) -> SecurityGroup:
    """Return the group with rules about its own members, which are on one network."""
    about = [
        SecurityGroupRule(id=kind, security_group_id="web", ethertype=kind, remote_group_id="web")
        for kind in ("IPv4", "IPv6")
    ]
    known = {NETWORK_ID: NetworkMembers(members=list(members))}
    return msgspec.structs.replace(WEB, **({"rules": [*WEB.rules, *about], "members_by_network": known} | values))


def make_port(**values: Any) -> VIF:
    return msgspec.structs.replace(make_vif(), port_security_enabled=True, **values)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({}, "meta nfproto ipv4 accept"),
        ({"ethertype": "IPv6"}, "meta nfproto ipv6 accept"),
        ({"remote_ip_prefix": "0.0.0.0/0"}, "meta nfproto ipv4 accept"),
        ({"remote_ip_prefix": "10.0.0.0/8"}, "meta nfproto ipv4 ip saddr 10.0.0.0/8 accept"),
        ({"remote_ip_prefix": "10.0.0.0/8", "direction": "egress"}, "meta nfproto ipv4 ip daddr 10.0.0.0/8 accept"),
        ({"remote_group_id": "a-b"}, "meta nfproto ipv4 ip saddr @membersip_a_b_r_4 accept"),
        (
            {"remote_group_id": "a-b", "ethertype": "IPv6"},
            "meta nfproto ipv6 ip6 saddr @membersip6_a_b_r_6 accept",
        ),
        (
            {"protocol": "udp", "port_range_min": 1, "port_range_max": 9},
            "meta nfproto ipv4 udp dport 1-9 accept",
        ),
        ({"protocol": "tcp"}, "meta nfproto ipv4 meta l4proto 6 accept"),
        ({"protocol": "icmp"}, "meta nfproto ipv4 meta l4proto 1 accept"),
        (
            {"protocol": "icmp", "port_range_min": 8, "port_range_max": 0},
            "meta nfproto ipv4 meta l4proto 1 icmp type 8 icmp code 0 accept",
        ),
        (
            {"protocol": "icmp", "port_range_min": 128, "ethertype": "IPv6"},
            "meta nfproto ipv6 meta l4proto 58 icmpv6 type 128 accept",
        ),
        ({"protocol": "vrrp"}, "meta nfproto ipv4 meta l4proto 112 accept"),
        ({"protocol": "255"}, "meta nfproto ipv4 meta l4proto 255 accept"),
        ({"protocol": "ipv6-icmp", "ethertype": "IPv6"}, "meta nfproto ipv6 meta l4proto 58 accept"),
        (
            {"protocol": "132", "port_range_min": 1, "port_range_max": 9},
            "meta nfproto ipv4 sctp dport 1-9 accept",
        ),
        (
            {"protocol": "udplite", "port_range_min": 1, "port_range_max": 9},
            "meta nfproto ipv4 udplite dport 1-9 accept",
        ),
        (
            {"protocol": "dccp", "port_range_min": 1, "port_range_max": 9},
            "meta nfproto ipv4 dccp dport 1-9 accept",
        ),
    ],
)
def test_rule_texts(values: dict[str, Any], text: str) -> None:
    assert rule_text(SecurityGroupRule(id="r", security_group_id="g", **values), PLACE) == text


def test_stateless_port_has_no_rule_about_connections() -> None:
    """Packets of the stateful port beside it are tracked. One stateless group is enough."""
    one, two = make_port(id="one"), make_port(id="two", address="10.0.0.9")
    other = msgspec.structs.replace(WEB, id="other", stateful=False)
    filters = PortFilters(groups={"web": WEB, "other": other}, instances={"i": ["web", "other"], "j": ["web"]})
    text = security_groups.ruleset("t", {"i": [one], "j": [two]}, filters)
    chains = dict(re.findall(r"chain (\w+) {(.*?)}$", text, re.DOTALL | re.MULTILINE))
    for name in ("port_in", "port_out"):
        assert "ct state" not in chains[f"{name}_one"] and "ct state" in chains[f"{name}_two"]
    bridge = f'"{one.network.bridge}"'
    assert chains["untracked"].split("\n    ")[2:] == [
        f"iifname . ip saddr {{ {bridge} . 10.0.0.9 }} accept",
        f"iifname . ip daddr {{ {bridge} . 10.0.0.9 }} accept",
        f"iifname . ip saddr {{ {bridge} . {one.address} }} notrack",
        f"iifname . ip daddr {{ {bridge} . {one.address} }} notrack\n  ",
    ]
    stateful = PortFilters(groups={"web": WEB}, instances={"i": ["web"]})
    assert "untracked" not in security_groups.ruleset("t", {"i": [one], "j": [two]}, stateful)
    pair = {"ip_address": "10.0.0.0/24", "mac_address": two.mac_address}
    paired = msgspec.structs.replace(two, address_pairs=[pair])
    assert "untracked" not in security_groups.ruleset("t", {"i": [one], "j": [paired]}, filters)


class Nft:
    """Replaces nft."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.complaint = ""

    def __call__(self, text: str, namespace: str | None = None) -> str:
        self.texts.append(text)
        return self.complaint


@pytest.fixture
def nft(monkeypatch: pytest.MonkeyPatch) -> Nft:
    nft = Nft()
    monkeypatch.setattr(security_groups.nft, "run", nft)
    monkeypatch.setattr(security_groups, "show_bridged_packets", lambda: "")
    return nft


def make(directory: Path, enabled: bool = True) -> PortFirewall:
    conf = make_conf()
    conf.set_override("security_groups", enabled, "network")
    return PortFirewall(conf, "host-a", str(directory), Links(str(directory / "links")))


def test_port_is_blocked_until_its_filters_are_set(tmp_path: Path, nft: Nft) -> None:
    port = make_port()
    firewall = make(tmp_path)
    firewall.prepare({})
    firewall.plug("i", [port])
    assert f" . {port.address} : goto port_in_" in nft.texts[-1]
    assert "jump in_web" not in nft.texts[-1]
    assert (firewall.instances(), firewall.lacks_filters()) == (["i"], True)
    firewall.set(PortFilters(groups={"web": WEB}, instances={"i": ["web"]}))
    assert "jump in_web" in nft.texts[-1]
    assert not firewall.lacks_filters()
    firewall.set(PortFilters(groups={"web": WEB}, instances={"i": ["web"]}))
    assert nft.texts[-1] == "list chain inet nova_lite_ports_host_a ingress_forward\n", "nothing has changed"
    firewall.unplug("i")
    assert port.address not in nft.texts[-1]
    assert firewall.instances() == []


def test_filters_stay_valid_after_a_restart(tmp_path: Path, nft: Nft) -> None:
    firewall = make(tmp_path)
    firewall.prepare({})
    firewall.set(PortFilters(groups={"web": WEB}, instances={"i": ["web"]}))
    assert "chain" not in nft.texts[-1], "the host has no guests"
    make(tmp_path).prepare({"i": [make_port()]})
    assert "jump in_web" in nft.texts[-1]
    (tmp_path / "_port-filters@host-a.json").write_text("{")
    again = make(tmp_path)
    again.prepare({"i": [make_port()]})
    assert "jump in_web" not in nft.texts[-1]
    assert again.lacks_filters()


def test_interfaces_without_port_security_are_not_filtered(tmp_path: Path, nft: Nft) -> None:
    """Older interfaces were created without filters. Their next start or hard reboot filters them."""
    firewall = make(tmp_path)
    firewall.prepare({"i": [make_vif()]})
    assert make_vif().address not in nft.texts[-1]
    assert (firewall.instances(), firewall.lacks_filters()) == ([], False)


def test_rule_with_an_unknown_group_is_left_out(tmp_path: Path, nft: Nft) -> None:
    lost = SecurityGroup(
        id="web", name="web", rules=[SecurityGroupRule(id="r", security_group_id="web", remote_group_id="gone")]
    )
    firewall = make(tmp_path)
    firewall.prepare({"i": [make_port()]})
    firewall.set(PortFilters(groups={"web": lost}, instances={"i": ["web", "gone"]}))
    assert "gone" not in nft.texts[-1]


def test_host_that_cannot_filter_does_not_start(tmp_path: Path, nft: Nft) -> None:
    nft.complaint = "nft cannot be run: No such file or directory"
    with pytest.raises(exceptions.ConfigurationError, match="security_groups: nft cannot be run"):
        make(tmp_path).prepare({})
    nft.texts.clear()
    off = make(tmp_path, enabled=False)
    off.prepare({"i": [make_port()]})
    off.plug("i", [make_port()])
    off.set(PortFilters(instances={"i": []}))
    assert (nft.texts, off.instances(), off.lacks_filters()) == ([], [], False)


def test_error_of_nft_is_reported(tmp_path: Path, nft: Nft) -> None:
    firewall = make(tmp_path)
    firewall.prepare({})
    nft.complaint = "nft: no"
    with pytest.raises(exceptions.VirtDriverError, match="cannot be loaded: nft: no"):
        firewall.plug("i", [make_port()])


def test_additional_rules_are_loaded_in_the_same_run(tmp_path: Path, nft: Nft) -> None:
    firewall = make(tmp_path)
    firewall.prepare({})
    done = len(nft.texts)
    firewall.plug("i", [make_port()], "add table inet network\n")
    (text,) = nft.texts[done:]
    assert text.startswith("add table inet network\n")
    assert "goto port_in_" in text
    off = make(tmp_path, enabled=False)
    off.plug("i", [make_port()], "add table inet network\n")
    off.plug("j", [make_port()])
    assert nft.texts[done + 1 :] == ["add table inet network\n"], "and alone if nothing else is filtered"


def test_configured_bridge_is_not_configured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    switches = {"nf_call_iptables": "1", "nf_call_ip6tables": "0"}
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(security_groups, "_switch", lambda bridge, name: switches[name])
    monkeypatch.setattr(security_groups.images, "run", lambda *command: commands.append(command))
    monkeypatch.setattr(security_groups.socket, "if_nametoindex", lambda name: 1)
    security_groups.show_packets_of("br")
    words = ["ip", "link", "set", "dev", "br", "type", "bridge", "nf_call_iptables", "1", "nf_call_ip6tables", "1"]
    assert commands == [tuple(words)]
    switches["nf_call_ip6tables"] = "1"
    security_groups.show_packets_of("br")
    assert len(commands) == 1


def test_ipv6_is_filtered_like_ipv4(tmp_path: Path, nft: Nft) -> None:
    network = make_network(cidr6="fd00:76::/64")
    port = make_port(network=network, more=ipv6.further_addresses(network, "fd00:76::f816:3eff:fe00:7601"))
    firewall = make(tmp_path)
    firewall.prepare({"i": [port]})
    (text,) = (text for text in nft.texts if "chain" in text)
    for address in (port.address, "fd00:76::f816:3eff:fe00:7601", "fe80::f816:3eff:fe00:7601"):
        assert text.count(f" . {address} : goto port_in_") == 2
        assert text.count(f" . {address} : goto port_out_") == 2
    assert "nd-router-advert, nd-redirect } drop" in text
    assert "@th,64,128 != { 0xfd00007600000000f8163efffe007601, 0xfe80000000000000f8163efffe007601 } drop" in text
    firewall.plug("i", [make_port()])
    assert "ip6" not in nft.texts[-1].replace("ip6_", "") and "nd-" not in nft.texts[-1]


def test_group_members_have_ipv4_and_ipv6_addresses(tmp_path: Path, nft: Nft) -> None:
    firewall = make(tmp_path)
    firewall.prepare({"i": [make_port()]})
    firewall.set(PortFilters(groups={"web": friends("10.0.0.1", "fd00::1")}, instances={"i": ["web"]}))
    assert f"membersip_web_{HERE} {{ type ipv4_addr; elements = {{ 10.0.0.1 }} }}" in nft.texts[-1]
    assert f"membersip6_web_{HERE} {{ type ipv6_addr; elements = {{ fd00::1 }} }}" in nft.texts[-1]


def test_members_from_an_older_conductor_count_everywhere(tmp_path: Path, nft: Nft) -> None:
    """The conductor names no networks. The host keeps such filters in a file, too."""
    firewall = make(tmp_path)
    firewall.prepare({"i": [make_port(), make_port(network=make_network(id="other"))]})
    group = friends(members_by_network=None, members=["10.0.0.1"])
    firewall.set(PortFilters(groups={"web": group}, instances={"i": ["web"]}))
    for realm in (HERE, "other"):
        assert f"membersip_web_{realm} {{ type ipv4_addr; elements = {{ 10.0.0.1 }} }}" in nft.texts[-1]
    done = len(nft.texts)
    group = friends(members_by_network=None, members=["10.0.0.2"])
    firewall.set(PortFilters(groups={"web": group}, instances={"i": ["web"]}))
    assert nft.texts[done].count("add element") == nft.texts[done].count("delete element") == 2
    firewall.set(PortFilters(groups={"web": friends("10.0.0.2")}, instances={"i": ["web"]}))
    assert "membersip_web_other { type ipv4_addr; }" in nft.texts[-1], "the conductor has been upgraded"


# --- invalid values: rows of older versions, files that somebody changed


ZONE = SecurityGroupRule(id="zone", security_group_id="web", ethertype="IPv6", remote_ip_prefix="fe80::%lo/64")


@pytest.mark.parametrize(
    "values",
    [
        {"ethertype": "IPv6", "remote_ip_prefix": "fe80::%lo/64"},
        {"ethertype": "IPv6", "remote_ip_prefix": "10.0.0.0/8"},
        {"remote_ip_prefix": "10.0.0.0/33"},
        {"ethertype": "IPX"},
        {"protocol": "nonsense"},
        {"protocol": "256"},
        {"protocol": "gre", "port_range_min": 1, "port_range_max": 2},
        {"protocol": "tcp\n drop", "port_range_min": 1, "port_range_max": 2},
        {"protocol": "tcp", "port_range_min": 2, "port_range_max": 1},
        {"protocol": "tcp", "port_range_min": -1, "port_range_max": 1},
        {"protocol": "tcp", "port_range_min": 1, "port_range_max": 65536},
        {"protocol": "tcp", "port_range_min": 1},
        {"port_range_min": 1, "port_range_max": 2},
        {"protocol": "icmp", "port_range_min": 256},
        {"protocol": "icmp", "port_range_max": 0},
    ],
)
def test_invalid_rule_has_no_text(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        rule_text(SecurityGroupRule(id="r", security_group_id="g", **values), PLACE)


def skipped(kind: str) -> float:
    return metrics.REGISTRY.get_sample_value("nova_lite_filters_skipped_total", {"kind": kind}) or 0.0


def test_invalid_rule_is_left_out_logged_and_counted_once(
    tmp_path: Path, nft: Nft, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(security_groups.nft, "_reported", set())
    group = friends("10.0.0.1", "fe80::1%lo", rules=[ZONE, *friends().rules])
    firewall, before = make(tmp_path), skipped("rule")
    firewall.prepare({"i": [make_port()]})
    for name in ("web", "other"):
        firewall.set(PortFilters(groups={"web": group}, instances={"i": ["web"], name: []}))
        assert "%" not in nft.texts[-1]
        assert "meta nfproto ipv4 accept" in nft.texts[-1], "its other rules hold"
        assert "elements = { 10.0.0.1 }" in nft.texts[-1]
    assert skipped("rule") == before + 1
    assert [record.getMessage() for record in caplog.records] == [
        "The member of group web fe80::1%lo is invalid and left out of this host's networks: "
        "'fe80::1%lo' has a zone (%), which only its own machine understands",
        "The rule zone is invalid and left out of this host's networks: "
        "'fe80::%lo/64' has a zone (%), which only its own machine understands",
    ]


def test_invalid_interface_or_floating_address_stops_no_start(
    tmp_path: Path, nft: Nft, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = [
        make_port(id="a", address="fe80::1%lo"),
        make_port(id="b", mac_address="x"),
        make_port(id="c", network=make_network(bridge='br" accept')),
        make_port(id="f", network=make_network(bridge="br\x00")),
        make_port(id="d", network=make_network(cidr="10.0.0.0/99")),
        make_port(
            id="e",
            network=make_network(cidr6="fd00::/64"),
            more=[FixedIp(address="::1%lo", subnet_id="s", cidr="fd00::/64")],
        ),
    ]
    good = make_port(id="good")
    monkeypatch.setattr(floating_ips.FloatingAddresses, "present", lambda _, addresses: addresses)
    monkeypatch.setattr(floating_ips.FloatingAddresses, "assign", lambda self, addresses: None)
    floating = {"good": "192.0.2.1%lo", "a": "192.0.2.2"}
    (tmp_path / "_port-filters@host-a.json").write_bytes(msgspec.json.encode(PortFilters(floating=floating)))
    firewall = make(tmp_path)
    firewall.prepare({"bad": bad, "good": [good]})
    assert "port_in_good" in nft.texts[-1]
    assert not any(f"port_in_{vif.id} " in nft.texts[-1] for vif in bad)
    assert "192.0.2." not in nft.texts[-1]


def test_host_has_a_forwarded_address_while_one_of_its_guests_is_here(
    tmp_path: Path, nft: Nft, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other forwardings of the address lead to guests elsewhere. Addresses that another host holds are left to it."""
    held: list[set[str]] = []
    monkeypatch.setattr(
        security_groups.floating_ips.FloatingAddresses, "assign", lambda self, found: held.append(found)
    )
    translations = MagicMock()
    translations.assign.side_effect = lambda leads, forwards: [MagicMock(floating=item.floating) for item in forwards]
    monkeypatch.setattr(security_groups.floating_ips, "ruleset", lambda table, ways, of_routers: "")
    firewall = make(tmp_path)
    firewall._translations = translations
    firewall.prepare({"i": [make_port(id="here")]})

    def forwarding(port: str, **changes: Any) -> HostForwarding:
        known = {"router_id": "r", "network_id": NETWORK_ID, "protocol": "tcp", "external": (1, 1), "internal": (1, 1)}
        return HostForwarding(**{"floating": "192.0.2.1", "address": "10.0.0.9", "port_id": port, **known, **changes})

    mine = [forwarding("here"), forwarding("there", peer="10.9.9.2")]
    others = [forwarding("here", floating="192.0.2.2", is_held=False), forwarding("gone", floating="192.0.2.3")]
    broken = forwarding("here", protocol="icmp")
    firewall.set(PortFilters(forwardings=[*mine, *others, broken]))
    assert translations.assign.call_args.args == ({}, mine)
    assert held[-1] == {"192.0.2.1"}
    assert firewall.forwardings == [*mine, *others]
    monkeypatch.setattr(security_groups.floating_ips.FloatingAddresses, "present", lambda self, addresses: addresses)
    again = make(tmp_path)
    again.prepare({})
    assert again.forwardings == [*mine, *others], "they are stored"
    firewall.unplug("i")
    assert (translations.assign.call_args.args, held[-1]) == (({}, []), set())


def test_floating_address_leads_to_a_port_without_port_security(
    tmp_path: Path, nft: Nft, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[set[str]] = []
    monkeypatch.setattr(
        floating_ips.Translations, "assign", lambda self, ports, forwardings: wanted.append(set(ports)) or []
    )
    monkeypatch.setattr(floating_ips.FloatingAddresses, "assign", lambda self, addresses: None)
    firewall = make(tmp_path)
    firewall.prepare({})
    ports = [make_vif(id="open", unguarded=True), make_vif(id="neutron", vif_type="ovs")]
    firewall.plug("i", ports)
    firewall.set(PortFilters(instances={"i": []}, floating={"open": "192.0.2.1", "neutron": "192.0.2.2"}))
    assert wanted[-1] == {"192.0.2.1"}
    firewall.unplug("i")
    assert wanted[-1] == set()


def test_groups_know_the_ip_version_for_which_a_router_connects_a_network() -> None:
    """Realms depend on it. Neighbours and names, which change with every guest, do not matter to them."""
    router = HostRouter(id="r", networks=[make_network()], only={NETWORK_ID: 4}, neighbours={NETWORK_ID: {}})
    names = {NETWORK_ID: NetworkMembers(members=["10.76.0.10 web "])}
    parts = MagicMock()
    parts.routers.active = [router]
    plugging.HostFilters(parts).apply(PortFilters(routers=[router], names=names))
    bare = HostRouter(id="r", networks=router.networks, only={NETWORK_ID: 4})
    assert parts.port_firewall.set.call_args.args == (PortFilters(routers=[bare]),)
    assert parts.networks.set_names.call_args.args == (names, [router])


def test_invalid_interface_is_not_plugged_and_blocks_no_other(tmp_path: Path, nft: Nft) -> None:
    firewall = make(tmp_path)
    firewall.prepare({})
    with pytest.raises(exceptions.VirtDriverError, match="interface bad cannot be filtered: 'x' is not a MAC address"):
        firewall.plug("i", [make_port(id="bad", mac_address="x")])
    assert firewall.instances() == []
    firewall.plug("j", [make_port(id="good")])
    assert "port_in_good" in nft.texts[-1]


def test_connections_of_each_bridge_have_a_zone(tmp_path: Path, nft: Nft, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conntrack_zones, "_bridge", lambda name: (f'"{name}"', 7, "02:00:00:00:00:01"))
    for is_filtered in (True, False):
        firewall = make(tmp_path)
        firewall.prepare({"i": [make_vif(port_security_enabled=is_filtered)]})
        assert 'ct zone set iifname map { "nltest0" : 7 }' in nft.texts[-1]
        firewall.unplug("i")
        assert "zone" not in nft.texts[-1]


def test_changed_members_are_loaded_alone(tmp_path: Path, nft: Nft) -> None:
    def filters(*members: str, name: str = "web") -> PortFilters:
        return PortFilters(groups={"web": friends(*members, name=name)}, instances={"i": ["web"]})

    firewall = make(tmp_path)
    firewall.prepare({"i": [make_port()]})
    firewall.set(filters("10.0.0.1", "fd00::1"))
    assert "chain in_web" in nft.texts[-1]
    done = len(nft.texts)
    firewall.set(filters("10.0.0.2", "fd00::1", "fd00::2"))
    table = "inet nova_lite_ports_host_a"
    assert nft.texts[done] == (
        f"delete element {table} membersip_web_{HERE} {{ 10.0.0.1 }}\n"
        f"add element {table} membersip_web_{HERE} {{ 10.0.0.2 }}\n"
        f"add element {table} membersip6_web_{HERE} {{ fd00::2 }}\n"
    )
    assert not any("chain in_web" in text for text in nft.texts[done:])
    firewall.set(filters("10.0.0.2", "FD00::1"))
    assert "chain in_web" in nft.texts[-1], "an address with two texts"
    firewall.set(filters("10.0.0.2", name="www"))
    assert "chain in_web" in nft.texts[-1], "more has changed"
    restarted = make(tmp_path)
    restarted.prepare({"i": [make_port()]})
    assert "elements = { 10.0.0.2 }" in nft.texts[-1], "all are stored"


def test_members_are_loaded_as_a_whole_into_a_changed_table(
    tmp_path: Path, nft: Nft, monkeypatch: pytest.MonkeyPatch
) -> None:
    firewall = make(tmp_path)
    firewall.prepare({"i": [make_port()]})
    firewall.set(PortFilters(groups={"web": friends("10.0.0.1")}, instances={"i": ["web"]}))
    monkeypatch.setattr(security_groups.nft, "apply", nft.texts.append)
    nft.complaint = "nft: No such file or directory"
    firewall.set(PortFilters(groups={"web": friends("10.0.0.2")}, instances={"i": ["web"]}))
    assert "elements = { 10.0.0.2 }" in nft.texts[-1]


def test_bridge_that_cannot_be_configured_stops_its_own_guest_only(
    tmp_path: Path, nft: Nft, monkeypatch: pytest.MonkeyPatch
) -> None:
    def show(bridge: str) -> None:
        if bridge == "bad":
            raise exceptions.VirtDriverError(reason="no such device")

    monkeypatch.setattr(security_groups, "show_packets_of", show)
    broken = make_port(id="b", network=make_network(bridge="bad"))
    firewall = make(tmp_path)
    firewall.prepare({"i": [broken]})
    firewall.plug("j", [make_port(id="good")])
    assert "port_in_good" in nft.texts[-1]
    with pytest.raises(exceptions.VirtDriverError, match="no such device"):
        firewall.plug("k", [broken])


def test_filters_that_could_not_be_loaded_are_loaded_by_the_next_refresh(tmp_path: Path, nft: Nft) -> None:
    firewall = make(tmp_path)
    firewall.prepare({"i": [make_port()]})
    filters = PortFilters(groups={"web": WEB}, instances={"i": ["web"]})
    nft.complaint = "nft: busy"
    with pytest.raises(exceptions.VirtDriverError):
        firewall.set(filters)
    nft.complaint = ""
    firewall.set(filters)
    assert "jump in_web" in nft.texts[-1]


def test_table_that_somebody_removed_is_loaded_again(tmp_path: Path, nft: Nft, monkeypatch: pytest.MonkeyPatch) -> None:
    firewall = make(tmp_path)
    firewall.prepare({"i": [make_port()]})
    filters = PortFilters(groups={"web": WEB}, instances={"i": ["web"]})
    firewall.set(filters)
    monkeypatch.setattr(security_groups.nft, "apply", nft.texts.append)
    nft.complaint = "nft: No such file or directory"
    firewall.set(filters)
    assert "jump in_web" in nft.texts[-1]


def test_addresses_that_cannot_be_assigned_do_not_keep_filters_from_changing(
    tmp_path: Path, nft: Nft, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: object, addresses: set[str]) -> None:
        raise exceptions.VirtDriverError(reason="no such device")

    firewall = make(tmp_path)
    firewall.prepare({"i": [make_port(id="p")]})
    monkeypatch.setattr(security_groups.floating_ips.FloatingAddresses, "assign", refuse)
    with pytest.raises(exceptions.VirtDriverError, match="no such device"):
        firewall.set(PortFilters(groups={"web": WEB}, instances={"i": ["web"]}, floating={"p": "192.0.2.1"}))
    assert "jump in_web" in nft.texts[-1]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the floating addresses that the machine has."""
    found: set[str] = set()

    def assign(_: object, addresses: set[str]) -> None:
        found.clear()
        found.update(addresses)

    monkeypatch.setattr(floating_ips.FloatingAddresses, "present", lambda _, addresses: addresses & found)
    monkeypatch.setattr(floating_ips.FloatingAddresses, "assign", assign)
    ways = [floating_ips.Lead("192.0.2.1", "169.254.192.9", "10.0.0.1")]
    monkeypatch.setattr(floating_ips.Translations, "assign", lambda _, wanted, more: ways[: len(wanted)])
    return found


FLOATING = PortFilters(groups={"web": WEB}, instances={"i": ["web"]}, floating={"p": "192.0.2.1"})


def test_floating_address_comes_back_with_the_daemon_but_not_with_the_machine(
    tmp_path: Path, nft: Nft, here: set[str]
) -> None:
    """Another host may have got it meanwhile."""
    ports = {"i": [make_port(id="p")]}
    firewall = make(tmp_path)
    firewall.prepare(ports)
    firewall.set(FLOATING)
    make(tmp_path).prepare(ports)
    assert here == {"192.0.2.1"} and "192.0.2.1" in nft.texts[-1]
    here.clear()
    again = make(tmp_path)
    again.prepare(ports)
    assert here == set() and "192.0.2.1" not in nft.texts[-1] and "jump in_web" in nft.texts[-1]
    again.set(FLOATING)
    assert here == {"192.0.2.1"}


def test_withdrawn_floating_address_is_away_until_the_filters_come(tmp_path: Path, nft: Nft, here: set[str]) -> None:
    ports = {"i": [make_port(id="p")]}
    firewall = make(tmp_path)
    firewall.prepare(ports)
    firewall.set(FLOATING)
    firewall.withdraw_addresses(["other"])
    assert here == {"192.0.2.1"} and not firewall.lacks_filters()
    firewall.withdraw_addresses(["i"])
    assert here == set() and firewall.lacks_filters(), "the conductor is asked as soon as it answers"
    assert "192.0.2.1" not in nft.texts[-1]
    make(tmp_path).prepare(ports)
    assert here == set(), "nor does a new daemon bring it back"
    firewall.set(FLOATING)
    assert here == {"192.0.2.1"} and not firewall.lacks_filters()


def test_floating_addresses_of_some_instances_are_kept_for_some_seconds(
    tmp_path: Path, nft: Nft, here: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[tuple[set[str], int | None]] = []
    monkeypatch.setattr(floating_ips.FloatingAddresses, "keep", lambda _, found, seconds: kept.append((found, seconds)))
    firewall = make(tmp_path)
    firewall.prepare({"i": [make_port(id="p")], "other": [make_port(id="q")]})
    firewall.set(msgspec.structs.replace(FLOATING, floating={"p": "192.0.2.1", "q": "192.0.2.2"}))
    firewall.keep_addresses(["i"], 20)
    firewall.keep_addresses(["none"], None)
    assert kept == [({"192.0.2.1"}, 20), (set(), None)]


@pytest.mark.parametrize("stored", ["{", '["fe80::%lo", "192.0.2.1"]', "[1]"])
def test_floating_addresses_on_disk_may_be_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: str
) -> None:
    commands: list[str] = []
    monkeypatch.setattr(floating_ips.images, "run", lambda *words: commands.append(" ".join(words)) or b"")
    (tmp_path / "floating@host-a.json").write_text(stored)
    floating_ips.FloatingAddresses(str(tmp_path), "host-a", "lo").assign({"192.0.2.2"})
    assert "ip address replace 192.0.2.2/32 dev lo" in commands
    assert not any("%" in command for command in commands)


@pytest.mark.parametrize("one", ["a-b", "a_b", "a.b", "a b", "", "x" * 300, "ä"])
@pytest.mark.parametrize("other", ["a-b", "a_b", "a.b", "a b", "", "x" * 300, "ä"])
def test_identifiers_are_plain_and_differ(one: str, other: str) -> None:
    assert (security_groups.nft.identifier(one) == security_groups.nft.identifier(other)) == (one == other)
    assert re.fullmatch("[A-Za-z0-9_]{1,200}", security_groups.nft.identifier(one))


def test_prefixes_of_an_address_group_are_one_rule() -> None:
    values: dict[str, Any] = {"security_group_id": "g", "protocol": "tcp", "port_range_min": 80, "port_range_max": 80}
    prefixes = ("10.1.0.0/16", "192.0.2.7/32", "10.0.0.0/8")
    rules = [SecurityGroupRule(id="r1", remote_ip_prefix=prefix, **values) for prefix in prefixes]
    rules.append(SecurityGroupRule(id="r2", remote_ip_prefix="198.51.100.0/24", **values))
    rules.append(SecurityGroupRule(id="r3", **values))
    rules += [SecurityGroupRule(id="r4", remote_ip_prefix=prefix, **values) for prefix in ("0.0.0.0/0", "10.2.0.0/16")]
    inward, _ = security_groups._group(SecurityGroup(id="g", name="g", rules=rules), (), PLACE)
    assert [line.strip() for line in inward.splitlines() if "accept" in line] == [
        "meta nfproto ipv4 ip saddr { 10.0.0.0/8, 192.0.2.7/32 } tcp dport 80-80 accept",
        "meta nfproto ipv4 ip saddr 198.51.100.0/24 tcp dport 80-80 accept",
        "meta nfproto ipv4 tcp dport 80-80 accept",
        "meta nfproto ipv4 tcp dport 80-80 accept",
    ]
