"""Realms: addresses of gateways, static routes and neighbours. tests/integration/network sends packets through them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.objects import HostRouter, StaticRoute, Subnet6
from nova_lite.virt.libvirt.net import realms
from nova_lite.virt.libvirt.net.links import Links
from nova_lite.virt.libvirt.net.names import gateway_name, uplink_name
from tests.support.guests import make_network
from tests.unit.virt.libvirt.net.kernel import Kernel

NETWORK = make_network(id="net-1", bridge="br1", cidr="10.1.0.0/24", gateway="10.1.0.1", start="10.1.0.10")


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(tmp_path, monkeypatch)


@pytest.fixture
def here(kernel: Kernel, tmp_path: Path) -> realms.Realms:
    return realms.Realms(Links(str(tmp_path)))


# --- addresses


def test_gateway_has_an_address_of_each_version() -> None:
    dual = msgspec.structs.replace(NETWORK, cidr6="fd00:76::/64")
    assert realms.addresses(dual) == ["10.1.0.1/24", "fd00:76::1/64"]
    dual.subnet6 = Subnet6(gateway="fd00:76::ff")
    assert realms.addresses(dual) == ["10.1.0.1/24", "fd00:76::ff/64"]


@pytest.mark.parametrize(
    ("start", "end", "address"),
    [("10.1.0.10", "10.1.0.250", "10.1.0.1"), ("10.1.0.1", "10.1.0.250", "10.1.0.254")],
)
def test_network_without_a_gateway_has_the_host_outside_of_its_pool(start: str, end: str, address: str) -> None:
    changed = msgspec.structs.replace(NETWORK, gateway=None, start=start, end=end)
    assert realms.addresses(changed) == [f"{address}/24"]
    changed.host_address = "10.1.0.77"
    assert realms.addresses(changed) == ["10.1.0.77/24"], "the conductor's choice comes first"


def test_pool_without_an_address_for_the_host_is_rejected() -> None:
    with pytest.raises(exceptions.VirtDriverError, match="no address for the host"):
        realms.addresses(msgspec.structs.replace(NETWORK, gateway=None, start="10.1.0.1", end="10.1.0.254"))


@pytest.mark.parametrize(("changes", "text"), [({"gateway": "x"}, "invalid address"), ({"cidr": "x"}, "not IPv4: x")])
def test_network_with_an_invalid_address_is_rejected(changes: dict[str, str], text: str) -> None:
    with pytest.raises(exceptions.VirtDriverError, match=text):
        realms.addresses(msgspec.structs.replace(NETWORK, **changes))


# --- realms and gateways


def test_realm_is_made_once_and_removed_with_its_number(here: realms.Realms, kernel: Kernel) -> None:
    here.ensure("r")
    uplink = uplink_name("r")
    assert f"route replace 169.254.192.2/32 dev {uplink}" in kernel.lines[None]
    assert "route replace default via 169.254.192.1 dev nlup metric 4096" in kernel.lines["nl-r"]
    assert {"ipv4/ip_forward=1", "ipv4/conf/all/rp_filter=0"} <= {*kernel.settings["nl-r"]}
    done = len(kernel.lines[None])
    here.ensure("r")
    assert len(kernel.lines[None]) == done
    here.ensure("s")
    here.remove("r")
    assert kernel.namespaces == {"nl-s"} and not (kernel.net / uplink).exists()
    assert here.numbers.number("t") == 2, "the number is free again"
    here.remove("r")


@pytest.mark.parametrize("bad", ["../x", "a b", "", "-a", "a\nlink delete eth0"])
def test_ids_of_other_texts_reach_no_command(here: realms.Realms, kernel: Kernel, bad: str) -> None:
    with pytest.raises(exceptions.VirtDriverError, match="is not a plain name"):
        here.ensure(bad)
    with pytest.raises(exceptions.VirtDriverError, match="is not a plain name"):
        here.make_bridge(msgspec.structs.replace(NETWORK, id=bad))
    assert (kernel.lines, kernel.namespaces) == ({}, set())


def test_gateway_whose_namespace_is_gone_is_made_again(here: realms.Realms, kernel: Kernel) -> None:
    here.make_bridge(NETWORK)
    assert here.place(NETWORK, "r")
    assert not here.place(NETWORK, "r")
    kernel.namespaces.clear()
    assert here.place(NETWORK, "r")
    assert (realms.realm_of("net-1"), realms.used()) == ("r", {"r"})


def test_bridge_with_guests_is_not_withdrawn(here: realms.Realms, kernel: Kernel) -> None:
    here.make_bridge(NETWORK)
    here.place(NETWORK, "r")
    (kernel.net / "br1/brif/tap0").touch()
    assert not here.withdraw("net-1", "br1")
    (kernel.net / "br1/brif/tap0").rename(kernel.net / "br1/brif/nlvx7")
    assert here.withdraw("net-1", realms.bridge_of("net-1"))
    assert (realms.bridge_of("net-1"), realms.realm_of("net-1"), realms.used()) == ("", None, set())
    assert not (kernel.net / gateway_name("net-1")).exists()


def test_device_of_somebody_else_is_no_bridge_of_ours(kernel: Kernel) -> None:
    kernel.bridge("br1", alias="uplink of the office")
    kernel.bridge("br2", alias="nova-lite:net-1")
    assert (realms.network_on("br1"), realms.network_on("missing")) == (None, None)
    assert (realms.network_on("br2"), realms.bridge_of("net-1")) == ("net-1", "br2")


# --- static routes


def router(*nexthops: str) -> HostRouter:
    routes = [StaticRoute(destination=f"10.9.{i}.0/24", nexthop=nexthop) for i, nexthop in enumerate(nexthops)]
    return HostRouter(id="r", external=False, networks=[NETWORK], routes=routes)


def test_route_that_linux_refuses_is_left_out() -> None:
    assert realms.routes(router("10.1.0.255", "10.1.0.9", "10.1.0.0", "10.7.0.1"), 4) == {
        "10.9.1.0/24": "via 10.1.0.9 dev br1"
    }


def test_route_of_ipv6_is_one_of_its_own_version(caplog: pytest.LogCaptureFixture) -> None:
    dual = msgspec.structs.replace(NETWORK, cidr6="fd01::/64")
    made = router("10.1.0.9")
    made.networks = [dual, make_network(id="net-2", bridge="br2", cidr="10.2.0.0/24", cidr6="fd02::/64")]
    routes = {"fd01::ffff": "fd09::/64", "fd01::": "fd08::/64", "fd07::1": "fd07::/64", "10.1.0.9": "fd06::/64"}
    made.routes6 = [StaticRoute(destination=to, nexthop=nexthop) for nexthop, to in routes.items()]
    assert realms.routes(made, 6) == {"fd09::/64": "via fd01::ffff dev br1"}
    assert "fd06::/64 through 10.1.0.9 is not a route of IPv6" in caplog.text
    made.only = {"net-1": 4}
    assert realms.routes(made, 6) == {}, "the router does not connect the subnet of the next machine"


def test_host_has_a_link_local_address_on_an_uplink_to_look_for_its_neighbour(
    here: realms.Realms, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(realms, "_has_ipv6", lambda: True)
    here.ensure("r")
    assert f"address add fe80::1/64 dev {uplink_name('r')} nodad" in kernel.lines[None]


def test_static_routes_of_a_realm_are_exact(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(realms, "_has_ipv6", lambda: False)
    kernel.shown["ip -json -4 route show proto static"] = (
        '[{"dst": "10.9.0.0/24"}, {"dst": "default"}, {"dst": "10.8.0.7"}]'
    )
    realms.set_routes(router("10.1.0.9"))
    assert kernel.lines == {
        "nl-r": [
            "route replace 10.9.0.0/24 via 10.1.0.9 dev br1 proto static",
            "route delete 0.0.0.0/0 proto static",
            "route delete 10.8.0.7/32 proto static",
        ]
    }


def test_failed_route_is_logged(kernel: Kernel, caplog: pytest.LogCaptureFixture) -> None:
    kernel.broken = "route replace"
    realms.set_routes(router("10.1.0.9"))
    assert "Static routes of router r do not hold: " in caplog.text and "ip: route replace" in caplog.text


# --- neighbours


def test_neighbours_are_exact(kernel: Kernel) -> None:
    show = "ip -json neigh show dev br1 nud permanent"
    kernel.shown[show] = (
        '[{"dst": "10.1.0.5", "lladdr": "fa:16:3e:00:00:05"}, {"dst": "10.1.0.6", "lladdr": "fa:16:3e:00:00:06"}]'
    )
    known = {"10.1.0.6": "FA:16:3E:00:00:07", "10.1.0.7": "fa:16:3e:00:00:08", "x": "fa:16:3e:00:00:09", "10.1.0.8": ""}
    realms.set_neighbours(NETWORK, "r", known)
    assert kernel.lines.pop("nl-r") == [
        "neigh del 10.1.0.5 dev br1",
        "neigh replace 10.1.0.6 lladdr fa:16:3e:00:00:07 dev br1 nud permanent",
        "neigh replace 10.1.0.7 lladdr fa:16:3e:00:00:08 dev br1 nud permanent",
    ]
    kernel.shown[show] = '[{"dst": "10.1.0.6", "lladdr": "fa:16:3e:00:00:07"}]'
    realms.set_neighbours(NETWORK, "r", {"10.1.0.6": "fa:16:3e:00:00:07"})
    assert kernel.lines == {}
    realms.set_neighbours(NETWORK, "r", {})
    assert kernel.lines == {"nl-r": ["neigh del 10.1.0.6 dev br1"]}


def test_failed_neighbour_is_logged(kernel: Kernel, caplog: pytest.LogCaptureFixture) -> None:
    kernel.broken = "neigh"
    realms.set_neighbours(NETWORK, "r", {"10.1.0.6": "fa:16:3e:00:00:07"})
    assert (
        "Guests of other hosts on network net-1 are not reached by routers: " in caplog.text
        and "ip: neigh replace" in caplog.text
    )


# --- what a killed daemon has left


@pytest.mark.parametrize("part", ["alias r", f"alias {realms.ALIAS}net-1", "name br1", "master br1", "dev lo up"])
def test_network_that_was_made_in_part_is_made_whole(here: realms.Realms, kernel: Kernel, part: str) -> None:
    kernel.broken = part
    with pytest.raises(exceptions.VirtDriverError), here.numbers.lock():
        here.make_bridge(NETWORK)
        here.place(NETWORK, "r")
    kernel.broken = None
    with here.numbers.lock():
        here.make_bridge(NETWORK)
        here.place(NETWORK, "r")
    assert (realms.realm_of("net-1"), realms.network_on("br1")) == ("r", "net-1")
    assert kernel.inner["nl-r"]["br1"]["addr_info"], "the gateway has its address"
    assert (kernel.net / uplink_name("r") / "ifalias").read_text() == "r"
    assert realms.members("br1") == {gateway_name("net-1")}
    assert kernel.lines["nl-r"].count("link set dev lo up") == 1 + (part == "alias r")
