"""Routers of a host: which of their networks start, and what is stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.objects import HostRouter, Network
from nova_lite.virt.libvirt.net import tunnels
from nova_lite.virt.libvirt.net.routers import HostRouters
from tests.support.guests import make_network

ONE = make_network(id="net-1", bridge="br1", cidr="10.1.0.0/24", gateway="10.1.0.1", vni=101, needs_router=True)
TWO = make_network(id="net-2", bridge="br2", cidr="10.2.0.0/24", gateway="10.2.0.1", vni=102, needs_router=True)


class Networks:
    """Networks of a host. ``foreign``: ids of networks on an operator's bridge. ``broken``: ids of networks that fail.

    ``calls``: starts of networks, with the routers that were known, and routings, in order.
    """

    def __init__(self) -> None:
        self.foreign: set[str] = set()
        self.broken: set[str] = set()
        self.known: list[HostRouter] = []
        self.calls: list[str] = []
        self.routed: list[HostRouter] = []

    def set_routers(self, routers: list[HostRouter]) -> None:
        self.known = routers

    def start(self, network: Network) -> bool:
        if network.id in self.broken:
            raise exceptions.VirtDriverError(reason="the bridge exists")
        self.calls.append(f"start {network.id} of {[router.id for router in self.known]}")
        return network.id not in self.foreign

    def route(self, routers: list[HostRouter]) -> None:
        self.calls.append("route")
        self.routed = routers


def make(path: Path, networks: Networks) -> HostRouters:
    return HostRouters(networks, "host-a", str(path))  # type: ignore[arg-type]


def test_network_of_a_router_starts_in_its_realm_at_once(tmp_path: Path) -> None:
    networks = Networks()
    make(tmp_path, networks).set([HostRouter(id="r", networks=[ONE, TWO])])
    assert networks.calls == ["start net-1 of ['r']", "start net-2 of ['r']", "route"]


def test_stored_routers_are_known_before_guests_networks_start(tmp_path: Path) -> None:
    make(tmp_path, Networks()).set([HostRouter(id="r", networks=[ONE])])
    networks = Networks()
    make(tmp_path, networks).read()
    assert ([router.id for router in networks.known], networks.calls) == (["r"], [])


def test_network_that_cannot_be_started_does_not_stop_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    networks = Networks()
    networks.foreign, networks.broken = {ONE.id}, {"net-3"}
    here = make(tmp_path, networks)
    here.set([HostRouter(id="r", networks=[ONE, TWO, make_network(id="net-3")])])
    for routers in (here.active, networks.routed):
        assert [[item.id for item in router.networks] for router in routers] == [[TWO.id]]
    assert "has a bridge of the operator's" in caplog.text and "the bridge exists" in caplog.text


def test_routers_are_kept_over_a_restart_and_while_the_conductor_is_older(tmp_path: Path) -> None:
    wanted = [HostRouter(id="r", networks=[ONE, TWO], external=True)]
    make(tmp_path, Networks()).set(wanted)
    here = make(tmp_path, Networks())
    here.read()
    here.prepare(needed=False)
    assert here.active == []
    here.resume()
    assert here.active == wanted
    here.set(None)
    assert here.active == wanted
    here.suspend()
    assert here.active == []
    again = make(tmp_path, Networks())
    again.read()
    again.prepare(needed=True)
    assert again.active == wanted
    (path,) = tmp_path.iterdir()
    path.write_text("{")
    again.read()
    again.prepare(needed=True)
    assert again.active == []


def test_routed_packets_enter_tunnels_with_the_address_of_the_host() -> None:
    local = make_network(id="net-3", bridge="br3")
    lines = tunnels.passing_rules([HostRouter(id="r", networks=[ONE, TWO, local])], "10.9.9.1")
    assert lines == [
        'iifname "nlg*" oifname "nlvx101" ip saddr { 10.2.0.0/24 } ether saddr set fe:16:0a:09:09:01 accept',
        'iifname "nlg*" oifname "nlvx102" ip saddr { 10.1.0.0/24 } ether saddr set fe:16:0a:09:09:01 accept',
    ]
    text = tunnels.ruleset("t", 4789, [], True, lines)
    assert text.index("ether saddr set") < text.index('iifname "nlg*" oifname "nlvx*" drop\n  }')
