"""Interfaces of servers in the compute API: calls of the conductor, and refused requests."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.timing import ApiTiming
from nova_lite.compute import api as compute_api
from nova_lite.objects import ActionCommand
from tests.support.api_client import STRANGER, Client, fault, make_client
from tests.support.control_plane import NETWORK_ID

PORT, VOLUME = "cccccccc-0000-4000-8000-000000000001", "aaaaaaaa-0000-4000-8000-000000000001"


@pytest.fixture
def server(api: Client) -> str:
    return server_of(api)


def server_of(api: Client, *errors: Exception) -> str:
    """Have the conductor return a server with another port for any request, after these errors."""
    accept, left = api.conductor.own_answer("accept_action"), list(errors)

    def accepted(context: Any, server_id: str, kind: str, payload: dict[str, Any]) -> ActionCommand:
        if left:
            raise left.pop(0)
        command = accept(context, server_id, kind, payload)
        port = msgspec.structs.replace(command.instance.vifs[0], id=PORT, state="attaching", tag="t")
        instance = msgspec.structs.replace(command.instance, vifs=[*command.instance.vifs, port])
        return msgspec.structs.replace(command, instance=instance, payload={"port_id": PORT})

    api.conductor.script("accept_action", accepted)
    return api.conductor.add().uuid


def attach(api: Client, server: str, version: str | None = None, **attachment: Any) -> Any:
    return api("POST", f"/servers/{server}/os-interface", {"interfaceAttachment": attachment}, version=version)


@pytest.mark.parametrize(
    ("version", "attachment", "request_"),
    [
        ("2.1", {}, {}),
        ("2.1", {"net_id": NETWORK_ID}, {"network_id": NETWORK_ID}),
        (
            "2.49",
            {"net_id": NETWORK_ID, "fixed_ips": [{"ip_address": "10.0.0.9"}], "tag": "t"},
            {"network_id": NETWORK_ID, "fixed_ip": "10.0.0.9", "tag": "t"},
        ),
    ],
)
def test_interface_is_attached(
    api: Client, server: str, version: str, attachment: dict[str, Any], request_: dict[str, Any]
) -> None:
    response = attach(api, server, version, **attachment)
    assert response.status_code == 200, response.text
    shown = response.json["interfaceAttachment"]
    assert (shown["port_id"], shown["port_state"], "tag" in shown) == (PORT, "BUILD", False)
    server_id, kind, payload = api.last_call("accept_action")
    assert (server_id, kind) == (server, "attach_interface")
    assert {name: value for name, value in payload["request"].items() if value is not None} == request_ | {
        "vnic_type": "normal"
    }
    assert attach(api, server, "2.70").json["interfaceAttachment"]["tag"] == "t"


@pytest.mark.parametrize(
    ("version", "attachment", "code"),
    [
        ("2.48", {"tag": "t"}, 400),
        ("2.49", {"tag": "a,b"}, 400),
        (None, {"net_id": "x"}, 400),
        (None, {"net_id": NETWORK_ID, "port_id": PORT}, 400),
        (None, {"fixed_ips": [{"ip_address": "10.0.0.9"}]}, 400),
        (None, {"net_id": NETWORK_ID, "fixed_ips": [{"ip_address": "x"}]}, 400),
        (None, {"net_id": NETWORK_ID, "fixed_ips": []}, 400),
        (None, {"other": 1}, 400),
    ],
)
def test_malformed_attach_is_refused(
    api: Client, server: str, version: str | None, attachment: dict[str, Any], code: int
) -> None:
    fault(attach(api, server, version, **attachment), "badRequest", code)


@pytest.mark.parametrize(
    ("error", "name", "code"),
    [
        (exceptions.PortUnavailable(port_id=PORT), "itemNotFound", 404),
        (exceptions.PortInUse(port_id=PORT), "conflictingRequest", 409),
        (exceptions.NetworkUnavailable(network_id="n"), "itemNotFound", 404),
        (exceptions.PortUnavailable(port_id=PORT), "itemNotFound", 404),
        (exceptions.FixedIpInUse(address="10.0.0.9", network_id="n"), "conflictingRequest", 409),
        (exceptions.FixedIpInvalid(address="10.0.0.9", network_id="n"), "badRequest", 400),
        (exceptions.NoMoreFixedIps(network_id="n"), "badRequest", 400),
    ],
)
def test_attach_refused_by_the_conductor_is_an_error(
    api: Client, server: str, error: Exception, name: str, code: int
) -> None:
    api.conductor.error = error
    fault(attach(api, server, net_id=NETWORK_ID), name, code)


def test_interface_is_detached(api: Client, server: str) -> None:
    assert api("DELETE", f"/servers/{server}/os-interface/{PORT}").status_code == 202
    assert api.last_call("accept_action") == (server, "detach_interface", {"port_id": PORT})
    api.conductor.error = exceptions.PortNotFound(port_id=PORT, instance_id=server)
    fault(api("DELETE", f"/servers/{server}/os-interface/{PORT}"), "itemNotFound", 404)


def test_interfaces_of_another_project_are_404(api: Client, server: str) -> None:
    path = f"/servers/{server}/os-interface"
    fault(api("POST", path, {"interfaceAttachment": {}}, token=STRANGER), "itemNotFound", 404)
    fault(api("DELETE", f"{path}/{PORT}", token=STRANGER), "itemNotFound", 404)


@pytest.mark.parametrize(
    "state", ["attaching_interface", "detaching_interface", "attaching_volume", "detaching_volume"]
)
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "os-interface", {"interfaceAttachment": {}}),
        ("DELETE", f"os-interface/{PORT}", None),
        ("POST", "os-volume_attachments", {"volumeAttachment": {"volumeId": VOLUME}}),
        ("DELETE", f"os-volume_attachments/{VOLUME}", None),
    ],
)
def test_concurrent_changes_of_devices_wait_for_each_other(
    api: Client,
    conf: cfg.ConfigOpts,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    method: str,
    path: str,
    body: dict[str, Any] | None,
) -> None:
    """Clients attach several interfaces and volumes at once. A request that waits too long is a 409."""
    waits: list[float] = []
    busy = exceptions.InstanceInvalidState(method="m", instance_id="i", attr="task_state", state=state)
    mine, sleep = threading.get_ident(), compute_api.time.sleep
    # A thread that another test has left sleeps on.
    monkeypatch.setattr(
        compute_api.time, "sleep", lambda seconds: (waits.append if threading.get_ident() == mine else sleep)(seconds)
    )
    url = f"/servers/{server_of(api, busy, busy)}/{path}"
    assert api(method, url, body, version="2.101").status_code in (200, 202)
    assert len(waits) == 2
    waits.clear()

    api = make_client(conf, timing=ApiTiming(device_wait=0.0))
    url = f"/servers/{server_of(api, busy)}/{path}"
    fault(api(method, url, body, version="2.101"), "conflictingRequest", 409)
    assert waits == []


def test_change_of_a_device_does_not_wait_for_another_task(api: Client) -> None:
    busy = exceptions.InstanceInvalidState(method="m", instance_id="i", attr="task_state", state="rebuilding")
    path = f"/servers/{server_of(api, busy)}/os-volume_attachments"
    fault(api("POST", path, {"volumeAttachment": {"volumeId": VOLUME}}), "conflictingRequest", 409)
