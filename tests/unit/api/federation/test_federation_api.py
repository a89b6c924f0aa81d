"""Identity providers, protocols and mappings in the identity API, and log-ins by a provider's token."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_lite.api.identity import passwords
from tests.support import issuer as issuers
from tests.support.identity_api import PASSWORDS, World, error
from tests.support.issuer import AUDIENCE, Issuer

ROOT = "/v3/OS-FEDERATION"
IDP = f"{ROOT}/identity_providers/corp"
AUTH = f"{IDP}/protocols/openid/auth"
NAMES = itertools.count()

USER = {"user": {"id": "{0}", "name": "{1}"}}
REMOTE = [{"type": "OIDC-sub"}, {"type": "OIDC-email"}]
RULES = [
    {"local": [USER], "remote": REMOTE},
    {
        "local": [{"groups": "{0}", "domain": {"id": "default"}}],
        "remote": [{"type": "OIDC-groups", "whitelist": ["makers", "readers"]}],
    },
]


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    yield from issuers.running()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, issuer: Issuer) -> World:
    hashes = {name: passwords.hashed(password) for name, password in PASSWORDS.items()}
    options = f"auth_strategy = standalone\n[oidc]\nissuers = {issuer.url}\naudiences = {AUDIENCE}\n"
    return World(tmp_path_factory.mktemp("federation"), hashes, options)


class Federation:
    """The identity API with the provider corp. Calls are those of an admin."""

    def __init__(self, world: World, issuer: Issuer) -> None:
        self.world, self.issuer = world, issuer
        self.admin = world.token("admin")
        with world.users.changing() as content:
            content.mappings.clear()
            content.identity_providers.clear()
            content.federation_protocols.clear()
            content.domains.clear()
            content.groups.clear()
            content.users = [user for user in content.users if not user.source]
        self("PUT", f"{ROOT}/mappings/corp", {"mapping": {"rules": RULES}}, 201)
        body = {"identity_provider": {"enabled": True, "remote_ids": [issuer.url]}}
        self.domain = self("PUT", IDP, body, 201)["identity_provider"]["domain_id"]
        self("PUT", f"{IDP}/protocols/openid", {"protocol": {"mapping_id": "corp"}}, 201)
        self.group = self("POST", "/v3/groups", {"group": {"name": "makers"}}, 201)["group"]["id"]
        roles = {role["name"]: role["id"] for role in self("GET", "/v3/roles")["roles"]}
        self("PUT", f"/v3/projects/{world.demo.id}/groups/{self.group}/roles/{roles['member']}", None, 204)

    def __call__(self, method: str, path: str, body: Any = None, code: int = 200) -> Any:
        response = self.world(method, path, body, self.admin)
        assert response.status_code == code, response.text
        return response.json if response.body else None

    def log_in(self, path: str = AUTH, **claims: Any) -> Any:
        return self.by_token(self.issuer.token(**claims), path)

    def by_token(self, token: str, path: str = AUTH) -> Any:
        return self.world("POST", path, None, Authorization=f"Bearer {token}")

    def scoped(self, unscoped: str, scope: Any = None) -> Any:
        identity = {"methods": ["token"], "token": {"id": unscoped}}
        given = scope or {"project": {"id": self.world.demo.id}}
        return self.world("POST", "/v3/auth/tokens", {"auth": {"identity": identity, "scope": given}})

    def rules(self, *rules: Any) -> None:
        self("PATCH", f"{ROOT}/mappings/corp", {"mapping": {"rules": [*rules]}})


@pytest.fixture
def corp(shared: World, issuer: Issuer) -> Federation:
    return Federation(shared, issuer)


# --- log-in


def test_user_of_a_provider_gets_an_unscoped_token_and_by_it_one_for_a_project(corp: Federation) -> None:
    response = corp.log_in(groups=["makers", "others"])
    assert response.status_code == 201, response.text
    token = response.json["token"]
    assert token["methods"] == ["mapped"]
    assert (token["user"]["name"], token["user"]["domain"]["id"]) == ("a@b.org", corp.domain)
    federation = {"identity_provider": {"id": "corp"}, "protocol": {"id": "openid"}, "groups": [{"id": corp.group}]}
    assert token["user"]["OS-FEDERATION"] == federation
    assert not {"project", "roles", "catalog"} & set(token)

    text = response.headers["X-Subject-Token"]
    for path in (f"{ROOT}/projects", "/v3/auth/projects"):
        assert [item["name"] for item in corp.world("GET", path, None, text).json["projects"]] == ["demo"]
    assert corp.world("GET", f"{ROOT}/domains", None, text).json["domains"] == []
    scoped = corp.scoped(text)
    assert [role["name"] for role in scoped.json["token"]["roles"]] == ["member", "reader"]
    assert scoped.json["token"]["methods"] == ["mapped", "token"]


def test_user_of_a_provider_logs_in_by_get_and_by_the_method_mapped(corp: Federation) -> None:
    header = {"Authorization": f"Bearer {corp.issuer.token(groups=['makers'])}"}
    first = corp.world("GET", AUTH, None, **header)
    assert first.status_code == 201
    mapped = {"identity_provider": "corp", "protocol": "openid"}
    auth = {"identity": {"methods": ["mapped"], "mapped": mapped}, "scope": {"project": {"id": corp.world.demo.id}}}
    second = corp.world("POST", "/v3/auth/tokens", {"auth": auth}, **header)
    assert second.status_code == 201, second.text
    assert second.json["token"]["user"]["id"] == first.json["token"]["user"]["id"]
    assert second.json["token"]["project"]["name"] == "demo"
    assert error(corp.world("POST", "/v3/auth/tokens", {"auth": auth}), 401)


def test_user_of_a_provider_who_leaves_a_group_loses_its_roles(corp: Federation) -> None:
    scoped = corp.scoped(corp.log_in(groups=["makers"]).headers["X-Subject-Token"]).headers["X-Subject-Token"]
    assert corp.world("GET", "/v3/auth/catalog", None, scoped).status_code == 200
    again = corp.log_in(groups=[])
    assert error(corp.scoped(again.headers["X-Subject-Token"]), 401)
    assert error(corp.world("GET", "/v3/auth/catalog", None, scoped), 401)


def test_groups_of_a_mapping_end_after_the_time_of_the_provider(corp: Federation) -> None:
    corp("PATCH", IDP, {"identity_provider": {"authorization_ttl": 10}})
    text = corp.log_in(groups=["makers"]).headers["X-Subject-Token"]
    (user,) = [user for user in corp.world.users.content.users if user.source]
    assert user.external_until > 0
    assert corp.scoped(text).status_code == 201
    with corp.world.users.changing() as content:
        content.user(user.id).external_until = 1.0  # type: ignore[union-attr]
    assert error(corp.scoped(text), 401)


def test_mapping_with_projects_makes_them_and_their_roles(corp: Federation) -> None:
    name = f"of-{next(NAMES)}"
    local = [USER, {"projects": [{"name": name, "roles": [{"name": "reader"}, {"name": "nothing"}]}]}]
    corp.rules({"local": local, "remote": REMOTE})
    text = corp.log_in().headers["X-Subject-Token"]
    scope = {"project": {"name": name, "domain": {"id": corp.domain}}}
    assert [role["name"] for role in corp.scoped(text, scope).json["token"]["roles"]] == ["reader"]
    corp.rules({"local": [USER], "remote": REMOTE})
    corp.log_in()
    assert error(corp.scoped(text, scope), 401)


def test_mapping_to_a_user_of_ours_gives_this_user(corp: Federation) -> None:
    local = {"user": {"name": "alice", "type": "local", "domain": {"id": "default"}}}
    corp.rules({"local": [local], "remote": [{"type": "OIDC-sub", "any_one_of": ["s-1"]}]})
    token = corp.log_in().json["token"]
    assert token["user"]["id"] == "id-of-alice"
    assert "OS-FEDERATION" not in token["user"]
    assert error(corp.log_in(sub="s-2"), 401)
    local["user"]["name"] = "bob"  # who is disabled
    corp.rules({"local": [local], "remote": [{"type": "OIDC-sub"}]})
    assert error(corp.log_in(), 401)


def test_two_users_of_a_provider_with_one_name_are_two_users(corp: Federation) -> None:
    first, second = (corp.log_in(sub=sub).json["token"]["user"] for sub in ("s-1", "s-2"))
    assert first["name"] == "a@b.org"
    assert second["name"] == f"a@b.org {second['id'][:8]}"
    # A user chooses a name that another one has to get.
    third = corp.log_in(sub="s-3", email=f"a@b.org {second['id'][:8]}").json["token"]["user"]
    assert third["id"] not in (first["id"], second["id"])
    assert corp.log_in(sub="s-2").json["token"]["user"] == second
    assert len([user for user in corp.world.users.content.users if user.source]) == 3


# --- attacks


@pytest.mark.parametrize(
    "claims",
    [{"iss": "https://evil.example"}, {"aud": "another"}, {"exp": 1}, {"sub": None}, {"email": None}, {"email": "a/b"}],
)
def test_token_of_a_provider_with_a_wrong_claim_is_a_401_without_the_reason(
    corp: Federation, claims: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    message = error(corp.log_in(**claims), 401)
    assert message == "The request you have made requires authentication."
    assert len([record for record in caplog.records if "Failed log-in by the identity provider" in record.message]) == 1
    assert not [user for user in corp.world.users.content.users if user.source]


@pytest.mark.parametrize("email", ["a\ud800@b.org", "a\0@b.org"])
def test_claim_that_is_no_text_does_not_stop_later_log_ins(corp: Federation, email: str) -> None:
    assert error(corp.log_in(email=email), 401)
    assert corp.log_in(sub="s-2").status_code == 201


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic YTpi", "Bearer a.b.c", "Bearer " + "a" * 20000])
def test_log_in_by_a_provider_without_a_token_is_a_401(corp: Federation, header: str) -> None:
    assert error(corp.world("POST", AUTH, None, Authorization=header), 401)


def test_token_of_another_provider_is_refused(corp: Federation) -> None:
    """The issuer has to be one of the identity provider in the URL, not any that the options have."""
    body = {"identity_provider": {"enabled": True, "remote_ids": ["https://other.example"]}}
    corp("PUT", f"{ROOT}/identity_providers/other", body, 201)
    corp("PUT", f"{ROOT}/identity_providers/other/protocols/openid", {"protocol": {"mapping_id": "corp"}}, 201)
    assert error(corp.log_in(f"{ROOT}/identity_providers/other/protocols/openid/auth"), 401)


def test_disabled_or_deleted_provider_ends_the_tokens_of_its_users(corp: Federation) -> None:
    text = corp.log_in(groups=["makers"]).headers["X-Subject-Token"]
    corp("PATCH", IDP, {"identity_provider": {"enabled": False}})
    assert error(corp.log_in(), 401)
    assert error(corp.scoped(text), 401)
    corp("PATCH", IDP, {"identity_provider": {"enabled": True}})
    assert corp.scoped(text).status_code == 201
    corp("DELETE", IDP, None, 204)
    assert error(corp.log_in(), 404)
    assert error(corp.scoped(text), 401)
    assert not [user for user in corp.world.users.content.users if user.source]


def test_user_of_a_provider_has_no_password_here(corp: Federation) -> None:
    user = corp.log_in().json["token"]["user"]
    given = {"methods": ["password"], "password": {"user": {"id": user["id"], "password": ""}}}
    assert error(corp.world("POST", "/v3/auth/tokens", {"auth": {"identity": given}}), 401)
    corp("PATCH", f"/v3/users/{user['id']}", {"user": {"password": "word"}}, 403)
    corp("PATCH", f"/v3/users/{user['id']}", {"user": {"enabled": False}})
    assert error(corp.log_in(), 401)


def test_member_cannot_see_or_write_what_makes_users(corp: Federation) -> None:
    """Whoever writes a mapping can be any user."""
    member = corp.world.token("alice")
    rule = {"local": [{"user": {"name": "admin", "type": "local"}}], "remote": [{"type": "OIDC-sub"}]}
    for path, body in (
        (f"{ROOT}/mappings/corp", {"mapping": {"rules": [rule]}}),
        (IDP, {"identity_provider": {"remote_ids": ["https://evil.example"]}}),
        (f"{IDP}/protocols/openid", {"protocol": {"mapping_id": "corp"}}),
    ):
        for method in ("GET", "PUT", "PATCH", "DELETE"):
            assert error(corp.world(method, path, body if method[0] == "P" else None, member), 403)
        assert corp.world("GET", path, None).status_code == 401
    for path in (f"{ROOT}/mappings", f"{ROOT}/identity_providers", f"{IDP}/protocols"):
        assert error(corp.world("GET", path, None, member), 403)


def test_user_who_demands_one_time_codes_cannot_log_in_by_a_provider(corp: Federation) -> None:
    user = corp.log_in().json["token"]["user"]
    options = {"multi_factor_auth_enabled": True, "multi_factor_auth_rules": [["password", "totp"]]}
    corp("PATCH", f"/v3/users/{user['id']}", {"user": {"options": options}})
    assert error(corp.log_in(), 401)


# --- records


def test_identity_provider_is_made_changed_and_listed(corp: Federation) -> None:
    path = f"{ROOT}/identity_providers/two"
    made = corp("PUT", path, {"identity_provider": {"description": "text", "domain_id": "default"}}, 201)
    url = f"http://cloud:5000{path}"
    expected = {
        "id": "two",
        "enabled": False,
        "description": "text",
        "domain_id": "default",
        "remote_ids": [],
        "authorization_ttl": None,
        "links": {"self": url, "protocols": f"{url}/protocols"},
    }
    assert made == {"identity_provider": expected} == corp("GET", path)
    assert {item["id"] for item in corp("GET", f"{ROOT}/identity_providers")["identity_providers"]} == {"corp", "two"}
    (found,) = corp("GET", f"{ROOT}/identity_providers?id=two")["identity_providers"]
    assert found == expected
    changed = corp("PATCH", path, {"identity_provider": {"enabled": True, "authorization_ttl": 5}})
    assert changed["identity_provider"] == expected | {"enabled": True, "authorization_ttl": 5}
    assert corp("GET", f"/v3/domains/{corp.domain}")["domain"]["name"] == "corp"
    corp("PUT", path, {"identity_provider": {}}, 409)
    corp("PATCH", path, {"identity_provider": {"remote_ids": [corp.issuer.url]}}, 409)
    corp("DELETE", path, None, 204)
    corp("GET", path, None, 404)


@pytest.mark.parametrize(
    "fields",
    [
        {"enabled": "yes"}, {"description": 1}, {"remote_ids": "x"}, {"remote_ids": [1]}, {"remote_ids": ["x", "x"]},
        {"authorization_ttl": -1}, {"authorization_ttl": True}, {"authorization_ttl": "1"}, {"id": "x"}, {"more": 1},
    ],
)  # fmt: skip
def test_identity_provider_with_a_wrong_field_is_refused(corp: Federation, fields: dict[str, Any]) -> None:
    corp("PUT", f"{ROOT}/identity_providers/new", {"identity_provider": fields}, 400)
    corp("PATCH", IDP, {"identity_provider": fields}, 400)
    corp("GET", f"{ROOT}/identity_providers/new", None, 404)


def test_identity_provider_of_a_deleted_domain_is_deleted(corp: Federation) -> None:
    corp.log_in()
    corp("PATCH", f"/v3/domains/{corp.domain}", {"domain": {"enabled": False}})
    assert error(corp.log_in(), 401)
    corp("DELETE", f"/v3/domains/{corp.domain}", None, 204)
    corp("GET", IDP, None, 404)


def test_protocol_is_made_changed_and_listed(corp: Federation) -> None:
    path = f"{IDP}/protocols/two"
    made = corp("PUT", path, {"protocol": {"mapping_id": "corp"}}, 201)["protocol"]
    url = f"http://cloud:5000{IDP}"
    assert made == {
        "id": "two",
        "mapping_id": "corp",
        "remote_id_attribute": None,
        "links": {"self": f"{url}/protocols/two", "identity_provider": url},
    }
    assert {item["id"] for item in corp("GET", f"{IDP}/protocols")["protocols"]} == {"openid", "two"}
    corp("PATCH", path, {"protocol": {"remote_id_attribute": "OIDC-iss"}})
    assert corp("GET", path)["protocol"]["remote_id_attribute"] == "OIDC-iss"
    corp("PUT", path, {"protocol": {"mapping_id": "corp"}}, 409)
    for wrong in ({"mapping_id": "nothing"}, {"mapping_id": 1}, {}, {"more": 1}, {"remote_id_attribute": 1}):
        corp("PUT", f"{IDP}/protocols/three", {"protocol": wrong}, 400)
    corp("PUT", f"{ROOT}/identity_providers/nobody/protocols/x", {"protocol": {"mapping_id": "corp"}}, 404)
    corp("DELETE", path, None, 204)
    corp("GET", path, None, 404)


def test_mapping_is_made_changed_and_listed(corp: Federation) -> None:
    path = f"{ROOT}/mappings/two"
    rules = [
        {
            "local": [{"user": {"name": "{0}"}}, {"group": {"id": "0cd5e9"}}],
            "remote": [{"type": "UserName"}, {"type": "orgPersonType", "not_any_of": ["Contractor", "Guest"]}],
        }
    ]
    made = corp("PUT", path, {"mapping": {"rules": rules}}, 201)["mapping"]
    links = {"self": f"http://cloud:5000{path}"}
    assert made == {"id": "two", "rules": rules, "schema_version": "1.0", "links": links}
    assert {item["id"] for item in corp("GET", f"{ROOT}/mappings")["mappings"]} == {"corp", "two"}
    corp("PATCH", path, {"mapping": {"rules": RULES, "schema_version": "2.0"}})
    assert corp("GET", path)["mapping"] == made | {"rules": RULES, "schema_version": "2.0"}
    corp("PUT", path, {"mapping": {"rules": rules}}, 409)
    for wrong in ({}, {"rules": []}, {"rules": rules, "schema_version": "9"}, {"rules": rules, "more": 1}):
        corp("PUT", f"{ROOT}/mappings/three", {"mapping": wrong}, 400)
    corp("PUT", f"{ROOT}/mappings/a%20b", {"mapping": {"rules": rules}}, 400)
    corp("DELETE", path, None, 204)
    corp("GET", path, None, 404)


def test_protocol_with_a_deleted_mapping_lets_nobody_in(corp: Federation) -> None:
    corp("DELETE", f"{ROOT}/mappings/corp", None, 204)
    assert error(corp.log_in(), 401)


def test_provider_that_does_not_answer_is_a_503(tmp_path: Path, issuer: Issuer, shared: World) -> None:
    hashes = {user.name: user.password for user in shared.users.content.users if not user.source}
    options = "auth_strategy = standalone\n[oidc]\nissuers = http://127.0.0.1:1\naudiences = cloud\n"
    issuer_url, issuer.url = issuer.url, "http://127.0.0.1:1"
    try:
        corp = Federation(World(tmp_path, hashes, options), issuer)
        assert "does not answer" in error(corp.log_in(), 503)
    finally:
        issuer.url = issuer_url
