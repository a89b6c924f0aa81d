"""IPv6 subnets that members make."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.support.api_client import ADMIN
from tests.unit.api.network.conftest import Api

CIDR, OTHER = "fd40:1::/64", "fd40:2::/64"
SLAAC = {"ipv6_ra_mode": "slaac", "ipv6_address_mode": "slaac"}
STATEFUL = {"ipv6_ra_mode": "dhcpv6-stateful", "ipv6_address_mode": "dhcpv6-stateful"}
MAC = "fa:16:3e:00:00:01"
DERIVED = "fd40:1::f816:3eff:fe00:1"


@pytest.fixture
def network(api: Api) -> dict[str, Any]:
    api.manager.conf.set_override("project_ranges", ["10.64.0.0/16", "fd40::/16"], "network")
    return api.make("/networks", "network", name="one")


def subnet(api: Api, network: dict[str, Any], **values: Any) -> dict[str, Any]:
    return api.make("/subnets", "subnet", **{"network_id": network["id"], "ip_version": 6, "cidr": CIDR, **values})


def both(api: Api, network: dict[str, Any], **values: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return subnet(api, network, ip_version=4, cidr="10.64.1.0/24"), subnet(api, network, **values)


def addresses(port: dict[str, Any]) -> dict[str, str]:
    return {item["subnet_id"]: item["ip_address"] for item in port["fixed_ips"]}


def test_subnet_has_neutrons_defaults(api: Api, network: dict[str, Any]) -> None:
    made = subnet(api, network)
    assert made == api.get(f"/subnets/{made['id']}")["subnet"]
    assert made["gateway_ip"] == "fd40:1::1" and uuid.UUID(made["id"]).version == 4
    assert made["allocation_pools"] == [{"start": "fd40:1::2", "end": "fd40:1::ffff:ffff:ffff:ffff"}]
    assert (made["ipv6_ra_mode"], made["ipv6_address_mode"], made["enable_dhcp"]) == (None, None, True)
    assert api.get(f"/networks/{network['id']}")["network"]["subnets"] == [made["id"]]
    assert api("DELETE", f"/subnets/{made['id']}").status_code == 204
    assert api.get("/subnets?ip_version=6")["subnets"] == []


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"ipv6_ra_mode": "slaac", "ipv6_address_mode": "dhcpv6-stateful"}, "must be the same value"),
        ({"ipv6_ra_mode": "always"}, "is none of slaac, dhcpv6"),
        ({**SLAAC, "enable_dhcp": False}, "cannot be set when enable_dhcp is set to False"),
        ({**SLAAC, "cidr": "fd40:1::/80"}, "requires the prefix to be /64"),
        ({"cidr": "fd40:1::/48"}, "64 to 127 bits"),
        ({"cidr": "fd41::/64"}, "is not within fd40::/16"),
        ({"cidr": "fe80::/64"}, "single links"),
        ({"cidr": "10.64.2.0/24"}, "does not match the ip_version"),
        ({"gateway_ip": "fd40:2::1"}, "is not a host address"),
        ({"gateway_ip": "fe80::1%eth0"}, "not a valid IP address"),
        ({"allocation_pools": [{"start": "fd40:2::1", "end": "fd40:2::2"}]}, "is not a host address"),
        ({"dns_nameservers": ["9.9.9.9"]}, "is not an IPv6 address"),
        ({"dns_nameservers": ["fd40:1::1"]}, "is the address of a host"),
        ({"host_routes": [{"destination": "10.9.0.0/24", "nexthop": "10.64.0.9"}]}, "the route to"),
    ],
)
def test_invalid_subnet_is_refused(api: Api, network: dict[str, Any], values: dict[str, Any], text: str) -> None:
    body = {"subnet": {"network_id": network["id"], "ip_version": 6, "cidr": CIDR, **values}}
    response = api("POST", "/subnets", body)
    assert response.status_code == 400 and text in response.text, response.text
    assert api.get("/subnets?ip_version=6")["subnets"] == []


def test_modes_of_ipv4_are_refused(api: Api, network: dict[str, Any]) -> None:
    body = {"subnet": {"network_id": network["id"], "ip_version": 4, "cidr": "10.64.1.0/24", **SLAAC}}
    assert api("POST", "/subnets", body).status_code == 400


def test_port_derives_or_gets_an_address(api: Api, network: dict[str, Any]) -> None:
    four, six = both(api, network, **SLAAC)
    port = api.make("/ports", "port", network_id=network["id"], mac_address=MAC, fixed_ips=[{"subnet_id": four["id"]}])
    assert addresses(port)[six["id"]] == DERIVED and four["id"] in addresses(port)
    api("DELETE", f"/ports/{port['id']}")
    api("DELETE", f"/subnets/{six['id']}")
    pool = [{"start": "fd40:1::10", "end": "fd40:1::11"}]
    six = subnet(api, network, **STATEFUL, allocation_pools=pool)
    made = [api.make("/ports", "port", network_id=network["id"]) for _ in range(2)]
    assert {addresses(port)[six["id"]] for port in made} == {"fd40:1::10", "fd40:1::11"}
    body: Any = {"port": {"network_id": network["id"]}}
    assert api("POST", "/ports", body).json["NeutronError"]["type"] == "IpAddressGenerationFailure"
    only = api.make("/ports", "port", network_id=network["id"], fixed_ips=[{"subnet_id": four["id"]}])
    assert list(addresses(only)) == [four["id"]]


def test_address_of_a_port_is_chosen_and_moved(api: Api, network: dict[str, Any]) -> None:
    _, six = both(api, network)
    wanted = [{"subnet_id": six["id"], "ip_address": "fd40:1::55"}]
    port = api.make("/ports", "port", network_id=network["id"], fixed_ips=wanted)
    assert port["fixed_ips"] == wanted
    assert api.get("/ports?fixed_ips=ip_address=fd40:1::55")["ports"] == [port]
    taken = {"port": {"network_id": network["id"], "fixed_ips": wanted}}
    api.refused("POST", "/ports", taken, 409, "IpAddressAlreadyAllocated", "fd40:1::55")
    for address, status in (("fd40:1::1", 400), ("fd40:2::9", 400), ("10.64.1.9", 400)):
        bad = {"port": {"network_id": network["id"], "fixed_ips": [{**wanted[0], "ip_address": address}]}}
        assert api("POST", "/ports", bad).status_code == status, address
    moved = [{"subnet_id": six["id"], "ip_address": "fd40:1::56"}]
    response = api("PUT", f"/ports/{port['id']}", {"port": {"fixed_ips": moved}})
    assert response.json["port"]["fixed_ips"] == moved
    assert api("DELETE", f"/subnets/{six['id']}").status_code == 409
    response = api("PUT", f"/ports/{port['id']}", {"port": {"fixed_ips": []}})
    assert response.json["port"]["fixed_ips"] == []
    assert api("DELETE", f"/subnets/{six['id']}").status_code == 204


def test_present_ports_derive_an_address_of_a_new_subnet(api: Api, network: dict[str, Any]) -> None:
    subnet(api, network, ip_version=4, cidr="10.64.1.0/24")
    port = api.make("/ports", "port", network_id=network["id"], mac_address=MAC)
    six = subnet(api, network, **SLAAC)
    assert addresses(api.get(f"/ports/{port['id']}")["port"])[six["id"]] == DERIVED
    assert api("DELETE", f"/subnets/{six['id']}").status_code == 204
    assert len(api.get(f"/ports/{port['id']}")["port"]["fixed_ips"]) == 1


def test_settings_and_tags_change(api: Api, network: dict[str, Any]) -> None:
    made = subnet(api, network, allocation_pools=[{"start": "fd40:1::10", "end": "fd40:1::20"}], tags=["a"])
    changes = {
        "name": "new",
        "gateway_ip": "fd40:1::2",
        "dns_nameservers": ["2001:4860:4860::8844"],
        "host_routes": [{"destination": "fd00:9::/64", "nexthop": "fd40:1::9"}],
        "enable_dhcp": False,
    }
    response = api("PUT", f"/subnets/{made['id']}", {"subnet": changes})
    assert response.status_code == 200 and {name: response.json["subnet"][name] for name in changes} == changes
    assert api("PUT", f"/subnets/{made['id']}/tags/b").status_code == 201
    assert api.get(f"/subnets/{made['id']}")["subnet"]["tags"] == ["a", "b"]
    gone = api("PUT", f"/subnets/{made['id']}", {"subnet": {"gateway_ip": None}})
    assert gone.json["subnet"]["gateway_ip"] is None
    for name, value in (("cidr", OTHER), ("ipv6_ra_mode", "slaac"), ("ip_version", 4)):
        assert api("PUT", f"/subnets/{made['id']}", {"subnet": {name: value}}).status_code == 400, name
    inside = {"subnet": {"gateway_ip": "fd40:1::15"}}
    api.refused("PUT", f"/subnets/{made['id']}", inside, 409, "GatewayConflictWithAllocationPools", "fd40:1::15")


def test_router_connects_each_subnet_by_an_interface(api: Api, network: dict[str, Any]) -> None:
    four, six = both(api, network, **SLAAC)
    router = api.make("/routers", "router", name="r")
    path = f"/routers/{router['id']}"
    interfaces = [api("PUT", f"{path}/add_router_interface", {"subnet_id": item["id"]}).json for item in (six, four)]
    assert [item["subnet_id"] for item in interfaces] == [six["id"], four["id"]]
    ports = api.get(f"/ports?device_id={router['id']}")["ports"]
    assert sorted(addresses(port).popitem()[1] for port in ports) == ["10.64.1.1", "fd40:1::1"]
    assert {port["device_owner"] for port in ports} == {"network:router_interface"}
    other = api.make("/routers", "router", name="other")
    again = {"subnet_id": six["id"]}
    assert api("PUT", f"/routers/{other['id']}/add_router_interface", again).status_code == 409
    assert api("DELETE", f"/subnets/{six['id']}").status_code == 409
    assert api("PUT", f"{path}/remove_router_interface", {"subnet_id": four["id"]}).status_code == 200
    assert api("DELETE", path).status_code == 409
    assert api("PUT", f"/routers/{other['id']}/add_router_interface", {"subnet_id": four["id"]}).status_code == 409
    assert api("PUT", f"{path}/remove_router_interface", {"port_id": interfaces[0]["port_id"]}).status_code == 200
    assert api("DELETE", path).status_code == 204


def test_bulk_request_makes_subnets_of_both_versions(api: Api, network: dict[str, Any]) -> None:
    wanted = [
        {"network_id": network["id"], "ip_version": 6, "cidr": CIDR},
        {"network_id": network["id"], "ip_version": 4, "cidr": "10.64.1.0/24"},
    ]
    made = api("POST", "/subnets", {"subnets": wanted}).json["subnets"]
    assert [item["cidr"] for item in made] == [CIDR, "10.64.1.0/24"]


def test_used_addresses_are_counted_by_version(api: Api, network: dict[str, Any]) -> None:
    _, six = both(api, network)
    api.make("/ports", "port", network_id=network["id"], fixed_ips=[{"subnet_id": six["id"]}])
    shown = api.get(f"/network-ip-availabilities/{network['id']}", ADMIN)["network_ip_availability"]
    used = {item["ip_version"]: item["used_ips"] for item in shown["subnet_ip_availability"]}
    assert used == {4: 0, 6: 1}
    assert json.dumps(shown["total_ips"]) == str(253 + 2**64 - 2)
