"""Domains of users, projects and groups."""

from __future__ import annotations

from typing import Any

import pytest
import webob

from nova_lite.api.identity.records import role_id
from tests.support.identity_api import World, error


class Admin:
    """Requests of an admin."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._token = world.token("admin")

    def __call__(self, method: str, path: str, body: Any = None) -> webob.Response:
        return self._world(method, f"/v3/{path}", body, self._token)

    def make(self, kind: str, **fields: Any) -> str:
        response = self("POST", f"{kind}s", {kind: fields})
        assert response.status_code == 201, response.text
        id: str = response.json[kind]["id"]
        return id

    def grant(self, target: str, holder: str, role: str, method: str = "PUT") -> None:
        assert self(method, f"{target}/{holder}/roles/{role_id(role)}").status_code == 204


@pytest.fixture
def admin(world: World) -> Admin:
    return Admin(world)


@pytest.fixture
def lab(admin: Admin) -> str:
    return admin.make("domain", name="Lab", description="d")


def log_in(world: World, name: str, domain: dict[str, str], scope: Any = None) -> webob.Response:
    return world.log_in(name, f"{name}'s", scope, domain=domain)


def test_domain_is_created_listed_changed_and_deleted(admin: Admin, lab: str) -> None:
    shown = admin("GET", f"domains/{lab}").json["domain"]
    assert (shown["name"], shown["description"], shown["enabled"]) == ("Lab", "d", True)
    assert [item["name"] for item in admin("GET", "domains").json["domains"]] == ["Default", "Lab"]
    assert admin("GET", "domains?name=lab").json["domains"] == [shown]
    assert error(admin("POST", "domains", {"domain": {"name": "LAB"}}), 409)
    assert error(admin("POST", "domains", {"domain": {"name": "DEFAULT"}}), 409)
    assert error(admin("POST", "domains", {"domain": {"name": "a/b"}}), 400)
    changed = admin("PATCH", f"domains/{lab}", {"domain": {"name": "LAB", "description": None}}).json["domain"]
    assert (changed["name"], changed["description"]) == ("LAB", "")
    assert "disable it first" in error(admin("DELETE", f"domains/{lab}"), 403)
    assert admin("PATCH", f"domains/{lab}", {"domain": {"enabled": False}}).status_code == 200
    assert admin("DELETE", f"domains/{lab}").status_code == 204
    for method in ("GET", "PATCH", "DELETE"):
        assert error(admin(method, f"domains/{lab}", {"domain": {}}), 404)
        if method != "GET":
            assert error(admin(method, "domains/default", {"domain": {}}), 403)


def test_domain_is_shown_to_its_own_users(world: World, admin: Admin, lab: str) -> None:
    alice = world.token("alice")
    assert world("GET", "/v3/domains/default", token=alice).status_code == 200
    assert error(world("GET", f"/v3/domains/{lab}", token=alice), 403)
    assert error(world("GET", "/v3/domains/nowhere", token=alice), 403)


def test_names_are_unique_in_a_domain_only(world: World, admin: Admin, lab: str) -> None:
    for kind in ("user", "project", "group"):
        for domain in (lab, None):
            fields = {"name": "twin"} | ({"domain_id": domain} if domain else {})
            made = admin.make(kind, **fields)
            assert admin("GET", f"{kind}s/{made}").json[kind]["domain_id"] == (domain or "default")
            assert error(admin("POST", f"{kind}s", {kind: fields}), 409)
            assert error(admin("POST", f"{kind}s", {kind: {"name": "x", "domain_id": "nowhere"}}), 404)
            (listed,) = admin("GET", f"{kind}s?name=twin&domain_id={domain or 'default'}").json[f"{kind}s"]
            assert listed["id"] == made
            other = "default" if domain else lab
            assert "domain" in error(admin("PATCH", f"{kind}s/{made}", {kind: {"domain_id": other}}), 400)
            assert admin("PATCH", f"{kind}s/{made}", {kind: {"domain_id": domain or "default"}}).status_code == 200


def test_user_of_a_domain_logs_in_with_its_name(world: World, admin: Admin, lab: str) -> None:
    project = admin.make("project", name="demo", domain_id=lab)
    user = admin.make("user", name="alice", password="alice's", domain_id=lab)
    admin.grant(f"projects/{project}", f"users/{user}", "member")
    for domain in ({"id": lab}, {"name": "lab"}):
        response = log_in(world, "alice", domain, {"project": {"name": "demo", "domain": domain}})
        token = response.json["token"]
        assert token["user"]["id"] == user
        assert token["user"]["domain"] == token["project"]["domain"] == {"id": lab, "name": "Lab"}
        text = response.headers["X-Subject-Token"]
        assert world("GET", "/v2.1/servers", token=text, app="osapi_compute").status_code == 200
        context = world.conductor.contexts[-1]
        assert (context.project_id, context.user_domain_id, context.project_domain_id) == (project, lab, lab)
    assert error(log_in(world, "alice", {"id": lab}, {"project": {"name": "demo", "domain": {"id": "default"}}}), 401)
    assert error(log_in(world, "alice", {"name": "nowhere"}), 401)
    assert world.log_in("alice").json["token"]["user"]["id"] == "id-of-alice"


def test_roles_in_a_domain_give_a_token_for_it(world: World, admin: Admin, lab: str) -> None:
    group = admin.make("group", name="staff", domain_id=lab)
    domain, scope = f"domains/{lab}", {"domain": {"name": "LAB"}}
    assert error(world.log_in("alice", scope=scope), 401)
    admin.grant(domain, "users/id-of-alice", "member")
    admin.grant(domain, f"groups/{group}", "admin")
    assert admin("HEAD", f"{domain}/users/id-of-alice/roles/{role_id('member')}").status_code == 204
    (role,) = admin("GET", f"{domain}/users/id-of-alice/roles").json["roles"]
    assert role["name"] == "member"
    response = world.log_in("alice", scope=scope)
    token, text = response.json["token"], response.headers["X-Subject-Token"]
    assert (token["domain"], "project" in token) == ({"id": lab, "name": "Lab"}, False)
    assert [role["name"] for role in token["roles"]] == ["member", "reader"]
    assert token["catalog"]
    assert world("GET", "/v3/auth/catalog", token=text).json["catalog"] == token["catalog"]
    assert [item["id"] for item in world("GET", "/v3/auth/domains", token=text).json["domains"]] == [lab]
    assert world("GET", "/v2.1/servers", token=text, app="osapi_compute").status_code == 403
    found = admin("GET", f"role_assignments?scope.domain.id={lab}&include_names=1").json["role_assignments"]
    assert [(item.get("user") or item["group"])["name"] for item in found] == ["alice", "staff"]
    assert found[0]["scope"] == {"domain": {"id": lab, "name": "Lab"}}
    assert found[0]["links"]["assignment"].endswith(f"/v3/domains/{lab}/users/id-of-alice/roles/{role_id('member')}")
    assert found[1]["group"]["domain"] == {"id": lab, "name": "Lab"}
    assert admin("GET", f"role_assignments?scope.project.id={lab}").json["role_assignments"] == []
    admin.grant(domain, "users/id-of-alice", "member", "DELETE")
    admin.grant(domain, "users/id-of-alice", "member")
    assert error(world("GET", "/v3/auth/catalog", token=text), 401)


def test_token_for_a_domain_has_no_urls_of_projects(world: World, admin: Admin, lab: str) -> None:
    service = admin.make("service", type="orchestration")
    for url in ("http://heat/v1/%(project_id)s", "http://heat/%(user_id)s"):
        admin.make("endpoint", service_id=service, interface="public", url=url)
    admin.grant(f"domains/{lab}", "users/id-of-alice", "member")
    catalog = world.log_in("alice", scope={"domain": {"id": lab}}).json["token"]["catalog"]
    (entry,) = [entry for entry in catalog if entry["type"] == "orchestration"]
    assert [endpoint["url"] for endpoint in entry["endpoints"]] == ["http://heat/id-of-alice"]


def test_disabled_domain_disables_its_users_and_projects(world: World, admin: Admin, lab: str) -> None:
    project = admin.make("project", name="demo", domain_id=lab)
    user = admin.make("user", name="alice", password="alice's", domain_id=lab)
    for holder in (user, "id-of-alice"):
        admin.grant(f"projects/{project}", f"users/{holder}", "member")
    in_project = {"project": {"id": project}}
    responses = [log_in(world, "alice", {"id": domain}, in_project) for domain in (lab, "default")]
    tokens = [response.headers["X-Subject-Token"] for response in responses]
    assert [world("GET", "/v3/auth/projects", token=token).status_code for token in tokens] == [200, 200]
    assert admin("PATCH", f"domains/{lab}", {"domain": {"enabled": False}}).status_code == 200
    for domain in (lab, "default"):
        assert error(log_in(world, "alice", {"id": domain}, in_project), 401)
    assert error(log_in(world, "alice", {"id": lab}, "unscoped"), 401)
    for token in tokens:
        assert error(world("GET", "/v3/auth/projects", token=token), 401)
    assert admin("PATCH", f"domains/{lab}", {"domain": {"enabled": True}}).status_code == 200
    for token in tokens:
        assert error(world("GET", "/v3/auth/projects", token=token), 401)
    assert log_in(world, "alice", {"id": lab}, in_project).status_code == 201


def test_deleted_domain_takes_everything_in_it_along(world: World, admin: Admin, lab: str) -> None:
    project = admin.make("project", name="demo", domain_id=lab)
    admin.make("user", name="alice", domain_id=lab)
    group = admin.make("group", name="staff", domain_id=lab)
    admin.grant(f"projects/{project}", "users/id-of-alice", "reader")
    admin.grant(f"domains/{lab}", "users/id-of-alice", "reader")
    admin.grant(f"projects/{world.demo.id}", f"groups/{group}", "reader")
    assert admin("PATCH", f"domains/{lab}", {"domain": {"enabled": False}}).status_code == 200
    assert admin("DELETE", f"domains/{lab}").status_code == 204
    content = world.users.content
    assert (len(content.users), len(content.projects), content.groups, content.domains) == (3, 2, [], [])
    assert content.users[1].roles == {world.demo.id: ["member"]}
