"""Log-ins of keystoneauth's plug-ins by a real OpenID Connect provider. Run by devstack/test-oidc.sh."""

from __future__ import annotations

import contextlib
import html
import logging
import os
import re
import subprocess
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import webob
from keystoneauth1 import exceptions as errors
from keystoneauth1.identity import v3
from keystoneauth1.identity.v3.oidc import OidcDeviceAuthorization
from keystoneauth1.session import Session

from nova_lite.api.identity import passwords
from tests.support.http_site import HttpSite
from tests.support.identity_api import PASSWORDS, World
from tests.support.ports import free_port

CALLBACK = "http://127.0.0.1:1/callback"
PAGE_CALLBACK = "http://127.0.0.1:1/login/callback"
RULES = [
    {
        "remote": [{"type": "OIDC-sub"}, {"type": "OIDC-email"}, {"type": "HTTP_OIDC_ISS"}],
        "local": [{"user": {"id": "{0}", "name": "{1}"}}],
    },
    {
        "remote": [{"type": "OIDC-groups", "whitelist": ["makers"]}],
        "local": [{"groups": "{0}", "domain": {"id": "default"}}],
    },
]


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """Run the provider, and return its issuer."""
    modules = Path(os.environ["NOVA_LITE_OIDC_PROVIDER"])
    port = free_port()
    process = subprocess.Popen(
        ["node", str(modules / "provider.mjs"), str(port)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, provider: str) -> World:
    """Return a cloud with the provider's users in the project demo."""
    path = tmp_path_factory.mktemp("oidc")
    secret = path / "secret"
    secret.write_text("secret\n")
    secret.chmod(0o600)
    options = {
        "issuers": provider,
        "audiences": "cloud, opaque",
        "introspection_client_id": "opaque",
        "introspection_secret_file": secret,
        "page_client_id": "cloud",
        "page_client_secret_file": secret,
    }
    lines = "".join(f"{name} = {value}\n" for name, value in options.items())
    hashes = {name: passwords.hashed(password) for name, password in PASSWORDS.items()}
    world = World(path, hashes, f"auth_strategy = standalone\n[oidc]\n{lines}")
    admin = world.token("admin")

    def made(method: str, url: str, body: Any = None) -> Any:
        response = world(method, url, body, admin)
        assert response.status_code < 300, response.text
        return response.json if response.body else None

    root = "/v3/OS-FEDERATION"
    made("PUT", f"{root}/mappings/corp", {"mapping": {"rules": RULES}})
    body = {"identity_provider": {"enabled": True, "remote_ids": [provider]}}
    made("PUT", f"{root}/identity_providers/corp", body)
    made("PUT", f"{root}/identity_providers/corp/protocols/openid", {"protocol": {"mapping_id": "corp"}})
    group = made("POST", "/v3/groups", {"group": {"name": "makers"}})["group"]["id"]
    member = next(role["id"] for role in made("GET", "/v3/roles")["roles"] if role["name"] == "member")
    made("PUT", f"/v3/projects/{world.demo.id}/groups/{group}/roles/{member}")
    return world


@pytest.fixture(scope="module")
def auth_url(world: World) -> Iterator[str]:
    """Serve the identity API over HTTP."""
    site = HttpSite(world.app("identity"))
    yield "http://{}:{}/v3".format(*site.address)
    site.stop()


@pytest.fixture
def options(auth_url: str, provider: str) -> dict[str, Any]:
    return {
        "auth_url": auth_url,
        "identity_provider": "corp",
        "protocol": "openid",
        "client_id": "cloud",
        "client_secret": "secret",
        "discovery_endpoint": f"{provider}/.well-known/openid-configuration",
        "project_name": "demo",
        "project_domain_id": "default",
        "scope": "openid",
    }


class Browser:
    """The browser of a user. It logs in and agrees to whatever a page of the provider demands."""

    def __init__(self, user: str) -> None:
        self._user = user
        self._session = requests.Session()

    def visit(self, url: str) -> str:
        """Return the URL of the callback to which the provider leads, or the text of the last page."""
        response = self._session.get(url, allow_redirects=False)
        for _ in range(20):
            if response.is_redirect:
                target = urllib.parse.urljoin(response.url, response.headers["Location"])
                if target.startswith((CALLBACK, PAGE_CALLBACK)):
                    return target
                response = self._session.get(target, allow_redirects=False)
                continue
            assert response.status_code == 200, response.text
            form = re.search(r"<form(.*?)>(.*?)</form>", response.text, re.DOTALL)
            if form is None:
                return response.text
            response = self._submit(response.url, *form.groups())
        raise AssertionError("the provider leads nowhere")

    def _submit(self, url: str, attributes: str, inside: str) -> requests.Response:
        fields = {"login": self._user, "password": "any"}
        for field in re.findall(r"<input(.*?)>", inside, re.DOTALL):
            found = dict(re.findall(r'(\w+)="(.*?)"', field))
            if "value" in found:
                fields[found["name"]] = html.unescape(found["value"])
        action = dict(re.findall(r'(\w+)="(.*?)"', attributes)).get("action", "")
        target = urllib.parse.urljoin(url, html.unescape(action))
        return self._session.post(target, data=fields, allow_redirects=False)


def project_of(plugin: Any) -> tuple[str, set[str]]:
    """Return the name of the user, and the roles in the project."""
    session = Session(auth=plugin)
    access = plugin.get_access(session)
    assert session.get(f"{plugin.auth_url}/auth/catalog").status_code == 200
    assert access.project_name == "demo"
    return access.username, set(access.role_names)


def code_of(provider: str, user: str, client: str = "cloud") -> str:
    query = urllib.parse.urlencode(
        {"client_id": client, "response_type": "code", "scope": "openid", "redirect_uri": CALLBACK}
    )
    target = Browser(user).visit(f"{provider}/auth?{query}")
    return urllib.parse.parse_qs(urllib.parse.urlsplit(target).query)["code"][0]


def test_authorization_code_logs_in_once(provider: str, options: dict[str, Any]) -> None:
    code = code_of(provider, "alice")
    plugin = v3.OidcAuthorizationCode(**options, code=code, redirect_uri=CALLBACK)
    assert project_of(plugin) == ("alice@example.org", {"member", "reader"})
    again = v3.OidcAuthorizationCode(**options, code=code, redirect_uri=CALLBACK)
    with pytest.raises(errors.BadRequest):
        again.get_access(Session(auth=again))


def test_device_logs_in_after_its_user_agreed(options: dict[str, Any]) -> None:
    plugin = OidcDeviceAuthorization(**options)
    pages = []

    class User(logging.Handler):
        """Follows the link that the plug-in shows, before the plug-in looks for the token."""

        def emit(self, record: logging.LogRecord) -> None:
            if "please go to" in record.getMessage():
                pages.append(Browser("alice").visit(record.getMessage().rsplit(" ", 1)[1]))

    logger, handler = logging.getLogger("keystoneauth"), User()
    with contextlib.ExitStack() as stack:
        logger.addHandler(handler)
        stack.callback(logger.removeHandler, handler)
        assert project_of(plugin) == ("alice@example.org", {"member", "reader"})
    assert len(pages) == 1


def test_client_credentials_log_in(options: dict[str, Any]) -> None:
    assert project_of(v3.OidcClientCredentials(**options)) == ("cloud@example.org", {"member", "reader"})


def test_password_at_the_provider_logs_in(options: dict[str, Any]) -> None:
    plugin = v3.OidcPassword(**options, username="alice", password="alice's")
    assert project_of(plugin) == ("alice@example.org", {"member", "reader"})
    wrong = v3.OidcPassword(**options, username="alice", password="wrong")
    with pytest.raises(errors.BadRequest):
        wrong.get_access(Session(auth=wrong))


def test_token_that_is_no_jwt_logs_in(provider: str, options: dict[str, Any]) -> None:
    """The tokens of the client "opaque" are none, so the provider itself checks them."""
    options["client_id"] = "opaque"
    plugin = v3.OidcAuthorizationCode(**options, code=code_of(provider, "alice", "opaque"), redirect_uri=CALLBACK)
    assert project_of(plugin) == ("alice@example.org", {"member", "reader"})


def test_user_without_a_group_has_no_project(provider: str, options: dict[str, Any]) -> None:
    plugin = v3.OidcAuthorizationCode(**options, code=code_of(provider, "mallory"), redirect_uri=CALLBACK)
    with pytest.raises(errors.Unauthorized):
        plugin.get_access(Session(auth=plugin))


def test_web_page_logs_in_by_a_code_and_its_verifier(world: World) -> None:
    page = webob.Request.blank("/login", method="POST", base_url="http://127.0.0.1:1")
    page.headers["X-Nova-Lite-Page"] = "1"
    page.body = b'{"provider": "corp"}'
    begun = page.get_response(world.app("page"))
    assert begun.status_code == 200, begun.text
    cookie = begun.headers["Set-Cookie"].partition(";")[0]
    target = Browser("alice").visit(begun.json["url"])
    assert target.startswith(f"{PAGE_CALLBACK}?")
    back = webob.Request.blank(target.removeprefix("http://127.0.0.1:1"), base_url="http://127.0.0.1:1")
    back.headers["Cookie"] = cookie
    finished = back.get_response(world.app("page"))
    assert (finished.status_code, finished.location) == (303, "http://127.0.0.1:1/")
    session = next(item for item in finished.headers.getall("Set-Cookie") if item.startswith("nova_lite_session="))
    shown = webob.Request.blank("/session", headers={"X-Nova-Lite-Page": "1", "Cookie": session.partition(";")[0]})
    assert shown.get_response(world.app("page")).json["token"]["user"]["name"] == "alice@example.org"
