"""What is asked of the scheduler for an action at the step `ScheduleStep`."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any

import msgspec

from nova_lite import operations
from nova_lite.base.context import RequestContext
from nova_lite.db import instances, server_groups
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.models import Instance, InstanceAction
from nova_lite.objects import Flavor, Image, RequestedDestination, RequestSpec

#: In place of servers that a hint may not name; no host has it.
NOWHERE = "00000000-0000-0000-0000-000000000000"


class PlacementRequest(msgspec.Struct):
    """One action, leased to ``owner``, and what the scheduler has to know of its instance. ``since``: when this attempt
    began. ``is_new``: it was never on a host, and has no interfaces yet. ``group``: the same for those that one
    question is about."""

    action_id: int
    instance_uuid: str
    owner: str
    context: RequestContext
    since: datetime.datetime
    is_new: bool
    group: tuple[str, ...]
    spec: RequestSpec


def placement_request_of(
    uow: UnitOfWork, context: RequestContext, action: InstanceAction, row: Instance
) -> PlacementRequest:
    """What is asked for an action at `ScheduleStep`, which is leased to somebody."""
    payload = action.payload
    tried, excluded = list(payload.get("tried", [])), payload.get("excluded", [])
    spec = request_spec(uow, row, tried, excluded, payload.get("flavor"))
    destination = spec.requested_destination and spec.requested_destination.host
    size = spec.flavor.flavorid if "flavor" in payload else ""
    group = (row.reservation_id, spec.forced_host or "", destination or "", size, *spec.ignore_hosts)
    given = any(each.get("port_id") for each in row.request.get("networks", ()))
    is_new = action.action == operations.CREATE.kind and not tried and not given
    return PlacementRequest(action.id, row.uuid, str(action.lease_owner), context, uow.now, is_new, group, spec)


def grouped(wanted: list[PlacementRequest]) -> list[list[PlacementRequest]]:
    """What one question can be about; each in the order in which it came."""
    groups: dict[tuple[str, ...], list[PlacementRequest]] = {}
    for item in wanted:
        groups.setdefault(item.group, []).append(item)
    return list(groups.values())


def request_spec(
    uow: UnitOfWork,
    instance: Instance,
    tried: list[str],
    excluded: Iterable[str] = (),
    flavor: dict[str, Any] | None = None,
) -> RequestSpec:
    """What the scheduler has to know of an instance; ``tried`` are the hosts that could not build it, ``excluded``
    others that it is not to go to, ``flavor`` the one that it is to have."""
    wanted = instance.request.get("requested_destination")
    return RequestSpec(
        instance_uuids=[instance.uuid],
        project_id=instance.project_id,
        user_id=instance.user_id,
        flavor=msgspec.convert(flavor or instance.flavor, Flavor),
        image=None if instance.image is None else msgspec.convert(instance.image, Image),
        availability_zone=instance.requested_availability_zone,
        forced_host=instance.request.get("forced_host"),
        forced_node=instance.request.get("forced_node"),
        requested_destination=None if wanted is None else msgspec.convert(wanted, RequestedDestination),
        ignore_hosts=[*excluded, *tried],
        attempt=len(tried) + 1,
        instance_group=server_groups.of_instance(uow, instance.uuid) if instance.scheduler_hints.get("group") else None,
        scheduler_hints=_hints(uow, instance),
    )


def _hints(uow: UnitOfWork, instance: Instance) -> dict[str, list[str] | str]:
    """The hints, of which those about servers count only for the project's own: whether a host was found would tell
    where others' are. A server that is not one's own is nowhere."""
    found = dict(instance.scheduler_hints)
    named = {hint: _several(found[hint]) for hint in ("same_host", "different_host") if hint in found}
    wanted = {uuid for uuids in named.values() for uuid in uuids}
    if wanted:
        own = instances.of_project(uow, instance.project_id, wanted)
        found |= {hint: [uuid for uuid in uuids if uuid in own] or [NOWHERE] for hint, uuids in named.items()}
    return found


def _several(value: list[str] | str) -> list[str]:
    return [value] if isinstance(value, str) else value
