"""The server action evacuate, by version."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.base import exceptions
from tests.support.api_client import ADMIN, Client, fault

OLD = {"onSharedStorage": False}


def evacuate(api: Client, body: Any, version: str, token: str = ADMIN) -> Any:
    instance = api.conductor.add()
    return api("POST", f"/servers/{instance.uuid}/action", {"evacuate": body}, version=version, token=token)


@pytest.mark.parametrize(
    ("version", "body", "host", "forced", "stopped", "answers_password"),
    [
        ("2.1", {**OLD, "host": "h2", "adminPass": "x"}, "h2", True, False, True),
        ("2.13", {**OLD, "adminPass": "x"}, None, True, False, True),
        ("2.14", {"adminPass": "x"}, None, True, False, False),
        ("2.29", {"adminPass": "x", "host": "h2", "force": True}, "h2", True, False, False),
        ("2.29", {"adminPass": "x", "host": "h2"}, "h2", False, False, False),
        ("2.68", {"adminPass": "x", "host": "h2"}, "h2", False, False, False),
        ("2.95", {"adminPass": "x"}, None, False, True, False),
    ],
)
def test_evacuate_is_accepted(
    api: Client, version: str, body: Any, host: str | None, forced: bool, stopped: bool, answers_password: bool
) -> None:
    response = evacuate(api, body, version)
    assert response.status_code == 200
    uuid, kind, payload = api.last_call("accept_action")
    assert (kind, payload) == ("evacuate", {"host": host, "forced": forced, "admin_password": "x", "stopped": stopped})
    assert api.last_call("build_instances") == ([uuid],)
    assert api.compute.calls == []
    if answers_password:
        assert response.json == {"adminPass": "x"}
    else:
        assert response.body == b""


def test_evacuate_without_password_generates_one(api: Client) -> None:
    answered = evacuate(api, OLD, "2.1").json["adminPass"]
    assert len(answered) == 12
    assert api.last_call("accept_action")[2]["admin_password"] == answered


@pytest.mark.parametrize(
    ("version", "body"),
    [
        ("2.1", {}),
        ("2.1", {"onSharedStorage": True}),
        ("2.13", {**OLD, "force": True}),
        ("2.14", OLD),
        ("2.28", {"force": True}),
        ("2.29", {"force": "perhaps"}),
        ("2.68", {"force": True}),
        ("2.68", {"host": ""}),
        ("2.68", {"host": "a b"}),
        ("2.68", {"adminPass": 1}),
        ("2.68", None),
    ],
)
def test_malformed_evacuate_is_refused(api: Client, version: str, body: Any) -> None:
    fault(evacuate(api, body, version), "badRequest", 400)
    assert api.compute.calls == []


def test_evacuate_is_for_admins_only(api: Client) -> None:
    assert evacuate(api, {}, "2.14", token="alice:demo").status_code == 403


@pytest.mark.parametrize(
    ("error", "name", "code"),
    [
        (exceptions.HostNotForcedDown(host="h1"), "badRequest", 400),
        (exceptions.EvacuateToSameHost(host="h1"), "badRequest", 400),
        (exceptions.ComputeHostNotFound(host="h9"), "itemNotFound", 404),
        (
            exceptions.InstanceInvalidState(method="evacuate", instance_id="i", attr="vm_state", state="building"),
            "conflictingRequest",
            409,
        ),
    ],
)
def test_evacuate_refused_by_the_conductor_is_an_error(api: Client, error: Exception, name: str, code: int) -> None:
    api.conductor.error = error
    fault(evacuate(api, {}, "2.14"), name, code)
