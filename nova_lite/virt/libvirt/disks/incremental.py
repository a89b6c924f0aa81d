"""Backups of guests' disks as streams: whole ones, and increments of what has changed since an earlier one.

Each backup of a guest that runs makes a checkpoint: qemu records all later writes in a bitmap of the disk, also over
restarts of the guest. Checkpoint and bitmap have the name of the backup, which is never used again. An increment is
made only if libvirt finds both, and qemu has recorded everything. A guest that was killed leaves an inconsistent
bitmap, and a new disk has none: libvirt refuses both. Whatever it refuses is answered by a whole backup. Volumes and
raw root disks have no bitmaps: they are copied whole, at the same moment.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple
from xml.etree import ElementTree as ET

import libvirt
import msgspec

from nova_lite.backups import disk_data, disk_parts
from nova_lite.backups.disk_data import DiskHeader, DiskPart
from nova_lite.base import disk_room, exceptions, files
from nova_lite.virt import abilities, images
from nova_lite.virt.abilities import BackupRequest, ExportVolume
from nova_lite.virt.libvirt.connection import Connection, LibvirtBusy, LibvirtFailure
from nova_lite.virt.libvirt.disks import disk_usage
from nova_lite.virt.libvirt.disks.disks import ROOT, readable_root_file
from nova_lite.virt.libvirt.disks.pool_disks import PoolDisks
from nova_lite.virt.libvirt.disks.snapshots import COPY, Snapshotter
from nova_lite.virt.libvirt.disks.volumes import is_on, is_volume, target_of, volume_of
from nova_lite.virt.libvirt.domain.domains import Domains
from nova_lite.virt.libvirt.records import file_errors, pooled_in

LOG = logging.getLogger(__name__)

POLL_SECONDS = 0.2
#: Prefix of our checkpoints. Others are left alone.
PREFIX = "nova-lite-"
#: Id of the server's own root disk among those of volumes.
ROOT_DISK = ""
#: Name of the files of a backup in an error about a lack of room.
_PURPOSE = "copies of its disks"

_METADATA_ONLY = libvirt.VIR_DOMAIN_CHECKPOINT_DELETE_METADATA_ONLY
_REUSE = libvirt.VIR_DOMAIN_BACKUP_BEGIN_REUSE_EXTERNAL
_COMPLETED = libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED


class _MapEntry(msgspec.Struct):
    """Extent of a qcow2 file, as qemu-img reports it. ``offset``: of its data in the file."""

    start: int
    length: int
    present: bool
    zero: bool
    data: bool
    offset: int | None = None


class _Disk(NamedTuple):
    """Disk of a running guest. ``device``: its name there. ``file``: its raw or root file, "" if it has another kind.

    ``records``: it records changes. ``copy``: the new file.
    """

    volume_id: str
    device: str
    file: str
    records: bool
    copy: str

    def data(self, capacity: int) -> int:
        """Return the most bytes of data that its copy has."""
        if self.volume_id == ROOT_DISK and self.file:
            return disk_usage.root_data(self.file)
        return disk_usage.raw_data(self.file, capacity) if self.file else capacity


class DiskBackups(abilities.Backups):
    """Streams of guests' disks. ``directory`` returns an instance's directory."""

    def __init__(
        self,
        connection: Connection,
        domains: Domains,
        qemu_img: images.QemuImg,
        mirrors: Snapshotter,
        room: disk_room.DiskRoom,
        directory: Callable[[str], str],
        pool: PoolDisks,
    ) -> None:
        self._pool = pool
        self._connection = connection
        self._domains = domains
        self._qemu_img = qemu_img
        self._mirrors = mirrors
        self._room = room
        self._directory = directory

    @file_errors()
    def take(
        self,
        instance_uuid: str,
        target: str,
        request: BackupRequest,
        check: Callable[[], None],
        exported: ExportVolume,
    ) -> None:
        directory = os.path.abspath(self._directory(instance_uuid))
        key = pooled_in(directory)
        root = readable_root_file(directory) if key is None else (self._pool.spec(key, ROOT), "raw")
        domain, info = self._domains.get(instance_uuid)
        volume_ids = request.disks or [ROOT_DISK]
        copies = [f"{target}{COPY}{number or ''}" for number in range(len(volume_ids))]
        _remove(copies)
        place = os.path.dirname(target)
        check = self._room.kept(place, check, _PURPOSE)
        base = None
        try:
            if is_on(info.power_state):
                found = [
                    _Disk(*self._device(domain, root[0], volume_id), copy)
                    for volume_id, copy in zip(volume_ids, copies, strict=True)
                ]
                base = self._copy(domain, found, request, check)
            else:
                for volume_id, copy in zip(volume_ids, copies, strict=True):
                    if key is not None and volume_id == ROOT_DISK:
                        self._export(key, copy, check)
                    else:
                        self._flatten(root, volume_id, copy, check, exported)
            self._write_stream(dict(zip(volume_ids, copies, strict=True)), target, base, bool(request.disks), check)
        finally:
            _remove(copies)

    def _flatten(
        self, root: tuple[str, str], volume_id: str, copy: str, check: Callable[[], None], exported: ExportVolume
    ) -> None:
        """Copy a disk of a guest that is off. ``root``: path and format of its root disk."""
        place = os.path.dirname(copy)
        if volume_id == ROOT_DISK:
            self._room.require(place, disk_usage.root_data(root[0]), _PURPOSE)
            self._qemu_img.flatten(*root, copy, check)
            return
        with exported(volume_id) as path:
            self._room.require(place, disk_usage.raw_data(path, os.path.getsize(path)), _PURPOSE)
            self._qemu_img.flatten(path, "raw", copy, check)

    def _export(self, key: str, copy: str, check: Callable[[], None]) -> None:
        """Copy the root disk in the pool of a guest that is off."""
        raw = f"{copy}.raw"
        try:
            self._pool.export(key, raw, contextlib.nullcontext(), check)
            self._qemu_img.flatten(raw, "raw", copy, check)
        finally:
            files.remove(raw)

    def end_jobs(self) -> None:
        """End backups of a killed daemon."""
        for info in self._domains.all():
            if is_on(info.power_state):
                with contextlib.suppress(exceptions.DomainNotFound):
                    self._abort(self._domains.get(info.uuid)[0])

    def forget(self, domain: Any, kept: Collection[str] = ()) -> None:
        """Remove our checkpoints, except those of the backups ``kept``. The next backup without one is a whole one."""
        names = {PREFIX + backup_id for backup_id in kept}
        for checkpoint in self._connection.call(domain.listAllCheckpoints, 0):
            name = checkpoint.getName()
            if not name.startswith(PREFIX) or name in names:
                continue
            try:
                self._connection.call(checkpoint.delete, 0)
            except LibvirtFailure as error:
                LOG.info("Checkpoint %s has no usable bitmap: %s", name, error.message)
                self._connection.call(checkpoint.delete, _METADATA_ONLY)

    # --- a guest that runs

    def _copy(
        self, domain: Any, disks: Sequence[_Disk], request: BackupRequest, check: Callable[[], None]
    ) -> str | None:
        """Copy the disks, or what has changed since the base, and return the base. None: they are whole copies.

        Only qcow2 disks record changes. Volumes and raw root disks are copied whole in any case.
        """
        self._abort(domain)
        sizes = [int(self._connection.call(domain.blockInfo, disk.device, 0)[0]) for disk in disks]
        layout = [(disk.volume_id, size) for disk, size in zip(disks, sizes, strict=True)]
        known = request.base_disks if request.disks else [(ROOT_DISK, request.base_size)]
        base = request.base if request.base is not None and layout == known else None
        if not any(disk.records for disk in disks):
            base = None
        self.forget(domain, [] if base is None else [base])
        if base is not None:
            try:
                self._run(domain, disks, sizes, request.backup_id, base, check)
            except LibvirtFailure as error:
                LOG.warning("Domain %s: the backup is a whole one: %s", domain.UUIDString(), error.message)
                self.forget(domain)
            else:
                return base
        self._run(domain, disks, sizes, request.backup_id, None, check)
        return None

    def _run(
        self,
        domain: Any,
        disks: Sequence[_Disk],
        sizes: Sequence[int],
        backup_id: str,
        base: str | None,
        check: Callable[[], None],
    ) -> None:
        """Copy the disks as they are at this moment, and record all later writes for the next increment."""
        copied = [(disk, size) for disk, size in zip(disks, sizes, strict=True) if base is None or not disk.records]
        # The size of an increment is unknown. The check during the copy ends the backup if it is too large.
        data = [disk.data(size) for disk, size in copied]
        self._room.require(os.path.dirname(disks[0].copy), sum(data) + max(data, default=0), _PURPOSE)
        for disk, size in zip(disks, sizes, strict=True):
            files.remove(disk.copy)
            images.run("qemu-img", "create", "-q", "-f", "qcow2", disk.copy, str(size))
            os.chmod(disk.copy, 0o600)
        self._connection.call(domain.jobStats, _COMPLETED)  # forget an earlier job's result
        backup, checkpoint = _backup_xml(disks, base), _checkpoint_xml(disks, backup_id)
        try:
            with self._mirrors.quiesced(domain):
                self._connection.call_checked(
                    lambda: self._has_begun(domain, backup_id if checkpoint else None),
                    domain.backupBegin,
                    backup,
                    checkpoint,
                    _REUSE,
                )
            while self._is_running(domain):
                check()
                time.sleep(POLL_SECONDS)
            result = self._connection.call(domain.jobStats, _COMPLETED)
            if result.get("operation") != libvirt.VIR_DOMAIN_JOB_OPERATION_BACKUP or not result.get("success"):
                reason = result.get("errmsg") or "the copy of its disk was interrupted"
                raise exceptions.VirtDriverError(reason=str(reason))
        except BaseException:
            self._abort(domain)
            raise

    def _has_begun(self, domain: Any, backup_id: str | None) -> bool:
        """Check whether a backup has begun whose caller has lost its connection."""
        return self._is_running(domain) if backup_id is None else PREFIX + backup_id in self._checkpoints(domain)

    def _checkpoints(self, domain: Any) -> list[str]:
        return [checkpoint.getName() for checkpoint in self._connection.call(domain.listAllCheckpoints, 0)]

    def _is_running(self, domain: Any) -> bool:
        try:
            job = self._connection.call(domain.jobStats, 0)
        except LibvirtBusy:
            return True
        return bool(job.get("type", libvirt.VIR_DOMAIN_JOB_NONE) != libvirt.VIR_DOMAIN_JOB_NONE)

    def _abort(self, domain: Any) -> None:
        """End a backup of this guest, if any runs, and wait until it has ended."""
        while self._is_running(domain):
            try:
                job = self._connection.call(domain.jobStats, 0)
                if job.get("operation") == libvirt.VIR_DOMAIN_JOB_OPERATION_BACKUP:
                    self._connection.call(domain.abortJob)
                    self._domains.wait_for_job(domain)
                return
            except LibvirtBusy as error:
                LOG.info("The backup of %s is aborted again: %s", domain.UUIDString(), error.message)
                time.sleep(POLL_SECONDS)
            except LibvirtFailure as error:
                LOG.info("The backup of %s has ended: %s", domain.UUIDString(), error.message)

    def _device(self, domain: Any, disk: str, volume_id: str) -> tuple[str, str, str, bool]:
        """Return the volume's id, the name of the disk in the guest, its file, and whether it records changes."""
        for element in self._disks(domain):
            source, driver = element.find("source"), element.find("driver")
            file = "" if source is None else source.get("file", "")
            is_qcow2 = driver is not None and driver.get("type") == "qcow2"
            is_root = not is_volume(element) and disk == (file or ("" if source is None else source.get("name")))
            if is_root if volume_id == ROOT_DISK else volume_of(element) == volume_id:
                return volume_id, target_of(element), "" if is_qcow2 and not is_root else file, is_qcow2 and is_root
        if volume_id == ROOT_DISK:
            raise exceptions.VirtDriverError(reason="the guest does not run with its root disk")
        raise exceptions.VirtDriverError(reason=f"the guest does not have volume {volume_id} any more")

    def _disks(self, domain: Any) -> list[ET.Element]:
        xml = ET.fromstring(self._connection.call(domain.XMLDesc, 0))  # noqa: S314 libvirt's own
        return xml.findall("./devices/disk")

    def _write_stream(
        self, copies: Mapping[str, str], target: str, base: str | None, names_disks: bool, check: Callable[[], None]
    ) -> None:
        """Write the data of qcow2 files that qemu has written, by the ids of their volumes. They have no backing files.

        Each file is removed when its data are in the stream.
        """
        maps = {
            volume_id: msgspec.json.decode(
                images.run("qemu-img", "map", "--output=json", "-f", "qcow2", copy), type=list[_MapEntry]
            )
            for volume_id, copy in copies.items()
        }
        headers = [_described(volume_id, entries, base) for volume_id, entries in maps.items()]
        largest = max((header.length for _, header in headers), default=0)
        self._room.require(os.path.dirname(target), largest, _PURPOSE)
        header = disk_parts.joined(headers, base)
        if not names_disks:
            header = msgspec.structs.replace(header, parts=[])
        with open(target, "wb", opener=files.private_opener) as writer:
            disk_data.write_header(writer, header)
            for volume_id, copy in copies.items():
                with open(copy, "rb") as source:
                    _write_data(source, maps[volume_id], writer, check)
                files.remove(copy)


def _backup_xml(disks: Sequence[_Disk], base: str | None) -> str:
    root = ET.Element("domainbackup", mode="push")
    if base is not None:
        ET.SubElement(root, "incremental").text = PREFIX + base
    elements = ET.SubElement(root, "disks")
    for disk in disks:
        element = ET.SubElement(elements, "disk", name=disk.device, backup="yes", type="file")
        if base is not None and not disk.records:
            element.set("backupmode", "full")
        ET.SubElement(element, "target", file=os.path.abspath(disk.copy))
        ET.SubElement(element, "driver", type="qcow2")
    return ET.tostring(root, encoding="unicode")


def _checkpoint_xml(disks: Sequence[_Disk], backup_id: str) -> str | None:
    """Return the checkpoint of the disks that record changes. None: there are none."""
    if not any(disk.records for disk in disks):
        return None
    root = ET.Element("domaincheckpoint")
    ET.SubElement(root, "name").text = PREFIX + backup_id
    elements = ET.SubElement(root, "disks")
    for disk in disks:
        ET.SubElement(elements, "disk", name=disk.device, checkpoint="bitmap" if disk.records else "no")
    return ET.tostring(root, encoding="unicode")


def _remove(paths: Sequence[str]) -> None:
    for path in paths:
        files.remove(path)


def _described(volume_id: str, entries: Sequence[_MapEntry], base: str | None) -> tuple[DiskPart, DiskHeader]:
    """Return a disk and where it has data. A volume's copy is whole, so in an increment the rest of it is zero."""
    size = sum(entry.length for entry in entries)
    data = [(entry.start, entry.length) for entry in entries if entry.present and entry.data]
    zero = [
        (entry.start, entry.length)
        for entry in entries
        if base and not (entry.present and entry.data) and (entry.present or volume_id != ROOT_DISK)
    ]
    header = DiskHeader(size=size, data=disk_data.coalesced(data), zero=disk_data.coalesced(zero))
    return DiskPart(volume_id=volume_id, size=size), header


def _write_data(source: BinaryIO, entries: Sequence[_MapEntry], writer: BinaryIO, check: Callable[[], None]) -> None:
    written = 0
    for entry in entries:
        if not (entry.present and entry.data):
            continue
        if entry.offset is None:
            raise exceptions.VirtDriverError(reason="the copy of its disk has compressed data")
        source.seek(entry.offset)
        left = entry.length
        while left:
            chunk = source.read(min(left, disk_data.CHUNK))
            # A file ends after its last cluster's data, whose rest is zero.
            chunk = chunk or bytes(min(left, disk_data.CHUNK))
            if written % disk_room.STEP < len(chunk):
                check()
            writer.write(chunk)
            written += len(chunk)
            left -= len(chunk)
