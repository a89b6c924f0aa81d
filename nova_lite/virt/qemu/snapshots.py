"""Images of guests' root disks: from the disk while the guest is off, from a copy of one moment while it runs.

qemu copies each block before the guest overwrites it, so the copy has the content of the moment at which the job began.
Of an overlay it has only what the guest has written. The blocks of the cached image are added in a second step.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections.abc import Callable

from nova_lite.base import disk_room, exceptions, files
from nova_lite.virt import abilities, images
from nova_lite.virt.libvirt.disks import disk_usage
from nova_lite.virt.libvirt.disks.disks import ROOTS, Disk
from nova_lite.virt.libvirt.records import file_errors
from nova_lite.virt.qemu.guest import Guest, disk_id
from nova_lite.virt.qemu.host import Part
from nova_lite.virt.qemu.qmp import Monitor, MonitorGone

LOG = logging.getLogger(__name__)

#: Name of the job, and of the block node of the copy.
JOB = "snapshot"
COPY = ".copy"
_PURPOSE = "copies of its disk"


@dataclasses.dataclass(eq=False)
class GuestSnapshots(Part, abilities.Snapshots):
    _qemu_img: images.QemuImg
    _room: disk_room.DiskRoom

    @file_errors()
    def take(self, instance_uuid: str, target: str, check: Callable[[], None]) -> None:
        guest = self._host.definitions.get(instance_uuid)
        root = next((disk for disk in guest.disks if os.path.basename(disk.path) in ROOTS), None)
        if root is None:
            raise exceptions.VirtDriverError(reason="its root disk is a volume")
        place = os.path.dirname(target)
        self._room.require(place, 2 * disk_usage.root_data(root.path), _PURPOSE)
        check = self._room.kept(place, check, _PURPOSE)
        if not self._host.is_on(guest):
            if self._host.is_running(guest):  # The guest has turned itself off, and its qemu still locks the disk.
                self._host.stop(guest)
            return self._qemu_img.flatten(root.path, root.format, target, check)
        copy = target + COPY
        try:
            self._copy(guest, root, copy, check)
            self._qemu_img.flatten(copy, "qcow2", target, check)
        finally:
            files.remove(copy)

    def _copy(self, guest: Guest, root: Disk, copy: str, check: Callable[[], None]) -> None:
        """Write what the guest's root disk has at this moment to the overlay ``copy``."""
        self._end(guest)
        files.remove(copy)
        size = self._qemu_img.info(root.path, root.format).virtual_size
        if root.below:
            self._qemu_img.create_overlay(copy, root.below[0].path, root.below[0].format, size)
        else:
            images.run("qemu-img", "create", "-q", "-f", "qcow2", copy, str(size))
        self._host.processes.give(copy)
        node = {"driver": "qcow2", "node-name": JOB, "backing": None, "file": {"driver": "file", "filename": copy}}
        job = {"job-id": JOB, "device": disk_id(root), "target": JOB, "sync": "top" if root.below else "full"}
        try:
            with self._host.monitor(guest) as monitor:
                monitor.execute("blockdev-add", node)
                monitor.execute("blockdev-backup", job | {"auto-dismiss": False})
            while not self._is_done(guest):
                check()
                time.sleep(self._host.timing.poll)
        finally:
            self._end(guest)

    def _is_done(self, guest: Guest) -> bool:
        """Check whether the job has succeeded. Raises `VirtDriverError` if it has failed."""
        with self._host.monitor(guest) as monitor:
            job = _job(monitor)
        if job is None or job.get("error"):
            raise exceptions.VirtDriverError(reason=f"the copy of its disk failed: {(job or {}).get('error')}")
        return bool(job["status"] == "concluded")

    def _end(self, guest: Guest) -> None:
        """End the job, if any, and close the copy."""
        while self._host.is_running(guest):
            with self._host.monitor(guest) as monitor:
                job = _job(monitor)
                if job is None:
                    nodes = monitor.execute("query-named-block-nodes", {"flat": True})
                    if any(node.get("node-name") == JOB for node in nodes):
                        monitor.execute("blockdev-del", {"node-name": JOB})
                    return
                if job["status"] == "concluded":
                    monitor.execute("job-dismiss", {"id": JOB})
                elif job["status"] in ("running", "paused", "ready", "created"):
                    monitor.execute("job-cancel", {"id": JOB})
            time.sleep(self._host.timing.poll)

    def end_copies(self) -> None:
        """End the copies that a killed daemon has left."""
        for guest in self._host.definitions.all():
            try:
                self._end(guest)
            except MonitorGone as error:
                LOG.error("Copies of the disk of instance %s may be left: %s", guest.uuid, error.message)


def _job(monitor: Monitor) -> dict[str, str] | None:
    return next((job for job in monitor.execute("query-jobs") if job["id"] == JOB), None)
