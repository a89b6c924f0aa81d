"""A database that lost its last commits, as after a failover: hosts have seen ids that it gives again."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.functional import cloud
from tests.support.waiting import wait_for


@pytest.fixture
def running(tmp_path: Path) -> Iterator[cloud.Cloud]:
    with cloud.running(tmp_path) as made:
        yield made


def restore(running: cloud.Cloud, copy: Path, database: Path) -> None:
    """Put the copy in the database's place while no conductor runs."""
    running.kill("conductor")
    for name in ("", "-wal", "-shm"):
        Path(f"{database}{name}").unlink(missing_ok=True)
    shutil.copy(copy, database)
    running.start("conductor")
    running.wait_until_ready()


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

        wait_for(f"{what} is accepted", accepted)
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

    restore(running, copy, database)

    act(stopped, "os-stop", "SHUTOFF")
    for _ in range(2):
        assert running.request("DELETE", f"/servers/{deleted}").status_code in (204, 404)
    wait_for("it is deleted", lambda: running.show(deleted) is None)
    wait_for("it is gone from its host", lambda: not running.holders(deleted))
    act(stopped, "os-start", "ACTIVE")
    wait_for("the audit names it", lambda: f"domain {unknown} of no server" in running.try_manage("audit").stdout)
    running.delete_all()
    wait_for("only it is left", lambda: set(running.domains()) == {unknown})
    assert running.try_manage("audit", "--fix").returncode == 1
    running.remove_domain(unknown)
    wait_for("nothing is open", lambda: running.try_manage("audit").returncode == 0)


def test_servers_with_newer_guests_are_taken_back_by_one_command(tmp_path: Path) -> None:
    """Servers were rebuilt and moved in the lost time. Two are adopted, one is rebuilt, and one deleted."""
    with cloud.running(tmp_path, computes=2) as running:
        database, copy = running.path / "nova-lite.sqlite", running.path / "copy.sqlite"
        servers = running.create(count=4)
        before = running.wait_active(servers)
        with sqlite3.connect(database) as source, sqlite3.connect(copy) as target:
            source.backup(target)
        moved, *rebuilt = servers
        for server_id in rebuilt:
            assert running.action(server_id, {"rebuild": {"imageRef": running.image_id}}).status_code == 202
        assert running.action(moved, {"migrate": None}).status_code == 202
        running.wait_settled(rebuilt)
        wait_for("it is resized", lambda: running.show(moved)["status"] == "VERIFY_RESIZE")  # type: ignore[index]
        assert running.action(moved, {"confirmResize": None}).status_code == 204
        there = running.wait_active([moved])[moved]["OS-EXT-SRV-ATTR:host"]
        assert there != before[moved]["OS-EXT-SRV-ATTR:host"]
        wait_for("it is at one host", lambda: running.holders(moved) == {there})

        restore(running, copy, database)

        def listed() -> dict[str, dict[str, Any]]:
            found = running.try_manage("--format", "json", "server", "newer").stdout
            return {item["server"]: item for item in json.loads(found)}

        wait_for("all are listed", lambda: set(listed()) == set(servers))
        item = listed()[moved]
        assert (item["row_host"], item["guest_host"]) == (before[moved]["OS-EXT-SRV-ATTR:host"], there)
        assert item["guest_generation"] > item["row_generation"]
        assert item["power"] == "running"
        table = running.try_manage("server", "newer")
        assert table.returncode == 1
        assert "--adopt" in table.stdout
        assert f"server {moved}" in running.try_manage("audit").stdout

        kept, again, gone = rebuilt
        running.manage("server", "newer", moved, "--adopt")
        running.manage("server", "newer", kept, "--adopt")
        running.manage("server", "newer", again, "--rebuild")
        running.manage("server", "newer", gone, "--delete")
        assert running.wait_settled([again])[again]["status"] == "ACTIVE"
        wait_for("it is deleted", lambda: running.show(gone) is None)
        wait_for("it is gone from its host", lambda: not running.holders(gone))
        for server_id, host in ((moved, there), (kept, before[kept]["OS-EXT-SRV-ATTR:host"])):
            found = running.show(server_id)
            assert found is not None
            assert (found["status"], found["OS-EXT-SRV-ATTR:host"]) == ("ACTIVE", host)
            for what, status in (("os-stop", "SHUTOFF"), ("os-start", "ACTIVE")):
                assert running.action(server_id, {what: None}).status_code == 202
                assert running.wait_settled([server_id])[server_id]["status"] == status
            assert running.holders(server_id) == {host}
        wait_for("none is listed", lambda: not listed())
        wait_for("the audit finds nothing", lambda: running.try_manage("audit").returncode == 0)
        refused = running.try_manage("server", "newer", kept, "--adopt")
        assert refused.returncode == 1
        assert "no host has reported a guest" in refused.stderr
        running.delete_all()
