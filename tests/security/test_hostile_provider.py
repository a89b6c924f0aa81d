"""An OpenID Connect provider that was taken over in part, or an attacker in its place, and responses that come again.

Forged tokens are tried in tests/unit/api/federation/test_oidc.py.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import webob

from nova_lite.api.identity import passwords
from nova_lite.api.identity.oidc import MAX_KEYS, MAX_RESPONSE, OidcTokens, RefusedTokenError
from nova_lite.base import exceptions
from tests.support.api_client import make_conf
from tests.support.http_site import HttpSite
from tests.support.identity_api import PASSWORDS, World
from tests.support.issuer import AUDIENCE, Issuer
from tests.unit.api.page.conftest import PageClient

ROOT = "/v3/OS-FEDERATION"


class Redirecting(Issuer):
    """Issuer that sends each request for some of its paths to another server."""

    def __init__(self) -> None:
        self.redirected: dict[str, int] = {}
        self.elsewhere_requests: list[str] = []
        super().__init__()
        self.elsewhere = HttpSite(self._respond_elsewhere)

    def stop(self) -> None:
        super().stop()
        self.elsewhere.stop()

    def _respond(self, environ: dict[str, Any], start_response: Any) -> Any:
        status = self.redirected.get(environ["PATH_INFO"])
        if status is None:
            return super()._respond(environ, start_response)
        response = webob.Response(status=status)
        response.location = "http://{}:{}".format(*self.elsewhere.address) + environ["PATH_INFO"]
        return response(environ, start_response)

    def _respond_elsewhere(self, environ: dict[str, Any], start_response: Any) -> Any:
        """Respond as the issuer itself would."""
        self.elsewhere_requests.append(environ["PATH_INFO"])
        return super()._respond(environ, start_response)


@pytest.fixture
def issuer() -> Iterator[Redirecting]:
    made = Redirecting()
    yield made
    made.stop()


def tokens_of(path: Path, issuer: Issuer) -> OidcTokens:
    secret = path / "secret"
    secret.write_text("hidden")
    secret.chmod(0o600)
    lines = f"issuers = {issuer.url}\naudiences = {AUDIENCE}\npage_client_id = {AUDIENCE}\n"
    lines += f"introspection_client_id = nova\nintrospection_secret_file = {secret}\n"
    return OidcTokens(make_conf(path, f"[oidc]\n{lines}"))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/keys", "/token", "/introspect"])
def test_redirected_endpoint_leads_to_no_other_server(
    tmp_path: Path, issuer: Redirecting, path: str, status: int
) -> None:
    """A token endpoint elsewhere would get codes and the secret of the client, and keys would be another's."""
    issuer.redirected[path] = status
    tokens = tokens_of(tmp_path, issuer)
    issuer.codes["c1"] = {"access_token": issuer.token()}
    issuer.tokens["opaque"] = {"active": True, **issuer.claims()}
    with pytest.raises(exceptions.ServiceUnavailable):
        if path == "/introspect":
            tokens.claims([issuer.url], "opaque")
        elif path == "/token":
            tokens.exchange(issuer.url, "c1", "http://cloud/login/callback", "verifier")
        else:
            tokens.claims([issuer.url], issuer.token())
    assert issuer.elsewhere_requests == []
    issuer.redirected.clear()
    assert tokens_of(tmp_path, issuer).claims([issuer.url], issuer.token())["sub"] == "s-1"


def test_keys_beyond_the_largest_number_are_not_read(tmp_path: Path, issuer: Redirecting) -> None:
    known = issuer.keys[0]
    many = [{**known.as_dict(private=False), "kid": f"k{number}"} for number in range(MAX_KEYS)]
    issuer.raw = None
    issuer.keys = [*map(_Plain, many), known]
    with pytest.raises(RefusedTokenError, match="its key is none"):
        tokens_of(tmp_path, issuer).claims([issuer.url], issuer.token(key=known))
    issuer.keys = [*map(_Plain, many[1:]), known]
    assert tokens_of(tmp_path, issuer).claims([issuer.url], issuer.token(key=known))["sub"] == "s-1"


class _Plain:
    """Published key of which only the public form is there."""

    def __init__(self, content: dict[str, Any]) -> None:
        self._content = content

    def as_dict(self, private: bool) -> dict[str, Any]:
        assert not private
        return self._content


def test_huge_list_of_keys_is_given_up(tmp_path: Path, issuer: Redirecting) -> None:
    tokens = tokens_of(tmp_path, issuer)
    tokens.provider(issuer.url).url("jwks_uri")  # type: ignore[union-attr]
    key = issuer.keys[0].as_dict(private=False)
    issuer.keys = [_Plain({**key, "x": "x" * MAX_RESPONSE}), issuer.keys[0]]
    with pytest.raises(exceptions.ServiceUnavailable):
        tokens.claims([issuer.url], issuer.token(key=issuer.keys[1]))


# --- responses to log-ins of the page


@pytest.fixture
def page(tmp_path: Path, issuer: Redirecting) -> PageClient:
    lines = f"issuers = {issuer.url}\naudiences = {AUDIENCE}\npage_client_id = {AUDIENCE}\n"
    hashes = {name: passwords.hashed(password) for name, password in PASSWORDS.items()}
    world = World(tmp_path, hashes, f"auth_strategy = standalone\n[oidc]\n{lines}")
    admin, rule = world.token("admin"), {"local": [{"user": {"name": "{0}"}}], "remote": [{"type": "OIDC-sub"}]}
    provider = f"{ROOT}/identity_providers/corp"
    for url, body in (
        (f"{ROOT}/mappings/corp", {"mapping": {"rules": [rule]}}),
        (provider, {"identity_provider": {"enabled": True, "remote_ids": [issuer.url]}}),
        (f"{provider}/protocols/openid", {"protocol": {"mapping_id": "corp"}}),
    ):
        assert world("PUT", url, body, admin).status_code == 201
    return PageClient(world)


def begin(page: PageClient) -> tuple[str, str]:
    """Begin a log-in. Return its state and the browser's cookie."""
    response = page("POST", "/login", {"provider": "corp"})
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(response.json["url"]).query)
    return query["state"][0], response.headers["Set-Cookie"].partition(";")[0]


def come_back(page: PageClient, cookie: str, **query: str) -> webob.Response:
    page.cookie = cookie
    path = f"/login/callback?{urllib.parse.urlencode(query)}"
    return page("GET", path, marked=False, Sec_Fetch_Site="cross-site")


def has_session(response: webob.Response) -> bool:
    return any(item.startswith("nova_lite_session=") for item in response.headers.getall("Set-Cookie"))


def test_response_that_comes_again_logs_nobody_in(page: PageClient, issuer: Redirecting) -> None:
    """An attacker has read the address with code and state, and even the browser's cookie."""
    state, cookie = begin(page)
    issuer.codes["c1"] = {"access_token": issuer.token()}
    assert has_session(come_back(page, cookie, code="c1", state=state))
    assert not has_session(come_back(page, cookie, code="c1", state=state))
    assert not has_session(come_back(page, "", code="c1", state=state))


def test_state_of_another_browser_logs_nobody_in(page: PageClient, issuer: Redirecting) -> None:
    """An attacker has begun a log-in, and leads the victim's browser to its end: the victim would use the attacker's
    account."""
    theirs, _ = begin(page)
    _, own = begin(page)
    issuer.codes["c1"] = {"access_token": issuer.token()}
    assert not has_session(come_back(page, own, code="c1", state=theirs))
    assert "c1" in issuer.codes, "the code reached the provider"
    assert json.dumps(issuer.exchanges) == "[]"


def test_verifier_of_a_log_in_is_its_own(page: PageClient, issuer: Redirecting) -> None:
    """A provider refuses a code that was made for another verifier."""
    for code in ("c1", "c2"):
        state, cookie = begin(page)
        issuer.codes[code] = {"access_token": issuer.token()}
        come_back(page, cookie, code=code, state=state)
    first, second = (exchange["code_verifier"] for exchange in issuer.exchanges)
    assert first != second and len(first) >= 43
