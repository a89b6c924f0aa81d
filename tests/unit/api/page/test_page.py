"""The page's application: files, sessions, rights, and the way to the APIs."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import webob
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_lite import policies
from nova_lite.api.http import deploy
from nova_lite.api.identity import directory
from nova_lite.api.identity.throttle import OF_USER
from nova_lite.api.page import app, configuration, consoles, files, rights, sessions
from nova_lite.base import exceptions, version
from nova_lite.image.sources import catalogue
from nova_lite.operations import OPERATIONS
from tests.support.http_site import serving
from tests.support.identity_api import World
from tests.unit.api.page.conftest import PageClient


def assert_secure(response: webob.Response) -> None:
    policy = response.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["X-Frame-Options"] == "DENY"
    assert response.headers["Referrer-Policy"] == "no-referrer"
    assert "X-Subject-Token" not in response.headers


# --- files


def test_root_is_the_page_with_a_strict_policy(page: PageClient) -> None:
    response = page("GET", "/", marked=False)
    assert response.status_code == 200
    assert response.content_type == "text/html"
    assert b'<script type="module" src="app.js"></script>' in response.body
    assert b"style=" not in response.body
    assert_secure(response)
    assert "script-src 'self'; style-src 'self'; font-src 'self'" in response.headers["Content-Security-Policy"]


def test_file_is_sent_compressed_and_once(page: PageClient) -> None:
    plain = page("GET", "/app.js", marked=False)
    packed = page("GET", "/app.js", marked=False, Accept_Encoding="gzip, br")
    assert gzip.decompress(packed.body) == plain.body
    assert packed.headers["Content-Encoding"] == "gzip"
    known = page("GET", "/app.js", marked=False, If_None_Match=plain.headers["ETag"])
    assert known.status_code == 304
    assert known.body == b""
    assert page("HEAD", "/app.js", marked=False).status_code == 200


def test_files_of_the_first_view_are_small() -> None:
    """The typeface is at most 50 KB, and page and style besides 15 KB, compressed."""
    site = files.load()
    (font,) = (path for path in site if path.endswith(".woff2"))
    assert len(site[font].compressed) <= 50_000
    assert sum(len(site[path].compressed) for path in ("/", "/style.css")) <= 15_000


def test_typeface_is_loaded_early_and_kept_for_good(page: PageClient) -> None:
    (font,) = re.findall(r'<link rel="preload" href="([^"]+)" as="font"', page("GET", "/", marked=False).text)
    assert font.encode() in page("GET", "/style.css", marked=False).body
    response = page("GET", f"/{font}", marked=False, Accept_Encoding="gzip")
    assert response.headers["Content-Type"] == "font/woff2"
    assert response.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert "Content-Encoding" not in response.headers
    assert response.body[:4] == b"wOF2"
    assert_secure(response)
    assert page("GET", "/app.js", marked=False).headers["Cache-Control"] == "no-cache"


def test_scripts_of_the_first_view_are_small() -> None:
    """Compressed, they have at most 80 KB. Other views, languages and consoles come later."""
    site = files.load()
    parts = re.findall(r'<link rel="modulepreload" href="([^"]+)">', site["/"].data.decode())
    scripts = {"/app.js", *(f"/{name}" for name in parts)}
    assert sum(len(site[path].compressed) for path in scripts) <= 80_000
    later = {path for path in site if path.endswith(".js")} - scripts
    assert later >= {"/chinese.js", "/screen.js", "/terminal.js"}
    # The imports of each script are among them, so that the browser does not load one after the other.
    for path in scripts:
        at_once = re.findall(r'(?:from|import)"\./([^"]+)"', site[path].data.decode())
        assert {f"/{name}" for name in at_once} <= scripts


@pytest.mark.parametrize("path", ["/nothing", "/../app.py", "/static/app.js", "/sources.sha256", "/%00", "/app.js/"])
def test_other_path_is_not_found(page: PageClient, path: str) -> None:
    response = page("GET", path)
    assert response.status_code == 404
    assert response.json["error"]["message"] == "The page has no such file."
    assert_secure(response)


def test_change_of_a_file_is_refused(page: PageClient) -> None:
    response = page("POST", "/app.js", b"{}")
    assert response.status_code == 405
    assert response.headers["Allow"] == "GET, HEAD"


def test_list_of_an_api_is_sent_compressed_to_a_browser_that_takes_it(page: PageClient) -> None:
    page.log_in()
    plain = page("GET", "/api/compute/v2.1/flavors")
    packed = page("GET", "/api/compute/v2.1/flavors", Accept_Encoding="gzip, br")
    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Content-Encoding"] == "gzip"
    assert packed.headers["Content-Length"] == str(len(packed.body))
    assert gzip.decompress(packed.body) == plain.body
    assert_secure(packed)


def test_other_data_of_an_api_stay_a_stream() -> None:
    """A large image never is in memory as a whole."""
    sent = []

    def parts() -> Iterator[bytes]:
        for data in (b"ab", b"cd"):
            sent.append(data)
            yield data

    def api(environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        start("200 OK", [("Content-Type", "application/octet-stream"), ("Content-Length", "4")])
        return parts()

    request = webob.Request.blank("/", headers={"Accept-Encoding": "gzip"})
    status, headers, body = request.call_application(app._compressed(api, request.environ))
    assert (status, dict(headers).get("Content-Encoding")) == ("200 OK", None)
    assert sent == []
    assert list(body) == [b"ab", b"cd"]


# --- sessions


def test_log_in_keeps_the_token_from_scripts(page: PageClient) -> None:
    response = page.log_in()
    assert response.status_code == 201
    assert response.json["token"]["user"]["name"] == "alice"
    assert_secure(response)
    cookie = response.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert cookie.split("; ")[1:2] == ["Path=/"]
    assert page.cookie.partition("=")[2] not in response.text
    assert page("GET", "/session").json["token"]["user"]["name"] == "alice"


def test_cookie_over_tls_is_secure_and_of_this_host_alone(world: World) -> None:
    page = PageClient(world, "https://cloud:8788")
    response = page.log_in()
    assert response.headers["Set-Cookie"].startswith("__Host-nova_lite_session=")
    assert "; secure" in response.headers["Set-Cookie"]
    assert response.headers["Strict-Transport-Security"].startswith("max-age=")
    assert page("GET", "/session").status_code == 200


def test_wrong_password_is_refused_in_the_words_of_the_identity_api(page: PageClient) -> None:
    response = page.log_in("alice", "wrong")
    assert response.status_code == 401
    assert "message" in response.json["error"]
    assert "Set-Cookie" not in response.headers
    assert page("GET", "/session").status_code == 204


def test_guessed_passwords_are_slowed_down_at_the_page(page: PageClient) -> None:
    assert [page.log_in("alice", "guess").status_code for _ in range(OF_USER.free)] == [401] * OF_USER.free
    refused = page.log_in("alice")
    assert refused.status_code == 429
    assert "Too many passwords were wrong" in refused.json["error"]["message"]
    assert "Set-Cookie" not in refused.headers


def test_session_moves_to_another_project(page: PageClient, world: World) -> None:
    with world.users.changing() as content:
        alice = next(user for user in content.users if user.name == "alice")
        directory.grant(alice, world.ops, "reader")
    page.log_in()
    body = {"auth": {"identity": {"methods": ["token"]}, "scope": {"project": {"id": world.ops.id}}}}
    assert page("POST", "/session", body).json["token"]["project"]["name"] == "ops"
    assert page("GET", "/session").json["token"]["project"]["name"] == "ops"


def test_token_that_a_script_names_is_not_used(page: PageClient, world: World) -> None:
    """Otherwise a stolen token could become a session of this browser."""
    page.log_in()
    stolen = {"methods": ["token"], "token": {"id": world.token("admin")}}
    assert page("POST", "/session", {"auth": {"identity": stolen}}).json["token"]["user"]["name"] == "alice"


def test_log_out_revokes_the_token_and_removes_the_cookie(page: PageClient) -> None:
    page.log_in()
    cookie = page.cookie
    response = page("DELETE", "/session")
    assert response.status_code == 204
    assert "Max-Age=0" in response.headers["Set-Cookie"]
    page.cookie = cookie
    assert page("GET", "/session").status_code == 401
    assert page("DELETE", "/session").status_code == 204


@pytest.mark.parametrize("by_password", [False, True])
def test_session_that_another_one_replaces_ends(page: PageClient, world: World, by_password: bool) -> None:
    """Its token would outlive the log-out."""
    page.log_in()
    before = page.cookie
    if by_password:
        page.log_in()
    else:
        assert page("POST", "/session", in_ops(page, world)).status_code == 201
    now = page.cookie
    page.cookie = before
    assert page("GET", "/session").status_code == 401
    page.cookie = now
    assert page("GET", "/session").status_code == 200


def test_log_in_without_a_length_or_too_long_is_refused(page: PageClient) -> None:
    assert page("POST", "/session", b" " * (sessions.MAX_BODY + 1)).status_code == 400
    assert page("PATCH", "/session").status_code == 405


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["auth", "identity", "methods", "token", "password", "scope"]), inner)
        ),
        max_leaves=12,
    )
)
def test_malformed_log_in_is_a_client_error(shared_page: PageClient, body: object) -> None:
    shared_page.cookie = ""
    assert 400 <= shared_page("POST", "/session", body).status_code < 500


@pytest.fixture(scope="module")
def shared_page(tmp_path_factory: pytest.TempPathFactory, hashes: dict[str, str]) -> PageClient:
    return PageClient(World(tmp_path_factory.mktemp("page"), hashes, "auth_strategy = standalone\n"))


# --- one cookie, several tabs

PATHS = ["/api/compute/v2.1/servers", "/api/identity/v3/auth/projects", "/rights", "/events", "/daemons"]


def in_ops(page: PageClient, world: World) -> dict[str, object]:
    """Give alice a role in a second project. Return the body of the request that changes to it."""
    with world.users.changing() as content:
        alice = next(user for user in content.users if user.name == "alice")
        directory.grant(alice, world.ops, "reader")
    return {"auth": {"identity": {"methods": ["token"]}, "scope": {"project": {"id": world.ops.id}}}}


@pytest.mark.parametrize("path", PATHS)
def test_request_for_another_project_than_the_session_is_refused(page: PageClient, world: World, path: str) -> None:
    page.log_in()
    first = page.session
    assert page("POST", "/session", in_ops(page, world)).status_code == 201
    response = page("GET", path, X_Nova_Lite_Session=first)
    assert response.status_code == 409
    assert response.headers["X-Nova-Lite-Session"] == "other"
    message = response.json["error"]["message"]
    assert message == "This browser's session is now in another project. Switch back, or reload the page."
    assert page("POST", path, {}, X_Nova_Lite_Session=first).status_code in (404, 409)


@pytest.mark.parametrize("path", PATHS)
def test_request_of_another_user_than_the_session_is_refused(page: PageClient, path: str) -> None:
    page.log_in()
    first = page.session
    page.log_in("admin")
    response = page("GET", path, X_Nova_Lite_Session=first)
    assert response.status_code == 409
    assert response.json["error"]["message"] == "This browser's session is now another user's. Reload the page."
    change = {"auth": {"identity": {"methods": ["token"]}, "scope": {"project": {"id": page.world.demo.id}}}}
    assert page("POST", "/session", change, X_Nova_Lite_Session=first).status_code == 409
    assert page("DELETE", "/session", X_Nova_Lite_Session=first).status_code == 409
    assert page("GET", "/session").json["token"]["user"]["name"] == "admin"


@pytest.mark.parametrize("path", PATHS)
def test_request_that_names_no_session_is_refused(page: PageClient, path: str) -> None:
    page.log_in()
    response = page("GET", path, X_Nova_Lite_Session="")
    assert response.status_code == 400
    assert "X-Nova-Lite-Session" in response.json["error"]["message"]
    assert "Reload the page." in response.json["error"]["message"]


def test_user_changes_the_project_and_logs_out_in_a_tab_of_another_project(page: PageClient, world: World) -> None:
    page.log_in()
    first = page.session
    page("POST", "/session", in_ops(page, world))
    back = {"auth": {"identity": {"methods": ["token"]}, "scope": {"project": {"id": world.demo.id}}}}
    assert page("POST", "/session", back, X_Nova_Lite_Session=first).status_code == 201
    page("POST", "/session", in_ops(page, world))
    assert page("DELETE", "/session", X_Nova_Lite_Session=first).status_code == 204


def test_ids_of_a_session_are_compared_decoded(page: PageClient) -> None:
    page.log_in()
    user, _, project = page.session.partition("/")
    encoded = "".join(f"%{ord(char):02x}" for char in user)
    assert page("GET", "/rights", X_Nova_Lite_Session=f"{encoded}/{project}").status_code == 200


# --- the way to the APIs


def test_api_is_called_with_the_token_of_the_session(page: PageClient) -> None:
    page.log_in()
    response = page("GET", "/api/compute/v2.1/flavors")
    assert response.status_code == 200
    assert "flavors" in response.json
    assert response.headers["Cache-Control"] == "no-store"
    assert_secure(response)
    assert "sandbox" in response.headers["Content-Security-Policy"]


def test_api_without_a_session_is_a_401(page: PageClient) -> None:
    assert page("GET", "/api/compute/v2.1/flavors").status_code == 401


def test_token_in_a_header_is_not_used(page: PageClient, world: World) -> None:
    assert page("GET", "/api/compute/v2.1/flavors", X_Auth_Token=world.token("admin")).status_code == 401


def test_identity_headers_of_a_client_are_ignored(page: PageClient) -> None:
    """A server behind Keystone's middleware would believe them."""
    page.log_in("alice")
    headers = {"X_Identity_Status": "Confirmed", "X_Roles": "admin", "X_User_Id": "id-of-admin", "X_Is_Admin": "1"}
    rules = page("GET", "/rights", **headers).json["rules"]
    assert "os_compute_api:os-hypervisors:list-detail" not in rules
    assert page("GET", "/api/compute/v2.1/os-services", **headers).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "https://cloud:8788"},
        {"Origin": "http://cloud:9999"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
    ],
)
@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/api/compute/v2.1/flavors"), ("DELETE", "/session"), ("GET", "/rights")]
)
def test_request_of_another_site_is_refused(page: PageClient, method: str, path: str, headers: dict[str, str]) -> None:
    page.log_in()
    response = page(method, path, **headers)
    assert response.status_code == 403
    assert response.json["error"]["message"] == "Only the page itself may send this request."
    assert page("GET", "/session").status_code == 200


def test_request_without_the_mark_is_refused(page: PageClient) -> None:
    """A form or an image of another site cannot add a header."""
    page.log_in()
    assert page("GET", "/api/compute/v2.1/flavors", marked=False).status_code == 403
    assert page("GET", "/api/compute/v2.1/flavors", Origin="http://cloud:8788").status_code == 200


def test_token_is_not_to_be_had_through_the_identity_api(page: PageClient) -> None:
    page.log_in()
    user = {"name": "alice", "domain": {"id": "default"}, "password": "alice's"}
    body = {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}}}
    for path in ("/api/identity/v3/auth/tokens", "/api/identity/v3/auth/tokens/"):
        assert page("POST", path, body).status_code == 403
    response = page("POST", "/api/identity//v3/auth/tokens", body)
    assert "X-Subject-Token" not in response.headers


@pytest.mark.parametrize(
    "path", ["/api/", "/api/nowhere/", "/api/metadata/latest", "/api/join/v1/trust", "/api/volume/v3"]
)
def test_api_that_is_not_enabled_is_not_found(page: PageClient, path: str) -> None:
    page.log_in()
    assert page("GET", path).status_code == 404


def test_access_rules_of_a_credential_hold_through_the_page(page: PageClient, world: World) -> None:
    token = world.token("alice")
    user_id = world("GET", "/v3/auth/tokens", token=token, X_Subject_Token=token).json["token"]["user"]["id"]
    rules = [{"service": "compute", "method": "GET", "path": "/v2.1/flavors"}]
    made = world(
        "POST",
        f"/v3/users/{user_id}/application_credentials",
        {"application_credential": {"name": "narrow", "access_rules": rules}},
        token,
    ).json["application_credential"]
    identity = {"methods": ["application_credential"], "application_credential": made}
    identity["application_credential"] = {"id": made["id"], "secret": made["secret"]}
    assert page("POST", "/session", {"auth": {"identity": identity}}).status_code == 201
    assert page("GET", "/api/compute/v2.1/flavors").status_code == 200
    assert page("GET", "/api/compute/v2.1/servers").status_code == 401


# --- rights


def test_rights_are_those_of_the_caller(page: PageClient) -> None:
    page.log_in("alice")
    rules = set(page("GET", "/rights").json["rules"])
    assert "os_compute_api:servers:create" in rules
    assert "os_compute_api:os-hypervisors:list-detail" not in rules
    page.log_in("admin")
    assert "os_compute_api:os-hypervisors:list-detail" in page("GET", "/rights").json["rules"]
    page.cookie = ""
    assert page("GET", "/rights").status_code == 401


def test_rights_have_the_states_of_each_operation(page: PageClient) -> None:
    page.log_in()
    operations = page("GET", "/rights").json["operations"]
    assert set(operations) == {operation.kind for operation in OPERATIONS.values()}
    assert operations["start"]["allowed"] == ["stopped"]


@pytest.mark.parametrize(
    ("caller", "address"),
    [
        ("203.0.113.5", "203.0.113.5"),
        ("203.0.113.5, 10.0.0.1", "203.0.113.5"),
        ("::ffff:203.0.113.5", "203.0.113.5"),
        ("2001:db8:0::5", "2001:db8::5"),
        ("127.0.0.1", None),
        ("::ffff:127.0.0.1", None),
        ("::1", None),
        ("fe80::1%eth0", None),
        ("0.0.0.0", None),
        ("unknown", None),
        ("", None),
    ],
)
def test_address_of_a_caller_is_the_one_that_other_machines_see(caller: str, address: str | None) -> None:
    assert rights.address_of(caller) == address


def test_rights_have_the_address_of_the_caller(page: PageClient) -> None:
    page.log_in()
    assert page("GET", "/rights").json["address"] is None


def test_versions_of_daemons_are_for_those_who_may_list_services(page: PageClient) -> None:
    assert page("GET", "/daemons").status_code == 401
    page.log_in("alice")
    assert page("GET", "/daemons").status_code == 403
    assert page("GET", "/daemons", marked=False).status_code == 403
    page.log_in("admin")
    response = page("GET", "/daemons")
    assert response.json["version"] == version.VERSION
    assert isinstance(response.json["daemons"], list)
    assert_secure(response)
    assert page("POST", "/daemons", {}).status_code == 404


def test_cloud_images_are_for_those_who_may_create_images(tmp_path: Path, hashes: dict[str, str]) -> None:
    hosts = "[image]\nimport_hosts = cloud.debian.org\n"
    world = World(tmp_path, hashes, f"auth_strategy = standalone\n{hosts}")
    page = PageClient(world)
    assert page("GET", "/cloud-images").status_code == 401
    with world.users.changing() as content:
        (alice,) = (user for user in content.users if user.name == "alice")
        alice.roles = {world.demo.id: ["reader"]}
    page.log_in("alice")
    assert page("GET", "/cloud-images").status_code == 403
    page.log_in("admin")
    response = page("GET", "/cloud-images")
    found = {(item["name"], item["architecture"]): item for item in response.json["images"]}
    assert len(found) == sum(len(image.architectures) for image in catalogue.IMAGES)
    assert found["debian/13", "aarch64"] == {
        "name": "debian/13",
        "architecture": "aarch64",
        "image": "debian-13-aarch64",
        "site": "https://cloud.debian.org/images/cloud",
        "path": "trixie/latest/debian-13-genericcloud-arm64.qcow2",
        "disk_format": "qcow2",
        "properties": catalogue.find("debian/13").properties("aarch64"),
        "is_allowed": True,
    }
    assert {item["is_allowed"] for name, item in found.items() if not name[0].startswith("debian")} == {False}
    assert_secure(response)
    assert page("POST", "/cloud-images", {}).status_code == 404


# --- configuration


def test_configuration_check_finds_mistakes_and_shows_no_value(page: PageClient) -> None:
    (path,) = map(Path, page.world.conf.config_file)
    path.chmod(0o644)
    path.write_text(
        "[DEFAULT]\nreport_intervall = hidden1\nreport_interval = hidden2\ntransport_url = rabbit://u:hidden3@b/\n"
        "[scheduler]\nenabled_filters = ComputeFilter, hidden4\n[DEFAULT]\nlogdir = /\n"
    )
    assert page("GET", "/configuration").status_code == 401
    page.log_in("alice")
    assert page("GET", "/configuration").status_code == 403
    page.log_in("admin")
    response = page("GET", "/configuration")
    assert response.json["files"] == [str(path)]
    told = [text.removeprefix(f"{path}: ") for text in response.json["problems"]]
    assert told[0] == "[DEFAULT] has no option report_intervall; did you mean report_interval?"
    assert any(text.startswith("[DEFAULT] logdir is called ") for text in told)
    assert "[DEFAULT] report_interval has a value that it cannot have." in told
    assert any(
        text.startswith("[scheduler] enabled_filters has a value that it cannot have; there are ") for text in told
    )
    assert any("every user of this machine can read [DEFAULT] transport_url" in text for text in told)
    assert len(told) == 5
    assert "hidden" not in response.text
    assert_secure(response)


def test_configuration_check_begins_no_process_for_strangers_and_one_for_many_requests(
    page: PageClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        begun.append(command)
        return subprocess.CompletedProcess(command, 0, "[]")

    monkeypatch.setattr(configuration.subprocess, "run", run)
    page.log_in("alice")
    refused = [page("GET", "/configuration?file=/etc/shadow"), page("GET", "/configuration", marked=False)]
    page.log_in("admin")
    refused += [
        page("GET", "/configuration", marked=False),
        page("GET", "/configuration", Origin="https://evil.example"),
        page("GET", "/configuration", Sec_Fetch_Site="cross-site"),
    ]
    assert {response.status_code for response in refused} == {403}
    others = [("POST", "/configuration"), ("GET", "/configuration/etc/passwd"), ("GET", "/configuration/../session")]
    assert {page(method, path, {} if method == "POST" else None).status_code for method, path in others} == {404}
    assert begun == []
    for query in ("", "?file=/etc/shadow", ""):
        assert page("GET", f"/configuration{query}").json["problems"] == []
    assert [command[-1:] for command in begun] == [page.world.conf.config_file]
    monkeypatch.setattr(configuration, "KEPT", 0.0)
    page("GET", "/configuration")
    assert len(begun) == 2


@pytest.mark.parametrize("reply", ["", "no JSON"])
def test_configuration_check_that_fails_is_no_success(
    page: PageClient, monkeypatch: pytest.MonkeyPatch, reply: str
) -> None:
    monkeypatch.setattr(configuration.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=reply))
    page.log_in("admin")
    assert page("GET", "/configuration").json["problems"] is None


# --- consoles


@pytest.mark.parametrize(
    ("urls", "expected"),
    [
        (None, "ws://127.0.0.1:6080 ws://127.0.0.1:6083"),
        ([], ""),
        (["https://Console.example.org/vnc_lite.html", "wss://console.example.org:443/"], "wss://console.example.org"),
        (["http://console:6080"], "ws://console:6080"),
    ],
)
def test_page_connects_to_the_console_proxies_that_are_configured(
    world: World, urls: list[str] | None, expected: str
) -> None:
    world.conf.set_override("page_console_urls", urls, "api")
    page = PageClient(world)
    page.log_in()
    policy = page("GET", "/").headers["Content-Security-Policy"]
    sources = " ".join(["'self'", *expected.split()])
    assert f"connect-src {sources}; " in policy
    assert page("GET", "/rights").json["consoles"] == expected.split()
    assert expected not in page("GET", "/nothing").headers["Content-Security-Policy"] or not expected


@pytest.mark.parametrize(
    "url",
    [
        "console",
        "ftp://console",
        "https://console;script-src *",
        "https://a b",
        "https://[::1]",
        "https://x:0",
        "https://[",
    ],
)
def test_url_of_a_console_that_no_policy_can_have_is_refused_at_start(world: World, url: str) -> None:
    world.conf.set_override("page_console_urls", [url], "api")
    with pytest.raises(exceptions.ConfigurationError, match="page_console_urls"):
        deploy.load_app("page", world.services)


def test_ipv6_address_of_a_proxy_is_left_out(world: World) -> None:
    """Content security policies cannot have one. Such a console opens in a tab of its own."""
    world.conf.set_override("novncproxy_base_url", "http://[::1]:6080/vnc_lite.html", "vnc")
    assert consoles.origins(world.conf) == ["ws://127.0.0.1:6083"]


# --- the daemon


def test_page_without_the_identity_api_is_refused_at_start(world: World) -> None:
    world.conf.set_override("enabled_apis", ["osapi_compute", "page"], "api")
    with pytest.raises(exceptions.ConfigurationError, match="page needs identity beside it"):
        deploy.load_app("page", world.services)


def test_page_through_the_http_server_streams_and_refuses(world: World) -> None:
    head = "X-Nova-Lite-Page: 1\r\nHost: cloud\r\n"
    with serving(world.app("page")) as site:
        with site.connect() as sock:
            sock.sendall(f"GET / HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode())
            assert sock.recv(100).startswith(b"HTTP/1.1 200 ")
        for path in ("/api/compute/%0d%0aSet-Cookie:x=1", "/%0d%0aSet-Cookie:x=1", "/session%0a"):
            answer = site.exchange(f"GET {path} HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode())
            assert b"300" <= answer.split(b" ")[1] < b"500", answer
            assert b"\r\nSet-Cookie" not in answer
        for cookie in ("nova_lite_session=\x80\xff", 'nova_lite_session="a\\012b"', "=" * 5000):
            answer = site.exchange(
                f"GET /session HTTP/1.1\r\n{head}Cookie: {cookie}\r\nConnection: close\r\n\r\n".encode("latin-1")
            )
            assert answer.split(b" ")[1] in (b"204", b"400", b"401"), answer


# --- the sources


ROOT = Path(__file__).resolve().parents[4]
SOURCES = ROOT / "tools/page"


def source_text(pattern: str = "*.ts*") -> str:
    """Return the sources of that name without the line breaks that the formatter has made in calls."""
    paths = sorted((SOURCES / "src").glob(pattern))
    text = re.sub(r"\s+", " ", " ".join(path.read_text() for path in paths if path.name != "chinese.ts"))
    return re.sub(r",? \)", ")", text.replace("( ", "("))


def test_built_files_are_those_of_the_sources() -> None:
    """``npm ci && npm run build`` in tools/page builds them again."""
    names = [f"src/{path.name}" for path in (SOURCES / "src").iterdir()]
    names += ["build.mjs", "package-lock.json", "tsconfig.json"]
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(f"{name}\n".encode())
        digest.update((SOURCES / name).read_bytes())
    assert (files.DIRECTORY / "sources.sha256").read_text().strip() == digest.hexdigest()


def test_rules_that_the_page_asks_for_exist() -> None:
    known = {rule.name for rule in policies.list_rules()}
    text = source_text("*.tsx")
    asked = set(re.findall(r'rule: "([^"]+)"', text))
    for many in re.findall(r"rule: \[([^\]]+)\]", text) + re.findall(r"may\(([^)]+)\)", text):
        asked |= set(re.findall(r'"([^"]+)"', many))
    asked |= set(re.findall(r'simple\("[^"]+", "[^"]+", t\("[^"]+"\), "([^"]+)"', text))
    assert len(asked) > 60
    assert asked - known == set()
    kinds = set(re.findall(r'accepts\("([^"]+)"', text)) | set(re.findall(r'simple\("[^"]+", "([^"]+)"', text))
    assert kinds <= {operation.kind for operation in OPERATIONS.values()}


def test_alerts_of_the_page_have_the_names_of_the_alert_rules() -> None:
    text = source_text("alerts.tsx")
    named = set(re.findall(r'"(NovaLite\w+)"', text))
    assert named
    rules = (ROOT / "etc/prometheus/rules.yml").read_text()
    assert named - set(re.findall(r"alert: (\w+)", rules)) == set()


def test_every_text_of_the_page_is_in_the_catalogue() -> None:
    catalogue = re.sub(r'":\s+"', '": "', (SOURCES / "src/chinese.ts").read_text())
    own, _, foreign = catalogue.partition("// Words of the APIs")
    keys = re.findall(r'"((?:[^"\\]|\\.)*)": "', own)
    assert len(keys) == len(set(keys))
    text = source_text()
    used = set(re.findall(r'\bt\("((?:[^"\\]|\\.)+)"\)', text))
    # The key of a text with a number is its plural.
    used |= set(re.findall(r'"\{n\}[^"]+", "(\{n\}[^"]+)"\)', text))
    assert len(used) > 400
    assert used - set(keys) - set(re.findall(r'"([^"]+)": "', foreign)) == set()
    # Errors of the page itself are translated where they are shown.
    thrown = set(re.findall(r'(?:ApiError|Error)\("([^"]+)"', text))
    assert set(keys) - used - thrown == set()


def test_page_makes_no_html_of_text() -> None:
    text = source_text()
    for name in ("dangerouslySetInnerHTML", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert name not in text
    index = (SOURCES / "src/index.html").read_text()
    assert "http" not in index
    assert json.loads((SOURCES / "package-lock.json").read_text())["lockfileVersion"] >= 3
