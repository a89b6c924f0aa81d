"""Copies of volumes in use, by mirrors of qemu: to a file that keeps a moment's content, or to a replacing volume."""

from __future__ import annotations

import contextlib
import os
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import libvirt
import msgspec

from nova_lite.base import disk_room, exceptions
from nova_lite.objects import BlockDevice
from nova_lite.operations.states import PowerState
from nova_lite.virt import abilities, images
from nova_lite.virt.libvirt.connection import Connection
from nova_lite.virt.libvirt.disks.disks import volume_disk
from nova_lite.virt.libvirt.disks.secrets import VolumeSecrets
from nova_lite.virt.libvirt.disks.snapshots import Snapshotter
from nova_lite.virt.libvirt.disks.volumes import (
    CONFIG,
    CONFIG_XML,
    VolumeDevices,
    grow,
    is_on,
    is_volume,
    target_of,
    volume_id_in,
    volume_of,
)
from nova_lite.virt.libvirt.domain import guest_xml
from nova_lite.virt.libvirt.domain.domains import Domains
from nova_lite.virt.libvirt.records import file_errors

_FLAGS = libvirt.VIR_DOMAIN_BLOCK_COPY_REUSE_EXT | libvirt.VIR_DOMAIN_BLOCK_COPY_TRANSIENT_JOB
#: A write of the guest completes only when both disks have it.
_BOTH = libvirt.VIR_DOMAIN_BLOCK_COPY_SYNCHRONOUS_WRITES
_PIVOT = libvirt.VIR_DOMAIN_BLOCK_JOB_ABORT_PIVOT

#: Copies without reading blocks if the file system supports reflinks.
_COPY = ("cp", "--reflink=auto", "--sparse=always", "--no-preserve=all")


class VolumeCopies(abilities.VolumeCopies):
    def __init__(
        self,
        connection: Connection,
        domains: Domains,
        volumes: VolumeDevices,
        mirrors: Snapshotter,
        secrets: VolumeSecrets,
        room: disk_room.DiskRoom,
    ) -> None:
        self._connection = connection
        self._room = room
        self._secrets = secrets
        self._domains = domains
        self._volumes = volumes
        self._mirrors = mirrors

    def end_copies(self) -> None:
        """End copies of a killed daemon to files that no command needs. Swaps continue, because their commands are
        repeated."""
        for info in self._domains.all():
            with contextlib.suppress(exceptions.DomainNotFound):
                domain, _ = self._domains.get(info.uuid)
                for disk in self._volumes.disks(domain, 0):
                    mirror = disk.find("mirror/source")
                    if is_volume(disk) and mirror is not None and volume_id_in(mirror) is None:
                        self._mirrors.abort(domain, target_of(disk))

    # --- copies of one moment

    @file_errors()
    def copy(self, instance_uuid: str, copies: Mapping[str, tuple[str, str]], check: Callable[[], None]) -> None:
        domain, info = self._domains.get(instance_uuid)
        devices, encrypted = {}, set[str]()
        if is_on(info.power_state):
            devices = {volume_of(disk): target_of(disk) for disk in self._volumes.disks(domain, 0)}
            encrypted = set(self._volumes.encrypted(domain)) & copies.keys()
        for place in {os.path.dirname(target) for _, target in copies.values()}:
            check = self._room.kept(place, check, "copies of volumes")
        for volume_id, (source, target) in copies.items():
            if volume_id not in devices:
                images.run_checked(check, *_COPY, source, target)
        mirrors = {
            devices[volume_id]: raw_disk(target, volume_id if volume_id in encrypted else None)
            for volume_id, (_, target) in copies.items()
            if volume_id in devices
        }
        if not mirrors:
            return
        try:
            with self._secrets.loaded(encrypted):
                for device, copy in mirrors.items():
                    self._mirrors.abort(domain, device)
                    self._mirrors.begin(domain, device, copy, _FLAGS)
            for device in mirrors:
                self._mirrors.catch_up(domain, device, check)
            with self._mirrors.quiesced(domain), self._suspended(domain, len(mirrors) > 1):
                for device in mirrors:
                    self._mirrors.end(domain, device)
        except BaseException:
            for device in mirrors:
                self._mirrors.abort(domain, device)
            raise

    @contextlib.contextmanager
    def held(self, instance_uuid: str, volume_ids: Sequence[str]) -> Iterator[None]:
        domain, info = self._domains.get(instance_uuid)
        in_use = {volume_of(disk) for disk in self._volumes.disks(domain, 0)} if is_on(info.power_state) else set()
        if in_use.isdisjoint(volume_ids):
            yield
            return
        with self._mirrors.quiesced(domain), self._suspended(domain, len(volume_ids) > 1):
            yield

    def _suspended(self, domain: Any, is_needed: bool) -> contextlib.AbstractContextManager[None]:
        """Pause the guest inside the context, so that mirrors that end one after the other have the same content."""
        return self._mirrors.suspended(domain) if is_needed else contextlib.nullcontext()

    # --- swap

    @file_errors()
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
        """Replace a volume. A mirror of an earlier attempt is continued."""
        domain, info = self._domains.get(instance_uuid)
        if self._has(domain, info.power_state, new_id):
            self._settle(domain, info.power_state, new_id, size)
            return
        disk = self._find(domain, 0, str(old.volume_id)) if is_on(info.power_state) else None
        if disk is None:
            raise exceptions.VirtDriverError(reason=f"the guest does not run with volume {old.volume_id}")
        device = target_of(disk)
        if volume_id_in(disk.find("mirror/source")) != new_id:
            self._mirrors.abort(domain, device)
            new = msgspec.structs.replace(old, volume_id=new_id)
            # qemu mirrors to a file of exactly the same size. The guest gets the rest once it has the volume.
            os.truncate(path, self._connection.call(domain.blockInfo, device, 0)[0])
            self._mirrors.begin(domain, device, guest_xml.disk_element(volume_disk(new, path)), _FLAGS | _BOTH)
        try:
            self._mirrors.catch_up(domain, device, check)
        except BaseException:
            self._mirrors.abort(domain, device)
            raise
        copied()
        self._connection.call_checked(
            lambda: self._has(domain, info.power_state, new_id), domain.blockJobAbort, device, _PIVOT
        )
        self._settle(domain, info.power_state, new_id, size)

    def end_swap(self, instance_uuid: str, old_id: str, new_id: str, size: int) -> bool:
        domain, info = self._domains.get(instance_uuid)
        if self._has(domain, info.power_state, new_id):
            self._settle(domain, info.power_state, new_id, size)
            return True
        disk = self._find(domain, 0, old_id)
        if disk is not None and disk.find("mirror") is not None:
            self._mirrors.end(domain, target_of(disk))
        return False

    def _has(self, domain: Any, power_state: PowerState, volume_id: str) -> bool:
        """Check whether the guest has the volume. libvirt changes the definition together with the guest."""
        return self._find(domain, 0 if is_on(power_state) else CONFIG_XML, volume_id) is not None

    def _settle(self, domain: Any, power_state: PowerState, new_id: str, size: int) -> None:
        """Give the guest the full size. From its next start it sees the volume's own serial number."""
        disk = self._find(domain, 0, new_id)
        if is_on(power_state) and disk is not None:
            grow(self._connection, domain, target_of(disk), size)
        element = self._find(domain, CONFIG_XML, new_id)
        serial = None if element is None else element.find("serial")
        if element is not None and serial is not None and serial.text != new_id:
            serial.text = new_id
            self._connection.call(domain.updateDeviceFlags, ET.tostring(element, encoding="unicode"), CONFIG)

    def _find(self, domain: Any, flags: int, volume_id: str) -> ET.Element | None:
        return next((disk for disk in self._volumes.disks(domain, flags) if volume_of(disk) == volume_id), None)


def raw_disk(path: str, encrypted: str | None = None) -> ET.Element:
    """Return a file to copy into. ``encrypted``: the volume whose passphrase it has, if any."""
    disk = ET.Element("disk", type="file")
    source = ET.SubElement(disk, "source", file=path)
    if encrypted is not None:
        guest_xml.add_encryption(source, encrypted)
    ET.SubElement(disk, "driver", type="raw")
    guest_xml.add_backing(disk, ())
    return disk
