"""Log-ins of the page by an OpenID Connect provider."""

from __future__ import annotations

import base64
import hashlib
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import webob

from nova_lite.base import exceptions
from tests.support import issuer as issuers
from tests.support.identity_api import World
from tests.support.issuer import AUDIENCE, Issuer
from tests.unit.api.page.conftest import PageClient

ROOT = "/v3/OS-FEDERATION"
RULES = [
    {"local": [{"user": {"id": "{0}", "name": "{1}"}}], "remote": [{"type": "OIDC-sub"}, {"type": "OIDC-email"}]},
]
CALLBACK = "http://cloud:8788/login/callback"


@pytest.fixture(scope="module")
def running() -> Iterator[Issuer]:
    yield from issuers.running()


@pytest.fixture
def issuer(running: Issuer) -> Issuer:
    running.exchanges.clear()
    running.codes.clear()
    running.raw = None
    return running


def world_of(path: Path, hashes: dict[str, str], issuer: Issuer, **options: Any) -> World:
    lines = {"issuers": issuer.url, "audiences": AUDIENCE, "page_client_id": AUDIENCE, **options}
    text = "".join(f"{name} = {value}\n" for name, value in lines.items())
    world = World(path, hashes, f"auth_strategy = standalone\n[oidc]\n{text}")
    admin = world.token("admin")
    for url, body in (
        (f"{ROOT}/mappings/corp", {"mapping": {"rules": RULES}}),
        (
            f"{ROOT}/identity_providers/corp",
            {"identity_provider": {"enabled": True, "remote_ids": [issuer.url], "description": "Corp"}},
        ),
        (f"{ROOT}/identity_providers/corp/protocols/openid", {"protocol": {"mapping_id": "corp"}}),
    ):
        assert world("PUT", url, body, admin).status_code == 201
    return world


@pytest.fixture
def page(tmp_path: Path, hashes: dict[str, str], issuer: Issuer) -> PageClient:
    return PageClient(world_of(tmp_path, hashes, issuer))


def begin(page: PageClient) -> dict[str, str]:
    """Begin a log-in, and return what the provider gets."""
    response = page("POST", "/login", {"provider": "corp"})
    assert response.status_code == 200, response.text
    cookie = response.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(response.json["url"]).query))


def come_back(page: PageClient, **query: str) -> webob.Response:
    """Return from the provider, whose site the browser comes from."""
    path = f"/login/callback?{urllib.parse.urlencode(query)}"
    return page("GET", path, marked=False, Sec_Fetch_Site="cross-site")


def cookies(response: webob.Response) -> dict[str, str]:
    found = (item.partition(";")[0].partition("=") for item in response.headers.getall("Set-Cookie"))
    return {name: value for name, _, value in found}


def test_user_logs_in_by_a_code_with_its_verifier(page: PageClient, issuer: Issuer) -> None:
    sent = begin(page)
    assert {key: sent[key] for key in ("tenant", "response_type", "client_id", "redirect_uri", "scope")} == {
        "tenant": "1",
        "response_type": "code",
        "client_id": AUDIENCE,
        "redirect_uri": CALLBACK,
        "scope": "openid",
    }
    issuer.codes["c1"] = {"access_token": issuer.token()}
    response = come_back(page, code="c1", state=sent["state"])
    assert (response.status_code, response.location) == (303, "http://cloud:8788/")
    exchange = issuer.exchanges[0]
    verifier = exchange.pop("code_verifier")
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    assert (challenge, sent["code_challenge_method"]) == (sent["code_challenge"], "S256")
    assert exchange == {
        "grant_type": "authorization_code",
        "code": "c1",
        "redirect_uri": CALLBACK,
        "client_id": AUDIENCE,
        "authorization": "",
    }
    found = cookies(response)
    assert found["nova_lite_login"] == ""
    page.cookie = f"nova_lite_session={found['nova_lite_session']}"
    assert page("GET", "/session").json["token"]["user"]["name"] == "a@b.org"
    assert issuer.token()[:40] not in response.text + str(response.headers)


def test_client_with_a_secret_shows_it_to_the_provider(tmp_path: Path, hashes: dict[str, str], issuer: Issuer) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hidden\n")
    secret.chmod(0o600)
    options = {"page_client_secret_file": secret, "page_token_type": "id_token", "page_scope": "openid email"}
    page = PageClient(world_of(tmp_path, hashes, issuer, **options))
    sent = begin(page)
    assert sent["scope"] == "openid email"
    issuer.codes["c1"] = {"access_token": "opaque", "id_token": issuer.token()}
    assert come_back(page, code="c1", state=sent["state"]).location == "http://cloud:8788/"
    expected = base64.b64encode(f"{AUDIENCE}:hidden".encode()).decode()
    assert issuer.exchanges[0]["authorization"] == f"Basic {expected}"


def test_secret_that_others_can_read_is_refused_at_start(
    tmp_path: Path, hashes: dict[str, str], issuer: Issuer
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hidden\n")
    secret.chmod(0o644)
    with pytest.raises(exceptions.ConfigurationError, match="page_client_secret_file"):
        world_of(tmp_path, hashes, issuer, page_client_secret_file=secret)


@pytest.mark.parametrize("state", ["", "another", "é"])
def test_response_of_a_log_in_that_this_browser_did_not_begin_is_refused(
    page: PageClient, issuer: Issuer, state: str
) -> None:
    """Otherwise another site could log a user in as another user."""
    begin(page)
    response = come_back(page, code="c1", state=state)
    assert response.location == "http://cloud:8788/#/?login=late"
    assert "nova_lite_session" not in cookies(response)
    assert issuer.exchanges == []
    page.cookie = ""
    assert come_back(page, code="c1", state=state).location == "http://cloud:8788/#/?login=late"


@pytest.mark.parametrize("cookie", ["x", "bnVsbA==", "WzEsMiwzXQ==", "W10=", "\x80"])
def test_malformed_cookie_of_a_log_in_is_ignored(page: PageClient, cookie: str) -> None:
    page.cookie = f"nova_lite_login={cookie}"
    assert come_back(page, code="c1", state="s").location == "http://cloud:8788/#/?login=late"


def test_log_in_that_the_provider_refuses_leads_back_with_the_outcome(page: PageClient, issuer: Issuer) -> None:
    state = begin(page)["state"]
    assert come_back(page, error="access_denied", state=state).location.endswith("#/?login=refused")
    state = begin(page)["state"]
    assert come_back(page, code="unknown", state=state).location.endswith("#/?login=refused")
    state = begin(page)["state"]
    issuer.codes["c1"] = {"access_token": issuer.token(aud="another")}
    assert come_back(page, code="c1", state=state).location.endswith("#/?login=refused")
    state = begin(page)["state"]
    issuer.codes["c1"], issuer.raw = {}, b"no JSON"
    assert come_back(page, code="c1", state=state).location.endswith("#/?login=away")


def test_providers_are_offered_before_the_log_in_if_they_can_be_used(
    page: PageClient, tmp_path_factory: pytest.TempPathFactory, hashes: dict[str, str], issuer: Issuer
) -> None:
    assert page("GET", "/login").json == {"providers": [{"id": "corp", "name": "Corp"}]}
    assert page("GET", "/login", marked=False).status_code == 403
    assert page("POST", "/login", {"provider": "corp"}, Origin="http://evil.example").status_code == 403
    for body in ({"provider": "other"}, {}, [], b"{", {"provider": ["corp"]}):
        assert page("POST", "/login", body).status_code == 404
    assert page("POST", "/login", b" " * 5000).status_code == 400
    assert page("PUT", "/login").status_code == 405
    admin = page.world.token("admin")
    change = {"identity_provider": {"enabled": False}}
    assert page.world("PATCH", f"{ROOT}/identity_providers/corp", change, admin).status_code == 200
    assert page("GET", "/login").json == {"providers": []}
    without = PageClient(world_of(tmp_path_factory.mktemp("w"), hashes, issuer, page_client_id=""))
    assert without("GET", "/login").json == {"providers": []}


def test_cloud_without_providers_offers_none(tmp_path: Path, hashes: dict[str, str]) -> None:
    page = PageClient(World(tmp_path, hashes, "auth_strategy = standalone\n"))
    assert page("GET", "/login").json == {"providers": []}
    assert page("POST", "/login", {"provider": "corp"}).status_code == 404
