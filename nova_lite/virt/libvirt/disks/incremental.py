"""Backups of guests' root disks as streams: whole ones, and increments of what has changed since an earlier one.

Each backup of a guest that runs makes a checkpoint: qemu records all later writes in a bitmap of the disk, also over
restarts of the guest. Checkpoint and bitmap have the name of the backup, which is never used again. An increment is
made only if libvirt finds both, and qemu has recorded everything. A guest that was killed leaves an inconsistent
bitmap, and a new disk has none: libvirt refuses both. Whatever it refuses is answered by a whole backup.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Collection
from typing import Any
from xml.etree import ElementTree as ET

import libvirt
import msgspec

from nova_lite.backups import disk_data
from nova_lite.backups.disk_data import DiskHeader
from nova_lite.base import exceptions, files
from nova_lite.virt import images
from nova_lite.virt.driver import BackupRequest
from nova_lite.virt.libvirt.connection import Connection, LibvirtFailure
from nova_lite.virt.libvirt.disks.disks import ROOT
from nova_lite.virt.libvirt.disks.snapshots import COPY, Snapshotter
from nova_lite.virt.libvirt.disks.volumes import is_on, target_of
from nova_lite.virt.libvirt.domain.domains import Domains

LOG = logging.getLogger(__name__)

POLL_SECONDS = 0.2
#: Prefix of our checkpoints. Others are left alone.
PREFIX = "nova-lite-"

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


class DiskBackups:
    def __init__(
        self, connection: Connection, domains: Domains, qemu_img: images.QemuImg, mirrors: Snapshotter
    ) -> None:
        self._connection = connection
        self._domains = domains
        self._qemu_img = qemu_img
        self._mirrors = mirrors

    def back_up(
        self, instance_uuid: str, directory: str, target: str, request: BackupRequest, check: Callable[[], None]
    ) -> None:
        """Write a stream of the root disk. See `nova_lite.virt.driver.IncrementalBackups`."""
        disk = os.path.abspath(os.path.join(directory, ROOT))
        domain, info = self._domains.get(instance_uuid)
        copy = target + COPY
        files.remove(copy)
        base = None
        try:
            if is_on(info.power_state):
                base = self._copy(domain, disk, copy, request, check)
            else:
                self._qemu_img.flatten(disk, "qcow2", copy, check)
            _write_stream(copy, target, base)
        finally:
            files.remove(copy)

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

    def _copy(self, domain: Any, disk: str, copy: str, request: BackupRequest, check: Callable[[], None]) -> str | None:
        """Copy the disk, or what has changed since the base, and return the base. None: it is a whole copy."""
        self._abort(domain)
        device = self._device(domain, disk)
        size = int(self._connection.call(domain.blockInfo, device, 0)[0])
        base = request.base if request.base is not None and size == request.base_size else None
        self.forget(domain, [] if base is None else [base])
        if base is not None:
            try:
                self._run(domain, device, size, copy, request.backup_id, base, check)
            except LibvirtFailure as error:
                LOG.warning("Domain %s: the backup is a whole one: %s", domain.UUIDString(), error.message)
                self.forget(domain)
            else:
                return base
        self._run(domain, device, size, copy, request.backup_id, None, check)
        return None

    def _run(
        self,
        domain: Any,
        device: str,
        size: int,
        copy: str,
        backup_id: str,
        base: str | None,
        check: Callable[[], None],
    ) -> None:
        """Copy the disk as it is at this moment, and record all later writes for the next increment."""
        files.remove(copy)
        images.run("qemu-img", "create", "-q", "-f", "qcow2", copy, str(size))
        os.chmod(copy, 0o600)
        self._connection.call(domain.jobStats, _COMPLETED)  # forget an earlier job's result
        backup, checkpoint = _backup_xml(device, copy, base), _checkpoint_xml(device, backup_id)
        try:
            with self._mirrors.quiesced(domain):
                self._connection.call_checked(
                    lambda: PREFIX + backup_id in self._checkpoints(domain),
                    *(domain.backupBegin, backup, checkpoint, _REUSE),
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

    def _checkpoints(self, domain: Any) -> list[str]:
        return [checkpoint.getName() for checkpoint in self._connection.call(domain.listAllCheckpoints, 0)]

    def _is_running(self, domain: Any) -> bool:
        job = self._connection.call(domain.jobStats, 0)
        return bool(job.get("type", libvirt.VIR_DOMAIN_JOB_NONE) != libvirt.VIR_DOMAIN_JOB_NONE)

    def _abort(self, domain: Any) -> None:
        """End a backup of this guest, if any runs, and wait until it has ended."""
        job = self._connection.call(domain.jobStats, 0)
        if job.get("operation") != libvirt.VIR_DOMAIN_JOB_OPERATION_BACKUP or not self._is_running(domain):
            return
        try:
            self._connection.call(domain.abortJob)
        except LibvirtFailure as error:
            LOG.info("The backup of %s has ended: %s", domain.UUIDString(), error.message)
        self._domains.wait_for_job(domain)

    def _device(self, domain: Any, disk: str) -> str:
        """Return the name of the root disk in the guest."""
        for element in self._disks(domain):
            source = element.find("source")
            if source is not None and source.get("file") == disk:
                return target_of(element)
        raise exceptions.VirtDriverError(reason="the guest does not run with its root disk")

    def _disks(self, domain: Any) -> list[ET.Element]:
        xml = ET.fromstring(self._connection.call(domain.XMLDesc, 0))  # noqa: S314 libvirt's own
        return xml.findall("./devices/disk")


def _backup_xml(device: str, copy: str, base: str | None) -> str:
    root = ET.Element("domainbackup", mode="push")
    if base is not None:
        ET.SubElement(root, "incremental").text = PREFIX + base
    disk = ET.SubElement(ET.SubElement(root, "disks"), "disk", name=device, backup="yes", type="file")
    ET.SubElement(disk, "target", file=os.path.abspath(copy))
    ET.SubElement(disk, "driver", type="qcow2")
    return ET.tostring(root, encoding="unicode")


def _checkpoint_xml(device: str, backup_id: str) -> str:
    root = ET.Element("domaincheckpoint")
    ET.SubElement(root, "name").text = PREFIX + backup_id
    ET.SubElement(ET.SubElement(root, "disks"), "disk", name=device, checkpoint="bitmap")
    return ET.tostring(root, encoding="unicode")


def _write_stream(copy: str, target: str, base: str | None) -> None:
    """Write the data of a qcow2 file that qemu has written. It has no backing file."""
    output = images.run("qemu-img", "map", "--output=json", "-f", "qcow2", copy)
    entries = msgspec.json.decode(output, type=list[_MapEntry])
    with_data = [entry for entry in entries if entry.present and entry.data]
    zero = [(entry.start, entry.length) for entry in entries if base and entry.present and not entry.data]
    header = DiskHeader(
        size=sum(entry.length for entry in entries),
        data=disk_data.coalesced((entry.start, entry.length) for entry in with_data),
        zero=disk_data.coalesced(zero),
        base=base,
    )
    with open(copy, "rb") as source, open(target, "wb", opener=files.private_opener) as writer:
        disk_data.write_header(writer, header)
        for entry in with_data:
            if entry.offset is None:
                raise exceptions.VirtDriverError(reason="the copy of its disk has compressed data")
            source.seek(entry.offset)
            left = entry.length
            while left:
                chunk = source.read(min(left, disk_data.CHUNK))
                # A file ends after its last cluster's data, whose rest is zero.
                chunk = chunk or bytes(min(left, disk_data.CHUNK))
                writer.write(chunk)
                left -= len(chunk)
