"""Third pass of a create: take quota, and write the rows of all plans.

Each kind of row is inserted for all plans together, so that a batch needs few statements. The order of locks is the
same in every transaction: first the counters of quota, then volumes and ports, last server groups.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from oslo_config import cfg

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.conductor.operations.create import devices
from nova_lite.conductor.operations.create.validate import Plan
from nova_lite.db.core import actions, quotas
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance, InstanceTag
from nova_lite.db.creates import FINGERPRINT, instance_uuid, reservation_id
from nova_lite.db.network import builtin_networks, port_quota
from nova_lite.db.servers import clones, instances, server_groups
from nova_lite.network.driver import NetworkBackend, PortQuota
from nova_lite.objects import CreateResult
from nova_lite.operations import states


def write(uow: UnitOfWork, conf: cfg.ConfigOpts, network: NetworkBackend, plans: Sequence[Plan]) -> list[CreateResult]:
    """Write all plans, or raise and write none."""
    counts = _take_quota(uow, conf, network, plans)
    rows = [_add_instances(uow, plan, count) for plan, count in zip(plans, counts, strict=True)]
    uow.session.flush()
    for plan, instances_ in zip(plans, rows, strict=True):
        _reserve(uow, conf, network, plan, instances_)
        _open_actions(uow, conf, plan, instances_)
    uow.session.flush()
    return [
        CreateResult(
            reservation_id=instances_[0].reservation_id, instances=[instances.created(row) for row in instances_]
        )
        for instances_ in rows
    ]


def _take_quota(uow: UnitOfWork, conf: cfg.ConfigOpts, network: NetworkBackend, plans: Sequence[Plan]) -> list[int]:
    """Take quota for all plans, and return how many servers each one gets.

    That is as many as there is room for, from ``min_count`` to ``max_count``. Raises `QuotaExceeded` or
    `PortLimitExceeded`.
    """
    by_user: dict[tuple[str, str | None], list[Plan]] = {}
    for plan in plans:
        by_user.setdefault((plan.create.project_id, plan.create.context.user_id), []).append(plan)
    ports = _remote_ports(plans) if network.has_remote_ports else _port_quotas(conf, plans)
    counts = {plan.create.seed: plan.create.request.min_count for plan in plans}
    flexible = [plan for plan in plans if plan.create.request.max_count > plan.create.request.min_count]
    if flexible:
        quotas.lock_all(uow, {plan.create.project_id for plan in plans})
        free = _free_ports(uow, ports)
        for plan in flexible:
            counts[plan.create.seed] = _count(uow, conf, plan, free.get(plan.create.project_id))
    quota_requests = []
    for (project_id, user_id), users_plans in by_user.items():
        amounts = collections.Counter[str]()
        for plan in users_plans:
            for resource, amount in _per_server(plan).items():
                amounts[resource] += amount * counts[plan.create.seed]
        quota_requests.append(quotas.QuotaRequest(project_id, user_id, amounts, users_plans[0].limits))
    quotas.take_together(uow, quota_requests)
    _check_ports(uow, ports, counts)
    return [counts[plan.create.seed] for plan in plans]


def _per_server(plan: Plan) -> dict[str, int]:
    return {"instances": 1, "cores": plan.flavor.vcpus, "ram": plan.flavor.memory_mb}


def _count(uow: UnitOfWork, conf: cfg.ConfigOpts, plan: Plan, free_ports: int | None) -> int:
    """Return the number of servers of one plan for which there is room, but at least ``min_count``."""
    create, most = plan.create, plan.create.request.max_count
    room = quotas.room(uow, conf, create.project_id, create.context.user_id, _per_server(plan), most)
    if free_ports is not None and plan.new_interfaces:
        room = min(room, free_ports // plan.new_interfaces)
    return max(create.request.min_count, room)


class _PortQuota(NamedTuple):
    """Limit of a project's ports, and its plans that make some. ``used``: None: as counted in the database."""

    limit: int
    plans: list[Plan]
    used: int | None = None


def _used_ports(uow: UnitOfWork, ports: Mapping[str, _PortQuota]) -> dict[str, int]:
    """Return the number of ports by project, as counted here or by the other service."""
    here = [project_id for project_id, quota in ports.items() if quota.used is None]
    found = port_quota.used_of(uow, here) if here else {}
    return found | {project_id: quota.used for project_id, quota in ports.items() if quota.used is not None}


def _free_ports(uow: UnitOfWork, ports: Mapping[str, _PortQuota]) -> dict[str, int]:
    used = _used_ports(uow, ports)
    return {project_id: max(quota.limit - used[project_id], 0) for project_id, quota in ports.items()}


def _check_ports(uow: UnitOfWork, ports: Mapping[str, _PortQuota], counts: Mapping[str, int]) -> None:
    """Raise `PortLimitExceeded` for too many interfaces. The projects' counters of quota are locked."""
    used = _used_ports(uow, ports)
    for project_id, quota in ports.items():
        wanted = sum(plan.new_interfaces * counts[plan.create.seed] for plan in quota.plans)
        if used[project_id] + wanted > quota.limit:
            raise exceptions.PortLimitExceeded(requested=wanted, used=used[project_id], allowed=quota.limit)


def _port_quotas(conf: cfg.ConfigOpts, plans: Sequence[Plan]) -> dict[str, _PortQuota]:
    """Return the quotas of ports by project, without projects that need none or have no limit."""
    found: dict[str, _PortQuota] = {}
    for plan in plans:
        limit = port_quota.limit_of(conf, plan.limits.of_project)
        if plan.new_interfaces and limit >= 0:
            found.setdefault(plan.create.project_id, _PortQuota(limit, [])).plans.append(plan)
    return found


def _remote_ports(plans: Sequence[Plan]) -> dict[str, _PortQuota]:
    """Return what the other network service's quotas leave, by project. That service decides when it makes ports."""
    found: dict[str, _PortQuota] = {}
    for plan in plans:
        quota: PortQuota | None = plan.create.resolution.port_quota
        if plan.new_interfaces and quota is not None:
            found.setdefault(plan.create.project_id, _PortQuota(quota.limit, [], quota.used)).plans.append(plan)
    return found


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
    parts = {} if image is None else dict(image.boot_parts())
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
        kernel_id=parts.get("kernel", ""),
        ramdisk_id=parts.get("ramdisk", ""),
        flavorid=flavor.flavorid,
        flavor=msgspec.to_builtins(flavor),
        image=None if image is None else msgspec.to_builtins(image),
        vcpus=flavor.vcpus,
        memory_mb=flavor.memory_mb,
        disk_gb=flavor.disk_gb,
        key_name=None if key is None else key.name,
        key_data=None if key is None else key.public_key,
        user_data=request.user_data,
        config_drive=request.config_drive or (image is not None and image.needs_config_drive),
        auto_disk_config=request.auto_disk_config,
        access_ip_v4=request.access_ip_v4,
        access_ip_v6=request.access_ip_v6,
        metadata_=request.metadata,
        system_metadata={} if image is None else image.as_metadata(),
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
            network.reserve(builtin_networks.Store(uow), row.uuid, plan.networks)
    if request.block_devices:
        for row in rows:
            devices.attach_all(uow, plan, row)
        uow.session.flush()
    if group := request.scheduler_hints.get("group"):
        name = group if isinstance(group, str) else group[0]
        server_groups.join(uow, conf, plan.create.context, name, [row.uuid for row in rows])


def _open_actions(uow: UnitOfWork, conf: cfg.ConfigOpts, plan: Plan, rows: Sequence[Instance]) -> None:
    for row in rows:
        action = actions.open_action(uow, conf, plan.create.context, row, operations.CREATE.kind, {"tried": []})
        action.step = operations.SCHEDULE
        if plan.create.request.clone_of is not None:
            clones.hold(action, plan.create.request.clone_of)
