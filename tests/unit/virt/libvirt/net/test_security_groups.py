"""A host's filters, as rules; tests/integration/network shows on real packets that the rules do it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.objects import VIF, PortFilters, SecurityGroup, SecurityGroupRule, ipv6
from nova_lite.virt.libvirt.net import security_groups
from nova_lite.virt.libvirt.net.security_groups import PortFirewall, rule_text
from tests.unit.virt.builders import make_network, make_vif
from tests.unit.virt.test_configdrive import make_conf

WEB = SecurityGroup(id="web", name="web", rules=[SecurityGroupRule(id="r", security_group_id="web")])


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
        ({"remote_group_id": "a-b"}, "meta nfproto ipv4 ip saddr @membersip_a_b accept"),
        (
            {"remote_group_id": "a-b", "ethertype": "IPv6"},
            "meta nfproto ipv6 ip6 saddr @membersip6_a_b accept",
        ),
        (
            {"protocol": "udp", "port_range_min": 1, "port_range_max": 9},
            "meta nfproto ipv4 udp dport 1-9 accept",
        ),
        ({"protocol": "tcp"}, "meta nfproto ipv4 meta l4proto tcp accept"),
        ({"protocol": "icmp"}, "meta nfproto ipv4 meta l4proto icmp accept"),
        (
            {"protocol": "icmp", "port_range_min": 8, "port_range_max": 0},
            "meta nfproto ipv4 meta l4proto icmp icmp type 8 icmp code 0 accept",
        ),
        (
            {"protocol": "icmp", "port_range_min": 128, "ethertype": "IPv6"},
            "meta nfproto ipv6 meta l4proto ipv6-icmp icmpv6 type 128 accept",
        ),
    ],
)
def test_rules(values: dict[str, Any], text: str) -> None:
    assert rule_text(SecurityGroupRule(id="r", security_group_id="g", **values)) == text


class Told:
    """In place of nft."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.complaint = ""

    def __call__(self, text: str) -> str:
        self.texts.append(text)
        return self.complaint


@pytest.fixture
def nft(monkeypatch: pytest.MonkeyPatch) -> Told:
    told = Told()
    monkeypatch.setattr(security_groups.nft, "run", told)
    monkeypatch.setattr(security_groups, "show_bridged_packets", lambda: "")
    return told


def make(directory: Path, enabled: bool = True) -> PortFirewall:
    conf = make_conf()
    conf.set_override("security_groups", enabled, "network")
    return PortFirewall(conf, "host-a", str(directory))


def test_a_port_is_shut_until_it_is_told_what_is_in(tmp_path: Path, nft: Told) -> None:
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
    done = len(nft.texts)
    firewall.set(PortFilters(groups={"web": WEB}, instances={"i": ["web"]}))
    assert len(nft.texts) == done, "nothing has changed"
    firewall.unplug("i")
    assert port.address not in nft.texts[-1]
    assert firewall.instances() == []


def test_what_was_told_holds_after_a_restart(tmp_path: Path, nft: Told) -> None:
    firewall = make(tmp_path)
    firewall.prepare({})
    firewall.set(PortFilters(groups={"web": WEB}, instances={"i": ["web"]}))
    assert "chain" not in nft.texts[-1], "nobody is here"
    make(tmp_path).prepare({"i": [make_port()]})
    assert "jump in_web" in nft.texts[-1]
    (tmp_path / "_port-filters@host-a.json").write_text("{")
    again = make(tmp_path)
    again.prepare({"i": [make_port()]})
    assert "jump in_web" not in nft.texts[-1]
    assert again.lacks_filters()


def test_interfaces_of_before_are_left_alone(tmp_path: Path, nft: Told) -> None:
    """Theirs were made when nothing was filtered; their next start or hard reboot says otherwise."""
    firewall = make(tmp_path)
    firewall.prepare({"i": [make_vif()]})
    assert make_vif().address not in nft.texts[-1]
    assert (firewall.instances(), firewall.lacks_filters()) == ([], False)


def test_a_rule_of_a_group_that_is_not_told_along_is_left_out(tmp_path: Path, nft: Told) -> None:
    lost = SecurityGroup(
        id="web", name="web", rules=[SecurityGroupRule(id="r", security_group_id="web", remote_group_id="gone")]
    )
    firewall = make(tmp_path)
    firewall.prepare({"i": [make_port()]})
    firewall.set(PortFilters(groups={"web": lost}, instances={"i": ["web", "gone"]}))
    assert "gone" not in nft.texts[-1]


def test_a_host_that_cannot_filter_does_not_start(tmp_path: Path, nft: Told) -> None:
    nft.complaint = "nft cannot be run: No such file or directory"
    with pytest.raises(exceptions.ConfigurationError, match="security_groups: nft cannot be run"):
        make(tmp_path).prepare({})
    nft.texts.clear()
    off = make(tmp_path, enabled=False)
    off.prepare({"i": [make_port()]})
    off.plug("i", [make_port()])
    off.set(PortFilters(instances={"i": []}))
    assert (nft.texts, off.instances(), off.lacks_filters()) == ([], [], False)


def test_what_nft_says_is_told(tmp_path: Path, nft: Told) -> None:
    firewall = make(tmp_path)
    firewall.prepare({})
    nft.complaint = "nft: no"
    with pytest.raises(exceptions.VirtDriverError, match="cannot be loaded: nft: no"):
        firewall.plug("i", [make_port()])


def test_rules_that_belong_beside_are_told_in_the_same_run(tmp_path: Path, nft: Told) -> None:
    firewall = make(tmp_path)
    firewall.prepare({})
    done = len(nft.texts)
    firewall.plug("i", [make_port()], "add table inet network\n")
    (told,) = nft.texts[done:]
    assert told.startswith("add table inet network\n")
    assert "goto port_in_" in told
    off = make(tmp_path, enabled=False)
    off.plug("i", [make_port()], "add table inet network\n")
    off.plug("j", [make_port()])
    assert nft.texts[done + 1 :] == ["add table inet network\n"], "and by themselves where nothing else is filtered"


def test_a_bridge_that_shows_its_packets_is_not_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    switches = {"nf_call_iptables": "1", "nf_call_ip6tables": "0"}
    told: list[tuple[str, ...]] = []
    monkeypatch.setattr(security_groups, "_switch", lambda bridge, name: switches[name])
    monkeypatch.setattr(security_groups.images, "run", lambda *command: told.append(command))
    monkeypatch.setattr(security_groups.socket, "if_nametoindex", lambda name: 1)
    security_groups.show_packets_of("br")
    words = ["ip", "link", "set", "dev", "br", "type", "bridge", "nf_call_iptables", "1", "nf_call_ip6tables", "1"]
    assert told == [tuple(words)]
    switches["nf_call_ip6tables"] = "1"
    security_groups.show_packets_of("br")
    assert len(told) == 1


def test_ipv6_of_an_interface_is_filtered_as_its_ipv4(tmp_path: Path, nft: Told) -> None:
    network = make_network(cidr6="fd00:76::/64")
    port = make_port(network=network, more=ipv6.further(network, "fd00:76::f816:3eff:fe00:7601"))
    firewall = make(tmp_path)
    firewall.prepare({"i": [port]})
    (told,) = (text for text in nft.texts if "chain" in text)
    for address in (port.address, "fd00:76::f816:3eff:fe00:7601", "fe80::f816:3eff:fe00:7601"):
        assert told.count(f" . {address} : goto port_in_") == 2
        assert told.count(f" . {address} : goto port_out_") == 2
    assert "nd-router-advert, nd-redirect } drop" in told
    assert "@th,64,128 != { 0xfd00007600000000f8163efffe007601, 0xfe80000000000000f8163efffe007601 } drop" in told
    firewall.plug("i", [make_port()])
    assert "ip6" not in nft.texts[-1].replace("ip6_", "") and "nd-" not in nft.texts[-1]


def test_addresses_of_both_kinds_are_members(tmp_path: Path, nft: Told) -> None:
    group = msgspec.structs.replace(WEB, members=["10.0.0.1", "fd00::1"])
    firewall = make(tmp_path)
    firewall.prepare({"i": [make_port()]})
    firewall.set(PortFilters(groups={"web": group}, instances={"i": ["web"]}))
    assert "membersip_web { type ipv4_addr; elements = { 10.0.0.1 } }" in nft.texts[-1]
    assert "membersip6_web { type ipv6_addr; elements = { fd00::1 } }" in nft.texts[-1]
