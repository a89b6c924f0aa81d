"""Third pass of a create: take quota, and write the rows of all plans.

Each kind of row is inserted for all plans together, so that a batch needs few statements. The order of locks is the
same in every transaction: first the counters of quota, then volumes and ports, last server groups.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from oslo_config import cfg

from nova_lite import operations
from nova_lite.conductor.engine.placement_request import PlacementRequest, placement_request_of
from nova_lite.conductor.operations import boot_images
from nova_lite.conductor.operations.create import devices
from nova_lite.conductor.operations.create.incoming import FINGERPRINT, instance_uuid, reservation_id
from nova_lite.conductor.operations.create.validate import Plan
from nova_lite.db import actions, fixed_ips, instances, networks, quotas, server_groups
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.models import Instance, InstanceAction, InstanceTag
from nova_lite.network.driver import NetworkBackend
from nova_lite.objects import CreateResult
from nova_lite.operations import states


class Accepted(NamedTuple):
    """A create that is written. ``placement_requests``: actions that this daemon has leased, and has to dispatch."""

    result: CreateResult
    placement_requests: list[PlacementRequest]


def write(
    uow: UnitOfWork, conf: cfg.ConfigOpts, network: NetworkBackend, plans: Sequence[Plan], lease: bool
) -> list[Accepted]:
    """Write all plans, or raise and write none. ``lease``: this daemon dispatches the actions after the commit."""
    counts = _take_quota(uow, conf, network, plans)
    rows = [_add_instances(uow, plan, count) for plan, count in zip(plans, counts, strict=True)]
    uow.session.flush()
    opened = []
    for plan, instances_ in zip(plans, rows, strict=True):
        _reserve(uow, conf, network, plan, instances_)
        opened.append(_open_actions(uow, conf, plan, instances_, lease))
    uow.session.flush()
    accepted = []
    for plan, instances_, actions_ in zip(plans, rows, opened, strict=True):
        objects = [instances.created(row) for row in instances_]
        result = CreateResult(reservation_id=instances_[0].reservation_id, instances=objects, dispatched=lease)
        requests = []
        if lease:
            for action, row in zip(actions_, instances_, strict=True):
                requests.append(placement_request_of(uow, plan.create.context, action, row))
        accepted.append(Accepted(result, requests))
    return accepted


def _take_quota(uow: UnitOfWork, conf: cfg.ConfigOpts, network: NetworkBackend, plans: Sequence[Plan]) -> list[int]:
    """Take quota for all plans, and return how many servers each one gets.

    That is as many as there is room for, from ``min_count`` to ``max_count``. Raises `QuotaExceeded`.
    """
    by_user: dict[tuple[str, str | None], list[Plan]] = {}
    counts: dict[str, int] = {}
    for plan in plans:
        by_user.setdefault((plan.create.project_id, plan.create.context.user_id), []).append(plan)
    quota_requests = []
    for (project_id, user_id), users_plans in by_user.items():
        amounts = collections.Counter[str]()
        for plan in users_plans:
            request, flavor = plan.create.request, plan.flavor
            per_server = {"instances": 1, "cores": flavor.vcpus, "ram": flavor.memory_mb}
            count = request.min_count
            if request.max_count > count:
                count = max(count, quotas.room(uow, conf, project_id, user_id, per_server, request.max_count))
            counts[plan.create.seed] = count
            for resource, amount in per_server.items():
                amounts[resource] += amount * count
        quota_requests.append(quotas.QuotaRequest(project_id, user_id, amounts, users_plans[0].limits))
    quotas.take_together(uow, quota_requests)
    if not network.remote and any(plan.new_interfaces > 1 for plan in plans):
        for (project_id, _), users_plans in by_user.items():
            _check_addresses(uow, conf, project_id, users_plans, counts)
    return [counts[plan.create.seed] for plan in plans]


def _check_addresses(
    uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str, plans: Sequence[Plan], counts: dict[str, int]
) -> None:
    """Raise `QuotaExceeded` for too many addresses. One address per server is within the quota of servers."""
    interfaces, has_several = 0, False
    for plan in plans:
        interfaces += plan.new_interfaces * counts[plan.create.seed]
        has_several = has_several or plan.new_interfaces > 1
    if has_several:
        fixed_ips.check(uow, conf, project_id, plans[0].limits.of_project, 1, interfaces)


def _add_instances(uow: UnitOfWork, plan: Plan, count: int) -> list[Instance]:
    request = plan.create.request
    rows = []
    for index in range(count):
        row = _instance(uow, plan, index, count)
        if request.idempotency_key is not None:
            row.system_metadata = {**row.system_metadata, FINGERPRINT: request.fingerprint}
        row.boot_images = msgspec.to_builtins(plan.boot.parts)
        row.request = _build_data(plan)
        row.security_groups = plan.security_groups.names
        uow.session.add(row)
        rows.append(row)
    return rows


def _instance(uow: UnitOfWork, plan: Plan, index: int, count: int) -> Instance:
    context, request = plan.create.context, plan.create.request
    flavor, image, key = plan.flavor, plan.boot.image, plan.key
    suffix = f"-{index + 1}" if count > 1 else ""
    uuid = instance_uuid(plan.create.seed, index)
    return Instance(
        uuid=uuid,
        project_id=context.project_id,
        user_id=context.user_id,
        display_name=_shortened(request.name, suffix),
        display_description=request.description,
        hostname=_shortened(request.hostname, suffix) if request.hostname else hostname(request.name, suffix, uuid),
        reservation_id=reservation_id(plan.create.seed),
        launch_index=index,
        vm_state=states.BUILDING,
        task_state=states.SCHEDULING,
        requested_availability_zone=request.availability_zone,
        availability_zone=request.availability_zone,
        image_ref=request.image_ref,
        kernel_id=(image and image.kernel_id) or "",
        ramdisk_id=(image and image.ramdisk_id) or "",
        flavorid=flavor.flavorid,
        flavor=msgspec.to_builtins(flavor),
        image=None if image is None else msgspec.to_builtins(image),
        vcpus=flavor.vcpus,
        memory_mb=flavor.memory_mb,
        disk_gb=flavor.disk_gb,
        key_name=None if key is None else key.name,
        key_data=None if key is None else key.public_key,
        user_data=request.user_data,
        config_drive=request.config_drive or (image is not None and boot_images.needs_config_drive(image)),
        auto_disk_config=request.auto_disk_config,
        access_ip_v4=request.access_ip_v4,
        access_ip_v6=request.access_ip_v6,
        metadata_=request.metadata,
        system_metadata={} if image is None else boot_images.metadata_of(image),
        scheduler_hints=request.scheduler_hints,
        tags=[InstanceTag(tag=tag) for tag in dict.fromkeys(request.tags)],
        created_at=uow.now,
        updated_at=uow.now,
    )


def _shortened(name: str, suffix: str) -> str:
    """Return the name with the suffix, in at most 255 characters."""
    return name[: 255 - len(suffix)] + suffix


def hostname(name: str, suffix: str, uuid: str) -> str:
    """Return a legal host name made of a display name: letters, digits and dashes, at most 63 characters.

    It is ``server-<uuid>`` if the name has no such character.
    """
    plain = re.sub(r"[^a-z0-9-]+", "-", name.lower().replace("_", "-").replace(" ", "-"))
    plain = plain.strip("-")[: 63 - len(suffix)].strip("-")
    return plain + suffix if plain else f"server-{uuid}"[:63]


def _build_data(plan: Plan) -> dict[str, Any]:
    """Return what only the build needs. Some of it is secret, so it is deleted as soon as the build has ended."""
    request = plan.create.request
    data: dict[str, Any] = msgspec.to_builtins(
        {
            "networks": plan.networks,
            "security_groups": plan.security_groups.ids,
            "forced_host": request.forced_host,
            "forced_node": request.forced_node,
            "requested_destination": request.requested_destination,
            "injected_files": request.injected_files,
            "admin_password": request.admin_password,
        }
    )
    return data


def _reserve(
    uow: UnitOfWork, conf: cfg.ConfigOpts, network: NetworkBackend, plan: Plan, rows: Sequence[Instance]
) -> None:
    """Reserve ports and volumes for the servers, and make them members of their server group."""
    request = plan.create.request
    if plan.new_interfaces < len(plan.networks):  # the others use ports that exist
        for row in rows:
            network.reserve(networks.Store(uow), row.uuid, plan.networks)
    if request.block_devices:
        for row in rows:
            devices.attach_all(uow, plan, row)
        uow.session.flush()
    if group := request.scheduler_hints.get("group"):
        name = group if isinstance(group, str) else group[0]
        server_groups.join(uow, conf, plan.create.context, name, [row.uuid for row in rows])


def _open_actions(
    uow: UnitOfWork, conf: cfg.ConfigOpts, plan: Plan, rows: Sequence[Instance], lease: bool
) -> list[InstanceAction]:
    opened = []
    owner = actions.new_owner()
    for row in rows:
        action = actions.open_action(uow, conf, plan.create.context, row, operations.CREATE.kind, {"tried": []})
        action.step = operations.SCHEDULE
        if lease:
            actions.take(uow, conf, action, owner)
        opened.append(action)
    return opened
