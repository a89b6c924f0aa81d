"""Disks of fake guests: moves, copies, and volumes."""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from nova_lite.backups import disk_data, disk_parts
from nova_lite.base import exceptions, failpoints, files, trees
from nova_lite.hardware import continuing
from nova_lite.objects import (
    BlockDevice,
    DiskFile,
    DiskSource,
    FileMerge,
    LiveDestination,
    LiveSource,
    MigrationControl,
    MigrationProgress,
    VolumeSource,
    is_encrypted,
)
from nova_lite.operations.states import PowerState
from nova_lite.virt import abilities, images
from nova_lite.virt.abilities import BackupRequest, ExportVolume, SpawnSpec
from nova_lite.virt.fake_hypervisor import Ability, FakeHypervisor, domain_of, files_of, images_of

#: Version 3, clusters of 64 KiB, a header of 104 bytes, and an empty disk.
QCOW2_HEADER = struct.pack(">4sIQII", b"QFI\xfb", 3, 0, 0, 16).ljust(100, b"\0") + (104).to_bytes(4, "big") + bytes(408)

_MIB = 1024 * 1024

#: Domain file of a guest that is set aside, next to its disks.
ASIDE_DOMAIN = "domain.json"


class FakeMoves(Ability, abilities.Moves):
    def __init__(self, hypervisor: FakeHypervisor, power: abilities.Power) -> None:
        super().__init__(hypervisor)
        self._power = power

    def offer_disks(self, instance_uuid: str, timeout: int) -> DiskSource:
        self._fake.step("migrate_disk")
        self._power.off(instance_uuid, timeout)
        return _source(self._fake.conf.my_ip, self._fake.disks(instance_uuid))

    def finish(self, spec: SpawnSpec, source: DiskSource, power_on: bool) -> None:
        """Copy the disks from the other host's directory. All hosts of a fake cloud are on one machine."""
        instance_uuid = spec.instance.uuid
        if os.path.exists(self._fake.file("domains", instance_uuid)):
            raise exceptions.VirtDriverError(reason=f"a domain of instance {instance_uuid} exists already")
        try:
            disks = files.private_directory(os.path.join(self._fake.path, "disks", instance_uuid))
            for file in source.files:
                time.sleep(self._fake.step("copy_disk").spawn_delay)
                failpoints.check_disk()
                shutil.copyfile(os.path.join(source.location, file.name), os.path.join(disks, file.name))
            domain = domain_of(spec)
            self._fake.step("finish_migration")
            spec.fence()
            if power_on:
                self._fake.boot(domain)
            else:
                self._fake.write(domain)
            self._fake.step("finish_migration_after_domain")
        except BaseException:
            self._fake.remove(instance_uuid)
            raise

    def set_aside(self, instance_uuid: str, timeout: int) -> DiskSource:
        aside, disks = self._fake.aside(instance_uuid), self._fake.disks(instance_uuid)
        if not os.path.exists(aside):
            if os.path.exists(self._fake.file("domains", instance_uuid)):
                self._fake.step("migrate_disk")
                self._power.off(instance_uuid, timeout)
                os.replace(self._fake.file("domains", instance_uuid), os.path.join(disks, ASIDE_DOMAIN))
                self._fake.step("set_aside")
            os.rename(disks, aside)
        return _source(self._fake.conf.my_ip, aside)

    def restore(self, instance_uuid: str) -> None:
        disks, domain = self._fake.disks(instance_uuid), self._fake.file("domains", instance_uuid)
        if os.path.exists(self._fake.aside(instance_uuid)):
            os.rename(self._fake.aside(instance_uuid), disks)
        self._fake.step("restore_set_aside")
        if os.path.exists(os.path.join(disks, ASIDE_DOMAIN)):
            os.replace(os.path.join(disks, ASIDE_DOMAIN), domain)

    def discard(self, instance_uuid: str) -> None:
        self._fake.step("discard_set_aside")
        trees.discard(self._fake.aside(instance_uuid))


class FakePoints(Ability, abilities.Points):
    """Points are copies of the disk file beside it. Memory is the power state that a guest has again."""

    def create(self, instance_uuid: str, point_id: str, memory: bool) -> None:
        self._fake.read(instance_uuid)
        self._fake.step("create_point")
        with open(self._disk(instance_uuid), "rb") as disk:
            files.write_atomically(self._point(instance_uuid, point_id), disk.read(), durable=False)
        self._fake.step("create_point_after")

    def revert(self, instance_uuid: str, point_id: str, memory: bool) -> None:
        domain = self._fake.read(instance_uuid)
        self._fake.step("revert_to_point")
        domain.power_state = PowerState.SHUTDOWN
        self._fake.write(domain)
        with open(self._point(instance_uuid, point_id), "rb") as point:
            files.write_atomically(self._disk(instance_uuid), point.read(), durable=False)
        if memory:
            self._fake.boot(domain)
        self._fake.step("revert_to_point_after")

    def delete(self, instance_uuid: str, point_id: str) -> None:
        self._fake.step("delete_point")
        files.remove(self._point(instance_uuid, point_id))

    def _disk(self, instance_uuid: str) -> str:
        return os.path.join(self._fake.disks(instance_uuid), "disk")

    def _point(self, instance_uuid: str, point_id: str) -> str:
        return os.path.join(self._fake.disks(instance_uuid), f"point-{point_id}")


class FakeClones(Ability, abilities.Clones):
    """Layers are copies of disk files, and stay until they are old."""

    def freeze(self, instance_uuid: str, clone_uuid: str) -> None:
        self._fake.read(instance_uuid)
        self._fake.step("clone")
        path = self._fake.layer_path(clone_uuid)
        if not os.path.exists(path):
            with open(os.path.join(self._fake.disks(instance_uuid), "disk"), "rb") as disk:
                files.write_atomically(path, disk.read(), durable=False)
        self._fake.step("clone_after")

    def settle(self, instance_uuid: str, clone_uuid: str) -> None:
        self._fake.step("settle_clone")

    def remove_unused(self) -> list[str]:
        return []


class FakeLiveMoves(Ability, abilities.LiveMoves):
    def check_source(self, instance_uuid: str) -> LiveSource:
        self._fake.step("check_can_live_migrate")
        domain = self._fake.read(instance_uuid)
        if domain.power_state not in (PowerState.RUNNING, PowerState.PAUSED):
            raise exceptions.MigrationPreCheckError(reason="the guest does not run")
        size = os.path.getsize(os.path.join(self._fake.disks(instance_uuid), "disk"))
        return LiveSource(driver="fake", disks={"disk": size}, guest_cpu=domain.cpu)

    def check_destination(self, source: LiveSource) -> None:
        host = self._fake.step("check_can_live_migrate_destination").cpu
        if source.guest_cpu is not None and host is not None:
            continuing.require(continuing.obstacles(source.guest_cpu, host, 0))

    def prepare(self, spec: SpawnSpec, source: LiveSource) -> LiveDestination:
        instance_uuid = spec.instance.uuid
        if os.path.exists(self._fake.file("domains", instance_uuid)):
            raise exceptions.MigrationPreCheckError(reason=f"a domain of instance {instance_uuid} exists already")
        try:
            self._fake.step("pre_live_migration")
            files.private_directory(self._fake.disks(instance_uuid))
            failpoints.check_disk()
            for image in images_of(spec):
                self._fake.fetch(image)
            spec.fence()
        except BaseException:
            self._fake.remove(instance_uuid)
            raise
        return LiveDestination(
            driver="fake",
            host=self._fake.host,
            generation=spec.generation,
            address=self._fake.conf.my_ip,
            paths={"domain": self._fake.file("domains", instance_uuid), "disks": self._fake.disks(instance_uuid)},
            numa=spec.instance.numa,
            pci=spec.instance.pci or [],
        )

    def migrate(
        self,
        instance_uuid: str,
        destination: LiveDestination,
        watch: Callable[[MigrationProgress], MigrationControl],
    ) -> None:
        """Migrate a tenth of the memory each tenth of ``live_migration_delay``, and switch over at the end."""
        total = self._fake.read(instance_uuid).memory_mb * 1024**2
        delay = self._fake.step("live_migration").live_migration_delay
        for tenth in range(1, 11):
            time.sleep(delay / 10)
            done = total * tenth // 10
            wish = watch(MigrationProgress(memory_total=total, memory_processed=done, memory_remaining=total - done))
            if wish is MigrationControl.ABORT:
                raise exceptions.MigrationAborted(instance_uuid=instance_uuid, reason="as requested")
            if wish is MigrationControl.FORCE_COMPLETE:
                break
        self._fake.step("live_migration_before_move")
        for name in os.listdir(self._fake.disks(instance_uuid)):
            failpoints.check_disk()
            shutil.copyfile(
                os.path.join(self._fake.disks(instance_uuid), name), os.path.join(destination.paths["disks"], name)
            )
        domain = self._fake.read(instance_uuid)
        domain.generations = {destination.host: destination.generation}
        domain.host_cpus = [] if destination.numa is None else destination.numa.host_cpus
        domain.pci = [device.address for device in destination.pci]
        self._fake.write(domain)
        os.rename(self._fake.file("domains", instance_uuid), destination.paths["domain"])
        self._fake.step("live_migration_after_move")

    def settle(self, instance_uuid: str, destination: LiveDestination) -> bool:
        self._fake.step("settle_live_migration")
        return not os.path.exists(self._fake.file("domains", instance_uuid))

    def has_arrived(self, instance_uuid: str) -> bool:
        self._fake.step("has_arrived")
        return os.path.exists(self._fake.file("domains", instance_uuid))

    def finish(self, instance_uuid: str) -> None:
        self._fake.step("finish_live_migration")

    def take_over_paused(self, instance_uuid: str) -> None:
        self._fake.step("take_over_paused")
        self._fake.turn("pause", instance_uuid, PowerState.PAUSED)


class FakeSnapshots(Ability, abilities.Snapshots):
    def take(self, instance_uuid: str, target: str, check: Callable[[], None]) -> None:
        """Write the disk's text after a minimal qcow2 header without a backing file."""
        self._fake.read(instance_uuid)
        self._fake.step("snapshot")
        check()
        failpoints.check_disk()
        with open(os.path.join(os.path.dirname(self._fake.console(instance_uuid)), "disk"), "rb") as disk:
            data = disk.read()
        with open(target, "wb", opener=files.private_opener) as file:
            file.write(QCOW2_HEADER + data)


class FakeBackups(Ability, abilities.Backups):
    def take(
        self,
        instance_uuid: str,
        target: str,
        request: BackupRequest,
        check: Callable[[], None],
        exported: ExportVolume,
    ) -> None:
        """Write the disk's text as the first bytes of a disk, which is the same in an increment. Volumes are whole."""
        domain = self._fake.read(instance_uuid)
        self._fake.step("snapshot")
        check()
        failpoints.check_disk()
        is_known = domain.checkpoint is not None and request.base == domain.checkpoint
        made: list[tuple[disk_data.DiskPart, disk_data.DiskHeader]] = []
        contents = []
        for volume_id in request.disks or [""]:
            data, size = self._disk(instance_uuid), _MIB
            if volume_id:
                with exported(volume_id) as path, open(path, "rb") as volume:
                    data, size = volume.read(_MIB), os.path.getsize(path)
            part = disk_data.DiskPart(volume_id=volume_id, size=size)
            made.append((part, disk_data.DiskHeader(size=size, data=[(0, len(data))] if data else [])))
            contents.append(data)
        layout = [(part.volume_id, part.size) for part, _ in made]
        is_same = layout == request.base_disks if request.disks else request.base_size == _MIB
        base = request.base if is_known and is_same and "" in (request.disks or [""]) else None
        header = disk_parts.joined(made, base)
        if not request.disks:
            header = disk_data.DiskHeader(size=header.size, data=header.data, base=base)
        with open(target, "wb", opener=files.private_opener) as file:
            disk_data.write_header(file, header)
            for data in contents:
                file.write(data)
        domain.checkpoint = request.backup_id
        self._fake.write(domain)

    def _disk(self, instance_uuid: str) -> bytes:
        with open(os.path.join(os.path.dirname(self._fake.console(instance_uuid)), "disk"), "rb") as disk:
            return disk.read()


class FakeVolumes(Ability, abilities.Volumes):
    def attach(self, instance_uuid: str, device: BlockDevice, path: VolumeSource) -> None:
        """Attach the volume. Fail if another domain on any host of the cloud has it, unless both may share it."""
        domain = self._fake.read(instance_uuid)
        self._fake.step("attach_volume")
        volume_id = str(device.volume_id)
        for other in self._fake.everywhere():
            may_share = device.multiattach and volume_id in other.shared
            if volume_id in other.volumes and other.uuid != instance_uuid and not may_share:
                raise RuntimeError(f"volume {volume_id} is attached to {other.uuid} already")
        if is_encrypted(path):
            self._fake.driver.volume_key(volume_id)
            domain.encrypted = [*domain.encrypted, volume_id]
        domain.volumes[volume_id] = device.device_name or ""
        domain.shared = [*domain.shared, volume_id] if device.multiattach else domain.shared
        domain.read_only = [*domain.read_only, volume_id] if device.read_only else domain.read_only
        domain.volume_files |= files_of({volume_id: path})
        self._fake.write(domain)
        self._fake.say(instance_uuid, f"fake guest has found volume {volume_id} as {device.device_name}")
        self._fake.step("attach_volume_after")

    def detach(self, instance_uuid: str, volume_id: str, timeout: float) -> None:
        domain = self._fake.read(instance_uuid)
        self._fake.step("detach_volume")
        if domain.volumes.pop(volume_id, None) is not None:
            for names in (domain.encrypted, domain.shared, domain.read_only):
                names[:] = [known for known in names if known != volume_id]
            domain.volume_files.pop(volume_id, None)
            self._fake.write(domain)
            self._fake.say(instance_uuid, f"fake guest has released volume {volume_id}")

    def extend(self, instance_uuid: str, volume_id: str, size: int) -> None:
        self._fake.step("extend_volume")
        if volume_id in self._fake.read(instance_uuid).volumes:
            self._fake.say(instance_uuid, f"fake guest sees that volume {volume_id} has {size} bytes")


class FakeVolumeCopies(Ability, abilities.VolumeCopies):
    def copy(self, instance_uuid: str, copies: Mapping[str, tuple[str, str]], check: Callable[[], None]) -> None:
        self._fake.read(instance_uuid)
        self._fake.step("copy_volumes")
        check()
        for source, target in copies.values():
            failpoints.check_disk()
            images.run("cp", "--sparse=always", "--no-preserve=all", source, target)

    @contextlib.contextmanager
    def held(self, instance_uuid: str, volume_ids: Sequence[str]) -> Iterator[None]:
        self._fake.read(instance_uuid)
        self._fake.step("copy_volumes")
        yield

    def swap(
        self,
        instance_uuid: str,
        old: BlockDevice,
        new_id: str,
        path: str,
        size: int,
        check: Callable[[], None],
        copied: Callable[[], None],
    ) -> None:
        """Swap the volumes without copying content, since fake guests write none."""
        old_id, domain = str(old.volume_id), self._fake.read(instance_uuid)
        self._fake.step("swap_volume")
        if new_id in domain.volumes:
            return
        if old_id not in domain.volumes:
            raise exceptions.VirtDriverError(reason=f"the guest has no volume {old_id}")
        check()
        copied()
        self._fake.step("swap_volume_copied")
        domain.volumes[new_id] = domain.volumes.pop(old_id)
        self._fake.write(domain)
        self._fake.say(instance_uuid, f"fake guest has volume {new_id} in place of {old_id}")
        self._fake.step("swap_volume_after")

    def end_swap(self, instance_uuid: str, old_id: str, new_id: str, size: int) -> bool:
        self._fake.step("end_swap")
        return new_id in self._fake.read(instance_uuid).volumes


class FakeVolumeFiles(Ability, abilities.VolumeFiles):
    def names(self, instance_uuid: str, volume_id: str) -> list[str]:
        found = self._fake.read(instance_uuid).volume_files.get(volume_id)
        if not found:
            raise exceptions.VolumeNotInFiles(volume_id=volume_id, reason="the guest does not have it so")
        return found

    def snapshot(self, instance_uuid: str, volume_id: str, new_file: str) -> None:
        self._fake.step("snapshot_volume_file")
        names = self.names(instance_uuid, volume_id)
        if names[0] == new_file:
            return
        self._set_files(instance_uuid, volume_id, [new_file, *names])
        self._fake.step("snapshot_volume_file_after")

    def merge(self, instance_uuid: str, volume_id: str, request: FileMerge, check: Callable[[], None]) -> None:
        self._fake.step("merge_volume_files")
        check()
        names = self.names(instance_uuid, volume_id)
        if request.is_done(names):
            return
        if request.target is not None:
            left = [name for name in names if name != request.source]
        else:
            left = names[:1] if request.source is None else [names[0], *names[names.index(request.source) :]]
        self._set_files(instance_uuid, volume_id, left)
        self._fake.step("merge_volume_files_after")

    def end_merge(self, instance_uuid: str, volume_id: str) -> None:
        self._fake.step("end_volume_merge")

    def _set_files(self, instance_uuid: str, volume_id: str, names: list[str]) -> None:
        domain = self._fake.read(instance_uuid)
        domain.volume_files[volume_id] = names
        self._fake.write(domain)
        self._fake.say(instance_uuid, f"fake guest has volume {volume_id} in {' on '.join(names)}")


class FakeDiskChecks(Ability, abilities.DiskChecks):
    def missing(self) -> set[str]:
        self._fake.step("list_domains")
        return {domain.uuid for domain in self._fake.domains() if not os.path.isdir(self._fake.disks(domain.uuid))}


def _source(host: str, disks: str) -> DiskSource:
    """Return all files of a disk directory, except those of the hypervisor."""
    names = sorted(name for name in os.listdir(disks) if name != ASIDE_DOMAIN)
    found = [DiskFile(name=name, size=os.path.getsize(os.path.join(disks, name))) for name in names]
    return DiskSource(driver="fake", host=host, location=disks, files=found)
