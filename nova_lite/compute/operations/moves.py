"""Functions that cold and live migration share."""

from __future__ import annotations

import msgspec

from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.compute.host import LocalHost
from nova_lite.objects import ActionCommand, Image, Instance, InstanceNUMATopology, PCIDevice
from nova_lite.operations import HostRole
from nova_lite.virt.abilities import SpawnSpec


def require_current(host: LocalHost, command: ActionCommand) -> None:
    """Query the conductor, for as long as necessary, whether the guest is still to come here.

    Raises `Fenced` or `StaleReport`.
    """
    uuid, generation = command.instance.uuid, command.generation
    is_current = host.retrier.call(
        f"Instance {uuid}: query whether it is still to come here",
        lambda: host.conductor.is_command_current(get_admin_context(), host.name, command.action_id, command.sequence),
        lambda: host.fencing.check(uuid, generation),
    )
    if not is_current:
        raise exceptions.StaleReport(instance_id=uuid, generation=generation, host=host.name)


def require_generation(host: LocalHost, command: ActionCommand) -> None:
    """Raise `DomainNotFound` unless the domain has exactly the command's generation. It may be held."""
    found = host.driver.guests.get(command.instance.uuid)
    if found.generation != command.generation:
        raise exceptions.DomainNotFound(instance_uuid=found.uuid)


def instance_at(command: ActionCommand, role: HostRole) -> Instance:
    """Return the instance with its place in the NUMA cells, and its devices, of the host with this role."""
    allocation = command.payload.get(role.value) or {}
    return msgspec.structs.replace(
        command.instance,
        numa=msgspec.convert(allocation.get("numa"), InstanceNUMATopology | None),
        pci=msgspec.convert(allocation.get("pci"), list[PCIDevice] | None),
    )


def spawn_spec(host: LocalHost, command: ActionCommand, instance: Instance) -> SpawnSpec:
    """Return the spawn specification of a guest that arrives with its disks. It lacks everything that only a build
    injects."""
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
    """Remove this revoked generation. A domain of a later generation stays."""
    found = host.domain(command.instance.uuid)
    if found is None or found.generation <= command.generation:
        host.remove(command.instance.uuid)
