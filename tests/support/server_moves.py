"""Servers that move between the hosts of a `World`: evacuations, resizes, live migrations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa

from nova_lite import objects
from nova_lite.conductor.operations.live_migration_control import LiveMigrationEndpoints
from nova_lite.db.core import models, quotas
from nova_lite.db.hosts import services
from nova_lite.db.servers import flavors
from nova_lite.db.upkeep import invariants
from nova_lite.objects import ActionReport, MigrationControl, MigrationProgress
from nova_lite.operations import states
from tests.support.conductor_world import World

RUNNING, SHUTDOWN = 1, 4
#: Answers of hosts: the disks of a server that is resized, and both sides of a live migration.
DISKS = {"disks": {"driver": "fake", "host": "127.0.0.1", "location": "/disks", "files": []}}
SOURCE = {"live": {"driver": "fake", "disks": {"disk": 1024}}}
READY = {"live": {"driver": "fake", "host": "host2", "generation": 2, "address": "127.0.0.1"}}
PROGRESS = MigrationProgress(memory_total=100, memory_processed=40, memory_remaining=60)


def service_uuid(uow: Any, host: str) -> str:
    return str(uow.session.scalars(sa.select(models.Service.uuid).where(models.Service.host == host)).one())


def force_down(world: World, host: str, forced_down: bool = True) -> None:
    world.db.write(services.update, world.db.read(service_uuid, host), {"forced_down": forced_down})


def evacuate(world: World, uuid: str, **payload: Any) -> None:
    world.lifecycle.accept_action(world.context(admin=True), uuid, "evacuate", payload)


class Moving(World):
    """A world with a server of flavor 1 on host1, and flavor 2 with two vCPUs."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.db.write(
            lambda uow: flavors.create(uow, objects.Flavor(flavorid="2", name="m2", vcpus=2, memory_mb=512, root_gb=2))
        )
        self.uuid, self.source, self.generation = self.built()

    def act(self, kind: str, **payload: Any) -> objects.ActionCommand:
        """Accept an operation, and send its command as the API would."""
        command = self.lifecycle.accept_action(self.context(admin=True), self.uuid, kind, payload)
        if command.host is not None:
            self.compute.commands.append(command)
        self.lifecycle.build_instances(self.context(), [self.uuid])
        return command

    @property
    def command(self) -> objects.ActionCommand:
        return self.compute.commands[-1]

    def answer(self, power_state: int | None = None, error: str | None = None, answer: Any = None) -> None:
        """Report the newest command from its host."""
        command = self.command
        self.reports.finish_action(
            self.context(),
            ActionReport(
                host=command.host,
                action_id=command.action_id,
                power_state=power_state,
                error=error,
                sequence=command.sequence,
                answer=answer,
            ),
        )

    def look(self, power_state: int, action_id: int, sequence: int) -> None:
        """Report the guest of host1, whose last command was this one."""
        report = objects.DomainReport(
            uuid=self.uuid, generation=1, power_state=power_state, last_action_id=action_id, last_position=sequence
        )
        self.reports.reconcile_domains(self.context(), "host1", [report], [])

    def swept(self) -> None:
        """Sweep after the first backoff step."""
        self.let_time_pass(self.conf.conductor.retry_backoff[0] + 1)
        self.reconciler.sweep()

    def left(self) -> None:
        assert (self.command.method, self.command.host) == ("resize_instance", self.source)
        self.answer(SHUTDOWN, answer=DISKS)

    def resized(self) -> None:
        self.act("resize", flavor_id="2")
        self.left()
        assert (self.command.method, self.command.host) == ("finish_resize", "host2")
        self.answer(RUNNING)

    def speaks(self, host: str) -> None:
        """Let a silent host send a heartbeat."""
        up = sa.update(models.Service).where(models.Service.host == host).values(up=True)
        self.db.write(lambda uow: uow.change(up))

    @property
    def row(self) -> models.Instance:
        query = sa.select(models.Instance).where(models.Instance.uuid == self.uuid)
        return self.db.read(lambda uow: uow.session.scalars(query).one())

    @property
    def state(self) -> tuple[str, str | None, str | None, int]:
        row = self.row
        return row.vm_state, row.task_state, row.host, row.generation

    def cores(self) -> int:
        return self.db.read(lambda uow: quotas.get(uow, self.conf, "p1").quotas["cores"].used)

    def statuses(self) -> list[str]:
        query = sa.select(models.Migration.status).order_by(models.Migration.id)
        return self.db.read(lambda uow: list(uow.session.scalars(query)))

    def problems(self) -> list[invariants.Problem]:
        return self.db.read(invariants.find)


class Live(Moving):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.live = LiveMigrationEndpoints(self.db, self.conf)

    def expect(self, method: str, host: str, generation: int) -> None:
        assert (self.command.method, self.command.host, self.command.generation) == (method, host, generation)

    def prepared(self) -> None:
        """Take the migration to the step whose command hands the guest over."""
        self.act("live-migration", host=None)
        self.expect("check_can_live_migrate_source", "host1", 1)
        self.answer(RUNNING, answer=SOURCE)
        self.expect("pre_live_migration", "host2", 2)
        self.answer(answer=READY)
        self.expect("live_migration", "host1", 1)

    def asked(self) -> None:
        """Report a failure of the source, which then finds that the guest is still there."""
        self.expect("rollback_live_migration", "host1", 1)
        self.answer(answer={"done": False})

    def dropped(self) -> None:
        self.expect("rollback_live_migration_at_destination", "host2", 2)
        assert self.state == (states.ACTIVE, states.MIGRATING, "host1", 1)
        self.answer()

    def expire(self) -> None:
        self.let_time_pass(self.conf.conductor.live_migration_deadline + 1)
        self.is_heard("host1")
        self.is_heard("host2")
        self.reconciler.sweep()

    def tell(self) -> MigrationControl:
        command = self.command
        return self.live.live_migration_progress(
            self.context(), str(command.host), command.action_id, command.sequence, PROGRESS
        )

    def at_source(self) -> None:
        assert self.state == (states.ACTIVE, None, "host1", 1)
        assert self.used() == {"host1": 1, "host2": 0}
        assert (self.open_actions(), self.problems()) == ([], [])

    def at_destination(self) -> None:
        """Take the migration to the point where the source has handed the guest over."""
        assert self.state == (states.ACTIVE, states.MIGRATING, "host2", 2)
        self.expect("post_live_migration_at_destination", "host2", 2)
        self.answer(RUNNING)
        self.expect("post_live_migration", "host1", 1)
        self.answer()
        assert self.state == (states.ACTIVE, None, "host2", 2)
        assert self.used() == {"host1": 0, "host2": 1}
        assert (self.open_actions(), self.problems(), self.statuses()) == ([], [], ["completed"])
