"""``nova-lite-manage backup-policy``."""

from __future__ import annotations

import datetime
import hashlib
import io
import shutil
from pathlib import Path
from typing import Any

import pytest

from nova_lite.backups import disk_data, repository
from nova_lite.db.backups import backup_policies
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.objects import BackupPolicy
from nova_lite.objects.backup import Every
from tests.support import make
from tests.support.backups import make_due, set_backup
from tests.support.manage import Tool


def test_operator_lists_policies_and_sees_which_are_not_met(tool: Tool) -> None:
    database = tool.database_of()

    def policy(name: str, **values: Any) -> BackupPolicy:
        wanted = BackupPolicy(name=name, all_servers=True, keep_daily=7, **values)
        return database.write(backup_policies.create, database.conf, make.context(), wanted)

    def server(uow: UnitOfWork) -> str:
        return make.instance(uow, launched_at=uow.now - datetime.timedelta(days=3))

    try:
        hourly = policy("often", every=Every.HOUR, minute=5)
        policy("seldom", every=Every.WEEK, weekday=6, hour=3, enabled=False)
        uuid = database.write(server)
        listed = tool.json("backup-policy", "list")
        assert [(item["name"], item["schedule"], item["enabled"]) for item in listed] == [
            ("often", "hour :05", True),
            ("seldom", "week weekday 6 03:00", False),
        ]
        assert tool.json("backup-policy", "status")[0]["met"] is True
        (planned,) = database.write(backup_policies.run, make.context(), hourly.id)
        set_backup(database, planned.id, status="failed", reason="The disk is full.")
        make_due(database, hourly)
        (found,) = tool.json("backup-policy", "status", hourly.id, status=1)
        assert (found["server"], found["met"], found["last_backup"]) == (uuid, False, None)
        assert found["reason"] == "The disk is full."
    finally:
        database.close()


@pytest.mark.skipif(shutil.which(repository.PROGRAM) is None, reason="no restic")
def test_operator_verifies_backups_in_repositories(tool: Tool, tmp_path: Path) -> None:
    database, password = tool.database_of(), tmp_path / "password"
    password.write_text("secret")
    password.chmod(0o600)
    with open(tool.config, "a", encoding="utf-8") as config:
        config.write(f"[server_backups]\nrepository = {tmp_path}/repository\npassword_file = {password}\n")
    data = io.BytesIO()
    disk_data.write_header(data, disk_data.DiskHeader(size=512, data=[(0, 4)]))
    data.write(b"data")
    stored = (
        repository.Repositories(f"{tmp_path}/repository", str(password), f"{tmp_path}/cache")
        .of_project("p1", may_be_missing=True)
        .store("one", lambda target: target.write(data.getvalue()))
    )

    try:
        wanted = BackupPolicy(name="p", all_servers=True, keep_daily=7, every=Every.DAY)
        policy = database.write(backup_policies.create, database.conf, make.context(), wanted)
        database.write(lambda uow: make.instance(uow, launched_at=uow.now - datetime.timedelta(days=3)))
        (planned,) = database.write(backup_policies.run, make.context(), policy.id)
        values = {"snapshot": stored.snapshot, "digest": stored.digest, "disk_size": 512, "project_id": "p1"}
        set_backup(database, planned.id, status="complete", engine="restic", **values)
        (found,) = tool.json("backup-policy", "verify")
        assert (found["backup"], found["sound"], found["reason"]) == (planned.id, True, None)
        set_backup(database, planned.id, digest=hashlib.sha256(b"other").hexdigest())
        (found,) = tool.json("backup-policy", "verify", policy.id, "--newest", status=1)
        assert (found["sound"], "digest" in found["reason"]) == (False, True)
    finally:
        database.close()
