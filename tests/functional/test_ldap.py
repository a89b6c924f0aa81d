"""Users and groups of a real directory server, in the identity API."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_lite.api.identity import directory as records
from nova_lite.api.identity import passwords
from nova_lite.base import exceptions
from tests.support import slapd
from tests.support.http_site import make_certificate
from tests.support.identity_api import PASSWORDS, World, error
from tests.support.slapd import GROUPS, PEOPLE, ROOT_DN, ROOT_PASSWORD, Slapd
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slapd]:
    with slapd.running(tmp_path_factory.mktemp("ldap") / "slapd") as running:
        yield running


@pytest.fixture(scope="module")
def hashes() -> dict[str, str]:
    return {name: passwords.hashed(password) for name, password in PASSWORDS.items()}


class Directory:
    """The identity API with the domain corp, whose users are in the server."""

    def __init__(self, path: Path, hashes: dict[str, str], server: Slapd, url: str = "", **more: Any) -> None:
        secret = path / "password"
        secret.write_text(ROOT_PASSWORD + "\n")
        secret.chmod(0o600)
        options = {
            "urls": url or f"ldaps://127.0.0.1:{server.tls_port}",
            "domain": "corp",
            "ca_file": server.certificate,
            "bind_dn": ROOT_DN,
            "password_file": secret,
            "user_tree": PEOPLE,
            "group_tree": GROUPS,
            **more,
        }
        lines = "".join(f"{name} = {value}\n" for name, value in options.items())
        self.world = World(path, hashes, f"auth_strategy = standalone\n[ldap]\n{lines}")
        self.admin = self.world.token("admin")
        self.domain = self("POST", "/v3/domains", {"domain": {"name": "corp"}}, 201)["domain"]["id"]
        self.project = self.world.demo.id

    def __call__(self, method: str, path: str, body: Any = None, code: int = 200) -> Any:
        response = self.world(method, path, body, self.admin)
        assert response.status_code == code, response.text
        return response.json if response.body else None

    def log_in(self, name: str, password: str, **more: Any) -> Any:
        auth = {"identity": {"methods": ["password"], "password": {"user": {"name": name, "password": password}}}}
        auth["identity"]["password"]["user"]["domain"] = {"name": "corp"}  # type: ignore[index]
        return self.world("POST", "/v3/auth/tokens", {"auth": auth | more})

    def listed(self, kind: str, query: str = "") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self("GET", f"/v3/{kind}?domain_id={self.domain}{query}")[kind]
        return found

    def in_demo(self) -> dict[str, Any]:
        return {"scope": {"project": {"id": self.project}}}


@pytest.fixture(scope="module")
def corp(tmp_path_factory: pytest.TempPathFactory, hashes: dict[str, str], server: Slapd) -> Directory:
    return Directory(tmp_path_factory.mktemp("corp"), hashes, server)


def test_directory_user_logs_in_and_has_the_roles_of_directory_groups(corp: Directory, server: Slapd) -> None:
    carol, dave = server.add_user("carol", "carol's word"), server.add_user("dave", "dave's word")
    server.add_group("makers", carol)
    (group,) = corp.listed("groups", "&name=makers")
    corp("PUT", f"/v3/projects/{corp.project}/groups/{group['id']}/roles/{_member(corp)}", None, 204)
    response = corp.log_in("Carol", "carol's word", **corp.in_demo())
    assert response.status_code == 201, response.text
    token, text = response.json["token"], response.headers["X-Subject-Token"]
    assert (token["user"]["name"], token["user"]["domain"]["id"]) == ("carol", corp.domain)
    assert [role["name"] for role in token["roles"]] == ["member", "reader"]
    assert error(corp.log_in("dave", "dave's word", **corp.in_demo()), 401)
    assert [user["name"] for user in corp("GET", f"/v3/groups/{group['id']}/users")["users"]] == ["carol"]

    server.modify(f"cn=makers,{GROUPS}", f"add: member\nmember: {dave}\n-\ndelete: member\nmember: {carol}")
    assert corp.log_in("dave", "dave's word", **corp.in_demo()).status_code == 201
    assert corp.log_in("carol", "carol's word").status_code == 201
    assert corp.world("GET", "/v3/auth/tokens", None, text, X_Subject_Token=text).status_code == 401


def test_directory_user_is_listed_and_shown_with_the_same_id_as_at_log_in(corp: Directory, server: Slapd) -> None:
    server.add_user("erin", "erin's word")
    (listed,) = corp.listed("users", "&name=erin")
    assert listed["email"] == "erin@example.org"
    assert corp.log_in("erin", "erin's word").json["token"]["user"]["id"] == listed["id"]
    assert corp("GET", f"/v3/users/{listed['id']}")["user"] == listed
    assert "erin" in {user["name"] for user in corp.listed("users")}
    by_id = {"methods": ["password"], "password": {"user": {"id": listed["id"], "password": "erin's word"}}}
    assert corp.world("POST", "/v3/auth/tokens", {"auth": {"identity": by_id}}).status_code == 201


def test_directory_user_cannot_be_changed_here(corp: Directory, server: Slapd) -> None:
    server.add_user("frank", "frank's word")
    (user,) = corp.listed("users", "&name=frank")
    path = f"/v3/users/{user['id']}"
    assert corp("PATCH", path, {"user": {"password": "other"}}, 403)
    assert corp("PATCH", path, {"user": {"name": "other"}}, 403)
    assert corp("POST", "/v3/users", {"user": {"name": "new", "domain_id": corp.domain}}, 403)
    assert corp("POST", "/v3/groups", {"group": {"name": "new", "domain_id": corp.domain}}, 403)
    own = corp.log_in("frank", "frank's word", scope="unscoped").headers["X-Subject-Token"]
    body = {"user": {"original_password": "frank's word", "password": "other"}}
    assert error(corp.world("POST", f"{path}/password", body, own), 403)
    corp("PATCH", path, {"user": {"enabled": False}})
    assert error(corp.log_in("frank", "frank's word"), 401)


@pytest.mark.parametrize("password", ["", "\u00ad", "wrong"])
def test_directory_password_that_is_wrong_or_empty_is_refused(corp: Directory, server: Slapd, password: str) -> None:
    """The server accepts a bind without a password. A soft hyphen is nothing after the preparation of RFC 4013."""
    if not corp.listed("users", "&name=gina"):
        server.add_user("gina", "gina's word")
    assert corp.log_in("gina", "gina's word").status_code == 201
    assert error(corp.log_in("gina", password), 401)
    assert error(corp.log_in("nobody", password), 401)


@pytest.mark.parametrize("name", ["*", "h*", "heidi)(uid=*", "heidi*", "*)(|(uid=*", "heidi\\", "(", "h\\65idi"])
def test_directory_name_is_never_a_pattern(corp: Directory, server: Slapd, name: str) -> None:
    if not corp.listed("users", "&name=heidi"):
        server.add_user("heidi", "heidi's word")
    assert error(corp.log_in(name, "heidi's word"), 401)


def test_directory_name_with_special_characters_logs_in(corp: Directory, server: Slapd) -> None:
    name = "ivan (*) \\ é"
    server.add_user(name, "ivan's word", rdn="ivan")
    assert corp.log_in(name, "ivan's word").json["token"]["user"]["name"] == name


def test_deleted_directory_user_has_no_access_and_loses_the_name(corp: Directory, server: Slapd) -> None:
    dn = server.add_user("judy", "judy's word")
    (first,) = corp.listed("users", "&name=judy")
    corp("PUT", f"/v3/projects/{corp.project}/users/{first['id']}/roles/{_member(corp)}", None, 204)
    token = corp.log_in("judy", "judy's word", **corp.in_demo()).headers["X-Subject-Token"]
    path = f"/v3/users/{first['id']}/application_credentials"
    made = corp.world("POST", path, {"application_credential": {"name": "ci"}}, token).json["application_credential"]
    with_secret = {"methods": ["application_credential"], "application_credential": made}
    assert corp.world("POST", "/v3/auth/tokens", {"auth": {"identity": with_secret}}).status_code == 201

    server.delete(dn)
    assert error(corp.log_in("judy", "judy's word"), 401)
    assert [user["enabled"] for user in corp.listed("users", "&name=judy")] == [False]
    assert error(corp.world("POST", "/v3/auth/tokens", {"auth": {"identity": with_secret}}), 401)
    assert error(corp.world("GET", "/v3/auth/catalog", None, token), 401)

    server.add_user("judy", "another judy's word")
    response = corp.log_in("judy", "another judy's word", scope="unscoped")
    assert response.json["token"]["user"]["id"] != first["id"]
    assert error(corp.log_in("judy", "another judy's word", **corp.in_demo()), 401)


def test_deleted_directory_user_is_noticed_without_a_log_in(corp: Directory, server: Slapd) -> None:
    dn = server.add_user("karl", "karl's word")
    token = corp.log_in("karl", "karl's word", scope="unscoped").headers["X-Subject-Token"]
    server.delete(dn)
    directory = corp.world.authority.directory
    assert directory is not None
    directory._checked.clear()
    again = {"identity": {"methods": ["token"], "token": {"id": token}}}
    assert error(corp.world("POST", "/v3/auth/tokens", {"auth": again}), 401)


def test_start_tls_and_a_second_server_after_one_that_is_down(
    tmp_path: Path, hashes: dict[str, str], server: Slapd
) -> None:
    corp = Directory(tmp_path, hashes, server, f"ldap://127.0.0.1:1,ldap://127.0.0.1:{server.port}")
    server.add_user("laura", "laura's word")
    assert corp.log_in("laura", "laura's word").status_code == 201


@pytest.mark.parametrize("scheme", ["ldap", "ldaps"])
def test_server_with_another_name_is_refused_with_one_line(
    tmp_path: Path, hashes: dict[str, str], server: Slapd, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The server's certificate is for the address 127.0.0.1 only."""
    port = server.tls_port if scheme == "ldaps" else server.port
    corp = Directory(tmp_path, hashes, server, f"{scheme}://127.0.0.2:{port}")
    assert "does not answer" in error(corp.log_in("carol", "carol's word"), 503)
    lines = [record.message for record in caplog.records if "cannot be used" in record.message]
    assert len(lines) == 1 and "certificate" in lines[0].lower()


def test_server_with_a_certificate_of_another_authority_is_refused(
    tmp_path: Path, hashes: dict[str, str], server: Slapd
) -> None:
    corp = Directory(tmp_path, hashes, server, ca_file=make_certificate(tmp_path)[0])
    assert "does not answer" in error(corp.log_in("carol", "carol's word"), 503)


def test_hung_server_delays_no_other_log_in_and_answers_again(
    tmp_path: Path, hashes: dict[str, str], server: Slapd, caplog: pytest.LogCaptureFixture
) -> None:
    corp = Directory(tmp_path, hashes, server, timeout=0.5)
    server.add_user("mia", "mia's word")
    server.process.send_signal(signal.SIGSTOP)
    try:
        for _ in range(3):
            assert "does not answer" in error(corp.log_in("mia", "mia's word"), 503)
        assert len([record for record in caplog.records if "cannot be used" in record.message]) == 1
        assert corp.world.log_in("alice").status_code == 201
        with pytest.raises(exceptions.ServiceUnavailable):
            corp.world.authority.read_directory("users", corp.domain, None)
    finally:
        server.process.send_signal(signal.SIGCONT)
    directory = corp.world.authority.directory
    assert directory is not None

    def is_logged_in() -> bool:
        directory._server._gate._closed_until = 0.0  # a pause has passed
        return bool(corp.log_in("mia", "mia's word").status_code == 201)

    wait_for("the directory answers again", is_logged_in, 30)


def test_local_user_of_the_domain_from_before_keeps_the_password_and_the_name(corp: Directory, server: Slapd) -> None:
    with corp.world.users.changing() as content:
        records.add_user(content, "nina", passwords.hashed("ours"), domain_id=corp.domain)
    server.add_user("nina", "theirs")
    assert corp.log_in("nina", "ours").status_code == 201
    assert error(corp.log_in("nina", "theirs"), 401)
    assert len(corp.listed("users", "&name=nina")) == 1


def _member(corp: Directory) -> str:
    return str(next(role["id"] for role in corp("GET", "/v3/roles")["roles"] if role["name"] == "member"))
