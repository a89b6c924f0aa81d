"""Soft deletes over the API."""

from __future__ import annotations

from typing import Any

import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from tests.support.api_client import ADMIN, Client


def payloads(api: Client) -> list[Any]:
    return [arguments[2] for method, arguments in api.conductor.calls if method == "accept_action"]


def delete(api: Client, conf: cfg.ConfigOpts, interval: int) -> Any:
    conf.set_override("reclaim_instance_interval", interval)
    return api("DELETE", f"/servers/{api.conductor.add().uuid}")


@pytest.mark.parametrize(("interval", "payload"), [(0, {}), (60, {"soft": True})])
def test_delete_is_soft_if_configured(api: Client, conf: cfg.ConfigOpts, interval: int, payload: Any) -> None:
    assert delete(api, conf, interval).status_code == 204
    assert payloads(api) == [payload]


def test_soft_delete_without_data_to_keep_is_permanent(api: Client, conf: cfg.ConfigOpts) -> None:
    accept = api.conductor.own_answer("accept_action")

    def refuse(context: Any, uuid: str, action: str, payload: Any) -> Any:
        if payload:
            raise exceptions.InstanceInvalidState(method=action, instance_id=uuid, attr="vm_state", state="building")
        return accept(context, uuid, action, payload)

    api.conductor.script("accept_action", refuse)
    assert delete(api, conf, 60).status_code == 204
    assert payloads(api) == [{"soft": True}, {}]


def test_soft_delete_of_locked_server_is_refused(api: Client, conf: cfg.ConfigOpts) -> None:
    api.conductor.error = exceptions.InstanceIsLocked(instance_id="i")
    assert delete(api, conf, 60).status_code == 409
    assert len(payloads(api)) == 1


def test_forced_delete_is_never_soft(api: Client, conf: cfg.ConfigOpts) -> None:
    conf.set_override("reclaim_instance_interval", 60)
    uuid = api.conductor.add().uuid
    assert api("POST", f"/servers/{uuid}/action", {"forceDelete": None}).status_code == 202
    assert payloads(api) == [{}]


@pytest.mark.parametrize(("token", "expected"), [(ADMIN, True), ("alice:demo", False)])
def test_soft_deleted_servers_are_listed_for_admins_only(api: Client, token: str, expected: bool) -> None:
    assert api("GET", "/servers?soft_deleted=true", token=token).status_code == 200
    assert api.last_call("instance_list")[0].soft_deleted is expected
