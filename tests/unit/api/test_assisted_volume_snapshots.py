"""``os-assisted-volume-snapshots``, as it reaches the conductor."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from nova_lite.base import exceptions
from tests.support.api_client import ADMIN, MEMBER, Client, fault

PATH = "/os-assisted-volume-snapshots"
VOLUME, SNAPSHOT = str(uuid.uuid4()), str(uuid.uuid4())
INFO = {"snapshot_id": SNAPSHOT, "type": "qcow2", "new_file": f"volume-{VOLUME}.{SNAPSHOT}"}
MERGE = {"volume_id": VOLUME, "type": "qcow2", "file_to_merge": None, "merge_target_file": None}


def create(api: Client, token: str = ADMIN, volume_id: str = VOLUME, **info: Any) -> Any:
    return api("POST", PATH, {"snapshot": {"volume_id": volume_id, "create_info": {**INFO, **info}}}, token=token)


def delete(api: Client, text: str | None, snapshot_id: str = SNAPSHOT, token: str = ADMIN) -> Any:
    query = "" if text is None else f"?delete_info={text}"
    return api("DELETE", f"{PATH}/{snapshot_id}{query}", token=token)


@pytest.mark.parametrize("more", [{}, {"id": "an id"}])
def test_new_file_reaches_the_conductor_and_the_host(api: Client, more: dict[str, str]) -> None:
    api.conductor.volume_servers[VOLUME] = api.conductor.add(project_id="other").uuid
    response = create(api, **more)
    assert (response.status_code, response.json) == (200, {"snapshot": {"id": more.get("id"), "volumeId": VOLUME}})
    expected = {"snapshot_id": SNAPSHOT, "new_file": INFO["new_file"]}
    assert api.conductor.calls == [("accept_volume_snapshot", (VOLUME, "volume_snapshot_create", expected))]
    assert [method for method, _ in api.compute.calls] == ["volume_snapshot_create"]


@pytest.mark.parametrize(("source", "target"), [(None, None), ("b", None), ("b", "a")])
def test_merge_reaches_the_conductor(api: Client, source: str | None, target: str | None) -> None:
    api.conductor.volume_servers[VOLUME] = api.conductor.add().uuid
    files = {"file_to_merge": source, "merge_target_file": target}
    response = delete(api, json.dumps({**MERGE, **files, "more": 1}))
    assert (response.status_code, response.body) == (204, b"")
    expected = {"snapshot_id": SNAPSHOT, **files}
    assert api.conductor.calls == [("accept_volume_snapshot", (VOLUME, "volume_snapshot_delete", expected))]


@pytest.mark.parametrize(
    "info",
    [
        {"type": "raw"},
        {"new_file": "../x"},
        {"new_file": "a/b"},
        {"new_file": ""},
        {"new_file": "nbd:x"},
        {"snapshot_id": "x"},
        {"volume_id": "x"},
        {"other": 1},
    ],
)
def test_invalid_snapshot_is_refused(api: Client, info: dict[str, Any]) -> None:
    fault(create(api, **info), "badRequest", 400)
    assert api.conductor.calls == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "delete_info is no JSON"),
        ("{", "delete_info is no JSON"),
        ("[]", "not of type"),
        (json.dumps({"type": "qcow2"}), "volume_id"),
        (json.dumps({**MERGE, "type": "raw"}), "type"),
        (json.dumps({**MERGE, "file_to_merge": "../x"}), "file_to_merge"),
        (json.dumps({**MERGE, "merge_target_file": "x"}), "needs a file_to_merge"),
    ],
)
def test_invalid_merge_is_refused(api: Client, text: str | None, message: str) -> None:
    assert message in fault(delete(api, text), "badRequest", 400)
    assert api.conductor.calls == []


def test_merge_for_no_snapshot_is_a_404(api: Client) -> None:
    fault(delete(api, json.dumps(MERGE), "x"), "itemNotFound", 404)


def test_busy_server_is_a_400_as_in_nova(api: Client) -> None:
    server = api.conductor.add(task_state="powering-off")
    api.conductor.volume_servers[VOLUME] = server.uuid
    api.conductor.error = exceptions.InstanceInvalidState(
        method="volume_snapshot_create", instance_id=server.uuid, attr="task_state", state="powering-off"
    )
    assert "powering-off" in fault(create(api), "badRequest", 400)


def test_members_are_refused(api: Client) -> None:
    fault(create(api, token=MEMBER), "forbidden", 403)
    fault(delete(api, json.dumps(MERGE), token=MEMBER), "forbidden", 403)
