"""Layers for clones: the root disk of a guest is frozen, and the guest goes on with a new one on top of it.

Of a guest that is off, the file gets a second name, and the new disk its old name. qemu has the file of a running guest
open, so the guest first gets ``disk.new`` by an external snapshot, then an equal ``disk`` by a mirror. Only then do
libvirt and all other parts know each file by the name that it keeps.
"""

from __future__ import annotations

import dataclasses
import os
import xml.etree.ElementTree as ET
from typing import Any

import libvirt

from nova_lite.base import exceptions, files
from nova_lite.image import qcow2
from nova_lite.virt import abilities, images
from nova_lite.virt.libvirt.context import HostPart
from nova_lite.virt.libvirt.disks import disk_usage, disks, layers, transfer
from nova_lite.virt.libvirt.disks.freezes import Freezer
from nova_lite.virt.libvirt.disks.image_cache import ImageCache
from nova_lite.virt.libvirt.disks.incremental import DiskBackups
from nova_lite.virt.libvirt.disks.snapshots import Snapshotter
from nova_lite.virt.libvirt.disks.volumes import is_on
from nova_lite.virt.libvirt.domain import guest_xml
from nova_lite.virt.libvirt.records import file_errors

#: Age in seconds at which a layer without disks is removed. The clone is built long before.
MINIMUM_AGE = 3600.0

_SNAPSHOT = (
    libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_DISK_ONLY
    | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_NO_METADATA
    | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REUSE_EXT
    | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_ATOMIC
)
#: The guest's writes wait for both files, so that the mirror catches up.
_MIRROR = (
    libvirt.VIR_DOMAIN_BLOCK_COPY_SHALLOW
    | libvirt.VIR_DOMAIN_BLOCK_COPY_REUSE_EXT
    | libvirt.VIR_DOMAIN_BLOCK_COPY_TRANSIENT_JOB
    | libvirt.VIR_DOMAIN_BLOCK_COPY_SYNCHRONOUS_WRITES
)


@dataclasses.dataclass(eq=False)
class GuestClones(HostPart, abilities.Clones):
    _cache: ImageCache
    _qemu_img: images.QemuImg
    _mirrors: Snapshotter
    _freezer: Freezer
    _backups: DiskBackups

    @file_errors()
    def freeze(self, instance_uuid: str, clone_uuid: str) -> None:
        """Freeze the disk. Backups know the changes of the disk no longer."""
        domain, info = self._domains.get(instance_uuid)
        directory = self._records.directory(instance_uuid)
        disk, layer = os.path.join(directory, disks.ROOT), self._cache.path(layers.name_of(clone_uuid))
        self._domains.wait_for_job(domain)
        self._settle(domain, directory)
        if os.path.exists(layer) and not os.path.samefile(disk, layer):
            return
        if len(layers.below(disk)) > layers.MOST:
            raise exceptions.VirtDriverError(reason=f"its disk lies on {layers.MOST} layers already")
        self._backups.forget(domain)
        _copy_variables(directory, layer)
        if is_on(info.power_state):
            self._switch(domain, disk, layer)
        else:
            self._rename(domain, disk, layer)
        os.utime(layer)
        files.sync_directory(os.path.dirname(layer))

    @file_errors()
    def settle(self, instance_uuid: str, clone_uuid: str) -> None:
        domain, _ = self._domains.get(instance_uuid)
        directory = self._records.directory(instance_uuid)
        self._domains.wait_for_job(domain)
        self._settle(domain, directory)
        layer = self._cache.path(layers.name_of(clone_uuid))
        if os.path.exists(layer) and os.path.samefile(os.path.join(directory, disks.ROOT), layer):
            os.remove(layer)

    @file_errors()
    def remove_unused(self) -> list[str]:
        return self._cache.remove_unused(
            MINIMUM_AGE, lambda: disk_usage.used_images(self._records.instances_path), layers=True
        )

    def _rename(self, domain: Any, disk: str, layer: str) -> None:
        """Make the disk of a guest that is off the layer. A disk that was not written shares the layer below it."""
        transfer.withdraw(os.path.dirname(disk))
        self._qemu_img.remove_bitmaps(disk)
        header = qcow2.read(disk)
        if header is not None and layers.is_layer(header.backing):
            self._make(disk + layers.NEW, header.backing)
            if layers.is_as_new(disk, disk + layers.NEW):
                os.link(header.backing, layer)
                files.remove(disk + layers.NEW)
                return
        _link(disk, layer)
        self._make(disk + layers.NEW, layer)
        self._define(domain, disk, disk + layers.NEW)
        os.replace(disk + layers.NEW, disk)
        files.sync_directory(os.path.dirname(disk))

    def _switch(self, domain: Any, disk: str, layer: str) -> None:
        """Make the disk of a running guest the layer."""
        device, _ = self._mirrors.root_of(domain, disk)
        _link(disk, layer)
        new = self._make(disk + layers.NEW, layer)
        snapshot = ET.Element("domainsnapshot")
        every = ET.SubElement(snapshot, "disks")
        for name in self._devices(domain):
            if name != device:
                ET.SubElement(every, "disk", name=name, snapshot="no")
        element = ET.SubElement(every, "disk", name=device, snapshot="external")
        ET.SubElement(element, "driver", type="qcow2")
        ET.SubElement(element, "source", file=new)
        with self._freezer.frozen(domain):
            self._connection.call_checked(
                lambda: self._uses(domain, new, 0),
                domain.snapshotCreateXML,
                ET.tostring(snapshot, encoding="unicode"),
                _SNAPSHOT,
            )
        self._settle(domain, os.path.dirname(disk))

    def _settle(self, domain: Any, directory: str) -> None:
        """Give the disk that the guest uses its name, if it has ``disk.new``."""
        disk = os.path.join(directory, disks.ROOT)
        new = disk + layers.NEW
        if not os.path.exists(new):
            return
        runs = is_on(self._domains.state(domain.UUIDString()))
        if runs and self._uses(domain, new, 0):
            self._mirror(domain, new, disk)
        elif not runs and self._uses(domain, new, libvirt.VIR_DOMAIN_XML_INACTIVE):
            os.replace(new, disk)
        files.remove(new)
        self._define(domain, disk, disk)
        files.sync_directory(directory)

    def _mirror(self, domain: Any, new: str, disk: str) -> None:
        """Let a running guest that uses ``new`` use ``disk``, which becomes equal."""
        device, _ = self._mirrors.root_of(domain, new)
        self._mirrors.abort(domain, device)
        below = layers.below(new)
        files.remove(disk)  # the layer is another name of it
        self._make(disk, below[0].path)
        copy = ET.Element("disk", type="file")
        ET.SubElement(copy, "source", file=disk)
        ET.SubElement(copy, "driver", type="qcow2")
        guest_xml.add_backing(copy, below)
        self._mirrors.begin(domain, device, copy, _MIRROR)
        self._mirrors.catch_up(domain, device, lambda: None)
        pivot = libvirt.VIR_DOMAIN_BLOCK_JOB_ABORT_PIVOT
        self._connection.call_checked(lambda: self._uses(domain, disk, 0), domain.blockJobAbort, device, pivot)

    def _make(self, path: str, layer: str) -> str:
        """Make an empty disk on top of a layer, of the layer's size."""
        header = qcow2.read(layer)
        assert header is not None
        files.remove(path)
        self._qemu_img.create_overlay(path, layer, "qcow2", header.size)
        os.chmod(path, 0o600)
        return path

    def _define(self, domain: Any, disk: str, described: str) -> None:
        """Let the guest's next start use ``disk``, on top of what is below ``described``."""
        root = ET.fromstring(self._domains.description(domain))  # noqa: S314 libvirt's own
        for element in root.iterfind("./devices/disk"):
            source = element.find("source")
            if source is None or source.get("file") not in (disk, disk + layers.NEW):
                continue
            source.set("file", disk)
            for store in element.findall("backingStore"):
                element.remove(store)
            guest_xml.add_backing(element, layers.below(described))
        self._domains.define(ET.tostring(root, encoding="unicode"))

    def _devices(self, domain: Any) -> list[str]:
        targets = ET.fromstring(self._connection.call(domain.XMLDesc, 0)).iterfind("./devices/disk/target")  # noqa: S314
        return [target.get("dev", "") for target in targets]

    def _uses(self, domain: Any, path: str, flags: int) -> bool:
        """Check whether the path is a disk of the guest, or of its next start."""
        xml = ET.fromstring(self._connection.call(domain.XMLDesc, flags))  # noqa: S314 libvirt's own
        return any(source.get("file") == path for source in xml.iterfind("./devices/disk/source"))


def _link(disk: str, layer: str) -> None:
    """Give the disk a second name, unless it has it."""
    files.remove(layer)
    os.link(disk, layer)


def _copy_variables(directory: str, layer: str) -> None:
    path = os.path.join(directory, disks.NVRAM)
    if os.path.exists(path):
        with open(path, "rb") as file:
            files.write_atomically(layer + layers.NVRAM, file.read())
