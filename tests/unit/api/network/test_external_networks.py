"""External networks that admins make, and the projects that may use them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.api_client import ADMIN, MEMBER, STRANGER
from tests.unit.api.network.conftest import Api

THEIRS = "other"
NAME = "router:external"


def external(api: Api, name: str = "outside", **values: Any) -> dict[str, Any]:
    return api.make("/networks", "network", ADMIN, name=name, **{NAME: True}, **values)


def add_subnet(api: Api, network: dict[str, Any], **values: Any) -> dict[str, Any]:
    known = {"network_id": network["id"], "ip_version": 4, "cidr": "198.51.100.0/29"}
    return api.make("/subnets", "subnet", ADMIN, **known | values)


def floating(api: Api, network: dict[str, Any], token: str = MEMBER) -> dict[str, Any]:
    return api.make("/floatingips", "floatingip", token, floating_network_id=network["id"])


def test_external_network_is_made_used_and_deleted(api: Api) -> None:
    made = external(api, description="routed")
    assert (made[NAME], made["shared"], made["subnets"], made["description"]) == (True, False, [], "routed")
    subnet = add_subnet(api, made, name="s", enable_dhcp=False)
    assert (subnet["gateway_ip"], subnet["name"], subnet["enable_dhcp"]) == ("198.51.100.1", "s", False)
    assert subnet["allocation_pools"] == [{"start": "198.51.100.2", "end": "198.51.100.6"}]
    assert api.get(f"/networks/{made['id']}")["network"]["subnets"] == [subnet["id"]]
    assert {item["name"] for item in api.get(f"/networks?{NAME}=true")["networks"]} == {"outside", "public"}
    assert [floating(api, made)["floating_ip_address"] for _ in range(2)] == ["198.51.100.2", "198.51.100.3"]
    assert api.get(f"/subnets/{subnet['id']}", ADMIN)["subnet"] == subnet
    assert api("GET", f"/subnets/{subnet['id']}").status_code == 404, "members see no subnets of external networks"
    api.refused("DELETE", f"/subnets/{subnet['id']}", None, 409, "Conflict", "projects have addresses", ADMIN)
    assert api("DELETE", f"/networks/{made['id']}", token=ADMIN).status_code == 204
    assert api.get("/floatingips")["floatingips"] == []
    assert api.get("/quotas/demo/details", ADMIN)["quota"]["floatingip"]["used"] == 0
    assert api.get("/rbac-policies", ADMIN) == {"rbac_policies": []}


def test_external_network_gives_addresses_of_its_pools(api: Api) -> None:
    made = external(api)
    pools = [{"start": "198.51.100.4", "end": "198.51.100.4"}, {"start": "198.51.100.6", "end": "198.51.100.6"}]
    add_subnet(api, made, allocation_pools=pools, gateway_ip=None)
    assert [floating(api, made)["floating_ip_address"] for _ in pools] == ["198.51.100.4", "198.51.100.6"]
    body = {"floatingip": {"floating_network_id": made["id"]}}
    api.refused("POST", "/floatingips", body, 409, "IpAddressGenerationFailure", "outside")


def test_external_network_without_a_subnet_has_no_addresses(api: Api) -> None:
    body = {"floatingip": {"floating_network_id": external(api)["id"]}}
    api.refused("POST", "/floatingips", body, 409, "IpAddressGenerationFailure", "outside")


def test_floating_address_of_a_port_and_a_gateway_keep_an_external_network(api: Api) -> None:
    made = external(api)
    add_subnet(api, made)
    router = api.make("/routers", "router", external_gateway_info={"network_id": made["id"]})
    api.refused("DELETE", f"/networks/{made['id']}", None, 409, "NetworkInUse", "in use", ADMIN)
    assert api("PUT", f"/routers/{router['id']}", {"router": {"external_gateway_info": None}}).status_code == 200
    api.make("/floatingips", "floatingip", floating_network_id=made["id"], port_id=api.port()["id"])
    api.refused("DELETE", f"/networks/{made['id']}", None, 409, "NetworkInUse", "in use", ADMIN)


def test_network_becomes_external_with_its_subnet_while_it_has_no_ports(api: Api) -> None:
    network = api.make("/networks", "network", ADMIN, name="n")
    cidr = {"network_id": network["id"], "ip_version": 4, "cidr": "10.64.5.0/24", "name": "s"}
    subnet = api.make("/subnets", "subnet", ADMIN, **cidr)
    port = api.make("/ports", "port", ADMIN, network_id=network["id"])
    body, path = {"network": {NAME: True, "name": "renamed"}}, f"/networks/{network['id']}"
    api.refused("PUT", path, body, 409, "NetworkInUse", "in use", ADMIN)
    assert api("DELETE", f"/ports/{port['id']}", token=ADMIN).status_code == 204
    shown = api("PUT", path, body, ADMIN).json["network"]
    assert (shown[NAME], shown["name"], shown["id"]) == (True, "renamed", network["id"])
    after = api.get(f"/subnets/{subnet['id']}", ADMIN)["subnet"]
    assert [after[name] for name in ("cidr", "gateway_ip", "name", "allocation_pools")] == [
        subnet[name] for name in ("cidr", "gateway_ip", "name", "allocation_pools")
    ]
    back = {"network": {NAME: False}}
    api.refused("PUT", path, back, 400, "HTTPBadRequest", "An external network stays one", ADMIN)


def test_projects_without_a_policy_do_not_see_an_external_network(api: Api) -> None:
    made = external(api)
    add_subnet(api, made)
    (everybody,) = api.get("/rbac-policies", ADMIN)["rbac_policies"]
    assert (everybody["action"], everybody["target_tenant"], everybody["object_id"]) == (
        "access_as_external",
        "*",
        made["id"],
    )
    used = floating(api, made, STRANGER)
    url = f"/rbac-policies/{everybody['id']}"
    api.refused("DELETE", url, None, 409, "RbacPolicyInUse", made["id"], ADMIN)
    assert api("DELETE", f"/floatingips/{used['id']}", token=STRANGER).status_code == 204
    assert api("DELETE", url, token=ADMIN).status_code == 204
    values = {"object_type": "network", "object_id": made["id"], "action": "access_as_external"}
    api.make("/rbac-policies", "rbac_policy", ADMIN, target_tenant=THEIRS, **values)
    path, third = f"/networks/{made['id']}", "eve:third"
    assert (api("GET", path, token=third).status_code, api("GET", path, token=STRANGER).status_code) == (404, 200)
    router = {"router": {"external_gateway_info": {"network_id": made["id"]}}}
    body = {"floatingip": {"floating_network_id": made["id"]}}
    for where, wanted in (("/routers", router), ("/floatingips", body)):
        assert api("POST", where, wanted, third).status_code == 404
        assert api("POST", where, wanted, STRANGER).status_code == 201


def test_members_make_no_external_network_and_change_none_of_others(api: Api) -> None:
    made = external(api)
    subnet = add_subnet(api, made)
    network = api.make("/networks", "network", name="mine")
    body, path = {"network": {NAME: True}}, f"/networks/{made['id']}"
    api.refused("POST", "/networks", body, 403, "PolicyNotAuthorized", "create_network:router:external")
    url = f"/networks/{network['id']}"
    api.refused("PUT", url, body, 403, "PolicyNotAuthorized", "update_network:router:external")
    for method, where, wanted in (
        ("PUT", path, {"network": {"name": "theirs"}}),
        ("DELETE", path, None),
        ("DELETE", f"/subnets/{subnet['id']}", None),
        ("PUT", f"/subnets/{subnet['id']}", {"subnet": {"name": "theirs"}}),
        ("POST", "/subnets", {"subnet": {"network_id": made["id"], "cidr": "198.51.100.64/29", "ip_version": 4}}),
    ):
        assert api(method, where, wanted, STRANGER).status_code in (403, 404), (method, where)
    assert api.get(path)["network"]["name"] == "outside"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"shared": True}, "no ports here"),
        ({"admin_state_up": False}, "no ports here"),
        ({"mtu": 1400}, "no ports here"),
        ({"tags": ["a"]}, "no ports here"),
    ],
)
def test_attributes_of_ports_are_refused(api: Api, values: dict[str, Any], text: str) -> None:
    api.refused("POST", "/networks", {"network": {NAME: True, **values}}, 400, "HTTPBadRequest", text, ADMIN)


def test_external_subnet_is_one_range_that_nobody_else_has(api: Api) -> None:
    made = external(api)
    for cidr, text in (("192.0.2.0/29", "overlaps"), ("127.0.0.0/29", "for")):
        body = {"subnet": {"network_id": made["id"], "ip_version": 4, "cidr": cidr}}
        assert text in api("POST", "/subnets", body, ADMIN).json["NeutronError"]["message"]
    subnet = add_subnet(api, made)
    body = {"subnet": {"network_id": made["id"], "ip_version": 4, "cidr": "198.51.100.64/29"}}
    api.refused("POST", "/subnets", body, 409, "Conflict", "has its subnet", ADMIN)
    assert api("PUT", f"/subnets/{subnet['id']}", {"subnet": {"name": "n"}}, ADMIN).json["subnet"]["name"] == "n"
    api.refused(
        "PUT", f"/subnets/{subnet['id']}", {"subnet": {"gateway_ip": None}}, 400, "HTTPBadRequest", "gateway_ip", ADMIN
    )
    assert api("DELETE", f"/subnets/{subnet['id']}", token=ADMIN).status_code == 204
    assert api.get(f"/networks/{made['id']}")["network"]["subnets"] == []
    assert external(api, name="")["name"] == external(api, name="")["name"] == ""
    api.refused(
        "POST", "/networks", {"network": {"name": "outside", NAME: True}}, 409, "NetworkExists", "outside", ADMIN
    )


def test_several_networks_at_once_are_not_external(api: Api) -> None:
    body = {"networks": [{"name": "a"}, {"name": "b", NAME: True}]}
    api.refused("POST", "/networks", body, 400, "HTTPBadRequest", "in a request each", ADMIN)


def test_gateway_to_a_network_that_is_not_external_is_a_400(api: Api) -> None:
    mine = api.make("/networks", "network", name="mine")
    body = {"router": {"external_gateway_info": {"network_id": mine["id"]}}}
    api.refused("POST", "/routers", body, 400, "InvalidInput", "is not an external network")
    assert api("POST", "/routers", body, STRANGER).status_code == 404, "others do not see the network"
