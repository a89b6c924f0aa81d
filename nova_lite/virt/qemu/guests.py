"""Guests of this host: they are created, found and destroyed."""

from __future__ import annotations

import dataclasses
import logging
import os

from nova_lite import hardware
from nova_lite.base import exceptions
from nova_lite.hardware import traits
from nova_lite.objects import Image
from nova_lite.operations.states import PowerState
from nova_lite.virt import abilities
from nova_lite.virt.abilities import DomainInfo, SpawnSpec
from nova_lite.virt.libvirt.disks import disk_usage
from nova_lite.virt.libvirt.disks.disks import DiskMaker, DiskSet
from nova_lite.virt.libvirt.disks.image_cache import ImageCache
from nova_lite.virt.libvirt.records import file_errors
from nova_lite.virt.qemu import console_logs, guest
from nova_lite.virt.qemu.guest import Guest
from nova_lite.virt.qemu.host import Part
from nova_lite.virt.qemu.hot_plug import require_file
from nova_lite.virt.qemu.machine import traits_of

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(eq=False)
class HostGuests(Part, abilities.Guests):
    """The guests. A guest is its definition, its directory and, while it is on, its process."""

    _disks: DiskMaker

    @file_errors()
    def all(self) -> list[DomainInfo]:
        guests = self._host.definitions.all()
        for found in guests:
            console_logs.limit(self._host.records.directory(found.uuid))
        return [self._host.info(found) for found in guests]

    def get(self, instance_uuid: str) -> DomainInfo:
        return self._host.info(self._host.definitions.get(instance_uuid))

    @file_errors()
    def leftovers(self) -> set[str]:
        return self._host.records.uuids() - {found.uuid for found in self._host.definitions.all()}

    @file_errors()
    def spawn(self, spec: SpawnSpec) -> None:
        if self._is_running(spec):
            return
        instance, requested = spec.instance, hardware.resolve(spec.instance.flavor, spec.image)
        guest.check(requested, instance)
        if missing := traits.missing(requested.traits, traits_of(self._host)):
            raise exceptions.VirtDriverError(reason=f"this host lacks requested traits: {', '.join(missing)}")
        for volume_id, source in spec.volumes.items():
            require_file(volume_id, source)
        try:
            directory = self._host.records.create(instance.uuid, spec.generation, list(spec.images))
            made = _define(spec, requested, self._disks.make(directory, spec))
            spec.fence()
            self._host.definitions.write(made)
            self._host.start(made, paused=spec.plugged is not None)
            if spec.plugged is not None:
                spec.plugged()
                self._host.start(made)
        except BaseException:
            self._undo(instance.uuid)
            raise

    def _undo(self, instance_uuid: str) -> None:
        """Remove a guest that could not be made. A failure is left to `leftovers`, so that the first error counts."""
        try:
            self.destroy(instance_uuid)
        except (exceptions.VirtDriverError, OSError) as error:
            LOG.error("After the failed spawn of %s its remains could not be removed: %s", instance_uuid, error)

    def _is_running(self, spec: SpawnSpec) -> bool:
        """Check whether the guest already runs at this generation. Remove an older or incomplete one."""
        found = self._host.definitions.find(spec.instance.uuid)
        if found is not None:
            if found.generation > spec.generation:
                raise exceptions.Fenced(instance_uuid=found.uuid, generation=found.generation)
            if found.generation == spec.generation and self._host.info(found).power_state == PowerState.RUNNING:
                return True
        self.destroy(spec.instance.uuid)
        return False

    @file_errors()
    def destroy(self, instance_uuid: str) -> None:
        """Remove a guest. Its definition is removed after its process, so that no running guest is unknown."""
        if not self._host.records.owns(instance_uuid):
            return
        self._host.processes.stop(self._host.records.directory(instance_uuid), instance_uuid)
        found = self._host.definitions.find(instance_uuid)
        for disk in found.disks if found is not None else ():
            if disk.serial is not None:
                self._host.processes.take_back(disk.path)
        self._host.definitions.remove(instance_uuid)
        self._host.records.remove(instance_uuid)


def _define(spec: SpawnSpec, requested: hardware.Hardware, disks: DiskSet) -> Guest:
    """Return the guest of ``spec``. Raises `VirtDriverError` for a disk that it cannot have."""
    made = Guest(
        uuid=spec.instance.uuid,
        generation=spec.generation,
        project_id=spec.instance.project_id,
        machine=requested.machine_type or guest.Q35,
        memory_mb=spec.instance.flavor.memory_mb,
        topology=requested.topology,
        rng=requested.rng,
        disks=disks.disks,
        direct_boot=disks.direct_boot,
        vifs=spec.vifs,
    )
    if made.is_microvm and made.direct_boot is None:
        reason = "a microvm starts a kernel, and the image names none (kernel_id)"
        raise exceptions.ImageUnacceptable(image_id=spec.image.id if spec.image else "", reason=reason)
    if others := sorted({disk.bus for disk in made.disks} - {"virtio"}):
        raise exceptions.VirtDriverError(reason=f"guests of qemu without libvirt have no disks on {', '.join(others)}")
    for disk in made.disks:
        if disk.serial is not None:
            made.take_port(guest.disk_id(disk))
    for vif in made.vifs:
        made.take_port(guest.vif_id(vif))
    return made


@dataclasses.dataclass(eq=False)
class CachedImages(Part, abilities.Images):
    """The image cache, and the images in it that guests use."""

    _cache: ImageCache

    def cache(self, image: Image) -> None:
        self._cache.get(image)

    @file_errors()
    def remove_unused(self, minimum_age: float) -> list[str]:
        return self._cache.remove_unused(minimum_age, self._used)

    def _used(self) -> set[str]:
        used = disk_usage.used_images(self._host.records.instances_path)
        boots = [found.direct_boot for found in self._host.definitions.all() if found.direct_boot is not None]
        return used | {os.path.basename(path) for boot in boots for path in (boot.kernel, boot.ramdisk) if path}
