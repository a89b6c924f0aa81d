"""The real conductor and two real compute hosts in one process, over a database that loses its last commits."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from nova_lite.conductor.hosts.domains import LOST
from nova_lite.db.core import models
from nova_lite.objects import ActionCommand, ActionReport
from nova_lite.operations import states
from nova_lite.operations.states import PowerState
from tests.support.control_plane_machine import ControlPlane


class Restored(ControlPlane):
    @property
    def file(self) -> str:
        return f"{self.path}/db.sqlite"

    def copy(self) -> None:
        self._copy(self.file, f"{self.path}/copy")

    def restore(self) -> None:
        """Restore the database as of `copy`."""
        self.world.db.engine.dispose()
        self._copy(f"{self.path}/copy", self.file)

    @staticmethod
    def _copy(one: str, other: str) -> None:
        with contextlib.closing(sqlite3.connect(one)) as source, contextlib.closing(sqlite3.connect(other)) as target:
            source.backup(target)

    def made(self) -> str:
        """Create an ACTIVE server."""
        first = len(self.post.sent)
        (uuid,) = self.world.create()
        self.world.lifecycle.build_instances(self.world.context(), [uuid])
        self.hand_over_from(first)
        assert self.row(uuid).vm_state == states.ACTIVE
        return uuid

    def do(self, uuid: str, kind: str) -> ActionCommand:
        """Accept it, and deliver its order."""
        command = self.world.lifecycle.accept_action(self.world.context(admin=True), uuid, kind, {})
        self.post.sent.append((str(command.host), command))
        self.hand_over(len(self.post.sent) - 1)
        return command

    def row(self, uuid: str) -> models.Instance:
        query = sa.select(models.Instance).where(models.Instance.uuid == uuid)
        return self.world.db.read(lambda uow: uow.session.scalars(query).one())

    def power(self, uuid: str) -> int:
        return self.post.alive[str(self.row(uuid).host)].power(uuid)


@pytest.fixture
def plane() -> Iterator[Restored]:
    made = Restored()
    yield made
    made.settle()
    made.world.db.close()


def test_orders_are_obeyed_afterwards(plane: Restored) -> None:
    """The first one has the very id that another one had, on another server."""
    uuid, other = plane.made(), plane.made()
    plane.copy()
    lost = [plane.do(server, kind) for server in (other, uuid) for kind in ("stop", "start", "pause", "unpause")]
    plane.restore()
    again = plane.do(uuid, "stop")
    assert again.action_id == lost[0].action_id
    assert (plane.row(uuid).vm_state, plane.power(uuid)) == (states.STOPPED, PowerState.SHUTDOWN)
    assert plane.do(uuid, "start").action_id == lost[1].action_id
    assert (plane.row(uuid).vm_state, plane.power(uuid)) == (states.ACTIVE, PowerState.RUNNING)
    assert plane.world.open_actions() == []


def test_a_delete_repeated_ends(plane: Restored) -> None:
    uuid = plane.made()
    plane.copy()
    for kind in ("stop", "start"):
        plane.do(uuid, kind)
    plane.restore()
    for _ in range(2):
        if not plane.row(uuid).deleted:
            plane.do(uuid, "delete")
    assert (plane.row(uuid).deleted, plane.domains(), plane.world.open_actions()) == (True, {}, [])


def test_orders_and_reports_of_the_lost_time_change_nothing(plane: Restored) -> None:
    """The messages are still in a queue."""
    uuid, other = plane.made(), plane.made()
    plane.copy()
    lost = plane.do(uuid, "stop")
    plane.restore()
    plane.do(uuid, "pause")
    plane.hand_over(plane.post.sent.index((str(lost.host), lost)))
    assert (plane.row(uuid).vm_state, plane.power(uuid)) == (states.PAUSED, PowerState.PAUSED)

    waiting = plane.world.lifecycle.accept_action(plane.world.context(admin=True), other, "stop", {})
    report = ActionReport(
        host=str(waiting.host),
        action_id=waiting.action_id,
        power_state=int(PowerState.SHUTDOWN),
        sequence=waiting.sequence,
        request_id="req-lost",
    )
    plane.world.reports.finish_action(plane.world.context(), report)
    assert plane.world.open_actions() == [("stop", "perform")]


def test_server_deleted_in_the_lost_time_is_in_error(plane: Restored) -> None:
    uuid = plane.made()
    plane.copy()
    plane.do(uuid, "delete")
    plane.restore()
    for name in list(plane.post.alive):
        plane.reconcile(name)
    row = plane.row(uuid)
    assert row.fault is not None and (row.vm_state, row.fault["message"]) == (states.ERROR, LOST)
    plane.do(uuid, "delete")
    assert plane.row(uuid).deleted
