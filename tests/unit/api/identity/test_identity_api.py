"""Responses and refusals of the identity API."""

from __future__ import annotations

import time

import pytest

from nova_lite.api.identity import directory
from nova_lite.api.identity.tokens import new_token
from tests.support.identity_api import PASSWORDS, World, error

REFUSED = "The request you have made requires authentication."


def test_identity_versions(world: World) -> None:
    root = world("GET", "/")
    assert root.status_code == 300
    (version,) = root.json["versions"]["values"]
    assert world("GET", "/v3").json == world("GET", "/v3/").json == {"version": version}
    assert (version["id"], version["status"]) == ("v3.14", "stable")
    assert version["links"] == [{"rel": "self", "href": "http://cloud:5000/v3/"}]


def test_token_for_a_project(world: World) -> None:
    response = world.log_in("alice", scope={"project": {"id": world.demo.id}})
    assert response.status_code == 201
    token = response.json["token"]
    assert token["methods"] == ["password"]
    assert (token["user"]["name"], token["user"]["domain"]["id"]) == ("alice", "default")
    assert token["project"] == {"id": world.demo.id, "name": "demo", "domain": {"id": "default", "name": "Default"}}
    assert [role["name"] for role in token["roles"]] == ["member", "reader"]
    assert token["expires_at"] > token["issued_at"]
    assert [entry["type"] for entry in token["catalog"]] == ["identity", "compute", "image"]
    (public, *_) = token["catalog"][1]["endpoints"]
    assert set(public) == {"id", "interface", "region", "region_id", "url"}
    assert (public["interface"], public["url"]) == ("public", "http://127.0.0.1:8774/v2.1")


def test_catalog_lists_the_enabled_services(world: World) -> None:
    world.conf.set_override("enabled_apis", ["identity"], "api")
    world.conf.set_override("identity_endpoint", "https://cloud.example/identity/v3/", "identity")
    (entry,) = world.log_in("alice", scope={"project": {"id": world.demo.id}}).json["token"]["catalog"]
    assert {endpoint["url"] for endpoint in entry["endpoints"]} == {"https://cloud.example/identity/v3"}


def test_unscoped_token(world: World) -> None:
    response = world.log_in("alice", scope="unscoped")
    assert not {"project", "roles", "catalog"} & set(response.json["token"])
    text = response.headers["X-Subject-Token"]
    projects = world("GET", "/v3/auth/projects", token=text).json["projects"]
    assert [project["name"] for project in projects] == ["demo"]
    assert error(world("GET", "/v3/auth/catalog", token=text), 403)
    assert world("GET", "/v2.1/servers", token=text, app="osapi_compute").status_code == 403
    identity = {"methods": ["token"], "token": {"id": text}}
    body = {"auth": {"identity": identity, "scope": {"project": {"id": world.demo.id}}}}
    scoped = world("POST", "/v3/auth/tokens", body).json["token"]
    assert scoped["project"]["name"] == "demo"
    assert scoped["methods"] == ["password", "token"]
    assert scoped["expires_at"] == response.json["token"]["expires_at"]


def test_log_in_without_a_scope_is_for_the_default_project(world: World) -> None:
    assert world.log_in("alice").json["token"]["project"]["name"] == "demo"
    with world.users.changing() as content:
        content.users[1].default_project_id = None
    assert "project" not in world.log_in("alice").json["token"]


def test_log_in_refusals_are_equal(world: World) -> None:
    demo = {"project": {"name": "demo", "domain": {"id": "default"}}}
    responses = [
        world.log_in("alice", "wrong", demo),
        world.log_in("alice", "", demo),
        world.log_in("nobody", "wrong", demo),
        world.log_in("bob", scope=demo),
        world.log_in("alice", scope={"project": {"name": "ops", "domain": {"id": "default"}}}),
        world.log_in("alice", scope={"project": {"name": "none", "domain": {"id": "default"}}}),
        world.log_in("alice", scope={"project": {"name": "demo", "domain": {"id": "other"}}}),
        world.log_in("alice", scope={"project": {"id": "none"}}),
        world.log_in("alice", scope={"domain": {"id": "default"}}),
        world.log_in("alice", scope={"system": {"all": True}}),
        world.log_in("alice", domain={"id": "other"}),
        world.log_in("alice", id="nobody"),
        world("GET", "/v3/projects"),
        world("GET", "/v3/projects", token="rubbish"),
    ]
    assert {error(response, 401) for response in responses} == {REFUSED}
    assert all(response.headers["WWW-Authenticate"].startswith("Keystone uri=") for response in responses)
    assert len({response.body for response in responses}) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        [],
        {},
        {"auth": []},
        {"auth": {"identity": {}}},
        {"auth": {"identity": {"methods": "password"}}},
        {"auth": {"identity": {"methods": ["password"]}}},
        {"auth": {"identity": {"methods": ["password"], "password": {"user": {"name": "alice"}}}}},
        {"auth": {"identity": {"methods": ["password"], "password": {"user": {"name": 5, "password": "x"}}}}},
        {"auth": {"identity": {"methods": ["token"], "token": {"id": 5}}}},
        {"auth": {"identity": {"methods": ["token"], "token": {"id": "x"}}, "scope": 5}},
    ],
)
def test_malformed_log_in_is_a_400(world: World, body: object) -> None:
    assert error(world("POST", "/v3/auth/tokens", body), 400)


def test_huge_request_is_refused(world: World) -> None:
    assert world("POST", "/v3/auth/tokens", b" " * 200_000).status_code == 413


def test_unknown_urls_and_http_methods_are_refused(world: World) -> None:
    body = {"auth": {"identity": {"methods": ["totp"]}}}
    assert "password, token, mapped and application_credential" in error(world("POST", "/v3/auth/tokens", body), 401)
    assert error(world("GET", "/v3/nowhere"), 404)
    response = world("PUT", "/v3/projects", {})
    assert error(response, 405)
    assert response.headers["Allow"] == "GET, POST"


def test_token_validation_by_its_user_and_by_an_admin(world: World) -> None:
    admin, alice = world.token("admin"), world.token("alice")
    for requester, subject in ((admin, alice), (alice, alice)):
        response = world("GET", "/v3/auth/tokens", token=requester, X_Subject_Token=subject)
        assert response.status_code == 200
        assert response.headers["X-Subject-Token"] == subject
        assert response.json["token"]["user"]["name"] == "alice"
    assert "catalog" not in world("GET", "/v3/auth/tokens?nocatalog", token=admin, X_Subject_Token=alice).json["token"]
    head = world("HEAD", "/v3/auth/tokens", token=admin, X_Subject_Token=alice)
    assert (head.status_code, head.body) == (200, b"")
    assert error(world("GET", "/v3/auth/tokens", token=alice, X_Subject_Token=admin), 403)
    assert error(world("GET", "/v3/auth/tokens", token=admin, X_Subject_Token="rubbish"), 404)
    assert error(world("GET", "/v3/auth/tokens", token=admin), 404)


def test_revoked_token_is_invalid(world: World) -> None:
    alice, other = world.token("alice"), world.token("alice")
    assert world("DELETE", "/v3/auth/tokens", token=alice, X_Subject_Token=alice).status_code == 204
    assert error(world("GET", "/v3/auth/projects", token=alice), 401)
    assert world("GET", "/v3/auth/projects", token=other).status_code == 200
    assert world("GET", "/v2.1/servers", token=alice, app="osapi_compute").status_code == 401


def test_admin_sees_all_resources_and_users_only_themselves(world: World) -> None:
    admin, alice = world.token("admin"), world.token("alice")
    for kind in (
        "projects",
        "users",
        "domains",
        "roles",
        "services",
        "endpoints",
        "regions",
        "role_assignments",
    ):
        response = world("GET", f"/v3/{kind}", token=admin)
        assert response.status_code == 200, kind
        assert set(response.json) == {kind, "links"}
        if kind != "role_assignments":
            (item, *_) = response.json[kind]
            one = world("GET", f"/v3/{kind}/{item['id']}", token=admin)
            assert list(one.json.values()) == [item]
            assert error(world("GET", f"/v3/{kind}/none", token=admin), 404)
        assert world("GET", f"/v3/{kind}", token=alice).status_code == (200 if kind == "regions" else 403)
    assert world("GET", f"/v3/projects/{world.demo.id}", token=alice).status_code == 200
    assert world("GET", f"/v3/projects/{world.ops.id}", token=alice).status_code == 403
    assert world("GET", "/v3/users/id-of-alice", token=alice).status_code == 200
    assert world("GET", "/v3/users/id-of-admin", token=alice).status_code == 403
    assert world("GET", "/v3/users/id-of-alice/projects", token=alice).status_code == 200
    assert world("GET", "/v3/users/id-of-admin/projects", token=alice).status_code == 403


def test_lists_are_filtered(world: World) -> None:
    admin = world.token("admin")

    def names(query: str) -> list[str]:
        return [item["name"] for item in world("GET", f"/v3/{query}", token=admin).json[query.split("?")[0]]]

    assert names("projects?name=demo") == ["demo"]
    assert names("projects?name=none") == []
    assert names("users?enabled=false") == ["bob"]
    assert names("users?domain_id=default") == list(PASSWORDS)
    assert names("users?domain_id=other") == []
    assert names("services?type=image") == ["glance"]


def test_password_hashes_are_not_shown(world: World) -> None:
    admin = world.token("admin")
    assert "scrypt" not in world("GET", "/v3/users", token=admin).text
    assert "password_changed_at" not in world("GET", "/v3/users/id-of-alice", token=admin).text


def test_token_has_the_current_roles_of_its_user(world: World) -> None:
    alice = world.token("alice")
    assert world("GET", "/v3/users", token=alice).status_code == 403
    with world.users.changing() as content:
        directory.grant(content.users[1], world.demo, "admin")
    assert world("GET", "/v3/users", token=alice).status_code == 200
    with world.users.changing() as content:
        content.users[1].roles.clear()
    assert error(world("GET", "/v3/auth/projects", token=alice), 401)


@pytest.mark.parametrize("change", ["disabled", "deleted", "password", "project disabled", "project deleted"])
def test_token_becomes_invalid(world: World, change: str) -> None:
    alice = world.token("alice")
    assert world("GET", "/v3/auth/projects", token=alice).status_code == 200
    with world.users.changing() as content:
        user, project = content.users[1], content.projects[0]
        if change == "disabled":
            user.enabled = False
        elif change == "deleted":
            directory.remove_user(content, user)
        elif change == "password":
            directory.set_password(user, directory.new_password("new"))
        elif change == "project disabled":
            project.enabled = False
        else:
            directory.remove_project(content, project)
    assert error(world("GET", "/v3/auth/projects", token=alice), 401)


def test_expired_and_forged_tokens_are_refused(world: World) -> None:
    tokens = world.authority.tokens
    expired = new_token("id-of-alice", world.demo.id, 60)
    expired.expires_at = time.time() - 0.001
    for text in (tokens.seal(expired), tokens.seal(new_token("nobody", world.demo.id, 60)), "gAAAA", "", "é"):
        assert world("GET", "/v2.1/servers", token=text, app="osapi_compute").status_code == 401
    good = tokens.seal(new_token("id-of-alice", world.demo.id, 60))
    assert world("GET", "/v2.1/servers", token=good, app="osapi_compute").status_code == 200


def test_compute_api_receives_user_project_and_roles(world: World) -> None:
    assert world("GET", "/v2.1/servers", token=world.token("alice"), app="osapi_compute").status_code == 200
    context = world.conductor.contexts[-1]
    assert (context.user_id, context.project_id, context.is_admin) == ("id-of-alice", world.demo.id, False)
    assert world("GET", "/v2.1/servers", token=world.token("admin"), app="osapi_compute").status_code == 200
    assert world.conductor.contexts[-1].is_admin
    refused = world("GET", "/v2.1/servers", app="osapi_compute")
    assert error(refused, 401) == REFUSED
    assert refused.headers["WWW-Authenticate"] == 'Keystone uri="http://127.0.0.1:5000/v3"'
    assert world("GET", "/v2.1", app="osapi_compute").status_code == 200
