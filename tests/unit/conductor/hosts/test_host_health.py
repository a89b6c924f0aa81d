"""Hosts with problems: who disables and drains them, when, and how many at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.base.timing import ConductorTiming
from nova_lite.conductor.hosts.health import EVENT, ROOM_INTERVAL, HealthKeeper
from nova_lite.db.core import models
from nova_lite.db.hosts import host_health, hosts, services
from nova_lite.objects import HostProblem
from tests.support.clock import Clock
from tests.support.conductor_world import World, heartbeat

DISK = HostProblem(key="disk/smart/a", kind="disk", text="Disk /dev/sda says that it fails (SMART).")
LINK = HostProblem(key="network/link/a", kind="network", text="Network card a has no link.")


class Filters:
    """Scheduler of which these hosts pass the filters."""

    def __init__(self) -> None:
        self.passing = ["host1", "host2"]

    def fitting_hosts(self, context: Any, specs: list[Any]) -> list[list[str]]:
        return [self.passing for _ in specs]


class Health(World):
    """A world whose ``host1`` has two servers."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.conf.set_override("hold", 0.0, "host_health")
        self.scheduler.hosts = ["host1"]
        self.uuids = [self.built()[0] for _ in range(2)]
        self.scheduler.hosts = ["host2"]
        self.filters = Filters()
        self.clock = Clock()
        self.timing = ConductorTiming()
        self.keeper = self.new_keeper()
        self.db.write(services.report, self.conf.host, services.CONDUCTOR, "conductor", "")

    def move_at_once(self, servers: int) -> None:
        self.timing = ConductorTiming(health_moves=servers)
        self.keeper = self.new_keeper()

    def new_keeper(self) -> HealthKeeper:
        return HealthKeeper(self.engine, self.filters, self.clock, self.timing)  # type: ignore[arg-type]

    def act(self, action: str, *problems: HostProblem, host: str = "host1") -> None:
        """Let a host report its problems, and the conductor look."""
        self.conf.set_override("action", action, "host_health")
        report = msgspec.structs.replace(heartbeat(host), health=list(problems))
        self.db.write(hosts.report_state, self.conf, report)
        self.keeper.run_if_first()

    def reason(self, host: str = "host1") -> tuple[bool, str | None]:
        service = self.db.read(services.find, host, services.COMPUTE)
        assert service is not None
        return service.disabled, service.disabled_reason

    def enable(self, host: str = "host1") -> None:
        service = self.db.read(services.find, host, services.COMPUTE)
        assert service is not None
        self.db.write(services.update, service.uuid, {"disabled": False})

    def state(self, host: str = "host1") -> str:
        return next(item.state for item in self.db.read(host_health.list_) if item.host == host)

    def moves(self) -> list[tuple[str, str]]:
        """Return kind and server of each move that is open."""
        query = sa.select(models.InstanceAction).where(models.InstanceAction.finish_time.is_(None))
        rows = self.db.read(lambda uow: list(uow.session.scalars(query.order_by(models.InstanceAction.id))))
        assert all(EVENT in [event["event"] for event in row.events] for row in rows)
        return [(row.action, row.instance_uuid) for row in rows]

    def change(self, uuid: str, **values: Any) -> None:
        """Change a server as its move would, and end its actions."""

        def write(uow: Any) -> None:
            uow.session.execute(sa.update(models.Instance).where(models.Instance.uuid == uuid).values(**values))
            action = models.InstanceAction
            uow.session.execute(
                sa.update(action).where(action.instance_uuid == uuid).values(finish_time=uow.now, events=[])
            )

        self.db.write(write)

    def end_migrations(self, status: str) -> None:
        self.db.write(lambda uow: uow.session.execute(sa.update(models.Migration).values(status=status)))

    def move_by_owner(self, uuid: str, kind: str, source: str, target: str) -> None:
        """Let a migration that is not the drain's end, so that it waits to be confirmed."""

        def write(uow: Any) -> None:
            row = uow.session.scalars(sa.select(models.Migration).where(models.Migration.instance_uuid == uuid)).one()
            values = {column.key: getattr(row, column.key) for column in sa.inspect(models.Migration).column_attrs}
            place = {**row.source, "host": source}
            changes = {"id": None, "uuid": f"{kind}-{source}"[:36], "migration_type": kind, "status": "finished"}
            uow.session.add(models.Migration(**{**values, **changes, "source": place, "source_host": source}))

        self.db.write(write)
        self.change(uuid, host=target, task_state=None, vm_state="resized")

    def draining_with_cold_move(self) -> str:
        """Drain a host that a suspended guest keeps. Return its stopped server, whose move was confirmed."""
        suspended, stopped = self.uuids
        self.change(suspended, vm_state="suspended")
        self.change(stopped, vm_state="stopped")
        self.act("drain", DISK)
        assert self.moves() == [("migrate", stopped)]
        self.change(stopped, host="host2", task_state=None, vm_state="resized")
        self.end_migrations("finished")
        self.keeper.run_if_first()
        assert self.moves() == [("confirmResize", stopped)]
        self.change(stopped, task_state=None, vm_state="stopped")
        self.end_migrations("confirmed")
        return stopped


@pytest.fixture
def world(tmp_path: Path) -> Health:
    return Health(tmp_path)


def test_problem_is_shown_and_nothing_is_done_by_default(world: Health) -> None:
    assert world.conf.host_health.action == "report"
    world.act("report", DISK, LINK)
    assert world.reason() == (False, None)
    (health,) = world.db.read(host_health.list_)
    assert (health.problems, health.state) == ([DISK, LINK], "")
    assert [(*labels, value) for _, (labels, value) in world.keeper.samples()] == [
        ("host1", "disk", 1),
        ("host1", "network", 1),
    ]
    world.act("report")
    assert (world.db.read(host_health.list_), list(world.keeper.samples())) == ([], [])


def test_texts_of_a_host_are_stored_without_control_characters_and_with_a_limit(world: Health) -> None:
    noisy = HostProblem(key="disk/x\x1b[2J", kind="disk", text="\n" * 1000)
    world.act("report", *[noisy] * 100)
    (health,) = world.db.read(host_health.list_)
    assert len(health.problems) == host_health.MAX_PROBLEMS
    assert health.problems[0] == HostProblem(key="disk/x?[2J", kind="disk", text="?" * host_health.MAX_LENGTH)


def test_host_with_a_problem_that_lasts_is_disabled_with_its_reason(world: Health) -> None:
    world.conf.set_override("hold", 300.0, "host_health")
    world.act("disable", DISK)
    assert world.reason() == (False, None)
    world.conf.set_override("hold", 0.0, "host_health")
    world.keeper.run_if_first()
    assert world.reason() == (True, f"host health: {DISK.text}")
    assert (world.state(), world.moves()) == ("disabled", [])


def test_host_that_was_enabled_is_disabled_again_for_a_new_problem_only(world: Health) -> None:
    world.act("disable", DISK)
    world.enable()
    world.act("disable", DISK)
    assert (world.reason(), world.state()) == ((False, None), "")
    world.act("disable", DISK, LINK)
    assert world.reason() == (True, f"host health: {LINK.text}")
    world.enable()
    world.act("disable")
    world.act("disable", DISK)
    assert world.reason() == (True, f"host health: {DISK.text}")


def test_no_more_hosts_are_disabled_than_allowed_and_never_the_last_one(world: Health) -> None:
    world.db.write(hosts.register_host, world.conf, heartbeat("host3"))
    world.act("disable", LINK)
    world.act("disable", LINK, host="host2")
    assert (world.reason()[0], world.reason("host2")[0]) == (True, False)
    world.conf.set_override("max_hosts", 9, "host_health")
    world.act("disable", LINK, host="host2")
    world.act("disable", LINK, host="host3")
    assert (world.reason("host2")[0], world.reason("host3")[0]) == (True, False)


def test_host_that_an_operator_has_disabled_keeps_its_reason(world: Health) -> None:
    service = world.db.read(services.find, "host1", services.COMPUTE)
    assert service is not None
    world.db.write(services.update, service.uuid, {"disabled": True, "disabled_reason": "mine"})
    world.act("drain", DISK)
    assert (world.reason(), world.moves()) == ((True, "mine"), [])


def test_servers_of_a_drained_host_leave_it_a_few_at_a_time_and_stopped_ones_are_confirmed(world: Health) -> None:
    running, stopped = world.uuids
    world.move_at_once(1)
    world.change(stopped, vm_state="stopped")
    world.act("drain", DISK)
    assert world.reason() == (True, f"nova-lite-manage host maintenance, after migration 0: {DISK.text}")
    assert world.moves() == [("live-migration", running)]
    world.new_keeper().run_if_first()
    assert world.moves() == [("live-migration", running)]
    world.change(running, host="host2", task_state=None)
    world.keeper.run_if_first()
    assert world.moves() == [("migrate", stopped)]
    world.change(stopped, host="host2", task_state=None, vm_state="resized")
    world.end_migrations("finished")
    world.new_keeper().run_if_first()
    assert world.moves() == [("confirmResize", stopped)]
    assert world.state() == "draining"
    world.change(stopped, task_state=None, vm_state="stopped")
    world.end_migrations("confirmed")
    world.keeper.run_if_first()
    assert world.state() == "drained"
    world.act("drain")
    assert (world.reason()[0], world.state()) == (True, "drained"), "a person enables it again"


def test_resize_by_the_owner_of_a_server_that_a_drain_has_moved_is_not_confirmed(world: Health) -> None:
    stopped = world.draining_with_cold_move()
    world.move_by_owner(stopped, "resize", "host2", "host3")
    world.keeper.run_if_first()
    assert (world.state(), world.moves()) == ("draining", [])
    assert world.instance(stopped).vm_state == "resized"


def test_later_migration_from_a_drained_host_by_an_operator_is_not_confirmed(world: Health) -> None:
    stopped = world.draining_with_cold_move()
    world.keeper.run_if_first()
    assert world.db.read(host_health.drain_of, "host1").ended == []
    world.move_by_owner(stopped, "migration", "host1", "host2")
    world.keeper.run_if_first()
    assert (world.state(), world.moves()) == ("draining", [])


def test_confirmation_is_refused_if_the_drains_move_has_ended_meanwhile(world: Health) -> None:
    stopped = world.draining_with_cold_move()
    world.move_by_owner(stopped, "resize", "host2", "host3")
    with pytest.raises(exceptions.Conflict):
        world.db.write(host_health.require_cold_move, "host1", stopped)


def test_server_whose_move_has_failed_waits_and_the_next_one_moves(world: Health) -> None:
    first, second = world.uuids
    world.move_at_once(1)
    world.act("drain", DISK)
    assert world.moves() == [("live-migration", first)]
    world.change(first, task_state=None)
    action = models.InstanceAction
    world.db.write(
        lambda uow: uow.session.execute(
            sa.update(action).where(action.action == "live-migration").values(message="It failed.")
        )
    )
    world.keeper.run_if_first()
    assert world.moves() == [("live-migration", second)]


def test_server_whose_move_is_refused_waits_and_the_next_one_moves(
    world: Health, caplog: pytest.LogCaptureFixture
) -> None:
    """A replica of another site's server may not move. Its refusal leaves no action behind."""
    replica, stopped = world.uuids
    world.move_at_once(1)
    world.change(replica, vm_state="stopped", site_role="replica")
    world.change(stopped, vm_state="stopped")
    for _ in range(3):
        world.act("drain", DISK)
        assert world.moves() == [("migrate", stopped)]
    refusals = [record.getMessage() for record in caplog.records if "does not leave host" in record.getMessage()]
    assert [replica in refusal for refusal in refusals] == [True]
    world.change(stopped, host="host2", task_state=None, vm_state="active")
    world.end_migrations("confirmed")
    world.change(replica, site_role=None)
    world.keeper.run_if_first()
    assert world.moves() == [], "it waits"
    world.clock.time += host_health.RETRY.total_seconds()
    world.keeper.run_if_first()
    assert world.moves() == [("migrate", replica)]


def test_host_whose_servers_find_no_room_is_disabled_and_not_drained_before_they_do(world: Health) -> None:
    world.filters.passing = []
    world.act("drain", DISK)
    assert (world.state(), world.moves()) == ("disabled", [])
    world.filters.passing = ["host2"]
    world.keeper.run_if_first()
    assert world.state() == "disabled", "it is searched once a minute"
    world.clock.time += ROOM_INTERVAL
    world.keeper.run_if_first()
    assert (world.state(), len(world.moves())) == ("draining", 2)


def test_room_is_counted_for_all_servers_of_a_host_together(world: Health) -> None:
    nearly_full = sa.update(models.ComputeNode).where(models.ComputeNode.host == "host2")
    flavor = world.instance(world.uuids[0]).flavor
    used = 1024 - flavor.memory_mb
    world.db.write(lambda uow: uow.session.execute(nearly_full.values(memory_mb_used=used)))
    world.act("drain", DISK)
    assert (world.state(), world.moves()) == ("disabled", [])


def test_drain_ends_when_the_host_is_enabled(world: Health) -> None:
    world.move_at_once(1)
    world.act("drain", DISK)
    world.change(world.uuids[0], host="host2", task_state=None)
    world.enable()
    world.keeper.run_if_first()
    assert (world.moves(), world.state()) == ([], "")


def test_problems_of_a_deleted_host_are_forgotten(world: Health) -> None:
    world.db.write(hosts.register_host, world.conf, heartbeat("host3"))
    world.act("report", DISK, host="host3")
    service = world.db.read(services.find, "host3", services.COMPUTE)
    assert service is not None
    world.db.write(services.delete, service.uuid)
    assert world.db.read(host_health.list_) == []
