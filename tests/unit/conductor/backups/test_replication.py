"""Servers with a replica at another site: two control planes, one repository, and one journal."""

from __future__ import annotations

import contextlib
import datetime
import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite import operations
from nova_lite.backups import disk_data
from nova_lite.backups.site_journal import Reason, SiteGeneration, SiteJournal, SiteServer
from nova_lite.base import exceptions
from nova_lite.conductor.backups.replication import Replication, SiteRights
from nova_lite.conductor.hosts.domains import DomainChecks
from nova_lite.db.backups import backup_policies, replicated_servers, server_backups
from nova_lite.db.core import models
from nova_lite.image import store
from nova_lite.objects import ActionReport, BackupStatus, BuildOutcome, BuildResult, DomainReport, ServerBackup
from nova_lite.objects.replication import ReplicatedServer, SiteRole
from nova_lite.operations.states import PowerState
from tests.support import make
from tests.support.backup_world import Killed
from tests.support.repository_world import SIZE, FakeRepository, InRepository

PRIMARY, LEAVING, REPLICA, ARRIVING = SiteRole


class Site(InRepository):
    """A site with one server, its host, and its disk. ``guest``: it runs. ``power``: of the site."""

    def __init__(self, path: Path, name: str, directory: Path, repository: FakeRepository) -> None:
        path.mkdir()
        super().__init__(path)
        self.name, self.directory, self.shared = name, directory, repository
        self.database_path = path / "db.sqlite"
        self.guest = self.power = True
        self.obeyed = self.built_number = 0
        self.disk_generation = self.instance(self.uuid).generation
        self.return_to_life()

    def return_to_life(self) -> None:
        """Start the conductor again."""
        self.repository = self.shared
        self.begin_anew()
        self.journal = SiteJournal(str(self.directory), self.name)
        self.rights = SiteRights(self.engine, self.journal)
        self.domains = DomainChecks(self.engine)
        self.building._require_site = self.rights.require_for_build
        self.replication = Replication(self.engine, self.journal, self.stored)

    @property
    def server(self) -> ReplicatedServer:
        return self.db.read(replicated_servers.get, self.uuid)

    def enable(self) -> None:
        first = SiteGeneration(
            number=1, site=self.name, reason=Reason.ENABLED, written_at=datetime.datetime(2026, 1, 1)
        )
        assert self.journal.write(self.uuid, first)
        self.journal.join(self.uuid)
        self.insert(self.uuid, PRIMARY, 1)
        self.note_server(self.uuid)

    def join(self, server_id: str) -> None:
        self.user_wants("stop")
        self.obey()
        self.insert(server_id, REPLICA, 1)
        self.journal.join(server_id)
        self.note_server(server_id)

    def note_server(self, server_id: str) -> None:
        self.journal.note_server(server_id, self.db.read(replicated_servers.described, self.server))

    def insert(self, server_id: str, role: SiteRole, generation: int, known: list[ServerBackup] | None = None) -> None:
        context = self.context(admin=True)
        arguments = (context, self.uuid, server_id, self.policy.id, role, generation, known)
        self.db.write(replicated_servers.insert, *arguments)

    def roll_back(self) -> None:
        """Do as the operator's command does."""
        newest = self.journal.newest(self.uuid)
        following = SiteGeneration(
            number=newest.number + 1, site=self.name, reason=Reason.ROLLED_BACK, written_at=newest.written_at
        )
        following.backups = self.journal.last_backups(self.uuid, newest)
        assert self.journal.write(self.uuid, following)

    def fail_over(self) -> None:
        self.db.write(replicated_servers.leave, self.uuid)

    def take_over(self) -> bool:
        """Do as the operator's command does."""
        newest = self.journal.newest(self.server.server_id)
        following = SiteGeneration(
            number=newest.number + 1, site=self.name, reason=Reason.UNPLANNED, written_at=newest.written_at
        )
        following.backups = self.journal.last_backups(self.server.server_id, newest)
        return self.journal.write(self.server.server_id, following)

    def adopt(self) -> SiteRole | None:
        """Do as the operator's command does for the only server in the journal."""
        ((server_id, server),) = self.journal.servers().items()
        newest = self.journal.newest(server_id)
        is_here = self.journal.is_here(server_id, newest)
        return self.db.write(replicated_servers.adopt, self.name, server_id, server, newest, is_here)

    def forget(self) -> None:
        """Lose that the server is replicated, as a database does that is restored."""
        self.db.write(replicated_servers.remove, self.uuid)

    def copy_database(self) -> Path:
        copy = self.directory.with_name(f"{self.name}-{self.server.role}.sqlite")
        _copy(self.database_path, copy)
        return copy

    def restore_database(self, copy: Path) -> None:
        """Continue with an earlier database."""
        _copy(copy, self.database_path)
        self.return_to_life()

    def user_wants(self, kind: str, **payload: Any) -> None:
        self.engine.send(self.actions.accept_action(self.context(), self.uuid, kind, payload), self.context())

    def age(self, **values: datetime.timedelta) -> None:
        """Move times of all backups into the past, and the begin of the generation with them."""
        super().age(**values)

        def write(uow: Any) -> None:
            for row in uow.session.query(models.ReplicatedServer):
                row.since = row.since and row.since - values["started_at"]

        self.db.write(write)

    # --- the host

    @property
    def power_state(self) -> PowerState:  # type: ignore[override]
        return PowerState.RUNNING if self.guest else PowerState.SHUTDOWN

    def lose_power(self) -> None:
        self.power = self.guest = False

    def compare(self) -> None:
        """Report the domain, as the host does."""
        host = str(self.instance(self.uuid).host)
        report = DomainReport(uuid=self.uuid, generation=self.disk_generation, power_state=int(self.power_state))
        self.domains.reconcile_domains(self.context(), host, [report], [])

    def obey(self) -> None:
        """Carry out the commands and builds that wait for the host, as it does."""
        while self.obeyed < len(self.compute.commands):
            command = self.compute.commands[self.obeyed]
            self.obeyed += 1
            error = None
            if command.instance.generation != self.disk_generation:
                self.reports.finish_action(
                    self.context(),
                    ActionReport(host=str(command.host), action_id=command.action_id, error="No domain."),
                )
                continue
            if operations.asks_for_right(command.action, command.payload, command.instance.site_role):
                may = self.rights.site_right_get(self.context(), str(command.host), self.uuid)
                error = None if may else "It may not run here."
            if command.method == "backup_disk":
                self.finish_backup(command)
                continue
            if error is None and command.method in ("start_instance", "stop_instance"):
                self.guest = command.method == "start_instance"
            power = int(self.power_state)
            self.reports.finish_action(
                self.context(),
                ActionReport(host=str(command.host), action_id=command.action_id, power_state=power, error=error),
            )
        while self.built_number < len(self.compute.builds):
            host, request = self.compute.builds[self.built_number]
            self.built_number += 1
            if request.generation == self.instance(self.uuid).generation >= self.disk_generation:
                self.build(host, request)

    def finish_backup(self, command: Any) -> None:
        """Upload the disk, if the conductor still waits for it."""
        action = self.db.read(lambda uow: uow.session.get(models.InstanceAction, command.action_id))
        if action is not None and action.finish_time is None and action.step == operations.PERFORM:
            self.finish()

    def build(self, host: str, request: Any) -> None:
        outcome, message = BuildOutcome.BUILT, ""
        try:
            if request.generation > self.disk_generation:
                self.make_disk(host, request)
        except exceptions.ServerAtOtherSite as error:
            outcome, message = BuildOutcome.ABORTED, error.message
        result = BuildResult(
            instance_uuid=self.uuid,
            host=host,
            generation=request.generation,
            outcome=outcome,
            power_state=1,
            message=message,
            action_id=request.action_id,
        )
        self.reports.finish_build(self.context(), result)

    def make_disk(self, host: str, request: Any) -> None:
        self.reports.start_build(self.context(), self.uuid, host, request.generation)
        backup_id = request.image.properties["backup_id"]
        self.disk = bytearray(self.content(backup_id, store.file_path(str(self.store), request.image.id)))
        self.guest, self.disk_generation = True, request.generation

    def content(self, backup_id: str, path: str) -> bytes:
        """Return the disk of a backup. The image has to be there."""
        assert Path(path).exists()
        links = self.server.backups
        assert links[-1].id == backup_id
        layers = []
        for link in links:
            source = self.repository.read(str(link.snapshot), str(link.digest)).__enter__()
            layers.append((disk_data.read_header(source), source))
        disk = bytearray(SIZE)
        for offset, chunk in disk_data.fold(layers)[1]:
            disk[offset : offset + len(chunk)] = chunk
        return bytes(disk)

    def live(self) -> None:
        """Let all daemons of the site work once."""
        if not self.power:
            return
        self.compare()
        self.replication.run()
        self.obey()
        self.backups.run()
        self.obey()
        self.stored.run()
        self.let_time_pass(60)
        self.reconciler.sweep()
        self.obey()


def _copy(source: Path, target: Path) -> None:
    with contextlib.closing(sqlite3.connect(source)) as read, contextlib.closing(sqlite3.connect(target)) as written:
        read.backup(written)


class Sites:
    def __init__(self, path: Path) -> None:
        directory, repository = path / "journal", FakeRepository()
        directory.mkdir()
        self.first = Site(path / "a", "a", directory, repository)
        self.second = Site(path / "b", "b", directory, repository)
        self.first.enable()
        self.second.join(self.first.uuid)

    def live(self, times: int = 8) -> None:
        for _ in range(times):
            for site in (self.first, self.second):
                site.live()
                assert not (self.first.guest and self.second.guest), "it runs twice"

    def live_until(self, target: Site) -> None:
        """Let both sites work until this one is the primary."""
        for _ in range(10):
            if target.server.role is PRIMARY:
                return
            self.live(1)
        raise AssertionError(f"{self.roles}: {self.first.server.reason}, {self.second.server.reason}")

    @property
    def roles(self) -> tuple[str, str]:
        return self.first.server.role, self.second.server.role

    @property
    def guests(self) -> tuple[bool, bool]:
        return self.first.guest, self.second.guest


@pytest.fixture
def sites(tmp_path: Path) -> Sites:
    return Sites(tmp_path)


def test_planned_failover_and_failback_lose_nothing(sites: Sites) -> None:
    sites.first.make()
    sites.first.disk[-9:] = b"last work"
    sites.first.fail_over()
    sites.live()
    assert (sites.roles, sites.guests) == ((REPLICA, PRIMARY), (False, True))
    assert sites.second.disk == sites.first.disk
    sites.second.disk[:6] = b"abroad"
    sites.second.fail_over()
    sites.live()
    assert (sites.roles, sites.guests) == ((PRIMARY, REPLICA), (True, False))
    assert bytes(sites.first.disk).startswith(b"abroad")
    assert bytes(sites.first.disk).endswith(b"last work")
    assert sites.first.journal.newest(sites.first.uuid).number == 3


def test_unplanned_failover_begins_with_the_last_published_backup(sites: Sites) -> None:
    sites.first.disk[-5:] = b"saved"
    sites.first.make()
    sites.live(1)
    sites.first.disk[-5:] = b"never"
    sites.first.lose_power()
    assert sites.second.take_over()
    sites.live()
    assert sites.guests == (False, True)
    assert bytes(sites.second.disk).endswith(b"saved")


@pytest.mark.parametrize("follows", [False, True])
def test_site_that_returns_starts_nothing(sites: Sites, follows: bool) -> None:
    """A command to start the server waits in the broker of the lost site, and its row still says that it may run."""
    sites.first.make()
    sites.live(1)
    sites.first.user_wants("stop")
    sites.first.obey()
    sites.first.user_wants("start")
    sites.first.lose_power()
    assert sites.second.take_over()
    sites.live(4)
    sites.first.power = True
    if follows:
        sites.first.replication.run()
        with pytest.raises(exceptions.ServerAtOtherSite):
            sites.first.user_wants("start")
    sites.first.obey()
    assert sites.guests == (False, True)
    sites.live(2)
    assert (sites.roles, sites.guests) == ((REPLICA, PRIMARY), (False, True))


def test_guest_that_runs_although_it_was_called_off_is_stopped(sites: Sites) -> None:
    """The operator's word was false."""
    sites.first.make()
    sites.live(1)
    assert sites.second.take_over()
    sites.first.live()
    sites.first.live()
    assert (sites.first.server.role, sites.first.guest) == (REPLICA, False)


def test_server_without_the_journal_stays_off(sites: Sites) -> None:
    sites.first.user_wants("stop")
    sites.first.obey()
    sites.first.user_wants("start")
    sites.first.directory.rename(sites.first.directory.with_name("gone"))
    with pytest.raises(exceptions.SiteJournalUnavailable):
        sites.first.obey()
    assert not sites.first.guest
    sites.first.replication.run()
    assert "cannot be used" in str(sites.first.server.reason)


def test_failover_that_is_taken_back_leaves_the_server_where_it_is(sites: Sites) -> None:
    sites.first.make()
    sites.first.fail_over()
    sites.first.replication.run()
    sites.first.obey()
    number = sites.first.server.generation + 1
    kept = SiteGeneration(number=number, site="a", reason=Reason.ROLLED_BACK, written_at=datetime.datetime(2026, 1, 1))
    assert sites.first.journal.write(sites.first.uuid, kept)
    sites.live(3)
    assert sites.roles == (PRIMARY, REPLICA)
    sites.first.user_wants("start")
    sites.first.obey()
    assert sites.guests == (True, False)


def test_failover_that_is_taken_back_keeps_the_data_that_the_replica_begins_with(sites: Sites) -> None:
    """Retention keeps one backup of a day. The last backup is a whole disk, because the guest is off."""
    first = sites.first
    retention = {"keep_hourly": 0, "keep_daily": 7}
    first.db.write(backup_policies.update, first.context(), first.policy.id, retention)
    published = first.make()
    sites.live(1)
    first.fail_over()
    for _ in range(3):
        first.replication.run()
        first.obey()
        first.backups.run()
        first.obey()
    first.disk[-3:] = b"off"
    last = first.server.backup_id
    first.stored.run()

    def make_whole(uow: Any) -> None:
        row = uow.session.query(models.ServerBackup).filter_by(uuid=last).one()
        assert row.status == BackupStatus.COMPLETE
        row.base_id, row.increments = None, 0

    first.db.write(make_whole)
    first.roll_back()
    first.replication._follow(first.server)
    first.backups.run()
    first.stored.run()
    assert str(published.snapshot) in first.repository.snapshots
    first.replication.run()
    offered = first.journal.last_backups(first.uuid, first.journal.newest(first.uuid))
    assert [backup.id for backup in offered] == [last], "the last backup is of the same line"
    assert first.server.published == last


def test_replication_enabled_again_publishes_no_backup_of_another_line(sites: Sites) -> None:
    first, second = sites.first, sites.second
    first.make()
    sites.live(1)
    first.fail_over()
    sites.live()
    second.disk[:6] = b"abroad"
    second.fail_over()
    sites.live()
    newest = first.journal.newest(first.uuid)
    begun = first.journal.last_backups(first.uuid, newest)
    first.db.write(replicated_servers.remove, first.uuid)
    first.insert(first.uuid, PRIMARY, newest.number, begun)
    first.replication.run()
    assert first.journal.last_backups(first.uuid, newest) == begun
    assert first.server.published == begun[-1].id
    newer = first.make()
    sites.live(1)
    assert first.server.published == newer.id


def test_journal_made_anew_restores_no_image_of_an_earlier_generation(sites: Sites) -> None:
    first, second = sites.first, sites.second
    for site in (first, second):
        site.make()
        site.fail_over()
        sites.live()
    first.directory.rename(first.directory.with_name("gone"))
    first.directory.mkdir()
    for site in (first, second):
        site.db.write(replicated_servers.remove, site.uuid)
    first.enable()
    second.insert(first.uuid, REPLICA, 1)
    second.journal.join(first.uuid)
    first.disk[:5] = b"newer"
    first.make()
    sites.live(1)
    first.fail_over()
    sites.live()
    assert (sites.roles, sites.guests) == ((REPLICA, PRIMARY), (False, True))
    assert bytes(second.disk).startswith(b"newer")


@pytest.mark.parametrize("known", [PRIMARY, REPLICA, ARRIVING])
def test_site_with_a_restored_database_keeps_the_disk_that_it_has_built(sites: Sites, known: SiteRole) -> None:
    """Its server went to the other site and came back. The backup of the database knows a part of that."""
    first, second = sites.first, sites.second
    copies = {PRIMARY: first.copy_database()}
    first.make()
    first.fail_over()
    sites.live_until(second)
    sites.live(1)
    copies[REPLICA] = first.copy_database()
    second.make()
    second.fail_over()
    for _ in range(10):
        sites.live(1)
        second.live()
        first.replication.run()
        if first.server.role is ARRIVING:
            copies[ARRIVING] = first.copy_database()
            break
    sites.live_until(first)
    sites.live(1)
    first.disk[:5] = b"newer"
    first.restore_database(copies[known])
    assert first.server.role is known
    sites.live()
    assert sites.roles == (PRIMARY, REPLICA)
    assert bytes(first.disk).startswith(b"newer")
    assert not second.guest
    first.fail_over()
    sites.live()
    assert (sites.roles, sites.guests) == ((REPLICA, PRIMARY), (False, True))
    assert bytes(second.disk).startswith(b"newer"), "its guest could be operated"
    second.disk[:5] = b"third"
    second.fail_over()
    sites.live()
    assert bytes(first.disk).startswith(b"third")


def test_site_that_has_forgotten_a_round_trip_gets_the_data_of_the_next_one(sites: Sites) -> None:
    """Its server was rebuilt once more than the restored database knows."""
    first, second = sites.first, sites.second
    first.make()
    first.fail_over()
    sites.live()
    copy = first.copy_database()
    for site in (second, first):
        site.fail_over()
        sites.live()
    assert sites.roles == (REPLICA, PRIMARY)
    second.disk[:5] = b"newer"
    first.restore_database(copy)
    sites.live()
    second.fail_over()
    sites.live()
    assert (sites.roles, sites.guests) == ((PRIMARY, REPLICA), (True, False))
    assert bytes(first.disk).startswith(b"newer")


def test_failover_without_its_policy_is_refused_before_the_server_stops(sites: Sites) -> None:
    first = sites.first
    first.db.write(lambda uow: uow.session.execute(sa.delete(models.BackupPolicy)))
    with pytest.raises(exceptions.InvalidInput, match="does not exist any more"):
        first.fail_over()
    assert first.server.role is PRIMARY


def test_site_that_has_seen_a_newer_journal_writes_nothing(sites: Sites) -> None:
    """The journal was restored from a copy. Another site may write the generation again."""
    first = sites.first
    first.db.write(lambda uow: uow.session.execute(sa.update(models.ReplicatedServer).values(generation=3)))
    first.make()
    first.replication.run()
    assert "the journal has generation 1, which is older than 3 here" in str(first.server.reason)
    assert not list(first.directory.glob("*/00000003.*"))


def test_replica_that_replaces_a_deleted_one_is_noted(sites: Sites) -> None:
    """The command that joined it was interrupted before it wrote into the journal."""
    second = sites.second
    deleted = SiteServer(
        instance_uuid="00000000-0000-4000-8000-000000000000", policy_id="p", generation=1, last_generation=1
    )

    def write(uow: Any) -> None:
        make.instance(uow, uuid=deleted.instance_uuid, deleted=True)

    second.db.write(write)
    second.journal.note_server(sites.first.uuid, deleted)
    second.replication.run()
    known = second.journal.server(sites.first.uuid)
    assert known is not None and known.instance_uuid == second.uuid


@pytest.mark.parametrize("is_built", [True, False], ids=["built", "not built"])
def test_restored_database_learns_again_which_servers_are_replicated(sites: Sites, is_built: bool) -> None:
    first, second = sites.first, sites.second
    first.disk[:5] = b"older"
    first.make()
    first.fail_over()
    if is_built:
        sites.live()
        second.disk[:5] = b"newer"
    else:
        while first.server.role is LEAVING:
            first.live()
    for site in (first, second):
        site.forget()
    assert (first.adopt(), second.adopt()) == (REPLICA, PRIMARY if is_built else ARRIVING)
    assert first.adopt() is None, "nothing is lost any more"
    sites.live()
    assert (sites.roles, sites.guests) == ((REPLICA, PRIMARY), (False, True))
    assert bytes(second.disk).startswith(b"newer" if is_built else b"older")


def test_server_that_is_ordinary_again_is_not_adopted(sites: Sites) -> None:
    sites.live(1)
    assert sites.first.journal.servers()
    sites.first.forget()
    sites.first.journal.withdraw(sites.first.uuid, "another")
    assert sites.first.journal.servers(), "the journal has another server for it"
    sites.first.journal.withdraw(sites.first.uuid, sites.first.uuid)
    assert sites.first.journal.servers() == {}


def test_server_waits_if_the_journal_has_another_one_of_its_site(sites: Sites) -> None:
    """The database is older than the replica that has replaced this one."""
    another = SiteServer(
        instance_uuid="00000000-0000-4000-8000-000000000000", policy_id="p", generation=1, last_generation=1
    )
    sites.second.journal.note_server(sites.first.uuid, another)
    sites.second.replication.run()
    assert f"the journal has server {another.instance_uuid} of this site" in str(sites.second.server.reason)
    with pytest.raises(exceptions.InvalidInput, match="Disable the replication of"):
        sites.second.adopt()


def test_replica_whose_host_is_down_takes_no_server_over(sites: Sites) -> None:
    second = sites.second
    assert second.db.read(replicated_servers.down_host, second.uuid) == ""
    second.db.write(lambda uow: uow.session.execute(sa.update(models.Service).values(forced_down=True)))
    second.replication.run()
    target = sites.first.journal.other_site(sites.first.uuid)
    assert target is not None and "is down" in target.obstacle


@pytest.mark.parametrize("umask", [0o022, 0o027])
def test_directory_of_a_server_is_for_the_group_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    journal = SiteJournal(str(tmp_path), "a")
    server_id = "00000000-0000-4000-8000-000000000000"
    first = SiteGeneration(number=1, site="a", reason=Reason.ENABLED, written_at=datetime.datetime(2026, 1, 1))
    before = os.umask(umask)
    try:
        assert journal.write(server_id, first)
        assert stat.S_IMODE((tmp_path / server_id).stat().st_mode) == 0o2770
        (tmp_path / server_id).chmod(0o2750)
        journal.join(server_id)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / server_id).stat().st_mode) == 0o2770, "enable repairs it"


@pytest.mark.parametrize("state", ["deleted", "suspended", "disabled"])
def test_server_does_not_leave_for_a_site_that_cannot_take_it(sites: Sites, state: str) -> None:
    first, second = sites.first, sites.second

    def suspend(uow: Any) -> None:
        row = uow.session.query(models.Instance).filter_by(uuid=second.uuid).one()
        row.vm_state, row.power_state = "suspended", PowerState.SUSPENDED

    first.make()
    sites.live(1)
    if state == "deleted":
        second.user_wants("delete")
        second.obey()
    elif state == "suspended":
        second.db.write(suspend)
    else:
        second.db.write(replicated_servers.remove, second.uuid)
        second.journal.withdraw(first.uuid, second.uuid)
    second.replication.run()
    found = first.journal.other_site(first.uuid)
    assert found is None or "suspended" in found.obstacle
    assert (found is None) == (state != "suspended")
    first.fail_over()
    sites.live(4)
    assert first.server.role is LEAVING
    assert first.journal.newest(first.uuid).number == 1
    assert ("suspended" if found else "no other site") in str(first.server.reason)
    assert not found or "suspended" in str(second.server.reason)


def test_site_without_its_power_is_not_ready_until_it_is_the_replica(sites: Sites) -> None:
    first, second = sites.first, sites.second
    first.make()
    sites.live(1)
    first.lose_power()
    assert second.take_over()
    sites.live(4)
    found = second.journal.other_site(first.uuid)
    assert found is not None
    assert "primary" in found.obstacle
    first.power = True
    sites.live(3)
    assert second.journal.other_site(first.uuid) == ("a", "")


def test_generation_is_written_by_one_site(sites: Sites) -> None:
    time = datetime.datetime(2026, 1, 1)
    wanted = [SiteGeneration(number=2, site=site, reason=Reason.PLANNED, written_at=time) for site in ("a", "b")]
    assert [sites.first.journal.write(sites.first.uuid, item) for item in wanted] == [True, False]
    assert sites.second.journal.newest(sites.first.uuid).site == "a"


def test_late_backup_of_a_lost_site_is_not_restored(sites: Sites) -> None:
    sites.first.make()
    sites.live(1)
    sites.first.lose_power()
    assert sites.second.take_over()
    sites.live(4)
    sites.first.journal.publish(sites.first.uuid, 1, [sites.first.make()])
    newest = sites.second.journal.newest(sites.first.uuid)
    offered = sites.second.journal.last_backups(sites.first.uuid, newest)
    assert [backup.id for backup in offered] == [backup.id for backup in newest.backups]


def test_data_that_another_site_may_begin_with_are_kept(sites: Sites) -> None:
    made = sites.first.make()
    sites.live(1)
    assert sites.first.server.published == made.id
    sites.first.db.write(server_backups.delete, sites.first.context(), made.id)
    sites.first.stored.run()
    assert str(made.snapshot) in sites.first.repository.snapshots
    newer = sites.first.make()
    sites.live(2)
    assert sites.first.server.published == newer.id
    assert str(made.snapshot) not in sites.first.repository.snapshots


def test_operation_of_the_failover_itself_is_accepted_in_any_role(sites: Sites) -> None:
    site = sites.second
    site.replication.run()
    with pytest.raises(exceptions.ServerAtOtherSite):
        site.user_wants("start")
    command = site.db.write(site.engine.accept_in, site.context(), site.uuid, "start", {}, by_replication=True)
    assert command.instance.site_role == site.instance(site.uuid).site_role == REPLICA


def test_replica_is_not_backed_up_and_refuses_what_may_start_it(sites: Sites) -> None:
    sites.second.begin()
    assert sites.second.rows() == []
    for kind, payload in (("start", {}), ("reboot", {"reboot_type": "HARD"})):
        with pytest.raises(exceptions.ServerAtOtherSite):
            sites.second.user_wants(kind, **payload)
    sites.second.user_wants("delete")
    sites.live(1)
    assert sites.second.db.read(replicated_servers.list_) == []


#: Commits, and operations on journal and images, of a failover.
STEPS = (
    "_begin_stop",
    "last_backup",
    "write",
    "learn",
    "rebuild_ended",
    "make_images",
    "_begin_rebuild",
    "publish",
    "note_published",
)


class Killer:
    """Kills a conductor of any site right before, or right after, it first does ``step``."""

    def __init__(self, sites: Sites, step: str, is_after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        self.step, self.is_after, self.has_killed = step, is_after, False
        for site in (sites.first, sites.second):
            monkeypatch.setattr(site.db, "write", self.named(site.db.write))
            for owner, names in ((site.journal, ("write", "publish")), (site.stored, ("make_images",))):
                for name in names:
                    monkeypatch.setattr(owner, name, self.wrapped(name, getattr(owner, name)))

    def named(self, write: Any) -> Any:
        return lambda function, *arguments: self.passing(function.__name__, lambda: write(function, *arguments))

    def wrapped(self, name: str, function: Any) -> Any:
        return lambda *arguments: self.passing(name, lambda: function(*arguments))

    def passing(self, name: str, act: Callable[[], Any]) -> Any:
        if self.has_killed or name != self.step:
            return act()
        self.has_killed = True
        if self.is_after:
            act()
        raise Killed


@pytest.mark.parametrize("is_after", [False, True])
def test_conductors_that_die_at_any_step_neither_lose_nor_double_a_server(sites: Sites, is_after: bool) -> None:
    """The server goes to and fro. In each failover, a conductor dies at one step."""
    source, target = sites.first, sites.second
    for number, step in enumerate(STEPS):
        source.disk[-2:] = number.to_bytes(2)
        work = bytes(source.disk)
        with pytest.MonkeyPatch.context() as patched:
            killer = Killer(sites, step, is_after, patched)
            with contextlib.suppress(Killed):
                source.make()
                sites.live(1)
                source.fail_over()
                sites.live_until(target)
        assert killer.has_killed, step
        for site in (source, target):
            site.return_to_life()
        if source.server.role is PRIMARY:
            source.fail_over()
        sites.live_until(target)
        assert (source.server.role, source.guest, target.guest) == (REPLICA, False, True), step
        assert bytes(target.disk) == work, step
        source, target = target, source
