"""Fencing records that a host may remove: the conductor decides by its rows, not by a clock."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from nova_lite.db.core import models
from nova_lite.db.servers import fencing
from nova_lite.objects import SettledRecords
from tests.support.purging_world import PurgingWorld
from tests.support.server_moves import RUNNING

NEWEST = sa.select(sa.func.max(models.InstanceAction.id))


@pytest.fixture
def world(tmp_path: Path) -> PurgingWorld:
    return PurgingWorld(tmp_path)


def settled(world: PurgingWorld, host: str, *more: str) -> SettledRecords:
    asked = [world.uuid, *more]
    return world.db.read(fencing.settled, host, asked)


def test_record_at_the_host_of_a_server_is_not_settled(world: PurgingWorld) -> None:
    assert settled(world, "host1").instance_uuids == []


def test_record_of_a_deleted_server_is_settled_when_its_host_has_confirmed(world: PurgingWorld) -> None:
    world.act("delete")
    assert settled(world, "host1").instance_uuids == []
    world.answer()
    found = settled(world, "host1")
    assert found.instance_uuids == [world.uuid]
    assert found.last_action_id == world.db.read(lambda uow: uow.session.scalar(NEWEST))


def test_record_at_the_source_is_settled_when_the_move_has_ended(world: PurgingWorld) -> None:
    world.prepared()
    assert settled(world, "host1").instance_uuids == settled(world, "host2").instance_uuids == []
    world.answer(RUNNING, answer={"done": True})
    world.at_destination()
    assert settled(world, "host1").instance_uuids == [world.uuid]
    assert settled(world, "host2").instance_uuids == []


def test_record_of_a_purged_server_is_settled_once_a_later_action_exists(world: PurgingWorld) -> None:
    world.delete()
    world.purge()
    assert settled(world, "host1").instance_uuids == []
    world.create(name="later")
    assert settled(world, "host1").instance_uuids == [world.uuid]


def test_record_of_a_moved_server_whose_actions_were_purged_stays(world: PurgingWorld) -> None:
    """The highest id of its actions is unknown."""
    world.prepared()
    world.answer(RUNNING, answer={"done": True})
    world.at_destination()
    world.purge()
    assert settled(world, "host1").instance_uuids == []
    world.act("stop")
    world.answer()
    assert settled(world, "host1").instance_uuids == [world.uuid]


def test_record_of_an_unknown_instance_stays(world: PurgingWorld) -> None:
    world.delete()
    unknown = "99999999-9999-4999-8999-999999999999"
    assert settled(world, "host1", unknown).instance_uuids == [world.uuid]
