"""Layers for clones: the root disk of a guest is frozen, and the guest continues with a new one on top of it.

If the guest is off, the file gets a second name, and the new disk takes the old one. qemu has the file of a running
guest open. So the guest first gets ``disk.new`` by an external snapshot, then an equal ``disk`` by a mirror. Then
libvirt and all other parts know each file by the name that it keeps.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import xml.etree.ElementTree as ET
from typing import Any

import libvirt

from nova_lite.base import exceptions, files
from nova_lite.image import qcow2
from nova_lite.operations.states import PowerState
from nova_lite.virt import abilities, images
from nova_lite.virt.libvirt.context import HostPart
from nova_lite.virt.libvirt.disks import disk_usage, disks, layers, transfer
from nova_lite.virt.libvirt.disks.image_cache import ImageCache
from nova_lite.virt.libvirt.disks.incremental import DiskBackups
from nova_lite.virt.libvirt.disks.snapshots import Snapshotter
from nova_lite.virt.libvirt.disks.volume_files import SNAPSHOT, snapshot_xml
from nova_lite.virt.libvirt.disks.volumes import is_on
from nova_lite.virt.libvirt.domain import guest_xml
from nova_lite.virt.libvirt.records import file_errors

#: Age in seconds at which a layer without disks is removed. The clone is built long before.
MINIMUM_AGE = 3600.0

#: The guest's writes wait for both files, so that the mirror catches up.
_MIRROR = (
    libvirt.VIR_DOMAIN_BLOCK_COPY_SHALLOW
    | libvirt.VIR_DOMAIN_BLOCK_COPY_REUSE_EXT
    | libvirt.VIR_DOMAIN_BLOCK_COPY_TRANSIENT_JOB
    | libvirt.VIR_DOMAIN_BLOCK_COPY_SYNCHRONOUS_WRITES
)


class _Files:
    """The files of a freeze: the guest's disk, the new one, and the layer of the clone."""

    def __init__(self, directory: str, layer: str) -> None:
        self.directory = directory
        self.disk, self.new = (os.path.join(directory, name) for name in (disks.ROOT, disks.NEW_ROOT))
        self.layer = layer

    def is_frozen(self) -> bool:
        """Check whether the layer exists, and is more than a second name of the disk."""
        return os.path.exists(self.layer) and not os.path.samefile(self.disk, self.layer)

    def link(self) -> None:
        files.remove(self.layer)
        os.link(self.disk, self.layer)


@dataclasses.dataclass(eq=False)
class GuestClones(HostPart, abilities.Clones):
    _cache: ImageCache
    _qemu_img: images.QemuImg
    _mirrors: Snapshotter
    _backups: DiskBackups

    @file_errors()
    def freeze(self, instance_uuid: str, clone_uuid: str) -> None:
        """Freeze the disk. Backups know the changes of the disk no longer."""
        domain, info = self._domains.get(instance_uuid)
        found = self._files(instance_uuid, clone_uuid)
        self._domains.wait_for_job(domain)
        self._settle(domain, found)
        if found.is_frozen():
            return
        if len(layers.below(found.disk)) > layers.MOST:
            raise exceptions.VirtDriverError(reason=f"its disk lies on {layers.MOST} layers already")
        self._backups.forget(domain)
        _copy_variables(found)
        if is_on(info.power_state):
            self._switch(domain, found, quiesce=info.power_state == PowerState.RUNNING)
        else:
            self._rename(domain, found)
        os.utime(found.layer)
        files.sync_directory(os.path.dirname(found.layer))

    @file_errors()
    def settle(self, instance_uuid: str, clone_uuid: str) -> None:
        domain, _ = self._domains.get(instance_uuid)
        found = self._files(instance_uuid, clone_uuid)
        self._domains.wait_for_job(domain)
        self._settle(domain, found)
        if not found.is_frozen():
            files.remove(found.layer)

    @file_errors()
    def remove_unused(self) -> list[str]:
        return self._cache.remove_unused(
            MINIMUM_AGE, lambda: disk_usage.used_images(self._records.instances_path), layers=True
        )

    def _files(self, instance_uuid: str, clone_uuid: str) -> _Files:
        return _Files(self._records.directory(instance_uuid), self._cache.path(layers.name_of(clone_uuid)))

    def _rename(self, domain: Any, found: _Files) -> None:
        """Make the disk of a guest that is off the layer. A disk that was not written shares the layer below it."""
        transfer.withdraw(found.directory)
        self._qemu_img.remove_bitmaps(found.disk)
        header = qcow2.read(found.disk)
        if header is not None and layers.is_layer(header.backing):
            self._make(found.new, header.backing)
            if layers.is_as_new(found.disk, found.new):
                files.remove(found.new)
                os.link(header.backing, found.layer)
                return
        found.link()
        self._make(found.new, found.layer)
        self._define(domain, found, found.new)
        os.replace(found.new, found.disk)
        files.sync_directory(found.directory)

    def _switch(self, domain: Any, found: _Files, quiesce: bool) -> None:
        """Make the disk of a running guest the layer."""
        device, _ = self._mirrors.root_of(domain, found.disk)
        found.link()
        self._make(found.new, found.layer)
        xml = snapshot_xml(self._disks(domain, 0), device, found.new)
        # The file systems of a paused guest write nothing, and its agent does not answer.
        with self._mirrors.quiesced(domain) if quiesce else contextlib.nullcontext():
            self._connection.call_checked(
                lambda: self._uses(domain, found.new, 0), domain.snapshotCreateXML, xml, SNAPSHOT
            )
        self._settle(domain, found)

    def _settle(self, domain: Any, found: _Files) -> None:
        """Give the disk that the guest uses its name, if it has ``disk.new``."""
        if not os.path.exists(found.new):
            return
        runs = is_on(self._domains.state(domain.UUIDString()))
        if runs and self._uses(domain, found.new, 0):
            self._mirror(domain, found)
        elif not runs and self._uses(domain, found.new, libvirt.VIR_DOMAIN_XML_INACTIVE):
            os.replace(found.new, found.disk)
        files.remove(found.new)
        self._define(domain, found, found.disk)
        files.sync_directory(found.directory)

    def _mirror(self, domain: Any, found: _Files) -> None:
        """Let a running guest that uses ``disk.new`` use ``disk``, which becomes equal."""
        device, _ = self._mirrors.root_of(domain, found.new)
        self._mirrors.abort(domain, device)
        below = layers.below(found.new)
        self._make(found.disk, below[0].path)  # the file that had this name is the layer
        copy = ET.Element("disk", type="file")
        ET.SubElement(copy, "source", file=found.disk)
        ET.SubElement(copy, "driver", type="qcow2")
        guest_xml.add_backing(copy, below)
        self._mirrors.begin(domain, device, copy, _MIRROR)
        self._mirrors.catch_up(domain, device, lambda: None)
        pivot = libvirt.VIR_DOMAIN_BLOCK_JOB_ABORT_PIVOT
        self._connection.call_checked(lambda: self._uses(domain, found.disk, 0), domain.blockJobAbort, device, pivot)

    def _make(self, path: str, layer: str) -> str:
        """Make an empty disk on top of a layer, of the layer's size."""
        header = qcow2.read(layer)
        assert header is not None
        files.remove(path)
        self._qemu_img.create_overlay(path, layer, "qcow2", header.size)
        os.chmod(path, 0o600)
        return path

    def _define(self, domain: Any, found: _Files, described: str) -> None:
        """Let the guest's next start use ``disk``, on top of what is below ``described``."""
        root = ET.fromstring(self._domains.description(domain))  # noqa: S314 libvirt's own
        for element in root.iterfind("./devices/disk"):
            source = element.find("source")
            if source is None or source.get("file") not in (found.disk, found.new):
                continue
            source.set("file", found.disk)
            for store in element.findall("backingStore"):
                element.remove(store)
            guest_xml.add_backing(element, layers.below(described))
        self._domains.define(ET.tostring(root, encoding="unicode"))

    def _disks(self, domain: Any, flags: int) -> list[ET.Element]:
        xml = ET.fromstring(self._connection.call(domain.XMLDesc, flags))  # noqa: S314 libvirt's own
        return xml.findall("./devices/disk")

    def _uses(self, domain: Any, path: str, flags: int) -> bool:
        """Check whether the path is a disk of the guest, or of its next start."""
        return any(disk.find(f"source[@file='{path}']") is not None for disk in self._disks(domain, flags))


def _copy_variables(found: _Files) -> None:
    path = os.path.join(found.directory, disks.NVRAM)
    if os.path.exists(path):
        with open(path, "rb") as file:
            files.write_atomically(found.layer + layers.NVRAM, file.read())
