"""Routers in the network API, with a real conductor."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from nova_lite.db.network import builtin_networks, floating_ips
from nova_lite.network import factory
from tests.support.api_client import ADMIN, MEMBER, STRANGER
from tests.unit.api.network.conftest import Api

NOBODY = str(uuid.UUID(int=1))


class Cloud:
    """A router, and networks with a subnet each."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.router: dict[str, Any] = api.make("/routers", "router", name="r", admin_state_up=True)
        self.path = f"/routers/{self.router['id']}"

    def subnet(self, number: int = 0, token: str = MEMBER, **values: Any) -> dict[str, Any]:
        network = self.api.make("/networks", "network", token, name=f"n{number}")
        fields = {"network_id": network["id"], "cidr": f"10.64.{number}.0/24", "ip_version": 4, **values}
        return self.api.make("/subnets", "subnet", token, **fields)

    def port(self, subnet: dict[str, Any], **values: Any) -> dict[str, Any]:
        return self.api.make("/ports", "port", network_id=subnet["network_id"], **values)

    def connect(self, **body: str) -> dict[str, Any]:
        return self._call("add_router_interface", body)

    def disconnect(self, **body: str) -> dict[str, Any]:
        return self._call("remove_router_interface", body)

    def _call(self, action: str, body: dict[str, str]) -> dict[str, Any]:
        response = self.api("PUT", f"{self.path}/{action}", body)
        assert response.status_code == 200, response.text
        shown: dict[str, Any] = response.json
        return shown

    def set(self, token: str = MEMBER, **values: Any) -> dict[str, Any]:
        response = self.api("PUT", self.path, {"router": values}, token)
        assert response.status_code == 200, response.text
        shown: dict[str, Any] = response.json["router"]
        return shown

    def refused(self, action: str, body: Any, status: int, kind: str, text: str) -> None:
        self.api.refused("PUT", f"{self.path}/{action}", body, status, kind, text)


@pytest.fixture
def cloud(api: Api) -> Cloud:
    return Cloud(api)


def gateway(api: Api, **values: Any) -> dict[str, Any]:
    return {"external_gateway_info": {"network_id": api.pool.id, **values}}


def test_router_is_made_changed_and_deleted(api: Api) -> None:
    made = api.make("/routers", "router", name="r", description="d", tenant_id="demo", **gateway(api))
    assert made == {
        "id": made["id"],
        "name": "r",
        "description": "d",
        "project_id": "demo",
        "tenant_id": "demo",
        "admin_state_up": True,
        "ha": False,
        "status": "ACTIVE",
        "external_gateway_info": {"network_id": api.pool.id, "enable_snat": True, "external_fixed_ips": []},
        "routes": [],
        "availability_zone_hints": [],
        "availability_zones": [],
        "flavor_id": None,
        "service_type_id": None,
        "tags": [],
        "revision_number": 1,
        "created_at": made["created_at"],
        "updated_at": made["updated_at"],
    }
    path = f"/routers/{made['id']}"
    assert api.get(path)["router"] == made
    assert api.get("/routers?name=r&status=ACTIVE")["routers"] == [made]
    changed = api("PUT", path, {"router": {"name": "s", "external_gateway_info": {}}}).json["router"]
    assert (changed["name"], changed["description"], changed["external_gateway_info"]) == ("s", "d", None)
    assert api("PUT", path, {"router": gateway(api)}).json["router"]["external_gateway_info"] is not None
    assert api("PUT", path, {"router": {"external_gateway_info": None}}).json["router"]["external_gateway_info"] is None
    assert api("DELETE", path).status_code == 204
    api.refused("GET", path, None, 404, "RouterNotFound", "could not be found")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"external_gateway_info": []}, None),
        ({"external_gateway_info": "x"}, "an object or null"),
        ({"external_gateway_info": {"enable_snat": True}}, "needs a network_id"),
        ({"external_gateway_info": {"network_id": "x"}}, "not a valid UUID"),
        ({"external_gateway_info": {"network_id": NOBODY, "enable_snat": "x"}}, "true or false"),
        ({"external_gateway_info": {"external_fixed_ips": [{}]}}, "needs a network_id"),
        ({"external_gateway_info": {"network_id": NOBODY, "external_fixed_ips": [{"x": 1}]}}, "ip_address"),
        ({"external_gateway_info": {"network_id": NOBODY, "external_fixed_ips": [{}] * 6}}, "at most 5"),
        ({"external_gateway_info": {"network_id": NOBODY, "external_fixed_ips": [{"ip_address": "::5"}]}}, "IPv4"),
        (
            {"external_gateway_info": {"network_id": NOBODY, "external_fixed_ips": [{"ip_address": "192.0.2.1"}] * 2}},
            "duplicate",
        ),
        ({"external_gateway_info": {"network_id": NOBODY, "qos_policy_id": NOBODY}}, "QoS"),
        ({"external_gateway_info": {"network_id": NOBODY, "x": 1}}, "not 'x'"),
        ({"admin_state_up": "down"}, "use true or false"),
        ({"ha": True}, "the loss of one"),
        ({"distributed": True}, "leave it out"),
        ({"routes": [{"destination": "10.9.0.0/24"}]}, "destination and nexthop"),
        ({"flavour": "x"}, "Unrecognized"),
        ({"name": 1}, "a text"),
    ],
)
def test_invalid_router_is_refused(api: Api, values: dict[str, Any], text: str | None) -> None:
    if text is None:
        assert api.make("/routers", "router", **values)["external_gateway_info"] is None
        return
    api.refused("POST", "/routers", {"router": values}, 400, "HTTPBadRequest", text)


def test_gateway_to_a_network_that_is_not_external_is_refused(api: Api, cloud: Cloud) -> None:
    for network_id, status, kind in ((NOBODY, 404, "NetworkNotFound"), (api.shared.id, 400, "InvalidInput")):
        wrong = {"router": {"external_gateway_info": {"network_id": network_id}}}
        api.refused("POST", "/routers", wrong, status, kind, network_id)
        api.refused("PUT", cloud.path, wrong, status, kind, network_id)


def test_snat_is_turned_off_by_admins_only(api: Api, cloud: Cloud) -> None:
    off = {"router": gateway(api, enable_snat=False)}
    assert api("POST", "/routers", off).status_code == api("PUT", cloud.path, off).status_code == 403
    assert cloud.set(ADMIN, **off["router"])["external_gateway_info"]["enable_snat"] is False
    assert cloud.set(**gateway(api))["external_gateway_info"]["enable_snat"] is True


def test_router_quota_limits_a_project(api: Api, cloud: Cloud) -> None:
    for name in ("second", "third"):
        api.make("/routers", "router", name=name)
    api.refused("POST", "/routers", {"router": {}}, 409, "OverQuota", "router")
    assert api.get("/quotas/demo/details")["quota"]["router"] == {"limit": 3, "used": 3, "reserved": 0}
    changed = api("PUT", "/quotas/demo", {"quota": {"router": 4}}, ADMIN).json["quota"]
    assert changed["router"] == 4
    api.make("/routers", "router", name="fourth")


def test_interface_by_subnet_is_a_port(api: Api, cloud: Cloud) -> None:
    subnet = cloud.subnet()
    added = cloud.connect(subnet_id=subnet["id"])
    assert added == {
        "id": cloud.router["id"],
        "port_id": added["port_id"],
        "network_id": subnet["network_id"],
        "subnet_id": subnet["id"],
        "subnet_ids": [subnet["id"]],
        "project_id": "demo",
        "tenant_id": "demo",
        "tags": [],
    }
    port = api.get(f"/ports/{added['port_id']}")["port"]
    assert (port["device_owner"], port["device_id"]) == ("network:router_interface", cloud.router["id"])
    assert (port["status"], port["security_groups"]) == ("ACTIVE", [])
    assert port["fixed_ips"] == [{"subnet_id": subnet["id"], "ip_address": "10.64.0.1"}]
    for query in (f"device_id={cloud.router['id']}", "device_owner=network:router_interface"):
        assert [item["id"] for item in api.get(f"/ports?{query}")["ports"]] == [port["id"]]
    assert cloud.disconnect(subnet_id=subnet["id"]) == added
    assert api("GET", f"/ports/{port['id']}").status_code == 404


def test_interface_by_port_has_the_address_of_the_gateway(api: Api, cloud: Cloud) -> None:
    subnet = cloud.subnet()
    other = cloud.port(subnet)
    cloud.refused("add_router_interface", {"port_id": other["id"]}, 400, "InvalidInput", "subnet's gateway")
    bare = cloud.port(subnet, fixed_ips=[])
    cloud.refused("add_router_interface", {"port_id": bare["id"]}, 400, "InvalidInput", "has no address. The")
    port = cloud.port(subnet, fixed_ips=[{"ip_address": "10.64.0.1"}])
    assert cloud.connect(port_id=port["id"])["port_id"] == port["id"]
    cloud.refused("add_router_interface", {"port_id": port["id"]}, 409, "PortInUse", "still in use")
    assert cloud.disconnect(port_id=port["id"], subnet_id=subnet["id"])["port_id"] == port["id"]
    assert api("GET", f"/ports/{port['id']}").status_code == 404


def test_address_of_the_gateway_belongs_to_the_owner_of_the_network(api: Api) -> None:
    body = {"port": {"network_id": api.shared.id, "fixed_ips": [{"ip_address": "10.0.0.1"}]}}
    assert api("POST", "/ports", body).status_code == 403
    api.refused("POST", "/ports", body, 400, "InvalidIpForSubnet", "10.0.0.1", ADMIN)


def test_port_of_an_interface_changes_only_with_its_router(api: Api, cloud: Cloud) -> None:
    port_id = cloud.connect(subnet_id=cloud.subnet()["id"])["port_id"]
    path = f"/ports/{port_id}"
    api.refused("DELETE", path, None, 409, "ServicePortInUse", "network:router_interface")
    moved = {"port": {"fixed_ips": [{"ip_address": "10.64.0.77"}]}}
    api.refused("PUT", path, moved, 409, "ServicePortInUse", "network:router_interface")
    api.refused("PUT", path, {"port": {"security_groups": []}}, 409, "ServicePortInUse", "network:router_interface")
    assert api("PUT", path, {"port": {"name": "mine"}}).json["port"]["name"] == "mine"


def test_interfaces_that_cannot_be_are_refused(api: Api, cloud: Cloud) -> None:
    subnet, closed = cloud.subnet(), cloud.subnet(1, gateway_ip=None)
    add = "add_router_interface"
    cloud.refused(add, {}, 400, "HTTPBadRequest", "Either subnet_id or port_id")
    both = {"subnet_id": subnet["id"], "port_id": NOBODY}
    cloud.refused(add, both, 400, "HTTPBadRequest", "both")
    cloud.refused(add, {"subnet_id": "x"}, 400, "HTTPBadRequest", "UUID")
    cloud.refused(add, {"network_id": NOBODY}, 400, "HTTPBadRequest", "Unrecognized")
    cloud.refused(add, {"subnet_id": NOBODY}, 404, "SubnetNotFound", NOBODY)
    cloud.refused(add, {"port_id": NOBODY}, 404, "PortNotFound", NOBODY)
    cloud.refused(add, {"subnet_id": closed["id"]}, 400, "InvalidInput", "must have a gateway IP")
    cloud.refused(add, {"subnet_id": api.subnet_of(api.shared.id)}, 400, "InvalidInput", "shared by all projects")
    cloud.connect(subnet_id=subnet["id"])
    cloud.refused(add, {"subnet_id": subnet["id"]}, 400, "InvalidInput", "already has a port on subnet")
    second = api.make("/routers", "router", name="second")
    path = f"/routers/{second['id']}/{add}"
    api.refused("PUT", path, {"subnet_id": subnet["id"]}, 409, "IpAddressAlreadyAllocated", "10.64.0.1")
    remove = "remove_router_interface"
    cloud.refused(remove, {"subnet_id": NOBODY}, 404, "SubnetNotFound", NOBODY)
    cloud.refused(remove, {"subnet_id": closed["id"]}, 404, "RouterInterfaceNotFoundForSubnet", closed["id"])
    cloud.refused(remove, {"port_id": NOBODY}, 404, "RouterInterfaceNotFound", NOBODY)
    cloud.refused(remove, {}, 400, "HTTPBadRequest", "Either subnet_id or port_id")
    api.refused("DELETE", cloud.path, None, 409, "RouterInUse", "still has ports")
    api.refused("DELETE", f"/subnets/{subnet['id']}", None, 409, "NetworkInUse", "addresses in use")


def test_interface_counts_as_a_port(api: Api, cloud: Cloud) -> None:
    subnet = cloud.subnet()
    for _ in range(4):
        api.port()
    cloud.refused("add_router_interface", {"subnet_id": subnet["id"]}, 409, "OverQuota", "for port:")


def test_router_of_another_project_is_not_found(api: Api, cloud: Cloud) -> None:
    mine, theirs = cloud.subnet(), cloud.subnet(1, STRANGER)
    for action in ("add_router_interface", "remove_router_interface"):
        path, body = f"{cloud.path}/{action}", {"subnet_id": theirs["id"]}
        api.refused("PUT", path, body, 404, "RouterNotFound", "could not be found", STRANGER)
    cloud.refused("add_router_interface", {"subnet_id": theirs["id"]}, 404, "SubnetNotFound", theirs["id"])
    router = api.make("/routers", "router", STRANGER)
    path = f"/routers/{router['id']}/add_router_interface"
    api.refused("PUT", path, {"subnet_id": mine["id"]}, 404, "SubnetNotFound", mine["id"], STRANGER)
    api.refused("PUT", path, {"subnet_id": mine["id"]}, 404, "SubnetNotFound", mine["id"], ADMIN)


def test_floating_address_needs_a_gateway(api: Api, cloud: Cloud) -> None:
    subnet = cloud.subnet()
    port = cloud.port(subnet)
    lead = {"floatingip": {"floating_network_id": api.pool.id, "port_id": port["id"]}}
    missing = (404, "ExternalGatewayForFloatingIPNotFound", "is not reachable from subnet")
    api.refused("POST", "/floatingips", lead, *missing)
    cloud.connect(subnet_id=subnet["id"])
    api.refused("POST", "/floatingips", lead, *missing)
    other = api.manager.db.write(floating_ips.create_pool, "other", "198.51.100.0/30")
    cloud.set(external_gateway_info={"network_id": other.id})
    api.refused("POST", "/floatingips", lead, *missing)
    assert api.get("/floatingips")["floatingips"] == [], "a refused request leaves no address"
    cloud.set(**gateway(api))
    made = api.make("/floatingips", "floatingip", **lead["floatingip"])
    assert (made["router_id"], made["status"]) == (cloud.router["id"], "ACTIVE")
    kept = (409, "RouterExternalGatewayInUseByFloatingIp", "required by one or more floating IPs")
    api.refused("PUT", cloud.path, {"router": {"external_gateway_info": None}}, *kept)
    api.refused("PUT", cloud.path, {"router": {"external_gateway_info": {"network_id": other.id}}}, *kept)
    kept = (409, "RouterInterfaceInUseByFloatingIP", "required by one or more floating IPs")
    cloud.refused("remove_router_interface", {"subnet_id": subnet["id"]}, *kept)
    free = api("PUT", f"/floatingips/{made['id']}", {"floatingip": {"port_id": None}}).json["floatingip"]
    assert (free["router_id"], free["status"]) == (None, "DOWN")
    cloud.disconnect(subnet_id=subnet["id"])


def test_network_with_a_way_out_of_its_own_needs_no_router(api: Api, cloud: Cloud) -> None:
    """Networks that an operator made, and those of older versions, have one until a router connects them."""
    own = api.manager.db.write(
        builtin_networks.create, factory.new_network("old", "10.64.9.0/24", project_id="demo", bridge="brold")
    )
    port = api.make("/ports", "port", network_id=own.id)
    lead = {"floating_network_id": api.pool.id, "port_id": port["id"]}
    assert api.make("/floatingips", "floatingip", **lead)["router_id"] is None
    wrong = (409, "Conflict", "gateway to their external network first")
    cloud.refused("add_router_interface", {"subnet_id": api.subnet_of(own.id)}, *wrong)
    cloud.set(**gateway(api))
    cloud.connect(subnet_id=api.subnet_of(own.id))
    assert api.get("/floatingips")["floatingips"][0]["router_id"] == cloud.router["id"]


def test_pool_with_a_gateway_of_a_router_is_kept(api: Api, cloud: Cloud) -> None:
    cloud.set(**gateway(api))
    with pytest.raises(Exception, match="gateway to pool public"):
        api.manager.db.write(floating_ips.delete_pool, "public")
    cloud.set(external_gateway_info=None)
    api.manager.db.write(floating_ips.delete_pool, "public")


def addresses(shown: dict[str, Any]) -> list[str]:
    return [item["ip_address"] for item in shown["external_gateway_info"]["external_fixed_ips"]]


def test_router_keeps_its_addresses_as_long_as_its_gateway(api: Api, cloud: Cloud) -> None:
    (subnet_id,) = api.get(f"/networks/{api.pool.id}", ADMIN)["network"]["subnets"]
    made = api.make("/routers", "router", **gateway(api, external_fixed_ips=[{"subnet_id": subnet_id}]))
    assert made["external_gateway_info"]["external_fixed_ips"] == [{"subnet_id": subnet_id, "ip_address": "192.0.2.1"}]
    named = gateway(api, external_fixed_ips=[{"ip_address": "192.0.2.2"}])
    assert addresses(cloud.set(**named)) == ["192.0.2.2"]
    assert addresses(cloud.set(name="other")) == ["192.0.2.2"]
    assert addresses(cloud.set(**gateway(api))) == ["192.0.2.2"], "a request without addresses keeps them"
    shown = [addresses(router) for router in api.get("/routers")["routers"]]
    assert sorted(shown) == [["192.0.2.1"], ["192.0.2.2"]]
    assert addresses(cloud.set(**gateway(api, external_fixed_ips=[]))) == []
    cloud.set(**named)
    assert cloud.set(external_gateway_info=None)["external_gateway_info"] is None
    assert addresses(cloud.set(**gateway(api))) == [], "it has lost its addresses with the gateway"
    assert api("DELETE", f"/routers/{made['id']}").status_code == 204
    wanted = [{"ip_address": "192.0.2.1"}, {}]
    assert addresses(cloud.set(**gateway(api, external_fixed_ips=wanted))) == ["192.0.2.1", "192.0.2.2"]
    one = gateway(api, external_fixed_ips=[{"subnet_id": subnet_id}])
    assert len(addresses(cloud.set(**one))) == 1, "one of both stays"


def test_address_of_a_router_is_no_floating_address(api: Api, cloud: Cloud) -> None:
    cloud.set(**gateway(api, external_fixed_ips=[{"ip_address": "192.0.2.1"}]))
    assert api.get("/floatingips")["floatingips"] == api.get("/floatingips", ADMIN)["floatingips"] == []
    wanted = {"floatingip": {"floating_network_id": api.pool.id, "floating_ip_address": "192.0.2.1"}}
    api.refused("POST", "/floatingips", wanted, 409, "Conflict", "192.0.2.1 is in use")
    assert api.get("/quotas/demo/details.json", ADMIN)["quota"]["floatingip"]["used"] == 0
    made = api.make("/floatingips", "floatingip", floating_network_id=api.pool.id)
    assert made["floating_ip_address"] == "192.0.2.2"
    taken = {"router": gateway(api, external_fixed_ips=[{"ip_address": "192.0.2.2"}])}
    api.refused("PUT", cloud.path, taken, 409, "IpAddressAlreadyAllocated", "already in use")
    assert addresses(cloud.set()) == ["192.0.2.1"], "a refused request changes nothing"
    api.refused("POST", "/routers", taken, 409, "IpAddressAlreadyAllocated", "already in use")
    full = {"router": gateway(api, external_fixed_ips=[{}])}
    api.refused("POST", "/routers", full, 409, "IpAddressGenerationFailure", "No more")
    used = api.get(f"/network-ip-availabilities/{api.pool.id}", ADMIN)["network_ip_availability"]["used_ips"]
    assert used == 2


@pytest.mark.parametrize(
    "wanted", [{"ip_address": "192.0.2.9"}, {"subnet_id": NOBODY}, {"subnet_id": NOBODY, "ip_address": "192.0.2.1"}]
)
def test_address_outside_of_the_external_network_is_refused(api: Api, cloud: Cloud, wanted: dict[str, str]) -> None:
    body = {"router": gateway(api, external_fixed_ips=[wanted])}
    api.refused("PUT", cloud.path, body, 400, "InvalidInput", " of ")
    assert cloud.set()["external_gateway_info"] is None


def route(number: int, nexthop: str = "10.64.0.9") -> dict[str, str]:
    return {"destination": f"10.9.{number}.0/24", "nexthop": nexthop}


def test_static_routes_are_set_added_and_removed(api: Api, cloud: Cloud) -> None:
    cloud.connect(subnet_id=cloud.subnet()["id"])

    def routes(path: str = "", **values: Any) -> Any:
        response = api("PUT", cloud.path + path, {"router": values})
        assert response.status_code == 200, response.text
        assert response.json == api.get(cloud.path)
        return response.json["router"]["routes"]

    assert routes(routes=[route(1), route(2)]) == [route(1), route(2)]
    assert routes(name="x") == [route(1), route(2)]
    assert routes("/add_extraroutes", routes=[route(3), route(2)]) == [route(1), route(2), route(3)]
    assert routes("/remove_extraroutes", routes=[route(1), route(4)]) == [route(2), route(3)]
    everything = {"destination": "0.0.0.0/0", "nexthop": "10.64.0.9"}
    assert routes(routes=[everything]) == [everything]
    assert routes(routes=[]) == []
    assert routes(routes=None) == []
    api.manager.conf.set_override("project_ranges", ["fd40::/16"], "network")
    cloud.connect(subnet_id=cloud.subnet(1, ip_version=6, cidr="fd40:1::/64")["id"])
    routes6 = [{"destination": to, "nexthop": "fd40:1::9"} for to in ("2001:db8::/64", "::/0")]
    assert routes(routes=[route(1), *routes6]) == [route(1), *routes6]
    for nexthop, text in (("fd40:1::1", "used by router"), ("fd40:1::", "not connected"), ("fe80::1", "not connected")):
        body = {"router": {"routes": [{**routes6[0], "nexthop": nexthop}]}}
        api.refused("PUT", cloud.path, body, 400, "InvalidRoutes", text)


@pytest.mark.parametrize(
    ("wanted", "kind", "text"),
    [
        ([route(1, "10.65.0.9")], "InvalidRoutes", "the nexthop is not connected with router"),
        ([route(1, "10.64.0.255")], "InvalidRoutes", "the nexthop is not connected with router"),
        ([route(1, "10.64.0.0")], "InvalidRoutes", "the nexthop is not connected with router"),
        ([route(1, "10.64.0.1")], "InvalidRoutes", "the nexthop is used by router"),
        ([{"destination": "fd00::/64", "nexthop": "fd40:1::9"}], "InvalidRoutes", "not connected with router"),
        ([{"destination": "fd00::/64", "nexthop": "10.64.0.9"}], "InvalidInput", "fd00::/64"),
        ([route(1), route(1)], "HTTPBadRequest", "Duplicate hostroute"),
        ([{"destination": "10.9.1.1/24", "nexthop": "10.64.0.9"}], "HTTPBadRequest", "'10.9.1.0/24' is recommended"),
        ([{"destination": "x", "nexthop": "10.64.0.9"}], "HTTPBadRequest", "not a valid range"),
        ([{"destination": "10.9.1.0/24", "nexthop": "x"}], "HTTPBadRequest", "not a valid IP address"),
        ("x", "HTTPBadRequest", "destination and nexthop"),
        ([route(number) for number in range(31)], "RoutesExhausted", "exceeds the maximum 30"),
    ],
)
def test_wrong_static_route_is_refused(api: Api, cloud: Cloud, wanted: Any, kind: str, text: str) -> None:
    cloud.connect(subnet_id=cloud.subnet()["id"])
    body = {"router": {"routes": wanted}}
    api.refused("PUT", cloud.path, body, 400, kind, text)
    api.refused("PUT", f"{cloud.path}/add_extraroutes", body, 400, kind, text)
    assert api.get(cloud.path)["router"]["routes"] == []


def test_static_routes_need_a_list_and_no_other_field(api: Api, cloud: Cloud) -> None:
    for path in ("/add_extraroutes", "/remove_extraroutes"):
        api.refused("PUT", cloud.path + path, {"router": {}}, 400, "HTTPBadRequest", "needs a list of routes")
        api.refused("PUT", cloud.path + path, {"router": {"name": "x"}}, 400, "HTTPBadRequest", "Unrecognized")
    body = {"router": {"routes": [route(1)]}}
    api.refused("POST", "/routers", body, 400, "InvalidRoutes", "not connected with router")


def test_interface_that_a_static_route_needs_is_kept(api: Api, cloud: Cloud) -> None:
    subnet, other = cloud.subnet(), cloud.subnet(1)
    cloud.connect(subnet_id=subnet["id"])
    cloud.connect(subnet_id=other["id"])
    assert api("PUT", cloud.path, {"router": {"routes": [route(1)]}}).status_code == 200
    path, body = f"{cloud.path}/remove_router_interface", {"subnet_id": subnet["id"]}
    api.refused("PUT", path, body, 409, "RouterInterfaceInUseByRoute", "required by one or more routes")
    assert api("PUT", path, {"subnet_id": other["id"]}).status_code == 200
    assert api("PUT", cloud.path, {"router": {"routes": []}}).status_code == 200
    assert api("PUT", path, body).status_code == 200
