"""A jump of the database's clock destroys nothing early."""

from __future__ import annotations

import datetime
import time
from pathlib import Path

import pytest

from nova_lite.conductor.engine.clock_guard import ClockGuard
from nova_lite.db.core.engine import UnitOfWork
from tests.support.conductor_world import World
from tests.support.soft_deletes import grow_older, soft_deleted

WEEK = 7 * 86400.0


class Clocks:
    """The database's clock and this machine's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.guard = ClockGuard()
        self.wall = self.database = 1e9
        self.uptime = 50.0
        monkeypatch.setattr(time, "time", lambda: self.wall)
        monkeypatch.setattr(time, "clock_gettime", lambda clock: self.uptime)

    def pass_by(self, seconds: float, jump: float = 0.0) -> bool:
        self.uptime += seconds
        self.wall += seconds
        self.database += seconds + jump
        return self.guard.is_ahead(datetime.datetime.fromtimestamp(self.database, datetime.UTC).replace(tzinfo=None))


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.conf.set_override("reclaim_instance_interval", 100)
    return made


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


def test_steady_clock_is_not_ahead(clocks: Clocks) -> None:
    assert not any(clocks.pass_by(seconds, 0.4) for seconds in (1, 1, 3600, WEEK))


def test_jump_ahead_counts_until_the_time_has_passed(clocks: Clocks, caplog: pytest.LogCaptureFixture) -> None:
    assert not clocks.pass_by(1)
    assert clocks.pass_by(1, WEEK)
    assert clocks.pass_by(WEEK / 2)
    assert not clocks.pass_by(WEEK / 2 + 1)
    assert caplog.messages == [
        "The database's clock has jumped ahead by 604800 s. No soft-deleted server is reclaimed and no resize is "
        "confirmed while it is ahead."
    ]


def test_jump_back_ends_the_wait(clocks: Clocks) -> None:
    clocks.pass_by(1)
    assert clocks.pass_by(1, WEEK)
    assert not clocks.pass_by(1, -WEEK)


def test_clock_that_is_ahead_at_the_start_is_compared_with_the_machine(clocks: Clocks) -> None:
    assert clocks.pass_by(1, WEEK)
    assert not clocks.pass_by(WEEK + 1)


def test_soft_deleted_server_is_not_reclaimed_after_a_jump(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    soft_deleted(world)
    world.reconciler.sweep()
    now = UnitOfWork.now.fget
    assert now is not None
    monkeypatch.setattr(UnitOfWork, "now", property(lambda uow: now(uow) + datetime.timedelta(days=7)))
    world.reconciler.sweep()
    assert world.open_actions() == []


def test_old_soft_deleted_server_is_reclaimed_with_a_steady_clock(world: World) -> None:
    soft_deleted(world)
    grow_older(world, 101)
    world.reconciler.sweep()
    assert world.open_actions() == [("delete", "perform")]
