"""Images of guests' disks: from the disk while the guest is off, from a copy that qemu makes while it runs.

Of an overlay the copy has only what the guest has written. A raw disk is copied whole. When the mirror is synchronous,
the guest's file systems are frozen if its agent answers, and the mirror ends: that is the moment of the snapshot. The
blocks of the backing image are added in a second step, while the guest continues. Of a disk in a pool of Ceph, the
moment is a snapshot there.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

import libvirt

from nova_lite.base import disk_room, exceptions, files
from nova_lite.operations.states import PowerState
from nova_lite.virt import abilities, images
from nova_lite.virt.libvirt.connection import Connection, LibvirtBusy, LibvirtFailure
from nova_lite.virt.libvirt.disks import disk_usage, volume_chains
from nova_lite.virt.libvirt.disks.disks import readable_root_file
from nova_lite.virt.libvirt.disks.freezes import Freezer
from nova_lite.virt.libvirt.disks.pool_disks import PoolDisks
from nova_lite.virt.libvirt.domain import guest_xml
from nova_lite.virt.libvirt.domain.domains import Domains
from nova_lite.virt.libvirt.records import file_errors, pooled_in

LOG = logging.getLogger(__name__)

POLL_SECONDS = 0.2
LOG_SECONDS = 10.0
#: Name of the files of a snapshot in an error about a lack of room.
_PURPOSE = "copies of its disk"
#: Suffix of the copy of a running guest's overlay, after the image file's name.
COPY = ".copy"

_COPY_FLAGS = (
    libvirt.VIR_DOMAIN_BLOCK_COPY_SHALLOW
    | libvirt.VIR_DOMAIN_BLOCK_COPY_REUSE_EXT
    | libvirt.VIR_DOMAIN_BLOCK_COPY_TRANSIENT_JOB
)


class Snapshotter(abilities.Snapshots):
    """Images of disks, and the mirrors that other copies use, too. ``directory`` returns an instance's directory."""

    def __init__(
        self,
        connection: Connection,
        domains: Domains,
        qemu_img: images.QemuImg,
        room: disk_room.DiskRoom,
        freezer: Freezer,
        directory: Callable[[str], str],
        pool: PoolDisks,
    ) -> None:
        self._pool = pool
        self._connection = connection
        self._domains = domains
        self._qemu_img = qemu_img
        self._room = room
        self._freezer = freezer
        self._directory = directory

    @file_errors()
    def take(self, instance_uuid: str, target: str, check: Callable[[], None]) -> None:
        directory, place = self._directory(instance_uuid), os.path.dirname(target)
        domain, info = self._domains.get(instance_uuid)
        check = self._room.kept(place, check, _PURPOSE)
        is_off = info.power_state in (PowerState.SHUTDOWN, PowerState.CRASHED)
        if (key := pooled_in(directory)) is not None:
            self._export(key, target, contextlib.nullcontext() if is_off else self.quiesced(domain), check)
            return
        root = readable_root_file(directory)
        needed = disk_usage.root_data(root[0])
        if is_off:
            self._room.require(place, needed, _PURPOSE)
            self._qemu_img.flatten(*root, target, check)
            return
        self._room.require(place, needed + (disk_room.data_in(root[0]) or 0), _PURPOSE)
        copy = target + COPY
        try:
            self._copy(domain, root[0], copy, check)
            self._qemu_img.flatten(copy, "qcow2", target, check)
        finally:
            files.remove(copy)

    def _export(
        self, key: str, target: str, hold: contextlib.AbstractContextManager[None], check: Callable[[], None]
    ) -> None:
        copy = target + COPY
        try:
            self._pool.export(key, copy, hold, check)
            self._qemu_img.flatten(copy, "raw", target, check)
        finally:
            files.remove(copy)

    def end_copies(self, directory: str) -> None:
        """End the mirrors into ``directory`` that a killed daemon has left."""
        for info in self._domains.all():
            with contextlib.suppress(exceptions.DomainNotFound):
                domain, _ = self._domains.get(info.uuid)
                self._end_copies(domain, directory)

    def _end_copies(self, domain: Any, directory: str) -> None:
        xml = ET.fromstring(self._connection.call(domain.XMLDesc, 0))  # noqa: S314 libvirt's own
        for disk in xml.iterfind("./devices/disk[mirror]"):
            source, target = disk.find("mirror/source"), disk.find("target")
            file = "" if source is None else source.get("file", "")
            if target is not None and os.path.dirname(file) == os.path.abspath(directory):
                self.abort(domain, target.get("dev", ""))

    def _copy(self, domain: Any, disk: str, copy: str, check: Callable[[], None]) -> None:
        self._end_copies(domain, os.path.dirname(copy))
        device, below = self.root_of(domain, disk)
        size = int(self._connection.call(domain.blockInfo, device, 0)[0])
        files.remove(copy)
        if below:
            self._qemu_img.create_overlay(copy, below[0].path, below[0].format, size)
        else:
            images.run("qemu-img", "create", "-q", "-f", "qcow2", copy, str(size))
        xml = ET.Element("disk", type="file")
        ET.SubElement(xml, "source", file=os.path.abspath(copy))
        ET.SubElement(xml, "driver", type="qcow2")
        guest_xml.add_backing(xml, below)
        flags = _COPY_FLAGS if below else _COPY_FLAGS & ~libvirt.VIR_DOMAIN_BLOCK_COPY_SHALLOW
        self.begin(domain, device, xml, flags)
        try:
            self.catch_up(domain, device, check)
            with self.quiesced(domain):
                self.end(domain, device)
        except BaseException:
            self.abort(domain, device)
            raise

    def root_of(self, domain: Any, disk: str) -> tuple[str, list[volume_chains.File]]:
        """Return the root disk's device name and the files below it, as libvirt knows them."""
        xml = ET.fromstring(self._connection.call(domain.XMLDesc, 0))  # noqa: S314 libvirt's own
        for element in xml.iterfind("./devices/disk"):
            source, target = element.find("source"), element.find("target")
            if source is None or target is None or source.get("file") != os.path.abspath(disk):
                continue
            below, store = [], element.find("backingStore")
            while store is not None:
                source, kind = store.find("source"), store.find("format")
                if source is not None and kind is not None:
                    below.append(volume_chains.File(source.get("file", ""), kind.get("type", "")))
                store = store.find("backingStore")
            return target.get("dev", ""), below
        raise exceptions.VirtDriverError(reason="the guest does not run with its root disk")

    def begin(self, domain: Any, device: str, copy: ET.Element, flags: int) -> None:
        """Begin a mirror of this disk to ``copy``."""
        xml = ET.tostring(copy, encoding="unicode")
        self._connection.call_checked(
            lambda: self._mirror(domain, device) is not None, domain.blockCopy, device, xml, {}, flags
        )

    def end(self, domain: Any, device: str) -> None:
        """End the mirror of this disk. The guest keeps its own disk."""
        self._connection.call_checked(lambda: self._mirror(domain, device) is None, domain.blockJobAbort, device, 0)

    def catch_up(self, domain: Any, device: str, check: Callable[[], None]) -> None:
        """Wait until the mirror of this disk is synchronous."""
        logged_at = time.monotonic()
        while True:
            check()
            try:
                job = self._connection.call(domain.blockJobInfo, device, 0)
            except LibvirtBusy as error:
                LOG.info("Domain %s: the state of a copy is queried again: %s", domain.UUIDString(), error.message)
                time.sleep(POLL_SECONDS)
                continue
            if not job:
                raise exceptions.VirtDriverError(reason="the copy of its disk was interrupted")
            if job["end"] and job["cur"] == job["end"] and self._is_ready(domain, device):
                return
            if time.monotonic() - logged_at >= LOG_SECONDS:
                logged_at = time.monotonic()
                LOG.info("Domain %s: %d of %d bytes copied", domain.UUIDString(), job["cur"], job["end"])
            time.sleep(POLL_SECONDS)

    def _is_ready(self, domain: Any, device: str) -> bool:
        mirror = self._mirror(domain, device)
        return mirror is not None and mirror.get("ready") == "yes"

    def _mirror(self, domain: Any, device: str) -> ET.Element | None:
        """Return the mirror of a disk, as the running guest has it."""
        xml = ET.fromstring(self._connection.call(domain.XMLDesc, 0))  # noqa: S314 libvirt's own
        for disk in xml.iterfind("./devices/disk[mirror]"):
            target = disk.find("target")
            if target is not None and target.get("dev") == device:
                return disk.find("mirror")
        return None

    def abort(self, domain: Any, device: str) -> None:
        """End the mirror of this disk, if any."""
        while True:
            try:
                return self.end(domain, device)
            except LibvirtBusy as error:
                LOG.info("Domain %s: a copy is ended again: %s", domain.UUIDString(), error.message)
                time.sleep(POLL_SECONDS)
            except LibvirtFailure as error:
                return LOG.debug("No copy of %s of %s is running: %s", device, domain.UUIDString(), error.message)

    def quiesced(self, domain: Any) -> contextlib.AbstractContextManager[None]:
        """Freeze the guest's file systems inside the context, if its agent supports it."""
        return self._freezer.frozen(domain)

    def suspended(self, domain: Any) -> contextlib.AbstractContextManager[None]:
        """Pause the guest inside the context, if it runs. A daemon that starts resumes what a killed one has paused."""
        return self._freezer.suspended(domain)
