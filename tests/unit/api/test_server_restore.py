"""``/os-server-backups/{id}/restore`` and ``/servers``: servers come back from their backups."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.db.core import models
from tests.support import make
from tests.support.api_client import STRANGER, Client, fault, make_client, make_conf

BACKUPS = "/os-server-backups"
NETWORK = "0d6d1c0e-6a3f-4b6b-9a33-31f1d2f8a001"
SERVER = {
    "name": "web",
    "description": "front",
    "flavor_id": "7",
    "networks": [NETWORK],
    "metadata": {"a": "b"},
    "tags": ["db"],
    "security_groups": ["default"],
    "config_drive": True,
}


def backed_up(api: Client, status: str = "complete", **values: Any) -> Any:
    """Make a server with a backup, and return the backup."""
    uuid = api.conductor.add().uuid
    policy = {"name": "p", "schedule": {"every": "day"}, "retention": {"daily": 1}, "targets": {"all": True}}
    policy_id = api.json("POST", "/os-backup-policies", {"backup_policy": policy}, status=201)["backup_policy"]["id"]
    api.conductor.db.write(lambda uow: make.instance(uow, uuid=uuid, project_id="demo", launched_at=uow.now))
    (planned,) = api.json("POST", f"/os-backup-policies/{policy_id}/run", status=202)["server_backups"]
    changed = sa.update(models.ServerBackup).values(status=status, server={**SERVER, **values})
    api.conductor.db.write(lambda uow: uow.change(changed))
    return api.json("GET", f"{BACKUPS}/{planned['id']}")["server_backup"]


def test_server_is_restored_in_place_by_a_rebuild(api: Client) -> None:
    backup = backed_up(api)
    response = api("POST", f"{BACKUPS}/{backup['id']}/restore", {"restore": {"adminPass": "x"}})
    assert response.status_code == 202
    uuid, kind, payload = api.last_call("accept_action")
    assert (uuid, kind) == (backup["server_id"], "rebuild")
    assert (payload["image_ref"], payload["changes"], payload["admin_password"]) == (backup["image_id"], {}, "x")
    assert payload["reimage_boot_volume"] is False
    assert "key_name" not in payload
    assert (response.json["server"]["id"], response.json["server"]["adminPass"]) == (uuid, "x")
    assert response.headers["Location"].endswith(f"/servers/{uuid}")


@pytest.mark.parametrize("version", ["2.1", "2.37", "2.96"])
def test_new_server_is_as_at_the_time_of_the_backup(api: Client, version: str) -> None:
    backup = backed_up(api)
    response = api("POST", f"{BACKUPS}/{backup['id']}/servers", {"server": {}}, version=version)
    assert response.status_code == 202
    (request,) = api.last_call("create_instances")
    assert (request.name, request.flavor_id, request.image_ref) == ("web", "7", backup["image_id"])
    assert ([network.network_id for network in request.networks], request.metadata) == ([NETWORK], {"a": "b"})
    assert (request.tags, request.security_groups, request.config_drive) == (["db"], ["default"], True)
    assert request.key_name is None
    assert response.json["server"]["id"] != backup["server_id"]


def test_body_replaces_what_the_backup_says(api: Client) -> None:
    backup = backed_up(api, networks=[])
    path = f"{BACKUPS}/{backup['id']}/servers"
    api.json("POST", path, {"server": {}}, status=202)
    assert api.last_call("create_instances")[0].networks == "none"
    body = {"name": "copy", "flavorRef": "9", "networks": "auto", "metadata": {}, "key_name": "k", "tags": []}
    api.json("POST", path, {"server": body}, status=202)
    (request,) = api.last_call("create_instances")
    assert (request.name, request.flavor_id, request.networks, request.key_name) == ("copy", "9", "auto", "k")
    assert (request.metadata, request.tags, request.security_groups) == ({}, [], ["default"])


@pytest.mark.parametrize("status", ["pending", "running", "failed", "deleting"])
def test_incomplete_backup_is_not_restored(api: Client, status: str) -> None:
    backup = backed_up(api, status)
    for path, body in (("restore", {"restore": {}}), ("servers", {"server": {}})):
        message = fault(api("POST", f"{BACKUPS}/{backup['id']}/{path}", body), "conflictingRequest", 409)
        assert f"is {status}. Only a complete backup can be restored" in message


def test_backup_of_a_deleted_server_becomes_a_new_server(api: Client) -> None:
    backup = backed_up(api)
    api.conductor.instances.clear()
    response = api("POST", f"{BACKUPS}/{backup['id']}/restore", {"restore": {}})
    assert f"POST /os-server-backups/{backup['id']}/servers" in fault(response, "conflictingRequest", 409)
    assert api("POST", f"{BACKUPS}/{backup['id']}/servers", {"server": {}}).status_code == 202


def test_backups_of_other_projects_cannot_be_restored(api: Client) -> None:
    backup = backed_up(api)
    for path, body in (("restore", {"restore": {}}), ("servers", {"server": {}})):
        fault(api("POST", f"{BACKUPS}/{backup['id']}/{path}", body, token=STRANGER), "itemNotFound", 404)


def test_rules_of_rebuild_and_create_hold(tmp_path: Any) -> None:
    rules = tmp_path / "policy.yaml"
    rules.write_text('"os_compute_api:servers:rebuild": "!"\n"os_compute_api:servers:create": "!"\n')
    api = make_client(make_conf(tmp_path, f"[oslo_policy]\npolicy_file = {rules}\n"))
    backup = backed_up(api)
    for path, body in (("restore", {"restore": {}}), ("servers", {"server": {}})):
        fault(api("POST", f"{BACKUPS}/{backup['id']}/{path}", body), "forbidden", 403)


def in_repository(api: Client, **values: Any) -> Any:
    """Make a backup whose data are in a repository."""
    backup = backed_up(api)
    changed = sa.update(models.ServerBackup).values(engine="restic", snapshot="s", **values)
    api.conductor.db.write(lambda uow: uow.change(changed))
    return backup


def test_backup_in_a_repository_becomes_an_image_before_it_is_restored(api: Client) -> None:
    path = f"{BACKUPS}/{in_repository(api)['id']}"
    for place, body in (("restore", {"restore": {}}), ("servers", {"server": {}})):
        message = fault(api("POST", f"{path}/{place}", body), "conflictingRequest", 409)
        assert f"POST {path}/image" in message
    wanted = api.json("POST", f"{path}/image", {"image": {}}, status=202)["server_backup"]
    assert (wanted["engine"], wanted["restore_status"], wanted["image_id"]) == ("restic", "wanted", None)
    changed = sa.update(models.ServerBackup).values(restore_status="ready")
    api.conductor.db.write(lambda uow: uow.change(changed))
    image_id = api.json("GET", path)["server_backup"]["image_id"]
    api.json("POST", f"{path}/restore", {"restore": {}}, status=202)
    assert api.last_call("accept_action")[2]["image_ref"] == image_id
    api.json("POST", f"{path}/servers", {"server": {}}, status=202)
    assert api.last_call("create_instances")[0].image_ref == image_id


def test_backup_that_is_an_image_is_returned_unchanged(api: Client) -> None:
    backup = backed_up(api)
    path = f"{BACKUPS}/{backup['id']}/image"
    assert api.json("POST", path, {"image": {}}, status=202)["server_backup"] == backup


@pytest.mark.parametrize("status", ["running", "storing", "failed"])
def test_incomplete_backup_makes_no_image(api: Client, status: str) -> None:
    backup = in_repository(api, status=status)
    fault(api("POST", f"{BACKUPS}/{backup['id']}/image", {"image": {}}), "conflictingRequest", 409)


def test_backup_of_another_project_makes_no_image(api: Client) -> None:
    path = f"{BACKUPS}/{in_repository(api)['id']}/image"
    fault(api("POST", path, {"image": {}}, token=STRANGER), "itemNotFound", 404)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("image", {"image": {"name": "x"}}),
        ("image", {}),
        ("restore", {"restore": {"imageRef": NETWORK}}),
        ("restore", {}),
        ("servers", {"server": {"imageRef": NETWORK}}),
        ("servers", {"server": {"networks": [{"fixed_ip": "10.0.0.1"}]}}),
        ("servers", {"server": {"min_count": 2}}),
        ("servers", {"restore": {}}),
    ],
)
def test_malformed_body_is_refused(api: Client, path: str, body: Any) -> None:
    fault(api("POST", f"{BACKUPS}/{backed_up(api)['id']}/{path}", body), "badRequest", 400)
