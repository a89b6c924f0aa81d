"""Subnets of one and of two addresses. A subnet for servers has one address of its hosts, too."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.api_client import ADMIN
from tests.unit.api.network.conftest import Api

PAIR, PAIR6 = "10.64.1.8/31", "fd40:1::/127"


@pytest.fixture
def network(api: Api) -> str:
    api.manager.conf.set_override("project_ranges", ["10.64.0.0/16", "fd40::/16"], "network")
    return str(api.make("/networks", "network")["id"])


def subnet(api: Api, network: str, cidr: str, **values: Any) -> dict[str, Any]:
    fields = {"network_id": network, "cidr": cidr, "ip_version": 6 if ":" in cidr else 4, "enable_dhcp": False}
    return api.make("/subnets", "subnet", **fields | values)


def pool(start: str, end: str) -> list[dict[str, str]]:
    return [{"start": start, "end": end}]


@pytest.mark.parametrize("cidr", [PAIR, "10.64.1.8/32", PAIR6])
def test_small_subnet_with_dhcp_is_refused(api: Api, network: str, cidr: str) -> None:
    body = {"subnet": {"network_id": network, "cidr": cidr, "ip_version": 6 if ":" in cidr else 4}}
    api.refused("POST", "/subnets", body, 400, "InvalidInput", "incompatible with DHCP service enabled")


@pytest.mark.parametrize(
    ("cidr", "text"), [("10.64.1.8/32", "one address, which hosts would need"), ("fd40:1::8/128", "64 to 127 bits")]
)
def test_subnet_of_one_address_is_refused(api: Api, network: str, cidr: str, text: str) -> None:
    body = {"network_id": network, "cidr": cidr, "ip_version": 6 if ":" in cidr else 4, "enable_dhcp": False}
    api.refused("POST", "/subnets", {"subnet": body}, 400, "InvalidInput", text)


def test_subnet_of_two_addresses_has_a_gateway_and_a_server(api: Api, network: str) -> None:
    made = subnet(api, network, PAIR)
    assert (made["gateway_ip"], made["allocation_pools"]) == ("10.64.1.9", pool("10.64.1.8", "10.64.1.8"))
    port = api.port(network_id=network)
    assert [item["ip_address"] for item in port["fixed_ips"]] == ["10.64.1.8"]
    body = {"port": {"network_id": network}}
    api.refused("POST", "/ports", body, 409, "IpAddressGenerationFailure", "addresses are left")
    with_dhcp = {"subnet": {"enable_dhcp": True}}
    api.refused("PUT", f"/subnets/{made['id']}", with_dhcp, 400, "InvalidInput", "incompatible with DHCP")
    router = api.make("/routers", "router")["id"]
    added = api("PUT", f"/routers/{router}/add_router_interface", {"subnet_id": made["id"]})
    assert added.status_code == 200, added.text
    routes = [{"destination": "10.99.0.0/16", "nexthop": "10.64.1.8"}]
    changed = api("PUT", f"/routers/{router}", {"router": {"routes": routes}})
    assert changed.status_code == 200 and changed.json["router"]["routes"] == routes


def test_subnet_of_two_addresses_without_a_gateway_has_an_address_of_its_hosts(api: Api, network: str) -> None:
    made = subnet(api, network, PAIR, gateway_ip=None)
    assert made["allocation_pools"] == pool("10.64.1.8", "10.64.1.9")
    assert api.port(network_id=network)["fixed_ips"][0]["ip_address"] == "10.64.1.8"
    path = f"/subnets/{made['id']}"
    wrong = {"subnet": {"gateway_ip": "10.64.1.8"}}
    api.refused("PUT", path, wrong, 400, "InvalidInput", "is not the second address of 10.64.1.8/31")
    right = {"gateway_ip": "10.64.1.9", "allocation_pools": pool("10.64.1.8", "10.64.1.8")}
    assert api("PUT", path, {"subnet": right}).json["subnet"]["gateway_ip"] == "10.64.1.9"


@pytest.mark.parametrize(("values", "gateway"), [({}, "fd40:1::"), ({"gateway_ip": None}, None)])
def test_ipv6_subnet_of_two_addresses_has_one_server(
    api: Api, network: str, values: dict[str, Any], gateway: str | None
) -> None:
    subnet(api, network, "10.64.2.0/24", enable_dhcp=True)
    made = subnet(api, network, PAIR6, **values)
    assert (made["gateway_ip"], made["allocation_pools"]) == (gateway, pool("fd40:1::1", "fd40:1::1"))
    assert [item["ip_address"] for item in api.port(network_id=network)["fixed_ips"]][1:] == ["fd40:1::1"]
    body = {"port": {"network_id": network}}
    api.refused("POST", "/ports", body, 409, "IpAddressGenerationFailure", "addresses are left")
    with_dhcp = {"subnet": {"enable_dhcp": True}}
    api.refused("PUT", f"/subnets/{made['id']}", with_dhcp, 400, "InvalidInput", "incompatible with DHCP")


@pytest.mark.parametrize(
    ("cidr", "values", "free"),
    [
        ("198.51.100.8/32", {}, ["198.51.100.8"]),
        ("198.51.100.8/31", {}, ["198.51.100.8"]),
        ("198.51.100.8/31", {"gateway_ip": None}, ["198.51.100.8", "198.51.100.9"]),
    ],
)
def test_external_network_gives_the_addresses_of_a_small_subnet(
    api: Api, cidr: str, values: dict[str, Any], free: list[str]
) -> None:
    out = api.make("/networks", "network", ADMIN, name="out", **{"router:external": True})["id"]
    subnet(api, out, cidr, token=ADMIN, **values)
    body = {"floating_network_id": out}
    found = [api.make("/floatingips", "floatingip", **body)["floating_ip_address"] for _ in free]
    assert found == free
    assert api("POST", "/floatingips", {"floatingip": body}).status_code == 409
