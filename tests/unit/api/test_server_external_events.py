"""External events of other services, and the code of each event."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from nova_lite.api.compute import server_external_events
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from tests.support.api_client import ADMIN, Client, fault

PATH = "/os-server-external-events"


def send(api: Client, *events: dict[str, Any], version: str = "2.93", token: str = ADMIN) -> Any:
    return api("POST", PATH, {"events": list(events)}, version=version, token=token)


def one(api: Client, event: dict[str, Any], **changes: Any) -> tuple[int, dict[str, Any]]:
    response = send(api, {"server_uuid": api.conductor.add(project_id="other", **changes).uuid, **event})
    return response.status_code, response.json["events"][0]


@pytest.mark.parametrize("name", server_external_events.NETWORK)
@pytest.mark.parametrize("status", ["completed", "failed", "in-progress"])
def test_network_events_reach_the_conductor(api: Client, name: str, status: str) -> None:
    code, event = one(api, {"name": name, "status": status, "tag": "port"})
    assert (code, event.pop("server_uuid") in api.conductor.instances) == (200, True)
    assert event == {"name": name, "status": status, "tag": "port", "code": 200}
    assert [method for method, _ in api.conductor.calls] == ["instance_list", "interfaces_event"]
    assert api.conductor.calls[1][1][1:] == (name, "port")
    assert api.compute.calls == []


@pytest.mark.parametrize(
    ("event", "changes", "code"),
    [
        ({"name": "volume-extended", "tag": "volume"}, {}, 422),
        ({"name": "volume-reimaged", "tag": "volume"}, {}, 422),
        ({"name": "accelerator-request-bound", "tag": "request"}, {}, 422),
        ({"name": "volume-extended"}, {}, 400),
        ({"name": "power-update"}, {}, 400),
        ({"name": "power-update", "tag": "POWER_UP"}, {}, 400),
        ({"name": "power-update", "tag": "POWER_ON"}, {"host": None}, 422),
        ({"name": "network-changed"}, {"host": None}, 422),
    ],
)
def test_unsupported_event_is_422(api: Client, event: dict[str, Any], changes: dict[str, Any], code: int) -> None:
    whole, answered = one(api, event, **changes)
    assert (whole, answered["code"], answered["status"]) == (207, code, "failed")
    assert api.compute.calls == []


@pytest.mark.parametrize(
    ("tag", "power_state", "task_state", "action"),
    [
        ("POWER_ON", 4, None, "start"),
        ("POWER_ON", 1, None, None),
        ("POWER_ON", 1, "powering-off", "start"),
        ("POWER_OFF", 1, None, "stop"),
        ("POWER_OFF", 4, None, None),
    ],
)
def test_power_event_starts_or_stops_the_server(
    api: Client, tag: str, power_state: int, task_state: str | None, action: str | None
) -> None:
    event = {"name": "power-update", "tag": tag}
    code, answered = one(api, event, power_state=power_state, task_state=task_state)
    assert (code, answered["code"], answered["status"]) == (200, 200, "completed")
    accepted = [arguments[1] for name, arguments in api.conductor.calls if name == "accept_action"]
    assert accepted == ([action] if action else [])
    assert len(api.compute.calls) == len(accepted)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (exceptions.InstanceInvalidState(method="start", instance_id="x", attr="vm_state", state="error"), 422),
        (exceptions.InstanceNotFound(instance_id="x"), 404),
    ],
)
def test_power_event_in_conflict_with_the_state_is_422(api: Client, error: Exception, code: int) -> None:
    api.conductor.script("accept_action", error)
    whole, answered = one(api, {"name": "power-update", "tag": "POWER_ON"}, power_state=4)
    assert (whole, answered["code"], answered["status"]) == (207, code, "failed")


def test_service_role_sees_servers_of_all_projects() -> None:
    asker = RequestContext(user_id="network", project_id="service", roles=["service"], overwrite=False)
    elevated = asker.elevated()
    assert (elevated.is_admin, elevated.user_id, elevated.request_id) == (True, "network", asker.request_id)
    assert not asker.is_admin


def test_events_of_unknown_servers_are_404(api: Client) -> None:
    unknown = {"name": "network-changed", "server_uuid": str(uuid.uuid4())}
    assert fault(send(api, unknown), "itemNotFound", 404) == "No instances found for any event"
    known = {"name": "network-changed", "server_uuid": api.conductor.add().uuid.upper()}
    response = send(api, unknown, known)
    assert (response.status_code, [event["code"] for event in response.json["events"]]) == (207, [404, 200])


@pytest.mark.parametrize(
    ("name", "since"),
    [("volume-extended", 51), ("power-update", 76), ("accelerator-request-bound", 82), ("volume-reimaged", 93)],
)
def test_event_names_depend_on_the_version(api: Client, name: str, since: int) -> None:
    event = {"name": name, "server_uuid": api.conductor.add().uuid}
    fault(send(api, event, version=f"2.{since - 1}"), "badRequest", 400)
    assert send(api, event, version=f"2.{since}").status_code == 207


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"events": []},
        {"events": [{}]},
        {"events": [{"name": "network-changed"}]},
        {"events": [{"name": "network-changed", "server_uuid": "x"}]},
        {"events": [{"name": "x", "server_uuid": str(uuid.uuid4())}]},
        {"events": [{"name": "network-changed", "server_uuid": str(uuid.uuid4()), "status": "done"}]},
        {"events": [{"name": "network-changed", "server_uuid": str(uuid.uuid4()), "more": 1}]},
    ],
)
def test_malformed_events_are_refused(api: Client, body: Any) -> None:
    fault(api("POST", PATH, body, token=ADMIN), "badRequest", 400)
    assert api.conductor.calls == []


def test_external_events_are_for_services_only(api: Client) -> None:
    fault(
        send(api, {"name": "network-changed", "server_uuid": str(uuid.uuid4())}, token="alice:demo"), "forbidden", 403
    )
