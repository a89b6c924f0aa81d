"""``nova-lite-manage replication``: two sites with their own databases, and one journal."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.backups.site_journal import Reason, SiteGeneration, SiteJournal, SiteServer
from nova_lite.db.backups import backup_policies, replicated_servers
from nova_lite.db.core import models
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.servers import instances
from nova_lite.objects import BackupPolicy
from nova_lite.objects.backup import Every
from tests.support import make
from tests.support.manage import Tool, report

NOTHING = "00000000-0000-4000-8000-000000000000"


class Office:
    """The tool at one site, with a server and its policy."""

    def __init__(self, tool: Tool, path: Path, journal: Path, site: str, vm_state: str) -> None:
        self.tool, self.path = tool, path
        self.extra = f"[server_backups]\nengine = restic\nrepository = {path}/repository\n"
        self.extra += f"[replication]\ndirectory = {journal}\nsite = {site}"
        self.enter()
        database = self.database
        policy = BackupPolicy(name="p", every=Every.DAY, keep_daily=7, all_servers=True)
        self.policy = database.write(backup_policies.create, database.conf, make.context(), policy).id

        database.close()
        self._vm_state = vm_state
        self.uuid = self.add_server()

    def add_server(self) -> str:
        """Make a server that the policy backs up. Return its id."""

        def server(uow: UnitOfWork) -> str:
            past = uow.now - datetime.timedelta(days=1)
            return make.instance(uow, vm_state=self._vm_state, task_state=None, launched_at=past, host="h1")

        return self.write(server)

    def write(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Change the database of the site."""
        database = self.database
        try:
            return database.write(function, *arguments)
        finally:
            database.close()

    @property
    def database(self) -> Database:
        return self.tool.database_of()

    def enter(self) -> None:
        self.tool.configure(self.extra)

    def run(self, *words: str, status: int = 0) -> str:
        self.enter()
        self.tool("replication", *words, status=status)
        return self.tool.error

    def listed(self, status: int = 0) -> Any:
        self.enter()
        (found,) = self.tool.json("replication", "list", status=status)
        return found


@pytest.fixture
def office(tool: Tool, tmp_path: Path) -> Iterator[Office]:
    journal = tmp_path / "journal"
    journal.mkdir()
    yield Office(tool, tmp_path, journal, "east", "active")


def test_operator_enables_and_disables_replication(office: Office) -> None:
    office.run("enable", office.uuid, "--policy", office.policy)
    found = office.listed()
    assert (found["server"], found["replica_of"], found["role"], found["generation"]) == (
        office.uuid,
        office.uuid,
        "primary",
        1,
    )
    assert "replicated already" in office.run("enable", office.uuid, "--policy", office.policy, status=1)
    assert "no other site has joined" in office.run("failover", office.uuid, status=1)
    other = SiteJournal(str(office.path / "journal"), "west")
    assert other.other_site(office.uuid) == ("east", "its server is primary")
    office.run("disable", office.uuid)
    assert other.other_site(office.uuid) is None
    office.enter()
    assert office.tool.json("replication", "list") == []
    office.run("enable", office.uuid, "--policy", office.policy)
    assert office.listed()["generation"] == 1, "the journal has it from before"


def test_server_that_backups_leave_out_is_refused(office: Office) -> None:
    database = office.database
    database.write(backup_policies.update, make.context(), office.policy, {"enabled": False})
    database.close()
    assert "does not back this server up" in office.run("enable", office.uuid, "--policy", office.policy, status=1)
    assert "has no generation" in office.run(
        "join", office.uuid, "--replica-of", NOTHING, "--policy", NOTHING, status=1
    )


def test_second_replica_of_a_server_is_refused_until_the_first_one_is_deleted(tool: Tool, tmp_path: Path) -> None:
    """The operator gets a sentence, and no database error."""
    journal = tmp_path / "journal"
    journal.mkdir()
    office = Office(tool, tmp_path, journal, "west", "stopped")
    now = datetime.datetime.now(datetime.UTC)
    first = SiteGeneration(number=1, site="east", reason=Reason.ENABLED, written_at=now)
    assert SiteJournal(str(journal), "east").write(NOTHING, first)
    words = ("--replica-of", NOTHING, "--policy", office.policy)
    office.run("join", office.uuid, *words)
    another = office.add_server()
    assert f"has server {office.uuid} for it already" in office.run("join", another, *words, status=1)

    def delete(uow: UnitOfWork) -> None:
        instance = instances.lock(uow, office.uuid)
        assert instance is not None
        instance.deleted = True

    office.write(delete)
    office.run("join", another, *words)
    assert office.listed()["server"] == another


def test_failover_and_take_over_follow_the_journal(office: Office, tmp_path: Path) -> None:
    office.run("enable", office.uuid, "--policy", office.policy)
    other = SiteJournal(str(tmp_path / "journal"), "west")
    other.join(office.uuid, "its server is suspended")
    assert "west cannot take it now: its server is suspended" in office.run("failover", office.uuid, status=1)
    other.join(office.uuid)
    office.run("failover", office.uuid)
    assert office.listed()["role"] == "leaving"
    assert "roll the failover back first" in office.run("disable", office.uuid, status=1)
    assert "is not the primary" in office.run("failover", office.uuid, status=1)
    office.run("roll-back", office.uuid)
    newest = other.newest(office.uuid)
    assert (newest.number, newest.site, newest.reason) == (2, "east", "rolled back")
    assert "too late" in office.run("roll-back", office.uuid, status=1), "the conductor has not looked yet"
    assert "run twice" in office.run("take-over", office.uuid, status=1)
    assert "no replica" in office.run("take-over", office.uuid, "--other-site-is-off", status=1)
    other.write(office.uuid, type(newest)(number=3, site="west", reason=newest.reason, written_at=newest.written_at))
    database = office.database
    database.write(replicated_servers.learn, office.uuid, "east", other.newest(office.uuid), False)
    database.close()
    down = office.run("take-over", office.uuid, "--other-site-is-off", status=1)
    assert "its host h1 is down. Start it, or delete the server and join another one" in down
    report(office.tool, "h1")
    assert "nothing to run" in office.run("take-over", office.uuid, "--other-site-is-off", status=1)


def test_server_that_the_database_has_forgotten_is_replicated_again(office: Office) -> None:
    office.run("enable", office.uuid, "--policy", office.policy)
    office.write(replicated_servers.remove, office.uuid)
    office.enter()
    assert f"Server {office.uuid} is replicated again. It is primary." in office.tool("replication", "adopt")
    found = office.listed()
    assert (found["server"], found["role"], found["generation"]) == (office.uuid, "primary", 1)
    office.enter()
    assert "again" not in office.tool("replication", "adopt")
    journal = SiteJournal(str(office.path / "journal"), "east")
    another = SiteServer(instance_uuid=NOTHING, policy_id=office.policy, generation=1, last_generation=1)
    journal.note_server(office.uuid, another)
    office.enter()
    assert f"Disable the replication of {office.uuid}" in office.tool("replication", "adopt", status=1)
    office.run("disable", office.uuid)
    assert journal.servers() == {office.uuid: another}, "disabling the wrong one keeps the right one"


def test_server_that_the_journal_does_not_name_is_reported_by_adopt(office: Office) -> None:
    office.run("enable", office.uuid, "--policy", office.policy)
    SiteJournal(str(office.path / "journal"), "east").withdraw(office.uuid, office.uuid)
    office.enter()
    assert "If its replication was disabled, disable it again." in office.tool("replication", "adopt", status=1)


def test_server_whose_policy_the_database_has_forgotten_is_adopted_and_reported(office: Office) -> None:
    office.run("enable", office.uuid, "--policy", office.policy)
    office.write(replicated_servers.remove, office.uuid)
    office.write(lambda uow: uow.session.execute(sa.delete(models.BackupPolicy)))
    office.enter()
    said = office.tool("replication", "adopt", status=1)
    assert "is replicated again" in said and f"backup policy {office.policy} does not exist" in said
    assert office.listed()["role"] == "primary"
