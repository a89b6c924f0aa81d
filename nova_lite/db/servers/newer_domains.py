"""Servers whose guest is newer than their row, because the database has lost the commits in between.

A host reports such a domain, and leaves it alone. `adopt` moves the row to it. The row then has the guest's generation,
so that commands reach the guest, and every older domain of the server is removed by the next comparison of its host.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.db.core import actions, quotas
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Allocation, ComputeNode, Instance, Migration, Service, UnknownDomains
from nova_lite.db.hosts import compute_nodes, services
from nova_lite.db.servers import claims, instances
from nova_lite.db.volume import block_devices
from nova_lite.objects.block_device import root_volume
from nova_lite.operations import migration_states, states
from nova_lite.operations.states import PowerState

_VM_STATES = {
    PowerState.RUNNING: states.ACTIVE,
    PowerState.PAUSED: states.PAUSED,
    PowerState.SUSPENDED: states.SUSPENDED,
    PowerState.SHUTDOWN: states.STOPPED,
    PowerState.CRASHED: states.STOPPED,
}


class NewerDomain(NamedTuple):
    """The newest guest of a server that hosts have reported, and what its row says."""

    uuid: str
    name: str
    vm_state: str
    row_host: str | None
    row_generation: int
    host: str
    generation: int
    power_state: PowerState
    has_root_volume: bool


def all_newer(uow: UnitOfWork) -> list[NewerDomain]:
    """Return the servers with a newer guest, of each its newest one."""
    newest: dict[str, tuple[int, str, int]] = {}
    for host, newer in uow.session.execute(sa.select(UnknownDomains.host, UnknownDomains.newer)):
        for uuid, generation, power_state in newer or ():
            newest[uuid] = max(newest.get(uuid, (0, "", 0)), (generation, host, power_state))
    found = []
    for row in instances.rows_by_uuid(uow, list(newest)).values():
        generation, host, power_state = newest[row.uuid]
        if not row.deleted and generation > max(row.generation, row.last_generation):
            has_root_volume = root_volume(block_devices.of(row)) is not None
            found.append(
                NewerDomain(
                    row.uuid,
                    row.display_name,
                    row.vm_state,
                    row.host,
                    row.generation,
                    host,
                    generation,
                    PowerState(power_state),
                    has_root_volume,
                )
            )
    return sorted(found)


def adopt(uow: UnitOfWork, instance_uuid: str, others_are_off: bool) -> NewerDomain:
    """Move the row to the newest guest. Raises `InvalidInput`, or `InstanceNotFound`.

    ``others_are_off``: the operator's word that no guest runs on a host that is silent. Such a host may have a guest
    that is newer still, which would run beside this one.
    """
    instance = instances.lock(uow, instance_uuid)
    if instance is None or instance.deleted:
        raise exceptions.InstanceNotFound(instance_id=instance_uuid)
    found = next((item for item in all_newer(uow) if item.uuid == instance_uuid), None)
    if found is None:
        raise exceptions.InvalidInput(
            reason=f"no host has reported a guest of {instance_uuid} that is newer than its row"
        )
    _check_row(uow, instance)
    service = services.locked(uow, found.host, services.COMPUTE)
    if service is None or not service.up or service.forced_down:
        raise exceptions.InvalidInput(reason=f"host {found.host}, which has the guest, is down. Start its daemon first")
    if not others_are_off and (silent := _silent_hosts(uow)):
        raise exceptions.InvalidInput(
            reason=f"hosts {', '.join(silent)} are silent, and may have a guest that is newer still. Start their "
            "daemons, or if no guest runs there, say so with --other-hosts-are-off"
        )
    _move(uow, instance, found, service)
    return found


def _check_row(uow: UnitOfWork, instance: Instance) -> None:
    if instance.task_state is not None or actions.all_open(uow, instance.uuid):
        raise exceptions.InvalidInput(
            reason=f"an operation on server {instance.uuid} is in progress: wait for its end or its deadline"
        )
    if instance.site_role is not None:
        raise exceptions.InvalidInput(
            reason=f"server {instance.uuid} is replicated: nova-lite-manage replication adopt is for it"
        )
    if instance.vm_state == states.SOFT_DELETED:
        raise exceptions.InvalidInput(reason=f"server {instance.uuid} is soft-deleted: delete or restore it first")


def _silent_hosts(uow: UnitOfWork) -> list[str]:
    query = sa.select(Service.host).where(
        Service.binary == services.COMPUTE, Service.up.is_(False), Service.forced_down.is_(False)
    )
    return list(uow.session.scalars(query.order_by(Service.host)))


def _move(uow: UnitOfWork, instance: Instance, found: NewerDomain, service: Service) -> None:
    """Give the row the place of the guest."""
    held = claims.of_instances(uow, [instance.uuid], found.host)
    if found.host == instance.host and instance.generation in held.get(instance.uuid, ()):
        for other in claims.held_hosts(uow, instance):
            if other != claims.HeldHost(found.host, instance.generation):
                claims.release(uow, instance.uuid, other)
        claims.set_generation(uow, instance, found.generation)
    else:
        _claim(uow, instance, found, service)
    quotas.give_back(uow, instance.project_id, {"cores": instance.extra_vcpus, "ram": instance.extra_memory_mb})
    instance.extra_vcpus = instance.extra_memory_mb = 0
    instance.last_generation = found.generation
    instance.vm_state = _VM_STATES.get(found.power_state, states.ERROR)
    instance.power_state = int(found.power_state)
    instance.fault = instance.guest_devices = instance.shelved_image = instance.shelved_at = None
    instance.updated_at = uow.now
    is_open = Migration.status.not_in(migration_states.CLOSED)
    ended = sa.update(Migration).where(Migration.instance_uuid == instance.uuid, is_open)
    uow.change(ended.values(status=migration_states.ERROR))


def _claim(uow: UnitOfWork, instance: Instance, found: NewerDomain, service: Service) -> None:
    """Claim the row's resources where the guest is, even if the host is full: the guest is there."""
    if instance.numa is not None or instance.pci:
        raise exceptions.InvalidInput(
            reason=f"server {instance.uuid} has a place in NUMA cells or devices, and those on host {found.host} are "
            "unknown"
        )
    node = uow.session.scalars(sa.select(ComputeNode).where(ComputeNode.service_id == service.id).limit(1)).one()
    claims.release(uow, instance.uuid)
    claims.move(instance, claims.Place(found.host, node.node, found.generation, service.availability_zone))
    amounts = {name: getattr(instance, name) for name in claims.RESOURCES}
    values = {"instance_uuid": instance.uuid, "compute_node_id": node.id, "generation": found.generation}
    uow.session.add(Allocation(**values, created_at=uow.now, **amounts))
    for name, amount in amounts.items():
        column = f"{name}_used"
        setattr(node, column, getattr(node, column) + amount)
    compute_nodes.touch(uow, node)


def rebuild_of(uow: UnitOfWork, instance_uuid: str) -> dict[str, Any]:
    """Return a request to rebuild a server from the image that its row has, as it was described at that time."""
    row = uow.session.scalars(sa.select(Instance).where(Instance.uuid == instance_uuid)).one()
    if row.image is None:
        raise exceptions.InvalidInput(reason=f"server {instance_uuid} has no image. Its guest is adopted")
    images = {str(row.image["id"]): row.image, **(row.boot_images or {})}
    return {"image_ref": str(row.image["id"]), "images": images, "changes": {}, "injected_files": {}}
