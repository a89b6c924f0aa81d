"""Create and delete snapshot points of servers, and revert servers to them.

A point is the server's from the acceptance, and available once its host has reported all of it. A point whose creation
or deletion an evacuation has interrupted is in error, because its host may have had a part of it.
"""

from __future__ import annotations

from typing import Any

from nova_lite import operations
from nova_lite.base import exceptions, ids
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine import faults
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.db.servers import points
from nova_lite.objects import PointState, SnapshotPoint
from nova_lite.operations import Step, states

#: Most points of a server: each one costs time when it is listed, and when the server moves.
MOST = 16


class CreatePointHandler(OperationHandler):
    """Creates a point. ``payload``: ``name``, ``description``, and whether it has ``memory``."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        points.check(uow, instance)
        if payload["memory"]:
            if instance.vm_state != states.ACTIVE:
                raise exceptions.PointsNotSupported(instance_id=instance.uuid, reason="only an active one has memory")
            points.check_memory(instance)
        known = points.of(instance)
        if any(point.name == payload["name"] for point in known):
            raise exceptions.PointAlreadyExists(instance_id=instance.uuid, name=payload["name"])
        if len(known) >= MOST:
            raise exceptions.TooManyPoints(instance_id=instance.uuid, most=MOST)
        added = SnapshotPoint(
            id=ids.new_id(),
            name=payload["name"],
            description=payload["description"],
            parent_id=next((point.id for point in known if point.is_current), None),
            memory_of=points.guest(uow, instance) if payload["memory"] else None,
            created_at=uow.now,
        )
        points.keep(instance, [*known, added])
        return {"point_id": added.id, "memory": payload["memory"]}

    def on_step_done(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        super().on_step_done(uow, instance, step)
        if step.name == operations.PERFORM:
            points.reach(instance, PointState.CREATING)

    def on_failed(self, uow: UnitOfWork, instance: Instance) -> None:
        points.remove(instance, PointState.CREATING)

    def on_superseded(self, uow: UnitOfWork, instance: Instance, by: str) -> None:
        points.settle(instance, PointState.CREATING, PointState.ERROR)


class DeletePointHandler(OperationHandler):
    """Deletes a point. ``payload``: ``point_id``."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        points.begin(instance, points.get(instance, payload["point_id"]).id, PointState.DELETING)
        return payload

    def on_step_done(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        super().on_step_done(uow, instance, step)
        points.remove(instance, PointState.DELETING)

    def on_failed(self, uow: UnitOfWork, instance: Instance) -> None:
        points.settle(instance, PointState.DELETING, PointState.ERROR)


class RevertToPointHandler(OperationHandler):
    """Reverts to a point. ``payload``: ``point_id``, and whether with ``memory``; None: if the point has it."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        point = points.get(instance, payload["point_id"])
        if point.state != PointState.AVAILABLE:
            raise exceptions.PointNotUsable(point_id=point.id, reason=f"it is in the state {point.state}")
        points.check(uow, instance)
        memory = point.memory_of is not None if payload["memory"] is None else payload["memory"]
        if memory:
            points.check_memory(instance)
            if point.memory_of is None:
                raise exceptions.PointNotUsable(point_id=point.id, reason="it has no memory")
            if point.memory_of != points.guest(uow, instance):
                reason = "its memory is that of another host, flavor or set of interfaces. Revert without memory"
                raise exceptions.PointNotUsable(point_id=point.id, reason=reason)
        points.begin(instance, point.id, PointState.REVERTING)
        return {"point_id": point.id, "memory": memory, "start": instance.vm_state == states.ACTIVE and not memory}

    def on_step_done(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        super().on_step_done(uow, instance, step)
        if step.name == operations.REVERT:
            points.reach(instance, PointState.REVERTING)

    def on_failed(self, uow: UnitOfWork, instance: Instance) -> None:
        """Set the state ERROR if the host may have reverted a part. A guest that only did not start is off."""
        if any(point.state == PointState.REVERTING for point in points.of(instance)):
            faults.set_error(uow, instance, "It was not reverted to its snapshot point. Revert it again.")
        points.settle(instance, PointState.REVERTING, PointState.AVAILABLE)

    def on_superseded(self, uow: UnitOfWork, instance: Instance, by: str) -> None:
        points.settle(instance, PointState.REVERTING, PointState.AVAILABLE)
