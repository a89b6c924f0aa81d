"""Abilities of a hypervisor: what a compute daemon calls, and the types that it passes.

`nova_lite.virt.driver.ComputeDriver` names one object for each ability. `Guests`, `Power` and `Machine` are required.
Every other ability is optional. A call of an ability that a driver lacks raises `NotImplementedByDriver` (501).

Rules for every ability:

- Methods are called with the instance's lock held (one at a time per instance), from any thread.
- Methods are idempotent: if the requested state exists already, they return normally. Destroying nothing is no error.
- Drivers touch only domains with our metadata (this host's name, uuid, generation).
- Methods block. They never call other services. They raise subclasses of `nova_lite.base.exceptions.VirtDriverError`.
- A method with an instance's uuid raises `DomainNotFound` if the domain has to exist and does not.
"""

from __future__ import annotations

import abc
import contextlib
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from nova_lite.objects import (
    VIF,
    BlockDevice,
    Diagnostics,
    DiskSource,
    FileMerge,
    GuestReport,
    HostProblem,
    Image,
    Instance,
    Inventory,
    LeftDisks,
    LiveDestination,
    LiveSource,
    MigrationControl,
    MigrationProgress,
    PacketProbe,
    PacketSighting,
    PortFilters,
    ShareMapping,
    StorageView,
    VolumeKey,
    VolumeSource,
)
from nova_lite.operations.states import PowerState

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

    ``disk_*``: of the device with the servers' disks. ``network_bytes``: received and sent by those network cards whose
    speeds are known, and have the sum ``network_mbps``. 0: unknown. ``network_received_bytes``,
    ``network_sent_bytes``: of all cards.
    """

    cpus: int
    cpu_seconds: float
    memory_mb: float
    memory_used_mb: float
    disk_busy_seconds: float = 0.0
    disk_read_bytes: int = 0
    disk_written_bytes: int = 0
    has_disk: bool = False
    network_bytes: int = 0
    network_mbps: float = 0.0
    network_received_bytes: int = 0
    network_sent_bytes: int = 0

    @property
    def disk_bytes(self) -> int:
        return self.disk_read_bytes + self.disk_written_bytes


class SpawnSpec(msgspec.Struct, kw_only=True):
    """All data that a driver needs to create a domain.

    ``images``: by id, the root image and, AMI style, kernel and ramdisk. ``injected_files``: base64 content by path.
    ``volumes``: by volume id, where each volume is. ``plugged``:
    waits for the network. The guest is created paused, and continues when this returns. An error of it is the error of
    the spawn. None: the guest runs at once. ``fence``: the driver calls it right before it creates the domain. It
    raises `exceptions.Fenced` if this generation must not be built any more. ``disks``: those of an evacuated server.
    ``placed`` is called with the places of a guest's devices before it starts, if its metadata name them.
    ``still_wanted`` is called while the driver waits. It raises like ``fence``. ``clone_of``: the root disk lies on the
    layer that was made of this server's (`Clones.freeze`).
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
    clone_of: str | None = None
    still_wanted: Callable[[], None] = lambda: None
    placed: Callable[[GuestReport], None] = lambda devices: None


#: Returns the key of an encrypted volume. A driver needs it to open the volume, and stores it nowhere.
GetVolumeKey = Callable[[str], VolumeKey]
#: Returns the key of a disk of a server, by the server's uuid and the disk's role (`nova_lite.objects.DISK_ROLES`).
GetDiskKey = Callable[[str, str], VolumeKey]


class Guests(Protocol):
    """The domains of this host. Required."""

    @abc.abstractmethod
    def all(self) -> list[DomainInfo]:
        """Return all our domains on this host, running or not."""

    @abc.abstractmethod
    def get(self, instance_uuid: str) -> DomainInfo:
        """Return one domain. Raises `DomainNotFound`."""

    @abc.abstractmethod
    def spawn(self, spec: SpawnSpec) -> None:
        """Create the domain and wait until it runs. A failure leaves nothing except what `Networks.plug` has created.

        All volumes of ``spec`` are attached.
        """

    @abc.abstractmethod
    def destroy(self, instance_uuid: str) -> None:
        """Turn off and remove the domain, its disks and files, but not its interfaces."""

    @abc.abstractmethod
    def leftovers(self) -> set[str]:
        """Return the uuids of instances that have disks, files or interfaces on this host, but no domain."""

    def devices(self, instance_uuid: str) -> GuestReport | None:
        """Return the places of a guest's interfaces and disks, and the processor of a running guest; None if the driver
        does not know them."""
        return None


class Power(Protocol):
    """Power of guests. Required."""

    @abc.abstractmethod
    def on(self, instance_uuid: str) -> None:
        """Start the domain. Raises `InstancePowerOnFailure` or `DomainNotFound`."""

    @abc.abstractmethod
    def off(self, instance_uuid: str, timeout: int) -> None:
        """Request a shutdown and wait up to ``timeout`` seconds (0: no request), then cut the power."""

    @abc.abstractmethod
    def reboot(self, instance_uuid: str, reboot_type: str, timeout: int) -> None:
        """Reboot the guest. ``SOFT``: request a shutdown, and fall back to HARD after ``timeout`` seconds. ``HARD``:
        power cycle.

        HARD also starts a domain that is off.
        """


class Machine(Protocol):
    """The machine on which guests run. Required."""

    @abc.abstractmethod
    def inventory(self) -> Inventory:
        """Return the totals of this hypervisor. Cheap enough to be called every few seconds."""


class Networks(Protocol):
    """The host side of guests' interfaces."""

    @abc.abstractmethod
    def plug(self, instance: Instance, vifs: list[VIF]) -> None:
        """Create the host side of the interfaces (bridge, DHCP reservation)."""

    @abc.abstractmethod
    def unplug(self, instance_uuid: str) -> None:
        """Remove everything that `plug` has created for the instance."""

    def watch(self) -> None:
        """Start again what guests on networks need and what has ended. A daemon calls it twice a second."""
        return

    def remove_unused(self, minimum_age: float) -> list[str]:
        """Remove networks that no guest has used here for ``minimum_age`` seconds. Return their ids."""
        return []

    def metadata_sockets(self) -> Mapping[str, socket.socket]:
        """Return sockets that listen at the address of the metadata service, one on each network that has it, by id.

        A socket takes the connections of its network's guests only, with their addresses. It shares its port
        (``SO_REUSEPORT``) with the socket of an earlier daemon, which APIs serve until they have the new one. All are
        there after `ComputeDriver.init_host`. Called several times a second.
        """
        return {}


class Definitions(Protocol):
    """Domains that are defined again from their existing disks."""

    @abc.abstractmethod
    def recreate(self, spec: SpawnSpec) -> None:
        """Define the missing domain, off, from the disks of exactly this generation. Calls ``spec.fence`` before that.

        Raises `DomainNotFound` if the disks are missing, too.
        """

    @abc.abstractmethod
    def renew(self, spec: SpawnSpec) -> None:
        """Cut the power, and redefine the domain from ``spec`` and its existing disks. It stays off.

        A driver whose domains cannot be outdated does nothing.
        """


class Hotplug(Protocol):
    """vCPUs and memory of running guests, up to the maximum of their flavors."""

    @abc.abstractmethod
    def resize(self, spec: SpawnSpec) -> None:
        """Give the guest the vCPUs and memory of the flavor of ``spec``, now and for the next start.

        A guest that is off gets them for its next start. ``spec.still_wanted`` is called while a running guest is
        waited for. Raises `GuestSizeRefused` if it neither takes nor releases them in time. Then it has any number
        between both sizes until its next start.
        """


class SharedDisks(Protocol):
    """A directory of disks that hosts may share.

    `Guests.spawn` takes the disks of an evacuated server there. `Guests.destroy` gives taken disks back until `own` was
    called, because they are the only ones.
    """

    @abc.abstractmethod
    def view(self) -> StorageView:
        """Return the marks in the directory of disks. The own mark is renewed sometimes."""

    @abc.abstractmethod
    def own(self, instance_uuid: str) -> None:
        """Make taken disks this host's permanently: the instance runs here with them, or is deleted."""

    @abc.abstractmethod
    def taken(self) -> set[str]:
        """Return the instances whose disks are taken, and not this host's permanently."""

    @abc.abstractmethod
    def keep(self, instance_uuid: str) -> None:
        """Let `Guests.destroy` leave the disks alone, since another host may take them."""


class ConsoleAddress(NamedTuple):
    """TCP address of a running guest's console, for the console proxy. ``tls``: it speaks TLS from the first byte.

    ``tls_port``: a further port, which does. With it ``port`` may be 0: there is none.
    """

    host: str
    port: int
    tls: bool = False
    tls_port: int | None = None


class Consoles(Protocol):
    """Consoles of guests. The addresses are those of a running guest: the methods raise `ConsoleTypeUnavailable` if it
    has none."""

    @abc.abstractmethod
    def output(self, instance_uuid: str, length: int | None) -> str:
        """Return the last ``length`` lines (None: all stored lines) of the guest's serial console."""

    @abc.abstractmethod
    def vnc(self, instance_uuid: str) -> ConsoleAddress:
        """Return the VNC address."""

    @abc.abstractmethod
    def serial(self, instance_uuid: str) -> ConsoleAddress:
        """Return the address of the serial port."""

    @abc.abstractmethod
    def spice(self, instance_uuid: str) -> ConsoleAddress:
        """Return the SPICE address."""


class Standby(Protocol):
    """Guests that stand still: paused in memory, or with their memory saved to disk and their domain off."""

    @abc.abstractmethod
    def pause(self, instance_uuid: str) -> None: ...

    @abc.abstractmethod
    def unpause(self, instance_uuid: str) -> None: ...

    @abc.abstractmethod
    def suspend(self, instance_uuid: str) -> None: ...

    @abc.abstractmethod
    def resume(self, instance_uuid: str) -> None:
        """Restore a suspended guest. Raises `InstancePowerOnFailure` if it does not run again."""


class Moves(Protocol):
    """Moves of guests that are off to the same driver of another host."""

    @abc.abstractmethod
    def offer_disks(self, instance_uuid: str, timeout: int) -> DiskSource:
        """Turn off the guest at the source as `Power.off` does, and return its disks' location.

        Domain and disks stay unchanged until `Guests.destroy` or `Power.on`. A repeated call returns the same result.
        """

    @abc.abstractmethod
    def finish(self, spec: SpawnSpec, source: DiskSource, power_on: bool) -> None:
        """Create the guest at the destination from the disks of the source.

        Fetch the disks (resumable, verified), grow them to the flavor of ``spec``, call ``spec.fence``, define the
        domain and, if ``power_on``, wait until it runs. A failure leaves nothing but what `Networks.plug` has created.
        """

    @abc.abstractmethod
    def set_aside(self, instance_uuid: str, timeout: int) -> DiskSource:
        """Set the guest aside, where source and destination are one host, and return where the disks can be fetched.

        Like `offer_disks`, but domain and disks are moved out of the way, so that the same instance can be created here
        at a later generation. `Guests.destroy` leaves them alone. Without a domain they are among `Guests.leftovers`.
        """

    @abc.abstractmethod
    def restore(self, instance_uuid: str) -> None:
        """Make the guest that was set aside the instance again, off. Do nothing if there is none.

        Nothing else of the instance may be here.
        """

    @abc.abstractmethod
    def discard(self, instance_uuid: str) -> None:
        """Remove the guest that was set aside, if any."""


class LiveMoves(Protocol):
    """Moves of running guests to the same driver of another host."""

    @abc.abstractmethod
    def check_source(self, instance_uuid: str) -> LiveSource:
        """Return what the destination has to prepare. Raises `MigrationPreCheckError`. Runs at the source."""

    def check_destination(self, source: LiveSource) -> None:
        """Raise `MigrationPreCheckError` if the guest cannot continue here. Runs at the destination, which has nothing
        of it yet. A driver whose guests run anywhere does nothing."""
        return

    @abc.abstractmethod
    def prepare(self, spec: SpawnSpec, source: LiveSource) -> LiveDestination:
        """Prepare room and files for the guest, and call ``spec.fence``. Runs at the destination.

        The interfaces are plugged already. A failure leaves nothing except what `Networks.plug` has created.
        `Guests.destroy` undoes it.
        """

    @abc.abstractmethod
    def migrate(
        self, instance_uuid: str, destination: LiveDestination, watch: Callable[[MigrationProgress], MigrationControl]
    ) -> None:
        """Move the guest to the destination. On return it runs there, and not here. Runs at the source.

        The migration is aborted if it takes too long, or if ``watch`` requests that. ``watch`` is called about every
        second. On failure the guest continues here.
        """

    @abc.abstractmethod
    def settle(self, instance_uuid: str, destination: LiveDestination) -> bool:
        """End a migration that an earlier run of the daemon has left. Runs at the source.

        Returns True if the guest has moved, and False if it is here. Raises an error while the result is unknown.
        """

    @abc.abstractmethod
    def has_arrived(self, instance_uuid: str) -> bool:
        """Check whether the domain here is the whole guest, after the source was lost. Runs at the destination.

        Raises `MigrationFailed` while libvirt still counts it as incoming.
        """

    @abc.abstractmethod
    def finish(self, instance_uuid: str) -> None:
        """Accept nothing more from the source, if the driver guards that. Runs at the destination, perhaps twice.

        `Guests.destroy` does the same after a failed migration.
        """

    @abc.abstractmethod
    def take_over_paused(self, instance_uuid: str) -> None:
        """Complete the arrival of a guest that stays paused, as far as a guest has to run for that. Runs at the
        destination.

        Repeating it is harmless, even if it was interrupted with the guest running.
        """


class Snapshots(Protocol):
    """Images of guests' disks."""

    @abc.abstractmethod
    def take(self, instance_uuid: str, target: str, check: Callable[[], None]) -> None:
        """Write the current root disk to the new file ``target``, a qcow2 file without a backing file.

        A running guest continues. Its file systems are frozen for an instant if its agent answers. ``check`` is called
        about every second. It cancels the snapshot by raising, and then nothing of it continues.
        """


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


class Backups(Protocol):
    """Backups of guests' disks, with what has changed since an earlier backup."""

    @abc.abstractmethod
    def take(
        self,
        instance_uuid: str,
        target: str,
        request: BackupRequest,
        check: Callable[[], None],
        exported: ExportVolume,
    ) -> None:
        """Write a stream of the disks, as they are at one moment, to ``target`` (`nova_lite.backups.disk_data`).

        It is an increment of ``request.base`` only if all changes since then are known for sure, and whole disks
        otherwise. The guest is treated as in `Snapshots.take`, and so is ``check``. ``exported``: the data of
        volumes, if the guest is off.
        """


class Rescue(Protocol):
    """Boots of guests from another image, with their own disks attached.

    A rescued guest returns to its own disk as soon as it is started or rebooted. The API accepts neither for a rescued
    server.
    """

    @abc.abstractmethod
    def start(self, spec: SpawnSpec, timeout: int) -> None:
        """Shut the guest down within ``timeout`` seconds, and boot it from ``spec.image``.

        On failure it is off and unchanged. Raises `DomainNotFound`.
        """

    @abc.abstractmethod
    def end(self, instance_uuid: str) -> None:
        """Restore the original guest and start it. Nothing of the rescue remains."""


class Passwords(Protocol):
    """Passwords that an agent in the guest sets."""

    @abc.abstractmethod
    def set(self, instance_uuid: str, user: str, password: str) -> None:
        """Set a user's password. Raises `GuestAgentUnresponsive`, or `VirtDriverError` with the agent's error."""


class CrashDumps(Protocol):
    """Non-maskable interrupts (NMI), which make the guest's system write a crash dump."""

    @abc.abstractmethod
    def trigger(self, instance_uuid: str) -> None:
        """Inject the interrupt. Raises `VirtDriverError` also if the guest is off."""


class GuestDiagnostics(Protocol):
    """Counters of one running guest."""

    @abc.abstractmethod
    def read(self, instance_uuid: str) -> Diagnostics:
        """Return the counters of a running guest. Raises `DomainNotFound`."""


class Statistics(Protocol):
    """Counters of all running guests of this host, and of the host."""

    @abc.abstractmethod
    def guests(self) -> list[GuestStatistics]:
        """Return the counters of all running guests. The number of calls to the hypervisor does not grow with them.

        Guests that are busy are not waited for.
        """

    @abc.abstractmethod
    def host(self) -> HostCounters:
        """Return the host's counters. Reads local files only."""

    def dirty_rates(self, start: bool) -> dict[str, float]:
        """Return the last known MB of memory that guests changed in a second, by guest.

        ``start``: begin to measure all again, without waiting. A driver that cannot measure returns {}.
        """
        return {}


class DiskChecks(Protocol):
    """Checks whether the files of guests' disks are there."""

    @abc.abstractmethod
    def missing(self) -> set[str]:
        """Return the instances with a domain of which a file below the directories of disks or volumes is missing."""


class Health(Protocol):
    """Signs that the machine will fail."""

    @abc.abstractmethod
    def check(self) -> list[HostProblem]:
        """Return the problems of the machine. Takes some seconds at most, whatever state its disks are in."""


class Shares(Protocol):
    """Directories of hosts that guests mount. The machine of such a driver reports `traits.VIRTIOFS`."""

    @abc.abstractmethod
    def attach(self, instance_uuid: str, mapping: ShareMapping) -> None:
        """Give the guest, which is off, this share at its next start. Do nothing if it has it already.

        Raises `DomainNotFound`, and `VirtDriverError` if this host does not have the share.
        """

    @abc.abstractmethod
    def detach(self, instance_uuid: str, mapping: ShareMapping) -> None:
        """Take this share from the guest, which is off. Do nothing if it does not have it. Raises `DomainNotFound`."""


class Points(Protocol):
    """Snapshot points of guests: states of their own disk. The machine of such a driver reports `traits.POINTS`."""

    @abc.abstractmethod
    def create(self, instance_uuid: str, point_id: str, memory: bool) -> None:
        """Make a point of the disk, and with ``memory`` of the running guest. It replaces a part of this point.

        The guest continues. Without ``memory`` its file systems are frozen for an instant if its agent answers.
        """

    @abc.abstractmethod
    def revert(self, instance_uuid: str, point_id: str, memory: bool) -> None:
        """Cut the power, and give the disk the state of the point. With ``memory`` the guest continues as it was.

        Firmware variables and the state of the TPM belong to the disk. Without ``memory`` the guest stays off.
        """

    @abc.abstractmethod
    def delete(self, instance_uuid: str, point_id: str) -> None:
        """Delete a point, or a part of one, and let a guest run again whose memory was just saved for it.

        Other points and the guest keep their content. Do nothing if there is none.
        """


class Clones(Protocol):
    """Layers for clones: disks as they were, which never change again. The machine reports `traits.CLONES`.

    A clone is spawned with `SpawnSpec.clone_of`, after `freeze`.
    """

    @abc.abstractmethod
    def freeze(self, instance_uuid: str, clone_uuid: str) -> None:
        """Make the disk's content the layer of the clone. The guest continues, with a disk on top of the layer.

        Do nothing if there is such a layer. File systems are frozen for an instant if the agent answers.
        """

    @abc.abstractmethod
    def settle(self, instance_uuid: str, clone_uuid: str) -> None:
        """End a `freeze` that was interrupted. The guest has its disk, with all data, and perhaps a layer below it."""

    @abc.abstractmethod
    def remove_unused(self) -> list[str]:
        """Remove layers on which no disk lies, unless they are new. Return the uuids of their clones."""


class Volumes(Protocol):
    """Volumes of guests, running or not."""

    @abc.abstractmethod
    def attach(self, instance_uuid: str, device: BlockDevice, path: VolumeSource) -> None:
        """Attach the raw file ``path`` as this disk, now and for the next start. Do nothing if it is attached already.

        On failure it is not attached. Raises `DomainNotFound`. Guests of any host open a device with ``multiattach`` at
        the same time, so none of them may cache it. The machine of such a driver reports `traits.MULTIATTACH`.
        """

    @abc.abstractmethod
    def detach(self, instance_uuid: str, volume_id: str, timeout: float) -> None:
        """Detach the volume, now and for the next start. Do nothing if it is not attached.

        A running guest has ``timeout`` seconds to release it. Raises `DeviceDetachFailed` or `DomainNotFound`.
        """

    @abc.abstractmethod
    def extend(self, instance_uuid: str, volume_id: str, size: int) -> None:
        """Notify a running guest that the volume's file has ``size`` bytes now. Do nothing if it is not attached."""


class VolumeCopies(Protocol):
    """Copies of the content of volumes in use.

    ``check`` is called often and may cancel the copy by raising. Then nothing of the copy continues.
    """

    @abc.abstractmethod
    def copy(self, instance_uuid: str, copies: Mapping[str, tuple[str, str]], check: Callable[[], None]) -> None:
        """Copy volumes at one consistent moment. A guest that is off, or lacks a volume, does not write to it any more.

        ``copies``: by volume id, the raw file to read, and the file to write, which has the same size. Raises
        `DomainNotFound`.
        """

    @abc.abstractmethod
    def held(self, instance_uuid: str, volume_ids: Sequence[str]) -> contextlib.AbstractContextManager[None]:
        """Return a context in which the guest does not write to these volumes.

        Its file systems are frozen if its agent answers. With several volumes it is paused, so that all of them have
        the content of one moment. Raises `DomainNotFound`.
        """

    @abc.abstractmethod
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
        """Replace the volume ``old`` of a running guest by ``new_id``, with all its content.

        ``path`` is the raw file of the new volume, of ``size`` bytes, at least the old size. ``copied`` is called when
        both have the same content and stay synchronized; then the guest switches. Do nothing if it has the new volume
        already. On failure it keeps the old one. After ``copied`` both stay synchronized until `end_swap`.
        """

    @abc.abstractmethod
    def end_swap(self, instance_uuid: str, old_id: str, new_id: str, size: int) -> bool:
        """End a swap. Return whether the guest has the new volume. If not, the new file may be smaller than ``size``
        bytes."""


class VolumeFiles(Protocol):
    """Files of a volume that Cinder has in files on top of each other.

    All methods raise `DomainNotFound`, and `VirtDriverError` if the volume is not in such files. The guest may be off.
    """

    @abc.abstractmethod
    def names(self, instance_uuid: str, volume_id: str) -> list[str]:
        """Return the plain names of the volume's files, that in use first."""

    @abc.abstractmethod
    def snapshot(self, instance_uuid: str, volume_id: str, new_file: str) -> None:
        """Let the guest use the file ``new_file``, which Cinder has made on top of the present one.

        Do nothing if the guest has it already. Its file systems are frozen for an instant if its agent answers. On
        failure the guest keeps its file.
        """

    @abc.abstractmethod
    def merge(self, instance_uuid: str, volume_id: str, request: FileMerge, check: Callable[[], None]) -> None:
        """Merge two files. Do nothing if that has happened. ``check`` is called often, and may end it by raising.

        Then nothing of the merge continues, and the guest has all its data.
        """

    @abc.abstractmethod
    def end_merge(self, instance_uuid: str, volume_id: str) -> None:
        """End a merge that an earlier run of the daemon has left, if any."""


class Interfaces(Protocol):
    """Interfaces of guests, running or not.

    The methods do nothing if the guest is in the requested state already. They raise `DomainNotFound`.
    """

    @abc.abstractmethod
    def attach(self, instance_uuid: str, vif: VIF) -> None:
        """Attach the plugged interface ``vif``."""

    @abc.abstractmethod
    def detach(self, instance_uuid: str, vif: VIF) -> None:
        """Detach the interface, and remove everything that `Networks.plug` has created for it.

        Raises `VirtDriverError` if the guest does not release it; then the guest keeps it.
        """


class Filters(Protocol):
    """Filters of traffic by security groups.

    A plugged interface accepts only replies to its guest until `apply`. Filters stay valid until they are
    replaced.
    """

    @abc.abstractmethod
    def instances(self) -> list[str]:
        """Return the uuids of instances with filtered interfaces here, or with interfaces on a network that spans
        hosts."""

    @abc.abstractmethod
    def are_missing(self) -> bool:
        """Check whether filters or tunnel peers of any of these instances are still missing. Cheap."""

    @abc.abstractmethod
    def apply(self, filters: PortFilters) -> None:
        """Replace all filters, also of running guests, immediately."""

    @abc.abstractmethod
    def withdraw_addresses(self, instance_uuids: Collection[str]) -> None:
        """Remove the floating addresses of these instances until `apply`, because another host may get them."""

    @abc.abstractmethod
    def keep_addresses(self, instance_uuids: Collection[str], seconds: int | None) -> None:
        """Keep the floating addresses of these instances for some seconds; then the host gives them up, also without
        this daemon. None: keep them permanently. Raises `VirtDriverError`."""


class Probes(Protocol):
    """Probes of the way of a packet."""

    @abc.abstractmethod
    def run(self, probe: PacketProbe) -> list[PacketSighting]:
        """Look for the packet of a probe for some seconds, and send it if its port is here. Return where it was seen.

        Raises `InvalidInput` for values that no packet of the port has, and `Conflict` while another probe runs.
        """


class Images(Protocol):
    """An image cache on the host."""

    @abc.abstractmethod
    def cache(self, image: Image) -> None:
        """Fetch an image, so that the next guest built from it does not wait.

        Raises what `Guests.spawn` raises for an image.
        """

    def remove_unused(self, minimum_age: float) -> list[str]:
        """Remove images that were neither used nor requested for ``minimum_age`` seconds. Return their ids.

        An image whose use is uncertain stays. A driver that keeps all images returns [].
        """
        return []
