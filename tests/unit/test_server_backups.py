"""A server is backed up by a policy and comes back, in a whole cloud in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process_cloud import InProcessCloud


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
