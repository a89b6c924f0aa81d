"""Console URLs, by actions and by remote-consoles, and console tokens."""

from __future__ import annotations

import re
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.console import tokens
from tests.support.api_client import ADMIN, STRANGER, Client, fault

NOVNC = r"http://proxy:6080/vnc_auto\.html\?path=%3Ftoken%3D([\w-]{43})"
SERIAL = r"ws://proxy:6083/\?token=([\w-]{43})"
SPICE = r"http://proxy:6082/spice_auto\.html\?path=%3Ftoken%3D([\w-]{43})"


def ask(api: Client, uuid: str, protocol: str, console_type: str, version: str = "2.6", **options: Any) -> Any:
    body = {"remote_console": {"protocol": protocol, "type": console_type}}
    return api("POST", f"/servers/{uuid}/remote-consoles", body, version=version, **options)


@pytest.mark.parametrize(
    ("protocol", "console_type", "url"),
    [("vnc", "novnc", NOVNC), ("serial", "serial", SERIAL), ("spice", "spice-html5", SPICE)],
)
@pytest.mark.parametrize("version", ["2.6", "2.8", "2.99", "2.104"])
def test_remote_console_returns_a_url(api: Client, protocol: str, console_type: str, url: str, version: str) -> None:
    instance = api.conductor.add()
    response = ask(api, instance.uuid, protocol, console_type, version)
    assert response.status_code == 200
    console = response.json["remote_console"]
    assert (console["protocol"], console["type"], len(console)) == (protocol, console_type, 3)
    match = re.fullmatch(url, console["url"])
    assert match is not None
    assert api.compute.calls == [(f"get_{protocol}_console", ("compute1", instance.uuid, console_type))]
    message = api.last_call("console_token_create")
    assert message[:3] == (instance.uuid, "compute1", tokens.digest(match[1]))
    assert match[1] not in repr(api.conductor.calls)


@pytest.mark.parametrize(
    ("action", "console_type", "url"),
    [
        ("os-getVNCConsole", "novnc", NOVNC),
        ("os-getSerialConsole", "serial", SERIAL),
        ("os-getSPICEConsole", "spice-html5", SPICE),
    ],
)
def test_console_action_before_2_6_returns_a_url(api: Client, action: str, console_type: str, url: str) -> None:
    instance = api.conductor.add()
    path = f"/servers/{instance.uuid}/action"
    console = api.json("POST", path, {action: {"type": console_type}}, version="2.5")["console"]
    assert console["type"] == console_type and len(console) == 2 and re.fullmatch(url, console["url"])
    fault(api("POST", path, {action: {"type": console_type}}, version="2.6"), "itemNotFound", 404)


def test_console_urls_have_different_tokens(api: Client) -> None:
    instance = api.conductor.add()
    urls = {ask(api, instance.uuid, "vnc", "novnc").json["remote_console"]["url"] for _ in range(3)}
    assert len(urls) == 3


def test_console_type_without_driver_support_is_refused(api: Client) -> None:
    instance = api.conductor.add()
    message = fault(ask(api, instance.uuid, "rdp", "rdp-html5"), "badRequest", 400)
    assert message == "Unavailable console type rdp-html5."
    message = fault(ask(api, instance.uuid, "mks", "webmks", "2.8"), "badRequest", 400)
    assert message == "Unavailable console type webmks."
    fault(api("POST", f"/servers/{instance.uuid}/action", {"os-getRDPConsole": {}}), "computeFault", 410)
    assert api.compute.calls == [] and api.conductor.tokens == {}


@pytest.mark.parametrize(
    ("protocol", "console_type", "last_without"),
    [("mks", "webmks", "2.7"), ("spice", "spice-direct", "2.98"), ("nosuch", "novnc", "2.104"), ("vnc", "", "2.104")],
)
def test_console_types_depend_on_the_version(api: Client, protocol: str, console_type: str, last_without: str) -> None:
    instance = api.conductor.add()
    message = fault(ask(api, instance.uuid, protocol, console_type, last_without), "badRequest", 400)
    assert message.startswith("Invalid input for field/attribute")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"remote_console": {}},
        {"remote_console": {"protocol": "vnc"}},
        {"remote_console": {"type": "novnc"}},
        {"remote_console": {"protocol": "vnc", "type": "novnc", "more": 1}},
        {"remote_console": {"protocol": "vnc", "type": "novnc"}, "more": 1},
        {"remote_console": None},
    ],
)
def test_malformed_remote_console_is_refused(api: Client, body: Any) -> None:
    instance = api.conductor.add()
    fault(api("POST", f"/servers/{instance.uuid}/remote-consoles", body, version="2.6"), "badRequest", 400)


@pytest.mark.parametrize("body", [{}, {"type": "serial"}, {"type": None}, {"type": "novnc", "more": 1}, None])
def test_malformed_console_action_is_refused(api: Client, body: Any) -> None:
    instance = api.conductor.add()
    fault(api("POST", f"/servers/{instance.uuid}/action", {"os-getVNCConsole": body}), "badRequest", 400)


def test_console_of_another_project_is_404(api: Client) -> None:
    instance = api.conductor.add()
    fault(ask(api, instance.uuid, "vnc", "novnc", token=STRANGER), "itemNotFound", 404)
    fault(ask(api, instance.uuid, "spice", "spice-html5", token=STRANGER), "itemNotFound", 404)
    fault(ask(api, "nosuch", "vnc", "novnc"), "itemNotFound", 404)


@pytest.mark.parametrize(
    ("changes", "error", "name", "code"),
    [
        ({"host": None}, None, "conflictingRequest", 409),
        ({"host_status": "DOWN"}, None, "serviceUnavailable", 503),
        ({}, exceptions.MessagingUnavailable(what="x"), "serviceUnavailable", 503),
        ({}, exceptions.NotImplementedByDriver(operation="VNC consoles"), "notImplemented", 501),
        ({}, exceptions.DomainNotFound(instance_uuid="x"), "conflictingRequest", 409),
        ({}, exceptions.ConsoleTypeInvalid(console_type="xvpvnc"), "badRequest", 400),
        (
            {},
            exceptions.InstanceInvalidState(method="m", instance_id="x", attr="power state", state="shutdown"),
            "conflictingRequest",
            409,
        ),
    ],
)
def test_unavailable_console_is_an_error(
    api: Client, changes: dict[str, Any], error: Exception | None, name: str, code: int
) -> None:
    instance = api.conductor.add(**changes)
    api.compute.error = error
    fault(ask(api, instance.uuid, "vnc", "novnc"), name, code)
    assert api.conductor.tokens == {}


def test_console_token_shows_its_host_and_port(api: Client) -> None:
    instance = api.conductor.add()
    url = ask(api, instance.uuid, "vnc", "novnc").json["remote_console"]["url"]
    token = url.rpartition("%3D")[2]
    where = {"instance_uuid": instance.uuid, "host": "192.0.2.1", "port": 5907, "internal_access_path": None}
    path = f"/os-console-auth-tokens/{token}"
    assert api.json("GET", path, version="2.31", token=ADMIN) == {"console": where}
    assert api.json("GET", path, version="2.98", token=ADMIN) == {"console": where}
    assert api.json("GET", path, version="2.99", token=ADMIN) == {"console": {**where, "tls_port": None}}
    message = fault(api("GET", path, version="2.30", token=ADMIN), "unauthorized", 401)
    assert message == "The requested console type details are not accessible"
    assert fault(api("GET", path + "x", version="2.31", token=ADMIN), "itemNotFound", 404) == "Token not found"
    fault(api("GET", path, version="2.31"), "forbidden", 403)


def test_direct_spice_console_token_shows_its_tls_port(api: Client) -> None:
    """The proxy of another project asks with the token. A guest with TLS alone has no other port."""
    instance = api.conductor.add()
    url = ask(api, instance.uuid, "spice", "spice-direct", "2.99").json["remote_console"]["url"]
    token = url.rpartition("?token=")[2]
    shown = api.json("GET", f"/os-console-auth-tokens/{token}", version="2.99", token=ADMIN)["console"]
    assert (shown["host"], shown["port"], shown["tls_port"]) == ("192.0.2.1", None, 5908)
    older = api.json("GET", f"/os-console-auth-tokens/{token}", version="2.98", token=ADMIN)["console"]
    assert older["port"] is None and "tls_port" not in older
