"""Disks of volumes and interfaces, which are attached to guests and detached from them, running or not.

The definition is changed first when a device comes, and last when it goes. So a daemon that is killed in between leaves
nothing that the next start would do differently.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import Any

from nova_lite.base import exceptions
from nova_lite.objects import VIF, BlockDevice, EncryptedDisk, NetworkDisk, VolumeSource
from nova_lite.virt import abilities
from nova_lite.virt.libvirt.disks.disks import Disk, DiskMaker, volume_disk
from nova_lite.virt.libvirt.records import file_errors
from nova_lite.virt.qemu import command_line
from nova_lite.virt.qemu.guest import Guest, disk_id, vif_id
from nova_lite.virt.qemu.host import Part
from nova_lite.virt.qemu.networks import HostSide
from nova_lite.virt.qemu.qmp import Monitor, QMPError


def require_file(volume_id: str, source: VolumeSource) -> None:
    """Raise `VirtDriverError` for a volume that is not in a plain file or a device of this host."""
    if isinstance(source, NetworkDisk | EncryptedDisk):
        reason = "is encrypted" if isinstance(source, EncryptedDisk) else f"is in {source.protocol}"
        raise exceptions.VirtDriverError(reason=f"volume {volume_id} {reason}, which qemu without libvirt does not use")


@dataclasses.dataclass(eq=False)
class Devices(Part):
    """Devices of running guests."""

    def add(self, guest: Guest, backend: tuple[str, dict[str, Any]], device: dict[str, Any]) -> None:
        """Give a running guest a device and its ``backend``: command and arguments. Do nothing if it has it."""
        if not self._host.is_on(guest):
            return
        if guest.is_microvm:
            raise exceptions.NotImplementedByDriver(operation="attaching devices to a microvm that runs")
        with self._host.monitor(guest) as monitor:
            if device["id"] in _names(monitor):
                return
            self._drop(monitor, device["id"])  # of a daemon that was killed
            monitor.execute(*backend)
            try:
                monitor.execute("device_add", device)
            except QMPError:
                self._drop(monitor, device["id"])
                raise

    def remove(self, guest: Guest, device_id: str, timeout: float) -> None:
        """Make a running guest release a device. Raises `DeviceDetachFailed`."""
        deadline, ask_at = time.monotonic() + timeout, 0.0
        while self._host.is_on(guest):
            with self._host.monitor(guest) as monitor:
                if device_id not in _names(monitor):
                    self._drop(monitor, device_id)
                    return
                if time.monotonic() >= ask_at:
                    ask_at = time.monotonic() + self._host.timing.ask_again
                    with contextlib.suppress(QMPError):  # The guest is releasing the device already.
                        monitor.execute("device_del", {"id": device_id})
            if time.monotonic() >= deadline:
                reason = f"the guest did not release it within {timeout:g} s"
                raise exceptions.DeviceDetachFailed(device=device_id, reason=reason)
            time.sleep(self._host.timing.poll)

    @staticmethod
    def _drop(monitor: Monitor, device_id: str) -> None:
        """Remove the backend of a device, if any."""
        if any(
            node.get("node-name") == device_id for node in monitor.execute("query-named-block-nodes", {"flat": True})
        ):
            monitor.execute("blockdev-del", {"node-name": device_id})
        elif device_id.startswith("tap"):
            with contextlib.suppress(QMPError):  # A backend may be missing. qemu has no list of them.
                monitor.execute("netdev_del", {"id": device_id})


def _names(monitor: Monitor) -> set[str]:
    """Return the ids of a guest's devices."""
    return {item["name"] for item in monitor.execute("qom-list", {"path": "/machine/peripheral"})}


@dataclasses.dataclass(eq=False)
class GuestVolumes(Part, abilities.Volumes):
    _devices: Devices
    _maker: DiskMaker

    @file_errors()
    def attach(self, instance_uuid: str, device: BlockDevice, path: VolumeSource) -> None:
        guest = self._host.definitions.get(instance_uuid)
        volume_id = str(device.volume_id)
        require_file(volume_id, path)
        disk = volume_disk(device, path, self._maker.files_below(volume_id, path))
        if disk.bus != "virtio":
            raise exceptions.NotImplementedByDriver(operation=f"disks on the bus {disk.bus}")
        if _volume(guest, volume_id) is None:
            guest.disks.append(disk)
            guest.take_port(disk_id(disk))
            self._host.definitions.write(guest)
        try:
            self._host.give(disk)
            node = command_line.disk_node(disk)
            self._devices.add(guest, ("blockdev-add", node), command_line.disk_device(guest, disk))
        except (exceptions.NovaLiteException, OSError):
            self._forget(guest, disk)
            raise

    @file_errors()
    def detach(self, instance_uuid: str, volume_id: str, timeout: float) -> None:
        guest = self._host.definitions.get(instance_uuid)
        disk = _volume(guest, volume_id)
        if disk is not None:
            self._devices.remove(guest, disk_id(disk), timeout)
            self._forget(guest, disk)

    def _forget(self, guest: Guest, disk: Disk) -> None:
        guest.disks = [other for other in guest.disks if other.serial != disk.serial]
        guest.ports.pop(disk_id(disk), None)
        self._host.definitions.write(guest)
        self._host.processes.take_back(disk.path)

    def extend(self, instance_uuid: str, volume_id: str, size: int) -> None:
        guest = self._host.definitions.find(instance_uuid)
        disk = None if guest is None else _volume(guest, volume_id)
        if guest is None or disk is None or not self._host.is_on(guest):
            return
        with self._host.monitor(guest) as monitor:
            nodes = monitor.execute("query-named-block-nodes", {"flat": True})
            known = next(node["image"]["virtual-size"] for node in nodes if node["node-name"] == disk_id(disk))
            if size >= known:  # qemu would shrink it, and the guest lose data.
                monitor.execute("block_resize", {"node-name": disk_id(disk), "size": size})


@dataclasses.dataclass(eq=False)
class GuestSide(Part, abilities.Interfaces):
    """Interfaces of guests."""

    _devices: Devices
    _networks: HostSide

    def attach(self, instance_uuid: str, vif: VIF) -> None:
        guest = self._host.definitions.get(instance_uuid)
        if all(other.id != vif.id for other in guest.vifs):
            guest.vifs.append(vif)
            guest.take_port(vif_id(vif))
            self._host.definitions.write(guest)
        try:
            self._devices.add(guest, ("netdev_add", command_line.netdev(vif)), command_line.vif_device(guest, vif))
        except exceptions.NovaLiteException:
            self._forget(guest, vif)
            raise

    def detach(self, instance_uuid: str, vif: VIF) -> None:
        guest = self._host.definitions.get(instance_uuid)
        self._devices.remove(guest, vif_id(vif), self._host.conf.libvirt.device_detach_timeout)
        self._forget(guest, vif)
        self._networks.detach(instance_uuid, vif)

    def _forget(self, guest: Guest, vif: VIF) -> None:
        guest.vifs = [other for other in guest.vifs if other.id != vif.id]
        guest.ports.pop(vif_id(vif), None)
        self._host.definitions.write(guest)


def _volume(guest: Guest, volume_id: str) -> Disk | None:
    return next((disk for disk in guest.disks if disk.serial == volume_id), None)
