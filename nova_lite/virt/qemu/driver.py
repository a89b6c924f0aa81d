"""The qemu driver: guests of qemu by QMP, without libvirt."""

from __future__ import annotations

import logging
import os

from oslo_config import cfg

from nova_lite.base import disk_room, exceptions
from nova_lite.base.timing import TIMING, QemuTiming
from nova_lite.virt import images, rbd
from nova_lite.virt.abilities import FetchImage
from nova_lite.virt.configdrive import ConfigDrives
from nova_lite.virt.driver import ComputeDriver, instances_path
from nova_lite.virt.libvirt.disks.disks import DiskMaker
from nova_lite.virt.libvirt.disks.image_cache import ImageCache
from nova_lite.virt.libvirt.host import kvm
from nova_lite.virt.libvirt.net.anti_spoofing import AntiSpoofing
from nova_lite.virt.libvirt.net.guest_interfaces import GuestInterfaces
from nova_lite.virt.libvirt.net.qos import HostQos
from nova_lite.virt.libvirt.net.security_groups import PortFirewall
from nova_lite.virt.libvirt.records import Records, file_errors
from nova_lite.virt.qemu.command_line import Setting
from nova_lite.virt.qemu.consoles import GuestConsoles
from nova_lite.virt.qemu.guest import Definitions
from nova_lite.virt.qemu.guests import CachedImages, HostGuests
from nova_lite.virt.qemu.host import Host
from nova_lite.virt.qemu.hot_plug import Devices, GuestSide, GuestVolumes
from nova_lite.virt.qemu.machine import HostMachine
from nova_lite.virt.qemu.networks import Bridges, HostFilters, HostSide
from nova_lite.virt.qemu.power import GuestPower, GuestStandby
from nova_lite.virt.qemu.processes import Processes
from nova_lite.virt.qemu.snapshots import GuestSnapshots
from nova_lite.virt.qemu.statistics import AllStatistics

LOG = logging.getLogger(__name__)


class QemuDriver(ComputeDriver):
    """The registry of this driver's abilities."""

    networks: HostSide
    machine: HostMachine
    snapshots: GuestSnapshots

    def __init__(
        self, conf: cfg.ConfigOpts, host: str, fetch_image: FetchImage, timing: QemuTiming = TIMING.qemu
    ) -> None:
        super().__init__(conf, host, fetch_image)
        records = Records(instances_path(conf), host)
        self._processes = Processes(conf.qemu.user, timing)
        bridges = Bridges(lambda: self._processes.owner)
        setting = Setting(conf.libvirt.virt_type)
        self._host = Host(conf, timing, records, Definitions(records), self._processes, bridges, setting)
        qemu_img, room = images.QemuImg(conf), disk_room.of_host(conf)
        self._cache = ImageCache(records.base_path, qemu_img, fetch_image, room)
        raw = conf.libvirt.images_type in ("raw", "flat")
        disks = DiskMaker(self._cache, qemu_img, ConfigDrives(conf, lambda vifs: False), raw)
        self.guests = HostGuests(self._host, disks)
        self.power, self.standby = GuestPower(self._host), GuestStandby(self._host)
        self.machine, self.consoles = HostMachine(self._host, host), GuestConsoles(self._host)
        self.statistics, self.images = AllStatistics(self._host), CachedImages(self._host, self._cache)
        self.snapshots = GuestSnapshots(self._host, qemu_img, room)
        anti_spoofing, firewall = AntiSpoofing(host), PortFirewall(conf, host, records.instances_path)
        interfaces = GuestInterfaces(records, bridges, anti_spoofing, firewall)
        qos = HostQos(host, records.instances_path)
        self.networks = HostSide(records, bridges, anti_spoofing, firewall, interfaces, qos)
        self.filters = HostFilters(anti_spoofing, firewall, interfaces, qos)
        devices = Devices(self._host)
        self.volumes = GuestVolumes(self._host, devices, disks)
        self.interfaces = GuestSide(self._host, devices, self.networks)

    def init_host(self) -> None:
        records = self._host.records
        self._processes.check(records.instances_path)
        self._host.setting = self._find_setting()
        try:
            records.prepare()
            self._cache.clean()
        except OSError as error:
            raise exceptions.ConfigurationError(
                reason=f"Instances cannot be stored in {records.instances_path}: {error}"
            ) from error
        self.machine.prepare()
        with file_errors():
            self.networks.prepare()
        self.snapshots.end_copies()
        LOG.info("Guests on host %s are of type %s, without libvirt", self.host, self._host.setting.virt_type)

    def _find_setting(self) -> Setting:
        """Return the settings of guests. Raises `ConfigurationError`."""
        conf, virt_type = self.conf, self.conf.libvirt.virt_type
        if conf.spice.enabled or conf.serial_console.tls or conf.libvirt.images_type == rbd.PROTOCOL:
            raise exceptions.ConfigurationError(
                reason="compute_driver = qemu: guests have no SPICE, no TLS at serial ports and no disks in Ceph. "
                "Unset [spice] enabled, [serial_console] tls and [libvirt] images_type = rbd."
            )
        first, _, last = conf.serial_console.port_range.partition(":")
        if virt_type == "auto":
            answer = os.path.join(conf.state_path, "kvm-probe.json")
            virt_type = kvm.choose_virt_type(answer, TIMING.libvirt.kvm_probe, host=self.host)
        return Setting(
            virt_type=virt_type,
            tb_cache_mb=conf.libvirt.tb_cache_mb,
            vnc=conf.vnc.server_listen if conf.vnc.enabled else None,
            serial=conf.serial_console.proxyclient_address if conf.serial_console.enabled else None,
            serial_ports=(int(first), int(last)),
        )
