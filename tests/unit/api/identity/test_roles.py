"""Roles of operators: their records, implications between them, and what tokens make of both."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.api.identity import directory
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import BUILT_IN_ROLES, ROLES, Implication, Role, role_id
from nova_lite.base import exceptions
from tests.support.identity_api import World, error

ALICE = "id-of-alice"


class Admin:
    """Requests of an admin."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.token = world.token("admin")

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        return self.world(method, path, body, self.token)

    def role(self, name: str, **fields: Any) -> str:
        made = self("POST", "/v3/roles", {"role": {"name": name, **fields}})
        assert made.status_code == 201, made.text
        return str(made.json["role"]["id"])

    def grant(self, role: str, user: str = ALICE, project: str = "") -> None:
        path = f"/v3/projects/{project or self.world.demo.id}/users/{user}/roles/{role}"
        assert self("PUT", path).status_code == 204

    def imply(self, prior: str, implied: str, code: int = 201) -> Any:
        answer = self("PUT", f"/v3/roles/{prior}/implies/{implied}")
        assert answer.status_code == code, answer.text
        return answer.json


@pytest.fixture
def admin(world: World) -> Admin:
    return Admin(world)


def roles_of(world: World, token: str) -> list[str]:
    shown = world("GET", "/v3/auth/tokens", None, token, X_Subject_Token=token).json["token"]
    return sorted(role["name"] for role in shown["roles"])


def test_role_is_created_changed_and_deleted(admin: Admin) -> None:
    made = admin("POST", "/v3/roles", {"role": {"name": "auditor", "description": "looks", "color": "red"}})
    assert made.status_code == 201
    role = made.json["role"]
    assert {name: role[name] for name in ("name", "description", "domain_id", "color")} == {
        "name": "auditor",
        "description": "looks",
        "domain_id": None,
        "color": "red",
    }
    path = f"/v3/roles/{role['id']}"
    assert admin("GET", path).json["role"] == role
    assert admin("GET", "/v3/roles?name=auditor").json["roles"] == [role]
    changed = admin("PATCH", path, {"role": {"name": "inspector", "description": None, "size": 1}}).json["role"]
    assert (changed["name"], changed["description"], changed["color"], changed["size"]) == ("inspector", None, "red", 1)
    assert admin("DELETE", path).status_code == 204
    assert error(admin("GET", path), 404)
    assert len(admin("GET", "/v3/roles").json["roles"]) == 5


@pytest.mark.parametrize(
    "name", ["Admin", "ADMIN", " admin", "\uff41dmin", "admin\u2003", "Service", "\u017fervice", "READER"]
)
def test_role_with_the_name_of_a_built_in_role_is_refused(admin: Admin, name: str) -> None:
    assert admin("POST", "/v3/roles", {"role": {"name": name}}).status_code in (400, 409)
    role = admin.role("auditor")
    assert admin("PATCH", f"/v3/roles/{role}", {"role": {"name": name}}).status_code in (400, 409)
    domain = admin("POST", "/v3/roles", {"role": {"name": name, "domain_id": "default"}})
    assert domain.status_code in (400, 409)


def test_role_name_is_unique_in_any_case(admin: Admin) -> None:
    admin.role("Auditor")
    assert error(admin("POST", "/v3/roles", {"role": {"name": "auditor"}}), 409)
    admin.role("auditor", domain_id="default")


@pytest.mark.parametrize("name", ROLES)
def test_built_in_role_cannot_be_changed(admin: Admin, name: str) -> None:
    path = f"/v3/roles/{role_id(name)}"
    assert "built in" in error(admin("PATCH", path, {"role": {"description": "other"}}), 403)
    assert "built in" in error(admin("DELETE", path), 403)


def test_token_has_granted_role_and_what_it_implies(world: World, admin: Admin) -> None:
    auditor, looker = admin.role("auditor"), admin.role("looker")
    admin.imply(auditor, looker)
    admin.grant(auditor)
    assert roles_of(world, world.token("alice")) == ["auditor", "looker", "member", "reader"]


def test_custom_role_alone_gives_no_right_in_the_apis(world: World, admin: Admin) -> None:
    auditor = admin.role("auditor")
    admin.grant(auditor, project=world.ops.id)
    token = world.token("alice", "ops")
    assert roles_of(world, token) == ["auditor"]
    assert world("GET", "/v2.1/servers", None, token, "osapi_compute").status_code == 403
    assert error(world("GET", "/v3/users", None, token), 403)


def test_deleted_role_leaves_tokens_trusts_and_credentials(world: World, admin: Admin) -> None:
    auditor = admin.role("auditor")
    admin.grant(auditor)
    admin.grant(auditor, project=world.ops.id)
    alice, other = world.token("alice"), world.token("alice", "ops")
    body = {"application_credential": {"name": "ci", "roles": [{"id": auditor}]}}
    made = world("POST", f"/v3/users/{ALICE}/application_credentials", body, alice)
    assert made.status_code == 201, made.text
    trust = {"trustor_user_id": ALICE, "trustee_user_id": "id-of-admin", "project_id": world.demo.id}
    trust |= {"impersonation": True, "roles": [{"name": "auditor"}]}
    assert world("POST", "/v3/OS-TRUST/trusts", {"trust": trust}, alice).status_code == 201
    assert admin("DELETE", f"/v3/roles/{auditor}").status_code == 204
    content = world.users.content
    assert (content.application_credentials, content.trusts, content.implications) == ([], [], [])
    assert all(auditor not in keys for user in content.users for keys in user.roles.values())
    assert roles_of(world, alice) == ["member", "reader"]
    assert world("GET", "/v3/auth/projects", None, other).status_code == 401


# --- implications


def test_implication_is_listed_and_deleted(admin: Admin) -> None:
    auditor = admin.role("auditor")
    pair = admin.imply(auditor, role_id("reader"))["role_inference"]
    assert (pair["prior_role"]["name"], pair["implies"]["name"]) == ("auditor", "reader")
    admin.imply(auditor, role_id("reader"))
    listed = admin("GET", f"/v3/roles/{auditor}/implies").json["role_inference"]
    assert [role["name"] for role in listed["implies"]] == ["reader"]
    assert admin("HEAD", f"/v3/roles/{auditor}/implies/{role_id('reader')}").status_code == 204
    priors = [item["prior_role"]["name"] for item in admin("GET", "/v3/role_inferences").json["role_inferences"]]
    assert priors == ["admin", "manager", "member", "auditor"]
    assert admin("DELETE", f"/v3/roles/{auditor}/implies/{role_id('reader')}").status_code == 204
    assert error(admin("GET", f"/v3/roles/{auditor}/implies/{role_id('reader')}"), 404)
    assert error(admin("DELETE", f"/v3/roles/{auditor}/implies/{role_id('reader')}"), 404)


def test_implication_of_admin_is_refused(admin: Admin) -> None:
    for prior in (admin.role("auditor"), role_id("member"), role_id("service")):
        admin.imply(prior, role_id("admin"), 403)


def test_built_in_implication_cannot_be_deleted(admin: Admin) -> None:
    assert error(admin("DELETE", f"/v3/roles/{role_id('member')}/implies/{role_id('reader')}"), 403)


def test_circle_of_implications_is_refused(admin: Admin) -> None:
    first, second, third = (admin.role(name) for name in ("one", "two", "three"))
    admin.imply(first, first, 403)
    admin.imply(first, second)
    admin.imply(second, third)
    admin.imply(third, first, 403)
    admin.imply(role_id("reader"), role_id("member"), 403)
    admin.imply(first, role_id("member"))
    admin.imply(role_id("reader"), first, 403)


def test_circle_in_the_records_ends() -> None:
    content = Content()
    one, two = directory.add_role(content, "one"), directory.add_role(content, "two")
    for prior, implied in ((one, two), (two, one), (one, one)):
        content.implications.append(Implication(id=f"{prior.id}-{implied.id}", prior=prior.id, implied=implied.id))
    assert {role.name for role in content.effective([one.key])} == {"one", "two"}
    assert {role.name for role in content.freeze().effective([two.key])} == {"one", "two"}


def test_role_of_no_record_gives_nothing() -> None:
    assert Content().effective(["gone", "reader"]) == [BUILT_IN_ROLES[role_id("reader")]]


# --- roles of domains


def test_role_of_a_domain_is_in_no_token_but_what_it_implies_is(world: World, admin: Admin) -> None:
    local, looker = admin.role("local", domain_id="default"), admin.role("looker")
    assert [role["id"] for role in admin("GET", "/v3/roles?domain_id=default").json["roles"]] == [local]
    assert local not in [role["id"] for role in admin("GET", "/v3/roles").json["roles"]]
    admin.imply(local, looker)
    admin.grant(local, project=world.ops.id)
    assert roles_of(world, world.token("alice", "ops")) == ["looker"]


def test_role_of_a_domain_alone_gives_no_token(world: World, admin: Admin) -> None:
    admin.grant(admin.role("local", domain_id="default"), project=world.ops.id)
    project = {"project": {"id": world.ops.id}}
    assert world.log_in("alice", scope=project).status_code == 401


def test_role_of_a_domain_is_granted_and_implied_in_its_domain_only(world: World, admin: Admin) -> None:
    lab = admin("POST", "/v3/domains", {"domain": {"name": "lab"}}).json["domain"]["id"]
    local, looker = admin.role("local", domain_id=lab), admin.role("looker")
    here = admin.role("here", domain_id="default")
    for path in (f"projects/{world.demo.id}", "system"):
        assert error(admin("PUT", f"/v3/{path}/users/{ALICE}/roles/{local}"), 403)
    for domain in (lab, "default"):  # as in Keystone; no token has the role
        assert admin("PUT", f"/v3/domains/{domain}/users/{ALICE}/roles/{local}").status_code == 204
    assert world.log_in("alice", scope={"domain": {"id": "default"}}).status_code == 401
    admin.imply(looker, local, 403)
    admin.imply(here, local)
    assert admin("PATCH", f"/v3/domains/{lab}", {"domain": {"enabled": False}}).status_code == 200
    assert admin("DELETE", f"/v3/domains/{lab}").status_code == 204
    assert error(admin("GET", f"/v3/roles/{local}"), 404)


# --- limits of credentials and trusts


def test_credential_and_trust_give_no_role_that_their_user_lacks(world: World, admin: Admin) -> None:
    auditor = admin.role("auditor")
    alice = world.token("alice")
    body = {"application_credential": {"name": "ci", "roles": [{"id": auditor}]}}
    path = f"/v3/users/{ALICE}/application_credentials"
    assert "unassigned role auditor" in error(world("POST", path, body, alice), 400)
    trust = {"trustor_user_id": ALICE, "trustee_user_id": "id-of-admin", "project_id": world.demo.id}
    trust |= {"impersonation": True, "roles": [{"id": auditor}]}
    assert error(world("POST", "/v3/OS-TRUST/trusts", {"trust": trust}, alice), 404)


def test_later_implication_reaches_credential_only_with_the_users_own_roles(world: World, admin: Admin) -> None:
    auditor = admin.role("auditor")
    admin.grant(auditor)
    alice = world.token("alice")
    body = {"application_credential": {"name": "ci", "roles": [{"name": "reader"}], "secret": "a secret"}}
    made = world("POST", f"/v3/users/{ALICE}/application_credentials", body, alice).json["application_credential"]
    assert [role["name"] for role in made["roles"]] == ["reader"]
    admin.imply(auditor, role_id("manager"))
    given = {"methods": ["application_credential"]}
    given["application_credential"] = {"id": made["id"], "secret": "a secret"}  # type: ignore[assignment]
    answer = world("POST", "/v3/auth/tokens", {"auth": {"identity": given}})
    assert [role["name"] for role in answer.json["token"]["roles"]] == ["reader"]
    assert roles_of(world, world.token("alice")) == ["auditor", "manager", "member", "reader"]


def test_trust_shows_the_given_roles_and_its_token_the_implied_ones(world: World) -> None:
    alice = world.token("alice")
    trust = {"trustor_user_id": ALICE, "trustee_user_id": "id-of-admin", "project_id": world.demo.id}
    trust |= {"impersonation": False, "roles": [{"name": "member"}]}
    made = world("POST", "/v3/OS-TRUST/trusts", {"trust": trust}, alice).json["trust"]
    assert [role["name"] for role in made["roles"]] == ["member"]
    scope = {"OS-TRUST:trust": {"id": made["id"]}}
    token = world.log_in("admin", scope=scope)
    assert [role["name"] for role in token.json["token"]["roles"]] == ["member", "reader"]


def test_cost_of_roles_of_a_token_does_not_grow_with_all_roles() -> None:
    """The token looks up the records of its own roles only."""
    content = Content()
    for number in range(300):
        role = directory.add_role(content, f"role-{number}")
        content.implications.append(Implication(id=f"member-{role.id}", prior=role.id, implied="reader"))
    looked_up = []

    class Counting(Content):
        def role_by_key(self, key: str) -> Role | None:
            looked_up.append(key)
            return super().role_by_key(key)

    Counting(roles=content.roles, implications=content.implications).freeze().effective(["member"])
    assert set(looked_up) == {"member", "reader"}


def test_removed_role_that_nobody_has_is_an_error_of_the_caller() -> None:
    content = Content()
    role = directory.add_role(content, "auditor")
    with pytest.raises(exceptions.NotFound, match="does not imply"):
        directory.stop_implying(content, role, BUILT_IN_ROLES[role_id("reader")])
