"""``auth_strategy = keystone``: the validated identity becomes the context, and refusals are faults."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
import webob
from keystoneauth1 import exceptions as keystone_errors
from keystonemiddleware import auth_token

from nova_lite.api.http import deploy, wsgi
from nova_lite.api.middleware.keystone import KeystoneContext
from nova_lite.base import exceptions
from nova_lite.compute.api import API
from nova_lite.policies.enforcer import Policy
from tests.support.api_client import make_conf

VALIDATED = {
    "X-Identity-Status": "Confirmed",
    "X-User-Id": "u1",
    "X-User-Name": "alice",
    "X-User-Domain-Id": "d1",
    "X-Project-Id": "p1",
    "X-Project-Name": "research",
    "X-Project-Domain-Id": "d2",
    "X-Roles": "member,reader",
}


def show(environ: dict[str, Any], start_response: Any) -> Any:
    context = environ[wsgi.CONTEXT]
    names = ("user_id", "user_domain_id", "project_id", "project_domain_id", "roles", "is_admin", "request_id")
    return webob.Response(json_body={name: getattr(context, name) for name in names})(environ, start_response)


def ask(app: deploy.App, headers: dict[str, str]) -> webob.Response:
    environ = {"openstack.request_id": "req-1"}
    return webob.Request.blank("/v2.1/servers", headers=headers, environ=environ).get_response(app)


def context_app(tmp_path: Path) -> deploy.App:
    return KeystoneContext(show, Policy(make_conf(tmp_path)))


def test_context_has_the_validated_identity(tmp_path: Path) -> None:
    assert ask(context_app(tmp_path), VALIDATED).json == {
        "user_id": "u1",
        "user_domain_id": "d1",
        "project_id": "p1",
        "project_domain_id": "d2",
        "roles": ["member", "reader"],
        "is_admin": False,
        "request_id": "req-1",
    }


def test_admin_status_is_decided_by_policy(tmp_path: Path) -> None:
    assert ask(context_app(tmp_path), VALIDATED | {"X-Roles": "admin,member"}).json["is_admin"] is True


def test_token_without_project_is_403(tmp_path: Path) -> None:
    headers = {name: value for name, value in VALIDATED.items() if not name.startswith("X-Project")}
    response = ask(context_app(tmp_path), headers)
    assert (response.status_code, response.json["forbidden"]["code"]) == (403, 403)


@pytest.mark.parametrize("status", [None, "Invalid"])
def test_unvalidated_request_is_401(tmp_path: Path, status: str | None) -> None:
    headers = {name: value for name, value in VALIDATED.items() if name != "X-Identity-Status"}
    response = ask(context_app(tmp_path), headers | ({"X-Identity-Status": status} if status else {}))
    assert (response.status_code, response.json["error"]["code"]) == (401, 401)


@pytest.fixture
def keystone_is_away(tmp_path: Path) -> deploy.App:
    """Return the pipeline with a Keystone address at which no server listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    text = f"""auth_strategy = keystone
[keystone_authtoken]
www_authenticate_uri = http://keystone.example/v3
auth_type = password
auth_url = {url}
username = nova-lite
password = secret
project_name = service
user_domain_id = default
project_domain_id = default
http_request_max_retries = 0
"""
    conf = make_conf(tmp_path, text)
    return deploy.load_app("osapi_compute", wsgi.ApiServices(conf, Policy(conf), API()))


def test_unavailable_keystone_is_503(keystone_is_away: deploy.App) -> None:
    response = ask(keystone_is_away, {"X-Auth-Token": "a" * 32})
    assert response.status_code == 503
    fault = json.loads(response.body)["serviceUnavailable"]
    assert (fault["code"], fault["message"].split(".")[0]) == (
        503,
        "The identity service is unavailable for the moment",
    )


def test_catalog_without_keystone_endpoint_is_503(
    keystone_is_away: deploy.App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fetch_token(*arguments: object, **options: object) -> None:
        raise keystone_errors.EndpointNotFound("internal endpoint for identity service not found")

    monkeypatch.setattr(auth_token.AuthProtocol, "fetch_token", fetch_token)
    response = ask(keystone_is_away, {"X-Auth-Token": "a" * 32})
    assert json.loads(response.body)["serviceUnavailable"]["code"] == 503
    assert "Keystone cannot validate tokens: internal endpoint" in caplog.text


@pytest.mark.parametrize("headers", [{}, VALIDATED])
def test_request_without_token_is_401_despite_identity_headers(
    keystone_is_away: deploy.App, headers: dict[str, str]
) -> None:
    response = ask(keystone_is_away, headers)
    assert response.status_code == 401
    assert response.json["error"]["message"] == "The request you have made requires authentication."
    assert response.headers["WWW-Authenticate"].startswith('Keystone uri="http://keystone.example')


def test_built_in_identity_api_is_refused_with_keystone(tmp_path: Path) -> None:
    conf = make_conf(tmp_path, "auth_strategy = keystone\n")
    with pytest.raises(
        exceptions.ConfigurationError, match="keystone: the paste file defines only http_basic, standalone"
    ):
        deploy.load_app("identity", wsgi.ApiServices(conf, Policy(conf), API()))
