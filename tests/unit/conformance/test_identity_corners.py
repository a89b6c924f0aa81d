"""Identity resources for conformance suites: policies, configuration of domains, and endpoints of projects."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.identity_api import Admin, World, error

# --- policies


def test_policy_of_another_service_is_kept(world: World, admin: Admin) -> None:
    body = {"policy": {"type": "application/json", "blob": '{"a": "role:admin"}', "service": "heat"}}
    made = admin("POST", "policies", body).json["policy"]
    assert (made["blob"], made["service"]) == ('{"a": "role:admin"}', "heat")
    path = f"policies/{made['id']}"
    assert admin("GET", "policies?type=application/json").json["policies"] == [made]
    assert admin("PATCH", path, {"policy": {"blob": "{}"}}).json["policy"] == made | {"blob": "{}"}
    for given in ({"type": "text/plain"}, {"type": "", "blob": "x"}, {"type": "a", "blob": "b" * 65536}):
        assert error(admin("POST", "policies", {"policy": given}), 400)
    assert error(world("GET", f"/v3/{path}", None, world.token("alice")), 403)
    assert admin("DELETE", path).status_code == 204
    assert error(admin("GET", path), 404)


# --- configuration of domains


def test_configuration_of_a_domain_is_kept_and_shown_in_parts(admin: Admin) -> None:
    config: dict[str, Any] = {"identity": {"driver": "ldap"}, "ldap": {"url": "ldap://cloud", "page_size": 5}}
    path = "domains/default/config"
    assert error(admin("GET", path), 404)
    assert admin("PUT", path, {"config": config}).status_code == 201
    assert admin("PUT", path, {"config": config}).status_code == 200
    assert admin("GET", path).json["config"] == config
    assert admin("GET", f"{path}/ldap").json["config"] == {"ldap": config["ldap"]}
    assert admin("GET", f"{path}/ldap/url").json["config"] == {"url": "ldap://cloud"}
    assert error(admin("GET", f"{path}/ldap/user_filter"), 404)
    changed = admin("PATCH", f"{path}/ldap/url", {"config": {"url": "ldap://other"}}).json["config"]
    assert changed["ldap"] == {"url": "ldap://other", "page_size": 5}
    assert error(admin("PATCH", f"{path}/ldap/url", {"config": {"page_size": 6}}), 403)
    assert error(admin("PATCH", f"{path}/ldap", {"config": {"identity": {"driver": "sql"}}}), 403)
    assert admin("DELETE", f"{path}/ldap/url").status_code == 204
    assert admin("DELETE", f"{path}/ldap/page_size").status_code == 204
    assert error(admin("GET", f"{path}/ldap"), 404)
    assert admin("DELETE", path).status_code == 204
    assert error(admin("DELETE", path), 404)
    assert admin("GET", "domains/config/ldap/url/default").json["config"] == {"url": "ldap://localhost"}
    assert set(admin("GET", "domains/config/default").json["config"]) == {"identity", "ldap"}


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"ldap": {"password": "secret"}}, 403),
        ({"sql": {"url": "x"}}, 403),
        ({"": {"url": "x"}}, 403),
        ({"ldap": {"": "x"}}, 403),
        ({"ldap": {"url": {"a": "b"}}}, 400),
        ({"ldap": {"url": "a" * 1025}}, 400),
        ({"ldap": "x"}, 400),
        ({"ldap": {}}, 400),
        ({}, 400),
    ],
)
def test_invalid_configuration_of_a_domain_is_refused(admin: Admin, config: Any, code: int) -> None:
    for method in ("PUT", "PATCH"):
        assert error(admin(method, "domains/default/config", {"config": config}), code)


def test_configuration_of_no_domain_is_not_found(world: World, admin: Admin) -> None:
    config = {"config": {"identity": {"driver": "sql"}}}
    for method, body in (("PUT", config), ("PATCH", config), ("GET", None), ("DELETE", None)):
        assert error(admin(method, "domains/none/config", body), 404)
        assert world(method, "/v3/domains/default/config", body, world.token("alice")).status_code == 403


# --- endpoints of projects


def urls_of(world: World) -> list[str]:
    """Return the URLs in the catalog of a token of the project demo."""
    catalog = world.log_in("alice").json["token"]["catalog"]
    return [endpoint["url"] for entry in catalog for endpoint in entry["endpoints"]]


def test_project_with_endpoints_has_only_those_in_its_catalog(world: World, admin: Admin) -> None:
    everything = urls_of(world)
    first, second = admin.endpoint("http://first"), admin.endpoint("http://second", "internal")
    path = f"OS-EP-FILTER/projects/{world.demo.id}/endpoints"
    assert admin("GET", path).json["endpoints"] == []
    assert admin("PUT", f"{path}/{first}").status_code == 204
    assert admin("HEAD", f"{path}/{first}").status_code == 204
    assert error(admin("GET", f"{path}/{second}"), 404)
    assert error(admin("PUT", f"{path}/none"), 404)
    assert urls_of(world) == ["http://first"]
    assert [item["id"] for item in admin("GET", path).json["endpoints"]] == [first]
    projects = admin("GET", f"OS-EP-FILTER/endpoints/{first}/projects").json["projects"]
    assert [item["name"] for item in projects] == ["demo"]
    assert admin("DELETE", f"{path}/{first}").status_code == 204
    assert urls_of(world) == [*everything, "http://first", "http://second"]
    assert admin("PUT", f"{path}/{first}").status_code == 204
    assert admin("DELETE", f"endpoints/{first}").status_code == 204
    assert urls_of(world) == [*everything, "http://second"]


def test_endpoint_group_selects_endpoints_of_its_projects(world: World, admin: Admin) -> None:
    everything = urls_of(world)
    admin.endpoint("http://first")
    admin.endpoint("http://second", "internal")
    group = {"name": "inside", "filters": {"service_id": admin.service, "interface": "internal"}}
    made = admin("POST", "OS-EP-FILTER/endpoint_groups", {"endpoint_group": group}).json["endpoint_group"]
    path = f"OS-EP-FILTER/endpoint_groups/{made['id']}"
    assert [item["url"] for item in admin("GET", f"{path}/endpoints").json["endpoints"]] == ["http://second"]
    assert error(admin("GET", f"{path}/projects/{world.demo.id}"), 404)
    assert admin("PUT", f"{path}/projects/{world.demo.id}").status_code == 204
    assert admin("GET", f"{path}/projects/{world.demo.id}").json["endpoint_group"] == made
    assert [item["name"] for item in admin("GET", f"{path}/projects").json["projects"]] == ["demo"]
    of_project = admin("GET", f"OS-EP-FILTER/projects/{world.demo.id}/endpoint_groups")
    assert of_project.json["endpoint_groups"] == [made]
    assert urls_of(world) == ["http://second"]
    changed = admin("PATCH", path, {"endpoint_group": {"filters": {"service_id": admin.service}}})
    assert changed.json["endpoint_group"]["name"] == "inside"
    assert urls_of(world) == ["http://first", "http://second"]
    assert admin("PATCH", path, {"endpoint_group": {"filters": {}}}).status_code == 200
    assert urls_of(world) == [*everything, "http://first", "http://second"]
    assert admin("DELETE", f"{path}/projects/{world.demo.id}").status_code == 204
    assert urls_of(world) == [*everything, "http://first", "http://second"]
    assert error(admin("POST", "OS-EP-FILTER/endpoint_groups", {"endpoint_group": group}), 409)
    assert admin("DELETE", path).status_code == 204
    assert error(admin("GET", path), 404)


@pytest.mark.parametrize("filters", [{"url": "x"}, {"interface": "secret"}, {"service_id": 5}, "x", None])
def test_invalid_filters_of_an_endpoint_group_are_refused(admin: Admin, filters: Any) -> None:
    body = {"endpoint_group": {"name": "one", "filters": filters}}
    assert error(admin("POST", "OS-EP-FILTER/endpoint_groups", body), 400)
