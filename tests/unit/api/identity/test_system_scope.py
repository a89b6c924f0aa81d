"""Roles and tokens for the system, inherited roles, and what such tokens may do."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.api.identity import directory
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import MAX_DEPTH, Project, role_id
from tests.support.identity_api import World, error

ALICE = "id-of-alice"
SYSTEM = {"system": {"all": True}}


@pytest.fixture
def admin(world: World) -> Any:
    token = world.token("admin")
    return lambda method, path, body=None: world(method, path, body, token)


def grant(admin: Any, role: str, holder: str = f"users/{ALICE}", target: str = "system") -> str:
    path = f"/v3/{target}/{holder}/roles/{role_id(role)}"
    assert admin("PUT", path).status_code == 204
    return path


def system_token(world: World, name: str) -> str:
    answer = world.log_in(name, scope=SYSTEM)
    assert answer.status_code == 201, answer.text
    return str(answer.headers["X-Subject-Token"])


def test_system_role_is_granted_listed_and_revoked(admin: Any) -> None:
    path = grant(admin, "reader")
    assert [role["name"] for role in admin("GET", f"/v3/system/users/{ALICE}/roles").json["roles"]] == ["reader"]
    assert admin("HEAD", path).status_code == 204
    assert error(admin("GET", f"/v3/system/users/{ALICE}/roles/{role_id('admin')}"), 404)
    (found,) = admin("GET", "/v3/role_assignments?scope.system=all&include_names=true").json["role_assignments"]
    assert found["scope"] == {"system": {"all": True}}
    assert found["links"]["assignment"].endswith(f"/v3/system/users/{ALICE}/roles/{role_id('reader')}")
    assert admin("DELETE", path).status_code == 204
    assert error(admin("DELETE", path), 404)


def test_system_token_has_system_and_catalog_but_no_project(world: World, admin: Any) -> None:
    grant(admin, "member")
    token = world.log_in("alice", scope=SYSTEM).json["token"]
    assert token["system"] == {"all": True}
    assert [role["name"] for role in token["roles"]] == ["member", "reader"]
    assert not {"project", "domain", "is_domain"} & token.keys()
    assert token["catalog"]
    text = system_token(world, "alice")
    assert world("GET", "/v3/auth/system", None, text).json["system"] == [{"all": True}]
    assert world("GET", "/v3/auth/tokens", None, text, X_Subject_Token=text).json["token"]["system"] == {"all": True}


def test_system_token_needs_a_role_in_the_system(world: World, admin: Any) -> None:
    assert world.log_in("alice", scope=SYSTEM).status_code == 401
    assert world.log_in("admin", scope=SYSTEM).status_code == 401  # a role in a project is none in the system
    assert world("GET", "/v3/auth/system", None, world.token("alice")).json["system"] == []
    assert world.log_in("alice", scope={"system": {"all": False}}).status_code == 400


def test_system_role_of_a_group_counts(world: World, admin: Any) -> None:
    group = admin("POST", "/v3/groups", {"group": {"name": "operators"}}).json["group"]["id"]
    grant(admin, "admin", f"groups/{group}")
    assert admin("PUT", f"/v3/groups/{group}/users/{ALICE}").status_code == 204
    token = system_token(world, "alice")
    assert world("GET", "/v3/users", None, token).status_code == 200
    assert admin("DELETE", f"/v3/groups/{group}/users/{ALICE}").status_code == 204
    assert world("GET", "/v3/users", None, token).status_code == 401


def test_system_token_ends_with_the_role_for_good(world: World, admin: Any) -> None:
    path = grant(admin, "reader")
    token = system_token(world, "alice")
    assert admin("DELETE", path).status_code == 204
    grant(admin, "reader")
    assert world("GET", "/v3/users", None, token).status_code == 401


@pytest.mark.parametrize(
    ("app", "path"), [("osapi_compute", "/v2.1/servers"), ("image", "/v2/images")], ids=["compute", "image"]
)
def test_system_token_is_refused_by_apis_of_projects(world: World, admin: Any, app: str, path: str) -> None:
    grant(admin, "admin")
    answer = world("GET", path, None, system_token(world, "alice"), app)
    assert answer.status_code == 403
    assert "needs a token for a project" in answer.text


def test_system_reader_sees_everything_and_changes_nothing(world: World, admin: Any) -> None:
    grant(admin, "reader")
    reader = system_token(world, "alice")
    for path in ("users", "projects", "domains", "groups", "roles", "role_assignments", "services", "users/id-of-bob"):
        assert world("GET", f"/v3/{path}", None, reader).status_code == 200, path
    for method, path, body in (
        ("POST", "/v3/users", {"user": {"name": "new"}}),
        ("PATCH", "/v3/users/id-of-bob", {"user": {"enabled": True}}),
        ("DELETE", f"/v3/projects/{world.ops.id}", None),
        ("PUT", f"/v3/system/users/{ALICE}/roles/{role_id('admin')}", None),
        ("POST", "/v3/roles", {"role": {"name": "own"}}),
        ("GET", "/v3/credentials/none", None),
    ):
        assert world(method, path, body, reader).status_code in (403, 404), path
    assert world("GET", "/v3/credentials", None, reader).json["credentials"] == []


def test_reader_of_a_project_or_domain_sees_no_users(world: World, admin: Any) -> None:
    grant(admin, "manager", target="domains/default")
    token = world.log_in("alice", scope={"domain": {"id": "default"}}).headers["X-Subject-Token"]
    for path in ("users", "projects", "groups", "role_assignments"):
        assert world("GET", f"/v3/{path}", None, token).status_code == 403
        assert world("GET", f"/v3/{path}", None, world.token("alice")).status_code == 403
    role = f"/v3/projects/{world.demo.id}/users/{ALICE}/roles/{role_id('admin')}"
    assert world("PUT", role, None, token).status_code == 403


def test_limited_tokens_cannot_become_system_tokens(world: World, admin: Any) -> None:
    grant(admin, "admin")
    alice = world.token("alice")
    body = {"application_credential": {"name": "ci", "secret": "a secret", "unrestricted": True}}
    made = world("POST", f"/v3/users/{ALICE}/application_credentials", body, alice).json["application_credential"]
    given: dict[str, Any] = {"methods": ["application_credential"]}
    given["application_credential"] = {"id": made["id"], "secret": "a secret"}
    assert world("POST", "/v3/auth/tokens", {"auth": {"identity": given, "scope": SYSTEM}}).status_code == 401
    limited = world("POST", "/v3/auth/tokens", {"auth": {"identity": given}}).headers["X-Subject-Token"]
    trust = {"trustor_user_id": ALICE, "trustee_user_id": "id-of-admin", "project_id": world.demo.id}
    trust |= {"impersonation": True, "roles": [{"name": "member"}]}
    trust_id = world("POST", "/v3/OS-TRUST/trusts", {"trust": trust}, alice).json["trust"]["id"]
    trusted = world.log_in("admin", scope={"OS-TRUST:trust": {"id": trust_id}}).headers["X-Subject-Token"]
    for text in (limited, trusted):
        again = {"identity": {"methods": ["token"], "token": {"id": text}}, "scope": SYSTEM}
        assert world("POST", "/v3/auth/tokens", {"auth": again}).status_code == 403
    again = {"identity": {"methods": ["token"], "token": {"id": alice}}, "scope": SYSTEM}
    assert world("POST", "/v3/auth/tokens", {"auth": again}).json["token"]["system"] == {"all": True}


def test_system_token_makes_no_application_credential(world: World, admin: Any) -> None:
    grant(admin, "admin")
    body = {"application_credential": {"name": "ci"}}
    path = f"/v3/users/{ALICE}/application_credentials"
    assert "for a project" in error(world("POST", path, body, system_token(world, "alice")), 403)


# --- inherited roles


def test_inherited_role_counts_in_projects_below_and_not_in_the_target(world: World, admin: Any) -> None:
    path = f"/v3/OS-INHERIT/domains/default/users/{ALICE}/roles/{role_id('manager')}/inherited_to_projects"
    assert admin("PUT", path).status_code == 204
    assert admin("HEAD", path).status_code == 204
    token = world.token("alice", "ops")
    assert world.log_in("alice", scope={"domain": {"id": "default"}}).status_code == 401
    shown = admin("GET", f"/v3/OS-INHERIT/domains/default/users/{ALICE}/roles/inherited_to_projects").json["roles"]
    assert [role["name"] for role in shown] == ["manager"]
    assert admin("GET", f"/v3/domains/default/users/{ALICE}/roles").json["roles"] == []
    query = f"/v3/role_assignments?user.id={ALICE}&scope.OS-INHERIT:inherited_to=projects"
    (found,) = admin("GET", query).json["role_assignments"]
    assert found["scope"] == {"domain": {"id": "default"}, "OS-INHERIT:inherited_to": "projects"}
    assert found["links"]["assignment"].endswith(path)
    effective = admin("GET", f"{query}&effective=1&scope.project.id={world.ops.id}").json["role_assignments"]
    assert {item["role"]["id"] for item in effective} == {role_id(name) for name in ("manager", "member", "reader")}
    assert admin("DELETE", path).status_code == 204
    assert world("GET", "/v3/auth/projects", None, token).status_code == 401
    assert world("GET", "/v3/auth/projects", None, world.token("alice")).status_code == 200


def test_inherited_role_reaches_no_other_domain(world: World, admin: Any) -> None:
    lab = admin("POST", "/v3/domains", {"domain": {"name": "lab"}}).json["domain"]["id"]
    made = admin("POST", "/v3/projects", {"project": {"name": "other", "domain_id": lab}}).json["project"]["id"]
    path = f"/v3/OS-INHERIT/domains/default/users/{ALICE}/roles/{role_id('admin')}/inherited_to_projects"
    assert admin("PUT", path).status_code == 204
    assert world.log_in("alice", scope={"project": {"id": made}}).status_code == 401
    assert world.log_in("alice", scope=SYSTEM).status_code == 401


def test_inherited_role_of_a_project_reaches_all_levels_below() -> None:
    content = Content()
    user = directory.add_user(content, "alice", "hash")
    content.projects = [
        Project(id=str(number), name=str(number), parent_id=str(number - 1) if number else None) for number in range(4)
    ]
    directory.grant(user, content.projects[1], "member", inherited=True)
    for frozen in (content, content.freeze()):
        assert [frozen.roles_of(user, str(number)) for number in range(4)] == [[], [], ["member"], ["member"]]
        assert [project.id for project in frozen.below("0")] == ["1", "2", "3"]
        assert frozen.above("3") == ["2", "1", "0", "default"]


def test_projects_in_a_circle_have_an_end() -> None:
    content = Content(projects=[Project(id="1", name="1", parent_id="2"), Project(id="2", name="2", parent_id="1")])
    assert len(content.above("1")) <= MAX_DEPTH + 1


def test_revoked_inherited_role_deletes_credentials_below(world: World, admin: Any) -> None:
    path = f"/v3/OS-INHERIT/domains/default/users/{ALICE}/roles/{role_id('reader')}/inherited_to_projects"
    assert admin("PUT", path).status_code == 204
    body = {"application_credential": {"name": "ci"}}
    url = f"/v3/users/{ALICE}/application_credentials"
    assert world("POST", url, body, world.token("alice", "ops")).status_code == 201
    assert admin("DELETE", path).status_code == 204
    assert world.users.content.application_credentials == []


def test_assignments_of_a_subtree_need_a_project(admin: Any) -> None:
    assert "scope.project.id" in error(admin("GET", "/v3/role_assignments?include_subtree=1"), 400)
