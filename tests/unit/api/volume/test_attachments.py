"""Attachments that clients record in the volume API, and those of the compute API."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.db.core import models
from tests.support import make
from tests.support.api_client import ADMIN, MEMBER, STRANGER, fault
from tests.support.volume_api import NOBODY, Volumes

AT = "3.44"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Volumes]:
    made = Volumes(tmp_path)
    yield made
    made.manager.close()


@pytest.fixture
def server(api: Volumes) -> str:
    """Return the id of a server of the project ``demo``."""
    return server_of(api, "demo")


def server_of(api: Volumes, project: str) -> str:
    return api.manager.db.write(lambda uow: make.instance(uow, project_id=project))


def attach(api: Volumes, volume_id: str, server_id: str | None, **fields: Any) -> dict[str, Any]:
    body = {"attachment": {"volume_uuid": volume_id, "instance_uuid": server_id, **fields}}
    response = api("POST", "/attachments", body, version=AT)
    assert response.status_code == 200, response.text
    made: dict[str, Any] = response.json["attachment"]
    return made


def shown(api: Volumes, volume_id: str) -> dict[str, Any]:
    volume: dict[str, Any] = api("GET", f"/volumes/{volume_id}").json["volume"]
    return volume


def by_compute(api: Volumes, volume_id: str) -> str:
    """Attach a volume as the compute API does, and return the id of the attachment."""
    attachment_id = str(uuid.uuid4())

    def update(uow: Any) -> None:
        values = {"instance_uuid": NOBODY, "attachment_id": attachment_id, "status": "in-use"}
        uow.change(sa.update(models.Volume).where(models.Volume.id == volume_id).values(**values))

    api.manager.db.write(update)
    return attachment_id


def test_attachment_is_made_connected_completed_and_ended(api: Volumes, server: str) -> None:
    volume = api.make()
    made = attach(api, volume, server, connector={})
    path = f"/attachments/{made['id']}"
    assert (made["status"], made["instance"], made["attach_mode"]) == ("reserved", server, "rw")
    assert (shown(api, volume)["status"], shown(api, volume)["attachments"]) == ("reserved", [])
    connector = {"attachment": {"connector": {"host": "h", "mountpoint": "/dev/vdb"}}}
    assert api("PUT", path, connector, version=AT).json["attachment"]["status"] == "attaching"
    assert api("POST", f"{path}/action", {"os-complete": {}}, version="3.43").status_code == 400
    assert api("POST", f"{path}/action", {"os-complete": {}}, version=AT).status_code == 204
    view = shown(api, volume)
    (attached,) = view["attachments"]
    assert (view["status"], attached["attachment_id"], attached["server_id"]) == ("in-use", made["id"], server)
    assert (attached["host_name"], attached["device"]) == ("h", "/dev/vdb") and attached["attached_at"]
    assert api("GET", path, version=AT).json["attachment"]["status"] == "attached"
    query = f"/attachments?volume_id={volume}&instance_id={server}"
    assert [item["id"] for item in api("GET", query, version=AT).json["attachments"]] == [made["id"]]
    assert api("GET", f"/attachments?instance_id={NOBODY}", version=AT).json["attachments"] == []
    assert api("DELETE", path, version=AT).json == {"attachments": []}
    assert (shown(api, volume)["status"], shown(api, volume)["attachments"]) == ("available", [])
    assert api("DELETE", path, version=AT).status_code == 404


def test_volume_that_is_attached_is_kept(api: Volumes, server: str) -> None:
    volume = api.make()
    made = attach(api, volume, server, connector={"host": "h"})
    api("POST", f"/attachments/{made['id']}/action", {"os-complete": {}}, version=AT)
    body = {"attachment": {"volume_uuid": volume, "instance_uuid": server}}
    assert api("POST", "/attachments", body, version=AT).status_code == 400
    assert api("DELETE", f"/volumes/{volume}").status_code == 400
    assert api("POST", f"/volumes/{volume}/action", {"os-extend": {"new_size": 2}}, version=AT).status_code == 400
    assert api("POST", f"/volumes/{volume}/action", {"os-reserve": {}}).status_code == 400
    assert api("POST", "/backups", {"backup": {"volume_id": volume, "force": True}}).status_code == 202
    api.done()
    assert shown(api, volume)["status"] == "in-use"


def test_volume_with_an_attachment_keeps_its_status_when_an_admin_cannot_delete_it(api: Volumes, server: str) -> None:
    volume = api.make()
    made = attach(api, volume, server, connector={"host": "h"})
    api("POST", f"/attachments/{made['id']}/action", {"os-complete": {}}, version=AT)
    force = {"os-force_delete": {}}
    assert api("POST", f"/volumes/{volume}/action", force, token=ADMIN).status_code == 400
    assert shown(api, volume)["status"] == "in-use"


def test_attachment_of_an_old_volume_is_found_among_many_volumes(api: Volumes, server: str) -> None:
    made = [attach(api, api.make(), server)["id"] for _ in range(2)]
    for _ in range(2):
        api.make()

    def listed(query: str) -> list[str]:
        return [item["id"] for item in api("GET", f"/attachments{query}", version=AT).json["attachments"]]

    first, last = listed("")
    assert {first, last} == set(made)
    api.services.conf.set_override("max_limit", 1, "api")
    assert (listed(""), listed(f"?marker={first}")) == ([first], [last])
    assert (listed(f"?marker={last}"), listed("?offset=1")) == ([], [last])
    assert api("GET", f"/attachments?marker={NOBODY}", version=AT).status_code == 404
    for token in (MEMBER, ADMIN):
        assert api("GET", f"/attachments/{last}?limit=1", token=token, version=AT).status_code == 200
    assert api("DELETE", f"/attachments/{last}", version=AT).status_code == 200


def test_attachment_of_another_project_is_not_found(api: Volumes, server: str) -> None:
    volume = api.make()
    made = attach(api, volume, server)
    path = f"/attachments/{made['id']}"
    for method, more, body in (
        ("GET", "", None),
        ("PUT", "", {"attachment": {"connector": {"host": "h"}}}),
        ("POST", "/action", {"os-complete": {}}),
        ("DELETE", "", None),
    ):
        assert api(method, path + more, body, token=STRANGER, version=AT).status_code == 404
    body = {"attachment": {"volume_uuid": volume, "instance_uuid": server}}
    assert api("POST", "/attachments", body, token=STRANGER, version=AT).status_code == 404
    theirs = server_of(api, "another")
    body = {"attachment": {"volume_uuid": api.make(), "instance_uuid": theirs}}
    assert api("POST", "/attachments", body, version=AT).status_code == 404
    action = {"os-attach": {"instance_uuid": theirs, "mountpoint": "/dev/vdb"}}
    assert api("POST", f"/volumes/{api.make()}/action", action).status_code == 404


def test_attachments_of_the_compute_api_are_ended_there(api: Volumes) -> None:
    volume = api.make()
    path = f"/attachments/{by_compute(api, volume)}"
    for method, more, body in (
        ("PUT", "", {"attachment": {"connector": {"host": "h"}}}),
        ("POST", "/action", {"os-complete": {}}),
        ("DELETE", "", None),
    ):
        message = fault(api(method, path + more, body, version=AT), "conflictingRequest", 409)
        assert message == f"Detach volume from instance {NOBODY} using the Compute API."
    assert api("GET", path, version=AT).json["attachment"]["instance"] == NOBODY


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"volume_uuid": "x"},
        {"volume_uuid": NOBODY, "mode": "rwx"},
        {"volume_uuid": NOBODY, "connector": "c"},
        {"volume_uuid": NOBODY, "connector": {"host": 1}},
    ],
)
def test_invalid_attachment_is_refused(api: Volumes, fields: dict[str, Any]) -> None:
    assert api("POST", "/attachments", {"attachment": fields}, version=AT).status_code == 400
    assert api("POST", "/attachments", {"attachment": fields}, version="3.26").status_code == 404


def test_volume_is_attached_and_detached_by_actions(api: Volumes, server: str) -> None:
    volume = api.make()
    action = f"/volumes/{volume}/action"
    attach = {"os-attach": {"instance_uuid": server, "mountpoint": "/dev/vdc", "mode": "rw"}}
    assert api("POST", action, attach).status_code == 202
    (attached,) = shown(api, volume)["attachments"]
    assert (attached["server_id"], attached["device"]) == (server, "/dev/vdc")
    assert api("POST", action, attach).status_code == 400
    assert api("POST", action, {"os-detach": {"attachment_id": NOBODY}}).status_code == 400
    assert api("POST", action, {"os-reset_status": {"status": "error"}}, token=ADMIN).status_code == 202
    detach = {"os-force_detach": {"attachment_id": attached["attachment_id"], "connector": None}}
    assert api("POST", action, detach).status_code == 202
    assert (shown(api, volume)["status"], shown(api, volume)["attachments"]) == ("available", [])
    for bad in ({}, {"instance_uuid": server}, {"mountpoint": "/dev/vdc"}, {"instance_uuid": "x"}):
        assert api("POST", action, {"os-attach": bad}).status_code == 400
    for host in ({"host_name": "h", "mountpoint": "/dev/vdc"}, {"host_name": "h", "instance_uuid": server}):
        refused = api("POST", action, {"os-attach": host})
        assert "instance_uuid" in fault(refused, "badRequest", 400)
    assert (shown(api, volume)["status"], shown(api, volume)["attachments"]) == ("available", [])
    assert api("POST", action, attach).status_code == 202
    assert api("POST", action, {"os-reset_status": {"status": "available"}}, token=ADMIN).status_code == 202
    assert shown(api, volume)["attachments"] == []


def test_volume_is_reserved_once(api: Volumes, server: str) -> None:
    volume = api.make()
    action = f"/volumes/{volume}/action"

    def ask(name: str) -> int:
        return api("POST", action, {name: {}}).status_code

    assert ask("os-unreserve") == 400
    assert (ask("os-reserve"), ask("os-reserve")) == (202, 400)
    assert shown(api, volume)["status"] == "attaching"
    assert api("DELETE", f"/volumes/{volume}").status_code == 400
    assert (ask("os-unreserve"), shown(api, volume)["status"]) == (202, "available")
    assert ask("os-reserve") == 202
    assert api("POST", action, {"os-attach": {"instance_uuid": server, "mountpoint": "/dev/vdc"}}).status_code == 202
    assert ask("os-unreserve") == 400


# --- volumes that several have


def shared_type(api: Volumes) -> None:
    body = {"volume_type": {"name": "shared", "extra_specs": {"multiattach": "<is> True"}}}
    assert api("POST", "/types", body, ADMIN).status_code == 200


def test_shared_volume_has_an_attachment_for_each_client(api: Volumes, server: str) -> None:
    shared_type(api)
    volume = api.make(volume_type="shared")
    assert shown(api, volume)["multiattach"] is True
    made = []
    for owner in (server, server_of(api, "demo")):
        made.append(attach(api, volume, owner, connector={"host": "h"}))
        done = api("POST", f"/attachments/{made[-1]['id']}/action", {"os-complete": {}}, version=AT)
        assert done.status_code == 204
    listed = api("GET", f"/attachments/detail?volume_id={volume}", version=AT).json["attachments"]
    assert [(item["id"], item["status"], item["instance"]) for item in listed] == [
        (item["id"], "attached", item["instance"]) for item in made
    ]
    found = {item["attachment_id"]: item["server_id"] for item in shown(api, volume)["attachments"]}
    assert found == {item["id"]: item["instance"] for item in made}
    only = api("GET", f"/attachments?instance_id={server}", version=AT).json["attachments"]
    assert [item["id"] for item in only] == [made[0]["id"]]

    detach: dict[str, Any] = {"os-detach": {}}
    message = fault(api("POST", f"/volumes/{volume}/action", detach), "badRequest", 400)
    assert "More than one attachment, but no attachment_id provided" in message
    left = api("DELETE", f"/attachments/{made[0]['id']}", version=AT).json["attachments"]
    assert [item["id"] for item in left] == [made[1]["id"]]
    assert shown(api, volume)["status"] == "in-use"
    detach["os-detach"]["attachment_id"] = made[1]["id"]
    assert api("POST", f"/volumes/{volume}/action", detach).status_code == 202
    assert (shown(api, volume)["status"], shown(api, volume)["attachments"]) == ("available", [])


def test_retype_to_multiattach_follows_the_policy(api: Volumes, tmp_path: Path) -> None:
    shared_type(api)
    volume = api.make()
    retype = {"os-retype": {"new_type": "shared", "migration_policy": "never"}}
    assert api("POST", f"/volumes/{volume}/action", retype).status_code == 202
    assert shown(api, volume)["multiattach"] is True


def test_read_only_flag_of_a_volume_is_shown(api: Volumes) -> None:
    volume = api.make(metadata={"a": "b"})
    for flag, metadata in ((True, {"a": "b", "readonly": "True"}), (False, {"a": "b"})):
        body = {"os-update_readonly_flag": {"readonly": flag}}
        assert api("POST", f"/volumes/{volume}/action", body).status_code == 202
        assert shown(api, volume)["metadata"] == metadata
    by_compute(api, volume)
    body = {"os-update_readonly_flag": {"readonly": True}}
    assert "must be available" in fault(api("POST", f"/volumes/{volume}/action", body), "badRequest", 400)
