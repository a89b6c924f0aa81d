"""Placement requests: what the scheduler needs to know about the instance of an action at the step `ScheduleStep`."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import msgspec

from nova_lite import operations
from nova_lite.base.context import RequestContext
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance, InstanceAction
from nova_lite.db.network import port_devices
from nova_lite.db.servers import instances, server_groups, shares
from nova_lite.db.volume import sharing
from nova_lite.hardware import pci
from nova_lite.objects import Flavor, GuestReport, Image, RequestedDestination, RequestSpec

#: Replaces the uuid of another project's server in a scheduler hint. No host has a server of this uuid.
NOWHERE = "00000000-0000-0000-0000-000000000000"

#: Scheduler hints that name servers.
SERVER_HINTS = ("same_host", "different_host")


#: Key in the payload of an evacuation: the host that the server has lost.
LOST = "lost"

#: Why hosts must not get a server.
IS_LOST, IS_PRESENT, HAS_NO_DISKS = "the lost host", "the server's present host", "not among those with its disks"


class PlacementRequest(msgspec.Struct):
    """Request to place the instance of an action. ``owner`` holds the lease of the action.

    ``since``: when this attempt began. ``is_new``: the instance was never on a host and has no interfaces yet.
    ``group``: requests of the same group go to the scheduler as one `RequestSpec`.
    """

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
    """Return the placement request of a leased action at `ScheduleStep`."""
    payload = action.payload
    tried = list(payload.get("tried", []))
    is_live = action.action == operations.LIVE_MIGRATE.kind
    spec = request_spec(uow, row, tried, _excluded(action), payload.get("flavor"), is_live)
    destination = spec.requested_destination and spec.requested_destination.host
    flavor_id = spec.flavor.flavorid if "flavor" in payload else ""
    guest = row.uuid if is_live else ""
    group = (row.reservation_id, spec.forced_host or "", destination or "", flavor_id, guest, *spec.ignore_hosts)
    uses_ports = any(network.get("port_id") for network in row.request.get("networks", ()))
    is_new = action.action == operations.CREATE.kind and not tried and not uses_ports
    return PlacementRequest(action.id, row.uuid, str(action.lease_owner), context, uow.now, is_new, group, spec)


def _excluded(action: InstanceAction) -> dict[str, str]:
    """Return the hosts that must not get the server although they did not fail to build it, with the reason."""
    hosts = action.payload.get("excluded", [])
    if action.action != operations.EVACUATE.kind:
        return dict.fromkeys(hosts, IS_PRESENT)
    return {host: IS_LOST if host == action.payload.get(LOST, host) else HAS_NO_DISKS for host in hosts}


def grouped(requests: list[PlacementRequest]) -> list[list[PlacementRequest]]:
    """Split requests by their ``group``, in the order of arrival."""
    groups: dict[tuple[str, ...], list[PlacementRequest]] = {}
    for request in requests:
        groups.setdefault(request.group, []).append(request)
    return list(groups.values())


def request_spec(
    uow: UnitOfWork,
    instance: Instance,
    tried: list[str],
    excluded: Mapping[str, str] | None = None,
    flavor: dict[str, Any] | None = None,
    is_live: bool = False,
) -> RequestSpec:
    """Return the request spec of an instance.

    ``tried``: hosts that failed to build it. ``excluded``: other hosts that must not get it, with the reason.
    ``flavor``: the new flavor, if the instance gets another one. ``is_live``: its guest is to move while it runs.
    """
    guest = msgspec.convert(instance.guest_devices, GuestReport) if is_live and instance.guest_devices else None
    destination = instance.request.get("requested_destination")
    new_flavor = msgspec.convert(flavor or instance.flavor, Flavor)
    image = None if instance.image is None else msgspec.convert(instance.image, Image)
    return RequestSpec(
        instance_uuids=[instance.uuid],
        project_id=instance.project_id,
        user_id=instance.user_id,
        flavor=new_flavor,
        image=image,
        pci=[*pci.requests(uow.conf, new_flavor, image), *port_devices.requests(uow, instance)],
        availability_zone=instance.requested_availability_zone,
        forced_host=instance.request.get("forced_host"),
        forced_node=instance.request.get("forced_node"),
        requested_destination=None if destination is None else msgspec.convert(destination, RequestedDestination),
        ignore_hosts=[*(excluded or {}), *tried],
        left_out=dict(excluded or {}),
        attempt=len(tried) + 1,
        instance_group=server_groups.of_instance(uow, instance.uuid) if instance.scheduler_hints.get("group") else None,
        scheduler_hints=_hints(uow, instance) if instance.scheduler_hints else {},
        guest_cpu=None if guest is None else guest.cpu,
        traits=[*sharing.needed_traits(instance), *shares.needed_traits(instance)],
    )


def _hints(uow: UnitOfWork, instance: Instance) -> dict[str, list[str] | str]:
    """Return the scheduler hints. Servers of other projects are replaced by `NOWHERE`.

    Otherwise the scheduler's decision would show where servers of other projects are.
    """
    hints = dict(instance.scheduler_hints)
    named = {hint: _as_list(hints[hint]) for hint in SERVER_HINTS if hint in hints}
    uuids = {uuid for named_uuids in named.values() for uuid in named_uuids}
    if uuids:
        own = instances.of_project(uow, instance.project_id, uuids)
        for hint, named_uuids in named.items():
            hints[hint] = [uuid for uuid in named_uuids if uuid in own] or [NOWHERE]
    return hints


def _as_list(value: list[str] | str) -> list[str]:
    return [value] if isinstance(value, str) else value
