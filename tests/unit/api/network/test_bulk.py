"""Several resources that one request creates: all of them, or none."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.api_client import ADMIN, STRANGER
from tests.unit.api.network.conftest import Api

NOBODY = "00000000-0000-0000-0000-000000000001"


def make_all(api: Api, path: str, key: str, *bodies: dict[str, Any]) -> list[dict[str, Any]]:
    response = api("POST", path, {key: list(bodies)})
    assert response.status_code == 201, response.text
    assert response.json.keys() == {key}
    made: list[dict[str, Any]] = response.json[key]
    return made


def test_resources_of_every_kind_are_made_in_the_order_of_the_request(api: Api) -> None:
    one, two = make_all(api, "/networks", "networks", {"name": "one"}, {"name": "two"})
    assert (one["name"], two["name"], two["project_id"]) == ("one", "two", "demo")
    subnets = make_all(
        api,
        "/subnets",
        "subnets",
        {"network_id": one["id"], "ip_version": 4, "cidr": "10.64.1.0/24"},
        {"network_id": two["id"], "ip_version": 4, "cidr": "10.64.2.0/24"},
    )
    assert [subnet["gateway_ip"] for subnet in subnets] == ["10.64.1.1", "10.64.2.1"]
    ports = make_all(
        api, "/ports", "ports", {"network_id": two["id"], "name": "a"}, {"network_id": one["id"], "name": "b"}
    )
    assert [(port["name"], port["network_id"]) for port in ports] == [("a", two["id"]), ("b", one["id"])]
    assert len({port["mac_address"] for port in ports}) == 2
    routers = make_all(api, "/routers", "routers", {"name": "east"}, {"name": "west"})
    assert [router["name"] for router in routers] == ["east", "west"]
    groups = make_all(api, "/security-groups", "security_groups", {"name": "web"}, {"name": "db", "description": "SQL"})
    assert [(group["name"], group["description"]) for group in groups] == [("web", ""), ("db", "SQL")]
    assert [len(group["security_group_rules"]) for group in groups] == [2, 2]
    rule = {"direction": "ingress", "protocol": "tcp"}
    rules = make_all(
        api,
        "/security-group-rules",
        "security_group_rules",
        {**rule, "security_group_id": groups[0]["id"], "port_range_min": 80, "port_range_max": 80},
        {**rule, "security_group_id": groups[1]["id"], "remote_group_id": groups[0]["id"]},
    )
    assert [made["security_group_id"] for made in rules] == [group["id"] for group in groups]
    assert rules[1]["remote_group_id"] == groups[0]["id"] and rules[0]["project_id"] == "demo"
    for path, key, made in (
        ("/networks", "networks", [one, two]),
        ("/subnets", "subnets", subnets),
        ("/ports", "ports", ports),
        ("/routers", "routers", routers),
        ("/security-groups", "security_groups", groups),
        ("/security-group-rules", "security_group_rules", rules),
    ):
        found = {item["id"]: item for item in api.get(path)[key]}
        assert all(item["id"] in found for item in made)


def test_request_makes_nothing_if_one_resource_is_refused(api: Api) -> None:
    ports = [{"network_id": api.shared.id}, {"network_id": NOBODY}]
    api.refused("POST", "/ports", {"ports": ports}, 404, "NetworkNotFound", NOBODY)
    ports = [{"network_id": api.shared.id} for _ in range(5)]
    api.refused("POST", "/ports", {"ports": ports}, 409, "OverQuota", "for port:")
    assert api.get("/ports")["ports"] == []
    group = api.make("/security-groups", "security_group", name="web")
    rule = {"security_group_id": group["id"], "direction": "ingress", "protocol": "tcp"}
    body = {"security_group_rules": [rule, {**rule, "protocol": "udp"}, rule]}
    api.refused("POST", "/security-group-rules", body, 409, "SecurityGroupRuleExists", "Rule id is ")
    assert len(api.get(f"/security-groups/{group['id']}")["security_group"]["security_group_rules"]) == 2
    networks = [{"name": str(number)} for number in range(4)]
    api.refused("POST", "/networks", {"networks": networks}, 409, "OverQuota", "network")
    assert len(api.get("/networks")["networks"]) == 2
    groups = [{"name": "new"}, {"name": "web"}]
    api.refused("POST", "/security-groups", {"security_groups": groups}, 409, "SecurityGroupConflict", "web")
    assert {item["name"] for item in api.get("/security-groups")["security_groups"]} == {"default", "web"}


def test_rules_of_a_request_may_name_each_of_the_callers_groups_only(api: Api) -> None:
    group = api.make("/security-groups", "security_group", name="web")
    rule = {"security_group_id": group["id"], "direction": "ingress"}
    body = {"security_group_rules": [rule]}
    api.refused("POST", "/security-group-rules", body, 404, "SecurityGroupNotFound", group["id"], STRANGER)
    assert api("POST", "/security-group-rules", body, ADMIN).status_code == 201


def test_resources_of_a_list_may_be_wrapped_one_by_one(api: Api) -> None:
    made = api("POST", "/networks", {"networks": [{"network": {"name": "one"}}, {"name": "two"}]})
    assert [item["name"] for item in made.json["networks"]] == ["one", "two"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"ports": [{"port": None}]}, "Unable to find 'port'"),
        ({"ports": [{"port": {}, "name": "x"}]}, "Unrecognized attribute(s) 'port'"),
        ({"ports": []}, "at least one"),
        ({"ports": None}, "a list of objects"),
        ({"ports": {}}, "a list of objects"),
        ({"ports": [None]}, "a list of objects"),
        ({"ports": [{}]}, "network_id"),
        ({"ports": [{"network_id": NOBODY, "name": 5}]}, "name"),
        ({"ports": [{"network_id": NOBODY, "nothing": 5}]}, "nothing"),
        ({"ports": [{}] * 201}, "200"),
        ({"networks": [{}]}, "Unable to find 'port'"),
    ],
)
def test_malformed_list_is_a_400(api: Api, body: Any, text: str) -> None:
    api.refused("POST", "/ports", body, 400, "HTTPBadRequest", text)


def test_shared_network_among_several_needs_an_admin(api: Api) -> None:
    body = {"networks": [{"name": "one"}, {"name": "two", "shared": True}]}
    api.refused("POST", "/networks", body, 403, "PolicyNotAuthorized", "create_network:shared")
    assert len(api.get("/networks")["networks"]) == 2
