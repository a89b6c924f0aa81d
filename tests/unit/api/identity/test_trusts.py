"""Trusts: their requests, and log-in with them."""

from __future__ import annotations

import time
from typing import Any

import pytest
import webob

from nova_lite.api.identity import trusts
from nova_lite.api.identity.records import role_id
from tests.support.identity_api import PASSWORDS, World, error

TRUSTS = "/v3/OS-TRUST/trusts"


@pytest.fixture
def alice(world: World) -> str:
    return world.token("alice")


def body(world: World, **fields: Any) -> dict[str, Any]:
    given = {"trustor_user_id": "id-of-alice", "trustee_user_id": "id-of-admin", "project_id": world.demo.id}
    return {"trust": given | {"impersonation": True, "roles": [{"name": "member"}]} | fields}


def create(world: World, token: str, **fields: Any) -> dict[str, Any]:
    response = world("POST", TRUSTS, body(world, **fields), token)
    assert response.status_code == 201, response.text
    made: dict[str, Any] = response.json["trust"]
    return made


def log_in(world: World, trust: dict[str, Any], user: str = "admin") -> webob.Response:
    return world.log_in(user, scope={"OS-TRUST:trust": {"id": trust["id"]}})


def test_trust_is_created_listed_shown_and_deleted(world: World, alice: str) -> None:
    made = create(world, alice, expires_at="2090-02-27T18:30:59.999999Z", allow_redelegation=False)
    assert {name: made[name] for name in ("trustor_user_id", "trustee_user_id", "project_id", "impersonation")} == {
        "trustor_user_id": "id-of-alice",
        "trustee_user_id": "id-of-admin",
        "project_id": world.demo.id,
        "impersonation": True,
    }
    assert (made["expires_at"], made["remaining_uses"], made["redelegation_count"]) == (
        "2090-02-27T18:30:59.999999Z",
        None,
        0,
    )
    assert [role["name"] for role in made["roles"]] == ["member"]
    one = f"{TRUSTS}/{made['id']}"
    assert made["links"]["self"] == f"http://cloud:5000{one}"
    admin = world.token("admin")
    for token, query in ((alice, "?trustor_user_id=id-of-alice"), (admin, "?trustee_user_id=id-of-admin"), (admin, "")):
        (listed,) = world("GET", f"{TRUSTS}{query}", token=token).json["trusts"]
        assert listed == {name: value for name, value in made.items() if not name.startswith("roles")}
    assert world("GET", f"{TRUSTS}?trustee_user_id=id-of-alice", token=alice).json["trusts"] == []
    assert world("GET", one, token=alice).json["trust"] == made
    roles = world("GET", f"{one}/roles", token=alice).json["roles"]
    assert [role["name"] for role in roles] == ["member"]
    assert world("HEAD", f"{one}/roles/{role_id('member')}", token=alice).status_code == 200
    assert error(world("GET", f"{one}/roles/{role_id('admin')}", token=alice), 404)
    assert world("DELETE", one, token=alice).status_code == 204
    assert error(world("GET", one, token=alice), 404)
    assert error(world("DELETE", one, token=alice), 404)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"trustor_user_id": None}, 400),
        ({"trustee_user_id": 5}, 400),
        ({"trustor_user_id": "id-of-admin"}, 403),
        ({"trustee_user_id": "nobody"}, 404),
        ({"project_id": "nowhere"}, 404),
        ({"project_id": None}, 400),
        ({"impersonation": None}, 400),
        ({"roles": []}, 403),
        ({"roles": [{"name": "king"}]}, 404),
        ({"roles": [{"name": "admin"}]}, 404),
        ({"expires_at": "2018-01-01T00:00:00Z"}, 400),
        ({"remaining_uses": 0}, 400),
        ({"remaining_uses": True}, 400),
        ({"remaining_uses": 1.5}, 400),
    ],
)
def test_invalid_trust_is_refused(world: World, alice: str, fields: dict[str, Any], code: int) -> None:
    assert error(world("POST", TRUSTS, body(world, **fields), alice), code)
    assert world.users.content.trusts == []


def test_trusts_are_for_their_parties(world: World, alice: str) -> None:
    with world.users.changing() as content:
        content.users[2].enabled = True
    made = create(world, alice)
    bob = world.token("bob")
    one = f"{TRUSTS}/{made['id']}"
    for path in (
        one,
        f"{one}/roles",
        f"{one}/roles/{role_id('member')}",
        TRUSTS,
        f"{TRUSTS}?trustor_user_id=id-of-alice",
    ):
        assert error(world("GET", path, token=bob), 403), path
    assert error(world("DELETE", one, token=bob), 403)
    theirs = create(world, world.token("admin"), trustor_user_id="id-of-admin", trustee_user_id="id-of-alice")
    assert world("GET", f"{TRUSTS}/{theirs['id']}", token=alice).status_code == 200
    assert error(world("DELETE", f"{TRUSTS}/{theirs['id']}", token=alice), 403)


def test_number_of_trusts_is_limited(world: World, alice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trusts, "MAX_TRUSTS", 1)
    create(world, alice)
    assert "at most 1" in error(world("POST", TRUSTS, body(world), alice), 403)


@pytest.mark.parametrize("impersonation", [True, False])
def test_token_of_a_trust_has_its_roles_only(world: World, alice: str, impersonation: bool) -> None:
    made = create(world, alice, impersonation=impersonation)
    response = log_in(world, made)
    assert response.status_code == 201, response.text
    token, user = response.json["token"], "id-of-alice" if impersonation else "id-of-admin"
    assert (token["user"]["id"], token["project"]["id"]) == (user, world.demo.id)
    assert [role["name"] for role in token["roles"]] == ["member", "reader"]
    assert token["OS-TRUST:trust"] == {
        "id": made["id"],
        "trustor_user": {"id": "id-of-alice"},
        "trustee_user": {"id": "id-of-admin"},
        "impersonation": impersonation,
    }
    text = response.headers["X-Subject-Token"]
    assert world("GET", "/v2.1/servers", token=text, app="osapi_compute").status_code == 200
    context = world.conductor.contexts[-1]
    assert (context.user_id, context.roles, context.is_admin) == (user, ["member", "reader"], False)


def test_trust_is_for_its_trustee(world: World, alice: str) -> None:
    made = create(world, alice)
    assert error(log_in(world, made, "alice"), 401)
    assert error(log_in(world, {"id": "nowhere"}), 401)
    both = {"OS-TRUST:trust": {"id": made["id"]}, "project": {"id": world.demo.id}}
    assert error(world.log_in("admin", scope=both), 400)
    assert error(world.log_in("admin", scope={"OS-TRUST:trust": {}}), 400)


def test_token_of_a_trust_cannot_be_extended(world: World, alice: str) -> None:
    made = create(world, alice)
    text = log_in(world, made).headers["X-Subject-Token"]
    identity = {"methods": ["token"], "token": {"id": text}}
    for scope in ({}, {"scope": "unscoped"}, {"scope": {"project": {"id": world.demo.id}}}):
        assert error(world("POST", "/v3/auth/tokens", {"auth": {"identity": identity} | scope}), 403)
    assert error(world("POST", TRUSTS, body(world), text), 403)
    credentials = "/v3/users/id-of-alice/application_credentials"
    assert error(world("POST", credentials, {"application_credential": {"name": "ci"}}, text), 403)
    assert error(world("GET", credentials, token=text), 403)
    made_by_user = world("POST", credentials, {"application_credential": {"name": "ci", "unrestricted": True}}, alice)
    given = made_by_user.json["application_credential"]
    identity = {
        "methods": ["application_credential"],
        "application_credential": {k: given[k] for k in ("id", "secret")},
    }
    limited = world("POST", "/v3/auth/tokens", {"auth": {"identity": identity}}).headers["X-Subject-Token"]
    assert error(world("POST", TRUSTS, body(world), limited), 403)
    assert error(world("DELETE", f"{TRUSTS}/{made['id']}", token=limited), 403)
    assert world("DELETE", f"{TRUSTS}/{made['id']}", token=text).status_code == 204
    assert error(world("GET", "/v3/auth/projects", token=text), 401)


def test_trust_is_used_a_limited_number_of_times(world: World, alice: str) -> None:
    made = create(world, alice, remaining_uses=2)
    assert [log_in(world, made).status_code for _ in range(3)] == [201, 201, 401]
    assert world("GET", f"{TRUSTS}/{made['id']}", token=alice).json["trust"]["remaining_uses"] == 0


def test_trust_and_its_tokens_expire(world: World, alice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 60))
    made = create(world, alice, expires_at=soon)
    assert log_in(world, made).json["token"]["expires_at"] == made["expires_at"]
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 61)
    assert error(log_in(world, made), 401)


@pytest.mark.parametrize("change", ["trustor", "trustee", "role", "disabled", "password", "trustee password"])
def test_token_of_a_trust_ends_with_what_it_is_made_of(world: World, alice: str, change: str) -> None:
    admin = world.token("admin")
    with world.users.changing() as content:
        content.users[2].enabled = True
    made = create(world, alice, trustee_user_id="id-of-bob")
    text = log_in(world, made, "bob").headers["X-Subject-Token"]
    assert world("GET", "/v3/auth/catalog", token=text).status_code == 200
    user = "/v3/users/id-of-bob" if change.startswith("trustee") else "/v3/users/id-of-alice"
    role = f"/v3/projects/{world.demo.id}/users/id-of-alice/roles/{role_id('member')}"
    if change in ("trustor", "trustee"):
        assert world("DELETE", user, token=admin).status_code == 204
        assert world.users.content.trusts == []
    elif change == "role":
        for method in ("DELETE", "PUT"):
            assert world(method, role, token=admin).status_code == 204
    elif change == "disabled":
        for enabled in (False, True):
            assert world("PATCH", user, {"user": {"enabled": enabled}}, admin).status_code == 200
    else:
        assert world("PATCH", user, {"user": {"password": PASSWORDS["bob"]}}, admin).status_code == 200
    assert error(world("GET", "/v3/auth/catalog", token=text), 401)
    if change in ("role", "disabled", "password", "trustee password"):
        assert log_in(world, made, "bob").status_code == 201


def test_trust_is_deleted_with_its_project(world: World, alice: str) -> None:
    create(world, alice)
    assert world("DELETE", f"/v3/projects/{world.demo.id}", token=world.token("admin")).status_code == 204
    assert world.users.content.trusts == []
