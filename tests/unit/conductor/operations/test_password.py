"""Changing a password and triggering a crash dump, in the conductor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite import objects
from nova_lite.base import exceptions
from nova_lite.db.core import models
from nova_lite.db.image import images
from nova_lite.objects import ActionReport
from tests.support.conductor_world import World

AGENT = {"hw_qemu_guest_agent": "yes"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def accept(world: World, kind: str, properties: dict[str, str], vm_state: str = "active") -> objects.ActionCommand:
    world.db.write(images.create, objects.Image(id="i", name="i", properties=properties))
    uuid, _, _ = world.built(image_ref="i")
    query = sa.update(models.Instance).values(vm_state=vm_state)
    world.db.write(lambda uow: uow.session.execute(query))
    payload: dict[str, Any] = {"admin_password": "s3cret"} if kind == "changePassword" else {}
    return world.lifecycle.accept_action(world.context(), uuid, kind, payload)


@pytest.mark.parametrize(
    ("properties", "user"),
    [({}, "root"), ({"os_type": "windows"}, "Administrator"), ({"os_admin_user": "adm", "os_type": "linux"}, "adm")],
)
@pytest.mark.parametrize("error", [None, "The guest agent does not answer."])
def test_password_is_sent_to_the_host_and_deleted_after_the_action(
    world: World, properties: dict[str, str], user: str, error: str | None
) -> None:
    command = accept(world, "changePassword", {**AGENT, **properties})
    uuid = command.instance.uuid
    assert (command.method, command.payload) == ("set_admin_password", {"user": user, "admin_password": "s3cret"})
    assert world.instance(uuid).task_state == "updating_password"
    world.reports.finish_action(
        world.context(), ActionReport(host=str(command.host), action_id=command.action_id, power_state=1, error=error)
    )
    assert (world.instance(uuid).vm_state, world.instance(uuid).task_state) == ("active", None)
    tables = (models.InstanceAction.payload, models.Instance.request, models.InstanceAction.events)
    rows = world.db.read(lambda uow: [uow.session.scalars(sa.select(column)).all() for column in tables])
    assert "s3cret" not in str(rows)
    assert error is None or error in str(rows)


def test_password_is_deleted_after_the_deadline(world: World) -> None:
    accept(world, "changePassword", AGENT)
    world.let_time_pass(world.conf.conductor.action_deadline + 1)
    world.reconciler.sweep()
    payloads = world.db.read(lambda uow: uow.session.scalars(sa.select(models.InstanceAction.payload)).all())
    assert (world.open_actions(), "s3cret" in str(payloads)) == ([], False)


@pytest.mark.parametrize("properties", [{}, {"hw_qemu_guest_agent": "no"}])
def test_password_change_without_an_agent_is_refused(world: World, properties: dict[str, str]) -> None:
    with pytest.raises(exceptions.GuestAgentNotEnabled, match="QEMU guest agent is not enabled") as caught:
        accept(world, "changePassword", properties)
    assert (caught.value.code, world.open_actions()) == (409, [])


@pytest.mark.parametrize("vm_state", ["active", "paused", "rescued", "error"])
@pytest.mark.parametrize("error", [None, "no support"])
def test_a_crash_dump_changes_no_state(world: World, vm_state: str, error: str | None) -> None:
    command = accept(world, "trigger_crash_dump", {}, vm_state)
    uuid = command.instance.uuid
    assert (command.method, world.instance(uuid).task_state) == ("trigger_crash_dump", None)
    world.reports.finish_action(
        world.context(), ActionReport(host=str(command.host), action_id=command.action_id, power_state=1, error=error)
    )
    assert (world.instance(uuid).vm_state, world.open_actions()) == (vm_state, [])


def test_crash_dump_of_a_stopped_server_is_refused(world: World) -> None:
    with pytest.raises(exceptions.InstanceInvalidState):
        accept(world, "trigger_crash_dump", {}, "stopped")
