"""Backups in the volume API, with a real conductor and hosts that finish all work or fail it."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.db.core import models
from nova_lite.objects import VolumeVerb
from tests.support.api_client import ADMIN, STRANGER, fault
from tests.support.volume_api import NOBODY, Volumes


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Volumes]:
    made = Volumes(tmp_path)
    yield made
    made.manager.close()


def back_up(api: Volumes, volume_id: str, **fields: Any) -> str:
    response = api("POST", "/backups", {"backup": {"volume_id": volume_id, "name": "b", **fields}})
    assert response.status_code == 202, response.text
    return str(response.json["backup"]["id"])


def fail(api: Volumes, reason: str = "the disk is full") -> None:
    def end(uow: Any) -> None:
        for task in uow.session.scalars(sa.select(models.VolumeTask)):
            api.manager.reconciler.volumes._end(uow, task, reason)

    api.manager.db.write(end)


def tasks(api: Volumes) -> list[tuple[str, dict[str, Any]]]:
    def read(uow: Any) -> list[tuple[str, dict[str, Any]]]:
        return [(task.verb, task.payload) for task in uow.session.scalars(sa.select(models.VolumeTask))]

    return api.manager.db.read(read)


def attach(api: Volumes, volume_id: str) -> None:
    def update(uow: Any) -> None:
        uow.change(
            sa.update(models.Volume).where(models.Volume.id == volume_id).values(instance_uuid=NOBODY, status="in-use")
        )

    api.manager.db.write(update)


def status(api: Volumes, path: str) -> str:
    (shown,) = api("GET", path).json.values()
    return str(shown["status"])


def test_backup_is_made_shown_changed_and_deleted(api: Volumes) -> None:
    volume = api.make(name="v", metadata={"a": "b"})
    backup = back_up(api, volume, description="d", metadata={"k": "v"})
    path = f"/backups/{backup}"
    assert (status(api, path), status(api, f"/volumes/{volume}")) == ("creating", "backing-up")
    assert api("DELETE", path).status_code == api("DELETE", f"/volumes/{volume}").status_code == 400
    api.done()
    shown = api("GET", path, version="3.56").json["backup"]
    assert (shown["status"], shown["size"], shown["volume_id"], shown["metadata"]) == (
        "available",
        1,
        volume,
        {"k": "v"},
    )
    assert (shown["is_incremental"], shown["has_dependent_backups"], shown["fail_reason"]) == (False, False, None)
    assert status(api, f"/volumes/{volume}") == "available"
    assert not {"metadata", "user_id"} & api("GET", path).json["backup"].keys()
    assert api("GET", "/backups").json["backups"] == [{key: shown[key] for key in ("id", "name", "links")}]
    changed = api("PUT", path, {"backup": {"name": "n", "description": None}}).json["backup"]
    assert (changed["name"], api("GET", path).json["backup"]["description"]) == ("n", None)
    assert api("PUT", path, {"backup": {}}).status_code == 400
    assert api("DELETE", path).status_code == 202
    assert status(api, path) == "deleting"
    assert api("DELETE", path).status_code == 202, "a repeated request"
    api.done()
    assert api("GET", path).status_code == 404


def test_backups_have_filters_and_pages(api: Volumes) -> None:
    volume = api.make()
    for name in ("a", "b"):
        back_up(api, volume, name=name)
        api.done()
    page = api("GET", "/backups/detail?limit=1&sort_key=name&sort_dir=asc").json
    assert [item["name"] for item in page["backups"]] == ["a"]
    following = page["backups_links"][0]["href"].partition("/v3")[2]
    assert [item["name"] for item in api("GET", following).json["backups"]] == ["b"]
    assert [item["name"] for item in api("GET", "/backups?name=b").json["backups"]] == ["b"]
    assert api("GET", f"/backups?volume_id={NOBODY}").json["backups"] == []
    assert api("GET", "/backups?all_tenants=1", token=STRANGER).json["backups"] == []
    assert len(api("GET", "/backups?all_tenants=1", token="admin:another").json["backups"]) == 2


def test_backup_of_another_project_is_not_found(api: Volumes) -> None:
    volume = api.make()
    path = f"/backups/{back_up(api, volume)}"
    api.done()
    for method, more, body in (
        ("GET", "", None),
        ("PUT", "", {"backup": {"name": "n"}}),
        ("DELETE", "", None),
        ("POST", "/restore", {"restore": {}}),
    ):
        assert api(method, path + more, body, token=STRANGER).status_code == 404
    assert api("POST", "/backups", {"backup": {"volume_id": volume}}, token=STRANGER).status_code == 404
    assert api("GET", f"{path}/export_record").status_code == 403


def test_failed_backup_has_its_reason(api: Volumes) -> None:
    volume = api.make()
    path = f"/backups/{back_up(api, volume)}"
    fail(api)
    shown = api("GET", path).json["backup"]
    assert (shown["status"], shown["fail_reason"]) == ("error", "the disk is full")
    assert status(api, f"/volumes/{volume}") == "available"
    assert api("POST", f"{path}/restore", {"restore": {}}).status_code == 400
    assert api("DELETE", path).status_code == 202
    fail(api)
    assert status(api, path) == "error_deleting"
    assert api("DELETE", path).status_code == 400
    assert api("POST", f"{path}/action", {"os-force_delete": {}}).status_code == 403
    assert api("POST", f"{path}/action", {"os-force_delete": {}}, token=ADMIN).status_code == 202
    api.done()
    assert api("GET", path).status_code == 404


def test_volume_of_a_server_is_backed_up_with_force(api: Volumes) -> None:
    volume = api.make()
    attach(api, volume)
    assert "with force" in fault(api("POST", "/backups", {"backup": {"volume_id": volume}}), "badRequest", 400)
    back_up(api, volume, force=True)
    api.done()
    assert status(api, f"/volumes/{volume}") == "in-use"


def test_snapshot_is_backed_up(api: Volumes) -> None:
    volume = api.make()
    snapshot = api("POST", "/snapshots", {"snapshot": {"volume_id": volume}}).json["snapshot"]["id"]
    api.done()
    attach(api, volume)
    backup = back_up(api, volume, snapshot_id=snapshot)
    assert status(api, f"/volumes/{volume}") == "in-use"
    assert tasks(api)[0][1]["source_snapshot"] == snapshot
    assert api("DELETE", f"/snapshots/{snapshot}").status_code == 400, "it is being copied"
    api.done()
    assert api("GET", f"/backups/{backup}").json["backup"]["snapshot_id"] == snapshot
    other = {"backup": {"volume_id": api.make(), "snapshot_id": snapshot}}
    assert api("POST", "/backups", other).status_code == 400


def test_backup_is_restored_into_a_new_volume(api: Volumes) -> None:
    volume = api.make(metadata={"a": "b"}, size=2)
    assert api("POST", f"/volumes/{volume}/action", {"os-set_bootable": {"bootable": True}}).status_code == 200
    backup = back_up(api, volume)
    api.done()
    restored = api("POST", f"/backups/{backup}/restore", {"restore": {"name": "again"}}).json["restore"]
    path = f"/volumes/{restored['volume_id']}"
    assert (restored["volume_name"], restored["backup_id"]) == ("again", backup)
    assert (status(api, path), status(api, f"/backups/{backup}")) == ("restoring-backup", "restoring")
    assert api("DELETE", f"/backups/{backup}").status_code == 400
    api.done()
    shown = api("GET", path).json["volume"]
    assert (shown["status"], shown["size"], shown["metadata"], shown["bootable"]) == (
        "available",
        2,
        {"a": "b"},
        "true",
    )
    assert status(api, f"/backups/{backup}") == "available"
    restored = api("POST", f"/backups/{backup}/restore", {"restore": {}}).json["restore"]
    assert restored["volume_name"] == f"restore_backup_{backup}"
    fail(api)
    assert status(api, f"/volumes/{restored['volume_id']}") == "error"
    assert status(api, f"/backups/{backup}") == "available"


def test_backup_is_restored_into_a_volume(api: Volumes) -> None:
    backup = back_up(api, api.make(size=2))
    api.done()
    target, small, used = api.make(size=3), api.make(size=1), api.make(size=2)
    attach(api, used)
    path = f"/backups/{backup}/restore"
    for volume, code in ((small, 400), (used, 400), (NOBODY, 404)):
        assert api("POST", path, {"restore": {"volume_id": volume}}).status_code == code
    assert api("POST", path, {"restore": {"volume_id": target}}).status_code == 202
    assert tasks(api)[0][1]["size"] == 3
    api.done()
    assert status(api, f"/volumes/{target}") == "available"
    assert api("POST", path, {"restore": {"volume_id": target}}).status_code == 202
    fail(api)
    assert status(api, f"/volumes/{target}") == "error_restoring"
    assert api("DELETE", f"/volumes/{target}").status_code == 202


def test_volume_becomes_what_was_backed_up_only_if_the_restoration_succeeds(api: Volumes) -> None:
    def shown(volume: str) -> tuple[str, str]:
        found = api("GET", f"/volumes/{volume}").json["volume"]
        return found["status"], found["bootable"]

    source, target = api.make(), api.make()
    bootable = {"os-set_bootable": {"bootable": True}}
    assert api("POST", f"/volumes/{source}/action", bootable).status_code == 200
    backup = back_up(api, source)
    api.done()
    restore = {"restore": {"volume_id": target}}
    assert api("POST", f"/backups/{backup}/restore", restore).status_code == 202
    fail(api)
    assert shown(target) == ("error_restoring", "false")
    reset = {"os-reset_status": {"status": "available"}}
    assert api("POST", f"/volumes/{target}/action", reset, ADMIN).status_code == 202
    assert api("POST", f"/backups/{backup}/restore", restore).status_code == 202
    api.done()
    assert shown(target) == ("available", "true")


def test_volume_is_created_from_a_backup(api: Volumes) -> None:
    backup = back_up(api, api.make())
    api.done()
    body = {"volume": {"size": 1, "backup_id": backup, "name": "n"}}
    assert api("POST", "/volumes", body, version="3.46").status_code == 400
    assert api("POST", "/volumes", {"volume": {**body["volume"], "size": 2}}, version="3.47").status_code == 400
    made = api("POST", "/volumes", body, version="3.47").json["volume"]
    assert (made["status"], made["name"]) == ("restoring-backup", "n")


def test_backups_have_quotas(api: Volumes) -> None:
    limits = {"backups": 1, "backup_gigabytes": 3}
    assert api("PUT", "/os-quota-sets/demo", {"quota_set": limits}, token=ADMIN).status_code == 200
    volume = api.make(size=2)
    back_up(api, volume)
    api.done()
    assert "backups" in fault(api("POST", "/backups", {"backup": {"volume_id": volume}}), "overLimit", 413)
    assert api("PUT", "/os-quota-sets/demo", {"quota_set": {"backups": 5}}, token=ADMIN).status_code == 200
    refused = api("POST", "/backups", {"backup": {"volume_id": volume}})
    assert "backup_gigabytes" in fault(refused, "overLimit", 413)
    absolute = api("GET", "/limits").json["limits"]["absolute"]
    assert (absolute["totalBackupsUsed"], absolute["totalBackupGigabytesUsed"]) == (1, 2)


def test_status_of_a_backup_is_reset_by_admins(api: Volumes) -> None:
    backup = back_up(api, api.make())
    api.done()
    action = f"/backups/{backup}/action"
    assert api("POST", action, {"os-reset_status": {"status": "error"}}).status_code == 403
    for state, code in (("error", 202), ("deleting", 400), ("available", 202)):
        assert api("POST", action, {"os-reset_status": {"status": state}}, token=ADMIN).status_code == code
    assert api("POST", action, {"os-other": {}}, token=ADMIN).status_code == 400


def test_status_of_a_backup_that_a_host_works_on_is_not_reset(api: Volumes) -> None:
    volume = api.make()
    backup = back_up(api, volume)
    action, reset = f"/backups/{backup}/action", {"os-reset_status": {"status": "available"}}
    assert "wait until that is done" in fault(api("POST", action, reset, token=ADMIN), "badRequest", 400)
    api.done()
    restore = {"restore": {"volume_id": volume}}
    assert api("POST", f"/backups/{backup}/restore", restore).status_code == 202
    assert api("POST", action, reset, token=ADMIN).status_code == 400
    assert api("PUT", f"/backups/{backup}", {"backup": {"name": "n"}}).status_code == 200
    api.done()
    assert api("POST", action, reset, token=ADMIN).status_code == 202


def test_record_of_a_backup_is_imported(api: Volumes) -> None:
    backup = back_up(api, api.make(metadata={"a": "b"}))
    api.done()
    record = api("GET", f"/backups/{backup}/export_record", token=ADMIN).json["backup-record"]
    assert api("POST", "/backups/import_record", {"backup-record": record}, token=ADMIN).status_code == 400
    content = json.loads(base64.b64decode(record["backup_url"]))
    new = str(uuid.uuid4())

    def encoded(**changes: Any) -> dict[str, Any]:
        url = base64.b64encode(json.dumps({**content, **changes}).encode()).decode()
        return {"backup-record": {**record, "backup_url": url}}

    assert api("POST", "/backups/import_record", encoded(id=new)).status_code == 403
    made = api("POST", "/backups/import_record", encoded(id=new), token=ADMIN)
    assert (made.status_code, made.json["backup"]["id"]) == (201, new)
    assert tasks(api) == [(VolumeVerb.VERIFY_BACKUP, {"backup_id": new, "data_id": backup, "size": 1})]
    api.done()
    assert status(api, f"/backups/{new}") == "available"
    assert api("DELETE", f"/backups/{backup}").status_code == 202
    assert (tasks(api), api("GET", f"/backups/{backup}").status_code) == ([], 404), "the other one has its data"
    restored = api("POST", f"/backups/{new}/restore", {"restore": {}}).json["restore"]["volume_id"]
    api.done()
    assert api("GET", f"/volumes/{restored}").json["volume"]["metadata"] == {"a": "b"}
    for bad in (
        {"id": "x"},
        {"data_id": "../etc"},
        {"size": 0},
        {"size": "big"},
        {"name": 1},
        {"metadata": {"a": 1}},
        {"volume": {"metadata": {"a": "b" * 300}}},
    ):
        response = api("POST", "/backups/import_record", encoded(**{"id": str(uuid.uuid4()), **bad}), token=ADMIN)
        assert response.status_code == 400, bad
    for bad in ({**record, "backup_url": "!"}, {**record, "backup_service": "swift"}, {"backup_url": 1}):
        assert api("POST", "/backups/import_record", {"backup-record": bad}, token=ADMIN).status_code == 400


@pytest.mark.parametrize("fields", [{}, {"volume_id": "x"}, {"volume_id": NOBODY, "incremental": True}])
def test_invalid_backup_is_refused(api: Volumes, fields: dict[str, Any]) -> None:
    assert api("POST", "/backups", {"backup": fields}).status_code == 400
