"""Two clouds with their own databases and brokers, one repository, and one journal: failover, loss, and failback."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_lite.backups import repository
from tests.functional.cloud import Cloud
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(shutil.which(repository.PROGRAM) is None, reason="no restic")

CONFIG = """
[server_backups]
engine = restic
repository = {shared}/repository
password_file = {shared}/password
interval = 0.5
spread = 0
retry_seconds = 1
[replication]
directory = {shared}/journal
site = {site}
interval = 0.5
"""
POLICY = {
    "name": "p",
    "schedule": {"every": "week", "weekday": "monday", "hour": 0, "minute": 0},
    "retention": {"hourly": 0, "daily": 0, "weekly": 2},
    "targets": {"all": True},
}


class SiteCloud(Cloud):
    """A site with one host and one server. ``server``: its id."""

    def __init__(self, path: Path, shared: Path, site: str) -> None:
        path.mkdir()
        super().__init__(path, computes=1, extra_config=CONFIG.format(shared=shared, site=site))
        self.server = self.policy = ""

    def fill(self) -> None:
        self.make()
        self.start_all()
        (self.server,) = self.create()
        self.wait_active([self.server])
        answer = self.request("POST", "/os-backup-policies", {"backup_policy": POLICY})
        assert answer.status_code == 201, answer.text
        self.policy = answer.json()["backup_policy"]["id"]

    def back_up(self) -> str:
        """Make a backup, and wait until the journal has it."""
        answer = self.request("POST", f"/os-backup-policies/{self.policy}/run", {"run": {}})
        assert answer.status_code in (200, 202), answer.text

        def complete() -> list[str]:
            found = self.request("GET", "/os-server-backups?status=complete").json()["server_backups"]
            return [item["id"] for item in found]

        newest = wait_for("the backup is complete", complete)[0]
        wait_for("the journal has it", lambda: self.replica["published_backup"] == newest)
        return str(newest)

    @property
    def replica(self) -> dict[str, Any]:
        result = self.try_manage("replication", "list", "--format", "json")
        (found,) = json.loads(result.stdout)
        return dict(found)

    @property
    def status(self) -> str:
        return str((self.show(self.server) or {})["status"])

    def copy_database(self) -> None:
        with sqlite3.connect(self.path / "nova-lite.sqlite") as source, sqlite3.connect(self.path / "copy") as target:
            source.backup(target)

    def restore_database(self) -> None:
        """Replace the database by the copy, as after a restore."""
        for name in ("", "-wal", "-shm"):
            Path(self.path / f"nova-lite.sqlite{name}").unlink(missing_ok=True)
        shutil.copy(self.path / "copy", self.path / "nova-lite.sqlite")

    def wait_for_role(self, role: str, status: str) -> None:
        def reached() -> bool:
            return (self.replica["role"], self.status) == (role, status)

        try:
            wait_for(f"{role} and {status}", reached)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.replica} {self.status}\n{self.all_logs()}") from None

    @property
    def runs(self) -> bool:
        return bool((self._domain("compute-1", f"{self.server}.json") or (False, 0))[0])


@pytest.fixture
def clouds(tmp_path: Path) -> Iterator[tuple[SiteCloud, SiteCloud]]:
    shared = tmp_path / "shared"
    (shared / "journal").mkdir(parents=True)
    (shared / "password").write_text("secret")
    (shared / "password").chmod(0o600)
    east, west = (SiteCloud(tmp_path / site, shared, site) for site in ("east", "west"))
    with contextlib.ExitStack() as undo:
        for cloud in (east, west):
            undo.callback(cloud.destroy)
            cloud.fill()
        yield east, west


def test_server_fails_over_to_another_cloud_and_back(clouds: tuple[SiteCloud, SiteCloud]) -> None:
    east, west = clouds
    assert west.action(west.server, {"os-stop": None}).status_code == 202
    wait_for("the replica is off", lambda: west.status == "SHUTOFF")
    east.manage("replication", "enable", east.server, "--policy", east.policy)
    west.manage("replication", "join", west.server, "--replica-of", east.server, "--policy", west.policy)
    assert west.action(west.server, {"os-start": None}).status_code == 409

    east.copy_database()
    east.manage("replication", "failover", east.server)
    wait_for("it leaves", lambda: not east.runs)
    east.kill("conductor")
    assert not west.runs
    east.start("conductor")
    east.wait_for_role("replica", "SHUTOFF")
    west.wait_for_role("primary", "ACTIVE")
    assert (east.runs, west.runs) == (False, True)

    west.back_up()
    assert west.action(west.server, {"os-stop": None}).status_code == 202
    wait_for("it is off", lambda: west.status == "SHUTOFF")
    west.kill("compute-1")
    assert west.action(west.server, {"os-start": None}).status_code == 202
    west.kill("conductor")
    assert "run twice" in east.try_manage("replication", "take-over", east.server).stderr
    east.manage("replication", "take-over", east.server, "--other-site-is-off")
    east.wait_for_role("primary", "ACTIVE")

    west.start("conductor")
    west.start("compute-1")
    west.wait_for_role("replica", "SHUTOFF")
    (found,) = west.wait_settled([west.server]).values()
    assert found["status"] == "SHUTOFF", "a start waited in its broker and its database"
    assert (east.runs, west.runs) == (True, False)
    assert west.action(west.server, {"os-start": None}).status_code == 409

    # The database of the first site is restored. Its server was rebuilt since the backup, which knows of no failover.
    east.kill("conductor")
    east.restore_database()
    assert "replicated again" not in east.manage("replication", "adopt")
    east.start("conductor")
    east.wait_until_ready()
    wait_for(
        "it knows the newest generation", lambda: (east.replica["role"], east.replica["generation"]) == ("primary", 3)
    )
    assert (east.runs, west.runs) == (True, False)
    assert east.action(east.server, {"os-stop": None}).status_code == 202
    wait_for("its guest obeys", lambda: not east.runs and east.status == "SHUTOFF")
    east.manage("replication", "failover", east.server)
    west.wait_for_role("primary", "ACTIVE")
    east.wait_for_role("replica", "SHUTOFF")
