"""Port forwardings: ports of a floating address that lead to ports of interfaces."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from nova_lite.db.network import port_forwardings
from tests.support.api_client import ADMIN, STRANGER
from tests.unit.api.network.conftest import Api

NOBODY = "00000000-0000-4000-8000-000000000000"


class Scene(NamedTuple):
    """A routed network with two ports, and a floating address."""

    router: dict[str, Any]
    network: dict[str, Any]
    ports: list[dict[str, Any]]
    floating: dict[str, Any]

    @property
    def url(self) -> str:
        return f"/floatingips/{self.floating['id']}/port_forwardings"


def routed(api: Api, cidr: str, number: int = 2) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    network = api.make("/networks", "network", name=cidr)
    subnet = api.make("/subnets", "subnet", network_id=network["id"], ip_version=4, cidr=cidr)
    router = api.make("/routers", "router", external_gateway_info={"network_id": api.pool.id})
    added = api("PUT", f"/routers/{router['id']}/add_router_interface", {"subnet_id": subnet["id"]})
    assert added.status_code == 200, added.text
    return router, network, [api.port(network_id=network["id"]) for _ in range(number)]


@pytest.fixture
def scene(api: Api) -> Scene:
    limits = {"quota": {"port": 20, "network": 9}}
    assert api("PUT", "/quotas/demo", limits, ADMIN).status_code == 200
    made = routed(api, "10.64.1.0/24")
    return Scene(*made, api.make("/floatingips", "floatingip", floating_network_id=api.pool.id))


def wanted(port: dict[str, Any], external: int | str = 2222, internal: int | str = 22, **more: Any) -> dict[str, Any]:
    kinds = {int: "port", str: "port_range"}
    ports = {f"external_{kinds[type(external)]}": external, f"internal_{kinds[type(internal)]}": internal}
    return {"internal_port_id": port["id"], "protocol": "tcp", **ports, **more}


def forward(api: Api, scene: Scene, port: int = 0, *ports: Any, **more: Any) -> dict[str, Any]:
    return api.make(scene.url, "port_forwarding", **wanted(scene.ports[port], *ports, **more))


def refused(api: Api, scene: Scene, body: dict[str, Any], status: int, kind: str, text: str) -> None:
    api.refused("POST", scene.url, {"port_forwarding": body}, status, kind, text)


def address(port: dict[str, Any]) -> str:
    return str(port["fixed_ips"][0]["ip_address"])


def test_forwarding_is_made_shown_changed_and_deleted(api: Api, scene: Scene) -> None:
    first, second = scene.ports
    made = forward(api, scene, description="ssh")
    assert made == {
        "id": made["id"],
        "internal_port_id": first["id"],
        "internal_ip_address": address(first),
        "internal_port": 22,
        "internal_port_range": "22:22",
        "external_port": 2222,
        "external_port_range": "2222:2222",
        "protocol": "tcp",
        "description": "ssh",
    }
    url = f"{scene.url}/{made['id']}"
    assert api.get(url) == {"port_forwarding": made}
    assert api.get(f"{url}?fields=protocol") == {"port_forwarding": {"protocol": "tcp"}}
    changes = {"internal_port_id": second["id"], "external_port_range": "80:81", "protocol": "UDP", "description": None}
    changed = api("PUT", url, {"port_forwarding": changes | {"internal_port_range": "80:81"}}).json["port_forwarding"]
    assert changed == made | {
        "internal_port_id": second["id"],
        "internal_ip_address": address(second),
        "internal_port": None,
        "internal_port_range": "80:81",
        "external_port": None,
        "external_port_range": "80:81",
        "protocol": "udp",
        "description": "",
    }
    assert api("PUT", url, {"port_forwarding": {"description": "x"}}).json["port_forwarding"]["description"] == "x"
    assert api("DELETE", url).status_code == 204
    api.refused("GET", url, None, 404, "PortForwardingNotFound", made["id"])
    assert api.get(scene.url) == {"port_forwardings": []}


def test_list_has_filters_and_pages(api: Api, scene: Scene) -> None:
    made = [forward(api, scene, 0, port, port) for port in (80, 443)] + [forward(api, scene, 1, 53, 53, protocol="udp")]
    ids = sorted(item["id"] for item in made)
    assert [item["id"] for item in api.get(scene.url)["port_forwardings"]] == ids
    for query, number in (
        ("external_port=443", 1),
        ("protocol=udp", 2),
        (f"internal_port_id={scene.ports[1]['id']}", 2),
    ):
        assert [item["id"] for item in api.get(f"{scene.url}?{query}")["port_forwardings"]] == [made[number]["id"]]
    page = api.get(f"{scene.url}?limit=2")
    assert [item["id"] for item in page["port_forwardings"]] == ids[:2]
    rest = api.get(f"{scene.url}?limit=2&marker={ids[1]}")
    assert [item["id"] for item in rest["port_forwardings"]] == ids[2:]
    api.refused("GET", f"{scene.url}?floating=1", None, 400, "HTTPBadRequest", "floating")


def test_floating_address_shows_its_forwardings(api: Api, scene: Scene) -> None:
    before = api.get(f"/floatingips/{scene.floating['id']}")["floatingip"]
    assert (before["port_forwardings"], before["router_id"], before["status"]) == ([], None, "DOWN")
    made = [forward(api, scene, 0, port, port) for port in (80, 443)]
    for shown in (
        api.get(f"/floatingips/{scene.floating['id']}")["floatingip"],
        *api.get("/floatingips")["floatingips"],
    ):
        assert shown["port_forwardings"] == sorted(made, key=lambda item: str(item["id"]))
        assert (shown["router_id"], shown["status"], shown["port_id"]) == (scene.router["id"], "ACTIVE", None)


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        ({"internal_port": 0}, "HTTPBadRequest", "from 1 to 65535"),
        ({"external_port": 65536}, "HTTPBadRequest", "from 1 to 65535"),
        ({"external_port": None}, "HTTPBadRequest", "'external_port' not specified"),
        ({"internal_port": None}, "HTTPBadRequest", "'internal_port' not specified"),
        ({"protocol": "icmp"}, "HTTPBadRequest", "It must be one of tcp, udp"),
        ({"protocol": None}, "HTTPBadRequest", "'protocol' not specified"),
        ({"internal_port_id": None}, "HTTPBadRequest", "'internal_port_id' not specified"),
        ({"internal_port_id": "x"}, "HTTPBadRequest", "UUID"),
        ({"internal_ip_address": "10.64.1"}, "HTTPBadRequest", "IP address"),
        ({"internal_ip_address": "10.64.1.250"}, "BadRequest", "is not suitable"),
        ({"external_port_range": "9:8"}, "HTTPBadRequest", "the lower one first"),
        ({"external_port_range": "0:8"}, "HTTPBadRequest", "from 1 to 65535"),
        ({"external_port_range": "8-9"}, "HTTPBadRequest", "with a colon"),
        ({"external_port_range": "8:9"}, "HTTPBadRequest", "Give it or external_port"),
        ({"external_port": None, "external_port_range": "1:3", "internal_port": None, "internal_port_range": "1:2"},
         "BadRequest", "must be N-N or 1-N"),
        ({"floatingip_id": NOBODY}, "HTTPBadRequest", "floatingip_id"),
    ],
)  # fmt: skip
def test_invalid_forwarding_is_refused(api: Api, scene: Scene, changes: dict[str, Any], kind: str, text: str) -> None:
    refused(api, scene, wanted(scene.ports[0]) | changes, 400, kind, text)
    assert api.get(scene.url) == {"port_forwardings": []}


def test_range_of_ports_leads_to_as_many_or_to_one(api: Api, scene: Scene) -> None:
    assert forward(api, scene, 0, "8000:8010", "80:90")["external_port"] is None
    assert forward(api, scene, 0, "9000:9010", 22)["internal_port"] == 22
    assert forward(api, scene, 0, 22, "22:22", protocol="udp", internal_ip_address=address(scene.ports[0]))


def test_ranges_that_collide_are_refused(api: Api, scene: Scene) -> None:
    forward(api, scene, 0, "80:90", "180:190")
    collision = "There is a port collision with the {}_port_range."
    for external in ("70:80", "90:95", "85:86", "70:95"):
        size = int(external[-2:]) - int(external[:2])
        body = wanted(scene.ports[1], external, f"1000:{1000 + size}")
        refused(api, scene, body, 400, "BadRequest", collision.format("external"))
    refused(api, scene, wanted(scene.ports[0], 1000, 190), 400, "BadRequest", collision.format("internal"))
    assert forward(api, scene, 1, 79, 180)
    assert forward(api, scene, 0, 85, 185, protocol="udp")
    more = api.make("/floatingips", "floatingip", floating_network_id=api.pool.id)
    other = scene._replace(floating=more)
    refused(api, other, wanted(scene.ports[0], 85, 185), 400, "BadRequest", collision.format("internal"))
    made = forward(api, other, 0, 85, 85)
    body = {"port_forwarding": {"internal_port": 185}}
    api.refused("PUT", f"{other.url}/{made['id']}", body, 400, "BadRequest", collision.format("internal"))
    same = {"port_forwarding": {"internal_port": 85, "external_port": 85}}
    assert api("PUT", f"{other.url}/{made['id']}", same).status_code == 200, "it does not collide with itself"


def test_address_leads_to_one_port_or_has_forwardings(api: Api, scene: Scene) -> None:
    first, second = (port["id"] for port in scene.ports)
    url = f"/floatingips/{scene.floating['id']}"
    made = forward(api, scene)
    used = (409, "FipInUseByPortForwarding", scene.floating["id"])
    api.refused("PUT", url, {"floatingip": {"port_id": second}}, *used)
    api.refused("DELETE", url, None, *used)
    assert api("PUT", url, {"floatingip": {"port_id": None, "description": "x"}}).status_code == 200
    more = {"floating_network_id": api.pool.id, "port_id": first}
    api.refused("POST", "/floatingips", {"floatingip": more}, 400, "PortHasPortForwarding", first)
    assert api("DELETE", f"{scene.url}/{made['id']}").status_code == 204
    assert api("PUT", url, {"floatingip": {"port_id": second}}).status_code == 200
    refused(api, scene, wanted(scene.ports[0]), 409, "FloatingIPPortAlreadyAssociated", second)
    other = scene._replace(floating=api.make("/floatingips", "floatingip", floating_network_id=api.pool.id))
    refused(api, other, wanted(scene.ports[1]), 409, "PortHasBindingFloatingIP", second)
    assert api("DELETE", url).status_code == 204


def test_port_is_behind_the_router_of_the_address(api: Api, scene: Scene) -> None:
    unreached = "is not reachable from network"
    refused(api, scene, wanted(api.port()), 400, "BadRequest", unreached)
    alone = api.make("/networks", "network", name="alone")
    api.make("/subnets", "subnet", network_id=alone["id"], ip_version=4, cidr="10.64.3.0/24")
    refused(api, scene, wanted(api.port(network_id=alone["id"])), 400, "BadRequest", unreached)
    forward(api, scene)
    *_, (apart,) = routed(api, "10.64.2.0/24", 1)
    refused(api, scene, wanted(apart, 23, 23), 400, "BadRequest", f"set on router {scene.router['id']}")


def test_router_stays_while_forwardings_need_it(api: Api, scene: Scene) -> None:
    made = forward(api, scene)
    url, gateway = f"/routers/{scene.router['id']}", {"router": {"external_gateway_info": None}}
    leave = {"subnet_id": api.subnet_of(scene.network["id"])}
    api.refused("PUT", url, gateway, 409, "RouterExternalGatewayInUseByFloatingIp", scene.router["id"])
    api.refused(
        "PUT", f"{url}/remove_router_interface", leave, 409, "RouterInterfaceInUseByFloatingIP", leave["subnet_id"]
    )
    assert api("DELETE", f"{scene.url}/{made['id']}").status_code == 204
    assert api("PUT", f"{url}/remove_router_interface", leave).status_code == 200


def test_forwardings_go_with_their_port_and_its_address(api: Api, scene: Scene) -> None:
    forward(api, scene, 0)
    kept = forward(api, scene, 1, 80, 80)
    assert api("DELETE", f"/ports/{scene.ports[0]['id']}").status_code == 204
    assert api.get(scene.url) == {"port_forwardings": [kept]}
    url = f"/ports/{scene.ports[1]['id']}"
    assert api("PUT", url, {"port": {"name": "x"}}).status_code == 200
    assert api.get(scene.url) == {"port_forwardings": [kept]}
    other = {"port": {"fixed_ips": [{"ip_address": "10.64.1.77"}]}}
    assert api("PUT", url, other).status_code == 200
    assert api.get(scene.url) == {"port_forwardings": []}


def test_other_project_finds_neither_address_nor_port(api: Api, scene: Scene) -> None:
    made = forward(api, scene)
    one, body = f"{scene.url}/{made['id']}", {"port_forwarding": wanted(scene.ports[0], 80, 80)}
    missing = (404, "FloatingIPNotFound", scene.floating["id"])
    for method, url, sent in (
        ("GET", scene.url, None),
        ("GET", one, None),
        ("POST", scene.url, body),
        ("PUT", one, {"port_forwarding": {"description": "x"}}),
        ("DELETE", one, None),
    ):
        api.refused(method, url, sent, *missing, STRANGER)
    assert api.get(one, ADMIN) == {"port_forwarding": made}
    others = api.make("/ports", "port", STRANGER, network_id=api.shared.id)
    refused(api, scene, wanted(others, 80, 80), 404, "PortNotFound", others["id"])
    more = api.make("/floatingips", "floatingip", floating_network_id=api.pool.id)
    for url in (f"/floatingips/{more['id']}/port_forwardings/{made['id']}", f"{scene.url}/{NOBODY}"):
        api.refused("GET", url, None, 404, "PortForwardingNotFound", url[-36:])
    by_address = scene.url.replace(scene.floating["id"], scene.floating["floating_ip_address"])
    api.refused("GET", by_address, None, 404, "FloatingIPNotFound", scene.floating["floating_ip_address"])


def test_number_of_forwardings_is_limited(api: Api, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_forwardings, "MAX_FORWARDINGS", 1)
    made = forward(api, scene)
    refused(api, scene, wanted(scene.ports[1], 80, 80), 409, "OverQuota", "port_forwarding")
    assert api("PUT", f"{scene.url}/{made['id']}", {"port_forwarding": {"external_port": 9}}).status_code == 200


def test_ports_that_ranges_lead_to_other_numbers_are_limited(api: Api, scene: Scene) -> None:
    forward(api, scene, 0, "1:4000", "1001:5000")
    refused(api, scene, wanted(scene.ports[1], "4001:4097", "1:97"), 400, "BadRequest", "at most 4096 ports")
    assert forward(api, scene, 1, "4001:4096", "1:96")
    assert forward(api, scene, 1, "5000:60000", "5000:60000"), "equal numbers are one rule"
    assert forward(api, scene, 0, "60001:65535", 22)
