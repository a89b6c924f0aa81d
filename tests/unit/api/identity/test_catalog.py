"""Services, endpoints and regions that operators add to the catalog."""

from __future__ import annotations

from typing import Any

import pytest
import webob

from tests.support.identity_api import World, error

HEAT = "http://cloud:8004/v1/%(project_id)s"


@pytest.fixture
def admin(world: World) -> str:
    return world.token("admin")


class Catalog:
    """Requests of an admin about the catalog."""

    def __init__(self, world: World, token: str) -> None:
        self._world = world
        self._token = token

    def __call__(self, method: str, path: str, body: Any = None) -> webob.Response:
        return self._world(method, f"/v3/{path}", body, self._token)

    def make(self, kind: str, **fields: Any) -> dict[str, Any]:
        response = self("POST", f"{kind}s", {kind: fields})
        assert response.status_code == 201, response.text
        made: dict[str, Any] = response.json[kind]
        return made

    def heat(self, **fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        service = self.make("service", type="orchestration", name="heat", description="Stacks")
        given = {"service_id": service["id"], "interface": "public", "url": HEAT, "region_id": "RegionOne"} | fields
        return service, self.make("endpoint", **given)

    def in_token(self, user: str = "alice") -> dict[str, list[dict[str, Any]]]:
        token = self._world.log_in(user, scope={"project": {"id": self._world.demo.id}}).json["token"]
        return {entry["type"]: entry["endpoints"] for entry in token["catalog"]}


@pytest.fixture
def catalog(world: World, admin: str) -> Catalog:
    return Catalog(world, admin)


def test_added_service_is_in_the_catalog_of_tokens(world: World, catalog: Catalog) -> None:
    service, endpoint = catalog.heat()
    (shown,) = catalog.in_token()["orchestration"]
    assert shown == {
        "id": endpoint["id"],
        "interface": "public",
        "region": "RegionOne",
        "region_id": "RegionOne",
        "url": f"http://cloud:8004/v1/{world.demo.id}",
    }
    own = world("GET", "/v3/auth/catalog", token=world.token("alice")).json["catalog"]
    assert own[-1] == {"id": service["id"], "type": "orchestration", "name": "heat", "endpoints": [shown]}
    assert len(catalog.in_token()["compute"]) == 3


def test_services_and_endpoints_are_listed_changed_and_deleted(catalog: Catalog) -> None:
    service, endpoint = catalog.heat()
    assert service | {"links": None} == {
        "id": service["id"],
        "type": "orchestration",
        "name": "heat",
        "description": "Stacks",
        "enabled": True,
        "links": None,
    }
    assert catalog("GET", "services?type=orchestration").json["services"] == [service]
    assert catalog("GET", f"endpoints?service_id={service['id']}").json["endpoints"] == [endpoint]
    for kind, made in (("service", service), ("endpoint", endpoint)):
        assert catalog("GET", f"{kind}s/{made['id']}").json == {kind: made}
        hidden = catalog("PATCH", f"{kind}s/{made['id']}", {kind: {"enabled": False}})
        assert hidden.json == {kind: made | {"enabled": False}}
        assert catalog.in_token().get("orchestration", []) == []
        catalog("PATCH", f"{kind}s/{made['id']}", {kind: {"enabled": True}})
        assert len(catalog.in_token()["orchestration"]) == 1
    changed = catalog("PATCH", f"endpoints/{endpoint['id']}", {"endpoint": {"url": "http://x/$(tenant_id)s"}})
    assert (changed.json["endpoint"]["url"], changed.json["endpoint"]["region"]) == (
        "http://x/$(tenant_id)s",
        "RegionOne",
    )
    assert catalog("DELETE", f"services/{service['id']}").status_code == 204
    for path in (f"services/{service['id']}", f"endpoints/{endpoint['id']}"):
        for method in ("GET", "DELETE"):
            assert error(catalog(method, path), 404)
    assert "orchestration" not in catalog.in_token()


@pytest.mark.parametrize(
    ("kind", "body", "code", "hint"),
    [
        ("service", {}, 400, "type"),
        ("service", {"type": ""}, 400, "1 to 255"),
        ("service", {"type": 5}, 400, "type"),
        ("service", {"type": "x", "name": "x" * 256}, 400, "name"),
        ("service", {"type": "x", "enabled": "yes"}, 400, "enabled"),
        ("endpoint", {"interface": "public", "url": "http://x"}, 400, "service_id"),
        ("endpoint", {"service_id": "none", "interface": "public", "url": "http://x"}, 400, "service: none"),
        ("endpoint", {"interface": "secret"}, 400, "public, internal, admin"),
        ("endpoint", {"url": "/v1"}, 400, "scheme"),
        ("endpoint", {"url": "http://x/%(password)s"}, 400, "%(password)s"),
        ("endpoint", {"url": "http://x/%s"}, 400, "cannot have %"),
        ("endpoint", {"region_id": "nowhere"}, 400, "region: nowhere"),
        ("region", {"id": "a/b"}, 400, "slash"),
        ("region", {"id": "RegionOne"}, 409, "RegionOne"),
        ("region", {"id": "x", "parent_region_id": "nowhere"}, 404, "nowhere"),
    ],
)
def test_invalid_change_is_refused(
    world: World, catalog: Catalog, kind: str, body: dict[str, Any], code: int, hint: str
) -> None:
    if kind == "endpoint" and len(body) == 1:
        service = catalog.make("service", type="x")["id"]
        body = {"service_id": service, "interface": "public", "url": "http://x"} | body
    assert hint in error(catalog("POST", f"{kind}s", {kind: body}), code)
    content = world.users.content
    assert content.endpoints == content.regions == []


def test_built_in_parts_cannot_be_changed(catalog: Catalog) -> None:
    for kind in ("service", "endpoint"):
        (item, *_) = catalog("GET", f"{kind}s").json[f"{kind}s"]
        for method in ("PATCH", "DELETE"):
            assert "built in" in error(catalog(method, f"{kind}s/{item['id']}", {kind: {"enabled": False}}), 403)
    for method in ("PATCH", "DELETE"):
        assert "[identity] region" in error(catalog(method, "regions/RegionOne", {"region": {}}), 403)


def test_built_in_service_gets_an_endpoint_in_another_region(catalog: Catalog) -> None:
    (image,) = catalog("GET", "services?type=image").json["services"]
    catalog.make("endpoint", service_id=image["id"], interface="public", url="http://far:9292", region="Far")
    assert [(item["region"], item["url"]) for item in catalog.in_token()["image"]][-1] == ("Far", "http://far:9292")
    assert [item["id"] for item in catalog("GET", "regions").json["regions"]] == ["RegionOne", "Far"]


def test_regions_are_created_changed_and_deleted(catalog: Catalog) -> None:
    region = catalog.make("region", id="Far", description="d", parent_region_id="RegionOne")
    assert region | {"links": None} == {
        "id": "Far",
        "description": "d",
        "parent_region_id": "RegionOne",
        "links": None,
    }
    assert len(catalog.make("region")["id"]) == 32
    below = catalog.make("region", id="Farther", parent_region_id="Far")
    assert "below itself" in error(catalog("PATCH", "regions/Far", {"region": {"parent_region_id": "Farther"}}), 400)
    assert "other regions" in error(catalog("DELETE", "regions/Far"), 403)
    assert catalog("DELETE", f"regions/{below['id']}").status_code == 204
    catalog.heat(region_id="Far")
    assert "endpoints" in error(catalog("DELETE", "regions/Far"), 403)
    changed = catalog("PATCH", "regions/Far", {"region": {"description": None, "parent_region_id": None}})
    assert (changed.json["region"]["description"], changed.json["region"]["parent_region_id"]) == ("", None)
    assert error(catalog("DELETE", "regions/none"), 404)


def test_catalog_is_changed_by_admins_only(world: World, catalog: Catalog) -> None:
    service, endpoint = catalog.heat()
    catalog.make("region", id="Far")
    member = world.token("alice")
    for kind, id in (("service", service["id"]), ("endpoint", endpoint["id"]), ("region", "Far")):
        assert error(world("POST", f"/v3/{kind}s", {kind: {"type": "x"}}, member), 403)
        assert error(world("PATCH", f"/v3/{kind}s/{id}", {kind: {}}, member), 403)
        assert error(world("DELETE", f"/v3/{kind}s/{id}", None, member), 403)
