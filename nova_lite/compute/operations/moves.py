"""What cold and live migration share at either end of a move."""

from __future__ import annotations

import msgspec

from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.compute.host import LocalHost
from nova_lite.objects import ActionCommand, Image, Instance, InstanceNUMATopology
from nova_lite.operations import HostRole
from nova_lite.virt.driver import SpawnSpec


def require_current(host: LocalHost, command: ActionCommand) -> None:
    """Ask whether the guest is still to come here, for as long as it takes; raises `Fenced` or `StaleReport`."""
    uuid, generation = command.instance.uuid, command.generation
    wanted = host.retrier.ask(
        f"Instance {uuid}: whether it is still to come here",
        lambda: host.conductor.order_is_wanted(get_admin_context(), host.name, command.action_id, command.sequence),
        lambda: host.fencing.check(uuid, generation),
    )
    if not wanted:
        raise exceptions.StaleReport(instance_id=uuid, generation=generation, host=host.name)


def require_generation(host: LocalHost, command: ActionCommand) -> None:
    """Raises `DomainNotFound` unless the domain, which may be held back, it is of just the command's generation."""
    found = host.driver.get_info(command.instance.uuid)
    if found.generation != command.generation:
        raise exceptions.DomainNotFound(instance_uuid=found.uuid)


def numa_at(command: ActionCommand, end: HostRole) -> InstanceNUMATopology | None:
    """Where the instance is, or is to be, in the NUMA cells of that end of a move."""
    place = command.payload.get(end.value) or {}
    return msgspec.convert(place.get("numa"), InstanceNUMATopology | None)


def spawn_spec(host: LocalHost, command: ActionCommand, instance: Instance) -> SpawnSpec:
    """Of a guest that comes here with its disks: it gets nothing that only a build puts in."""
    image = None if command.payload.get("image") is None else msgspec.convert(command.payload["image"], Image)
    images = msgspec.convert(command.payload.get("boot_images") or {}, dict[str, Image])
    return SpawnSpec(
        instance=instance,
        generation=command.generation,
        vifs=instance.vifs,
        image=image,
        images={image.id: image, **images} if image else images,
        injected_files={},
        admin_password=None,
        fence=lambda: host.fencing.mark_creating(instance.uuid, command.generation),
        volumes=host.volume_paths(instance),
    )


def remove_generation(host: LocalHost, command: ActionCommand) -> None:
    """Nothing of this generation is left, which is fenced by now. A later one has come since, and stays."""
    found = host.domain(command.instance.uuid)
    if found is None or found.generation <= command.generation:
        host.remove(command.instance.uuid)
