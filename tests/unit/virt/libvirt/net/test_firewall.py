"""Rules for the access of guests to their host. The integration tests apply them."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.virt.libvirt.net import firewall, names, nft
from nova_lite.virt.libvirt.net.firewall import Firewall, Routing
from tests.support.config_drives import make_conf
from tests.support.guests import make_network

ADDRESS = "169.254.87.75"
REFUSED = "reject with icmpx admin-prohibited"
REPLIES = ["ct state established,related accept", "ct status dnat accept"]
FORWARD = [
    'iifname "nltest0" ip daddr 169.254.0.0/16 reject',
    'iifname "nltest0" oifname "nltest0" accept',
    'iifname "nltest0" jump sent',
    'oifname "nltest0" jump received',
]


def make(metadata_listen: str = ADDRESS, **network: Any) -> Firewall:
    conf = make_conf()
    conf.set_override("metadata_listen", metadata_listen, "api")
    for name, value in network.items():
        conf.set_override(name, value, "network")
    return Firewall(conf)


def chain(text: str, name: str) -> list[str]:
    """Return the rules of a chain without its header."""
    found = re.search(rf"chain {name} {{\n(.*?)\n  }}", text, re.DOTALL)
    assert found is not None
    return [line.strip() for line in found[1].split("\n") if line.strip()][1:]


def test_metadata_requests_of_the_bridge_are_redirected_to_the_api() -> None:
    text = firewall.ruleset(make_network(), (ADDRESS, 8775), [])
    assert chain(text, "prerouting") == [
        f'iifname "nltest0" ip daddr 169.254.169.254 tcp dport 80 dnat ip to {ADDRESS}:8775'
    ]
    assert chain(text, "input") == [
        f'iifname != "lo" ip daddr {ADDRESS} ct status ! dnat drop',
        'iifname != "nltest0" accept',
        "ct state established,related accept",
        "ip saddr != { 10.76.0.0/24, 0.0.0.0/32 } drop",
        "udp dport { 53, 67 } accept",
        "tcp dport 53 accept",
        "meta l4proto { icmp, ipv6-icmp } accept",
        f"ip daddr {ADDRESS} tcp dport 8775 ct status dnat accept",
        "reject",
    ]
    assert chain(text, "forward") == FORWARD


def test_address_of_the_machine_itself_stays_open_to_others() -> None:
    text = firewall.ruleset(make_network(), ("192.0.2.7", 8775), [])
    assert chain(text, "input")[0] == 'iifname != "nltest0" accept'


def test_host_without_metadata_service_is_blocked_too() -> None:
    text = firewall.ruleset(make_network(), None, [8774, 80])
    assert chain(text, "prerouting") == []
    assert chain(text, "input")[-2:] == ["tcp dport { 80, 8774 } accept", "reject"]
    assert chain(text, "forward") == FORWARD


def plain_chain(text: str, name: str) -> list[str]:
    """Return the rules of a chain without a hook."""
    found = re.search(rf"chain {name} {{\n(.*?)\n  }}", text, re.DOTALL)
    assert found is not None
    return [line.strip() for line in found[1].split("\n")]


@pytest.mark.parametrize(
    ("routing", "sent", "received"),
    [
        (Routing(external=False), [REFUSED], [REFUSED]),
        (Routing(), ["accept"], [*REPLIES, REFUSED]),
        (Routing(snat=False), ["accept"], [*REPLIES, "accept"]),
        (Routing(external=False, snat=False), [REFUSED], [REFUSED]),
        (
            Routing(("br1", "br2"), external=False),
            ['oifname { "br1", "br2" } accept', REFUSED],
            ['iifname { "br1", "br2" } accept', REFUSED],
        ),
    ],
)
def test_network_reaches_what_its_router_connects(routing: Routing, sent: list[str], received: list[str]) -> None:
    text = firewall.ruleset(make_network(), None, [], routing)
    assert (plain_chain(text, "sent"), plain_chain(text, "received")) == (sent, received)


@pytest.mark.parametrize(
    ("changes", "external"),
    [({}, True), ({"gateway": None}, False), ({"needs_router": True}, False)],
)
def test_network_without_a_router_has_its_implicit_way_out(changes: dict[str, Any], external: bool) -> None:
    assert firewall.default_routing(make_network(**changes)) == Routing((), external)


def test_changed_routing_loads_the_changed_and_the_missing_tables(tools: Path) -> None:
    made = make()
    made.prepare()
    one, two = make_network(), make_network(id="net-2", bridge="br2")
    nft.apply(made.rules([one, two]))
    present = "\n".join(f"echo table inet {names.network_table(network.id)}" for network in (one, two))
    script = f'#!/bin/sh\ncase "$1" in list) {present} ;; *) cat >>{tools}/loaded ;; esac\n'
    (tools / "nft").write_text(script)
    made.set_routing({})
    assert not (tools / "loaded").exists()
    routed = Routing(("br2",))
    made.set_routing({one.id: routed})
    assert (tools / "loaded").read_text() == firewall.ruleset(one, None, [], routed)
    assert made.routed() == [(one, routed), (two, Routing())]
    (tools / "loaded").unlink()
    (tools / "nft").write_text(script.replace(names.network_table(two.id), "another"))
    made.set_routing({one.id: routed})
    assert (tools / "loaded").read_text() == firewall.ruleset(two, None, [])


def test_libvirt_with_rules_of_its_own_for_nftables_is_reported(tools: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = make()
    made.prepare()
    made.rules([make_network()])
    (tools / "nft").write_text('#!/bin/sh\n[ "$1" = list ] && echo table ip libvirt_network || cat >/dev/null\n')
    made.set_routing({})
    made.set_routing({})
    assert caplog.text.count('set firewall_backend = "iptables"') == 1


def test_network_has_its_own_table() -> None:
    found = {names.network_table(network_id) for network_id in ("net-1", "net-2", "5f3f3c1e-64a4")}
    assert len(found) == 3
    assert all(re.fullmatch(r"[A-Za-z0-9_]+", name) for name in found)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs nft and ip that record their input. A test may remove them."""
    for name in ("nft", "ip"):
        path = tmp_path / name
        path.write_text(f'#!/bin/sh\n{{ echo "{name} $@"; [ {name} = ip ] || cat; }} >>{tmp_path}/recorded\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def test_metadata_service_gets_its_address_and_networks_their_rules(tools: Path) -> None:
    made = make(metadata_service=True)
    made.prepare()
    nft.apply(made.rules([make_network(), make_network(id="net-2")]))
    recorded = (tools / "recorded").read_text()
    assert recorded.startswith(f"nft -f -\nlist tables\nip address replace {ADDRESS}/32 dev lo scope host\nnft -f -\n")
    networks = [make_network(), make_network(id="net-2")]
    assert recorded.endswith(
        "nft -f -\n" + "".join(firewall.ruleset(network, (ADDRESS, 8775), []) for network in networks)
    )
    assert recorded.count("nft -f") == 2, "one run for all"


def test_address_of_the_machine_itself_is_not_added(tools: Path) -> None:
    make("192.0.2.7", metadata_service=True).prepare()
    assert "ip address" not in (tools / "recorded").read_text()


def test_rules_rejected_by_nft_are_an_error(tools: Path) -> None:
    made = make()
    made.prepare()
    (tools / "nft").write_text("#!/bin/sh\necho no such thing >&2\nexit 1\n")
    with pytest.raises(exceptions.VirtDriverError, match="cannot be loaded: nft: no such thing"):
        nft.apply(made.rules([make_network()]))


@pytest.mark.parametrize("missing", [True, False])
def test_metadata_service_needs_nft(
    tools: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, missing: bool
) -> None:
    (tools / "nft").write_text("#!/bin/sh\necho Operation not permitted >&2\nexit 1\n")
    if missing:
        monkeypatch.setenv("PATH", "/nowhere")
    why = "nft cannot be run: No such file" if missing else "nft: Operation not permitted"
    with pytest.raises(exceptions.ConfigurationError, match=why):
        make(metadata_service=True).prepare()
    made = make()
    made.prepare()
    assert made.rules([make_network()]) == ""
    assert f"Guests can reach services of this host, and link-local addresses: {why}" in caplog.text


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "169.254.169.254", "api.example.org"])
def test_metadata_listen_address_has_to_be_reachable_for_guests(tools: Path, address: str) -> None:
    with pytest.raises(exceptions.ConfigurationError, match=f"metadata_listen = {re.escape(address)}"):
        make(address, metadata_service=True).prepare()


@pytest.mark.parametrize(
    ("service", "gateway", "serves"), [(True, "10.76.0.1", True), (True, None, False), (False, "10.76.0.1", False)]
)
def test_metadata_service_needs_a_gateway(service: bool, gateway: str | None, serves: bool) -> None:
    assert make(metadata_service=service).serves(make_network(gateway=gateway)) is serves
