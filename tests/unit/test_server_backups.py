"""A server is backed up by a policy and comes back, in a whole cloud in one process."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from nova_lite.backups import repository
from tests.support.in_process_cloud import InProcessCloud


@pytest.mark.skipif(shutil.which(repository.PROGRAM) is None, reason="no restic")
def test_servers_come_back_from_a_whole_backup_and_an_increment_in_a_repository(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret")
    password.chmod(0o600)
    options = f"[server_backups]\nengine = restic\nrepository = {tmp_path}/backups\npassword_file = {password}\n"
    cloud = InProcessCloud(tmp_path, options)

    def send(method: str, path: str, body: Any = None) -> Any:
        response = cloud.request(method, path, body)
        assert response.status_code < 300, response.text
        return response.json

    def run_until(path: str, key: str, value: str) -> Any:
        def reached() -> Any:
            cloud.conductor.scheduled_backups.run()
            cloud.conductor.stored_backups.run()
            shown = send("GET", path)["server_backup"]
            assert "failed" not in (shown["status"], shown["restore_status"]), shown
            return shown if shown[key] == value else None

        return cloud.wait_for(f"{key} is {value}", reached)

    try:
        server_id = cloud.create()
        backups: list[Any] = []
        for number in range(2):  # a policy has one backup at a time
            policy = {"name": f"p{number}", "schedule": {"every": "day"}, "retention": {"daily": 1}}
            policy |= {"targets": {"all": True}}
            policy_id = send("POST", "/os-backup-policies", {"backup_policy": policy})["backup_policy"]["id"]
            (planned,) = send("POST", f"/os-backup-policies/{policy_id}/run")["server_backups"]
            backups.append(run_until(f"/os-server-backups/{planned['id']}", "status", "complete"))
        assert [backup["base_id"] for backup in backups] == [None, backups[0]["id"]]
        for backup, place, body in zip(backups, ("servers", "restore"), ({"server": {}}, {"restore": {}}), strict=True):
            path = f"/os-server-backups/{backup['id']}"
            assert cloud.request("POST", f"{path}/{place}", body).status_code == 409
            send("POST", f"{path}/image", {"image": {}})
            image_id = run_until(path, "restore_status", "ready")["image_id"]
            restored = send("POST", f"{path}/{place}", body)["server"]["id"]
            cloud.wait_for("the server is back", lambda restored=restored: cloud.settled(restored) == "ACTIVE")
            assert send("GET", f"/servers/{restored}")["server"]["image"]["id"] == image_id
            assert (restored == server_id) is (place == "restore")
    finally:
        cloud.close()


@pytest.mark.parametrize("place", ["restore", "servers"])
def test_server_comes_back_from_the_backup_of_a_policy(tmp_path: Path, place: str) -> None:
    cloud = InProcessCloud(tmp_path)

    def send(method: str, path: str, body: Any = None) -> Any:
        response = cloud.request(method, path, body)
        assert response.status_code < 300, response.text
        return response.json

    try:
        server_id = cloud.create()
        policy = {"name": "p", "schedule": {"every": "day"}, "retention": {"daily": 1}, "targets": {"all": True}}
        policy_id = send("POST", "/os-backup-policies", {"backup_policy": policy})["backup_policy"]["id"]
        (backup,) = send("POST", f"/os-backup-policies/{policy_id}/run")["server_backups"]
        path = f"/os-server-backups/{backup['id']}"

        def complete() -> Any:
            cloud.conductor.scheduled_backups.run()
            shown = send("GET", path)["server_backup"]
            assert shown["status"] != "failed", shown
            return shown if shown["status"] == "complete" else None

        made = cloud.wait_for("the backup is complete", complete)
        assert made["size"] > 0
        addresses = send("GET", f"/servers/{server_id}")["server"]["addresses"]
        body = {"restore": {}} if place == "restore" else {"server": {}}
        restored = send("POST", f"{path}/{place}", body)["server"]["id"]
        cloud.wait_for("the server is back", lambda: cloud.settled(restored) == "ACTIVE")
        shown = send("GET", f"/servers/{restored}")["server"]
        assert shown["image"]["id"] == made["image_id"]
        assert shown["flavor"]["original_name"] == "m1.nano"
        if place == "restore":
            assert (restored, shown["addresses"]) == (server_id, addresses)
        else:
            assert restored != server_id
            assert shown["addresses"].keys() == addresses.keys()
        (status,) = send("GET", f"/os-backup-policies/{policy_id}/status")["backup_policy_status"]["servers"][:1]
        assert status["last_backup"]["id"] == backup["id"]
    finally:
        cloud.close()
