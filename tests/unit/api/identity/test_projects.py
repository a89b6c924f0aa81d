"""Tags of projects, projects below others, projects that are domains, and attributes of the client's own."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.api.identity.records import MAX_DEPTH, role_id
from tests.support.identity_api import World, error

ALICE = "id-of-alice"


class Admin:
    def __init__(self, world: World) -> None:
        self.world = world
        self.token = world.token("admin")

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        return self.world(method, f"/v3/{path}", body, self.token)

    def project(self, name: str, **fields: Any) -> str:
        made = self("POST", "projects", {"project": {"name": name, **fields}})
        assert made.status_code == 201, made.text
        return str(made.json["project"]["id"])

    def names(self, query: str, kind: str = "projects") -> list[str]:
        return [item["name"] for item in self("GET", f"{kind}?{query}").json[kind]]


@pytest.fixture
def admin(world: World) -> Admin:
    return Admin(world)


# --- tags


def test_tags_are_added_replaced_and_deleted(admin: Admin) -> None:
    path = f"projects/{admin.project('one', tags=['red'])}/tags"
    assert admin("PUT", f"{path}/blue").status_code == 201
    assert admin("PUT", f"{path}/blue").status_code == 201
    assert admin("GET", path).json["tags"] == ["red", "blue"]
    assert admin("HEAD", f"{path}/red").status_code == 204
    assert admin("DELETE", f"{path}/red").status_code == 204
    assert error(admin("DELETE", f"{path}/red"), 404)
    assert error(admin("GET", f"{path}/red"), 404)
    assert admin("PUT", path, {"tags": ["green", "white"]}).json["tags"] == ["green", "white"]
    assert admin("GET", path.removesuffix("/tags")).json["project"]["tags"] == ["green", "white"]
    assert admin("DELETE", path).status_code == 204
    assert admin("GET", path).json["tags"] == []


@pytest.mark.parametrize(
    "tags", ["red", ["red", "red"], ["a/b"], ["a,b"], [""], ["a" * 256], [1], [str(number) for number in range(81)]]
)
def test_invalid_tags_are_refused(admin: Admin, tags: Any) -> None:
    assert admin("PUT", f"projects/{admin.world.demo.id}/tags", {"tags": tags}).status_code == 400
    assert admin("POST", "projects", {"project": {"name": "new", "tags": tags}}).status_code == 400
    assert error(admin("PUT", f"projects/{admin.world.demo.id}/tags", {}), 400)


def test_projects_are_filtered_by_tags(admin: Admin) -> None:
    admin.project("one", tags=["red", "blue"])
    admin.project("two", tags=["red"])
    assert admin.names("tags=red,blue") == ["one"]
    assert admin.names("tags-any=red,blue") == ["one", "two"]
    assert admin.names("not-tags=red,blue") == ["demo", "ops", "two"]
    assert admin.names("not-tags-any=red,blue") == ["demo", "ops"]


def test_members_see_the_tags_of_their_project_and_change_none(world: World, admin: Admin) -> None:
    alice, path = world.token("alice"), f"/v3/projects/{world.demo.id}/tags"
    assert admin("PUT", f"projects/{world.demo.id}/tags", {"tags": ["red"]}).status_code == 200
    assert world("GET", path, None, alice).json["tags"] == ["red"]
    assert world("GET", f"{path}/red", None, alice).status_code == 204
    for method, url, body in (("PUT", path, {"tags": []}), ("DELETE", path, None), ("PUT", f"{path}/x", None)):
        assert world(method, url, body, alice).status_code == 403
    assert world("GET", f"/v3/projects/{world.ops.id}/tags", None, alice).status_code == 403


# --- projects below others


def test_project_below_another_shows_its_parents_and_subtree(admin: Admin) -> None:
    top = admin.project("top")
    middle = admin.project("middle", parent_id=top)
    low, other = admin.project("low", parent_id=middle), admin.project("other", parent_id=top, domain_id="default")
    shown = admin("GET", f"projects/{low}?parents_as_ids").json["project"]
    assert (shown["parent_id"], shown["parents"]) == (middle, {middle: {top: {"default": None}}})
    shown = admin("GET", f"projects/{top}?subtree_as_ids&parents_as_list").json["project"]
    assert (shown["parent_id"], shown["subtree"], shown["parents"]) == (
        "default",
        {middle: {low: None}, other: None},
        [],
    )
    shown = admin("GET", f"projects/{top}?subtree_as_list").json["project"]
    assert [item["project"]["id"] for item in shown["subtree"]] == [middle, other, low]
    shown = admin("GET", f"projects/{low}?parents_as_list&subtree_as_ids").json["project"]
    assert ([item["project"]["id"] for item in shown["parents"]], shown["subtree"]) == ([middle, top], None)
    assert admin.names(f"parent_id={top}") == ["middle", "other"]
    assert error(admin("GET", f"projects/{low}?parents_as_list&parents_as_ids"), 400)


def test_member_sees_only_projects_above_in_which_a_role_is_held(world: World, admin: Admin) -> None:
    top = admin.project("top")
    low = admin.project("low", parent_id=top)
    assert admin("PUT", f"projects/{low}/users/{ALICE}/roles/{role_id('member')}").status_code == 204
    token = world.token("alice", "low")
    path = f"/v3/projects/{low}?parents_as_list"
    assert world("GET", path, None, token).json["project"]["parents"] == []
    assert admin("PUT", f"projects/{top}/users/{ALICE}/roles/{role_id('reader')}").status_code == 204
    (found,) = world("GET", path, None, token).json["project"]["parents"]
    assert found["project"]["name"] == "top"
    assert world("GET", f"/v3/projects/{top}", None, token).status_code == 403


def test_project_cannot_be_moved_and_depth_is_limited(admin: Admin) -> None:
    parent = admin.project("0")
    path = f"projects/{parent}"
    for number in range(1, MAX_DEPTH):
        parent = admin.project(str(number), parent_id=parent)
    assert "at most" in error(admin("POST", "projects", {"project": {"name": "deep", "parent_id": parent}}), 403)
    assert "move" in error(admin("PATCH", path, {"project": {"parent_id": parent}}), 403)
    assert admin("PATCH", path, {"project": {"parent_id": "default", "name": "same"}}).status_code == 200
    assert error(admin("POST", "projects", {"project": {"name": "lost", "parent_id": "nowhere"}}), 404)
    lab = admin("POST", "domains", {"domain": {"name": "lab"}}).json["domain"]["id"]
    body = {"project": {"name": "lost", "parent_id": parent, "domain_id": lab}}
    assert "domain" in error(admin("POST", "projects", body), 400)


def test_projects_above_others_are_neither_deleted_nor_disabled(admin: Admin) -> None:
    top = admin.project("top")
    low = admin.project("low", parent_id=top)
    assert "below" in error(admin("DELETE", f"projects/{top}"), 403)
    assert "Disable those first" in error(admin("PATCH", f"projects/{top}", {"project": {"enabled": False}}), 403)
    assert admin("PATCH", f"projects/{low}", {"project": {"enabled": False}}).status_code == 200
    assert admin("PATCH", f"projects/{top}", {"project": {"enabled": False}}).status_code == 200
    assert "Enable it first" in error(admin("PATCH", f"projects/{low}", {"project": {"enabled": True}}), 403)
    assert "disabled" in error(admin("POST", "projects", {"project": {"name": "new", "parent_id": top}}), 403)
    assert admin("DELETE", f"projects/{low}").status_code == 204
    assert admin("DELETE", f"projects/{top}").status_code == 204


def test_role_inherited_from_a_project_reaches_the_projects_below(world: World, admin: Admin) -> None:
    top = admin.project("top")
    admin.project("low", parent_id=top)
    path = f"OS-INHERIT/projects/{top}/users/{ALICE}/roles/{role_id('reader')}/inherited_to_projects"
    assert admin("PUT", path).status_code == 204
    assert world.log_in("alice", scope={"project": {"id": top}}).status_code == 401
    token = world.token("alice", "low")
    assert "low" in [item["name"] for item in world("GET", "/v3/auth/projects", None, token).json["projects"]]
    query = f"role_assignments?scope.project.id={top}&include_subtree=1&effective=1"
    names = [
        (item["user"]["id"], item["scope"]["OS-INHERIT:inherited_to"])
        for item in admin("GET", query).json["role_assignments"]
    ]
    assert names == [(ALICE, "projects")]
    assert admin("DELETE", path).status_code == 204
    assert world("GET", "/v3/auth/projects", None, token).status_code == 401


# --- projects that are domains


def test_project_that_is_a_domain_is_both(admin: Admin) -> None:
    made = admin("POST", "projects", {"project": {"name": "lab", "is_domain": True, "color": "red"}}).json["project"]
    assert (made["is_domain"], made["domain_id"], made["parent_id"], made["color"]) == (True, None, None, "red")
    assert admin("GET", f"domains/{made['id']}").json["domain"]["name"] == "lab"
    assert admin.names("is_domain=true") == ["Default", "lab"]
    assert admin.names("") == ["demo", "ops"]
    assert admin.names("is_domain=false") == ["demo", "ops"]
    inside = admin.project("inside", domain_id=made["id"], parent_id=made["id"])
    assert admin("GET", f"projects/{inside}").json["project"]["parent_id"] == made["id"]
    path = f"projects/{made['id']}"
    assert admin("GET", path).json["project"] == made
    assert error(admin("PATCH", path, {"project": {"is_domain": False}}), 400)
    assert error(admin("DELETE", path), 403)
    assert admin("PATCH", path, {"project": {"enabled": False, "name": "gone"}}).json["project"]["name"] == "gone"
    assert admin("DELETE", path).status_code == 204
    assert error(admin("GET", f"projects/{inside}"), 404)
    assert error(admin("DELETE", "projects/default"), 403)
    assert error(admin("POST", "projects", {"project": {"name": "x", "is_domain": True, "domain_id": "default"}}), 400)


# --- names, attributes, filters


def test_names_are_as_long_as_in_keystone(admin: Admin) -> None:
    for kind, longest in (("project", 64), ("domain", 64), ("group", 255), ("user", 255), ("role", 255)):
        made = admin("POST", f"{kind}s", {kind: {"name": "a" * longest}})
        assert made.status_code == 201, made.text
        assert f"1 to {longest}" in error(admin("POST", f"{kind}s", {kind: {"name": "b" * (longest + 1)}}), 400)
        path = f"{kind}s/{made.json[kind]['id']}"
        assert error(admin("PATCH", path, {kind: {"name": "b" * (longest + 1)}}), 400)


@pytest.mark.parametrize("kind", ["project", "domain", "group", "user", "role", "service", "region", "endpoint"])
def test_attributes_of_the_client_are_kept(admin: Admin, kind: str) -> None:
    fields: dict[str, Any] = {"name": "new", "color": "red", "links": "mine"}
    if kind in ("service", "endpoint"):
        fields["type"] = "compute"
    if kind == "endpoint":
        service = admin("POST", "services", {"service": {"type": "one"}}).json["service"]["id"]
        fields |= {"service_id": service, "interface": "public", "url": "http://cloud"}
    made = admin("POST", f"{kind}s", {kind: fields})
    assert made.status_code == 201, made.text
    shown = made.json[kind]
    assert (shown["name"], shown["color"]) == ("new", "red")
    assert shown["links"]["self"].endswith(shown["id"])
    path = f"{kind}s/{shown['id']}"
    assert admin("PATCH", path, {kind: {"size": 5, "color": None}}).json[kind] == shown | {"size": 5, "color": None}
    assert admin("GET", path).json[kind]["size"] == 5
    assert shown["id"] in [item["id"] for item in admin("GET", f"{kind}s").json[f"{kind}s"]]
    assert "at most" in error(admin("PATCH", path, {kind: {"text": "a" * 4096}}), 400)


def test_attribute_never_replaces_a_field(admin: Admin) -> None:
    fields = {"name": "eve", "password_expires_at": "never", "id": "id-of-admin", "federated": [], "password": "word"}
    made = admin("POST", "users", {"user": fields}).json["user"]
    assert made["id"] != "id-of-admin"
    assert (made["password_expires_at"], "password" in made, "federated" in made) == (None, False, False)


def test_endpoint_in_a_catalog_has_no_attributes_of_the_client(world: World, admin: Admin) -> None:
    service = admin("POST", "services", {"service": {"type": "one", "color": "red"}}).json["service"]["id"]
    endpoint = {"service_id": service, "interface": "public", "url": "http://cloud", "color": "red"}
    assert admin("POST", "endpoints", {"endpoint": endpoint}).status_code == 201
    token = world.log_in("alice").json["token"]
    (entry,) = [item for item in token["catalog"] if item["type"] == "one"]
    assert "color" not in entry
    assert "color" not in entry["endpoints"][0]


def test_lists_are_filtered_by_comparisons(admin: Admin) -> None:
    for name in ("Alpha", "beta", "alphabet"):
        admin.project(name)
    assert admin.names("name__contains=pha") == ["Alpha", "alphabet"]
    assert admin.names("name__startswith=al") == ["alphabet"]
    assert admin.names("name__istartswith=AL") == ["Alpha", "alphabet"]
    assert admin.names("name__endswith=ta") == ["beta"]
    assert admin.names("name__iequals=ALPHA") == ["Alpha"]
    assert admin.names("enabled__contains=x") == []
    assert admin.names("name__contains=li", "users") == ["alice"]


def test_region_is_created_with_the_id_of_its_url(admin: Admin) -> None:
    assert admin("PUT", "regions/north", {"region": {"description": "cold"}}).json["region"]["id"] == "north"
    assert error(admin("PUT", "regions/north", {"region": {}}), 409)
    assert error(admin("PUT", "regions/south", {"region": {"id": "north"}}), 400)
