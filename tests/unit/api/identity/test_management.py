"""Changes of projects and users over the identity API."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.api.identity.records import role_id
from nova_lite.base import exceptions
from tests.support.identity_api import World, error


@pytest.fixture
def admin(world: World) -> str:
    return world.token("admin")


def test_new_user_of_a_new_project_can_log_in(world: World, admin: str) -> None:
    response = world("POST", "/v3/projects", {"project": {"name": "lab", "domain_id": "default", "tags": []}}, admin)
    assert response.status_code == 201
    project = response.json["project"]
    assert (project["name"], project["description"], project["enabled"]) == ("lab", "", True)
    fields = {"name": "carol", "password": "carol's", "default_project_id": project["id"], "email": "c@example"}
    response = world("POST", "/v3/users", {"user": fields}, admin)
    assert response.status_code == 201
    user = response.json["user"]
    assert "carol's" not in response.text
    role = f"/v3/projects/{project['id']}/users/{user['id']}/roles/{role_id('member')}"
    assert [world("PUT", role, None, admin).status_code for _ in range(2)] == [204, 204]
    logged_in = world.log_in("carol", "carol's")
    assert [role["name"] for role in logged_in.json["token"]["roles"]] == ["member", "reader"]
    token = logged_in.headers["X-Subject-Token"]

    assert world("DELETE", role, None, admin).status_code == 204
    assert error(world("DELETE", role, None, admin), 404)
    assert world("DELETE", f"/v3/users/{user['id']}", None, admin).status_code == 204
    assert error(world("GET", "/v3/auth/catalog", None, token), 401)
    assert world("DELETE", f"/v3/projects/{project['id']}", None, admin).status_code == 204
    assert error(world("GET", f"/v3/projects/{project['id']}", None, admin), 404)


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("projects", {"project": {"name": "demo"}}, 409),
        ("projects", {"project": {"name": "a/b"}}, 400),
        ("projects", {"project": {"name": 5}}, 400),
        ("projects", {"project": "lab"}, 400),
        ("projects", {"project": {"name": "lab", "domain_id": "other"}}, 404),
        ("users", {"user": {"name": "alice", "password": "x"}}, 409),
        ("users", {"user": {"name": "carol", "password": ""}}, 400),
        ("users", {"user": {"name": "carol", "password": 5}}, 400),
        ("users", {"user": {"name": "carol", "password": "x", "default_project_id": "nowhere"}}, 404),
    ],
)
def test_invalid_change_is_refused(world: World, admin: str, path: str, body: Any, code: int) -> None:
    before = world.users.refresh()
    assert error(world("POST", f"/v3/{path}", body, admin), code)
    assert world.users.refresh() == before


def test_changes_are_for_admins(world: World) -> None:
    member = world.token("alice")
    role = f"/v3/projects/{world.ops.id}/users/id-of-alice/roles/{role_id('admin')}"
    for path in (f"/v3/projects/{world.demo.id}", "/v3/users/id-of-bob", "/v3/users/id-of-alice"):
        kind = path.split("/")[2].removesuffix("s")
        assert error(world("PATCH", path, {kind: {"enabled": True}}, member), 403)
    before = world.users.refresh()
    assert error(world("POST", "/v3/projects", {"project": {"name": "lab"}}, member), 403)
    assert error(world("POST", "/v3/users", {"user": {"name": "carol", "password": "x"}}, member), 403)
    for method, path in (("PUT", role), ("DELETE", role), ("DELETE", "/v3/users/id-of-bob")):
        assert error(world(method, path, None, member), 403)
    assert error(world("DELETE", f"/v3/projects/{world.demo.id}", None, member), 403)
    assert world.users.refresh() == before


def test_user_without_a_password_can_log_in_after_it_is_set(world: World, admin: str) -> None:
    user = world("POST", "/v3/users", {"user": {"name": "carol"}}, admin).json["user"]
    for password in ("", "carol's"):
        assert error(world.log_in("carol", password), 401)
    path = f"/v3/users/{user['id']}"
    assert world("PATCH", path, {"user": {"password": "carol's"}}, admin).status_code == 200
    token = world.log_in("carol", "carol's").headers["X-Subject-Token"]
    own = {"user": {"password": "new", "original_password": "wrong"}}
    assert error(world("POST", f"{path}/password", own, token), 401)
    own["user"]["original_password"] = "carol's"
    assert error(world("POST", f"{path}/password", own, world.token("alice")), 403)
    assert world("POST", f"{path}/password", own, token).status_code == 204
    assert error(world.log_in("carol", "carol's"), 401)
    assert world.log_in("carol", "new").status_code == 201


def test_projects_and_users_are_updated(world: World, admin: str) -> None:
    path = f"/v3/projects/{world.ops.id}"
    changed = world("PATCH", path, {"project": {"name": "op", "description": "d", "enabled": False}}, admin)
    assert (changed.status_code, changed.json["project"]["name"]) == (200, "op")
    assert world("PATCH", path, {"project": {"description": None}}, admin).json["project"]["description"] == ""
    project = world("GET", path, None, admin).json["project"]
    assert (project["name"], project["description"], project["enabled"]) == ("op", "", False)
    fields = {"name": "ally", "enabled": False, "default_project_id": world.ops.id, "email": "a@example"}
    user = world("PATCH", "/v3/users/id-of-alice", {"user": fields}, admin).json["user"]
    assert (user["name"], user["enabled"], user["default_project_id"]) == ("ally", False, world.ops.id)
    before = world.users.refresh()
    for kind, id, body, code in (
        ("projects", world.ops.id, {"project": {"name": "demo"}}, 409),
        ("projects", world.ops.id, {"project": {"enabled": "no"}}, 400),
        ("projects", "nowhere", {"project": {}}, 404),
        ("users", "id-of-alice", {"user": {"name": "admin"}}, 409),
        ("users", "id-of-alice", {"user": {"password": ""}}, 400),
        ("users", "id-of-alice", {"user": {"default_project_id": "nowhere"}}, 404),
    ):
        assert error(world("PATCH", f"/v3/{kind}/{id}", body, admin), code)
    assert world.users.refresh() == before


def test_refused_change_is_not_in_memory(world: World, admin: str) -> None:
    """A change that fails or cannot be stored has no effect."""
    alice = "/v3/users/id-of-alice"
    assert error(world("PATCH", alice, {"user": {"name": "eve", "default_project_id": "nowhere"}}, admin), 404)
    world.conductor.script("identity_change", exceptions.DatabaseUnavailable())
    assert error(world("DELETE", alice, None, admin), 503)
    assert error(world("PATCH", alice, {"user": {"name": "eve"}}, admin), 503)
    assert world("GET", alice, None, admin).json["user"]["name"] == "alice"
    assert world.log_in("alice").status_code == 201


def test_unknown_http_method_is_a_405(world: World, admin: str) -> None:
    message = error(world("PUT", "/v3/projects", {}, admin), 405)
    assert message == "PUT is not supported here by this cloud; GET, POST may be used."


# --- tokens of what was disabled or revoked


@pytest.mark.parametrize("scope", ["demo", None])
def test_token_of_a_disabled_user_stays_invalid_after_enabling(world: World, admin: str, scope: str | None) -> None:
    """Tokens may be the reason why a user was disabled. So disabling ends them permanently."""
    token = world.token("alice") if scope else world.log_in("alice", scope="unscoped").headers["X-Subject-Token"]
    path = "/v3/users/id-of-alice"
    assert world("GET", "/v3/auth/projects", token=token).status_code == 200
    for enabled in (False, True):
        assert world("PATCH", path, {"user": {"enabled": enabled}}, admin).status_code == 200
        assert error(world("GET", "/v3/auth/projects", token=token), 401)
    renewed = world("POST", "/v3/auth/tokens", {"auth": {"identity": {"methods": ["token"], "token": {"id": token}}}})
    assert renewed.status_code == 401
    fresh = world.token("alice")
    assert world("GET", "/v3/auth/projects", token=fresh).status_code == 200
    for fields in ({"enabled": True}, {"name": "alice"}):
        assert world("PATCH", path, {"user": fields}, admin).status_code == 200
        assert world("GET", "/v3/auth/projects", token=fresh).status_code == 200


def test_token_for_a_disabled_project_stays_invalid_after_enabling(world: World, admin: str) -> None:
    path, role = f"/v3/projects/{world.ops.id}", f"/v3/projects/{world.ops.id}/users/id-of-alice/roles"
    assert world("PUT", f"{role}/{role_id('member')}", None, admin).status_code == 204
    in_ops, in_demo = world.token("alice", "ops"), world.token("alice")
    for enabled in (False, True):
        assert world("PATCH", path, {"project": {"enabled": enabled}}, admin).status_code == 200
        assert error(world("GET", "/v3/auth/projects", token=in_ops), 401)
        assert world("GET", "/v3/auth/projects", token=in_demo).status_code == 200
    assert world("GET", "/v3/auth/projects", token=world.token("alice", "ops")).status_code == 200


def test_token_of_a_user_without_roles_stays_invalid_after_a_grant(world: World, admin: str) -> None:
    path = f"/v3/projects/{world.demo.id}/users/id-of-alice/roles/"
    member, reader = path + role_id("member"), path + role_id("reader")
    token = world.token("alice")
    assert world("PUT", reader, None, admin).status_code == 204
    assert world("DELETE", member, None, admin).status_code == 204
    assert world("GET", "/v3/auth/projects", token=token).status_code == 200
    assert world("DELETE", reader, None, admin).status_code == 204
    assert world("PUT", member, None, admin).status_code == 204
    assert error(world("GET", "/v3/auth/projects", token=token), 401)
    assert world("GET", "/v3/auth/projects", token=world.token("alice")).status_code == 200
