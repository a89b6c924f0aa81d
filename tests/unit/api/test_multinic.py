"""``addFixedIp`` and ``removeFixedIp``, until 2.43."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.objects import ActionCommand
from tests.support.api_client import STRANGER, Client, fault
from tests.support.control_plane import NETWORK_ID


def act(api: Client, body: Any, version: str = "2.43", **more: Any) -> Any:
    instance = api.conductor.add()
    return api("POST", f"/servers/{instance.uuid}/action", body, version=version, **more)


def test_added_address_comes_with_an_interface(api: Client) -> None:
    accept = api.conductor.own_answer("accept_action")

    def accepted(context: Any, server_id: str, kind: str, payload: dict[str, Any]) -> ActionCommand:
        command = accept(context, server_id, kind, payload)
        return msgspec.structs.replace(command, payload={"port_id": command.instance.vifs[0].id})

    api.conductor.script("accept_action", accepted)
    response = act(api, {"addFixedIp": {"networkId": NETWORK_ID}})
    assert (response.status_code, response.body) == (202, b"")
    _, kind, payload = api.last_call("accept_action")
    assert (kind, payload["request"]["network_id"]) == ("attach_interface", NETWORK_ID)


def test_removed_address_detaches_its_interface(api: Client) -> None:
    instance = api.conductor.add()
    vif = instance.vifs[0]
    path = f"/servers/{instance.uuid}/action"
    assert api("POST", path, {"removeFixedIp": {"address": vif.address}}, version="2.43").status_code == 202
    assert api.last_call("accept_action")[-2:] == ("detach_interface", {"port_id": vif.id})
    said = fault(api("POST", path, {"removeFixedIp": {"address": "192.0.2.9"}}, version="2.43"), "badRequest", 400)
    assert said == f"Instance {instance.uuid} does not have fixed IP '192.0.2.9'."


@pytest.mark.parametrize(
    "body",
    [
        {"addFixedIp": {}},
        {"addFixedIp": {"networkId": ""}},
        {"addFixedIp": {"networkId": "1", "more": 1}},
        {"removeFixedIp": {"address": "here"}},
        {"removeFixedIp": None},
    ],
)
def test_malformed_address_actions_are_refused(api: Client, body: Any) -> None:
    fault(act(api, body), "badRequest", 400)


@pytest.mark.parametrize("body", [{"addFixedIp": {"networkId": "1"}}, {"removeFixedIp": {"address": "10.0.0.1"}}])
def test_address_actions_end_with_2_43_and_other_projects_get_404(api: Client, body: Any) -> None:
    assert act(api, body, version="2.44").status_code in (400, 404)
    fault(act(api, body, token=STRANGER), "itemNotFound", 404)


@pytest.mark.parametrize(
    "error", [exceptions.NetworkUnavailable(network_id="n"), exceptions.NoMoreFixedIps(network_id="n")]
)
def test_network_without_free_address_is_400(api: Client, error: Exception) -> None:
    api.conductor.error = error
    fault(act(api, {"addFixedIp": {"networkId": "n"}}), "badRequest", 400)
