"""Rescue in the conductor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from nova_lite import objects
from nova_lite.base import exceptions
from nova_lite.db.core import models
from nova_lite.db.image import images
from nova_lite.objects import ActionReport, DomainReport
from tests.support.conductor_world import World

OWN = objects.Image(id="old", name="old")
OTHER = objects.Image(id="other", name="other", min_ram=9999, properties={"kernel_id": "k"})
KERNEL = objects.Image(id="k", name="kernel")


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.db.write(images.create, OWN)
    return made


def accept(world: World, uuid: str, kind: str, **payload: Any) -> objects.ActionCommand:
    return world.lifecycle.accept_action(world.context(), uuid, kind, payload)


def finish(world: World, command: objects.ActionCommand, power_state: int | None, error: str | None = None) -> None:
    world.reports.finish_action(
        world.context(),
        ActionReport(host=str(command.host), action_id=command.action_id, power_state=power_state, error=error),
    )


def payloads(world: World) -> list[Any]:
    return world.db.read(lambda uow: list(uow.session.scalars(sa.select(models.InstanceAction.payload))))


def test_rescue_uses_the_servers_own_image_by_default(world: World) -> None:
    uuid, _, generation = world.built(image_ref="old")
    world.db.write(images.delete, world.context(admin=True), "old")
    command = accept(world, uuid, "rescue", image_ref=None, images={}, admin_password="s3cret")
    assert (command.method, command.generation) == ("rescue_instance", generation)
    assert command.payload["image"]["id"] == "old"
    assert (world.instance(uuid).vm_state, world.instance(uuid).task_state) == ("active", "rescuing")
    finish(world, command, 1)
    assert (world.instance(uuid).vm_state, world.instance(uuid).task_state) == ("rescued", None)


def test_password_is_deleted_after_the_rescue(world: World) -> None:
    uuid, _, _ = world.built(image_ref="old")
    command = accept(world, uuid, "rescue", admin_password="s3cret")
    assert command.payload["admin_password"] == "s3cret"
    finish(world, command, 1)
    assert "s3cret" not in str(payloads(world))


def test_rescue_image_may_be_larger_than_the_flavor(world: World) -> None:
    uuid, _, _ = world.built(image_ref="old")
    described = msgspec.to_builtins({"other": OTHER, "k": KERNEL})
    payload = accept(world, uuid, "rescue", image_ref="other", images=described).payload
    assert msgspec.convert(payload["image"], objects.Image) == OTHER
    assert msgspec.convert(payload["images"], dict[str, objects.Image]) == {"k": KERNEL}


def test_missing_rescue_image_is_refused(world: World) -> None:
    uuid, _, _ = world.built(image_ref="old")
    with pytest.raises(exceptions.UnsupportedRescueImage, match="Requested rescue image 'none' is not supported"):
        accept(world, uuid, "rescue", image_ref="none", images={})
    assert world.open_actions() == []


def test_server_without_an_image_requires_a_rescue_image(world: World) -> None:
    uuid, _, _ = world.built()
    with pytest.raises(exceptions.InstanceNotRescuable):
        accept(world, uuid, "rescue", image_ref=None)


def test_failed_rescue_leaves_the_state_of_the_guest(world: World) -> None:
    uuid, _, _ = world.built(image_ref="old")
    finish(world, accept(world, uuid, "rescue"), 4, "no disk")
    assert (world.instance(uuid).vm_state, world.open_actions()) == ("stopped", [])


@pytest.mark.parametrize("power_state", [1, 4, None])
def test_failed_unrescue_leaves_the_server_rescued(world: World, power_state: int | None) -> None:
    uuid, _, _ = world.built(image_ref="old")
    finish(world, accept(world, uuid, "rescue"), 1)
    finish(world, accept(world, uuid, "unrescue"), power_state, "no disk")
    assert world.instance(uuid).vm_state == "rescued"
    finish(world, accept(world, uuid, "unrescue"), 1)
    assert world.instance(uuid).vm_state == "active"


def test_rescued_server_stays_rescued_whatever_its_guest_does(world: World) -> None:
    uuid, host, generation = world.built(image_ref="old")
    command = accept(world, uuid, "rescue")
    finish(world, command, 1)
    off = DomainReport(uuid=uuid, generation=generation, power_state=4, last_action_id=command.action_id)
    world.reports.reconcile_domains(world.context(), host, [off], [])
    assert (world.instance(uuid).vm_state, world.instance(uuid).power_state) == ("rescued", 4)


@pytest.mark.parametrize("kind", ["stop", "start", "reboot", "pause", "suspend", "rescue", "rebuild"])
def test_rescued_server_refuses_other_operations(world: World, kind: str) -> None:
    uuid, _, _ = world.built(image_ref="old")
    finish(world, accept(world, uuid, "rescue"), 1)
    with pytest.raises(exceptions.InstanceInvalidState, match="while it is in vm_state rescued"):
        accept(world, uuid, kind, image_ref="old", images={}, changes={}, injected_files={}, reboot_type="HARD")


def test_rescued_server_can_be_deleted(world: World) -> None:
    uuid, _, _ = world.built(image_ref="old")
    finish(world, accept(world, uuid, "rescue"), 1)
    assert accept(world, uuid, "delete").method == "terminate_instance"
