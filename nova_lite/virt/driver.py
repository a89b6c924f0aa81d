"""The interface between compute and a hypervisor.

`ComputeDriver` is what every driver has to do. What some drivers can do besides is a protocol of its own
(`ConsoleOutput`, ...): a driver that cannot, simply lacks the method, and the manager answers 501.

Rules for every driver:

- Methods are called with the instance's lock held (one at a time per instance), from any thread.
- They are idempotent: asked for what already is, they return quietly; destroying what is not there is fine.
- They touch only domains that carry our metadata (this host's name, uuid, generation).
- They block; they never call other services. They raise `nova_lite.base.exceptions.VirtDriverError` children.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec
from oslo_config import cfg

from nova_lite.base import plugins
from nova_lite.objects import (
    VIF,
    BlockDevice,
    Diagnostics,
    DiskSource,
    Image,
    Instance,
    Inventory,
    LiveDestination,
    LiveSource,
    MigrationProgress,
    PortFilters,
    VolumeSource,
    Wish,
)
from nova_lite.operations.states import PowerState

NAMESPACE = "nova_lite.virt.drivers"

#: Writes an image's bytes to a file: `nova_lite.image.driver.ImageBackend.fetch`.
FetchImage = Callable[[Image, str], None]


class DomainInfo(msgspec.Struct, kw_only=True, frozen=True):
    """A domain of ours, as it is now."""

    uuid: str
    generation: int
    power_state: PowerState


class SpawnSpec(msgspec.Struct, kw_only=True):
    """All that a driver needs to make a domain.

    ``images``: by id: the root image and, AMI style, kernel and ramdisk. ``injected_files``: path to base64.
    ``volumes``: path of the file (or device) of each volume among the instance's block devices, raw, or its place in
    the network, by its id.
    ``plugged``: the guest is made paused, and runs on when this returns; it raises what the spawn fails with. None: it
    runs at once.
    ``fence``: the driver calls it right before the domain comes to exist; it raises `exception.Fenced` when this
    generation may not be built any more.
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


class ComputeDriver(abc.ABC):
    """One hypervisor. ``conf`` is oslo.config's object, ``host`` the name of the compute host it serves.

    ``fetch_image(image, path)`` writes an image's bytes, verified, to a file that it makes.
    """

    def __init__(self, conf: cfg.ConfigOpts, host: str, fetch_image: FetchImage) -> None:
        self.conf = conf
        self.host = host
        self.fetch_image = fetch_image

    @abc.abstractmethod
    def init_host(self) -> None:
        """Connect and check; raises `exception.HypervisorUnavailable` (retried) or `ConfigurationError` (fatal)."""

    @abc.abstractmethod
    def get_inventory(self) -> Inventory:
        """Totals of this hypervisor: cheap enough to be called every few seconds."""

    @abc.abstractmethod
    def list_domains(self) -> list[DomainInfo]:
        """All domains of ours on this host, running or not."""

    @abc.abstractmethod
    def get_info(self, instance_uuid: str) -> DomainInfo:
        """One domain; raises `exception.DomainNotFound`."""

    @abc.abstractmethod
    def plug_vifs(self, instance: Instance, vifs: list[VIF]) -> None:
        """Make the host side of the interfaces ready (bridge, DHCP reservation)."""

    @abc.abstractmethod
    def unplug_vifs(self, instance_uuid: str) -> None:
        """Remove all that `plug_vifs` made for the instance, whatever is left of it."""

    @abc.abstractmethod
    def spawn(self, spec: SpawnSpec) -> None:
        """Make the domain and wait until it runs. On failure nothing of it is left, except what `plug_vifs` made."""

    @abc.abstractmethod
    def destroy(self, instance_uuid: str) -> None:
        """Power off and remove the domain, its disks and files (not its interfaces)."""

    @abc.abstractmethod
    def power_on(self, instance_uuid: str) -> None:
        """Start the domain; raises `exception.InstancePowerOnFailure` or `DomainNotFound`."""

    @abc.abstractmethod
    def power_off(self, instance_uuid: str, timeout: int) -> None:
        """Ask the guest to shut down for up to ``timeout`` seconds (0: do not ask), then cut the power."""

    @abc.abstractmethod
    def reboot(self, instance_uuid: str, reboot_type: str, timeout: int) -> None:
        """``SOFT``: ask the guest to, and fall back to HARD after ``timeout`` seconds. ``HARD``: power cycle; also
        starts a domain that is off."""

    @abc.abstractmethod
    def leftovers(self) -> set[str]:
        """Uuids of which anything (disk, file, interface) is on this host without a domain."""

    def wait_for_events(self, callback: Callable[[str], None]) -> None:
        """Call ``callback(uuid)`` whenever a domain's power state changes. Default: never; polling covers it."""
        del callback


@runtime_checkable
class Recreating(Protocol):
    """A driver that can make a domain anew of the disks that an earlier one has left."""

    def recreate(self, spec: SpawnSpec) -> None:
        """Make the domain, off, of the disks that are here at just this generation; ``spec.fence`` is called before it
        exists. There is none. Raises `exception.DomainNotFound` when the disks are not here either."""
        ...


@runtime_checkable
class Renewing(Protocol):
    """A driver that can bring a domain up to date with what it is made of."""

    def renew(self, spec: SpawnSpec) -> None:
        """Cut its power, and let it be as one that is made now of ``spec`` and of the disks that it has; it stays off.
        Raises `exception.DomainNotFound`."""
        ...


@runtime_checkable
class ConsoleOutput(Protocol):
    """A driver that keeps what guests print."""

    def get_console_output(self, instance_uuid: str, length: int | None) -> str:
        """The last ``length`` lines (None: all that is kept) of the guest's serial console."""
        ...


class ConsoleAddress(NamedTuple):
    """Where the proxy of consoles reaches one of a guest that runs, by TCP."""

    host: str
    port: int


@runtime_checkable
class VncConsole(Protocol):
    """A driver whose guests have a screen that VNC shows."""

    def get_vnc_console(self, instance_uuid: str) -> ConsoleAddress:
        """Of a guest that runs. Raises `exception.ConsoleTypeUnavailable` for one that was made without, and
        `exception.DomainNotFound`."""
        ...


@runtime_checkable
class SerialConsole(Protocol):
    """A driver whose guests have a serial port that can be reached over the network."""

    def get_serial_console(self, instance_uuid: str) -> ConsoleAddress:
        """Raises what `VncConsole.get_vnc_console` raises."""
        ...


@runtime_checkable
class Pausing(Protocol):
    """A driver that can hold a guest where it is, in memory. Each method is quiet when it is so already, and raises
    `exception.DomainNotFound`."""

    def pause(self, instance_uuid: str) -> None: ...

    def unpause(self, instance_uuid: str) -> None: ...


@runtime_checkable
class Suspending(Protocol):
    """A driver that can put a guest to disk, memory and all; the domain is off meanwhile. As quiet as `Pausing`."""

    def suspend(self, instance_uuid: str) -> None: ...

    def resume(self, instance_uuid: str) -> None:
        """Raises `exception.InstancePowerOnFailure` when it does not run again."""
        ...


@runtime_checkable
class Migrating(Protocol):
    """A driver that can hand a guest that is off to the same driver of another host."""

    def migrate_disk_and_power_off(self, instance_uuid: str, timeout: int) -> DiskSource:
        """At the source: power off as `ComputeDriver.power_off` does; domain and disks stay as they are until `destroy`
        or `power_on`. Says where the disks can be fetched from now on. Again: the same answer."""
        ...

    def finish_migration(self, spec: SpawnSpec, source: DiskSource, power_on: bool) -> None:
        """At the destination: fetch the disks (resumable, verified), let them grow to the flavor of ``spec``, call
        ``spec.fence``, make the domain and, if ``power_on``, wait until it runs.

        On failure nothing of it is left, except what `plug_vifs` made.
        """
        ...

    def set_aside(self, instance_uuid: str, timeout: int) -> DiskSource:
        """Where source and destination are one host: `migrate_disk_and_power_off`, and domain and disks are out of the
        way, so that the same instance can be made here at a later generation. `destroy` leaves them alone; without a
        domain they are among `leftovers`. Again: the same answer."""
        ...

    def take_back(self, instance_uuid: str) -> None:
        """What was set aside is the instance again, off; nothing else of the instance is here. Quiet if nothing was."""
        ...

    def forget_aside(self, instance_uuid: str) -> None:
        """Remove what was set aside; quiet if nothing was."""
        ...


@runtime_checkable
class LiveMigrating(Protocol):
    """A driver that can hand a guest that runs to the same driver of another host."""

    def check_can_live_migrate_source(self, instance_uuid: str) -> LiveSource:
        """At the source: what the destination has to make ready; raises `exception.MigrationPreCheckError`."""
        ...

    def pre_live_migration(self, spec: SpawnSpec, source: LiveSource) -> LiveDestination:
        """At the destination: have room and files for the guest, call ``spec.fence``. The interfaces are plugged. On
        failure nothing of it is left, except what `plug_vifs` made. `ComputeDriver.destroy` takes it back."""
        ...

    def live_migration(
        self, instance_uuid: str, destination: LiveDestination, watch: Callable[[MigrationProgress], Wish]
    ) -> None:
        """At the source: move the guest; on return it is there, and no more here. It is ended when that takes too long
        or ``watch``, asked once a second, says so. On failure it goes on running here."""
        ...

    def settle_live_migration(self, instance_uuid: str, destination: LiveDestination) -> bool:
        """At the source: end a migration that a daemon before this one has left going on. True: the guest has moved;
        False: it is here. Raises what there is to raise as long as that cannot be told."""
        ...

    def has_arrived(self, instance_uuid: str) -> bool:
        """At the destination, whose source is lost: whether the domain that is here is the whole guest. Raises
        `exception.MigrationFailed` as long as it still counts as coming."""
        ...

    def take_over_paused(self, instance_uuid: str) -> None:
        """At the destination: the guest has come, and is to stay paused. Whatever runs only with the guest is done now.
        Repeating it is harmless, also when that was cut off with the guest running."""
        ...


@runtime_checkable
class Snapshots(Protocol):
    """A driver that can make an image of a guest's disk."""

    def snapshot(self, instance_uuid: str, target: str, check: Callable[[], None]) -> None:
        """Write the root disk, as it is now, to ``target``, a new file: qcow2 that refers to no other one. A guest that
        runs goes on; its file systems are frozen for an instant if an agent in it answers.

        ``check`` is called every second or so, and ends it by raising; then nothing of it goes on.
        """
        ...


@runtime_checkable
class Rescuing(Protocol):
    """A driver that can boot a guest from another image, its own disks beside that. A guest that is rescued is back at
    its own disk as soon as it is started or rebooted, for a server that is rescued is asked for neither."""

    def rescue(self, spec: SpawnSpec, timeout: int) -> None:
        """Turn it off, asking it for up to ``timeout`` seconds, and boot from ``spec.image``. On failure it is off, and
        what it was before. Raises `exception.DomainNotFound`."""
        ...

    def unrescue(self, instance_uuid: str) -> None:
        """Be what it was before, and run; nothing is left of the rescue."""
        ...


@runtime_checkable
class SettingPasswords(Protocol):
    """A driver that can have an agent in the guest set a password."""

    def set_admin_password(self, instance_uuid: str, user: str, password: str) -> None:
        """Raises `exception.GuestAgentUnresponsive`, or `VirtDriverError` with what the agent said."""
        ...


@runtime_checkable
class CrashDumps(Protocol):
    """A driver that can send a guest what makes its system write a crash dump (NMI)."""

    def trigger_crash_dump(self, instance_uuid: str) -> None:
        """Raises `exception.VirtDriverError` also when the guest is off."""
        ...


@runtime_checkable
class InstanceDiagnostics(Protocol):
    """A driver that can tell what a running guest does."""

    def get_instance_diagnostics(self, instance_uuid: str) -> Diagnostics:
        """Counters of the guest, which runs; raises `exception.DomainNotFound`."""
        ...


@runtime_checkable
class VolumeAttaching(Protocol):
    """A driver whose guests' disks come and go, while they run or are off. A domain that is made of a `SpawnSpec` has
    all of its volumes."""

    def attach_volume(self, instance_uuid: str, device: BlockDevice, path: VolumeSource) -> None:
        """The guest has the raw file ``path`` as this disk, now and at its next start; quiet if it has it already. On
        failure it does not have it. Raises `exception.DomainNotFound`."""
        ...

    def detach_volume(self, instance_uuid: str, volume_id: str, timeout: float) -> None:
        """It does not have it any more, now or at its next start: a guest that runs has ``timeout`` seconds to release
        it. Quiet if it does not have it. Raises `exception.DeviceDetachFailed`, `DomainNotFound`."""
        ...

    def extend_volume(self, instance_uuid: str, volume_id: str, size: int) -> None:
        """Its file has ``size`` bytes from now on: a guest that runs is told. Quiet if it does not have it."""
        ...


@runtime_checkable
class VolumeCopying(Protocol):
    """A driver that can copy what a guest's volumes hold while it runs. ``check`` is called often, and may end it by
    raising; then nothing of the copy goes on."""

    def copy_volumes(
        self, instance_uuid: str, copies: Mapping[str, tuple[str, str]], check: Callable[[], None]
    ) -> None:
        """All at one moment. ``copies``: by the volumes' ids, the raw file of each and the one to write, which is as
        big. A guest that is off, or does not have one of them, writes to it no more. Raises
        `exception.DomainNotFound`."""
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
        """Have the guest, which runs, go on with the volume ``new_id`` (the raw file ``path``, of ``size`` bytes, which
        are not less) in place of ``old``, with all that this holds. ``copied`` is called when both hold the same, and
        do so from then on, and the guest changes to the new one next. Quiet if it has that already. On failure it has
        the old one; after ``copied`` both go on to hold the same until `end_swap`."""
        ...

    def end_swap(self, instance_uuid: str, old_id: str, new_id: str, size: int) -> bool:
        """Nothing is copied any more; whether the guest has the new volume in place of the old one. If not, its file
        may be smaller than ``size`` bytes."""
        ...


@runtime_checkable
class AttachingInterfaces(Protocol):
    """A driver that can give a guest an interface and take one away, whether it runs or not. Each is quiet when it is
    so already, and raises `exception.DomainNotFound`."""

    def attach_interface(self, instance_uuid: str, vif: VIF) -> None:
        """``vif`` is plugged."""
        ...

    def detach_interface(self, instance_uuid: str, vif: VIF) -> None:
        """Raises `exception.VirtDriverError` if the guest does not let it go; it has it then. Else nothing that
        `ComputeDriver.plug_vifs` made for it is left either."""
        ...


@runtime_checkable
class PortFiltering(Protocol):
    """A driver that filters by security groups. An interface that is plugged is shut, but for answers to its guest,
    until it was told what that is in; what was told holds until something else is."""

    def filtered_instances(self) -> list[str]:
        """Uuids of those whose interfaces are filtered here, or are on a network that spans hosts."""
        ...

    def lacks_port_filters(self) -> bool:
        """Whether of some of them, or of a network of theirs that spans hosts, nothing was told yet; cheap."""
        ...

    def set_port_filters(self, filters: PortFilters) -> None:
        """``filters``: of all of them, in place of what was told before. At once, on guests that run."""
        ...


@runtime_checkable
class ImageCaching(Protocol):
    """A driver that keeps images on its host."""

    def cache_image(self, image: Image) -> None:
        """Have the image here, so that the next guest made of it does not wait. Raises what `spawn` raises for it."""
        ...


@runtime_checkable
class ImageAgeing(Protocol):
    """A driver whose cache of images can be made smaller."""

    def age_images(self, minimum_age: float) -> list[str]:
        """Remove images that nothing uses and nobody has asked for in so many seconds; returns their ids. Whatever of
        it cannot be told for sure stays."""
        ...


def load_compute_driver(conf: cfg.ConfigOpts, host: str, fetch_image: FetchImage) -> ComputeDriver:
    """The driver named by ``[DEFAULT] compute_driver``; a wrong or missing name raises `ConfigurationError`."""
    (driver,) = plugins.load(NAMESPACE, [conf.compute_driver], "[DEFAULT] compute_driver")
    loaded: ComputeDriver = driver(conf, host, fetch_image)
    return loaded


def instances_path(conf: cfg.ConfigOpts) -> str:
    """Where disks and state of this host's instances live: ``<state_path>/instances`` unless configured."""
    return conf.instances_path or os.path.join(conf.state_path, "instances")


def snapshots_path(conf: cfg.ConfigOpts, host: str) -> str:
    """Where this host makes image files."""
    return os.path.join(instances_path(conf), "_snapshots", os.path.basename(host))


def last_lines(text: str, length: int | None) -> str:
    """The last ``length`` lines, without the newline that ends them: who splits them at newlines gets as many.

    None: all of the text, as it is.
    """
    if length is None:
        return text
    return "\n".join(text.removesuffix("\n").split("\n")[-length:]) if length > 0 else ""
