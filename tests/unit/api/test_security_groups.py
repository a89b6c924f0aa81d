"""Security groups in the compute API, with the rows and rules of a real conductor."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from nova_lite.objects import SecurityGroup, security_group
from tests.support.api_client import ADMIN, STRANGER, Client, fault

DEFAULT = security_group.default_id("demo")


def made(api: Client, name: str = "web") -> str:
    body = {"security_group": {"name": name, "description": "for tests"}}
    group_id: str = api.json("POST", "/os-security-groups", body)["security_group"]["id"]
    return group_id


def rule(parent: str, **values: Any) -> dict[str, Any]:
    plain = {"parent_group_id": parent, "ip_protocol": "tcp", "from_port": 80, "to_port": "80"}
    return {"security_group_rule": plain | values}


def test_security_group_is_created_updated_and_deleted(api: Client) -> None:
    group_id = made(api)
    group = {"id": group_id, "name": "web", "description": "for tests", "tenant_id": "demo", "rules": []}
    assert api.json("GET", f"/os-security-groups/{group_id}") == {"security_group": group}
    assert api.json("GET", "/os-security-groups/web") == {"security_group": group}
    assert [item["name"] for item in api.json("GET", "/os-security-groups")["security_groups"]] == ["default", "web"]
    groups = api.json("GET", "/os-security-groups?limit=1&offset=1")["security_groups"]
    assert [item["name"] for item in groups] == ["web"]
    body = {"security_group": {"name": " www ", "description": "x"}}
    changed = api.json("PUT", f"/os-security-groups/{group_id}", body)["security_group"]
    assert (changed["name"], changed["description"]) == (" www ", "x")
    assert api("DELETE", f"/os-security-groups/{group_id}").status_code == 202
    fault(api("GET", f"/os-security-groups/{group_id}"), "itemNotFound", 404)


def test_security_group_rules_are_added_and_deleted(api: Client) -> None:
    group_id = made(api)
    response = api.json("POST", "/os-security-group-rules", rule(group_id, cidr="10.0.0.0/8"))["security_group_rule"]
    rule_id = response.pop("id")
    assert response == {
        "parent_group_id": group_id,
        "ip_protocol": "tcp",
        "from_port": 80,
        "to_port": 80,
        "group": {},
        "ip_range": {"cidr": "10.0.0.0/8"},
    }
    shown = api.json("GET", f"/os-security-groups/{group_id}")["security_group"]["rules"]
    assert shown == [{"id": rule_id, **response}]
    fault(api("POST", "/os-security-group-rules", rule(group_id, cidr="10.0.0.0/8")), "badRequest", 400)
    assert api("DELETE", f"/os-security-group-rules/{rule_id}").status_code == 202
    fault(api("DELETE", f"/os-security-group-rules/{rule_id}"), "itemNotFound", 404)


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ({}, {"ip_range": {"cidr": "0.0.0.0/0"}}),
        ({"cidr": "2001:db8::/32"}, {"ip_range": {"cidr": "2001:db8::/32"}}),
        ({"ip_protocol": "icmp", "from_port": -1, "to_port": -1}, {"from_port": -1, "to_port": -1}),
        ({"ip_protocol": "ICMP", "from_port": 8, "to_port": -1}, {"ip_protocol": "icmp", "from_port": 8}),
        ({"group_id": DEFAULT}, {"group": {"name": "default", "tenant_id": "demo"}, "ip_range": {}}),
        (
            {"group_id": DEFAULT, "ip_protocol": None, "from_port": None, "to_port": None},
            {"ip_protocol": None, "from_port": -1, "to_port": -1},
        ),
        (
            {"group_id": DEFAULT, "ip_protocol": "udp", "from_port": None, "to_port": None},
            {"from_port": 1, "to_port": 65535},
        ),
    ],
)
def test_security_group_rules_are_shown_in_novas_form(
    api: Client, values: dict[str, Any], shown: dict[str, Any]
) -> None:
    response = api.json("POST", "/os-security-group-rules", rule(made(api), **values))["security_group_rule"]
    assert {key: response[key] for key in shown} == shown


@pytest.mark.parametrize(
    "values",
    [
        {"ip_protocol": "tcq"},
        {"from_port": 0},
        {"to_port": 65536},
        {"from_port": 81},
        {"from_port": "many"},
        {"ip_protocol": None},
        {"from_port": None},
        {"cidr": "300.0.0.0/8"},
        {"cidr": "fe80::%lo/64"},
        {"parent_group_id": "web"},
        {"parent_group_id": None},
        {"other": 1},
    ],
)
def test_invalid_security_group_rule_is_refused(api: Client, values: dict[str, Any]) -> None:
    fault(api("POST", "/os-security-group-rules", rule(made(api), **values)), "badRequest", 400)


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "/os-security-groups/{id}", None, 404),
        ("PUT", "/os-security-groups/{id}", {"security_group": {"name": "x"}}, 404),
        ("PUT", "/os-security-groups/nosuch", {"security_group": {"name": "x"}}, 400),
        ("DELETE", "/os-security-groups/{id}", None, 404),
        ("DELETE", "/os-security-groups/nosuch", None, 400),
        ("DELETE", "/os-security-group-rules/{id}", None, 404),
        ("DELETE", "/os-security-group-rules/nosuch", None, 400),
        ("POST", "/os-security-group-rules", rule("{id}"), 404),
        ("POST", "/os-security-groups", {"security_group": {"name": ""}}, 400),
        ("POST", "/os-security-groups", {"security_group": {"name": "  "}}, 400),
        ("POST", "/os-security-groups", {"security_group": {"name": "x" * 256}}, 400),
        ("POST", "/os-security-groups", {"security_group": {"name": "x", "description": "x" * 256}}, 400),
        ("POST", "/os-security-groups", {"security_group": {"name": "default"}}, 400),
        ("DELETE", f"/os-security-groups/{DEFAULT}", None, 400),
    ],
)
def test_malformed_security_group_is_refused(api: Client, method: str, path: str, body: Any, code: int) -> None:
    unknown = str(uuid.uuid4())
    if body and "security_group_rule" in body:
        body = rule(unknown)
    response = api(method, path.format(id=unknown), body)
    fault(response, {400: "badRequest", 404: "itemNotFound"}[code], code)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/os-security-groups/{id}", None),
        ("PUT", "/os-security-groups/{id}", {"security_group": {"name": "x"}}),
        ("DELETE", "/os-security-groups/{id}", None),
    ],
)
def test_security_group_of_another_project_is_404(api: Client, method: str, path: str, body: Any) -> None:
    group_id = made(api)
    fault(api(method, path.format(id=group_id), body, token=STRANGER), "itemNotFound", 404)
    assert api(method, path.format(id=group_id), body, token=ADMIN).status_code < 300


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/os-security-groups"),
        ("POST", "/os-security-groups"),
        ("PUT", f"/os-security-groups/{DEFAULT}"),
        ("DELETE", f"/os-security-groups/{DEFAULT}"),
        ("POST", "/os-security-group-rules"),
        ("DELETE", f"/os-security-group-rules/{DEFAULT}"),
    ],
)
def test_security_groups_end_with_2_35(api: Client, method: str, path: str) -> None:
    fault(api(method, path, {}, version="2.36"), "itemNotFound", 404)


@pytest.mark.parametrize("version", ["2.1", "2.96"])
def test_security_groups_of_a_server_are_listed_added_and_removed(api: Client, version: str) -> None:
    """The actions exist in all versions. The conductor changes the rows."""
    calls: list[Any] = []
    group = SecurityGroup(id=DEFAULT, name="default", project_id="demo")
    api.conductor.script("instance_security_groups", [group])
    for name in ("instance_security_group_add", "instance_security_group_remove"):
        api.conductor.script(name, lambda context, *rest, name=name: calls.append((name, *rest)))
    response = api.json("GET", "/servers/1/os-security-groups", version=version)
    assert [item["name"] for item in response["security_groups"]] == ["default"]
    for action in ("addSecurityGroup", "removeSecurityGroup"):
        body = {action: {"name": "web"}}
        assert api("POST", "/servers/1/action", body, version=version).status_code == 202
        fault(api("POST", "/servers/1/action", {action: {"name": ""}}, version=version), "badRequest", 400)
    assert calls == [("instance_security_group_add", "1", "web"), ("instance_security_group_remove", "1", "web")]
