"""Soft-deleted servers of a `World`."""

from __future__ import annotations

import datetime
from typing import Any

import sqlalchemy as sa

from nova_lite import objects
from nova_lite.db.core import models
from nova_lite.objects import ActionReport
from tests.support.conductor_world import World


def accept(world: World, uuid: str, kind: str, **payload: Any) -> objects.ActionCommand:
    return world.lifecycle.accept_action(world.context(), uuid, kind, payload)


def finish(world: World, command: objects.ActionCommand, power_state: int | None = 4, error: str | None = None) -> None:
    world.reports.finish_action(
        world.context(),
        ActionReport(host=str(command.host), action_id=command.action_id, power_state=power_state, error=error),
    )


def soft_deleted(world: World) -> tuple[str, str]:
    """Return uuid and host of a soft-deleted server."""
    uuid, host, _ = world.built()
    finish(world, accept(world, uuid, "delete", soft=True))
    return uuid, host


def grow_older(world: World, seconds: int) -> None:
    def shift(uow: Any) -> None:
        for row in uow.session.scalars(sa.select(models.Instance)):
            row.soft_deleted_at -= datetime.timedelta(seconds=seconds)

    world.db.write(shift)
