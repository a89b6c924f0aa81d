"""Files of Cinder's volumes that lie on top of each other: a guest moves to a new one, and two become one.

Cinder makes the new file, and removes the files that no guest needs any more. Its names are plain names in the
directory of the file in use. What a command asks for may have happened before: the daemon may have been killed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import libvirt

from nova_lite.base import exceptions
from nova_lite.objects import FileMerge
from nova_lite.operations.states import PowerState
from nova_lite.virt import abilities, images
from nova_lite.virt.libvirt.connection import Connection, LibvirtBusy
from nova_lite.virt.libvirt.disks import volume_chains
from nova_lite.virt.libvirt.disks.snapshots import Snapshotter
from nova_lite.virt.libvirt.disks.volume_chains import QCOW2, File
from nova_lite.virt.libvirt.disks.volumes import (
    CONFIG,
    CONFIG_XML,
    VolumeDevices,
    is_encrypted,
    is_on,
    target_of,
    volume_of,
)
from nova_lite.virt.libvirt.domain import guest_xml
from nova_lite.virt.libvirt.domain.domains import Domains
from nova_lite.virt.libvirt.records import file_errors

POLL_SECONDS = 0.25

SNAPSHOT = (
    libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_DISK_ONLY
    | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REUSE_EXT
    | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_NO_METADATA
    | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_ATOMIC
)


def snapshot_xml(every: Iterable[ET.Element], device: str, path: str) -> str:
    """Return a snapshot of one disk of a guest. The others are named, because libvirt would include them."""
    root = ET.Element("domainsnapshot")
    disks = ET.SubElement(root, "disks")
    for other in every:
        name = target_of(other)
        if name != device:
            ET.SubElement(disks, "disk", name=name, snapshot="no")
            continue
        disk = ET.SubElement(disks, "disk", name=name, snapshot="external", type="file")
        ET.SubElement(disk, "driver", type=QCOW2)
        ET.SubElement(disk, "source", file=path)
    return ET.tostring(root, encoding="unicode")


class VolumeFiles(abilities.VolumeFiles):
    def __init__(
        self,
        connection: Connection,
        domains: Domains,
        volumes: VolumeDevices,
        mirrors: Snapshotter,
        qemu_img: images.QemuImg,
    ) -> None:
        self._connection = connection
        self._domains = domains
        self._volumes = volumes
        self._mirrors = mirrors
        self._qemu_img = qemu_img

    def names(self, instance_uuid: str, volume_id: str) -> list[str]:
        domain, info = self._domains.get(instance_uuid)
        return [file.name for file in self._chain(domain, volume_id, is_on(info.power_state))]

    # --- a new file

    @file_errors()
    def snapshot(self, instance_uuid: str, volume_id: str, new_file: str) -> None:
        domain, info = self._domains.get(instance_uuid)
        on = is_on(info.power_state)
        disk = self._disk(domain, volume_id, on)
        current = _file_of(disk)
        if current.name == new_file:
            return
        new = File(os.path.join(os.path.dirname(current.path), new_file), QCOW2)
        self._check_overlay(new.path, current)
        if not on:
            self._redefine(domain, volume_id, new)
            return
        if disk.find("mirror") is not None:
            raise exceptions.VirtDriverError(reason=f"volume {volume_id} is being copied")
        xml = snapshot_xml(self._volumes.disks(domain, 0), target_of(disk), new.path)
        with self._quiesced(domain, info.power_state):
            self._connection.call_checked(
                lambda: _file_of(self._disk(domain, volume_id, on)) == new, domain.snapshotCreateXML, xml, SNAPSHOT
            )

    def _check_overlay(self, path: str, current: File) -> None:
        """Raise `VirtDriverError` unless Cinder has made this file on top of the current one."""
        volume_chains.require_regular(path)
        info = self._qemu_img.info(path, QCOW2)
        below = os.path.join(os.path.dirname(path), info.backing)
        if (below, info.backing_format) != (current.path, current.format) or len(info.data_files) != 1:
            raise exceptions.VirtDriverError(reason=f"{path} is not on top of {current.path} ({current.format}) alone")

    @contextlib.contextmanager
    def _quiesced(self, domain: Any, power_state: PowerState) -> Iterator[None]:
        """Freeze the file systems of a running guest inside the context. The file systems of a paused guest write
        nothing."""
        if power_state != PowerState.RUNNING:
            yield
            return
        with self._mirrors.quiesced(domain):
            yield

    # --- a merge

    @file_errors()
    def merge(self, instance_uuid: str, volume_id: str, request: FileMerge, check: Callable[[], None]) -> None:
        domain, info = self._domains.get(instance_uuid)
        on = is_on(info.power_state)

        def chain() -> list[File]:
            return self._chain(domain, volume_id, on)

        def is_done() -> bool:
            return request.is_done([file.name for file in chain()])

        if on:
            self._wait(domain, volume_id, check)  # for a merge that a killed daemon has begun
        found = chain()
        if is_done():
            return
        source, target = _places(found, request)
        if not on:
            self._merge_files(found, source, target, check)
            self._redefine(domain, volume_id, found[0])
        elif target is None:
            self._pull(domain, volume_id, source)
        else:
            assert source is not None
            self._commit(domain, volume_id, source, target)
        if on:
            self._wait(domain, volume_id, check)
        if not is_done():
            raise exceptions.VirtDriverError(reason=f"the merge of volume {volume_id}'s files has failed")

    def _pull(self, domain: Any, volume_id: str, base: File | None) -> None:
        """Let the file in use get the data of the files above ``base``. libvirt names ``base`` without its directory
        there."""
        device = target_of(self._disk(domain, volume_id, True))
        path, flags = (None, 0) if base is None else (base.path, libvirt.VIR_DOMAIN_BLOCK_REBASE_RELATIVE)
        self._begin(domain, device, domain.blockRebase, path, 0, flags)

    def _commit(self, domain: Any, volume_id: str, top: File, base: File) -> None:
        """Write the data of ``top`` into ``base``."""
        device = target_of(self._disk(domain, volume_id, True))
        flags = libvirt.VIR_DOMAIN_BLOCK_COMMIT_RELATIVE
        self._begin(domain, device, domain.blockCommit, base.path, top.path, 0, flags)

    def _begin(self, domain: Any, device: str, method: Callable[..., Any], *arguments: Any) -> None:
        self._connection.call_checked(lambda: bool(self._job(domain, device)), method, device, *arguments)

    def _wait(self, domain: Any, volume_id: str, check: Callable[[], None]) -> None:
        """Wait for the end of a job of the volume's disk. ``check`` may end it by raising."""
        device = target_of(self._disk(domain, volume_id, True))
        while self._has_job(domain, device):
            try:
                check()
            except BaseException:
                self._mirrors.abort(domain, device)
                raise
            time.sleep(POLL_SECONDS)

    def _has_job(self, domain: Any, device: str) -> bool:
        try:
            return bool(self._job(domain, device))
        except LibvirtBusy:
            return True

    def _job(self, domain: Any, device: str) -> Any:
        return self._connection.call(domain.blockJobInfo, device, 0)

    def end_merge(self, instance_uuid: str, volume_id: str) -> None:
        domain, info = self._domains.get(instance_uuid)
        if is_on(info.power_state):
            device = target_of(self._disk(domain, volume_id, True))
            if self._job(domain, device):
                self._mirrors.abort(domain, device)

    def _merge_files(
        self, chain: list[File], source: File | None, target: File | None, check: Callable[[], None]
    ) -> None:
        """Merge the files of a guest that is off. Whatever is interrupted here may be done again."""
        if target is None:
            self._qemu_img.rebase(chain[0].path, _base(source), check)
            return
        assert source is not None
        self._qemu_img.commit(source.path, target.path, check)
        for above, below in itertools.pairwise(chain):
            if below == source:
                self._qemu_img.rebase(above.path, _base(target), check, unsafe=True)

    # --- what the guest has

    def _disk(self, domain: Any, volume_id: str, on: bool) -> ET.Element:
        found = [disk for disk in self._volumes.disks(domain, 0 if on else CONFIG_XML) if volume_of(disk) == volume_id]
        if not found:
            raise exceptions.VolumeNotInFiles(volume_id=volume_id, reason="the guest does not have it")
        (disk,) = found
        source = disk.find("source")
        if source is None or not source.get("file") or is_encrypted(disk):
            raise exceptions.VolumeNotInFiles(volume_id=volume_id, reason="its disk has no file, or is encrypted")
        return disk

    def _chain(self, domain: Any, volume_id: str, on: bool) -> list[File]:
        """Return the volume's files, that in use first: as libvirt knows them, or as they are while no guest has
        them."""
        disk = self._disk(domain, volume_id, on)
        chain = [_file_of(disk)]
        if not on:
            return volume_chains.unused(self._qemu_img, volume_id, chain[0])
        store = disk.find("backingStore")
        while store is not None:
            source, kind = store.find("source"), store.find("format")
            if source is None or kind is None:
                break
            volume_chains.append(volume_id, chain, File(source.get("file", ""), kind.get("type", "")))
            store = store.find("backingStore")
        return chain

    def _redefine(self, domain: Any, volume_id: str, file: File) -> None:
        """Let the guest start with this file, and the files that are below it now."""
        below = volume_chains.unused(self._qemu_img, volume_id, file)[1:]
        disk = self._disk(domain, volume_id, False)
        source, driver = disk.find("source"), disk.find("driver")
        assert source is not None and driver is not None
        for store in disk.findall("backingStore"):
            disk.remove(store)
        source.set("file", file.path)
        driver.set("type", file.format)
        guest_xml.add_backing(disk, below)
        self._connection.call(domain.updateDeviceFlags, ET.tostring(disk, encoding="unicode"), CONFIG)


def _file_of(disk: ET.Element) -> File:
    source, driver = disk.find("source"), disk.find("driver")
    assert source is not None
    return File(source.get("file", ""), "raw" if driver is None else driver.get("type", "raw"))


def _places(chain: list[File], request: FileMerge) -> tuple[File | None, File | None]:
    """Return the files that the request names. Raises `VirtDriverError` if the volume has no such files."""
    names = [file.name for file in chain]

    def find(name: str | None) -> File | None:
        if name is not None and name not in names:
            raise exceptions.VirtDriverError(reason=f"the volume has no file {name}, only {', '.join(names)}")
        return None if name is None else chain[names.index(name)]

    source, target = find(request.source), find(request.target)
    below = len(chain) if target is None else chain.index(target)
    if (source is None and target is not None) or (source is not None and not 0 < chain.index(source) < below):
        raise exceptions.VirtDriverError(reason=f"{request.source} cannot be merged; the files are {', '.join(names)}")
    return source, target


def _base(file: File | None) -> tuple[str, str] | None:
    return None if file is None else (file.name, file.format)
