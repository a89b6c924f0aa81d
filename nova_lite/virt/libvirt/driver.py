"""The libvirt driver: guests under KVM, or emulated where KVM does not work.

Domains are persistent, so that a stopped guest can be started again. An instance consists of its domain, its directory
(`records`), and a DHCP reservation on each of its networks (`networks`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import libvirt
import msgspec
from oslo_config import cfg

from nova_lite import hardware
from nova_lite.base import cpu_sets, disk_room, exceptions, files, machine_networks
from nova_lite.base.timing import TIMING, LibvirtTiming
from nova_lite.hardware import traits
from nova_lite.objects import (
    VIF,
    BlockDevice,
    Diagnostics,
    DiskSource,
    EncryptedDisk,
    FileMerge,
    GuestDevices,
    HostProblem,
    HostRouter,
    Image,
    IncidentKind,
    Instance,
    Inventory,
    LiveDestination,
    LiveSource,
    MigrationControl,
    MigrationProgress,
    NUMACell,
    PortFilters,
    StorageView,
    VolumeSource,
)
from nova_lite.operations.states import PowerState
from nova_lite.virt import host_counters, host_health, images, topology
from nova_lite.virt.configdrive import ConfigDrives
from nova_lite.virt.driver import (
    BackupRequest,
    ComputeDriver,
    ConsoleAddress,
    DomainInfo,
    ExportVolume,
    FetchImage,
    GuestStatistics,
    HostCounters,
    SpawnSpec,
    instances_path,
    snapshots_path,
)
from nova_lite.virt.libvirt.connection import Connection, LibvirtFailure
from nova_lite.virt.libvirt.disks import disk_locks, disk_usage, rbd_watchers, transfer
from nova_lite.virt.libvirt.disks.disk_server import DiskServer
from nova_lite.virt.libvirt.disks.disks import CONFIG_DRIVE, ROOT, DiskMaker, DiskSet
from nova_lite.virt.libvirt.disks.freezes import Freezer
from nova_lite.virt.libvirt.disks.image_cache import ImageCache
from nova_lite.virt.libvirt.disks.incremental import DiskBackups
from nova_lite.virt.libvirt.disks.left_disks import LeftDisksFinder
from nova_lite.virt.libvirt.disks.marks import Marks
from nova_lite.virt.libvirt.disks.moved_disks import MovedDisks
from nova_lite.virt.libvirt.disks.secrets import VolumeSecrets
from nova_lite.virt.libvirt.disks.snapshots import Snapshotter
from nova_lite.virt.libvirt.disks.volume_copies import VolumeCopies
from nova_lite.virt.libvirt.disks.volume_files import VolumeFiles
from nova_lite.virt.libvirt.disks.volumes import VolumeDevices, disks_of, encrypted_in
from nova_lite.virt.libvirt.domain import console_log, diagnostics, guest_devices, guest_xml, live_migration
from nova_lite.virt.libvirt.domain.consoles import Consoles
from nova_lite.virt.libvirt.domain.domains import Domains
from nova_lite.virt.libvirt.domain.events import EventRelay
from nova_lite.virt.libvirt.domain.rescue import RescueBoot
from nova_lite.virt.libvirt.domain.statistics import AllStatistics
from nova_lite.virt.libvirt.host import cpu_model, cpu_monitor, host_topology, host_traits, inventory, kvm
from nova_lite.virt.libvirt.net.anti_spoofing import AntiSpoofing
from nova_lite.virt.libvirt.net.guest_interfaces import GuestInterfaces
from nova_lite.virt.libvirt.net.interfaces import InterfaceDevices
from nova_lite.virt.libvirt.net.migration_peers import MigrationPeers, own_address
from nova_lite.virt.libvirt.net.networks import HostNetworks
from nova_lite.virt.libvirt.net.routers import HostRouters
from nova_lite.virt.libvirt.net.security_groups import PortFirewall
from nova_lite.virt.libvirt.net.tunnels import Tunnels
from nova_lite.virt.libvirt.records import Records

LOG = logging.getLogger(__name__)

SOFT = "SOFT"

#: File in the directory of a guest that is set aside: its domain.
DEFINITION = "domain.xml"

_NO_AGENT = (libvirt.VIR_ERR_AGENT_UNRESPONSIVE, libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED)


class LibvirtDriver(ComputeDriver):
    def __init__(
        self, conf: cfg.ConfigOpts, host: str, fetch_image: FetchImage, timing: LibvirtTiming = TIMING.libvirt
    ) -> None:
        super().__init__(conf, host, fetch_image)
        self._timing = timing
        self._records = Records(instances_path(conf), host)
        self._health = host_health.HostChecks(conf, instances_path(conf))
        self._events = EventRelay(self._records.owns)
        uri = conf.libvirt.connection_uri
        self._connection = Connection(uri, host, None, timing)
        # Events and the inventory have a connection of their own, which does not wait for other calls.
        self._reports = Connection(uri, host, self._events.register, timing, queries_only=True)
        self._domains = Domains(self._connection, host, timing)
        reported = Domains(self._reports, host, timing)
        self._running = inventory.RunningCount(reported.all, timing)
        self._statistics = AllStatistics(self._reports, reported)
        self._networks = HostNetworks(conf, self._connection, host)
        self._interfaces = InterfaceDevices(self._connection, conf.libvirt.device_detach_timeout)
        self._port_firewall = PortFirewall(conf, host, self._records.instances_path)
        self._anti_spoofing = AntiSpoofing(host)
        self._guest_interfaces = GuestInterfaces(
            self._records, self._networks, self._anti_spoofing, self._port_firewall
        )
        self._tunnels = Tunnels(conf, host, self._records.instances_path)
        self._migration_peers = MigrationPeers(conf, host, self._records)
        self._routers = HostRouters(self._networks, host, self._records.instances_path)
        self._consoles = Consoles(conf, self._connection, timing)
        qemu_img, room = images.QemuImg(conf), disk_room.of_host(conf)
        self._cache = ImageCache(self._records.base_path, qemu_img, fetch_image, room)
        self._freezer = Freezer(self._connection, self._domains, self._records.instances_path, host)
        self._snapshots = Snapshotter(self._connection, self._domains, qemu_img, room, self._freezer)
        self._backups = DiskBackups(self._connection, self._domains, qemu_img, self._snapshots, room)
        self._disks = DiskMaker(self._cache, qemu_img, ConfigDrives(conf, self._networks.reach_metadata))
        self._marks = Marks(self._records.instances_path, host)
        self._left = LeftDisksFinder(self._records, self._marks)
        self._moved = MovedDisks(conf, self._disks, self._cache, qemu_img, timing)
        self._rescue = RescueBoot(self._connection, self._domains, self._records, self._disks)
        self._secrets = VolumeSecrets(self._connection, host, lambda volume_id: self.volume_key(volume_id))
        self._volumes = VolumeDevices(self._connection, self._domains, self._secrets)
        self._volume_copies = VolumeCopies(
            self._connection, self._domains, self._volumes, self._snapshots, self._secrets, room
        )
        self._volume_files = VolumeFiles(self._connection, self._domains, self._volumes, self._snapshots, qemu_img)
        self._virt_type = conf.libvirt.virt_type
        self._capabilities: str | None = None
        self._probes: kvm.ProbeWatch | None = None
        self._host_properties = guest_xml.Host(
            machine=conf.libvirt.hw_machine_type, spare_ports=conf.libvirt.num_pcie_ports
        )
        self._traits: list[str] = []
        self._cells: list[NUMACell] = []
        self._disk_server = DiskServer(conf, self._records.instances_path)
        self._monitor = cpu_monitor.CpuMonitor(self._reports) if cpu_monitor.NAME in conf.compute_monitors else None

    # --- the host

    def init_host(self) -> None:
        self._consoles.check()
        transfer.check_keys(self.conf)
        self._reports.get()  # Events arrive from now on.
        try:
            self._records.prepare()
        except OSError as error:
            raise exceptions.ConfigurationError(
                reason=f"Instances cannot be stored in {self._records.instances_path}: {error}"
            ) from error
        self._disk_server.start()
        _warn_about_inaccessible_directories(self._records.instances_path)
        if self.conf.libvirt.virt_type == "auto":
            answer = os.path.join(self.conf.state_path, "kvm-probe.json")
            self._virt_type = kvm.choose_virt_type(answer, self._timing.kvm_probe, host=self.host)
        self._find_traits()
        self._find_topology()
        LOG.info("Guests on host %s are of type %s", self.host, self._virt_type)
        with _files_errors():
            interfaces = {uuid: self._records.read_interfaces(uuid) for uuid in self._records.uuids()}
            served = self._networks.init_host([vif for vifs in interfaces.values() for vif in vifs])
            unknown = {uuid: self._domains.taps(uuid) for uuid in self._records.unreadable_interfaces()}
            self._anti_spoofing.prepare(interfaces, served, unknown)
            self._routers.prepare(bool(self._anti_spoofing.instances()))
            self._port_firewall.prepare(interfaces)
            self._tunnels.prepare(interfaces, self._routers.active)
            self._migration_peers.prepare()
        self._secrets.remove_old()
        with _files_errors():
            self._freezer.thaw_left()
        self._snapshots.end_copies(snapshots_path(self.conf, self.host))
        self._volume_copies.end_copies()
        self._backups.end_jobs()
        with _files_errors():
            self._cache.clean()

    def _find_traits(self) -> None:
        """Find out the traits of this host: CPU, firmware and devices that guests can have."""
        try:
            capabilities = [
                self._connection.connect_call(
                    "getDomainCapabilities", None, host_traits.ARCHITECTURE, machine, self._virt_type, 0
                )
                for machine in host_traits.MACHINES
            ]
        except LibvirtFailure as error:
            raise exceptions.ConfigurationError(
                reason=f"libvirt cannot run {self._virt_type} guests on host {self.host}: {error.kwargs['reason']}"
            ) from error
        model = cpu_model.choose(self.conf, self._virt_type, capabilities[0])
        found = host_traits.domain_traits(capabilities) | set(self.conf.custom_traits)
        found |= host_traits.cpu_traits(self._connection, self._virt_type, model, capabilities[0])
        self._traits = sorted(found)
        machine = self.conf.libvirt.hw_machine_type
        self._host_properties = msgspec.structs.replace(
            self._host_properties, cpu=model, machine=machine, secure_boot=traits.SECURE_BOOT in found
        )

    def get_inventory(self) -> Inventory:
        self._watch_probes()
        return inventory.build(
            node=self.host,
            host_ip=self.conf.my_ip,
            tunnel_ip=self._tunnels.address,
            networks=machine_networks.used(self.conf),
            instances_path=self._records.instances_path,
            virt_type=self._virt_type,
            version=self._reports.connect_call("getVersion"),
            cpu_info=inventory.parse_cpu(self._host_capabilities()),
            running=self._running.get(),
            metrics={} if self._monitor is None else self._monitor.metrics(),
            traits=self._traits,
            cells=self._cells,
            vcpus=len(cpu_sets.parse(self._host_properties.shared_cpus[""]))
            if topology.restricts_cpus(self.conf)
            else None,
        )

    def _watch_probes(self) -> None:
        """Detect repeated queries of libvirt to qemu, whatever call causes them."""
        if self._probes is None:
            self._probes = kvm.ProbeWatch(kvm.qemu_user(self._host_capabilities()))
        self._probes.look()

    def _find_topology(self) -> None:
        """Find out the NUMA cells, and the parts of them that are available. Pages are counted at the start."""
        machine = host_topology.parse(self._host_capabilities())
        self._cells = topology.available_cells(self.conf, machine)
        shared = topology.shared_cpus(self.conf, machine)
        self._host_properties = msgspec.structs.replace(self._host_properties, shared_cpus=shared)

    def _host_capabilities(self) -> str:
        """Return libvirt's description of this host. Queried once, because libvirt may start qemu for it."""
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

    def without_disks(self) -> set[str]:
        roots = [os.path.join(self._records.instances_path, ""), os.path.join(self.conf.volume.store_path, "")]
        return {
            uuid
            for uuid, paths in self._domains.disk_files().items()
            if any(path.startswith(tuple(roots)) and _is_missing(path) for path in paths)
        }

    def wait_for_events(self, callback: Callable[[str, IncidentKind | None], None]) -> None:
        self._events.start(callback)

    # --- interfaces

    def plug_vifs(self, instance: Instance, vifs: list[VIF]) -> None:
        if not vifs:
            return
        with _files_errors():
            self._guest_interfaces.record(instance.uuid, vifs)
            networks = {vif.network.id: vif.network for vif in vifs if self._networks.plug(vif, instance.hostname)}
            rules = self._networks.rules(networks.values())

            def load(text: str) -> None:
                self._port_firewall.plug(instance.uuid, vifs, rules + text)

            self._anti_spoofing.plug(instance.uuid, vifs, networks.keys(), load)
            self._tunnels.plug(instance.uuid, vifs)
            self._routers.resume()
            self._tunnels.route(self._routers.active)

    def unplug_vifs(self, instance_uuid: str) -> None:
        with _files_errors(), self._guest_interfaces.lock(instance_uuid):
            self._anti_spoofing.unplug(instance_uuid, lambda text: self._port_firewall.unplug(instance_uuid, text))
            self._tunnels.unplug(instance_uuid)
            if not self._anti_spoofing.instances():
                self._routers.suspend()
                self._tunnels.route([])
            for vif in self._records.read_interfaces(instance_uuid):
                self._networks.unplug(vif)
            self._records.remove_interfaces(instance_uuid)

    def attach_interface(self, instance_uuid: str, vif: VIF) -> None:
        domain, _ = self._domains.get(instance_uuid)
        self._interfaces.attach(domain, vif, bool(self._networks.run_by_libvirt([vif])))

    def detach_interface(self, instance_uuid: str, vif: VIF) -> None:
        domain, _ = self._domains.get(instance_uuid)
        self._interfaces.detach(domain, vif, bool(self._networks.run_by_libvirt([vif])))
        with _files_errors(), self._guest_interfaces.lock(instance_uuid):
            rest = [other for other in self._records.read_interfaces(instance_uuid) if other.id != vif.id]
            self._networks.unplug(vif)
            served = self._networks.run_by_libvirt(rest)

            def load(text: str) -> None:
                self._port_firewall.plug(instance_uuid, rest, text)

            self._anti_spoofing.plug(instance_uuid, rest, served, load)
            self._tunnels.plug(instance_uuid, rest)
            self._records.write_interfaces(instance_uuid, rest)

    def filtered_instances(self) -> list[str]:
        return sorted({*self._anti_spoofing.instances(), *self._tunnels.begin_query()})

    def lacks_port_filters(self) -> bool:
        return self._port_firewall.lacks_filters() or self._tunnels.lacks_peers()

    def set_port_filters(self, filters: PortFilters) -> None:
        with _files_errors():
            self._anti_spoofing.restore()
            self._guest_interfaces.update(filters)
            self._routers.set(filters.routers)
            # Neighbours change with every guest, and do not matter to the filters.
            paired = self._port_firewall.paired_networks()
            bare = [_without_neighbours(router, paired) for router in self._routers.active]
            told = msgspec.structs.replace(filters, peers=None, routers=bare)
            self._port_firewall.set(msgspec.structs.replace(told, networks=None, pairs=None, unfiltered=None))
            self._tunnels.route(self._routers.active)
            self._tunnels.set(filters.peers)

    # --- create and remove

    def spawn(self, spec: SpawnSpec) -> None:
        if self._is_running(spec):
            return
        instance_uuid = spec.instance.uuid
        self._check_traits(_hardware(spec))
        with contextlib.ExitStack() as undo, _files_errors():
            undo.callback(self._undo, "its files", self._records.remove, instance_uuid)
            xml = self._xml(spec, *self._make_or_take(spec))
            spec.fence()
            undo.callback(self._undo, "its domain", self._domains.remove, instance_uuid)
            started = time.monotonic()
            domain = self._domains.define(xml)
            self._name_devices(spec)
            self._start(domain, instance_uuid, spec.plugged is not None, spec.still_wanted)
            if spec.plugged is not None:
                spec.plugged()
                self._domains.resume(domain)
            undo.pop_all()
        kvm.explain_slow_start(instance_uuid, time.monotonic() - started, self._host_capabilities())

    def _name_devices(self, spec: SpawnSpec) -> None:
        """Report the addresses of devices that metadata name, and make the config drive again with them.

        The domain has them now, and the guest has not read its metadata yet.
        """
        path = os.path.join(self._records.directory(spec.instance.uuid), CONFIG_DRIVE)
        is_named = any(vif.tag or vif.vif_details.get("vlan") for vif in spec.vifs)
        if not is_named and not any(device.tag for device in spec.instance.block_devices):
            return
        devices = self.guest_devices(spec.instance.uuid)
        if spec.disks is None and os.path.exists(path):
            instance = msgspec.structs.replace(spec.instance, guest_devices=devices)
            self._disks.config_drives.make(path, msgspec.structs.replace(spec, instance=instance))
        spec.placed(devices)

    def guest_devices(self, instance_uuid: str) -> GuestDevices:
        domain, _ = self._domains.get(instance_uuid)
        return guest_devices.describe(self._connection.call(domain.XMLDesc, 0))

    def _make_or_take(self, spec: SpawnSpec) -> tuple[str, DiskSet]:
        """Return the directory and the disks of a new guest: disks that another host has left, or new disks."""
        uuid = spec.instance.uuid
        if spec.disks is not None:
            directory = self._left.take(uuid, spec.generation, list(spec.images), spec.disks)
            if directory is not None:
                disk_locks.wait_until_free(uuid, directory, spec.still_wanted, self._timing)
                return directory, self._moved.adopt(directory, spec, None, is_taken=True)
        directory = self._records.create(uuid, spec.generation, list(spec.images), beside=spec.disks is not None)
        return directory, self._disks.make(directory, spec)

    def _check_traits(self, requested: hardware.Hardware) -> None:
        """Raise `VirtDriverError` for missing traits.

        The scheduler may have had outdated traits. An operator may have chosen the host without the scheduler.
        """
        if missing := traits.missing(requested.traits, self._traits):
            raise exceptions.VirtDriverError(reason=f"host {self.host} lacks requested traits: {', '.join(missing)}")

    def _xml(self, spec: SpawnSpec, directory: str, disks: DiskSet) -> str:
        networks = self._networks.run_by_libvirt(spec.vifs)
        cache = self.conf.libvirt.tb_cache_mb
        listeners = self._consoles.listeners()
        return guest_xml.guest_xml(
            spec,
            self.host,
            directory,
            disks,
            self._virt_type,
            cache,
            networks,
            listeners,
            hardware=_hardware(spec),
            given=self._host_properties,
        )

    def _start(
        self, domain: Any, instance_uuid: str, paused: bool = False, check: Callable[[], None] = lambda: None
    ) -> None:
        encrypted: list[str] = []
        if not self._connection.call(domain.isActive):
            # Its disks change from now on, so no other host may fetch them any more.
            directory = self._records.directory(instance_uuid)
            transfer.withdraw(directory)
            disk_locks.require_free(instance_uuid, directory)
            xml = self._domains.description(domain)
            rbd_watchers.wait_until_free(instance_uuid, disks_of(xml), check, self._timing)
            self._consoles.ensure_free_port(domain, xml)
            encrypted = encrypted_in(xml)
        with self._secrets.loaded(encrypted):
            self._domains.start(domain, instance_uuid, self._timing.start_wait, paused)

    def _is_running(self, spec: SpawnSpec) -> bool:
        """Check whether the domain already runs at this generation. Remove an older or incomplete domain."""
        instance_uuid = spec.instance.uuid
        try:
            info = self.get_info(instance_uuid)
        except exceptions.DomainNotFound:
            if self._domains.is_foreign(instance_uuid):
                raise exceptions.VirtDriverError(
                    reason=f"a domain with uuid {instance_uuid} exists that is not host {self.host}'s"
                ) from None
        else:
            if info.generation > spec.generation:
                raise exceptions.Fenced(instance_uuid=instance_uuid, generation=info.generation)
            if info.generation == spec.generation and info.power_state == PowerState.RUNNING:
                return True
        self.destroy(instance_uuid)
        return False

    @staticmethod
    def _undo(what: str, remove: Callable[[str], None], instance_uuid: str) -> None:
        """Undo one step. A failing step is left to `leftovers`, so that the first error is reported."""
        try:
            remove(instance_uuid)
        except (exceptions.VirtDriverError, OSError) as error:
            LOG.error("After the failed spawn of %s %s could not be removed: %s", instance_uuid, what, error)

    def destroy(self, instance_uuid: str) -> None:
        self._domains.remove(instance_uuid)
        with _files_errors():
            self._records.remove(instance_uuid)
        self._migration_peers.close(instance_uuid)
        self._secrets.forget_incoming(instance_uuid)

    # --- disks that hosts share

    def view_storage(self) -> StorageView:
        with _files_errors():
            return self._marks.look()

    def own_disks(self, instance_uuid: str) -> None:
        with _files_errors():
            self._records.own(instance_uuid)

    def taken_disks(self) -> set[str]:
        with _files_errors():
            return self._records.has_taken()

    def keep_disks(self, instance_uuid: str) -> None:
        with _files_errors():
            self._records.keep(instance_uuid)

    # --- cold migration

    def migrate_disk_and_power_off(self, instance_uuid: str, timeout: int) -> DiskSource:
        """Turn off the guest and offer the disks. Memory that was suspended to disk is lost, as with a power cut."""
        domain, _ = self._domains.get(instance_uuid)
        self.power_off(instance_uuid, timeout)
        self._drop_memory(domain)
        with _files_errors():
            return self._offer(self._records.directory(instance_uuid))

    def _offer(self, directory: str) -> DiskSource:
        return transfer.offer(self.conf, directory, images=self._records.images_in(directory))

    def set_aside(self, instance_uuid: str, timeout: int) -> DiskSource:
        """Set the guest aside. Its definition is stored with its disks before it is removed from libvirt."""
        with _files_errors():
            if self._records.aside(instance_uuid) is None:
                self._store_and_remove_domain(instance_uuid, timeout)
            return self._offer(self._records.set_aside(instance_uuid))

    def _store_and_remove_domain(self, instance_uuid: str, timeout: int) -> None:
        try:
            domain, _ = self._domains.get(instance_uuid)
        except exceptions.DomainNotFound:
            return
        self.power_off(instance_uuid, timeout)
        xml = self._connection.call(domain.XMLDesc, libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE)
        files.write_atomically(self._definition(instance_uuid), xml.encode())
        self._domains.remove(instance_uuid)

    def restore_set_aside(self, instance_uuid: str) -> None:
        with _files_errors():
            self._records.restore_set_aside(instance_uuid)
            path = self._definition(instance_uuid)
            if os.path.exists(path) and not self._domains.has(instance_uuid):
                with open(path, encoding="utf-8") as file:
                    self._domains.define(file.read())
            files.remove(path)

    def discard_set_aside(self, instance_uuid: str) -> None:
        with _files_errors():
            self._records.discard_set_aside(instance_uuid)
            self._records.discard_kept(instance_uuid)

    def _definition(self, instance_uuid: str) -> str:
        return os.path.join(self._records.directory(instance_uuid), DEFINITION)

    def finish_migration(self, spec: SpawnSpec, source: DiskSource, power_on: bool) -> None:
        """Create the guest from the source's disks. A fetch that was killed is resumed."""
        instance_uuid = spec.instance.uuid
        resumed = self._records.generation(instance_uuid) == spec.generation and not self._domains.has(instance_uuid)
        if not resumed and self._is_running(spec):
            return
        with contextlib.ExitStack() as undo, _files_errors():
            undo.callback(self._undo, "its files", self._records.remove, instance_uuid)
            if resumed:
                directory = self._records.directory(instance_uuid)
            else:
                directory = self._records.create(instance_uuid, spec.generation, list(spec.images), beside=True)
            fetcher = transfer.Fetcher(self.conf, source, instance_uuid, directory, self._timing)
            fetcher.fetch()
            xml = self._xml(spec, directory, self._moved.adopt(directory, spec, fetcher))
            spec.fence()
            undo.callback(self._undo, "its domain", self._domains.remove, instance_uuid)
            domain = self._domains.define(xml)
            if power_on:
                self._start(domain, instance_uuid)
            undo.pop_all()

    # --- live migration

    def check_can_live_migrate_source(self, instance_uuid: str) -> LiveSource:
        domain, info = self._domains.get(instance_uuid)
        if info.power_state not in (PowerState.RUNNING, PowerState.PAUSED):
            raise exceptions.MigrationPreCheckError(reason="the guest does not run")
        with _files_errors():
            found = live_migration.describe_source(
                self.conf, self._connection.call(domain.XMLDesc, 0), self._records.directory(instance_uuid)
            )
        sizes = {name: self._capacity(domain, instance_uuid, name) for name in found.disks}
        encrypts = self.conf.libvirt.live_migration_tls
        return msgspec.structs.replace(
            found, disks=sizes, address=own_address(self.conf), host=self.host, encrypts=encrypts
        )

    def _capacity(self, domain: Any, instance_uuid: str, name: str) -> int:
        """Return the capacity of one disk in bytes, as the guest sees it."""
        path = os.path.join(self._records.directory(instance_uuid), name)
        return int(self._connection.call(domain.blockInfo, path, 0)[0])

    def pre_live_migration(self, spec: SpawnSpec, source: LiveSource) -> LiveDestination:
        instance_uuid = spec.instance.uuid
        if source.driver != transfer.DRIVER:
            raise exceptions.MigrationPreCheckError(reason=f"the guest is one of driver {source.driver}")
        live_migration.check_encryption(self.conf, source, self.host)
        if self._is_running(spec):
            raise exceptions.MigrationPreCheckError(reason="it runs at the destination already")
        with contextlib.ExitStack() as undo, _files_errors():
            undo.callback(self._undo, "its files", self._records.remove, instance_uuid)
            directory = self._records.create(instance_uuid, spec.generation, list(spec.images), beside=True)
            paths, whole = self._moved.make_ready(directory, spec, source)
            below = self._moved.below(paths[ROOT]) if ROOT in paths else ()
            undo.callback(self._undo, "its access", self._migration_peers.close, instance_uuid)
            self._migration_peers.open(instance_uuid, source.address)
            undo.callback(self._undo, "its secrets", self._secrets.forget_incoming, instance_uuid)
            encrypted = [volume_id for volume_id, item in spec.volumes.items() if isinstance(item, EncryptedDisk)]
            self._secrets.load_for_incoming(instance_uuid, encrypted)
            spec.fence()
            undo.pop_all()
        listeners = self._consoles.listeners()
        return LiveDestination(
            driver=transfer.DRIVER,
            host=self.host,
            generation=spec.generation,
            address=own_address(self.conf),
            paths=paths,
            whole=whole,
            vnc_listen=listeners.vnc or "",
            serial_listen=listeners.serial.host if listeners.serial else "",
            serial_port=listeners.serial.port if listeners.serial else None,
            serial_tls=listeners.serial is not None and listeners.serial.tls,
            numa=spec.instance.numa,
            shared_cpus=self._host_properties.shared_cpus,
            below=[(file.path, file.format) for file in below],
        )

    def live_migration(
        self, instance_uuid: str, destination: LiveDestination, watch: Callable[[MigrationProgress], MigrationControl]
    ) -> None:
        domain, _ = self._domains.get(instance_uuid)
        # The destination has no checkpoints, and records no changes for them.
        self._backups.forget(domain)
        live_migration.LiveMigrator(self.conf, self._connection, instance_uuid, destination).run(domain, watch)

    def settle_live_migration(self, instance_uuid: str, destination: LiveDestination) -> bool:
        has_moved = live_migration.LiveMigrator(self.conf, self._connection, instance_uuid, destination).settle()
        if not has_moved:
            transfer.withdraw(self._records.directory(instance_uuid))
        return has_moved

    def has_arrived(self, instance_uuid: str) -> bool:
        domain, _ = self._domains.get(instance_uuid)
        return live_migration.has_arrived(self._connection.call, domain)

    def finish_live_migration(self, instance_uuid: str) -> None:
        self._migration_peers.close(instance_uuid)
        self._secrets.forget_incoming(instance_uuid)

    def take_over_paused(self, instance_uuid: str) -> None:
        domain, _ = self._domains.get(instance_uuid)
        live_migration.run_briefly(self._connection, domain)

    # --- power

    def power_on(self, instance_uuid: str) -> None:
        domain, info = self._domains.get(instance_uuid)
        if self._rescue.is_rescued(instance_uuid) and info.power_state != PowerState.RUNNING:
            with _files_errors():
                self._rescue.restore(instance_uuid)
        self._start(domain, instance_uuid)

    def power_off(self, instance_uuid: str, timeout: int) -> None:
        domain, _ = self._domains.get(instance_uuid)
        with self._events.watch(instance_uuid) as changed:
            is_off = self._domains.shut_down(domain, instance_uuid, timeout, changed)
        if not is_off:
            self._domains.cut_power(domain)

    def reboot(self, instance_uuid: str, reboot_type: str, timeout: int) -> None:
        """Turn the guest off and on. libvirt's own reboot does not show the result. A suspended guest starts afresh."""
        domain, _ = self._domains.get(instance_uuid)
        self._drop_memory(domain)
        self.power_off(instance_uuid, timeout if reboot_type == SOFT else 0)
        self.power_on(instance_uuid)

    def recreate(self, spec: SpawnSpec) -> None:
        instance_uuid = spec.instance.uuid
        if self._records.generation(instance_uuid) != spec.generation:
            raise exceptions.DomainNotFound(instance_uuid=instance_uuid)
        if self._domains.has(instance_uuid):
            raise exceptions.VirtDriverError(reason=f"a domain {instance_uuid} exists that is not host {self.host}'s")
        with _files_errors():
            directory = self._records.directory(instance_uuid)
            self._rescue.forget(instance_uuid)
            xml = self._xml(spec, directory, self._moved.adopt(directory, spec, None))
            spec.fence()
            self._domains.define(xml)

    def renew(self, spec: SpawnSpec) -> None:
        """Replace the domain's definition, which libvirt does in one step. Firmware variables stay."""
        instance_uuid = spec.instance.uuid
        domain, info = self._domains.get(instance_uuid)
        if info.generation != spec.generation or self._records.generation(instance_uuid) != spec.generation:
            raise exceptions.DomainNotFound(instance_uuid=instance_uuid)
        self._drop_memory(domain)
        self._domains.cut_power(domain)
        with _files_errors():
            directory = self._records.directory(instance_uuid)
            self._domains.define(self._xml(spec, directory, self._moved.adopt(directory, spec, None)))
            self._rescue.forget(instance_uuid)

    def _drop_memory(self, domain: Any) -> None:
        """Drop the saved memory of a suspended guest."""
        if self._connection.call(domain.hasManagedSaveImage, 0):
            self._connection.call_checked(
                lambda: not self._connection.call(domain.hasManagedSaveImage, 0), domain.managedSaveRemove, 0
            )

    # --- optional abilities

    def set_admin_password(self, instance_uuid: str, user: str, password: str) -> None:
        domain, _ = self._domains.get(instance_uuid)
        try:
            self._connection.call(domain.setUserPassword, user, password, 0)
        except LibvirtFailure as error:
            if error.error_code in _NO_AGENT:
                raise exceptions.GuestAgentUnresponsive(instance_uuid=instance_uuid) from error
            raise

    def trigger_crash_dump(self, instance_uuid: str) -> None:
        """Inject a non-maskable interrupt. The guest's reaction is its own."""
        domain, _ = self._domains.get(instance_uuid)
        self._connection.call(domain.injectNMI, 0)

    def rescue(self, spec: SpawnSpec, timeout: int) -> None:
        instance_uuid = spec.instance.uuid
        domain, _ = self._domains.get(instance_uuid)
        self._drop_memory(domain)
        self.power_off(instance_uuid, timeout)
        with _files_errors():
            self._rescue.define(spec)
            try:
                self._start(domain, instance_uuid)
            except exceptions.VirtDriverError:
                self._domains.cut_power(domain)
                self._rescue.restore(instance_uuid)
                raise

    def unrescue(self, instance_uuid: str) -> None:
        self.power_off(instance_uuid, 0)
        self.power_on(instance_uuid)

    def pause(self, instance_uuid: str) -> None:
        domain, info = self._domains.get(instance_uuid)
        if info.power_state != PowerState.PAUSED:
            self._connection.call(domain.suspend)

    def unpause(self, instance_uuid: str) -> None:
        domain, info = self._domains.get(instance_uuid)
        if info.power_state == PowerState.PAUSED:
            self._domains.resume(domain)

    def attach_volume(self, instance_uuid: str, device: BlockDevice, path: VolumeSource) -> None:
        below = self._disks.files_below(str(device.volume_id), path)

        def wait(disk: ET.Element) -> None:
            rbd_watchers.wait_until_free(instance_uuid, [disk], lambda: None, self._timing)

        self._volumes.attach(instance_uuid, device, path, wait, below)

    def detach_volume(self, instance_uuid: str, volume_id: str, timeout: float) -> None:
        self._volumes.detach(instance_uuid, volume_id, timeout)

    def extend_volume(self, instance_uuid: str, volume_id: str, size: int) -> None:
        self._volumes.extend(instance_uuid, volume_id, size)

    def copy_volumes(
        self, instance_uuid: str, copies: Mapping[str, tuple[str, str]], check: Callable[[], None]
    ) -> None:
        with _files_errors():
            self._volume_copies.copy(instance_uuid, copies, check)

    def held_volumes(self, instance_uuid: str, volume_ids: Sequence[str]) -> contextlib.AbstractContextManager[None]:
        return self._volume_copies.held(instance_uuid, volume_ids)

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
        with _files_errors():
            self._volume_copies.swap(instance_uuid, old, new_id, path, size, check, copied)

    def end_swap(self, instance_uuid: str, old_id: str, new_id: str, size: int) -> bool:
        return self._volume_copies.end_swap(instance_uuid, old_id, new_id, size)

    def volume_file_names(self, instance_uuid: str, volume_id: str) -> list[str]:
        return self._volume_files.names(instance_uuid, volume_id)

    def snapshot_volume_file(self, instance_uuid: str, volume_id: str, new_file: str) -> None:
        with _files_errors():
            self._volume_files.snapshot(instance_uuid, volume_id, new_file)

    def merge_volume_files(
        self, instance_uuid: str, volume_id: str, request: FileMerge, check: Callable[[], None]
    ) -> None:
        with _files_errors():
            self._volume_files.merge(instance_uuid, volume_id, request, check)

    def end_volume_merge(self, instance_uuid: str, volume_id: str) -> None:
        self._volume_files.end_merge(instance_uuid, volume_id)

    def cache_image(self, image: Image) -> None:
        self._cache.get(image)

    def age_networks(self, minimum_age: float) -> list[str]:
        with _files_errors():
            return self._networks.remove_idle(minimum_age)

    def age_images(self, minimum_age: float) -> list[str]:
        with _files_errors():
            return self._cache.remove_unused(minimum_age, self._used_images)

    def _used_images(self) -> set[str]:
        """Return the images in use, also by domains without a record, which start their kernels themselves."""
        used = disk_usage.used_images(self._records.instances_path)
        for info in self._domains.all():
            with contextlib.suppress(exceptions.DomainNotFound):
                domain, _ = self._domains.get(info.uuid)
                used |= guest_xml.boot_files(self._connection.call(domain.XMLDesc, libvirt.VIR_DOMAIN_XML_INACTIVE))
        return used

    def suspend(self, instance_uuid: str) -> None:
        """Save the guest's memory to libvirt's own file. The next start restores it."""
        domain, info = self._domains.get(instance_uuid)
        if info.power_state == PowerState.RUNNING or not self._connection.call(domain.hasManagedSaveImage, 0):
            self._domains.save_memory(domain)

    def resume(self, instance_uuid: str) -> None:
        self.power_on(instance_uuid)

    def snapshot(self, instance_uuid: str, target: str, check: Callable[[], None]) -> None:
        with _files_errors():
            self._snapshots.snapshot(instance_uuid, self._records.directory(instance_uuid), target, check)

    def back_up_disk(
        self,
        instance_uuid: str,
        target: str,
        request: BackupRequest,
        check: Callable[[], None],
        exported: ExportVolume,
    ) -> None:
        with _files_errors():
            directory = self._records.directory(instance_uuid)
            self._backups.back_up(instance_uuid, directory, target, request, check, exported)

    def get_console_output(self, instance_uuid: str, length: int | None) -> str:
        self._domains.get(instance_uuid)
        path = os.path.join(self._records.directory(instance_uuid), guest_xml.CONSOLE_LOG)
        with _files_errors():
            return console_log.tail(path, length)

    def get_vnc_console(self, instance_uuid: str) -> ConsoleAddress:
        domain, _ = self._domains.get(instance_uuid)
        return self._consoles.vnc(self._connection.call(domain.XMLDesc, 0))

    def get_serial_console(self, instance_uuid: str) -> ConsoleAddress:
        domain, _ = self._domains.get(instance_uuid)
        return self._consoles.serial(self._connection.call(domain.XMLDesc, 0))

    def get_instance_diagnostics(self, instance_uuid: str) -> Diagnostics:
        domain, _ = self._domains.get(instance_uuid)
        statistics = self._connection.connect_call("domainListGetStats", [domain], diagnostics.STATISTICS, 0)
        if not statistics:
            raise exceptions.DomainNotFound(instance_uuid=instance_uuid)
        xml = self._connection.call(domain.XMLDesc, 0)
        config_drive = os.path.exists(os.path.join(self._records.directory(instance_uuid), CONFIG_DRIVE))
        return diagnostics.diagnostics(statistics[0][1], xml, self._virt_type, config_drive)

    def get_all_statistics(self) -> list[GuestStatistics]:
        return self._statistics.read()

    def get_dirty_rates(self, start: bool) -> dict[str, float]:
        return self._statistics.dirty_rates(start)

    def get_host_counters(self) -> HostCounters:
        return host_counters.read(instances_path(self.conf))

    def check_health(self) -> list[HostProblem]:
        return self._health.check()


def _hardware(spec: SpawnSpec) -> hardware.Hardware:
    """Return the hardware of a guest. Unsupported requests of a server that was accepted by an older version are
    ignored."""
    return hardware.resolve(spec.instance.flavor, spec.image, strict=False)


@contextlib.contextmanager
def _files_errors() -> Iterator[None]:
    """Raise errors of the file system (full disk, missing permission) as a driver's error."""
    try:
        yield
    except OSError as error:
        raise exceptions.VirtDriverError(reason=str(error)) from error


def _is_missing(path: str) -> bool:
    """Check whether a file does not exist. Of a disk that cannot be read, this is unknown."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError as error:
        LOG.warning("It is unknown whether %s exists: %s", path, error.strerror)
    return False


def _warn_about_inaccessible_directories(path: str) -> None:
    """Warn of directories above the disks that qemu's user cannot enter."""
    while path != os.path.dirname(path):
        if not os.stat(path).st_mode & 0o001:
            LOG.warning("%s cannot be entered by other users, so qemu perhaps cannot open guests' disks below it", path)
        path = os.path.dirname(path)


def _without_neighbours(router: HostRouter, paired: Collection[str]) -> HostRouter:
    """Return a router with the neighbours of these networks only."""
    known = {network_id: item for network_id, item in router.neighbours.items() if network_id in paired}
    return HostRouter(id=router.id, networks=router.networks, neighbours=known)
