"""Rebuilds of servers of a conductor's world."""

from __future__ import annotations

from typing import Any

import msgspec

from nova_lite import objects
from tests.support.conductor_world import World

NEW = objects.Image(id="new", name="new", properties={"os": "new", "kernel_id": "k"})
KERNEL = objects.Image(id="k", name="kernel")


def rebuild(world: World, uuid: str, image: str = "old", **payload: Any) -> objects.ActionCommand:
    described = msgspec.to_builtins({"new": NEW, "k": KERNEL}) if image == "new" else {}
    whole = {"image_ref": image, "images": described, "changes": {}, "injected_files": {}, **payload}
    return world.lifecycle.accept_action(world.context(), uuid, "rebuild", whole)


def begin(world: World, command: objects.ActionCommand) -> objects.BuildRequest:
    assert command.build is not None
    world.reports.start_build(world.context(), command.instance.uuid, command.host, command.build.generation)
    return command.build
