"""Networks that span hosts, on one host. tests/integration/network uses real packets."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.objects import VIF, HostForwarding, HostRouter
from nova_lite.virt.libvirt.net import realms, tunnels
from nova_lite.virt.libvirt.net.tunnels import FLOOD_MAC, Tunnels
from tests.support.config_drives import make_conf
from tests.support.guests import make_network, make_vif

NETWORK = make_network(id="net-1", bridge="br1", vni=77, mtu=1450)
HERE = "10.9.9.1"


def make_port(number: int = 1) -> VIF:
    return make_vif(number, NETWORK)


#: Output of iproute2 for a VXLAN device in a bridge, shortened.
DEVICE = (
    "7: nlvx77: <BROADCAST,UP> mtu 1450 master br1 state UNKNOWN group default \\    link/ether fa:be:7c:3e:79:dd \\"
    "    vxlan id {id} local {local} srcport 0 0 dstport {port} ttl auto ageing 300 udpcsum \\    bridge_slave state "
    "disabled port_id 0x8001 designated_port 32769 addrgenmode none"
)


class Kernel:
    """Replaces ip, bridge and nft: devices are files in a directory, with their flooding destinations."""

    def __init__(self, net: Path) -> None:
        self.net = net
        self.flooded: set[str] = set()
        self.learned: dict[str, str] = {}
        self.shown: dict[str, object] = {"id": 77, "local": HERE, "port": 4789}
        self.commands: list[str] = []
        self.rules: list[str] = []

    def bridge(self, name: str, *members: str, network_id: str = "net-1") -> None:
        (self.net / name / "brif").mkdir(parents=True)
        (self.net / name / "ifalias").write_text(f"{realms.ALIAS}{network_id}\n" if network_id else "\n")
        for member in members:
            (self.net / name / "brif" / member).touch()

    def nft(self, text: str) -> str:
        self.rules.append(text)
        return ""

    def run(self, *command: str) -> bytes:
        line = " ".join(command)
        words = line.split()
        if line.startswith("ip -oneline -details"):
            return DEVICE.format(**self.shown).encode()
        if line.startswith("bridge -json"):
            flooded = [(FLOOD_MAC, peer) for peer in sorted(self.flooded)]
            entries = [{"mac": mac, "dst": peer} for mac, peer in [*flooded, *self.learned.items()]]
            return json.dumps([*entries, {"mac": "33:33:00:00:00:01", "state": "permanent"}]).encode()
        self.commands.append(line)
        if line.startswith("bridge fdb delete") and words[3] in self.learned:
            del self.learned[words[3]]
        elif line.startswith("bridge fdb"):
            (self.flooded.add if "append" in words else self.flooded.remove)(words[-1])
        elif line.startswith("ip link add"):
            (self.net / words[3]).mkdir()
        elif line.startswith("ip link delete"):
            (self.net / words[3] / "master").unlink(missing_ok=True)
            (self.net / words[3]).rmdir()
            self.flooded = set()
        elif "master" in words:
            (self.net / words[3] / "master").symlink_to(self.net / words[words.index("master") + 1])
        return b""


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel(tmp_path / "net")
    made.net.mkdir()
    monkeypatch.setattr(tunnels, "NET", str(made.net))
    monkeypatch.setattr(realms, "NET", str(made.net))
    monkeypatch.setattr(tunnels.nft, "run", made.nft)
    monkeypatch.setattr(tunnels.images, "run", made.run)
    return made


def make(directory: Path, local_ip: str | None = HERE, my_ip: str = "127.0.0.1") -> Tunnels:
    conf = make_conf()
    conf.set_override("local_ip", local_ip, "vxlan")
    conf.set_override("my_ip", my_ip)
    return Tunnels(conf, "host-a", str(directory))


def test_tunnel_exists_from_the_first_to_the_last_guest(tmp_path: Path, kernel: Kernel) -> None:
    kernel.bridge("br1")
    here = make(tmp_path)
    here.prepare({})
    assert not kernel.commands and not kernel.rules
    here.plug("i", [make_port()])
    assert kernel.commands == [
        f"ip link add nlvx77 type vxlan id 77 local {HERE} dstport 4789 learning",
        "ip link set nlvx77 addrgenmode none",
        "ip link set nlvx77 mtu 1450 master br1 up",
    ]
    here.plug("j", [make_port(2)])
    here.unplug("i")
    assert (kernel.net / "nlvx77").exists()
    here.set({"net-1": ["10.9.9.2"]})
    here.unplug("j")
    assert not (kernel.net / "nlvx77").exists()
    assert "chain" not in kernel.rules[-1]
    here.unplug("j")
    make(tmp_path).prepare({})
    assert "chain" not in kernel.rules[-1] and len(kernel.rules) == 4, "remains of a killed daemon are removed"


def test_tunnel_reaches_exactly_the_published_hosts(tmp_path: Path, kernel: Kernel) -> None:
    kernel.bridge("br1")
    here = make(tmp_path)
    here.plug("i", [make_port()])
    assert (here.begin_query(), here.lacks_peers()) == (["i"], True)
    here.set({"net-1": ["10.9.9.2", "10.9.9.3", HERE, "nonsense", "127.0.0.1", "224.0.0.1"], "other": ["10.9.9.4"]})
    assert not here.lacks_peers()
    assert kernel.flooded == {"10.9.9.2", "10.9.9.3"}, "neither itself nor hosts of other networks"
    assert "elements = { 10.9.9.2, 10.9.9.3 }" in kernel.rules[-1]
    here.set({"net-1": ["10.9.9.2", "10.9.9.3", HERE], "other": ["10.9.9.4"]})
    done = len(kernel.commands), len(kernel.rules)
    here.set({"net-1": ["10.9.9.2", "10.9.9.3", HERE], "other": ["10.9.9.4"]})
    assert done == (len(kernel.commands), len(kernel.rules)), "nothing has changed"
    kernel.flooded.add("10.9.9.9")
    here.set({"net-1": ["10.9.9.3"]})
    assert kernel.flooded == {"10.9.9.3"}
    here.set(None)
    assert kernel.flooded == {"10.9.9.3"}, "an older conductor sends no peers"


def test_tunnel_forgets_the_learned_entries_of_a_former_peer(tmp_path: Path, kernel: Kernel) -> None:
    """The kernel itself would keep it as long as it sends there: the guest may be elsewhere, and silent."""
    kernel.bridge("br1")
    here = make(tmp_path)
    here.plug("i", [make_port()])
    here.set({"net-1": ["10.9.9.2", "10.9.9.3"]})
    kernel.learned = {"fa:16:3e:00:00:02": "10.9.9.2", "fa:16:3e:00:00:03": "10.9.9.3"}
    here.set({"net-1": ["10.9.9.3"]})
    assert kernel.learned == {"fa:16:3e:00:00:03": "10.9.9.3"}


def test_entry_that_is_learned_elsewhere_meanwhile_is_no_error(
    tmp_path: Path, kernel: Kernel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def run(*command: str) -> bytes:
        if command[:3] == ("bridge", "fdb", "delete") and command[3] != FLOOD_MAC:
            raise exceptions.VirtDriverError(reason="RTNETLINK answers: No such file or directory")
        return kernel.run(*command)

    kernel.bridge("br1")
    monkeypatch.setattr(tunnels.images, "run", run)
    here = make(tmp_path)
    here.plug("i", [make_port()])
    here.set({"net-1": ["10.9.9.2", "10.9.9.3"]})
    kernel.learned = {"fa:16:3e:00:00:02": "10.9.9.2"}
    here.set({"net-1": ["10.9.9.3"]})
    assert kernel.flooded == {"10.9.9.3"} and "ERROR" not in caplog.text


def test_unknown_peers_are_queried_once(tmp_path: Path, kernel: Kernel) -> None:
    """The conductor does not name the network for this host, or an older conductor names none."""
    kernel.bridge("br1")
    for peers in ({}, None):
        here = make(tmp_path)
        here.plug("i", [make_port()])
        assert here.begin_query() == ["i"]
        assert here.lacks_peers()
        here.set(peers)
        assert not here.lacks_peers()
        (tmp_path / "_tunnels@host-a.json").unlink()
    early = make(tmp_path)
    assert early.begin_query() == []
    early.plug("i", [make_port()])
    early.set({})
    assert early.lacks_peers(), "it queried before the guest arrived"


def test_peers_stay_valid_after_a_restart(tmp_path: Path, kernel: Kernel) -> None:
    kernel.bridge("br1")
    here = make(tmp_path)
    here.plug("i", [make_port()])
    here.set({"net-1": ["10.9.9.2"]})
    kernel.run("ip", "link", "delete", "nlvx77")
    again = make(tmp_path)
    again.prepare({"i": [make_port()]})
    assert kernel.flooded == {"10.9.9.2"}
    assert not again.lacks_peers()
    (tmp_path / "_tunnels@host-a.json").write_text("{")
    broken = make(tmp_path)
    broken.prepare({"i": [make_port()]})
    assert broken.lacks_peers()


def test_foreign_changes_are_repaired(tmp_path: Path, kernel: Kernel) -> None:
    """Another program removes a bridge, which is then made again, or an operator changes the host's address."""
    kernel.bridge("br1")
    here = make(tmp_path)
    here.plug("i", [make_port()])
    here.set({"net-1": []})
    (kernel.net / "nlvx77" / "master").unlink()
    here.set({"net-1": []})
    assert os.readlink(kernel.net / "nlvx77" / "master") == str(kernel.net / "br1")
    kernel.shown["local"] = "10.9.9.99"
    del kernel.commands[:]
    make(tmp_path).prepare({"i": [make_port()]})
    assert kernel.commands[:2] == [
        "ip link delete nlvx77",
        f"ip link add nlvx77 type vxlan id 77 local {HERE} dstport 4789 learning",
    ]


def test_tunnel_stays_while_another_daemon_has_guests_on_the_bridge(tmp_path: Path, kernel: Kernel) -> None:
    kernel.bridge("br1", "nlvx77", "tap-of-another")
    here = make(tmp_path)
    here.plug("i", [make_port()])
    here.unplug("i")
    assert (kernel.net / "nlvx77").exists()


def test_networks_without_a_vni_have_no_tunnel(tmp_path: Path, kernel: Kernel) -> None:
    kernel.bridge("br1")
    here = make(tmp_path)
    here.plug("i", [make_vif(), make_vif(2, NETWORK, vif_type="ovs")])
    assert (here.begin_query(), here.lacks_peers(), kernel.commands) == ([], False, [])


def test_tunnel_needs_an_existing_bridge(tmp_path: Path, kernel: Kernel) -> None:
    here = make(tmp_path)
    here.prepare({"i": [make_port()]})
    assert not kernel.commands


def test_operators_own_bridge_gets_no_tunnel(tmp_path: Path, kernel: Kernel) -> None:
    """Its other connections might lead here by the tunnel, too."""
    kernel.bridge("br1", network_id="")
    here = make(tmp_path)
    here.plug("i", [make_port()])
    here.set({"net-1": ["10.9.9.2"]})
    here.unplug("i")
    assert not kernel.commands


@pytest.mark.parametrize(
    ("local_ip", "my_ip", "address"),
    [
        (HERE, "127.0.0.1", HERE),
        (None, "10.1.1.1", "10.1.1.1"),
        (None, "127.0.0.1", None),
        (None, "host.example.org", None),
    ],
)
def test_tunnel_address_of_the_host(tmp_path: Path, local_ip: str | None, my_ip: str, address: str | None) -> None:
    assert make(tmp_path, local_ip, my_ip).address == address


def test_host_without_an_ipv4_address_is_an_error(tmp_path: Path, kernel: Kernel) -> None:
    kernel.bridge("br1")
    with pytest.raises(exceptions.VirtDriverError, match=r"\[vxlan\] local_ip"):
        make(tmp_path, None, "fd00::1").plug("i", [make_port()])


def test_rules_rejected_by_nft_are_an_error(tmp_path: Path, kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel.bridge("br1")
    monkeypatch.setattr(tunnels.nft, "run", lambda text: "no")
    with pytest.raises(exceptions.VirtDriverError, match="cannot be loaded: no"):
        make(tmp_path).plug("i", [make_port()])
    assert not kernel.commands, "nothing passes unfiltered"


def test_network_that_cannot_be_connected_blocks_no_other(
    tmp_path: Path, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_network(id="net-2", bridge="br2", vni=78)
    kernel.bridge("br1", "tap1")
    kernel.bridge("br2", "tap2", network_id="net-2")

    def run(*command: str) -> bytes:
        if "nlvx78" in command:
            raise exceptions.VirtDriverError(reason="no such device")
        return kernel.run(*command)

    monkeypatch.setattr(tunnels.images, "run", run)
    made = make(tmp_path)
    with pytest.raises(exceptions.VirtDriverError, match="no such device"):
        made.plug("bad", [make_vif(2, other)])
    made.plug("good", [make_port()])
    assert made.begin_query() == ["good"]
    make(tmp_path).prepare({"bad": [make_vif(2, other)], "good": [make_port()]})


FORWARDING = HostForwarding(
    floating="192.0.2.1",
    router_id="r",
    network_id="net-1",
    port_id="0f0f0f0f-aaaa",
    address="10.1.0.5",
    protocol="udp",
    external=(53, 53),
    internal=(5353, 5353),
    peer="10.9.9.2",
)
ROUTER = HostRouter(id="r", networks=[make_network(id="net-1", vni=77, cidr="10.1.0.0/24")], external=True)
#: MAC addresses of routed packets of both hosts, and of the gateway.
MINE, THEIRS, GATEWAY = "fe:16:0a:09:09:01", "fe:16:0a:09:09:02", "fa:16:3f:00:00:4d"


def test_host_of_a_floating_address_exchanges_packets_with_the_guest_of_another_host() -> None:
    rules = tunnels.forwarding_rules([FORWARDING], [ROUTER], HERE)
    sent, errors, received = rules.crossing
    assert sent == (f'iifname "nlg*" oifname "nlvx77" ip daddr 10.1.0.5 udp dport 5353 ether saddr set {MINE} accept')
    assert "ip daddr 10.1.0.5 icmp type { destination-unreachable" in errors
    assert received == 'iifname "nlvx77" oifname "nlg*" ip saddr 10.1.0.5 udp sport 5353 accept'
    assert rules.entering == (
        f'iifname "nlvx77" ether daddr {MINE} ip saddr 10.1.0.5 udp sport 5353 ether daddr set {GATEWAY}',
    )


def test_replies_of_a_guest_go_to_the_host_of_the_floating_address() -> None:
    rules = tunnels.forwarding_rules([msgspec.structs.replace(FORWARDING, is_held=False)], [ROUTER], HERE)
    assert rules == (
        (
            f'iifname "tap0f0f0f0f-aa" ether daddr {GATEWAY} ip saddr 10.1.0.5 udp sport 5353 '
            f"ip daddr != {{ 10.1.0.0/24, 169.254.169.254/32 }} ether daddr set {THEIRS}",
        ),
        (),
    )


@pytest.mark.parametrize("changes", [{"peer": None}, {"peer": "x"}, {"network_id": "net-2"}])
def test_forwarding_without_a_tunnel_has_no_rule_of_tunnels(changes: dict[str, str | None]) -> None:
    found = msgspec.structs.replace(FORWARDING, **changes)
    assert tunnels.forwarding_rules([found], [ROUTER], HERE) == ((), ())
    alone = msgspec.structs.replace(ROUTER, networks=[make_network(id="net-1", vni=None)])
    assert tunnels.forwarding_rules([FORWARDING], [alone], HERE) == ((), ())


def test_changed_forwardings_are_loaded_before_what_drops_packets(tmp_path: Path, kernel: Kernel) -> None:
    kernel.bridge("br1")
    made = make(tmp_path)
    made.prepare({"i": [make_port()]}, [ROUTER])
    made.set({"net-1": ["10.9.9.2"]})
    assert MINE not in kernel.rules[-1]
    made.set(None, [FORWARDING])
    rules, text = tunnels.forwarding_rules([FORWARDING], [ROUTER], HERE), kernel.rules[-1]
    dropped = text.index('iifname "nlvx*" oifname "nlg*" drop')
    assert all(text.index(line) < dropped for line in rules.crossing)
    assert all(line in text for line in rules.entering)
    made.set(None)
    assert MINE not in kernel.rules[-1]
    made.prepare({"i": [make_port()]}, [ROUTER], [FORWARDING])
    assert MINE in kernel.rules[-1], "stored ones hold from the start"
