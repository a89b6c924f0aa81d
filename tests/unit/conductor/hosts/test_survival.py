"""The count of protected servers that find no room when hosts are lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.conductor.hosts.room import SurvivalCheck
from nova_lite.db.core import models
from nova_lite.db.hosts import hosts, services
from tests.support.conductor_world import World, heartbeat
from tests.support.fencing_world import ALWAYS


class Filters:
    """Scheduler of which these hosts pass the filters."""

    def __init__(self) -> None:
        self.passing = ["host1", "host2", "host3"]

    def fitting_hosts(self, context: Any, specs: list[Any]) -> list[list[str]]:
        return [self.passing for _ in specs]


class Survival(World):
    """A cloud of three hosts, with two protected servers at ``host1`` and one at ``host2``."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.db.write(hosts.register_host, self.conf, heartbeat("host3"))
        for host in ("host1", "host1", "host2"):
            self.scheduler.hosts = [host]
            self.built(metadata=ALWAYS)
        self.filters = Filters()
        self.check = SurvivalCheck(self.engine, self.filters)  # type: ignore[arg-type]
        self.db.write(services.report, self.conf.host, services.CONDUCTOR, "conductor", "")

    def leave_room(self, host: str, servers: int) -> None:
        """Let a host have room for so many servers."""
        flavor = self.db.read(lambda uow: uow.session.scalars(sa.select(models.Instance.flavor)).first())
        used = sa.update(models.ComputeNode).where(models.ComputeNode.host == host)
        values = {"memory_mb_used": 1024 - servers * flavor["memory_mb"]}
        self.db.write(lambda uow: uow.session.execute(used.values(values)))

    def count(self, lost: int) -> list[float]:
        self.conf.set_override("survive_hosts", lost, "conductor")
        self.check.run_if_first()
        return [value for _, (_, value) in self.check.samples()]


@pytest.fixture
def world(tmp_path: Path) -> Survival:
    return Survival(tmp_path)


def test_room_for_the_servers_of_each_host_is_enough_for_one_loss(world: Survival) -> None:
    world.leave_room("host2", 1)
    world.leave_room("host3", 1)
    assert world.count(1) == [0]
    assert world.count(2) == [2], "of three servers, one has a place at host3"


def test_worst_lost_host_counts(world: Survival) -> None:
    world.leave_room("host1", 9)
    world.leave_room("host2", 0)
    world.leave_room("host3", 0)
    assert world.count(1) == [2]


def test_host_that_does_not_pass_the_filters_has_no_room(world: Survival) -> None:
    world.filters.passing = ["host1"]
    assert world.count(1) == [2]


def test_count_that_is_off_has_no_sample(world: Survival) -> None:
    assert world.count(1) != []
    assert world.count(0) == []
