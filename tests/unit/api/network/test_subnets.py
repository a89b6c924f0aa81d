"""Settings of subnets: DHCP, gateway, allocation pools, name servers and host routes, at creation and later."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.network import builtin_networks, networks, security_groups
from nova_lite.db.network.security_groups import FilterQuery
from nova_lite.network import factory
from nova_lite.objects import PortFilters
from tests.support import make, published
from tests.support.api_client import ADMIN
from tests.support.spanning import guest, host
from tests.unit.api.network.conftest import Api

CIDR = "10.64.0.0/24"
ROUTE = {"destination": "10.70.0.0/16", "nexthop": "10.64.0.9"}


def subnet(api: Api, **values: Any) -> dict[str, Any]:
    network = api.make("/networks", "network")
    return api.make("/subnets", "subnet", network_id=network["id"], **{"cidr": CIDR, "ip_version": 4, **values})


def change(api: Api, made: dict[str, Any], **values: Any) -> dict[str, Any]:
    response = api("PUT", f"/subnets/{made['id']}", {"subnet": values})
    assert response.status_code == 200, response.text
    changed: dict[str, Any] = response.json["subnet"]
    assert changed == api.get(f"/subnets/{made['id']}")["subnet"]
    return changed


def pool(start: int, end: int) -> dict[str, str]:
    return {"start": f"10.64.0.{start}", "end": f"10.64.0.{end}"}


def test_subnet_without_dhcp_gives_its_ports_addresses(api: Api) -> None:
    made = subnet(api, enable_dhcp=False)
    assert made["enable_dhcp"] is False
    (address,) = api.port(network_id=made["network_id"])["fixed_ips"]
    assert address["ip_address"].startswith("10.64.0.")
    assert made["id"] in [found["id"] for found in api.get("/subnets?enable_dhcp=false")["subnets"]]
    assert made["id"] not in [found["id"] for found in api.get("/subnets?enable_dhcp=true")["subnets"]]
    assert change(api, made, enable_dhcp=True)["enable_dhcp"] is True
    assert change(api, made, name="x")["enable_dhcp"] is True
    assert change(api, made, enable_dhcp=False)["name"] == "x"
    assert subnet(api, cidr="10.64.1.0/24", enable_dhcp=None)["enable_dhcp"] is True
    api.refused("PUT", f"/subnets/{made['id']}", {"subnet": {"enable_dhcp": "no"}}, 400, "HTTPBadRequest", "true or")


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize(("cidr", "chosen"), [("10.64.0.0/24", "10.64.0.9"), ("fd40:1::/64", "fd40:1::9")])
def test_empty_list_of_pools_leaves_no_pool(api: Api, is_new: bool, cidr: str, chosen: str) -> None:
    api.manager.conf.set_override("project_ranges", ["10.64.0.0/16", "fd40::/10"], "network")
    values = {"cidr": cidr, "ip_version": 6 if ":" in cidr else 4}
    made = subnet(api, **values, **({"allocation_pools": []} if is_new else {}))
    if not is_new:
        assert made["allocation_pools"]
        made = change(api, made, allocation_pools=[])
    assert made["allocation_pools"] == []
    assert change(api, made, enable_dhcp=True, allocation_pools=None)["allocation_pools"] == []
    port = {"network_id": made["network_id"], "fixed_ips": [{"subnet_id": made["id"]}]}
    api.refused("POST", "/ports", {"port": port}, 409, "IpAddressGenerationFailure", "are left")
    port["fixed_ips"] = [{"ip_address": chosen}]
    assert api.port(**port)["fixed_ips"][0]["ip_address"] == chosen, "an address of no pool is for whoever names it"


def test_external_subnet_without_pools_gives_no_address(api: Api) -> None:
    network = api.make("/networks", "network", ADMIN, **{"router:external": True})
    values = {"network_id": network["id"], "ip_version": 4, "cidr": "198.51.100.0/24", "allocation_pools": []}
    assert api.make("/subnets", "subnet", ADMIN, **values)["allocation_pools"] == []
    body = {"floatingip": {"floating_network_id": network["id"]}}
    api.refused("POST", "/floatingips", body, 409, "IpAddressGenerationFailure", "")


def test_subnet_has_several_pools(api: Api) -> None:
    made = subnet(api, allocation_pools=[pool(20, 20), pool(10, 10)], gateway_ip="10.64.0.100")
    assert made["allocation_pools"] == [pool(10, 10), pool(20, 20)]
    found = {api.port(network_id=made["network_id"])["fixed_ips"][0]["ip_address"] for _ in range(2)}
    assert found == {"10.64.0.10", "10.64.0.20"}
    api.refused(
        "POST", "/ports", {"port": {"network_id": made["network_id"]}}, 409, "IpAddressGenerationFailure", "are left"
    )
    assert change(api, made, allocation_pools=[pool(30, 30)])["allocation_pools"] == [pool(30, 30)]
    assert api.port(network_id=made["network_id"])["fixed_ips"][0]["ip_address"] == "10.64.0.30"
    middle = subnet(api, cidr="10.64.2.0/24", gateway_ip="10.64.2.100")["allocation_pools"]
    assert [item["end"] for item in middle] == ["10.64.2.99", "10.64.2.254"], "all but the gateway"
    assert subnet(api, cidr="10.64.1.0/24")["allocation_pools"] == [{"start": "10.64.1.2", "end": "10.64.1.254"}]


@pytest.mark.parametrize(
    ("values", "status", "kind", "text"),
    [
        (
            {"allocation_pools": [pool(2, 9), pool(9, 20)]},
            409,
            "OverlappingAllocationPools",
            "10.64.0.2-10.64.0.9 10.64",
        ),
        ({"allocation_pools": [pool(1, 9)]}, 409, "GatewayConflictWithAllocationPools", "10.64.0.1 conflicts"),
        ({"gateway_ip": "10.64.0.7"}, 409, "GatewayConflictWithAllocationPools", "10.64.0.7 conflicts"),
        ({"allocation_pools": [pool(9, 2)]}, 400, "InvalidInput", "comes after"),
        ({"allocation_pools": [pool(0, 9)]}, 400, "InvalidInput", "not a host address"),
        ({"allocation_pools": [{"start": "10.65.0.2", "end": "10.65.0.3"}]}, 400, "InvalidInput", "not a host address"),
        ({"allocation_pools": [{"start": "10.64.0.2"}]}, 400, "HTTPBadRequest", "start and end"),
        ({"allocation_pools": "x"}, 400, "HTTPBadRequest", "start and end"),
        ({"allocation_pools": [pool(2, 2)] * 101}, 400, "HTTPBadRequest", "At most 100"),
        ({"gateway_ip": "10.65.0.1"}, 400, "InvalidInput", "not a host address"),
        ({"gateway_ip": "x"}, 400, "HTTPBadRequest", "not a valid IP"),
        ({"dns_nameservers": ["9.9.9.9", "9.9.9.9"]}, 400, "HTTPBadRequest", "Duplicate nameserver"),
        ({"dns_nameservers": ["10.64.0.1"]}, 400, "InvalidInput", "address of a host"),
        ({"dns_nameservers": ["127.0.0.1"]}, 400, "InvalidInput", "another machine"),
        ({"host_routes": [ROUTE, ROUTE]}, 400, "HTTPBadRequest", "Duplicate hostroute"),
        (
            {"host_routes": [{"destination": "10.70.0.1/16", "nexthop": "10.64.0.9"}]},
            400,
            "HTTPBadRequest",
            "10.70.0.0/16",
        ),
        ({"host_routes": [{"destination": "fd00::/64", "nexthop": "10.64.0.9"}]}, 400, "InvalidInput", "fd00::/64"),
        ({"host_routes": [{"destination": "10.70.0.0/16", "nexthop": "x,y"}]}, 400, "HTTPBadRequest", "valid IP"),
        ({"host_routes": [{"destination": "10.70.0.0/16"}]}, 400, "HTTPBadRequest", "destination and nexthop"),
        ({"host_routes": "x"}, 400, "HTTPBadRequest", "destination and nexthop"),
        (
            {"host_routes": [{"destination": f"10.{number}.0.0/16", "nexthop": "10.64.0.9"} for number in range(21)]},
            400,
            "HostRoutesExhausted",
            "exceeds the limit 20",
        ),
        ({"cidr": "10.64.1.0/24"}, 400, "HTTPBadRequest", "cidr cannot be changed"),
    ],
)
def test_wrong_setting_is_refused_at_creation_and_later(
    api: Api, values: dict[str, Any], status: int, kind: str, text: str
) -> None:
    network = api.make("/networks", "network")
    body = {"network_id": network["id"], "cidr": CIDR, "ip_version": 4}
    if values not in ({"gateway_ip": "10.64.0.7"}, {"cidr": "10.64.1.0/24"}):  # these are right at creation
        api.refused("POST", "/subnets", {"subnet": {**body, **values}}, status, kind, text)
    made = api.make("/subnets", "subnet", **body)
    before = api.get(f"/subnets/{made['id']}")
    api.refused("PUT", f"/subnets/{made['id']}", {"subnet": values}, status, kind, text)
    assert api.get(f"/subnets/{made['id']}") == before


def test_gateway_changes_while_nobody_has_it(api: Api) -> None:
    made = subnet(api, allocation_pools=[pool(10, 20)], gateway_ip=None)
    assert (made["gateway_ip"], change(api, made, gateway_ip="10.64.0.1")["gateway_ip"]) == (None, "10.64.0.1")
    router = api.make("/routers", "router")
    interface = api("PUT", f"/routers/{router['id']}/add_router_interface", {"subnet_id": made["id"]}).json
    body = {"subnet": {"gateway_ip": "10.64.0.2"}}
    api.refused("PUT", f"/subnets/{made['id']}", body, 409, "GatewayIpInUse", f"by port {interface['port_id']}")
    assert change(api, made, gateway_ip="10.64.0.1")["gateway_ip"] == "10.64.0.1", "the same one"
    api("PUT", f"/routers/{router['id']}/remove_router_interface", {"subnet_id": made["id"]})
    taken = api.port(network_id=made["network_id"], fixed_ips=[{"ip_address": "10.64.0.2"}])
    api.refused("PUT", f"/subnets/{made['id']}", body, 409, "IpAddressAlreadyAllocated", "10.64.0.2")
    assert api("DELETE", f"/ports/{taken['id']}").status_code == 204
    assert change(api, made, gateway_ip="10.64.0.2")["gateway_ip"] == "10.64.0.2"
    assert change(api, made, gateway_ip=None)["gateway_ip"] is None
    left = {"port": {"network_id": made["network_id"], "fixed_ips": [{"ip_address": "10.64.0.2"}]}}
    api.refused("POST", "/ports", left, 400, "InvalidIpForSubnet", "10.64.0.2")
    assert change(api, made, gateway_ip="10.64.0.1")["gateway_ip"] == "10.64.0.1"
    api.port(network_id=made["network_id"], fixed_ips=[{"ip_address": "10.64.0.2"}])


def test_subnet_of_a_network_with_ipv6_keeps_that_it_has_a_gateway(api: Api) -> None:
    wide = factory.new_network("wide", "10.1.0.0/24", start="10.1.0.10", cidr6="fd00:1::/64", project_id="demo")
    api.manager.db.write(builtin_networks.create, wide)
    body = {"subnet": {"gateway_ip": None}}
    api.refused("PUT", f"/subnets/{api.subnet_of(wide.id)}", body, 400, "InvalidInput", "IPv6 gateway")
    assert change(api, {"id": api.subnet_of(wide.id)}, gateway_ip="10.1.0.2")["gateway_ip"] == "10.1.0.2"


def test_settings_belong_to_the_owner_of_the_network(api: Api) -> None:
    body = {"subnet": {"enable_dhcp": False}}
    api.refused("PUT", f"/subnets/{api.subnet_of(api.shared.id)}", body, 403, "Forbidden", "All projects share")
    api.refused("PUT", f"/subnets/{api.subnet_of(api.pool.id)}", body, 403, "Forbidden", "nova-lite-manage", ADMIN)
    made = subnet(api, host_routes=[ROUTE], dns_nameservers=["9.9.9.9"])
    assert (made["host_routes"], made["dns_nameservers"]) == ([ROUTE], ["9.9.9.9"])
    api.refused("PUT", f"/subnets/{made['id']}", body, 404, "SubnetNotFound", made["id"], "eve:other")
    emptied = change(api, made, host_routes=[], dns_nameservers=[])
    assert (emptied["host_routes"], emptied["dns_nameservers"]) == ([], [])


def test_hosts_learn_of_changed_settings_only(api: Api) -> None:
    """Networks whose settings have never changed are not read again: servers came with them."""
    db = api.manager.db
    node = host(db, "h1", "10.9.9.1")
    host(db, "h2", "10.9.9.2")
    made = subnet(api, enable_dhcp=False)
    network = db.read(builtin_networks.list_, make.context("demo"), made["network_id"])[0]
    guest(db, network, 5, node, host="h1", project_id="demo")

    def told(name: str) -> PortFilters:
        return db.read(security_groups.filters_together, [FilterQuery(name, [])])[0]

    assert (told("h1").networks, told("h2").networks) == ({}, {})

    def revise(uow: UnitOfWork) -> set[str]:
        changes = {"dns": ["9.9.9.9"], "host_routes": [ROUTE]}
        networks.update(uow, make.context("demo"), made["network_id"], changes)
        return published.projects(uow)

    assert db.write(revise) == {"demo"}
    (shown,) = (told("h1").networks or {}).values()
    assert (shown.id, shown.dns, shown.host_routes) == (made["network_id"], ["9.9.9.9"], [ROUTE])
    assert (shown.enable_dhcp, told("h2").networks) == (False, {})
