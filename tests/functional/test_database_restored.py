"""A database that lost its last commits, as after a failover: hosts have seen ids that it gives again."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional import cloud


@pytest.fixture
def running(tmp_path: Path) -> Iterator[cloud.Cloud]:
    with cloud.running(tmp_path) as made:
        yield made


def test_orders_are_obeyed_afterwards(running: cloud.Cloud) -> None:
    database, copy = running.path / "nova-lite.sqlite", running.path / "copy.sqlite"
    (stopped, deleted) = running.create(count=2)
    running.wait_active([stopped, deleted])
    with sqlite3.connect(database) as source, sqlite3.connect(copy) as target:
        source.backup(target)

    def act(server_id: str, what: str, status: str) -> None:
        """Request an action. Until the next comparison an older list of domains may be believed, and the command
        refused.
        """

        def accepted() -> bool:
            answer = running.action(server_id, {what: None})
            assert answer.status_code in (202, 409), answer.text
            return answer.status_code == 202

        cloud.wait_for(f"{what} is accepted", accepted)
        assert running.wait_settled([server_id])[server_id]["status"] == status

    for server_id in (stopped, deleted):
        for what, status in (
            ("os-stop", "SHUTOFF"),
            ("os-start", "ACTIVE"),
            ("pause", "PAUSED"),
            ("unpause", "ACTIVE"),
        ):
            act(server_id, what, status)

    (unknown,) = running.create()
    running.wait_active([unknown])

    running.kill("conductor")
    for name in ("", "-wal", "-shm"):
        Path(f"{database}{name}").unlink(missing_ok=True)
    shutil.copy(copy, database)
    running.start("conductor")
    running.wait_until_ready()

    act(stopped, "os-stop", "SHUTOFF")
    for _ in range(2):
        assert running.request("DELETE", f"/servers/{deleted}").status_code in (204, 404)
    cloud.wait_for("it is deleted", lambda: running.show(deleted) is None)
    cloud.wait_for("it is gone from its host", lambda: not running.holders(deleted))
    act(stopped, "os-start", "ACTIVE")
    cloud.wait_for("the audit names it", lambda: f"domain {unknown} of no server" in running.try_manage("audit").stdout)
    running.delete_all()
    cloud.wait_for("only it is left", lambda: set(running.domains()) == {unknown})
    assert running.try_manage("audit", "--fix").returncode == 1
    running.remove_domain(unknown)
    cloud.wait_for("nothing is open", lambda: running.try_manage("audit").returncode == 0)
