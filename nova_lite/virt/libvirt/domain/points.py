"""Snapshot points of guests: snapshots inside of their qcow2 disks, and files beside them.

::

    point-<id>-nvram.fd     the firmware variables of a guest with UEFI
    point-<id>-tpm-….state  the state of its TPM
    point-<id>-memory       the memory of a running guest, as libvirt saves it
    point-<id>-memory.new   the same, while the guest is off because its point is being made

A snapshot in the disk shares its clusters, and is there at once. It moves with the disk, and so do the first two of
these files. Memory fits this host alone.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from typing import Any

import libvirt_qemu
import msgspec

from nova_lite.base import exceptions, files
from nova_lite.base.disk_room import DiskRoom
from nova_lite.image import qcow2
from nova_lite.virt import abilities, images
from nova_lite.virt.libvirt.connection import LibvirtFailure
from nova_lite.virt.libvirt.context import HostPart
from nova_lite.virt.libvirt.disks import disks, point_files, transfer
from nova_lite.virt.libvirt.disks.freezes import Freezer
from nova_lite.virt.libvirt.disks.incremental import DiskBackups
from nova_lite.virt.libvirt.disks.tpm_states import TPMStates
from nova_lite.virt.libvirt.disks.volumes import is_on
from nova_lite.virt.libvirt.domain.launch import Launcher
from nova_lite.virt.libvirt.records import file_errors

LOG = logging.getLogger(__name__)

_UNFINISHED = ".new"


class _Named(msgspec.Struct):
    name: str


class _Image(msgspec.Struct):
    """File as qemu describes it."""

    snapshots: list[_Named] = []


class _Node(msgspec.Struct, rename="kebab"):
    """File that a running qemu has open."""

    node_name: str
    drv: str
    file: str
    image: _Image


class _Error(msgspec.Struct):
    desc: str


class _Nodes(msgspec.Struct):
    answer: list[_Node] = msgspec.field(name="return", default_factory=list)
    error: _Error | None = None


class _Answer(msgspec.Struct):
    error: _Error | None = None


@dataclasses.dataclass(eq=False)
class GuestPoints(HostPart, abilities.Points):
    _launcher: Launcher
    _freezer: Freezer
    _backups: DiskBackups
    _tpms: TPMStates
    _qemu_img: images.QemuImg
    _room: DiskRoom

    @file_errors()
    def create(self, instance_uuid: str, point_id: str, memory: bool) -> None:
        """Make the point. A guest that is off already, with its memory saved, is one whose daemon was killed."""
        domain, _ = self._domains.get(instance_uuid)
        directory, start = self._records.directory(instance_uuid), point_files.prefix(point_id)
        saved = os.path.join(directory, start + point_files.MEMORY)
        new = saved + _UNFINISHED
        self._domains.wait_for_job(domain)
        self._discard_snapshot(domain, directory, point_id)
        if memory and (self._is_on(instance_uuid) or not os.path.exists(new)):
            point_files.remove(directory, point_id)
            memory_kb = self._connection.call(domain.info)[1]
            self._room.require(directory, memory_kb * 1024, "memory and its devices")
            self._connection.call_checked(lambda: self._is_saved(domain), domain.saveFlags, new, None, 0)
        point_files.copy_variables(directory, "", start)
        self._tpms.save(instance_uuid, directory, start)
        if self._is_on(instance_uuid):
            with self._freezer.frozen(domain):
                self._snapshot(domain, directory, "blockdev-snapshot-internal-sync", point_id)
        else:
            images.run("qemu-img", "snapshot", "-q", "-c", point_id, _disk(directory))
        if memory:
            self._launcher.start(domain, instance_uuid, memory=new)
            os.rename(new, saved)
            files.sync_directory(directory)

    @file_errors()
    def revert(self, instance_uuid: str, point_id: str, memory: bool) -> None:
        """Revert the guest. Its disk keeps its size. Backups know the changes of the disk no longer."""
        domain, _ = self._domains.get(instance_uuid)
        directory, start = self._records.directory(instance_uuid), point_files.prefix(point_id)
        path = _disk(directory)
        self._launcher.drop_memory(domain)
        self._domains.cut_power(domain)
        transfer.withdraw(directory)
        self._backups.forget(domain)
        self._qemu_img.remove_bitmaps(path)
        size = _size(path)
        images.run("qemu-img", "snapshot", "-q", "-a", point_id, path)
        if _size(path) < size:
            images.run("qemu-img", "resize", "-q", "-f", "qcow2", path, str(size))
        point_files.copy_variables(directory, start, "")
        self._tpms.restore(instance_uuid, directory, prefix=start)
        if memory:
            self._launcher.start(domain, instance_uuid, memory=os.path.join(directory, start + point_files.MEMORY))

    @file_errors()
    def delete(self, instance_uuid: str, point_id: str) -> None:
        domain, _ = self._domains.get(instance_uuid)
        directory = self._records.directory(instance_uuid)
        self._domains.wait_for_job(domain)
        new = os.path.join(directory, point_files.prefix(point_id) + point_files.MEMORY + _UNFINISHED)
        if os.path.exists(new) and not self._is_on(instance_uuid):
            self._continue(domain, instance_uuid, new)
        self._discard_snapshot(domain, directory, point_id)
        point_files.remove(directory, point_id)

    def _continue(self, domain: Any, instance_uuid: str, memory: str) -> None:
        """Let a guest continue whose point was not made. Memory that was not saved whole is lost: the guest boots."""
        try:
            self._launcher.start(domain, instance_uuid, memory=memory)
        except (exceptions.InstancePowerOnFailure, LibvirtFailure) as error:
            LOG.warning("Domain %s boots, because its memory was not saved whole: %s", instance_uuid, error.message)
            self._launcher.start(domain, instance_uuid)

    def _is_saved(self, domain: Any) -> bool:
        self._domains.wait_for_job(domain)
        return not self._is_on(domain.UUIDString())

    def _is_on(self, instance_uuid: str) -> bool:
        return is_on(self._domains.state(instance_uuid))

    def _discard_snapshot(self, domain: Any, directory: str, point_id: str) -> None:
        """Remove the snapshot of this name from the disk, if it is there."""
        if self._is_on(domain.UUIDString()):
            if _Named(point_id) in self._node(domain, directory).image.snapshots:
                self._snapshot(domain, directory, "blockdev-snapshot-delete-internal-sync", point_id)
            return
        described = images.run("qemu-img", "info", "--output=json", "-f", "qcow2", _disk(directory))
        if _Named(point_id) in msgspec.json.decode(described, type=_Image).snapshots:
            images.run("qemu-img", "snapshot", "-q", "-d", point_id, _disk(directory))

    def _snapshot(self, domain: Any, directory: str, command: str, point_id: str) -> None:
        """Let a running qemu make or remove a snapshot in its disk. libvirt has no function for that."""
        arguments = {"device": self._node(domain, directory).node_name, "name": point_id}
        error = self._command(domain, command, arguments, _Answer).error
        if error is not None:
            raise exceptions.VirtDriverError(reason=f"qemu: {error.desc}")

    def _node(self, domain: Any, directory: str) -> _Node:
        path = _disk(directory)
        nodes: list[_Node] = self._command(domain, "query-named-block-nodes", {"flat": True}, _Nodes).answer
        for node in nodes:
            if node.drv == "qcow2" and node.file == path:
                return node
        raise exceptions.VirtDriverError(reason="the guest does not run with its root disk")

    def _command(self, domain: Any, name: str, arguments: dict[str, Any], kind: type[Any]) -> Any:
        request = msgspec.json.encode({"execute": name, "arguments": arguments}).decode()
        answer = self._connection.call(libvirt_qemu.qemuMonitorCommand, domain, request, 0)
        return msgspec.json.decode(answer, type=kind)


def _disk(directory: str) -> str:
    """Return the path of the root disk, which has to be in qcow2 format."""
    path, kind = disks.root_file(directory)
    if kind != "qcow2" or not os.path.exists(path):
        raise exceptions.VirtDriverError(reason="its root disk is not in qcow2 format")
    return path


def _size(path: str) -> int:
    header = qcow2.read(path)
    if header is None:
        raise exceptions.VirtDriverError(reason="its root disk is not in qcow2 format")
    return header.size
