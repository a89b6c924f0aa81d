"""A hypervisor made of files, for tests and scale trials.

It follows the rules of `nova_lite.virt.driver` like a real driver. Its domains are files below
``<instances_path>/fake-<host>/``, so they survive a kill of the daemon. Hosts on one machine do not see each other's::

    domains/<uuid>.json   the domain: it exists while this file does (`Domain`)
    disks/<uuid>/         files of the instance: disk, console.log
    vifs/<uuid>.json      its interfaces
    images/<id>           a cached image
    port-filters.json     the filters that the conductor has set last
    control.json          delays and failures, read at each step (`Control`); written by tests

The guest is imaginary, but its console shows the output of a real test guest.
"""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import platform
import shutil
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from oslo_config import cfg

from nova_lite.backups import disk_data, disk_parts
from nova_lite.base import exceptions, failpoints, files, trees
from nova_lite.hardware import traits
from nova_lite.objects import (
    VIF,
    BlockDevice,
    CpuDiagnostics,
    Diagnostics,
    DiskDiagnostics,
    DiskFile,
    DiskSource,
    EncryptedDisk,
    FileMerge,
    HostProblem,
    Image,
    Instance,
    Inventory,
    LiveDestination,
    LiveSource,
    MigrationControl,
    MigrationProgress,
    NicDiagnostics,
    NUMACell,
    PortFilters,
    Qcow2Disk,
    VolumeSource,
)
from nova_lite.objects.block_device import root_volume
from nova_lite.objects.ready import prepare_decoders
from nova_lite.operations.states import PowerState
from nova_lite.virt import driver, images, topology

LOG = logging.getLogger(__name__)


class Domain(msgspec.Struct, kw_only=True):
    """Content of a domain's file.

    ``power_state``: tests let a guest crash by `PowerState.CRASHED`. ``halted``: its watchdog has paused it.
    ``generations``: by host, while the domain moves from one to the other, which is one rename. ``volumes``: device
    names by volume id. ``encrypted``: volumes whose keys the domain needs. ``interfaces``: port ids. ``host_cpus``:
    CPUs of the host that are dedicated to the domain.
    ``checkpoint``: the last backup since which the changes of the disk are known. ``volume_files``: names of the files
    of a volume, by its id, that in use first.
    """

    uuid: str
    generation: int
    power_state: PowerState
    hostname: str
    halted: bool = False
    project_id: str = ""
    address: str = ""
    vcpus: int = 0
    memory_mb: int = 0
    disk_gb: int = 0
    config_drive: bool = False
    generations: dict[str, int] = msgspec.field(default_factory=dict)
    rescued: bool = False
    volumes: dict[str, str] = msgspec.field(default_factory=dict)
    encrypted: list[str] = msgspec.field(default_factory=list)
    interfaces: list[str] = msgspec.field(default_factory=list)
    host_cpus: list[int] = msgspec.field(default_factory=list)
    checkpoint: str | None = None
    volume_files: dict[str, list[str]] = msgspec.field(default_factory=dict)


class Control(msgspec.Struct, kw_only=True):
    """Content of ``control.json``. Missing values are taken from ``[fake]``.

    ``delays``: seconds by step, in addition to the three general delays. ``live_migration_delay``: seconds per
    migration. ``hang_at``: steps that hang until the file changes; "*" for all. ``vcpus``, ``memory_mb``, ``disk_gb``:
    of the host. ``metrics``: measured values by name, for the scheduler. ``guest_use``: share of its vCPUs and
    memory that each running guest uses. ``console_ports``: ports of each guest's consoles, by type. ``problems``: of
    the machine, text by key, such as ``disk/smart/a``.
    """

    spawn_delay: float
    destroy_delay: float
    power_delay: float
    fail_at: list[str]
    fail_count: int
    fail_error: str
    vcpus: int
    memory_mb: int
    disk_gb: int
    live_migration_delay: float = 0.0
    hang_at: list[str] = msgspec.field(default_factory=list)
    delays: dict[str, float] = msgspec.field(default_factory=dict)
    metrics: dict[str, float] = msgspec.field(default_factory=dict)
    guest_use: float = 0.0
    problems: dict[str, str] = msgspec.field(default_factory=dict)
    console_ports: dict[str, int] = msgspec.field(default_factory=lambda: {"novnc": 5900, "serial": 10000})


prepare_decoders(Domain, Control)

#: Version 3, clusters of 64 KiB, a header of 104 bytes, and an empty disk.
QCOW2_HEADER = struct.pack(">4sIQII", b"QFI\xfb", 3, 0, 0, 16).ljust(100, b"\0") + (104).to_bytes(4, "big") + bytes(408)

_MIB = 1024 * 1024

#: Counters of a guest that does nothing.
_IDLE = dict.fromkeys(
    (
        "disk_read_bytes",
        "disk_written_bytes",
        "disk_reads",
        "disk_writes",
        "network_received_bytes",
        "network_sent_bytes",
        "network_dropped",
    ),
    0,
)

#: Seconds between two checks whether a hanging step may continue.
HANG_POLL = 0.05

#: Domain file of a guest that is set aside, next to its disks.
ASIDE_DOMAIN = "domain.json"

#: NUMA cells of its machine, and the number of CPUs above which it reports no cells: no real machine has as many, and
#: each cell would be in every copy of the host's state.
CELLS = 2
BEYOND_MACHINES = 4096

#: Options of ``[fake]`` that ``control.json`` may override.
CONFIGURED = ("spawn_delay", "destroy_delay", "power_delay", "fail_at", "fail_count", "fail_error")
CAPACITY = ("vcpus", "memory_mb", "disk_gb")


def state_path(conf: cfg.ConfigOpts, host: str) -> str:
    """Return the directory of the fake hypervisor of ``host``."""
    return os.path.join(driver.instances_path(conf), f"fake-{host}")


class FakeDriver(driver.ComputeDriver):
    """Fake driver. ``[fake]`` or ``control.json`` make it slow or failing."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, fetch_image: driver.FetchImage) -> None:
        super().__init__(conf, host, fetch_image)
        self.path = state_path(conf, host)
        self._mutex = threading.Lock()
        self._filtered: set[str] = set()
        self._played = 0
        self._played_for: bytes = b""
        #: CPU time of each guest that ran here, and when it was added to last.
        self._cpu_seconds: dict[str, float] = {}
        self._spent_at = time.monotonic()

    def init_host(self) -> None:
        topology.available_cells(self.conf, _machine(self._step("init_host")))
        for name in ("domains", "disks", "vifs", "images", "aside"):
            files.remove_unfinished(files.private_directory(os.path.join(self.path, name)))
        for name in ("disks", "aside"):
            for entry in os.scandir(os.path.join(self.path, name)):
                files.remove_unfinished(entry.path)
        files.remove_unfinished(self.path, self.host)

    def get_inventory(self) -> Inventory:
        control = self._step("inventory")
        cells = _machine(control)
        shared, _ = topology.cpus(self.conf, cells)
        return Inventory(
            node=self.host,
            vcpus=len(shared) if cells else control.vcpus,
            numa=topology.available_cells(self.conf, cells),
            memory_mb=control.memory_mb,
            disk_gb=control.disk_gb,
            hypervisor_type="fake",
            hypervisor_version=1000000,
            host_ip=self.conf.my_ip,
            tunnel_ip=str(self.conf.vxlan.local_ip or self.conf.my_ip),
            cpu_arch=platform.machine(),
            cpu_info={"model": "fake", "vendor": "fake", "features": []},
            supported_hv_types=["fake", "qemu", "kvm"],
            capabilities={traits.CAPABILITY: self._traits()}
            | ({"metrics": control.metrics} if control.metrics else {}),
            disk_available_least=control.disk_gb,
            uptime="up, for as long as a fake is",
            running_vms=sum(info.power_state == PowerState.RUNNING for info in self._domains()),
        )

    def _traits(self) -> list[str]:
        """Return all traits: fake guests have no hardware, so every requested trait is available."""
        return sorted({*traits.ALWAYS, *traits.DERIVED, *self.conf.custom_traits})

    def guard_arguments(self) -> list[str]:
        return ["--fake", self.path]

    def list_domains(self) -> list[driver.DomainInfo]:
        self._step("list_domains")
        return [_info(domain) for domain in self._domains()]

    def get_info(self, instance_uuid: str) -> driver.DomainInfo:
        self._step("get_info")
        return _info(self._read(instance_uuid))

    def plug_vifs(self, instance: Instance, vifs: list[VIF]) -> None:
        self._step("plug_vifs")
        files.write_atomically(self._file("vifs", instance.uuid), msgspec.json.encode(vifs), durable=False)

    def unplug_vifs(self, instance_uuid: str) -> None:
        self._step("unplug_vifs")
        files.remove(self._file("vifs", instance_uuid))

    def attach_interface(self, instance_uuid: str, vif: VIF) -> None:
        domain = self._read(instance_uuid)
        self._step("attach_interface")
        if vif.id not in domain.interfaces:
            domain.interfaces.append(vif.id)
            self._write(domain)
        self._step("attach_interface_after")

    def detach_interface(self, instance_uuid: str, vif: VIF) -> None:
        domain = self._read(instance_uuid)
        self._step("detach_interface")
        domain.interfaces = [port_id for port_id in domain.interfaces if port_id != vif.id]
        self._write(domain)
        rest = [other for other in self._vifs(instance_uuid) if other.id != vif.id]
        files.write_atomically(self._file("vifs", instance_uuid), msgspec.json.encode(rest), durable=False)
        self._step("detach_interface_after")

    def filtered_instances(self) -> list[str]:
        return sorted(self._uuids("vifs"))

    def lacks_port_filters(self) -> bool:
        return not self._uuids("vifs") <= self._filtered

    def set_port_filters(self, filters: PortFilters) -> None:
        self._step("set_port_filters")
        files.write_atomically(self._filters_path, msgspec.json.encode(filters), durable=False, writer=self.host)
        self._filtered = set(filters.instances)

    def port_filters(self) -> PortFilters:
        """Return the filters that were set last."""
        try:
            with open(self._filters_path, "rb") as file:
                return msgspec.json.decode(file.read(), type=PortFilters)
        except FileNotFoundError:
            return PortFilters()

    @property
    def _filters_path(self) -> str:
        return os.path.join(self.path, "port-filters.json")

    def spawn(self, spec: driver.SpawnSpec) -> None:
        instance_uuid = spec.instance.uuid
        if os.path.exists(self._file("domains", instance_uuid)):
            raise exceptions.VirtDriverError(reason=f"a domain of instance {instance_uuid} exists already")
        try:
            self._spawn(spec)
            if spec.plugged is not None:
                spec.plugged()
        except BaseException:
            self._destroy(instance_uuid)
            raise

    def destroy(self, instance_uuid: str) -> None:
        control = self._step("destroy")
        if os.path.exists(self._file("domains", instance_uuid)):
            time.sleep(control.destroy_delay)
        self._destroy(instance_uuid)

    def power_on(self, instance_uuid: str) -> None:
        domain = self._read(instance_uuid)
        if domain.power_state != PowerState.RUNNING:
            time.sleep(self._step("power_on", exceptions.InstancePowerOnFailure, instance_uuid).power_delay)
            self._end_rescue(domain)
            self._boot(domain)

    def power_off(self, instance_uuid: str, timeout: int) -> None:
        domain = self._read(instance_uuid)
        if domain.power_state != PowerState.SHUTDOWN:
            time.sleep(self._step("power_off").power_delay)
            domain.power_state = PowerState.SHUTDOWN
            self._write(domain)

    def reboot(self, instance_uuid: str, reboot_type: str, timeout: int) -> None:
        domain = self._read(instance_uuid)
        time.sleep(self._step("reboot").power_delay)
        if reboot_type == "HARD":
            domain.power_state = PowerState.SHUTDOWN
            self._end_rescue(domain)
        self._boot(domain)

    def recreate(self, spec: driver.SpawnSpec) -> None:
        self._step("recreate")
        if not os.path.exists(os.path.join(self._disks(spec.instance.uuid), "disk")):
            raise exceptions.DomainNotFound(instance_uuid=spec.instance.uuid)
        spec.fence()
        self._write(_domain(spec))

    def pause(self, instance_uuid: str) -> None:
        self._turn("pause", instance_uuid, PowerState.PAUSED)

    def unpause(self, instance_uuid: str) -> None:
        self._turn("unpause", instance_uuid, PowerState.RUNNING)

    def suspend(self, instance_uuid: str) -> None:
        self._turn("suspend", instance_uuid, PowerState.SHUTDOWN)

    def resume(self, instance_uuid: str) -> None:
        self._turn("resume", instance_uuid, PowerState.RUNNING)

    def migrate_disk_and_power_off(self, instance_uuid: str, timeout: int) -> DiskSource:
        self._step("migrate_disk")
        self.power_off(instance_uuid, timeout)
        return _source(self.conf.my_ip, self._disks(instance_uuid))

    def set_aside(self, instance_uuid: str, timeout: int) -> DiskSource:
        aside, disks = self._aside(instance_uuid), self._disks(instance_uuid)
        if not os.path.exists(aside):
            if os.path.exists(self._file("domains", instance_uuid)):
                self._step("migrate_disk")
                self.power_off(instance_uuid, timeout)
                os.replace(self._file("domains", instance_uuid), os.path.join(disks, ASIDE_DOMAIN))
                self._step("set_aside")
            os.rename(disks, aside)
        return _source(self.conf.my_ip, aside)

    def restore_set_aside(self, instance_uuid: str) -> None:
        disks, domain = self._disks(instance_uuid), self._file("domains", instance_uuid)
        if os.path.exists(self._aside(instance_uuid)):
            os.rename(self._aside(instance_uuid), disks)
        self._step("restore_set_aside")
        if os.path.exists(os.path.join(disks, ASIDE_DOMAIN)):
            os.replace(os.path.join(disks, ASIDE_DOMAIN), domain)

    def discard_set_aside(self, instance_uuid: str) -> None:
        self._step("discard_set_aside")
        trees.discard(self._aside(instance_uuid))

    def _aside(self, instance_uuid: str) -> str:
        return os.path.join(self.path, "aside", os.path.basename(instance_uuid))

    def finish_migration(self, spec: driver.SpawnSpec, source: DiskSource, power_on: bool) -> None:
        """Copy the disks from the other host's directory. All hosts of a fake cloud are on one machine."""
        instance_uuid = spec.instance.uuid
        if os.path.exists(self._file("domains", instance_uuid)):
            raise exceptions.VirtDriverError(reason=f"a domain of instance {instance_uuid} exists already")
        try:
            disks = files.private_directory(os.path.join(self.path, "disks", instance_uuid))
            for file in source.files:
                time.sleep(self._step("copy_disk").spawn_delay)
                failpoints.check_disk()
                shutil.copyfile(os.path.join(source.location, file.name), os.path.join(disks, file.name))
            domain = _domain(spec)
            self._step("finish_migration")
            spec.fence()
            if power_on:
                self._boot(domain)
            else:
                self._write(domain)
            self._step("finish_migration_after_domain")
        except BaseException:
            self._destroy(instance_uuid)
            raise

    def check_can_live_migrate_source(self, instance_uuid: str) -> LiveSource:
        self._step("check_can_live_migrate")
        if self._read(instance_uuid).power_state not in (PowerState.RUNNING, PowerState.PAUSED):
            raise exceptions.MigrationPreCheckError(reason="the guest does not run")
        return LiveSource(
            driver="fake", disks={"disk": os.path.getsize(os.path.join(self._disks(instance_uuid), "disk"))}
        )

    def pre_live_migration(self, spec: driver.SpawnSpec, source: LiveSource) -> LiveDestination:
        instance_uuid = spec.instance.uuid
        if os.path.exists(self._file("domains", instance_uuid)):
            raise exceptions.MigrationPreCheckError(reason=f"a domain of instance {instance_uuid} exists already")
        try:
            self._step("pre_live_migration")
            files.private_directory(self._disks(instance_uuid))
            failpoints.check_disk()
            for image in _images(spec):
                self._fetch(image)
            spec.fence()
        except BaseException:
            self._destroy(instance_uuid)
            raise
        return LiveDestination(
            driver="fake",
            host=self.host,
            generation=spec.generation,
            address=self.conf.my_ip,
            paths={"domain": self._file("domains", instance_uuid), "disks": self._disks(instance_uuid)},
            numa=spec.instance.numa,
        )

    def live_migration(
        self,
        instance_uuid: str,
        destination: LiveDestination,
        watch: Callable[[MigrationProgress], MigrationControl],
    ) -> None:
        """Migrate a tenth of the memory each tenth of ``live_migration_delay``, and switch over at the end."""
        total = self._read(instance_uuid).memory_mb * 1024**2
        delay = self._step("live_migration").live_migration_delay
        for tenth in range(1, 11):
            time.sleep(delay / 10)
            done = total * tenth // 10
            wish = watch(MigrationProgress(memory_total=total, memory_processed=done, memory_remaining=total - done))
            if wish is MigrationControl.ABORT:
                raise exceptions.MigrationAborted(instance_uuid=instance_uuid, reason="as requested")
            if wish is MigrationControl.FORCE_COMPLETE:
                break
        self._step("live_migration_before_move")
        for name in os.listdir(self._disks(instance_uuid)):
            failpoints.check_disk()
            shutil.copyfile(
                os.path.join(self._disks(instance_uuid), name), os.path.join(destination.paths["disks"], name)
            )
        domain = self._read(instance_uuid)
        domain.generations = {destination.host: destination.generation}
        domain.host_cpus = [] if destination.numa is None else destination.numa.host_cpus
        self._write(domain)
        os.rename(self._file("domains", instance_uuid), destination.paths["domain"])
        self._step("live_migration_after_move")

    def settle_live_migration(self, instance_uuid: str, destination: LiveDestination) -> bool:
        self._step("settle_live_migration")
        return not os.path.exists(self._file("domains", instance_uuid))

    def has_arrived(self, instance_uuid: str) -> bool:
        self._step("has_arrived")
        return os.path.exists(self._file("domains", instance_uuid))

    def finish_live_migration(self, instance_uuid: str) -> None:
        self._step("finish_live_migration")

    def take_over_paused(self, instance_uuid: str) -> None:
        self._step("take_over_paused")
        self._turn("pause", instance_uuid, PowerState.PAUSED)

    def rescue(self, spec: driver.SpawnSpec, timeout: int) -> None:
        domain = self._read(spec.instance.uuid)
        time.sleep(self._step("rescue").power_delay)
        for image in _images(spec):
            self._fetch(image)
        failpoints.check_disk()
        files.write_atomically(self._rescue_disk(domain.uuid), b"rescue\n", durable=False)
        domain.rescued = True
        self._boot(domain)

    def unrescue(self, instance_uuid: str) -> None:
        domain = self._read(instance_uuid)
        time.sleep(self._step("unrescue").power_delay)
        domain.power_state = PowerState.SHUTDOWN
        self._end_rescue(domain)
        self._boot(domain)

    def _end_rescue(self, domain: Domain) -> None:
        domain.rescued = False
        self._write(domain)
        files.remove(self._rescue_disk(domain.uuid))

    def _rescue_disk(self, instance_uuid: str) -> str:
        return os.path.join(self.path, "disks", os.path.basename(instance_uuid), "disk.rescue")

    def set_admin_password(self, instance_uuid: str, user: str, password: str) -> None:
        self._read(instance_uuid)
        self._step("set_admin_password")
        self._say(instance_uuid, f"fake agent has set a password of {len(password)} characters for {user}")

    def trigger_crash_dump(self, instance_uuid: str) -> None:
        domain = self._read(instance_uuid)
        self._step("trigger_crash_dump")
        if domain.power_state == PowerState.SHUTDOWN:
            raise exceptions.VirtDriverError(reason="the domain does not run")
        self._say(instance_uuid, "fake guest has written a crash dump")

    def _say(self, instance_uuid: str, line: str) -> None:
        with open(self._console(instance_uuid), "a", encoding="utf-8") as console:
            console.write(line + "\n")

    def _turn(self, step: str, instance_uuid: str, power_state: PowerState) -> None:
        domain = self._read(instance_uuid)
        time.sleep(self._step(step).power_delay)
        domain.power_state = power_state
        self._write(domain)

    def without_disks(self) -> set[str]:
        return {info.uuid for info in self.list_domains() if not os.path.isdir(self._disks(info.uuid))}

    def leftovers(self) -> set[str]:
        disks = {name for kind in ("disks", "aside") for name in os.listdir(os.path.join(self.path, kind))}
        return (disks | self._uuids("vifs")) - self._uuids("domains")

    def get_console_output(self, instance_uuid: str, length: int | None) -> str:
        self._step("console")
        self._read(instance_uuid)
        try:
            with open(self._console(instance_uuid), encoding="utf-8") as file:
                return driver.last_lines(file.read(), length)
        except FileNotFoundError:
            return ""

    def get_vnc_console(self, instance_uuid: str) -> driver.ConsoleAddress:
        """Return the configured port. The fake has no VNC server."""
        self._read(instance_uuid)
        address: str = self.conf.vnc.server_proxyclient_address
        return driver.ConsoleAddress(address, self._step("get_vnc_console").console_ports["novnc"])

    def get_serial_console(self, instance_uuid: str) -> driver.ConsoleAddress:
        self._read(instance_uuid)
        address: str = self.conf.serial_console.proxyclient_address
        return driver.ConsoleAddress(address, self._step("get_serial_console").console_ports["serial"])

    def snapshot(self, instance_uuid: str, target: str, check: Callable[[], None]) -> None:
        """Write the disk's text after a minimal qcow2 header without a backing file."""
        self._read(instance_uuid)
        self._step("snapshot")
        check()
        failpoints.check_disk()
        with open(os.path.join(os.path.dirname(self._console(instance_uuid)), "disk"), "rb") as disk:
            data = disk.read()
        with open(target, "wb", opener=files.private_opener) as file:
            file.write(QCOW2_HEADER + data)

    def back_up_disk(
        self,
        instance_uuid: str,
        target: str,
        request: driver.BackupRequest,
        check: Callable[[], None],
        exported: driver.ExportVolume,
    ) -> None:
        """Write the disk's text as the first bytes of a disk, which is the same in an increment. Volumes are whole."""
        domain = self._read(instance_uuid)
        self._step("snapshot")
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
        self._write(domain)

    def _disk(self, instance_uuid: str) -> bytes:
        with open(os.path.join(os.path.dirname(self._console(instance_uuid)), "disk"), "rb") as disk:
            return disk.read()

    def attach_volume(self, instance_uuid: str, device: BlockDevice, path: VolumeSource) -> None:
        """Attach the volume. Fail if another domain on any host of the cloud has it."""
        domain = self._read(instance_uuid)
        self._step("attach_volume")
        volume_id = str(device.volume_id)
        for other in self._everywhere():
            if volume_id in other.volumes and other.uuid != instance_uuid:
                raise RuntimeError(f"volume {volume_id} is attached to {other.uuid} already")
        if isinstance(path, EncryptedDisk):
            self.volume_key(volume_id)
            domain.encrypted = [*domain.encrypted, volume_id]
        domain.volumes[volume_id] = device.device_name or ""
        domain.volume_files |= _files({volume_id: path})
        self._write(domain)
        self._say(instance_uuid, f"fake guest has found volume {volume_id} as {device.device_name}")
        self._step("attach_volume_after")

    def detach_volume(self, instance_uuid: str, volume_id: str, timeout: float) -> None:
        domain = self._read(instance_uuid)
        self._step("detach_volume")
        if domain.volumes.pop(volume_id, None) is not None:
            domain.encrypted = [known for known in domain.encrypted if known != volume_id]
            domain.volume_files.pop(volume_id, None)
            self._write(domain)
            self._say(instance_uuid, f"fake guest has released volume {volume_id}")

    def extend_volume(self, instance_uuid: str, volume_id: str, size: int) -> None:
        self._step("extend_volume")
        if volume_id in self._read(instance_uuid).volumes:
            self._say(instance_uuid, f"fake guest sees that volume {volume_id} has {size} bytes")

    def copy_volumes(
        self, instance_uuid: str, copies: Mapping[str, tuple[str, str]], check: Callable[[], None]
    ) -> None:
        self._read(instance_uuid)
        self._step("copy_volumes")
        check()
        for source, target in copies.values():
            failpoints.check_disk()
            images.run("cp", "--sparse=always", "--no-preserve=all", source, target)

    @contextlib.contextmanager
    def held_volumes(self, instance_uuid: str, volume_ids: Sequence[str]) -> Iterator[None]:
        self._read(instance_uuid)
        self._step("copy_volumes")
        yield

    def swap_volume(
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
        old_id, domain = str(old.volume_id), self._read(instance_uuid)
        self._step("swap_volume")
        if new_id in domain.volumes:
            return
        if old_id not in domain.volumes:
            raise exceptions.VirtDriverError(reason=f"the guest has no volume {old_id}")
        check()
        copied()
        self._step("swap_volume_copied")
        domain.volumes[new_id] = domain.volumes.pop(old_id)
        self._write(domain)
        self._say(instance_uuid, f"fake guest has volume {new_id} in place of {old_id}")
        self._step("swap_volume_after")

    def end_swap(self, instance_uuid: str, old_id: str, new_id: str, size: int) -> bool:
        self._step("end_swap")
        return new_id in self._read(instance_uuid).volumes

    def volume_file_names(self, instance_uuid: str, volume_id: str) -> list[str]:
        found = self._read(instance_uuid).volume_files.get(volume_id)
        if not found:
            raise exceptions.VolumeNotInFiles(volume_id=volume_id, reason="the guest does not have it so")
        return found

    def snapshot_volume_file(self, instance_uuid: str, volume_id: str, new_file: str) -> None:
        self._step("snapshot_volume_file")
        names = self.volume_file_names(instance_uuid, volume_id)
        if names[0] == new_file:
            return
        self._set_files(instance_uuid, volume_id, [new_file, *names])
        self._step("snapshot_volume_file_after")

    def merge_volume_files(
        self, instance_uuid: str, volume_id: str, request: FileMerge, check: Callable[[], None]
    ) -> None:
        self._step("merge_volume_files")
        check()
        names = self.volume_file_names(instance_uuid, volume_id)
        if request.is_done(names):
            return
        if request.target is not None:
            left = [name for name in names if name != request.source]
        else:
            left = names[:1] if request.source is None else [names[0], *names[names.index(request.source) :]]
        self._set_files(instance_uuid, volume_id, left)
        self._step("merge_volume_files_after")

    def end_volume_merge(self, instance_uuid: str, volume_id: str) -> None:
        self._step("end_volume_merge")

    def _set_files(self, instance_uuid: str, volume_id: str, names: list[str]) -> None:
        domain = self._read(instance_uuid)
        domain.volume_files[volume_id] = names
        self._write(domain)
        self._say(instance_uuid, f"fake guest has volume {volume_id} in {' on '.join(names)}")

    def _everywhere(self) -> Iterator[Domain]:
        """Yield the domains of all fake hosts of this machine."""
        for path in glob.glob(os.path.join(os.path.dirname(self.path), "fake-*", "domains", "*.json")):
            with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
                yield msgspec.json.decode(file.read(), type=Domain)

    def get_all_statistics(self) -> list[driver.GuestStatistics]:
        """Return counters with zeros for all activity, except CPU time and memory by ``guest_use``."""
        control = self._step("statistics")
        running = [domain for domain in self._domains() if domain.power_state == PowerState.RUNNING]
        spent = self._spent(running, control.guest_use)
        return [
            driver.GuestStatistics(
                uuid=domain.uuid,
                project_id=domain.project_id,
                cpu_seconds=spent[domain.uuid],
                memory_bytes=int(domain.memory_mb * _MIB * control.guest_use),
                memory_limit_bytes=domain.memory_mb * _MIB,
                **_IDLE,
            )
            for domain in running
        ]

    def _spent(self, running: list[Domain], guest_use: float) -> dict[str, float]:
        """Add the CPU time since the last reading, and return the sums by domain."""
        with self._mutex:
            now = time.monotonic()
            elapsed, self._spent_at = now - self._spent_at, now
            for domain in running:
                since = elapsed if domain.uuid in self._cpu_seconds else 0.0
                before = self._cpu_seconds.get(domain.uuid, 0.0)
                self._cpu_seconds[domain.uuid] = before + since * domain.vcpus * guest_use
            return {domain.uuid: self._cpu_seconds[domain.uuid] for domain in running}

    def get_host_counters(self) -> driver.HostCounters:
        """Return counters of a host on which nothing but its guests runs."""
        control = self._step("statistics")
        running = [domain for domain in self._domains() if domain.power_state == PowerState.RUNNING]
        self._spent(running, control.guest_use)
        with self._mutex:
            spent = sum(self._cpu_seconds.values())
        return driver.HostCounters(
            cpus=control.vcpus,
            cpu_seconds=spent,
            memory_mb=control.memory_mb,
            memory_used_mb=sum(domain.memory_mb for domain in running) * control.guest_use,
        )

    def check_health(self) -> list[HostProblem]:
        problems = self._step("check_health").problems
        return [HostProblem(key=key, kind=key.partition("/")[0], text=text) for key, text in problems.items()]

    def get_instance_diagnostics(self, instance_uuid: str) -> Diagnostics:
        """Return the counters of the domain as it was created, with zeros for all activity."""
        self._step("diagnostics")
        domain = self._read(instance_uuid)
        nothing = {"rx_octets": 0, "rx_packets": 0, "tx_octets": 0, "tx_packets": 0}
        vifs = self._vifs(instance_uuid)
        return Diagnostics(
            driver="fake",
            hypervisor="fake",
            config_drive=domain.config_drive,
            cpus=[CpuDiagnostics(id=number, time=0) for number in range(domain.vcpus)],
            nics=[NicDiagnostics(name=vif.id, mac_address=vif.mac_address, **nothing) for vif in vifs],
            disks=[DiskDiagnostics(name="vda", read_bytes=0, read_requests=0, write_bytes=0, write_requests=0)],
            memory_maximum=domain.memory_mb,
            memory_used=0,
        )

    def cache_image(self, image: Image) -> None:
        self._step("cache_image")
        self._fetch(image)

    def _fetch(self, image: Image) -> None:
        """Fetch the image into ``images``, once per host, like a real hypervisor."""
        path = os.path.join(self.path, "images", os.path.basename(image.id))
        if os.path.exists(path):
            return
        part = os.path.join(os.path.dirname(path), f"{files.TEMPORARY}{uuid.uuid4()}")
        try:
            self.fetch_image(image, part)
            os.rename(part, path)
        finally:
            files.remove(part)

    # --- create and remove

    def _spawn(self, spec: driver.SpawnSpec) -> None:
        instance = spec.instance
        self._step("image")
        for image in _images(spec):
            self._fetch(image)
        disks = files.private_directory(os.path.join(self.path, "disks", instance.uuid))
        failpoints.check_disk()
        with open(os.path.join(disks, "disk"), "w", encoding="utf-8") as disk:
            disk.write(f"generation {spec.generation}\n")
        time.sleep(self._step("spawn_before_domain").spawn_delay)
        domain = _domain(spec)
        spec.fence()
        self._boot(domain)
        self._step("spawn_after_domain")

    def _boot(self, domain: Domain) -> None:
        for volume_id in domain.encrypted:
            self.volume_key(volume_id)
        system = "rescue system" if domain.rescued else "guest"
        line = f"nova-lite-guest: instance={domain.uuid} hostname={domain.hostname} ip={domain.address}\n"
        with open(self._console(domain.uuid), "a", encoding="utf-8") as console:
            console.write(f"fake firmware\nfake {system} is booting\n{line}")
        domain.power_state = PowerState.RUNNING
        self._write(domain)

    def _destroy(self, instance_uuid: str) -> None:
        """Remove the domain first, as a real hypervisor does. Files without a domain are leftovers."""
        files.remove(self._file("domains", instance_uuid))
        trees.discard(os.path.dirname(self._console(instance_uuid)))

    # --- files

    def _file(self, kind: str, instance_uuid: str) -> str:
        return os.path.join(self.path, kind, os.path.basename(instance_uuid) + ".json")

    def _console(self, instance_uuid: str) -> str:
        return os.path.join(self.path, "disks", os.path.basename(instance_uuid), "console.log")

    def _disks(self, instance_uuid: str) -> str:
        return os.path.dirname(self._console(instance_uuid))

    def _vifs(self, instance_uuid: str) -> list[VIF]:
        try:
            with open(self._file("vifs", instance_uuid), "rb") as file:
                return msgspec.json.decode(file.read(), type=list[VIF])
        except FileNotFoundError:
            return []

    def _uuids(self, kind: str) -> set[str]:
        return {name[: -len(".json")] for name in os.listdir(os.path.join(self.path, kind)) if name.endswith(".json")}

    def _domains(self) -> list[Domain]:
        domains = []
        for instance_uuid in sorted(self._uuids("domains")):
            try:
                domains.append(self._read(instance_uuid))
            except exceptions.DomainNotFound:
                continue  # Removed meanwhile.
        return domains

    def _read(self, instance_uuid: str) -> Domain:
        try:
            with open(self._file("domains", instance_uuid), "rb") as file:
                domain = msgspec.json.decode(file.read(), type=Domain)
        except FileNotFoundError as error:
            raise exceptions.DomainNotFound(instance_uuid=instance_uuid) from error
        domain.generation = domain.generations.get(self.host, domain.generation)
        return domain

    def _write(self, domain: Domain) -> None:
        files.write_atomically(self._file("domains", domain.uuid), msgspec.json.encode(domain), durable=False)

    # --- delays and failures

    def _step(self, name: str, error: type[Exception] | None = None, instance_uuid: str = "") -> Control:
        """Apply the delays and failures of a step. Return the current `Control`."""
        control, source = self._control()
        while {name, "*"} & set(control.hang_at):
            time.sleep(HANG_POLL)
            control, source = self._control()
        time.sleep(control.delays.get(name, 0.0))
        if name in control.fail_at and self._may_fail(control.fail_count, source):
            LOG.info("Failing at %s, as configured", name)
            if error is exceptions.InstancePowerOnFailure and control.fail_error == "virt":
                raise exceptions.InstancePowerOnFailure(
                    instance_uuid=instance_uuid, reason=f"configured to fail at {name}"
                )
            raise self._error(control.fail_error, f"configured to fail at {name}")
        return control

    def _may_fail(self, fail_count: int, source: bytes) -> bool:
        """Count the failures that were played. A changed control file starts a new count."""
        with self._mutex:
            if source != self._played_for:
                self._played, self._played_for = 0, source
            if 0 <= fail_count <= self._played:
                return False
            self._played += 1
            return True

    def _error(self, kind: str, reason: str) -> Exception:
        if kind == "abort":
            return exceptions.ImageGone(image_id="fake", reason=reason)
        if kind == "image":
            return exceptions.ImageFileMissing(image_id="fake", reason=reason)
        if kind == "hypervisor":
            return exceptions.HypervisorUnavailable(host=self.host, reason=reason)
        if kind == "unexpected":
            return RuntimeError(reason)
        return exceptions.VirtDriverError(reason=reason)

    def _control(self) -> tuple[Control, bytes]:
        """Return ``[fake]`` overridden by ``control.json``, and the bytes of that file."""
        values: dict[str, Any] = {name: getattr(self.conf.fake, name) for name in (*CONFIGURED, *CAPACITY)}
        try:
            with open(os.path.join(self.path, "control.json"), "rb") as file:
                source = file.read()
        except FileNotFoundError:
            return msgspec.convert(values, Control), b""
        return msgspec.convert(values | msgspec.json.decode(source), Control), source


def write_control(conf: cfg.ConfigOpts, host: str, **values: Any) -> None:
    """Set the behaviour of the fake hypervisor of ``host``, in whatever process it runs (see `Control`)."""
    path = files.private_directory(state_path(conf, host))
    files.write_atomically(os.path.join(path, "control.json"), msgspec.json.encode(values), durable=False)


def _source(host: str, disks: str) -> DiskSource:
    """Return all files of a disk directory, except those of the hypervisor."""
    names = sorted(name for name in os.listdir(disks) if name != ASIDE_DOMAIN)
    found = [DiskFile(name=name, size=os.path.getsize(os.path.join(disks, name))) for name in names]
    return DiskSource(driver="fake", host=host, location=disks, files=found)


def _machine(control: Control) -> list[NUMACell]:
    if control.vcpus >= BEYOND_MACHINES:
        return []
    return topology.equal_cells(CELLS if control.vcpus >= CELLS else 1, control.vcpus, control.memory_mb)


def _images(spec: driver.SpawnSpec) -> list[Image]:
    others = [image for image in spec.images.values() if spec.image is None or image.id != spec.image.id]
    if spec.image is None or root_volume(spec.instance.block_devices) is not None:
        return others
    return [spec.image, *others]


def _domain(spec: driver.SpawnSpec) -> Domain:
    """Return the new domain, off."""
    instance, flavor = spec.instance, spec.instance.flavor
    return Domain(
        uuid=instance.uuid,
        generation=spec.generation,
        power_state=PowerState.SHUTDOWN,
        hostname=instance.hostname,
        project_id=instance.project_id,
        address=spec.vifs[0].address if spec.vifs else "",
        vcpus=flavor.vcpus,
        memory_mb=flavor.memory_mb,
        disk_gb=flavor.disk_gb,
        config_drive=instance.config_drive,
        volumes={device.volume_id: device.device_name or "" for device in instance.block_devices if device.volume_id},
        encrypted=[volume_id for volume_id, source in spec.volumes.items() if isinstance(source, EncryptedDisk)],
        volume_files=_files(spec.volumes),
        interfaces=[vif.id for vif in spec.vifs],
        host_cpus=[] if instance.numa is None else instance.numa.host_cpus,
    )


def _files(sources: Mapping[str, VolumeSource]) -> dict[str, list[str]]:
    """Return the names of the files in use, by the ids of volumes in plain files."""
    paths = {key: item.path if isinstance(item, Qcow2Disk) else item for key, item in sources.items()}
    return {key: [os.path.basename(path)] for key, path in paths.items() if isinstance(path, str)}


def _info(domain: Domain) -> driver.DomainInfo:
    crashed = domain.power_state == PowerState.CRASHED
    power_state = PowerState.SHUTDOWN if crashed else domain.power_state
    halted = domain.halted and power_state == PowerState.PAUSED
    return driver.DomainInfo(
        uuid=domain.uuid, generation=domain.generation, power_state=power_state, crashed=crashed, halted=halted
    )
