"""The libvirt driver: guests under KVM, or emulated where KVM does not work.

Domains are persistent, so that a stopped one can be started again. What belongs to an instance: its domain, its
directory (`records`), and on each of its networks a DHCP reservation (`networks`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator

from oslo_config import cfg

from nova_lite import exception
from nova_lite.objects import VIF, Diagnostics, Image, Instance, Inventory
from nova_lite.states import PowerState
from nova_lite.virt import images
from nova_lite.virt.driver import ComputeDriver, DomainInfo, FetchImage, SpawnSpec, instances_path
from nova_lite.virt.libvirt import console, diagnostics, guestxml, inventory, kvm, monitor
from nova_lite.virt.libvirt.connection import Connection, LibvirtFailure
from nova_lite.virt.libvirt.disks import CONFIG_DRIVE, DiskMaker
from nova_lite.virt.libvirt.domains import Domains
from nova_lite.virt.libvirt.events import EventRelay
from nova_lite.virt.libvirt.imagecache import ImageCache
from nova_lite.virt.libvirt.networks import Networks
from nova_lite.virt.libvirt.records import Records

LOG = logging.getLogger(__name__)

SOFT = "SOFT"


class LibvirtDriver(ComputeDriver):
    def __init__(self, conf: cfg.ConfigOpts, host: str, fetch_image: FetchImage) -> None:
        super().__init__(conf, host, fetch_image)
        self._records = Records(instances_path(conf), host)
        self._events = EventRelay(self._records.owns)
        self._connection = Connection(conf.libvirt.connection_uri, host, self._events.register)
        self._domains = Domains(self._connection, host)
        self._networks = Networks(self._connection)
        qemu_img = images.QemuImg(conf)
        self._cache = ImageCache(self._records.base_path, qemu_img, fetch_image)
        self._disks = DiskMaker(self._cache, qemu_img, conf.force_config_drive)
        self._virt_type = conf.libvirt.virt_type
        self._capabilities: str | None = None
        self._monitor = monitor.CpuMonitor(self._connection) if monitor.NAME in conf.compute_monitors else None

    # --- the host

    def init_host(self) -> None:
        try:
            self._records.prepare()
        except OSError as error:
            raise exception.ConfigurationError(
                reason=f"Instances cannot be kept in {self._records.instances_path}: {error}"
            ) from error
        _warn_of_closed_directories(self._records.instances_path)
        if self.conf.libvirt.virt_type == "auto":
            answer = os.path.join(self.conf.state_path, "kvm-probe.json")
            self._virt_type = kvm.choose_virt_type(answer, self.conf.libvirt.kvm_probe_timeout)
        try:
            self._connection.connect_call("getDomainCapabilities", None, "x86_64", "pc", self._virt_type, 0)
        except LibvirtFailure as error:
            raise exception.ConfigurationError(
                reason=f"libvirt cannot run {self._virt_type} guests on host {self.host}: {error.kwargs['reason']}"
            ) from error
        LOG.info("Guests on host %s are of type %s", self.host, self._virt_type)

    def get_inventory(self) -> Inventory:
        running = sum(info.power_state == PowerState.RUNNING for info in self._domains.all())
        return inventory.build(
            node=self.host,
            host_ip=self.conf.my_ip,
            instances_path=self._records.instances_path,
            virt_type=self._virt_type,
            version=self._connection.connect_call("getVersion"),
            cpu_info=inventory.parse_cpu(self._host_capabilities()),
            running=running,
            metrics={} if self._monitor is None else self._monitor.metrics(),
        )

    def _host_capabilities(self) -> str:
        """libvirt's description of this host; asked once, because it may ask qemu for it."""
        if self._capabilities is None:
            self._capabilities = self._connection.connect_call("getCapabilities")
        return self._capabilities

    def list_domains(self) -> list[DomainInfo]:
        return self._domains.all()

    def get_info(self, instance_uuid: str) -> DomainInfo:
        return self._domains.get(instance_uuid)[1]

    def leftovers(self) -> set[str]:
        traces = self._records.uuids()
        return traces - {info.uuid for info in self._domains.all()}

    def wait_for_events(self, callback: Callable[[str], None]) -> None:
        self._events.start(callback)

    # --- interfaces

    def plug_vifs(self, instance: Instance, vifs: list[VIF]) -> None:
        if not vifs:
            return
        with _files_errors():
            self._records.write_interfaces(instance.uuid, vifs)
            for vif in vifs:
                self._networks.plug(vif, instance.hostname)

    def unplug_vifs(self, instance_uuid: str) -> None:
        with _files_errors():
            for vif in self._records.read_interfaces(instance_uuid):
                self._networks.unplug(vif)
            self._records.remove_interfaces(instance_uuid)

    # --- life and death

    def spawn(self, spec: SpawnSpec) -> None:
        if self._is_there(spec):
            return
        instance_uuid = spec.instance.uuid
        with contextlib.ExitStack() as undo, _files_errors():
            undo.callback(self._undo, "its files", self._records.remove, instance_uuid)
            directory = self._records.create(instance_uuid, spec.generation)
            disks = self._disks.make(directory, spec)
            networks = self._networks.run_by_libvirt(spec.vifs)
            xml = guestxml.guest_xml(
                spec, self.host, directory, disks, self._virt_type, self.conf.libvirt.tb_cache_mb, networks
            )
            spec.fence()
            undo.callback(self._undo, "its domain", self._domains.remove, instance_uuid)
            started = time.monotonic()
            domain = self._domains.define(xml)
            self._domains.start(domain, instance_uuid, self.conf.libvirt.spawn_timeout)
            undo.pop_all()
        kvm.explain_slow_start(instance_uuid, time.monotonic() - started, self._host_capabilities())

    def _is_there(self, spec: SpawnSpec) -> bool:
        """Whether the domain already runs at this generation. An older or half-made one is removed."""
        instance_uuid = spec.instance.uuid
        try:
            info = self.get_info(instance_uuid)
        except exception.DomainNotFound:
            if self._domains.is_foreign(instance_uuid):
                raise exception.VirtDriverError(
                    reason=f"a domain with uuid {instance_uuid} exists that is not host {self.host}'s"
                ) from None
        else:
            if info.generation > spec.generation:
                raise exception.Fenced(instance_uuid=instance_uuid, generation=info.generation)
            if info.generation == spec.generation and info.power_state == PowerState.RUNNING:
                return True
        self.destroy(instance_uuid)
        return False

    @staticmethod
    def _undo(what: str, remove: Callable[[str], None], instance_uuid: str) -> None:
        """One step back. A step that fails is left to `leftovers`, so that the first error is the one reported."""
        try:
            remove(instance_uuid)
        except (exception.VirtDriverError, OSError) as error:
            LOG.error("After the failed spawn of %s %s could not be removed: %s", instance_uuid, what, error)

    def destroy(self, instance_uuid: str) -> None:
        self._domains.remove(instance_uuid)
        with _files_errors():
            self._records.remove(instance_uuid)

    # --- power

    def power_on(self, instance_uuid: str) -> None:
        domain, _ = self._domains.get(instance_uuid)
        self._domains.start(domain, instance_uuid, self.conf.libvirt.spawn_timeout)

    def power_off(self, instance_uuid: str, timeout: int) -> None:
        domain, _ = self._domains.get(instance_uuid)
        if not self._domains.shut_down(domain, instance_uuid, timeout):
            self._domains.cut_power(domain)

    def reboot(self, instance_uuid: str, reboot_type: str, timeout: int) -> None:
        """Off and on again, so that the outcome can be seen, which libvirt's own reboot does not show. What was
        suspended starts afresh."""
        domain, _ = self._domains.get(instance_uuid)
        if self._connection.call(domain.hasManagedSaveImage, 0):
            self._connection.call(domain.managedSaveRemove, 0)
        self.power_off(instance_uuid, timeout if reboot_type == SOFT else 0)
        self.power_on(instance_uuid)

    # --- what only some drivers can

    def pause(self, instance_uuid: str) -> None:
        domain, info = self._domains.get(instance_uuid)
        if info.power_state != PowerState.PAUSED:
            self._connection.call(domain.suspend)

    def unpause(self, instance_uuid: str) -> None:
        domain, info = self._domains.get(instance_uuid)
        if info.power_state == PowerState.PAUSED:
            self._connection.call(domain.resume)

    def cache_image(self, image: Image) -> None:
        self._cache.get(image)

    def suspend(self, instance_uuid: str) -> None:
        """Its memory goes to libvirt's own file, and back at the next start."""
        domain, info = self._domains.get(instance_uuid)
        if info.power_state == PowerState.RUNNING or not self._connection.call(domain.hasManagedSaveImage, 0):
            self._connection.call(domain.managedSave, 0)

    def resume(self, instance_uuid: str) -> None:
        self.power_on(instance_uuid)

    def get_console_output(self, instance_uuid: str, length: int | None) -> str:
        self._domains.get(instance_uuid)
        path = os.path.join(self._records.directory(instance_uuid), guestxml.CONSOLE_LOG)
        with _files_errors():
            return console.tail(path, length)

    def get_instance_diagnostics(self, instance_uuid: str) -> Diagnostics:
        domain, _ = self._domains.get(instance_uuid)
        statistics = self._connection.connect_call("domainListGetStats", [domain], diagnostics.STATISTICS, 0)
        if not statistics:
            raise exception.DomainNotFound(instance_uuid=instance_uuid)
        xml = self._connection.call(domain.XMLDesc, 0)
        config_drive = os.path.exists(os.path.join(self._records.directory(instance_uuid), CONFIG_DRIVE))
        return diagnostics.diagnostics(statistics[0][1], xml, self._virt_type, config_drive)


@contextlib.contextmanager
def _files_errors() -> Iterator[None]:
    """A full disk or a missing right, as a driver's error."""
    try:
        yield
    except OSError as error:
        raise exception.VirtDriverError(reason=str(error)) from error


def _warn_of_closed_directories(path: str) -> None:
    """qemu runs as a user of its own, who has to be able to enter every directory above the disks."""
    while path != os.path.dirname(path):
        if not os.stat(path).st_mode & 0o001:
            LOG.warning("%s is closed to other users: guests' disks below it may be out of qemu's reach", path)
        path = os.path.dirname(path)
