"""Filters of the pipelines, and the paste file."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from oslo_config import cfg

from nova_lite import conf as nova_conf
from nova_lite.api.http import deploy, wsgi
from nova_lite.api.middleware import auth
from nova_lite.base import exceptions, ip
from nova_lite.cmd.api import ADDRESSES
from nova_lite.compute.api import API
from nova_lite.policies.enforcer import Policy
from tests.support.api_client import ROOT, Client, fault, make_client, make_conf

# --- noauth2


@pytest.mark.parametrize(
    ("token", "user", "project", "is_admin"),
    [
        ("admin:demo", "admin", "demo", True),
        ("alice:demo", "alice", "demo", False),
        ("alice", "alice", "alice", False),
        ("admin", "admin", "admin", True),
        ("notused", "notused", "notused", False),
        ("alice:admin", "alice", "admin", False),
        ("a:b:c", "a", "b:c", False),
        ("Admin:demo", "Admin", "demo", False),
    ],
)
def test_noauth2_token_names_user_and_project(api: Client, token: str, user: str, project: str, is_admin: bool) -> None:
    assert api("GET", "/servers", token=token).status_code == 200
    context = api.conductor.contexts[-1]
    assert (context.user_id, context.project_id, context.is_admin) == (user, project, is_admin)
    assert ("admin" in context.roles) is is_admin


def test_noauth2_request_without_token_gets_one(api: Client) -> None:
    headers = {"X-Auth-User": "alice", "X-Auth-Project-Id": "demo"}
    response = api("GET", "/servers", token=None, headers=headers)
    assert (response.status_code, response.body) == (204, b"")
    assert response.headers["X-Auth-Token"] == "alice:demo"
    assert response.headers["X-Server-Management-Url"] == "http://cloud:8774/v2.1/demo"
    assert api.conductor.calls == []


#: Options of all addresses in ``[api]``, as they are registered.
LISTEN = [
    option.name
    for module in nova_conf.GROUPS
    for option in module.list_opts().get("api", ())
    if isinstance(option, cfg.HostAddressOpt)
]


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "cloud.example"])
@pytest.mark.parametrize("option", sorted({*LISTEN} - {"metadata_listen"}))
def test_noauth2_is_refused_on_the_network(tmp_path: Path, option: str, address: str) -> None:
    with pytest.raises(exceptions.ConfigurationError, match=rf"{option} = .* must be a loopback address"):
        make_client(make_conf(tmp_path, f"{option} = {address}\n"))


def test_noauth2_is_refused_on_the_network_for_a_new_api(tmp_path: Path) -> None:
    conf = make_conf(tmp_path)
    conf.register_opt(cfg.HostAddressOpt("object_listen", default="192.0.2.1"), group="api")
    with pytest.raises(exceptions.ConfigurationError, match=r"object_listen = 192\.0\.2\.1 is refused"):
        make_client(conf)


def test_noauth2_accepts_a_metadata_api_for_guests(tmp_path: Path) -> None:
    make_client(make_conf(tmp_path, "metadata_listen = 169.254.169.254\n"))


def test_noauth2_checks_the_address_of_every_api(tmp_path: Path) -> None:
    """Fail for a new option with another kind of name, which the filter would not find."""
    served = {address for name, (address, _) in ADDRESSES.items() if name != "metadata"}
    checked = set(auth.listen_options(make_conf(tmp_path)))
    assert checked == served == {*LISTEN} - {"metadata_listen"}


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_addresses_are_recognized(address: str) -> None:
    assert ip.is_loopback(address)


# --- paste


def load(conf, name: str = "osapi_compute") -> deploy.App:
    return deploy.load_app(name, wsgi.ApiServices(conf, Policy(conf), API()))


def test_unknown_auth_strategy_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(exceptions.ConfigurationError, match="defines only http_basic, keystone, noauth2, standalone"):
        load(make_conf(tmp_path, "auth_strategy = nonsense\n"))


def test_missing_or_broken_paste_file_is_a_configuration_error(tmp_path: Path) -> None:
    conf = make_conf(tmp_path)
    conf.set_override("paste_config", str(tmp_path / "nosuch.ini"), group="api")
    with pytest.raises(exceptions.ConfigurationError, match="the file does not exist"):
        load(conf)
    (tmp_path / "broken.ini").write_text("nonsense")
    conf.set_override("paste_config", str(tmp_path / "broken.ini"), group="api")
    with pytest.raises(exceptions.ConfigurationError, match=r"broken\.ini"):
        load(conf)


def test_unknown_application_is_a_lookup_error(tmp_path: Path) -> None:
    with pytest.raises(LookupError):
        load(make_conf(tmp_path), "nonsense")


def echo(environ, start_response):
    start_response("200 OK", [])
    return [f"{environ['SCRIPT_NAME']}|{environ['PATH_INFO']}".encode()]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", "|/"),
        ("", "|"),
        ("/other", "|/other"),
        ("/v2", "/v2|"),
        ("/v2/", "/v2|/"),
        ("/v2/x", "inside/v2|/x"),
        ("/v2x", "|/v2x"),
    ],
)
def test_urlmap_selects_the_longest_prefix(path: str, expected: str) -> None:
    def inside(environ, start_response):
        return [b"inside", *echo(environ, start_response)]

    app = deploy.UrlMap({"/": echo, "/v2": echo, "/v2/+": inside})
    response = app({"PATH_INFO": path, "SCRIPT_NAME": ""}, lambda status, headers, exc_info=None: None)
    assert b"".join(response).decode() == expected


def test_urlmap_of_whole_apis_leaves_their_path_to_them() -> None:
    """Access rules of application credentials name paths as at an address of the API's own."""
    paths = []

    def inside(environ, start_response):
        paths.append(environ[deploy.FULL_PATH])
        return [b""]

    app = deploy.UrlMap({"/compute": deploy.UrlMap({"/v2.1": inside})}, mounts=True)
    app({"PATH_INFO": "/compute/v2.1/servers", "SCRIPT_NAME": ""}, None)
    assert paths == ["/v2.1/servers"]


def test_paste_file_serves_v2_and_v21() -> None:
    text = (ROOT / "etc/nova-lite/api-paste.ini").read_text()
    for line in ("/ = versions", "/v2/+ = compute_legacy", "/v2.1/+ = compute"):
        assert line in text


# --- cors


def test_cors_allows_the_configured_origin(tmp_path: Path) -> None:
    origin = {"Origin": "https://front.example"}
    plain = make_client(make_conf(tmp_path))
    assert "Access-Control-Allow-Origin" not in plain("GET", "/flavors", headers=origin).headers
    shared = make_client(make_conf(tmp_path, "[cors]\nallowed_origin = https://front.example\n"))
    response = shared("GET", "/flavors", headers=origin)
    assert response.headers["Access-Control-Allow-Origin"] == "https://front.example"
    assert "OpenStack-API-Version" in response.headers["Access-Control-Expose-Headers"]
    stranger = shared("GET", "/flavors", headers={"Origin": "https://evil.example"})
    assert "Access-Control-Allow-Origin" not in stranger.headers


# --- faults and logs


def test_failing_filter_becomes_a_fault(api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(auth, "context_for", fail)
    response = api("GET", "/servers")
    assert "secret" not in fault(response, "computeFault", 500)
    assert response.headers["X-Compute-Request-Id"].startswith("req-")


def test_requests_are_logged_without_secrets(api: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        api("POST", "/servers?x=1", {"server": {"adminPass": "hunter2"}}, token="alice:tokensecret")
    (line,) = [record.getMessage() for record in caplog.records if record.name.endswith("request_id")]
    assert '"POST /v2.1/servers?x=1" 400' in line
    assert "hunter2" not in caplog.text


def test_path_cannot_forge_log_lines(api: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        api("GET", "/servers/x%0d%0aforged")
    (line,) = [record.getMessage() for record in caplog.records if record.name.endswith("request_id")]
    assert "\n" not in line
    assert "%0D%0Aforged" in line
