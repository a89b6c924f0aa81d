"""Clones in the conductor: the create waits for the frozen disk, and both end well or both end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.db.core import models
from nova_lite.objects import BuildOutcome, Image
from nova_lite.operations import states
from tests.support.server_moves import RUNNING, Moving, force_down

FLAVOR = {"flavorid": "1", "name": "f", "vcpus": 1, "memory_mb": 1}


@pytest.fixture
def world(tmp_path: Path) -> Moving:
    return Moving(tmp_path)


def clone(world: Moving, request_id: str | None = None) -> str:
    """Request a clone of the server, and return its uuid."""
    (made,) = world.create(world.context(request_id), name="clone", clone_of=world.uuid, networks="none")
    return made


def built(world: Moving, uuid: str) -> list[tuple[str, str | None]]:
    """Return host and source of each build of this server that was sent."""
    world.lifecycle.build_instances(world.context(), [uuid])
    world.swept()
    return [(host, build.clone_of) for host, build in world.compute.builds if build.instance.uuid == uuid]


def test_clone_is_built_on_the_host_of_its_source_once_the_disk_is_frozen(world: Moving) -> None:
    image = Image(id="11111111-1111-4111-8111-111111111111", name="i", status="active", disk_format="raw")
    values = {"image": {"id": image.id, "name": "i", "status": "active", "disk_format": "raw"}, "image_ref": image.id}
    world.db.write(lambda uow: uow.session.execute(sa.update(models.Instance).values(values)))
    made = clone(world)
    assert (world.command.method, world.command.host, world.command.payload) == (
        "clone_instance", world.source, {"clone": made},
    )  # fmt: skip
    assert (world.state[:2], world.instance(made).vm_state) == ((states.ACTIVE, states.CLONING), states.BUILDING)
    assert built(world, made) == [], "the disk is not frozen yet"
    world.answer(RUNNING)
    assert world.state[:2] == (states.ACTIVE, None)
    assert built(world, made) == [(world.source, world.uuid)]
    spec = world.scheduler.specs[-1]
    assert spec.requested_destination is not None and spec.requested_destination.host == world.source
    world.report(made, world.source, 1, BuildOutcome.BUILT)
    there = world.instance(made)
    assert (there.vm_state, there.image_ref, there.flavor.flavorid) == (states.ACTIVE, image.id, "1")
    assert (world.open_actions(), world.instances_used(), world.problems()) == ([], 2, [])


def test_repeated_request_finds_the_clone_of_the_first(world: Moving) -> None:
    assert clone(world, "req-same") == clone(world, "req-same")
    assert world.count(models.Instance) == 2


def test_clone_whose_source_could_not_be_frozen_is_in_error_and_the_source_is_not(world: Moving) -> None:
    made = clone(world)
    world.answer(RUNNING, error="the disk is full")
    assert (world.command.method, world.instance(made).vm_state) == ("rollback_clone_instance", states.BUILDING)
    world.answer(RUNNING)
    failed = world.instance(made)
    assert (failed.vm_state, failed.task_state, world.state[:2]) == (states.ERROR, None, (states.ACTIVE, None))
    assert failed.fault is not None and world.uuid in failed.fault.message
    assert (built(world, made), world.open_actions(), world.problems()) == ([], [], [])


def test_clone_that_is_deleted_while_it_waits_is_not_built(world: Moving) -> None:
    made = clone(world)
    world.lifecycle.accept_action(world.context(), made, "delete", {})
    world.answer(RUNNING)
    assert (world.instance(made).deleted, built(world, made), world.open_actions()) == (True, [], [])


@pytest.mark.parametrize("kind", ["delete", "evacuate"])
def test_clone_of_a_source_that_goes_meanwhile_is_in_error(world: Moving, kind: str) -> None:
    made = clone(world)
    force_down(world, world.source)
    world.act(kind)
    assert world.instance(made).vm_state == states.ERROR


@pytest.mark.parametrize(
    ("values", "error", "why"),
    [
        ({"vm_state": "suspended"}, exceptions.InstanceInvalidState, "suspended"),
        ({"task_state": "cloning"}, exceptions.InstanceInvalidState, "cloning"),
        ({"points": [{"id": "p"}]}, exceptions.OperationNotSupportedWithPoints, "'clone' would lose"),
        ({"site_role": "primary"}, exceptions.CloneNotSupported, "replicated"),
        (
            {"block_devices": [{"uuid": "d", "source_type": "volume", "destination_type": "volume"}]},
            exceptions.CloneNotSupported,
            "it has volumes",
        ),
        (
            {"flavor": {**FLAVOR, "extra_specs": {"hw:tpm_version": "2.0"}}},
            exceptions.OperationNotSupportedForVTPM,
            "clone",
        ),
    ],
)  # fmt: skip
def test_server_that_cannot_be_cloned_is_refused_and_nothing_is_left(
    world: Moving, values: dict[str, Any], error: type[exceptions.NovaLiteException], why: str
) -> None:
    world.db.write(lambda uow: uow.session.execute(sa.update(models.Instance).values(values)))
    with pytest.raises(error, match=why) as refusal:
        clone(world)
    assert refusal.value.code == 409
    assert (world.count(models.Instance), world.instances_used()) == (1, 1)


def test_server_of_another_project_is_not_cloned(world: Moving) -> None:
    with pytest.raises(exceptions.InstanceNotFound):
        world.create(world.context(project="p2"), name="clone", clone_of=world.uuid, networks="none")
