"""Groups, role assignments, and implied roles."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.api.identity.records import role_id
from tests.support.identity_api import World, error


@pytest.fixture
def admin(world: World) -> str:
    return world.token("admin")


@pytest.fixture
def group(world: World, admin: str) -> str:
    response = world("POST", "/v3/groups", {"group": {"name": "devs", "description": "d"}}, admin)
    assert response.status_code == 201
    id: str = response.json["group"]["id"]
    return id


def names(items: list[dict[str, Any]]) -> list[str]:
    return [item["name"] for item in items]


def test_group_is_created_listed_changed_and_deleted(world: World, admin: str, group: str) -> None:
    path = f"/v3/groups/{group}"
    shown = world("GET", path, None, admin).json["group"]
    links = {"self": f"http://cloud:5000{path}"}
    assert shown == {"id": group, "name": "devs", "description": "d", "domain_id": "default", "links": links}
    assert world("GET", "/v3/groups?name=devs", None, admin).json["groups"] == [shown]
    assert error(world("POST", "/v3/groups", {"group": {"name": "devs"}}, admin), 409)
    assert error(world("POST", "/v3/groups", {"group": {"name": "a/b"}}, admin), 400)
    changed = world("PATCH", path, {"group": {"name": "ops", "description": None}}, admin)
    assert (changed.json["group"]["name"], changed.json["group"]["description"]) == ("ops", "")
    assert world("DELETE", path, None, admin).status_code == 204
    for method, body in (("GET", None), ("PATCH", {"group": {}}), ("DELETE", None)):
        assert error(world(method, path, body, admin), 404)


def test_members_are_added_checked_listed_and_removed(world: World, admin: str, group: str) -> None:
    member = f"/v3/groups/{group}/users/id-of-alice"
    assert world("HEAD", member, None, admin).status_code == 404
    assert [world("PUT", member, None, admin).status_code for _ in range(2)] == [204, 204]
    assert world("HEAD", member, None, admin).status_code == 204
    assert names(world("GET", f"/v3/groups/{group}/users", None, admin).json["users"]) == ["alice"]
    (mine,) = world("GET", "/v3/users/id-of-alice/groups", None, world.token("alice")).json["groups"]
    assert (mine["name"], mine["membership_expires_at"]) == ("devs", None)
    assert world("GET", "/v3/users/id-of-admin/groups", None, admin).json["groups"] == []
    assert error(world("GET", "/v3/users/id-of-admin/groups", None, world.token("alice")), 403)
    assert world("DELETE", member, None, admin).status_code == 204
    assert error(world("DELETE", member, None, admin), 404)
    assert error(world("PUT", f"/v3/groups/{group}/users/nobody", None, admin), 404)
    assert error(world("PUT", "/v3/groups/none/users/id-of-alice", None, admin), 404)


def test_members_have_the_roles_of_their_group_at_once(world: World, admin: str, group: str) -> None:
    role = f"/v3/projects/{world.ops.id}/groups/{group}/roles/{role_id('reader')}"
    member = f"/v3/groups/{group}/users/id-of-alice"
    assert world("PUT", role, None, admin).status_code == 204
    in_ops = {"project": {"id": world.ops.id}}
    assert error(world.log_in("alice", scope=in_ops), 401)
    assert world("PUT", member, None, admin).status_code == 204
    logged_in = world.log_in("alice", scope=in_ops)
    assert names(logged_in.json["token"]["roles"]) == ["reader"]
    token = logged_in.headers["X-Subject-Token"]
    assert names(world("GET", "/v3/auth/projects", token=token).json["projects"]) == ["demo", "ops"]
    for undo, redo in (
        (("DELETE", member), ("PUT", member)),
        (("DELETE", role), ("PUT", role)),
        (("DELETE", f"/v3/groups/{group}"), None),
    ):
        token = world.log_in("alice", scope=in_ops).headers["X-Subject-Token"]
        assert world("GET", "/v3/auth/projects", token=token).status_code == 200
        assert world(*undo, None, admin).status_code == 204
        assert error(world("GET", "/v3/auth/projects", token=token), 401)
        if redo is not None:
            assert world(*redo, None, admin).status_code == 204
            assert error(world("GET", "/v3/auth/projects", token=token), 401)


def test_credential_is_deleted_when_its_user_leaves_the_group(world: World, admin: str, group: str) -> None:
    world("PUT", f"/v3/projects/{world.ops.id}/groups/{group}/roles/{role_id('reader')}", None, admin)
    member = f"/v3/groups/{group}/users/id-of-alice"
    world("PUT", member, None, admin)
    token = world.token("alice", "ops")
    path = "/v3/users/id-of-alice/application_credentials"
    assert world("POST", path, {"application_credential": {"name": "ci"}}, token).status_code == 201
    assert world("POST", path, {"application_credential": {"name": "other"}}, world.token("alice")).status_code == 201
    world("DELETE", member, None, admin)
    assert [item.name for item in world.users.content.application_credentials] == ["other"]


def test_deleted_user_leaves_its_groups_and_deleted_project_its_roles(world: World, admin: str, group: str) -> None:
    world("PUT", f"/v3/projects/{world.ops.id}/groups/{group}/roles/{role_id('reader')}", None, admin)
    world("PUT", f"/v3/groups/{group}/users/id-of-alice", None, admin)
    assert world("DELETE", "/v3/users/id-of-alice", None, admin).status_code == 204
    assert world("DELETE", f"/v3/projects/{world.ops.id}", None, admin).status_code == 204
    (stored,) = world.users.content.groups
    assert (stored.members, stored.roles) == ([], {})


def test_roles_of_a_user_in_a_project_are_listed_and_checked(world: World, admin: str) -> None:
    """Horizon asks for them before it creates a user."""
    roles = f"/v3/projects/{world.demo.id}/users/id-of-alice/roles"
    shown = world("GET", roles, None, admin).json
    assert names(shown["roles"]) == ["member"]
    assert shown["links"]["self"] == f"http://cloud:5000{roles}"
    for method in ("GET", "HEAD"):
        assert world(method, f"{roles}/{role_id('member')}", None, admin).status_code == 204
        assert world(method, f"{roles}/{role_id('reader')}", None, admin).status_code == 404
        assert world(method, f"{roles}/none", None, admin).status_code == 404
    assert error(world("GET", roles.replace(world.demo.id, "none"), None, admin), 404)
    assert error(world("GET", roles.replace("alice", "nobody"), None, admin), 404)
    assert error(world("GET", roles, None, world.token("alice")), 403)
    assert world("GET", roles.replace(world.demo.id, world.ops.id), None, admin).json["roles"] == []


def test_role_assignments_are_filtered(world: World, admin: str, group: str) -> None:
    world("PUT", f"/v3/projects/{world.ops.id}/groups/{group}/roles/{role_id('member')}", None, admin)
    world("PUT", f"/v3/groups/{group}/users/id-of-alice", None, admin)

    def found(query: str) -> list[tuple[str, str, str]]:
        response = world("GET", f"/v3/role_assignments?include_names=1{query}", None, admin)
        assert response.status_code == 200, response.text
        return [
            ((item.get("user") or item["group"])["name"], item["role"]["name"], item["scope"]["project"]["name"])
            for item in response.json["role_assignments"]
        ]

    own = [("admin", "admin", "demo"), ("alice", "member", "demo"), ("bob", "member", "demo")]
    assert sorted(found("")) == [*own, ("devs", "member", "ops")]
    assert found("&user.id=id-of-alice") == [("alice", "member", "demo")]
    assert found(f"&group.id={group}") == [("devs", "member", "ops")]
    assert found(f"&scope.project.id={world.ops.id}") == [("devs", "member", "ops")]
    assert found(f"&role.id={role_id('admin')}") == [("admin", "admin", "demo")]
    assert found("&scope.system=all") == found("&scope.domain.id=default") == []
    assert found("&effective&user.id=id-of-alice") == [
        ("alice", "member", "demo"),
        ("alice", "reader", "demo"),
        ("alice", "member", "ops"),
        ("alice", "reader", "ops"),
    ]
    assert len(found(f"&effective=true&role.id={role_id('reader')}")) == 4
    assert error(world("GET", f"/v3/role_assignments?user.id=a&group.id={group}", None, admin), 400)
    assert error(world("GET", f"/v3/role_assignments?effective&group.id={group}", None, admin), 400)
    (item,) = world("GET", f"/v3/role_assignments?group.id={group}", None, admin).json["role_assignments"]
    assert item["group"] == {"id": group}
    assert item["links"]["assignment"].endswith(f"/projects/{world.ops.id}/groups/{group}/roles/{role_id('member')}")
    by_group = world("GET", "/v3/role_assignments?effective&user.id=id-of-alice", None, admin).json["role_assignments"]
    assert by_group[-1]["links"]["membership"] == f"http://cloud:5000/v3/groups/{group}/users/id-of-alice"


def test_roles_that_imply_others_are_listed(world: World, admin: str) -> None:
    inferences = world("GET", "/v3/role_inferences", None, admin).json["role_inferences"]
    assert [(item["prior_role"]["name"], names(item["implies"])) for item in inferences] == [
        ("admin", ["manager"]),
        ("manager", ["member"]),
        ("member", ["reader"]),
    ]
    path = f"/v3/roles/{role_id('member')}/implies"
    inference = world("GET", path, None, admin).json["role_inference"]
    assert (inference["prior_role"]["name"], names(inference["implies"])) == ("member", ["reader"])
    one = world("GET", f"{path}/{role_id('reader')}", None, admin)
    assert one.json["role_inference"]["implies"]["name"] == "reader"
    assert world("HEAD", f"{path}/{role_id('reader')}", None, admin).status_code == 204
    assert error(world("GET", f"{path}/{role_id('admin')}", None, admin), 404)
    assert error(world("GET", "/v3/role_inferences", None, world.token("alice")), 403)


def test_system_scopes_are_an_empty_list(world: World) -> None:
    shown = world("GET", "/v3/auth/system", None, world.token("alice")).json
    assert (shown["system"], shown["links"]["self"]) == ([], "http://cloud:5000/v3/auth/system")


def test_email_description_and_enabled_of_a_user_are_stored(world: World, admin: str) -> None:
    fields = {"name": "carol", "password": "x", "email": "c@example", "description": "d", "enabled": False}
    made = world("POST", "/v3/users", {"user": fields}, admin).json["user"]
    path = f"/v3/users/{made['id']}"
    for user in (made, world("GET", path, None, admin).json["user"]):
        assert (user["email"], user["description"], user["enabled"]) == ("c@example", "d", False)
    assert error(world.log_in("carol", "x"), 401)
    changed = world("PATCH", path, {"user": {"email": None, "enabled": True}}, admin).json["user"]
    assert ("email" in changed, changed["description"]) == (False, "d")
    assert error(world("PATCH", path, {"user": {"email": 5}}, admin), 400)
    project = world("POST", "/v3/projects", {"project": {"name": "lab", "enabled": False}}, admin).json["project"]
    assert project["enabled"] is False


@pytest.mark.parametrize("name", ["default", "Default", "DEFAULT"])
def test_domain_is_named_case_insensitively(world: World, name: str) -> None:
    scope = {"project": {"name": "demo", "domain": {"name": name}}}
    response = world.log_in("alice", scope=scope, domain={"name": name})
    assert response.status_code == 201
    assert error(world.log_in("alice", domain={"name": "defaults"}), 401)
    assert error(world.log_in("alice", domain={"name": 5}), 400)
