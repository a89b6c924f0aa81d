"""Attaches and detaches of interfaces in a `World`."""

from __future__ import annotations

from typing import Any

import msgspec

from nova_lite import objects
from nova_lite.objects import ActionReport, NetworkRequest
from tests.support.conductor_world import World

ATTACH, DETACH = "attach_interface", "detach_interface"


def attach(world: World, uuid: str, project: str = "p1", **request: Any) -> objects.ActionCommand:
    payload = {"request": msgspec.to_builtins(NetworkRequest(**request))}
    return world.lifecycle.accept_action(world.context(project=project), uuid, ATTACH, payload)


def detach(world: World, uuid: str, port_id: str) -> objects.ActionCommand:
    return world.lifecycle.accept_action(world.context(), uuid, DETACH, {"port_id": port_id})


def report(world: World, command: objects.ActionCommand, error: str | None = None) -> None:
    world.reports.finish_action(
        world.context(),
        ActionReport(
            host=str(command.host), action_id=command.action_id, power_state=1, error=error, sequence=command.sequence
        ),
    )
