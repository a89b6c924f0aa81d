"""Static routes of routers on a host: what one project asks for keeps no other project from its routes."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from nova_lite.virt.libvirt.net.static_routes import StaticRoutes, table_number, tables

from nova_lite.base import exceptions
from nova_lite.objects import HostRouter, StaticRoute
from nova_lite.virt.libvirt.net import static_routes
from tests.support.guests import make_network

NETWORK = make_network(id="net-1", bridge="br1", cidr="10.1.0.0/24", gateway="10.1.0.1")


def router(*nexthops: str) -> HostRouter:
    routes = [StaticRoute(destination=f"10.9.{i}.0/24", nexthop=nexthop) for i, nexthop in enumerate(nexthops)]
    return HostRouter(id="router", external=False, networks=[NETWORK], routes=routes)


def test_route_that_linux_refuses_is_left_out() -> None:
    found, leads = tables([router("10.1.0.255", "10.1.0.9", "10.1.0.0")], 4)
    assert found == {
        table_number("router"): {"10.9.1.0/24": "via 10.1.0.9 dev br1", "10.1.0.0/24": "dev br1 scope link"}
    }
    assert leads == {"br1": table_number("router")}
    assert tables([router("10.1.0.255")], 4) == ({}, {})


def test_route_of_ipv6_has_a_table_of_its_own_version(caplog: pytest.LogCaptureFixture) -> None:
    dual = msgspec.structs.replace(NETWORK, cidr6="fd01::/64")
    made = router("10.1.0.9")
    made.networks = [dual, make_network(id="net-2", bridge="br2", cidr="10.2.0.0/24", cidr6="fd02::/64")]
    routes = {"fd01::ffff": "fd09::/64", "fd01::": "fd08::/64", "fd07::1": "fd07::/64", "10.1.0.9": "fd06::/64"}
    made.routes6 = [StaticRoute(destination=to, nexthop=nexthop) for nexthop, to in routes.items()]
    number = table_number("router")
    both = {"fd09::/64": "via fd01::ffff dev br1", "fd01::/64": "dev br1 scope link", "fd02::/64": "dev br2 scope link"}
    assert tables([made], 6) == ({number: both}, {"br1": number, "br2": number})
    assert "fd06::/64 through 10.1.0.9 is not a route of IPv6" in caplog.text
    assert "fd09::/64" not in tables([made], 4)[0][number]
    made.only = {"net-1": 4}
    assert tables([made], 6) == ({}, {}), "the router does not connect the subnet of the next machine"


def test_failed_command_leaves_packets_of_other_routers_accepted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opened: list[str] = []

    def fake_open(path: str, mode: str) -> Any:
        opened.append(path)
        return io.StringIO()

    def fail(lines: list[str], version: int) -> None:
        raise exceptions.VirtDriverError(reason="ip: Nexthop has invalid gateway")

    monkeypatch.setattr(static_routes, "open", fake_open, raising=False)
    monkeypatch.setattr(static_routes, "_shown", lambda *words: [])
    monkeypatch.setattr(static_routes, "_batch", fail)
    StaticRoutes().set([router("10.1.0.9")], [NETWORK])
    assert "Nexthop has invalid gateway" in caplog.text
    assert opened == ["/proc/sys/net/ipv4/conf/br1/rp_filter"]


def test_bridge_whose_filter_cannot_be_set_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: str, mode: str) -> Any:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(static_routes, "open", refuse, raising=False)
    static_routes._accept_routed_sources("nlbr1")
    assert "Bridge nlbr1 may drop packets of static routes: [Errno 13]" in caplog.text
    caplog.clear()
    monkeypatch.undo()
    static_routes._accept_routed_sources("no-such-bridge")
    assert caplog.text == ""
