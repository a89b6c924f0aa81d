"""Projects and users made and deleted over the identity API."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from nova_lite.api.identity.directory import role_id
from tests.unit.api.identity.conftest import World
from tests.unit.api.identity.test_identity_api import error


@pytest.fixture
def admin(world: World) -> str:
    return world.token("admin")


def test_a_user_of_a_new_project_logs_in(world: World, admin: str) -> None:
    answer = world("POST", "/v3/projects", {"project": {"name": "lab", "domain_id": "default", "tags": []}}, admin)
    assert answer.status_code == 201
    project = answer.json["project"]
    assert (project["name"], project["description"], project["enabled"]) == ("lab", "", True)
    wanted = {"name": "carol", "password": "carol's", "default_project_id": project["id"], "email": "c@example"}
    answer = world("POST", "/v3/users", {"user": wanted}, admin)
    assert answer.status_code == 201
    user = answer.json["user"]
    assert "carol's" not in answer.text
    role = f"/v3/projects/{project['id']}/users/{user['id']}/roles/{role_id('member')}"
    assert [world("PUT", role, None, admin).status_code for _ in range(2)] == [204, 204]
    logged_in = world.log_in("carol", "carol's")
    assert [each["name"] for each in logged_in.json["token"]["roles"]] == ["member", "reader"]
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
        ("users", {"user": {"name": "carol"}}, 400),
        ("users", {"user": {"name": "carol", "password": "x", "default_project_id": "nowhere"}}, 404),
    ],
)
def test_what_is_refused(world: World, admin: str, path: str, body: Any, code: int) -> None:
    before = world.users.load()
    assert error(world("POST", f"/v3/{path}", body, admin), code)
    assert world.users.load() == before


def test_only_admins(world: World) -> None:
    member = world.token("alice")
    role = f"/v3/projects/{world.ops.id}/users/id-of-alice/roles/{role_id('admin')}"
    before = world.users.load()
    assert error(world("POST", "/v3/projects", {"project": {"name": "lab"}}, member), 403)
    assert error(world("POST", "/v3/users", {"user": {"name": "carol", "password": "x"}}, member), 403)
    for method, path in (("PUT", role), ("DELETE", role), ("DELETE", "/v3/users/id-of-bob")):
        assert error(world(method, path, None, member), 403)
    assert error(world("DELETE", f"/v3/projects/{world.demo.id}", None, member), 403)
    assert world.users.load() == before


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_where_the_file_is_for_others_to_write(
    world: World, admin: str, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(path: str, data: bytes) -> None:
        raise OSError(number, "refused", path)

    monkeypatch.setattr("nova_lite.api.identity.directory._write", refuse)
    told = error(world("POST", "/v3/projects", {"project": {"name": "lab"}}, admin), 403)
    assert "nova-lite-manage" in told
    assert "users.yaml" not in told
    assert error(world("POST", "/v3/projects", {"project": {"name": "demo"}}, admin), 409)
