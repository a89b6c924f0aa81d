"""The interface between compute and a hypervisor.

`ComputeDriver` contains the methods of every driver. Optional abilities are protocols of their own (`ConsoleOutput`,
...). A driver without an ability simply lacks the method, and the manager replies 501.

Rules for every driver:

- Methods are called with the instance's lock held (one at a time per instance), from any thread.
- Methods are idempotent: if the requested state exists already, they return normally. Destroying nothing is no error.
- Drivers touch only domains with our metadata (this host's name, uuid, generation).
- Methods block. They never call other services. They raise subclasses of `nova_lite.base.exceptions.VirtDriverError`.
"""

from __future__ import annotations

import abc
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec
from oslo_config import cfg

from nova_lite.base import exceptions, faults, plugins
from nova_lite.objects import (
    VIF,
    BlockDevice,
    Diagnostics,
    DiskSource,
    FileMerge,
    GuestDevices,
    HostProblem,
    Image,
    IncidentKind,
    Instance,
    Inventory,
    LeftDisks,
    LiveDestination,
    LiveSource,
    MigrationControl,
    MigrationProgress,
    PortFilters,
    StorageView,
    VolumeKey,
    VolumeSource,
)
from nova_lite.operations.states import PowerState

NAMESPACE = "nova_lite.virt.drivers"

#: Failpoints of a driver's methods.
POINTS = {
    "spawn": "domain/spawn",
    "destroy": "domain/destroy",
    "snapshot": "snapshot",
    "back_up_disk": "snapshot",
    "swap_volume": "swap",
}

#: Writes an image's bytes to a file: `nova_lite.image.driver.ImageBackend.fetch`.
FetchImage = Callable[[Image, str], None]


class DomainInfo(msgspec.Struct, kw_only=True, frozen=True):
    """Current state of a domain of this host. ``crashed``: it is off, and neither its guest nor another program stopped
    it. ``halted``: its watchdog has paused it."""

    uuid: str
    generation: int
    power_state: PowerState
    crashed: bool = False
    halted: bool = False


class GuestStatistics(msgspec.Struct, kw_only=True, frozen=True):
    """Activity of a running guest since it was started, summed over its devices. None: unknown at this moment.

    ``memory_bytes``: resident memory of the guest's process. ``memory_limit_bytes``: memory that the guest has.
    """

    uuid: str
    project_id: str
    cpu_seconds: float | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    disk_read_bytes: int | None = None
    disk_written_bytes: int | None = None
    disk_reads: int | None = None
    disk_writes: int | None = None
    network_received_bytes: int | None = None
    network_sent_bytes: int | None = None
    network_dropped: int | None = None


class HostCounters(msgspec.Struct, kw_only=True, frozen=True):
    """Activity of a host since it was started, with everything that runs on it.

    ``disk_*``: of the device with the servers' disks. ``network_bytes``: received and sent by its network cards, whose
    speeds have the sum ``network_mbps``. 0: unknown.
    """

    cpus: int
    cpu_seconds: float
    memory_mb: float
    memory_used_mb: float
    disk_busy_seconds: float = 0.0
    disk_bytes: int = 0
    has_disk: bool = False
    network_bytes: int = 0
    network_mbps: float = 0.0


class SpawnSpec(msgspec.Struct, kw_only=True):
    """All data that a driver needs to create a domain.

    ``images``: by id, the root image and, AMI style, kernel and ramdisk. ``injected_files``: base64 content by path.
    ``volumes``: by volume id, where each volume is. ``plugged``:
    waits for the network. The guest is created paused, and continues when this returns. An error of it is the error of
    the spawn. None: the guest runs at once. ``fence``: the driver calls it right before it creates the domain. It
    raises `exceptions.Fenced` if this generation must not be built any more. ``disks``: those of an evacuated server.
    ``placed`` is called with the places of a guest's devices before it starts, if its metadata name them.
    ``still_wanted`` is called while the driver waits. It raises like ``fence``.
    """

    instance: Instance
    generation: int
    vifs: list[VIF]
    image: Image | None
    images: dict[str, Image]
    injected_files: dict[str, str]
    admin_password: str | None
    fence: Callable[[], None]
    volumes: dict[str, VolumeSource] = msgspec.field(default_factory=dict)
    plugged: Callable[[], None] | None = None
    disks: LeftDisks | None = None
    still_wanted: Callable[[], None] = lambda: None
    placed: Callable[[GuestDevices], None] = lambda devices: None


#: Returns the key of an encrypted volume. A driver needs it to open the volume, and stores it nowhere.
GetVolumeKey = Callable[[str], VolumeKey]


def _no_key(volume_id: str) -> VolumeKey:
    raise exceptions.VolumeKeyUnavailable(volume_id=volume_id, reason="this host has no conductor")


class ComputeDriver(abc.ABC):
    """A hypervisor. ``conf`` is oslo.config's object, ``host`` the name of the compute host.

    ``fetch_image(image, path)`` writes an image's verified bytes to a new file.
    """

    def __init__(self, conf: cfg.ConfigOpts, host: str, fetch_image: FetchImage) -> None:
        self.conf = conf
        self.host = host
        self.fetch_image = fetch_image
        #: Returns the key of an encrypted volume of a guest, or raises `VolumeKeyUnavailable`. The host sets it.
        self.volume_key: GetVolumeKey = _no_key

    @abc.abstractmethod
    def init_host(self) -> None:
        """Connect and check the host. Raises `HypervisorUnavailable` (retried) or `ConfigurationError` (fatal)."""

    @abc.abstractmethod
    def get_inventory(self) -> Inventory:
        """Return the totals of this hypervisor. Cheap enough to be called every few seconds."""

    @abc.abstractmethod
    def list_domains(self) -> list[DomainInfo]:
        """Return all our domains on this host, running or not."""

    @abc.abstractmethod
    def get_info(self, instance_uuid: str) -> DomainInfo:
        """Return one domain. Raises `DomainNotFound`."""

    @abc.abstractmethod
    def plug_vifs(self, instance: Instance, vifs: list[VIF]) -> None:
        """Create the host side of the interfaces (bridge, DHCP reservation)."""

    @abc.abstractmethod
    def unplug_vifs(self, instance_uuid: str) -> None:
        """Remove everything that `plug_vifs` has created for the instance."""

    @abc.abstractmethod
    def spawn(self, spec: SpawnSpec) -> None:
        """Create the domain and wait until it runs. A failure leaves nothing except what `plug_vifs` has created."""

    @abc.abstractmethod
    def destroy(self, instance_uuid: str) -> None:
        """Turn off and remove the domain, its disks and files, but not its interfaces."""

    @abc.abstractmethod
    def power_on(self, instance_uuid: str) -> None:
        """Start the domain. Raises `InstancePowerOnFailure` or `DomainNotFound`."""

    @abc.abstractmethod
    def power_off(self, instance_uuid: str, timeout: int) -> None:
        """Request a shutdown and wait up to ``timeout`` seconds (0: no request), then cut the power."""

    @abc.abstractmethod
    def reboot(self, instance_uuid: str, reboot_type: str, timeout: int) -> None:
        """Reboot the guest. ``SOFT``: request a shutdown, and fall back to HARD after ``timeout`` seconds. ``HARD``:
        power cycle.

        HARD also starts a domain that is off.
        """

    @abc.abstractmethod
    def leftovers(self) -> set[str]:
        """Return the uuids of instances that have disks, files or interfaces on this host, but no domain."""

    def guest_devices(self, instance_uuid: str) -> GuestDevices | None:
        """Return the places of a guest's interfaces and disks; None if the driver does not know them.

        Raises `DomainNotFound`.
        """
        return None

    def guard_arguments(self) -> list[str]:
        """Return arguments by which the host's guard finds the guests. By default they are qemu's processes."""
        return []

    def wait_for_events(self, callback: Callable[[str, IncidentKind | None], None]) -> None:
        """Call ``callback(uuid, incident)`` whenever a domain's power state changes, or an incident
        happens. By default never: polling notices a changed state and a crash, but no other incident."""
        del callback


@runtime_checkable
class Recreating(Protocol):
    """A driver that can define a missing domain again from its existing disks."""

    def recreate(self, spec: SpawnSpec) -> None:
        """Define the missing domain, off, from the disks of exactly this generation. Calls ``spec.fence`` before that.

        Raises `DomainNotFound` if the disks are missing, too.
        """
        ...


@runtime_checkable
class Renewing(Protocol):
    """A driver that can redefine a domain from a current specification."""

    def renew(self, spec: SpawnSpec) -> None:
        """Cut the power, and redefine the domain from ``spec`` and its existing disks. It stays off.

        Raises `DomainNotFound`.
        """
        ...


@runtime_checkable
class SharingDisks(Protocol):
    """A driver whose hosts may share the directory of their disks.

    `ComputeDriver.spawn` takes the disks of an evacuated server there.
    `ComputeDriver.destroy` gives taken disks back until `own_disks` was called, because they are the only ones.
    """

    def view_storage(self) -> StorageView:
        """Return the marks in the directory of disks. The own mark is renewed sometimes."""
        ...

    def own_disks(self, instance_uuid: str) -> None:
        """Make taken disks this host's permanently: the instance runs here with them, or is deleted."""
        ...

    def taken_disks(self) -> set[str]:
        """Return the instances whose disks are taken, and not this host's permanently."""
        ...

    def keep_disks(self, instance_uuid: str) -> None:
        """Let `ComputeDriver.destroy` leave the disks alone, since another host may take them."""
        ...


@runtime_checkable
class ConsoleOutput(Protocol):
    """A driver that stores the serial console output of guests."""

    def get_console_output(self, instance_uuid: str, length: int | None) -> str:
        """Return the last ``length`` lines (None: all stored lines) of the guest's serial console."""
        ...


class ConsoleAddress(NamedTuple):
    """TCP address of a running guest's console, for the console proxy. ``tls``: it speaks TLS from the first byte."""

    host: str
    port: int
    tls: bool = False


@runtime_checkable
class VncConsole(Protocol):
    """A driver with VNC consoles."""

    def get_vnc_console(self, instance_uuid: str) -> ConsoleAddress:
        """Return the VNC address of a running guest. Raises `ConsoleTypeUnavailable` if it has none, and
        `DomainNotFound`."""
        ...


@runtime_checkable
class SerialConsole(Protocol):
    """A driver with serial ports that are reachable over the network."""

    def get_serial_console(self, instance_uuid: str) -> ConsoleAddress:
        """Return the address of the serial port. Raises the same errors as `VncConsole.get_vnc_console`."""
        ...


@runtime_checkable
class Pausing(Protocol):
    """A driver that can pause guests in memory.

    The methods do nothing if the guest is in the requested state already. They raise `DomainNotFound`.
    """

    def pause(self, instance_uuid: str) -> None: ...

    def unpause(self, instance_uuid: str) -> None: ...


@runtime_checkable
class Suspending(Protocol):
    """A driver that can save a guest's memory to disk and turn its domain off. Idempotent like `Pausing`."""

    def suspend(self, instance_uuid: str) -> None: ...

    def resume(self, instance_uuid: str) -> None:
        """Restore a suspended guest. Raises `InstancePowerOnFailure` if it does not run again."""
        ...


@runtime_checkable
class Migrating(Protocol):
    """A driver that can move a guest that is off to the same driver of another host."""

    def migrate_disk_and_power_off(self, instance_uuid: str, timeout: int) -> DiskSource:
        """Turn off the guest at the source as `ComputeDriver.power_off` does, and return its disks' location.

        Domain and disks stay unchanged until `destroy` or `power_on`. Repeating the call returns the same result.
        """
        ...

    def finish_migration(self, spec: SpawnSpec, source: DiskSource, power_on: bool) -> None:
        """Create the guest at the destination from the disks of the source.

        Fetch the disks (resumable, verified), grow them to the flavor of ``spec``, call ``spec.fence``, define the
        domain and, if ``power_on``, wait until it runs. A failure leaves nothing except what `plug_vifs` has created.
        """
        ...

    def set_aside(self, instance_uuid: str, timeout: int) -> DiskSource:
        """Set the guest aside, where source and destination are one host, and return where the disks can be fetched.

        Like `migrate_disk_and_power_off`, but domain and disks are moved out of the way, so that the same instance can
        be created here at a later generation. `destroy` leaves them alone. Without a domain they are among `leftovers`.
        """
        ...

    def restore_set_aside(self, instance_uuid: str) -> None:
        """Make the guest that was set aside the instance again, off. Do nothing if there is none.

        Nothing else of the instance may be here.
        """
        ...

    def discard_set_aside(self, instance_uuid: str) -> None:
        """Remove the guest that was set aside, if any."""
        ...


@runtime_checkable
class LiveMigrating(Protocol):
    """A driver that can move a running guest to the same driver of another host."""

    def check_can_live_migrate_source(self, instance_uuid: str) -> LiveSource:
        """Return what the destination has to prepare. Raises `MigrationPreCheckError`. Runs at the source."""
        ...

    def pre_live_migration(self, spec: SpawnSpec, source: LiveSource) -> LiveDestination:
        """Prepare room and files for the guest, and call ``spec.fence``. Runs at the destination.

        The interfaces are plugged already. A failure leaves nothing except what `plug_vifs` has created.
        `ComputeDriver.destroy` undoes it.
        """
        ...

    def live_migration(
        self, instance_uuid: str, destination: LiveDestination, watch: Callable[[MigrationProgress], MigrationControl]
    ) -> None:
        """Move the guest to the destination. On return it runs there, and not here. Runs at the source.

        The migration is aborted if it takes too long, or if ``watch`` requests that. ``watch`` is called about every
        second. On failure the guest continues here.
        """
        ...

    def settle_live_migration(self, instance_uuid: str, destination: LiveDestination) -> bool:
        """End a migration that an earlier run of the daemon has left. Runs at the source.

        Returns True if the guest has moved, and False if it is here. Raises an error while the result is unknown.
        """
        ...

    def has_arrived(self, instance_uuid: str) -> bool:
        """Check whether the domain here is the whole guest, after the source was lost. Runs at the destination.

        Raises `MigrationFailed` while libvirt still counts it as incoming.
        """
        ...

    def finish_live_migration(self, instance_uuid: str) -> None:
        """Accept nothing more from the source, if the driver guards that. Runs at the destination, perhaps twice.

        `ComputeDriver.destroy` does the same after a failed migration.
        """
        ...

    def take_over_paused(self, instance_uuid: str) -> None:
        """Complete the arrival of a guest that stays paused, as far as a guest has to run for that. Runs at the
        destination.

        Repeating it is harmless, even if it was interrupted with the guest running.
        """
        ...


@runtime_checkable
class Snapshots(Protocol):
    """A driver that can make an image of a guest's disk."""

    def snapshot(self, instance_uuid: str, target: str, check: Callable[[], None]) -> None:
        """Write the current root disk to the new file ``target``, a qcow2 file without a backing file.

        A running guest continues. Its file systems are frozen for an instant if its agent answers. ``check`` is called
        about every second. It cancels the snapshot by raising, and then nothing of it continues.
        """
        ...


#: Yields the path of a raw file with the data of a volume that no guest uses.
ExportVolume = Callable[[str], contextlib.AbstractContextManager[str]]


class BackupRequest(msgspec.Struct, kw_only=True, frozen=True):
    """Backup of a guest's disks. ``backup_id``: its id, which is never used again.

    ``disks``: ids of volumes, "" for the root disk; empty: the root disk alone, whose stream names no disks. ``base``:
    an earlier backup, ``base_size`` the size of its disk in bytes, and ``base_disks`` volume and size of each of its
    disks. None: the backup is a whole one.
    """

    backup_id: str
    disks: list[str] = []
    base: str | None = None
    base_size: int = 0
    base_disks: list[tuple[str, int]] = []


@runtime_checkable
class IncrementalBackups(Protocol):
    """A driver that can write what has changed on a guest's disk since an earlier backup."""

    def back_up_disk(
        self,
        instance_uuid: str,
        target: str,
        request: BackupRequest,
        check: Callable[[], None],
        exported: ExportVolume,
    ) -> None:
        """Write a stream of the disks, as they are at one moment, to ``target`` (`nova_lite.backups.disk_data`).

        It is an increment of ``request.base`` only if all changes since then are known for sure, and whole disks
        otherwise. The guest is treated as in `Snapshots.snapshot`, and so is ``check``. ``exported``: the data of
        volumes, if the guest is off.
        """
        ...


@runtime_checkable
class Rescuing(Protocol):
    """A driver that can boot a guest from another image, with its own disks attached.

    A rescued guest returns to its own disk as soon as it is started or rebooted. The API accepts neither for a rescued
    server.
    """

    def rescue(self, spec: SpawnSpec, timeout: int) -> None:
        """Shut the guest down within ``timeout`` seconds, and boot it from ``spec.image``.

        On failure it is off and unchanged. Raises `DomainNotFound`.
        """
        ...

    def unrescue(self, instance_uuid: str) -> None:
        """Restore the original guest and start it. Nothing of the rescue remains."""
        ...


@runtime_checkable
class SettingPasswords(Protocol):
    """A driver that can set a password through an agent in the guest."""

    def set_admin_password(self, instance_uuid: str, user: str, password: str) -> None:
        """Set a user's password. Raises `GuestAgentUnresponsive`, or `VirtDriverError` with the agent's error."""
        ...


@runtime_checkable
class CrashDumps(Protocol):
    """A driver that can inject a non-maskable interrupt (NMI), which makes the guest's system write a crash dump."""

    def trigger_crash_dump(self, instance_uuid: str) -> None:
        """Inject the interrupt. Raises `VirtDriverError` also if the guest is off."""
        ...


@runtime_checkable
class InstanceDiagnostics(Protocol):
    """A driver that can return counters of a running guest."""

    def get_instance_diagnostics(self, instance_uuid: str) -> Diagnostics:
        """Return the counters of a running guest. Raises `DomainNotFound`."""
        ...


@runtime_checkable
class BulkStatistics(Protocol):
    """A driver that can return counters of all running guests of this host at once."""

    def get_all_statistics(self) -> list[GuestStatistics]:
        """Return the counters of all running guests. The number of calls to the hypervisor does not grow with them.

        Guests that are busy are not waited for.
        """
        ...


@runtime_checkable
class HostMeasuring(BulkStatistics, Protocol):
    """A driver that can also return counters of the whole host."""

    def get_host_counters(self) -> HostCounters:
        """Return the host's counters. Reads local files only."""
        ...


@runtime_checkable
class CheckingDisks(Protocol):
    """A driver that can look whether the files of its guests' disks are there."""

    def without_disks(self) -> set[str]:
        """Return the instances with a domain of which a file below the directories of disks or volumes is missing."""
        ...


@runtime_checkable
class HealthChecking(Protocol):
    """A driver that sees signs that its machine will fail."""

    def check_health(self) -> list[HostProblem]:
        """Return the problems of the machine. Takes some seconds at most, whatever state its disks are in."""
        ...


@runtime_checkable
class DirtyRates(Protocol):
    """A driver that can measure how fast guests change their memory."""

    def get_dirty_rates(self, start: bool) -> dict[str, float]:
        """Return the last known MB a second by guest. ``start``: begin to measure all again, without waiting."""
        ...


@runtime_checkable
class VolumeAttaching(Protocol):
    """A driver that can attach and detach disks of guests, running or not. `spawn` attaches all volumes of its
    `SpawnSpec`."""

    def attach_volume(self, instance_uuid: str, device: BlockDevice, path: VolumeSource) -> None:
        """Attach the raw file ``path`` as this disk, now and for the next start. Do nothing if it is attached already.

        On failure it is not attached. Raises `DomainNotFound`.
        """
        ...

    def detach_volume(self, instance_uuid: str, volume_id: str, timeout: float) -> None:
        """Detach the volume, now and for the next start. Do nothing if it is not attached.

        A running guest has ``timeout`` seconds to release it. Raises `DeviceDetachFailed` or `DomainNotFound`.
        """
        ...

    def extend_volume(self, instance_uuid: str, volume_id: str, size: int) -> None:
        """Notify a running guest that the volume's file has ``size`` bytes now. Do nothing if it is not attached."""
        ...


@runtime_checkable
class VolumeCopying(Protocol):
    """A driver that can copy the content of volumes in use.

    ``check`` is called often and may cancel the copy by raising. Then nothing of the copy continues.
    """

    def copy_volumes(
        self, instance_uuid: str, copies: Mapping[str, tuple[str, str]], check: Callable[[], None]
    ) -> None:
        """Copy volumes at one consistent moment. A guest that is off, or lacks a volume, does not write to it any more.

        ``copies``: by volume id, the raw file to read, and the file to write, which has the same size. Raises
        `DomainNotFound`.
        """
        ...

    def held_volumes(self, instance_uuid: str, volume_ids: Sequence[str]) -> contextlib.AbstractContextManager[None]:
        """Return a context in which the guest does not write to these volumes.

        Its file systems are frozen if its agent answers. With several volumes it is paused, so that all of them have
        the content of one moment. Raises `DomainNotFound`.
        """
        ...

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
        """Replace the volume ``old`` of a running guest by ``new_id``, with all its content.

        ``path`` is the raw file of the new volume, of ``size`` bytes, at least the old size. ``copied`` is called when
        both have the same content and stay synchronized; then the guest switches. Do nothing if it has the new volume
        already. On failure it keeps the old one. After ``copied`` both stay synchronized until `end_swap`.
        """
        ...

    def end_swap(self, instance_uuid: str, old_id: str, new_id: str, size: int) -> bool:
        """End a swap. Return whether the guest has the new volume. If not, the new file may be smaller than ``size``
        bytes."""
        ...


@runtime_checkable
class VolumeFiling(Protocol):
    """A driver that can work on the files of a volume that Cinder has in files on top of each other.

    All methods raise `DomainNotFound`, and `VirtDriverError` if the volume is not in such files. The guest may be off.
    """

    def volume_file_names(self, instance_uuid: str, volume_id: str) -> list[str]:
        """Return the plain names of the volume's files, that in use first."""
        ...

    def snapshot_volume_file(self, instance_uuid: str, volume_id: str, new_file: str) -> None:
        """Let the guest use the file ``new_file``, which Cinder has made on top of the present one.

        Do nothing if the guest has it already. Its file systems are frozen for an instant if its agent answers. On
        failure the guest keeps its file.
        """
        ...

    def merge_volume_files(
        self, instance_uuid: str, volume_id: str, request: FileMerge, check: Callable[[], None]
    ) -> None:
        """Merge two files. Do nothing if that has happened. ``check`` is called often, and may end it by raising.

        Then nothing of the merge continues, and the guest has all its data.
        """
        ...

    def end_volume_merge(self, instance_uuid: str, volume_id: str) -> None:
        """End a merge that an earlier run of the daemon has left, if any."""
        ...


@runtime_checkable
class AttachingInterfaces(Protocol):
    """A driver that can attach and detach interfaces of guests, running or not.

    The methods do nothing if the guest is in the requested state already. They raise `DomainNotFound`.
    """

    def attach_interface(self, instance_uuid: str, vif: VIF) -> None:
        """Attach the plugged interface ``vif``."""
        ...

    def detach_interface(self, instance_uuid: str, vif: VIF) -> None:
        """Detach the interface, and remove everything that `ComputeDriver.plug_vifs` has created for it.

        Raises `VirtDriverError` if the guest does not release it; then the guest keeps it.
        """
        ...


@runtime_checkable
class PortFiltering(Protocol):
    """A driver that filters traffic by security groups.

    A plugged interface accepts only replies to its guest until `set_port_filters`. Filters stay valid until they are
    replaced.
    """

    def filtered_instances(self) -> list[str]:
        """Return the uuids of instances with filtered interfaces here, or with interfaces on a network that spans
        hosts."""
        ...

    def lacks_port_filters(self) -> bool:
        """Check whether filters or tunnel peers of any of these instances are still missing. Cheap."""
        ...

    def set_port_filters(self, filters: PortFilters) -> None:
        """Replace all filters, also of running guests, immediately."""
        ...


@runtime_checkable
class ImageCaching(Protocol):
    """A driver with an image cache on its host."""

    def cache_image(self, image: Image) -> None:
        """Fetch an image, so that the next guest built from it does not wait.

        Raises what `spawn` raises for an image.
        """
        ...


@runtime_checkable
class ImageAgeing(Protocol):
    """A driver that can remove unused images from its cache."""

    def age_images(self, minimum_age: float) -> list[str]:
        """Remove images that were neither used nor requested for ``minimum_age`` seconds. Return their ids.

        An image whose use is uncertain stays.
        """
        ...


@runtime_checkable
class NetworkAgeing(Protocol):
    """A driver that can remove unused networks from its host."""

    def age_networks(self, minimum_age: float) -> list[str]:
        """Remove networks that no guest has used here for ``minimum_age`` seconds. Return their ids."""
        ...


def load_compute_driver(conf: cfg.ConfigOpts, host: str, fetch_image: FetchImage) -> ComputeDriver:
    """Return the driver named by ``[DEFAULT] compute_driver``. Raises `ConfigurationError`."""
    (driver,) = plugins.load(NAMESPACE, [conf.compute_driver], "[DEFAULT] compute_driver")
    loaded: ComputeDriver = driver(conf, host, fetch_image)
    return faults.methods(loaded, POINTS)


def instances_path(conf: cfg.ConfigOpts) -> str:
    """Return the directory of instances' disks and state: ``<state_path>/instances`` unless configured."""
    return conf.instances_path or os.path.join(conf.state_path, "instances")


def snapshots_path(conf: cfg.ConfigOpts, host: str) -> str:
    """Return the directory in which this host makes image files."""
    return os.path.join(instances_path(conf), "_snapshots", os.path.basename(host))


def last_lines(text: str, length: int | None) -> str:
    """Return the last ``length`` lines, without the final newline, so that splitting at newlines gives ``length``
    lines.

    None: the whole text, unchanged.
    """
    if length is None:
        return text
    return "\n".join(text.removesuffix("\n").split("\n")[-length:]) if length > 0 else ""
