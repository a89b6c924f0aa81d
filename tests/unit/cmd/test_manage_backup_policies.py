"""``nova-lite-manage backup-policy``."""

from __future__ import annotations

import datetime
from typing import Any

from nova_lite.db import backup_policies
from nova_lite.db.engine import UnitOfWork
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
