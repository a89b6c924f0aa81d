"""Application credentials: their requests, and log-in with them."""

from __future__ import annotations

import datetime
import time
from typing import Any

import pytest
import webob

from nova_lite.api.identity import access_rules, app_credentials, directory
from nova_lite.api.identity.records import AccessRule, role_id
from tests.support.identity_api import World, error

ALICE = "/v3/users/id-of-alice/application_credentials"
REFUSED = "The request you have made requires authentication."


@pytest.fixture
def alice(world: World) -> str:
    return world.token("alice")


def create(world: World, token: str, path: str = ALICE, **fields: Any) -> dict[str, Any]:
    response = world("POST", path, {"application_credential": {"name": "ci"} | fields}, token)
    assert response.status_code == 201, response.text
    made: dict[str, Any] = response.json["application_credential"]
    return made


def refused(world: World, token: str, code: int, **fields: Any) -> str:
    return error(world("POST", ALICE, {"application_credential": {"name": "ci"} | fields}, token), code)


def log_in(world: World, scope: Any = None, **given: Any) -> webob.Response:
    identity = {"methods": ["application_credential"], "application_credential": given}
    return world("POST", "/v3/auth/tokens", {"auth": {"identity": identity} | ({"scope": scope} if scope else {})})


def token_of(world: World, made: dict[str, Any]) -> str:
    response = log_in(world, id=made["id"], secret=made["secret"])
    assert response.status_code == 201, response.text
    text: str = response.headers["X-Subject-Token"]
    return text


# --- resource


def test_credential_is_created_listed_shown_and_deleted(world: World, alice: str) -> None:
    made = create(world, alice, description="for tests", expires_at="2090-02-27T18:30:59Z")
    assert len(made.pop("secret")) > 40
    assert made == {
        "id": made["id"],
        "name": "ci",
        "description": "for tests",
        "project_id": world.demo.id,
        "user_id": "id-of-alice",
        "roles": [{"id": role_id(name), "name": name, "domain_id": None} for name in ("member", "reader")],
        "expires_at": "2090-02-27T18:30:59.000000",
        "unrestricted": False,
        "access_rules": [],
        "system": None,
        "links": {"self": f"http://cloud:5000{ALICE}/{made['id']}"},
    }
    other = create(world, alice, name="other")
    listed = world("GET", ALICE, token=alice).json
    assert [item["name"] for item in listed["application_credentials"]] == ["ci", "other"]
    assert listed["links"]["self"] == f"http://cloud:5000{ALICE}"
    assert "secret" not in world("GET", ALICE, token=alice).text
    (item,) = world("GET", f"{ALICE}?name=ci", token=alice).json["application_credentials"]
    assert (
        world("GET", f"{ALICE}/{made['id']}", token=alice).json
        == {"application_credential": item}
        == {"application_credential": made}
    )
    assert world("DELETE", f"{ALICE}/{made['id']}", token=alice).status_code == 204
    for method in ("GET", "DELETE"):
        assert error(world(method, f"{ALICE}/{made['id']}", token=alice), 404)
    assert world("GET", f"{ALICE}/{other['id']}", token=alice).status_code == 200


def test_secret_is_the_given_one_and_stored_as_a_hash(world: World, alice: str) -> None:
    assert create(world, alice, secret="rEaqvJka48mpv")["secret"] == "rEaqvJka48mpv"
    (stored,) = world.users.content.application_credentials
    assert stored.secret.startswith("scrypt$")
    assert "rEaqvJka48mpv" not in repr(world.users.content)


def test_other_users_credentials_are_not_accessible(world: World, alice: str) -> None:
    made, admin = create(world, alice), world.token("admin")
    bob = "/v3/users/id-of-admin/application_credentials"
    assert error(world("GET", bob, token=alice), 403)
    assert error(world("GET", f"{ALICE.replace('alice', 'admin')}/{made['id']}", token=admin), 404)
    assert error(world("DELETE", f"{bob}/{made['id']}", token=admin), 404)
    assert error(world("POST", ALICE, {"application_credential": {"name": "x"}}, admin), 403)
    assert error(world("POST", bob, {"application_credential": {"name": "x"}}, alice), 403)
    assert world("GET", f"{ALICE}/{made['id']}", token=admin).status_code == 200
    assert world("DELETE", f"{ALICE}/{made['id']}", token=admin).status_code == 204


@pytest.mark.parametrize(
    ("fields", "code", "hint"),
    [
        ({"name": None}, 400, "name"),
        ({"name": "a/b"}, 400, "name"),
        ({"secret": 5}, 400, "secret"),
        ({"description": "x" * 4097}, 400, "description"),
        ({"unrestricted": "yes"}, 400, "unrestricted"),
        ({"expires_at": "tomorrow"}, 400, "2030-12-31T23:59:59Z"),
        ({"expires_at": "2018-02-27T18:30:59Z"}, 400, "in the past"),
        ({"expires_at": "9999-12-31T23:59:59-14:00"}, 400, "ISO 8601"),
        ({"roles": "member"}, 400, "roles"),
        ({"roles": {}}, 400, "roles"),
        ({"roles": ["member"]}, 400, "roles"),
        ({"roles": [{}]}, 400, "with an id or a name"),
        ({"roles": [{"name": "admin"}]}, 400, "unassigned role admin"),
        ({"roles": [{"id": role_id("manager")}]}, 400, "unassigned role manager"),
        ({"roles": [{"name": "king"}]}, 404, "role: king"),
        ({"access_rules": {}}, 400, "access_rules"),
        ({"access_rules": [{}]}, 400, "service"),
        ({"access_rules": ["GET"]}, 400, "service, method and path"),
        ({"access_rules": [{"service": "compute", "method": "get", "path": "/"}]}, 400, "DELETE, GET"),
        ({"access_rules": [{"service": "compute", "method": "GET", "path": "v2.1"}]}, 400, "slash"),
        ({"access_rules": [{"service": "a b", "method": "GET", "path": "/"}]}, 400, "compute"),
        ({"access_rules": [{"service": "compute", "method": "GET", "path": "/*" * 17}]}, 400, "at most 16 wildcards"),
        ({"access_rules": [{"id": "nowhere"}]}, 404, "access rule: nowhere"),
    ],
)
def test_invalid_credential_is_refused(world: World, alice: str, fields: dict[str, Any], code: int, hint: str) -> None:
    assert hint in refused(world, alice, code, **fields)
    assert world.users.content.application_credentials == []


def test_name_is_unique_for_a_user(world: World, alice: str) -> None:
    create(world, alice)
    assert "ci" in refused(world, alice, 409)
    create(world, world.token("admin"), ALICE.replace("alice", "admin"))


def test_number_of_credentials_is_limited(world: World, alice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_credentials, "MAX_CREDENTIALS", 1)
    create(world, alice)
    assert "at most 1" in refused(world, alice, 403, name="second")


def test_credential_needs_a_token_for_a_project(world: World) -> None:
    unscoped = world.log_in("alice", scope="unscoped").headers["X-Subject-Token"]
    assert "this token is for none" in refused(world, unscoped, 403)


# --- log-in


def test_log_in_by_id_and_by_name(world: World, alice: str) -> None:
    made = create(world, alice, unrestricted=True)
    named = {"name": "ci", "secret": made["secret"]}
    for given in (
        {"id": made["id"], "secret": made["secret"]},
        named | {"user": {"id": "id-of-alice"}},
        named | {"user": {"name": "alice", "domain": {"id": "default"}}},
    ):
        response = log_in(world, **given)
        assert response.status_code == 201, response.text
        token = response.json["token"]
        assert token["methods"] == ["application_credential"]
        assert (token["user"]["id"], token["project"]["id"]) == ("id-of-alice", world.demo.id)
        assert [role["name"] for role in token["roles"]] == ["member", "reader"]
        assert token["application_credential"] == {"id": made["id"], "name": "ci", "restricted": False}
        assert token["catalog"]
        text = response.headers["X-Subject-Token"]
        assert world("GET", "/v2.1/servers", token=text, app="osapi_compute").status_code == 200
        assert world.conductor.contexts[-1].roles == ["member", "reader"]


def test_log_in_refusals_are_equal(world: World, alice: str) -> None:
    made = create(world, alice)
    named = {"name": "ci", "secret": made["secret"]}
    responses = [
        log_in(world, id=made["id"], secret="wrong"),
        log_in(world, id="nowhere", secret=made["secret"]),
        log_in(world, id=made["id"], secret=""),
        log_in(world, **named | {"user": {"id": "id-of-admin"}}),
        log_in(world, **named | {"user": {"name": "alice", "domain": {"id": "other"}}}),
        log_in(world, **named | {"name": "other", "user": {"id": "id-of-alice"}}),
    ]
    assert {error(response, 401) for response in responses} == {REFUSED}


@pytest.mark.parametrize("given", [{}, {"id": 5, "secret": "x"}, {"id": "x"}, {"name": "x", "secret": "x"}])
def test_malformed_log_in_is_a_400(world: World, given: dict[str, Any]) -> None:
    assert error(log_in(world, **given), 400)


def test_log_in_cannot_request_a_scope(world: World, alice: str) -> None:
    made = create(world, alice)
    scope = {"project": {"id": world.demo.id}}
    assert "cannot request a scope" in error(log_in(world, scope, id=made["id"], secret=made["secret"]), 401)


def test_wrong_secrets_are_delayed(world: World, alice: str) -> None:
    made = create(world, alice)
    for _ in range(5):
        assert error(log_in(world, id=made["id"], secret="wrong"), 401)
    assert error(log_in(world, id=made["id"], secret=made["secret"]), 429)


# --- what tokens may do


def test_credential_has_only_its_roles(world: World) -> None:
    admin = world.token("admin")
    made = create(world, admin, ALICE.replace("alice", "admin"), roles=[{"name": "Reader"}])
    token = token_of(world, made)
    assert error(world("GET", "/v3/users", token=token), 403)
    assert world("GET", "/v2.1/servers", token=token, app="osapi_compute").status_code == 200
    assert world.conductor.contexts[-1].roles == ["reader"]
    assert not world.conductor.contexts[-1].is_admin


def test_roles_of_a_token_are_those_that_the_user_still_has(world: World) -> None:
    admin = world.token("admin")
    token = token_of(world, create(world, admin, ALICE.replace("alice", "admin")))
    with world.users.changing() as content:
        content.users[0].roles[world.demo.id] = ["reader"]
    assert world("GET", "/v2.1/servers", token=token, app="osapi_compute").status_code == 200
    assert world.conductor.contexts[-1].roles == ["reader"]
    with world.users.changing() as content:
        content.users[0].roles[world.demo.id] = ["service"]
    assert error(world("GET", "/v3/auth/projects", token=token), 401)


def test_restricted_credential_cannot_manage_credentials(world: World, alice: str) -> None:
    restricted, free = create(world, alice), create(world, alice, name="free", unrestricted=True)
    token = token_of(world, restricted)
    assert "restricted" in refused(world, token, 403, name="more")
    assert error(world("DELETE", f"{ALICE}/{restricted['id']}", token=token), 403)
    assert world("GET", ALICE, token=token).status_code == 200
    unrestricted = token_of(world, free)
    create(world, unrestricted, name="more")
    assert world("DELETE", f"{ALICE}/{restricted['id']}", token=unrestricted).status_code == 204
    assert error(world("GET", "/v3/auth/projects", token=token), 401)


def test_derived_token_has_the_same_limits(world: World) -> None:
    admin = world.token("admin")
    made = create(world, admin, ALICE.replace("alice", "admin"), roles=[{"name": "reader"}])
    identity = {"methods": ["token"], "token": {"id": token_of(world, made)}}
    response = world("POST", "/v3/auth/tokens", {"auth": {"identity": identity}})
    assert response.status_code == 201
    assert [role["name"] for role in response.json["token"]["roles"]] == ["reader"]
    assert response.json["token"]["application_credential"]["id"] == made["id"]
    derived = response.headers["X-Subject-Token"]
    assert error(world("GET", "/v3/users", token=derived), 403)
    for scope in ({"project": {"id": world.demo.id}}, "unscoped"):
        body = {"auth": {"identity": identity, "scope": scope}}
        assert "another scope" in error(world("POST", "/v3/auth/tokens", body), 403)


def test_token_ends_with_its_credential(world: World, alice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    soon = datetime.datetime.fromtimestamp(time.time() + 60, datetime.UTC)
    made = create(world, alice, expires_at=soon.isoformat())
    response = log_in(world, id=made["id"], secret=made["secret"])
    assert response.json["token"]["expires_at"].rstrip("Z") == made["expires_at"]
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 61)
    assert error(log_in(world, id=made["id"], secret=made["secret"]), 401) == REFUSED


@pytest.mark.parametrize("change", ["user", "disabled", "project", "role", "password"])
def test_credential_is_deleted_with_its_user_project_and_roles(world: World, alice: str, change: str) -> None:
    rules = [{"service": "compute", "method": "GET", "path": "/v2.1/servers"}]
    made = create(world, alice, access_rules=rules)
    admin, user = world.token("admin"), "/v3/users/id-of-alice"
    role = f"/v3/projects/{world.demo.id}/users/id-of-alice/roles/{role_id('member')}"
    if change == "user":
        world("DELETE", user, token=admin)
        assert world.users.content.access_rules == []
    elif change == "disabled":
        world("PATCH", user, {"user": {"enabled": False}}, admin)
        world("PATCH", user, {"user": {"enabled": True}}, admin)
    elif change == "project":
        with world.users.changing() as content:
            directory.remove_project(content, content.projects[0])
    elif change == "role":
        world("DELETE", role, token=admin)
        world("PUT", role, token=admin)
    else:
        world("PATCH", user, {"user": {"password": "new"}}, admin)
        assert token_of(world, made)
        return
    assert world.users.content.application_credentials == []
    assert error(log_in(world, id=made["id"], secret=made["secret"]), 401) == REFUSED


# --- access rules


def test_access_rules_limit_the_requests_of_a_token(world: World, alice: str) -> None:
    rules = [
        {"service": "compute", "method": "GET", "path": "/v2.1/servers"},
        {"service": "compute", "method": "GET", "path": "/v2.1/servers/{id}/**"},
        {"service": "identity", "method": "GET", "path": "/v3/auth/*"},
    ]
    token = token_of(world, create(world, alice, access_rules=rules))

    def status(method: str, path: str, app: str) -> int:
        code: int = world(method, path, token=token, app=app).status_code
        return code

    assert status("GET", "/v2.1/servers", "osapi_compute") == 200
    assert status("GET", "/v2.1/servers/x/metadata", "osapi_compute") == 404
    assert status("GET", "/v3/auth/projects", "identity") == 200
    for method, path, app in (
        ("POST", "/v2.1/servers", "osapi_compute"),
        ("GET", "/v2.1/servers/detail", "osapi_compute"),
        ("GET", "/v2.1/os-keypairs", "osapi_compute"),
        ("GET", "/v2/servers", "osapi_compute"),
        ("GET", "/v2/images", "image"),
        ("GET", "/v3/users/id-of-alice", "identity"),
    ):
        assert status(method, path, app) == 401, path
    refusal = world("GET", "/v2/images", token=token, app="image")
    assert "access rules" in error(refusal, 401)


def test_forwarded_prefix_does_not_change_the_path_of_access_rules(world: World, alice: str) -> None:
    world.conf.set_override("enable_proxy_headers_parsing", True, "oslo_middleware")
    rules = [{"service": "compute", "method": "GET", "path": "/v2.1/servers/**"}]
    token = token_of(world, create(world, alice, access_rules=rules))
    forged = {"X_Forwarded_Prefix": "/v2.1/servers"}
    assert world("GET", "/v2.1/os-keypairs", token=token, app="osapi_compute", **forged).status_code == 401
    assert world("GET", "/v2.1/servers/detail", token=token, app="osapi_compute").status_code == 200


def test_token_with_access_rules_is_shown_only_to_services_that_enforce_them(world: World, alice: str) -> None:
    rules = [{"service": "compute", "method": "GET", "path": "/v2.1/servers"}]
    made = create(world, alice, access_rules=rules)
    token, admin = token_of(world, made), world.token("admin")
    path = "/v3/auth/tokens"
    for headers in ({}, {"OpenStack_Identity_Access_Rules": "0.9"}, {"OpenStack_Identity_Access_Rules": "x"}):
        assert error(world("GET", path, token=admin, X_Subject_Token=token, **headers), 404)
    shown = world("GET", path, token=admin, X_Subject_Token=token, OpenStack_Identity_Access_Rules="1.0")
    assert shown.json["token"]["application_credential"]["access_rules"] == made["access_rules"]


def test_access_rules_of_one_user_are_limited(world: World, alice: str) -> None:
    """Rules outlive their credentials, so a user could make ever more of them."""
    with world.users.changing() as content:
        for number in range(app_credentials.MAX_USER_RULES):
            fields = {"service": "compute", "method": "GET", "path": f"/v2.1/{number}"}
            content.access_rules.append(AccessRule(id=str(number), user_id="id-of-alice", **fields))
    rule = {"service": "compute", "method": "GET", "path": "/v2.1/new"}
    assert "at most 1000 access rules" in refused(world, alice, 403, access_rules=[rule])
    create(world, alice, access_rules=[rule | {"path": "/v2.1/7"}])


def test_access_rules_are_shared_listed_and_deleted_when_unused(world: World, alice: str) -> None:
    rule = {"service": "compute", "method": "GET", "path": "/v2.1/servers"}
    first = create(world, alice, access_rules=[rule])
    (shown,) = first["access_rules"]
    assert shown == rule | {"id": shown["id"]}
    second = create(world, alice, name="second", access_rules=[rule])
    third = create(world, alice, name="third", access_rules=[{"id": shown["id"]}])
    assert first["access_rules"] == second["access_rules"] == third["access_rules"]
    rules = "/v3/users/id-of-alice/access_rules"
    (listed,) = world("GET", rules, token=alice).json["access_rules"]
    assert listed == shown | {"links": {"self": f"http://cloud:5000{rules}/{shown['id']}"}}
    one = f"{rules}/{shown['id']}"
    assert world("GET", one, token=alice).json == {"access_rule": listed}
    assert "in use" in error(world("DELETE", one, token=alice), 403)
    for made in (first, second, third):
        assert world("DELETE", f"{ALICE}/{made['id']}", token=alice).status_code == 204
    assert error(world("GET", rules.replace("alice", "admin") + f"/{shown['id']}", token=world.token("admin")), 404)
    assert world("DELETE", one, token=alice).status_code == 204
    assert error(world("DELETE", one, token=alice), 404)


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("/v2.1/servers", "/v2.1/servers", True),
        ("/v2.1/servers", "/v2.1/servers/", False),
        ("/v2.1/servers", "/v2x1/servers", False),
        ("/v2.1/*", "/v2.1/servers", True),
        ("/v2.1/*", "/v2.1/servers/x", False),
        ("/v2.1/*", "/v2.1/", False),
        ("/v2.1/{a}/{b}", "/v2.1/servers/x", True),
        ("/v2.1/**", "/v2.1/servers/x/y", True),
        ("/v2.1/**", "/v3/servers", False),
        ("/**/metadata", "/v2.1/servers/x/metadata", True),
        ("/a{b", "/a{b", True),
        ("/a(b", "/a(b", True),
    ],
)
def test_path_of_an_access_rule_is_a_pattern(pattern: str, path: str, matches: bool) -> None:
    rule = AccessRule(id="r", user_id="u", service="compute", method="GET", path=pattern)
    assert access_rules.allow([rule], ["compute"], "GET", path) is matches
    assert not access_rules.allow([rule], ["image"], "GET", path)
    assert not access_rules.allow([rule], ["compute"], "POST", path)
