"""Snapshot points of servers: a tree that each server keeps in its row."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from nova_lite.base import exceptions
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.db.hosts import compute_nodes
from nova_lite.db.servers import disk_keys, instances
from nova_lite.db.volume import block_devices
from nova_lite.hardware import traits
from nova_lite.objects import Flavor, PointState, SnapshotPoint
from nova_lite.objects.block_device import ephemeral_gb, swap_mb, volumes


def of(instance: Instance) -> list[SnapshotPoint]:
    return msgspec.convert(instance.points or [], list[SnapshotPoint])


def keep(instance: Instance, points: Iterable[SnapshotPoint]) -> None:
    instance.points = [msgspec.to_builtins(point) for point in points] or None


def get(instance: Instance, point_id: str) -> SnapshotPoint:
    """Return a point of the server. Raises `PointNotFound`."""
    for point in of(instance):
        if point.id == point_id:
            return point
    raise exceptions.PointNotFound(point_id=point_id)


def begin(instance: Instance, point_id: str, state: PointState) -> None:
    """Give a point the state of an operation on it."""
    points = of(instance)
    for point in points:
        point.state = state if point.id == point_id else point.state
    keep(instance, points)


def settle(instance: Instance, before: PointState, after: PointState) -> None:
    """Give the points in the state ``before`` the state ``after``."""
    points = of(instance)
    for point in points:
        point.state = after if point.state == before else point.state
    keep(instance, points)


def reach(instance: Instance, state: PointState) -> None:
    """Make the point in this state available. The disk comes from it."""
    points = of(instance)
    for point in points:
        point.is_current = point.state == state
    keep(instance, points)
    settle(instance, state, PointState.AVAILABLE)


def remove(instance: Instance, state: PointState) -> None:
    """Remove the points in this state. What came from one of them came from its parent."""
    points = of(instance)
    for gone in [point for point in points if point.state == state]:
        points.remove(gone)
        for point in points:
            if point.parent_id == gone.id:
                point.parent_id = gone.parent_id
            point.is_current |= gone.is_current and point.id == gone.parent_id
    keep(instance, points)


# --- refusals


def check(uow: UnitOfWork, instance: Instance) -> None:
    """Raise `PointsNotSupported` if a point of the server lacks a part of its disks."""
    reason = obstacle(uow, instance, traits.POINTS)
    if reason is not None:
        raise exceptions.PointsNotSupported(instance_id=instance.uuid, reason=reason)


def obstacle(uow: UnitOfWork, instance: Instance, trait: str) -> str | None:
    """Return why the root disk is not all of the server's data, or why its host, without ``trait``, cannot keep it."""
    flavor, devices = msgspec.convert(instance.flavor, Flavor), block_devices.of(instance)
    if trait not in compute_nodes.traits_of_host(uow, instance):
        return "its host cannot do that"
    if disk_keys.are_used(instance):
        return "its disk is encrypted"
    if volumes(devices):
        return "it has volumes, whose data would be missing. Detach them"
    if ephemeral_gb(flavor, devices) or swap_mb(flavor, devices):
        return "it has an ephemeral disk or a swap disk, whose data would be missing"
    return None if instance.site_role is None else "it is replicated to another site"


def check_memory(instance: Instance) -> None:
    """Raise `PointsNotSupported` if the memory of the server cannot be saved."""
    if instance.pci or instance.shares:
        reason = "it has devices or shares of its host, so its memory cannot be saved"
        raise exceptions.PointsNotSupported(instance_id=instance.uuid, reason=reason)


def guest(uow: UnitOfWork, instance: Instance) -> list[str]:
    """Return what a guest must be to continue with memory that is saved now."""
    ports = sorted(vif.id for vif in instances.to_object(uow, instance).vifs)
    return [str(instance.host), str(instance.generation), instance.flavorid, *ports]
