"""Routers of a host: the chains before libvirt's, the neighbours, and what is stored."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.objects import HostRouter, Network
from nova_lite.virt.libvirt.net import floating_ips, names, routers, tunnels
from nova_lite.virt.libvirt.net.firewall import Routing, default_routing
from nova_lite.virt.libvirt.net.routers import HostRouters
from tests.support.guests import make_network, make_vif

ONE = make_network(id="net-1", bridge="br1", cidr="10.1.0.0/24", gateway="10.1.0.1", vni=101, needs_router=True)
TWO = make_network(id="net-2", bridge="br2", cidr="10.2.0.0/24", gateway="10.2.0.1", vni=102, needs_router=True)


class Kernel:
    """Programs that record their input. ``permanent``: neighbours by address."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loaded: list[str] = []
        self.commands: list[str] = []
        self.parents = {"filter": ["LIBVIRT_FWI"], "nat": ["LIBVIRT_PRT"]}
        self.permanent: dict[str, str] = {}
        self.missing: set[str] = set()
        monkeypatch.setattr(routers.subprocess, "run", self._input)
        monkeypatch.setattr(routers.images, "run", self._run)
        monkeypatch.setattr(routers.os.path, "exists", lambda path: True)

    def _input(self, command: tuple[str, ...], input: str, **_: Any) -> Any:
        if command[0] in self.missing:
            raise FileNotFoundError(2, "No such file or directory")
        self.loaded.append(input)
        return SimpleNamespace(returncode=0, stderr="")

    def _run(self, *command: str) -> bytes:
        if command[0] == "ip":
            shown = [{"dst": address, "lladdr": mac} for address, mac in self.permanent.items()]
            return json.dumps(shown).encode()
        table, parent = command[3], command[5]
        targets = self.parents[table]
        if command[4] == "-S":
            return "".join([f"-P {parent} ACCEPT\n", *(f"-A {parent} -j {name}\n" for name in targets)]).encode()
        self.commands.append(" ".join(command))
        if command[4] == "-D":
            targets.remove(command[7])
        else:
            targets.insert(0, command[7])
        return b""


class Networks:
    """Networks of a host. ``foreign``: ids of networks on an operator's bridge."""

    def __init__(self, *known: Network) -> None:
        self._known = {network.id: network for network in known}
        self.routing: dict[str, Routing] = {}
        self.foreign: set[str] = set()
        self.broken: set[str] = set()

    def start(self, network: Network) -> bool:
        if network.id in self.broken:
            raise exceptions.VirtDriverError(reason="the bridge exists")
        self._known[network.id] = network
        return network.id not in self.foreign

    def set_routing(self, routing: dict[str, Routing]) -> None:
        self.routing = routing

    def routed(self) -> Iterable[tuple[Network, Routing]]:
        return [(item, self.routing.get(item.id, default_routing(item))) for item in self._known.values()]


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


def make(path: Path, networks: Networks) -> HostRouters:
    return HostRouters(networks, "host-a", str(path))  # type: ignore[arg-type]


def test_chain_accepts_only_what_libvirt_would_refuse() -> None:
    old = make_network(id="net-3", bridge="br3", cidr="10.3.0.0/24")
    closed = make_network(id="net-4", bridge="br4", cidr="10.4.0.0/24", needs_router=True)
    known = [
        (ONE, Routing(("br2",), external=False)),
        (TWO, Routing(("br1",), external=True, snat=False)),
        (old, default_routing(old)),
        (closed, default_routing(closed)),
    ]
    text = routers.accepting("CHAIN", known)
    assert text.split("\n") == [
        "*filter",
        ":CHAIN - [0:0]",
        "-A CHAIN -i br1 -o br2 -j ACCEPT",
        "-A CHAIN -i br2 -o br1 -j ACCEPT",
        "-A CHAIN -o br2 -m conntrack --ctstate DNAT -j ACCEPT",
        "-A CHAIN -o br2 -j ACCEPT",
        "-A CHAIN -o br3 -m conntrack --ctstate DNAT -j ACCEPT",
        "COMMIT",
        "*nat",
        ":CHAIN - [0:0]",
        "-A CHAIN -s 10.1.0.0/24 -o br2 -j ACCEPT",
        "-A CHAIN -s 10.2.0.0/24 -o br1 -j ACCEPT",
        "-A CHAIN -s 10.2.0.0/24 -j ACCEPT",
        "COMMIT",
        "",
    ]
    assert routers.accepting("CHAIN", known, 6) == ""
    bad = make_network(id="net-5", bridge="br5 -j ACCEPT")
    assert routers.accepting("CHAIN", [(bad, Routing())]) == ""


def test_name_of_the_chain_is_short_enough() -> None:
    found = {names.chain_name(host) for host in ("host-a", "host-b", "h" * 300, "\ud800")}
    assert len(found) == 4 and all(len(name) <= 28 for name in found)


def test_chain_comes_before_those_of_libvirt(tmp_path: Path, kernel: Kernel) -> None:
    here, chain = make(tmp_path, Networks(ONE, TWO)), names.chain_name("host-a")
    kernel.parents["nat"] = ["NOVA_LITE_other", "LIBVIRT_PRT", chain]
    here.set([HostRouter(id="r", networks=[ONE, TWO])])
    assert kernel.parents == {"filter": [chain, "LIBVIRT_FWI"], "nat": [chain, "NOVA_LITE_other", "LIBVIRT_PRT"]}
    kernel.commands.clear()
    here.set([HostRouter(id="r", networks=[ONE, TWO], external=True)])
    assert kernel.commands == [], "another daemon's chain may be first"
    assert len(kernel.loaded) == 2
    here.set([HostRouter(id="r", networks=[ONE, TWO], external=True)])
    assert len(kernel.loaded) == 2, "unchanged rules are loaded once"


def test_host_without_iptables_is_reported(tmp_path: Path, kernel: Kernel, caplog: pytest.LogCaptureFixture) -> None:
    kernel.missing = {"iptables-restore"}
    networks = Networks()
    here = make(tmp_path, networks)
    here.set([HostRouter(id="r", networks=[ONE, TWO])])
    assert networks.routing[ONE.id] == Routing(("br2",), external=False)
    assert "iptables-restore cannot be run" in caplog.text
    kernel.missing = set()
    here.set([HostRouter(id="r", networks=[ONE, TWO])])
    assert len(kernel.loaded) == 1


def test_neighbours_are_exact(tmp_path: Path, kernel: Kernel) -> None:
    here = make(tmp_path, Networks())
    kernel.permanent = {"10.1.0.5": "fa:16:3e:00:00:05", "10.1.0.6": "fa:16:3e:00:00:06"}
    known = {"10.1.0.6": "FA:16:3E:00:00:07", "10.1.0.7": "fa:16:3e:00:00:08", "x": "fa:16:3e:00:00:09", "10.1.0.8": ""}
    here.set([HostRouter(id="r", networks=[ONE], neighbours={ONE.id: known})])
    assert kernel.loaded[-1].split("\n") == [
        "neigh del 10.1.0.5 dev br1",
        "neigh replace 10.1.0.6 lladdr fa:16:3e:00:00:07 dev br1 nud permanent",
        "neigh replace 10.1.0.7 lladdr fa:16:3e:00:00:08 dev br1 nud permanent",
        "",
    ]
    kernel.permanent = {"10.1.0.6": "fa:16:3e:00:00:07", "10.1.0.7": "fa:16:3e:00:00:08"}
    here.set([])
    assert kernel.loaded[-1] == "neigh del 10.1.0.6 dev br1\nneigh del 10.1.0.7 dev br1\n"


def test_network_that_cannot_be_started_does_not_stop_the_others(
    tmp_path: Path, kernel: Kernel, caplog: pytest.LogCaptureFixture
) -> None:
    networks = Networks()
    networks.foreign, networks.broken = {ONE.id}, {"net-3"}
    here = make(tmp_path, networks)
    here.set([HostRouter(id="r", networks=[ONE, TWO, make_network(id="net-3")])])
    assert [[item.id for item in router.networks] for router in here.active] == [[TWO.id]]
    assert "a bridge that is not libvirt's" in caplog.text and "the bridge exists" in caplog.text


def test_routers_are_kept_over_a_restart_and_while_the_conductor_is_older(tmp_path: Path, kernel: Kernel) -> None:
    wanted = [HostRouter(id="r", networks=[ONE, TWO], external=True)]
    make(tmp_path, Networks()).set(wanted)
    here = make(tmp_path, Networks())
    here.prepare(needed=False)
    assert here.active == []
    here.resume()
    assert here.active == wanted
    here.set(None)
    assert here.active == wanted
    here.suspend()
    assert here.active == []
    again = make(tmp_path, Networks())
    again.prepare(needed=True)
    assert again.active == wanted
    (path,) = tmp_path.iterdir()
    path.write_text("{")
    again.prepare(needed=True)
    assert again.active == []


def test_failure_of_a_program_is_an_error() -> None:
    with pytest.raises(exceptions.VirtDriverError, match="sh: no"):
        routers._run("sh", "-s", text="echo no >&2; exit 3")


def test_floating_address_is_not_shown_to_connected_networks() -> None:
    vif = make_vif(network=ONE, address="10.1.0.5")
    text = floating_ips.ruleset("t", {"192.0.2.1": vif}, {ONE.id: ["br2"]})
    assert 'oifname != { "br1", "br2" } ip saddr 10.1.0.5 snat ip to 192.0.2.1' in text


def test_routed_packets_enter_tunnels_with_the_address_of_the_host() -> None:
    local = make_network(id="net-3", bridge="br3")
    lines = tunnels.passing_rules([HostRouter(id="r", networks=[ONE, TWO, local])], "10.9.9.1")
    assert lines == [
        'oifname "nlvx101" ip saddr { 10.2.0.0/24 } ether saddr set fe:16:0a:09:09:01 accept',
        'oifname "nlvx102" ip saddr { 10.1.0.0/24 } ether saddr set fe:16:0a:09:09:01 accept',
    ]
    text = tunnels.ruleset("t", 4789, [], True, lines)
    assert text.index("ether saddr set") < text.index('oifname "nlvx*" drop\n  }\n}')
