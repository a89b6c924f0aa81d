"""The libvirt driver: guests under KVM, or emulated where KVM does not work.

Domains are persistent, so that a stopped guest can be started again. An instance consists of its domain, its directory
(`records`), and a DHCP reservation on each of its networks (`net.plugging`).
"""

from __future__ import annotations

import logging
import os
import xml.etree.ElementTree as ET
from collections.abc import Callable

from oslo_config import cfg

from nova_lite.base import disk_room, exceptions
from nova_lite.base.timing import TIMING, LibvirtTiming
from nova_lite.objects import IncidentKind
from nova_lite.virt import host_health, images
from nova_lite.virt.abilities import FetchImage
from nova_lite.virt.configdrive import ConfigDrives
from nova_lite.virt.driver import ComputeDriver, instances_path, snapshots_path
from nova_lite.virt.libvirt.connection import Connection
from nova_lite.virt.libvirt.context import HostContext
from nova_lite.virt.libvirt.disks import rbd_watchers, transfer
from nova_lite.virt.libvirt.disks.cached_images import CachedImages
from nova_lite.virt.libvirt.disks.disk_server import DiskServer
from nova_lite.virt.libvirt.disks.disks import DiskMaker
from nova_lite.virt.libvirt.disks.encrypted_disks import EncryptedDisks
from nova_lite.virt.libvirt.disks.freezes import Freezer
from nova_lite.virt.libvirt.disks.image_cache import ImageCache
from nova_lite.virt.libvirt.disks.incremental import DiskBackups
from nova_lite.virt.libvirt.disks.left_disks import LeftDisksFinder
from nova_lite.virt.libvirt.disks.marks import Marks
from nova_lite.virt.libvirt.disks.moved_disks import MovedDisks
from nova_lite.virt.libvirt.disks.pool_disks import PoolDisks
from nova_lite.virt.libvirt.disks.pool_marks import PoolMarks
from nova_lite.virt.libvirt.disks.secrets import VolumeSecrets
from nova_lite.virt.libvirt.disks.shared_disks import DiskChecks, SharedDisks
from nova_lite.virt.libvirt.disks.snapshots import Snapshotter
from nova_lite.virt.libvirt.disks.tpm_states import TPMStates
from nova_lite.virt.libvirt.disks.volume_copies import VolumeCopies
from nova_lite.virt.libvirt.disks.volume_files import VolumeFiles
from nova_lite.virt.libvirt.disks.volumes import VolumeDevices
from nova_lite.virt.libvirt.domain.agents import GuestCrashDumps, GuestPasswords
from nova_lite.virt.libvirt.domain.clones import GuestClones
from nova_lite.virt.libvirt.domain.cold_moves import ColdMoves
from nova_lite.virt.libvirt.domain.consoles import Consoles
from nova_lite.virt.libvirt.domain.diagnostics import GuestCounters
from nova_lite.virt.libvirt.domain.domains import Domains
from nova_lite.virt.libvirt.domain.events import EventRelay
from nova_lite.virt.libvirt.domain.guest_consoles import GuestConsoles
from nova_lite.virt.libvirt.domain.guests import GuestDefinitions, HostGuests
from nova_lite.virt.libvirt.domain.hotplug import GuestHotplug
from nova_lite.virt.libvirt.domain.launch import Launcher
from nova_lite.virt.libvirt.domain.live_moves import LiveMoves
from nova_lite.virt.libvirt.domain.points import GuestPoints
from nova_lite.virt.libvirt.domain.power import GuestPower, GuestRescue, GuestStandby
from nova_lite.virt.libvirt.domain.rescue import RescueBoot
from nova_lite.virt.libvirt.domain.shares import GuestShares
from nova_lite.virt.libvirt.domain.statistics import AllStatistics
from nova_lite.virt.libvirt.host.machine import HostMachine
from nova_lite.virt.libvirt.host.pool_room import PoolRoom
from nova_lite.virt.libvirt.net.anti_spoofing import AntiSpoofing
from nova_lite.virt.libvirt.net.guest_interfaces import GuestInterfaces
from nova_lite.virt.libvirt.net.interfaces import InterfaceDevices
from nova_lite.virt.libvirt.net.migration_peers import MigrationPeers
from nova_lite.virt.libvirt.net.networks import HostNetworks
from nova_lite.virt.libvirt.net.plugging import GuestSide, HostFilters, HostSide, NetworkParts
from nova_lite.virt.libvirt.net.probes import PacketProbes
from nova_lite.virt.libvirt.net.qos import HostQos
from nova_lite.virt.libvirt.net.routers import HostRouters
from nova_lite.virt.libvirt.net.security_groups import PortFirewall
from nova_lite.virt.libvirt.net.tunnels import Tunnels
from nova_lite.virt.libvirt.records import Records, file_errors
from nova_lite.virt.rbd_pool import open_pool

LOG = logging.getLogger(__name__)


class LibvirtDriver(ComputeDriver):
    """The registry of this driver's abilities. It makes them, and prepares the host for them."""

    machine: HostMachine
    snapshots: Snapshotter
    backups: DiskBackups
    volume_copies: VolumeCopies

    def __init__(
        self, conf: cfg.ConfigOpts, host: str, fetch_image: FetchImage, timing: LibvirtTiming = TIMING.libvirt
    ) -> None:
        super().__init__(conf, host, fetch_image)
        self._records = Records(instances_path(conf), host)
        self._events = EventRelay(self._records.owns)
        uri = conf.libvirt.connection_uri
        self._connection = Connection(uri, host, None, timing)
        # Events and the inventory have a connection of their own, which does not wait for other calls.
        self._reports = Connection(uri, host, self._events.register, timing, queries_only=True)
        self._domains = Domains(self._connection, host, timing)
        self._context = HostContext(conf, host, timing, self._connection, self._domains, self._records)
        self._disk_server = DiskServer(conf, self._records.instances_path)
        self._secrets = VolumeSecrets(
            self._connection,
            host,
            lambda volume_id: self.volume_key(volume_id),
            lambda instance_uuid: self.tpm_key(instance_uuid),
            lambda instance_uuid, role: self.disk_key(instance_uuid, role),
        )
        self.tpms = TPMStates(conf)
        self._consoles = Consoles(conf, self._connection, timing)
        self._network = self._make_network()
        self._rbd = open_pool(conf, conf.libvirt.images_rbd_pool or conf.volume.rbd_pool)
        self.machine = HostMachine(
            self._context,
            self._reports,
            self._network.tunnels.address,
            lambda: self.cpu_baseline(),
            PoolRoom(self._rbd) if conf.libvirt.images_type == "rbd" else None,
        )
        self._make_guests()
        self._make_volumes()
        self._make_reports()

    def _make_network(self) -> NetworkParts:
        records, path = self._records, self._records.instances_path
        networks = HostNetworks(self.conf, self._connection, self.host)
        anti_spoofing, firewall = AntiSpoofing(self.host), PortFirewall(self.conf, self.host, path, networks.numbers)
        parts = NetworkParts(
            networks=networks,
            anti_spoofing=anti_spoofing,
            port_firewall=firewall,
            tunnels=Tunnels(self.conf, self.host, path),
            routers=HostRouters(networks, self.host, path),
            records=GuestInterfaces(records, networks, anti_spoofing, firewall),
            qos=HostQos(self.host, path),
        )
        devices = InterfaceDevices(self._connection, self.conf.libvirt.device_detach_timeout)
        self.networks = HostSide(self._context, parts)
        self.interfaces = GuestSide(self._context, devices, parts)
        self.filters = HostFilters(parts)
        self.probes = PacketProbes(self._context, networks)
        return parts

    def _make_guests(self) -> None:
        context, networks = self._context, self._network.networks
        self._qemu_img, self._room = images.QemuImg(self.conf), disk_room.of_host(self.conf)
        self._cache = ImageCache(self._records.base_path, self._qemu_img, self.fetch_image, self._room)
        drives, raw = ConfigDrives(self.conf, networks.reach_metadata), self.conf.libvirt.images_type in ("raw", "flat")
        encrypted = EncryptedDisks(self._qemu_img, lambda instance_uuid, role: self.disk_key(instance_uuid, role))
        self._disks = DiskMaker(self._cache, self._qemu_img, drives, raw, encrypted)
        pool = PoolDisks(self.conf, self._rbd, self._disks, self._cache)
        self._records.pool = pool
        self._freezer = Freezer(self._connection, self._domains, self._records.instances_path, self.host)
        self.snapshots = Snapshotter(
            self._connection, self._domains, self._qemu_img, self._room, self._freezer, self._records.directory, pool
        )
        self.backups = DiskBackups(
            self._connection, self._domains, self._qemu_img, self.snapshots, self._room, self._records.directory, pool
        )
        self._peers = MigrationPeers(self.conf, self.host, self._records)
        marks = PoolMarks(self._rbd, self.host) if pool.is_used else Marks(self._records.instances_path, self.host)
        moved = MovedDisks(self.conf, self._disks, self._cache, self._qemu_img, pool, context.timing)
        launcher = Launcher(context, self.machine, self._consoles, self._secrets)
        self._rescue_boot = RescueBoot(self._connection, self._domains, self._records, self._disks, pool)
        power = GuestPower(context, launcher, self._rescue_boot, self._events)
        left = LeftDisksFinder(self._records, marks, pool if pool.is_used else None)
        guests = HostGuests(
            context, self.machine, launcher, self._disks, left, moved, self._peers, self._secrets, self.tpms, pool
        )
        self.guests, self.power = guests, power
        self.standby = GuestStandby(context, power)
        self.rescue = GuestRescue(context, launcher, power, self._rescue_boot)
        self.definitions = GuestDefinitions(context, launcher, moved, self._rescue_boot)
        self.hotplug = GuestHotplug(context, self.definitions)
        self.moves = ColdMoves(context, launcher, guests, power, moved, self.tpms, pool)
        self.live_moves = LiveMoves(
            context, self.machine, guests, self._consoles, moved, self.backups, self._peers, self._secrets, pool
        )
        self.images, self.shares = CachedImages(context, self._cache, pool), GuestShares(context)
        self.points = GuestPoints(context, launcher, self._freezer, self.backups, self.tpms, self._qemu_img, self._room)
        self.clones = GuestClones(context, self._cache, self._qemu_img, self.snapshots, self.backups)
        self.shared_disks, self.disk_checks = SharedDisks(context, marks), DiskChecks(context)

    def _make_volumes(self) -> None:
        def wait(instance_uuid: str, disk: ET.Element) -> None:
            rbd_watchers.wait_until_free(instance_uuid, [disk], lambda: None, self._context.timing)

        connection, domains, mirrors = self._connection, self._domains, self.snapshots
        volumes = VolumeDevices(connection, domains, self._secrets, wait, self._disks.files_below)
        self.volume_copies = VolumeCopies(connection, domains, volumes, mirrors, self._secrets, self._room)
        self.volumes = volumes
        self.volume_files = VolumeFiles(connection, domains, volumes, mirrors, self._qemu_img)

    def _make_reports(self) -> None:
        context, path = self._context, self._records.instances_path
        self.consoles = GuestConsoles(context, self._consoles)
        self.passwords, self.crash_dumps = GuestPasswords(context), GuestCrashDumps(context)
        self.diagnostics = GuestCounters(context, self.machine)
        self.statistics = AllStatistics(self._reports, Domains(self._reports, self.host, context.timing), path)
        self.health = host_health.HostChecks(self.conf, path)

    def init_host(self) -> None:
        self._consoles.check()
        transfer.check_keys(self.conf)
        self.tpms.check()
        self._reports.get()  # Events arrive from now on.
        try:
            self._records.prepare()
        except OSError as error:
            raise exceptions.ConfigurationError(
                reason=f"Instances cannot be stored in {self._records.instances_path}: {error}"
            ) from error
        self._disk_server.start()
        _warn_about_inaccessible_directories(self._records.instances_path)
        self.machine.prepare()
        with file_errors():
            self._network.prepare(self._context)
            self._peers.prepare()
        self._secrets.remove_old()
        with file_errors():
            self._freezer.thaw_left()
        self.snapshots.end_copies(snapshots_path(self.conf, self.host))
        self.volume_copies.end_copies()
        self.backups.end_jobs()
        with file_errors():
            self._cache.clean()

    def wait_for_events(self, callback: Callable[[str, IncidentKind | None], None]) -> None:
        self._events.start(callback)


def _warn_about_inaccessible_directories(path: str) -> None:
    """Warn of directories above the disks that qemu's user cannot enter."""
    while path != os.path.dirname(path):
        if not os.stat(path).st_mode & 0o001:
            LOG.warning("%s cannot be entered by other users, so qemu perhaps cannot open guests' disks below it", path)
        path = os.path.dirname(path)
