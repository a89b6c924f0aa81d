"""Ports with several addresses of one IP version."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.api_client import ADMIN, STRANGER
from tests.unit.api.network.conftest import Api


@pytest.fixture
def network(api: Api) -> dict[str, Any]:
    """Return a network of the project with a subnet of each IP version. Its IPv6 addresses are those of pools."""
    made = api.make("/networks", "network", name="wide")
    api.make("/subnets", "subnet", network_id=made["id"], cidr="10.64.1.0/24", ip_version=4)
    modes = {"ipv6_ra_mode": "dhcpv6-stateful", "ipv6_address_mode": "dhcpv6-stateful"}
    api.make("/subnets", "subnet", network_id=made["id"], cidr="fd00:1::/64", ip_version=6, **modes)
    return made


def at(*numbers: int) -> list[dict[str, str]]:
    return [{"ip_address": f"10.64.1.{number}"} for number in numbers]


def addresses(port: dict[str, Any]) -> list[str]:
    return [item["ip_address"] for item in port["fixed_ips"]]


def change(api: Api, port: dict[str, Any], fixed_ips: list[dict[str, str]]) -> dict[str, Any]:
    response = api("PUT", f"/ports/{port['id']}", {"port": {"fixed_ips": fixed_ips}})
    assert response.status_code == 200, response.text
    changed: dict[str, Any] = response.json["port"]
    return changed


def test_port_has_several_addresses_of_both_versions(api: Api, network: dict[str, Any]) -> None:
    wanted = [*at(50, 9, 10), {"ip_address": "fd00:1::5"}, {"ip_address": "fd00:1::4"}]
    port = api.make("/ports", "port", network_id=network["id"], fixed_ips=wanted)
    assert addresses(port) == ["10.64.1.50", "fd00:1::5", "10.64.1.9", "10.64.1.10", "fd00:1::4"]
    assert {item["subnet_id"] for item in port["fixed_ips"]} == {
        api.subnet_of(network["id"]),
        api.subnet_of(network["id"], 6),
    }
    assert api.get(f"/ports/{port['id']}")["port"] == port
    assert api.get("/ports")["ports"] == [port], "a further address is no port"
    assert api.get(f"/ports?network_id={network['id']}", ADMIN)["ports"][0]["id"] == port["id"]
    assert len(api.get("/ports", ADMIN)["ports"]) == 1
    assert [item["ip_address"] for item in port["dns_assignment"]] == addresses(port)


def test_list_is_filtered_by_a_further_address(api: Api, network: dict[str, Any]) -> None:
    port = api.make("/ports", "port", network_id=network["id"], fixed_ips=at(50, 51))
    api.make("/ports", "port", network_id=network["id"], fixed_ips=at(52))
    for text in ("10.64.1.50", "10.64.1.51"):
        found = api.get(f"/ports?fixed_ips=ip_address={text}")["ports"]
        assert [item["id"] for item in found] == [port["id"]]


def test_subnet_that_is_named_twice_gives_two_addresses(api: Api, network: dict[str, Any]) -> None:
    subnet, subnet6 = ({"subnet_id": api.subnet_of(network["id"], version)} for version in (4, 6))
    port = api.make("/ports", "port", network_id=network["id"], fixed_ips=[subnet, subnet, subnet6, subnet6])
    assert len(set(addresses(port))) == 4
    assert change(api, port, [subnet, subnet, subnet6])["fixed_ips"][0] == port["fixed_ips"][0]


def test_change_keeps_the_first_address_that_stays(api: Api, network: dict[str, Any]) -> None:
    port = api.make("/ports", "port", network_id=network["id"], fixed_ips=at(50, 51))
    assert addresses(change(api, port, at(51, 52, 50))) == ["10.64.1.50", "10.64.1.51", "10.64.1.52"]
    assert addresses(change(api, port, at(52, 53))) == ["10.64.1.52", "10.64.1.53"]
    assert addresses(change(api, port, at(53))) == ["10.64.1.53"]
    assert change(api, port, [])["fixed_ips"] == []
    other = api.make("/ports", "port", network_id=network["id"], fixed_ips=at(50, 51, 52))
    assert len(other["fixed_ips"]) == 3, "released addresses are free"


def test_address_of_another_port_is_refused_whatever_its_place(api: Api, network: dict[str, Any]) -> None:
    api.make("/ports", "port", network_id=network["id"], fixed_ips=at(50, 51))
    for taken in (50, 51):
        for wanted in (at(taken), at(60, taken)):
            body = {"port": {"network_id": network["id"], "fixed_ips": wanted}}
            api.refused("POST", "/ports", body, 409, "IpAddressAlreadyAllocated", f"10.64.1.{taken}")
    other = api.make("/ports", "port", network_id=network["id"], fixed_ips=at(60))
    for wanted in (at(51), at(60, 50), at(60, 51)):
        body = {"port": {"fixed_ips": wanted}}
        api.refused("PUT", f"/ports/{other['id']}", body, 409, "IpAddressAlreadyAllocated", wanted[-1]["ip_address"])
    assert addresses(api.get(f"/ports/{other['id']}")["port"]) == ["10.64.1.60"]


@pytest.mark.parametrize(
    ("wanted", "kind", "text"),
    [
        (at(50, 51, 50), "HTTPBadRequest", "10.64.1.50 is in the list twice"),
        (at(50, 51, 52, 53, 54, 55), "HTTPBadRequest", "at most 5 fixed addresses"),
        (at(50, 1), "InvalidIpForSubnet", "10.64.1.1"),
        ([*at(50), {"ip_address": "10.65.0.1"}], "InvalidIpForSubnet", "10.65.0.1"),
        ([*at(50), {"ip_address": "fd00:1::5"}, {"ip_address": "fd00:2::5"}], "InvalidIpForSubnet", "fd00:2::5"),
    ],
)
def test_further_address_that_no_port_can_have_is_refused(
    api: Api, network: dict[str, Any], wanted: list[dict[str, str]], kind: str, text: str
) -> None:
    body = {"port": {"network_id": network["id"], "fixed_ips": wanted}}
    api.refused("POST", "/ports", body, 400, kind, text)
    assert api.get("/ports")["ports"] == []


def test_subnet_with_automatic_addresses_gives_no_further_one(api: Api) -> None:
    network = api.make("/networks", "network")
    api.make("/subnets", "subnet", network_id=network["id"], cidr="10.64.1.0/24", ip_version=4)
    modes = {"ipv6_ra_mode": "slaac", "ipv6_address_mode": "slaac"}
    subnet = api.make("/subnets", "subnet", network_id=network["id"], cidr="fd00:1::/64", ip_version=6, **modes)
    twice = [{"subnet_id": subnet["id"]}] * 2
    body = {"port": {"network_id": network["id"], "fixed_ips": [*at(9), *twice]}}
    api.refused("POST", "/ports", body, 400, "InvalidInput", "configured for automatic addresses")


def test_member_chooses_no_further_address_on_a_network_of_others(api: Api) -> None:
    wanted = [{"subnet_id": api.subnet_of(api.shared.id)}, {"ip_address": "10.0.0.9"}]
    body = {"port": {"network_id": api.shared.id, "fixed_ips": wanted}}
    assert api("POST", "/ports", body).status_code == 403
    port = api.port(fixed_ips=wanted[:1] * 2)
    assert len(port["fixed_ips"]) == 2
    body = {"port": {"fixed_ips": [*({"ip_address": text} for text in addresses(port)), wanted[1]]}}
    assert api("PUT", f"/ports/{port['id']}", body).status_code == 403
    assert api("PUT", f"/ports/{port['id']}", body, STRANGER).status_code == 404
    assert api("PUT", f"/ports/{port['id']}", body, ADMIN).status_code == 200


def test_further_address_counts_as_used_and_keeps_the_subnet(api: Api, network: dict[str, Any]) -> None:
    port = api.make("/ports", "port", network_id=network["id"], fixed_ips=at(50, 51))
    used = api.get(f"/network-ip-availabilities/{network['id']}", ADMIN)["network_ip_availability"]
    assert used["used_ips"] == 2
    gateway = {
        "subnet": {"gateway_ip": "10.64.1.51", "allocation_pools": [{"start": "10.64.1.60", "end": "10.64.1.70"}]}
    }
    assert api("PUT", f"/subnets/{api.subnet_of(network['id'])}", gateway).status_code == 409
    api.refused("DELETE", f"/subnets/{api.subnet_of(network['id'])}", None, 409, "NetworkInUse", "in use")
    assert api("DELETE", f"/ports/{port['id']}").status_code == 204
    assert api("DELETE", f"/networks/{network['id']}").status_code == 204


def test_port_that_moves_to_another_link_leaves_its_further_addresses(api: Api, network: dict[str, Any]) -> None:
    second = api.make("/subnets", "subnet", network_id=network["id"], cidr="10.64.2.0/24", ip_version=4)
    port = api.make("/ports", "port", network_id=network["id"], fixed_ips=at(50, 51))
    moved = change(api, port, [{"subnet_id": second["id"]}] * 2)
    assert [item["subnet_id"] for item in moved["fixed_ips"]] == [second["id"]] * 2
    assert len(api.make("/ports", "port", network_id=network["id"], fixed_ips=at(50, 51))["fixed_ips"]) == 2


def test_floating_address_leads_to_the_chosen_fixed_address(api: Api, network: dict[str, Any]) -> None:
    """Each fixed address of a port has one floating address."""
    router = api.make("/routers", "router", external_gateway_info={"network_id": api.pool.id})
    api("PUT", f"/routers/{router['id']}/add_router_interface", {"subnet_id": api.subnet_of(network["id"])})
    wanted = [*at(50, 51), {"ip_address": "fd00:1::5"}]
    port = api.make("/ports", "port", network_id=network["id"], fixed_ips=wanted)
    pair = {"floating_network_id": api.pool.id, "port_id": port["id"]}
    second = api.make("/floatingips", "floatingip", **pair, fixed_ip_address="10.64.1.51")
    first = api.make("/floatingips", "floatingip", **pair)
    for shown, address in ((first, "10.64.1.50"), (second, "10.64.1.51")):
        assert (shown["fixed_ip_address"], shown["port_id"], shown["router_id"]) == (address, port["id"], router["id"])
        assert shown["port_details"]["mac_address"] == port["mac_address"]
    found = api.get(f"/floatingips?port_id={port['id']}")["floatingips"]
    assert {item["id"] for item in found} == {first["id"], second["id"]}
    path = f"/floatingips/{first['id']}"
    for address, status in (("10.64.1.51", 409), ("10.64.1.52", 400), ("fd00:1::5", 400)):
        body = {"floatingip": {"port_id": port["id"], "fixed_ip_address": address}}
        assert api("PUT", path, body).status_code == status
    api.refused("PUT", f"/ports/{port['id']}", {"port": {"fixed_ips": at(50)}}, 409, "Conflict", "would lose")
    assert api("PUT", f"/floatingips/{second['id']}", {"floatingip": {"port_id": None}}).status_code == 200
    assert addresses(change(api, port, at(50, 52))) == ["10.64.1.50", "10.64.1.52"]
    body = {"floatingip": {"port_id": port["id"], "fixed_ip_address": "10.64.1.52"}}
    assert api("PUT", path, body).json["floatingip"]["fixed_ip_address"] == "10.64.1.52"
    assert api("DELETE", f"/ports/{port['id']}").status_code == 204
    assert api.get(path)["floatingip"]["port_id"] is None
