"""Volumes of guests in libvirt.

A volume is identified by its file, whose name is the volume's id, by its device, whose name ends in the id, or else by
the serial number. The serial number is the id, too, except for a volume that has replaced another one in a running
guest. Files of Cinder have other names: the last id there may be that of a snapshot. The running domain and its
definition are changed separately; what has the requested state already is left alone.
"""

from __future__ import annotations

import os
import re
import string
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Collection
from typing import Any

import libvirt

from nova_lite.base import exceptions
from nova_lite.objects import BlockDevice, VolumeSource
from nova_lite.operations.states import PowerState
from nova_lite.virt import abilities
from nova_lite.virt.libvirt.connection import BUSY, Connection, LibvirtFailure
from nova_lite.virt.libvirt.disks import volume_chains
from nova_lite.virt.libvirt.disks.disks import ROLES, volume_disk
from nova_lite.virt.libvirt.disks.secrets import VolumeSecrets
from nova_lite.virt.libvirt.domain import guest_xml
from nova_lite.virt.libvirt.domain.domains import Domains

POLL_SECONDS = 0.25

CONFIG_XML = libvirt.VIR_DOMAIN_XML_INACTIVE
LIVE, CONFIG = libvirt.VIR_DOMAIN_AFFECT_LIVE, libvirt.VIR_DOMAIN_AFFECT_CONFIG

#: libvirt's codes for: it is missing, it is not running, and it is being detached already.
_NOT_THERE = (libvirt.VIR_ERR_DEVICE_MISSING, libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_OPERATION_FAILED)


#: Attributes of a disk's source that end in the volume's id.
_PLACES = ("dev", "name")
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


class VolumeDevices(abilities.Volumes):
    """Volumes of guests.

    ``wait`` is called with the instance's uuid and the disk, before a running guest gets the disk. It waits until
    no other guest has the disk, or raises. ``below`` returns the files below a volume's own; None: it is unknown.
    """

    def __init__(
        self,
        connection: Connection,
        domains: Domains,
        secrets: VolumeSecrets,
        wait: Callable[[str, ET.Element], None] = lambda instance_uuid, disk: None,
        below: Callable[[str, VolumeSource], tuple[volume_chains.File, ...] | None] = lambda volume_id, source: None,
    ) -> None:
        self._connection = connection
        self._domains = domains
        self._secrets = secrets
        self._wait = wait
        self._below = below

    def attach(self, instance_uuid: str, device: BlockDevice, path: VolumeSource) -> None:
        """Attach a volume. On failure neither the guest nor its definition has it.

        The definition is changed first. So a daemon that is killed in between leaves nothing that a restart would
        remove.
        """
        volume_id = str(device.volume_id)
        below = self._below(volume_id, path)
        domain, info = self._domains.get(instance_uuid)
        element = guest_xml.disk_element(volume_disk(device, path, below))
        try:
            self._name(domain, element, volume_id)
            xml = ET.tostring(element, encoding="unicode")
            self._attach(domain, volume_id, xml, CONFIG)
            if is_on(info.power_state):
                if self._find(domain, volume_id, LIVE) is None:
                    self._wait(instance_uuid, element)
                with self._secrets.loaded([volume_id] if is_encrypted(element) else []):
                    self._attach(domain, volume_id, xml, LIVE)
        except (exceptions.VirtDriverError, exceptions.VolumeKeyUnavailable):
            self._forget(domain, volume_id)
            raise

    def _attach(self, domain: Any, volume_id: str, xml: str, where: int) -> None:
        def has() -> bool:
            return self._find(domain, volume_id, where) is not None

        if not has():
            self._connection.call_checked(has, domain.attachDeviceFlags, xml, where)

    def _detach(self, domain: Any, volume_id: str, element: str, where: int, expected: tuple[int, ...] = ()) -> None:
        """Detach a volume, or request the running guest to release it. Errors with ``expected`` codes are ignored."""
        try:
            self._connection.call_checked(
                lambda: self._find(domain, volume_id, where) is None, domain.detachDeviceFlags, element, where
            )
        except LibvirtFailure as error:
            if error.error_code not in expected:
                raise

    def _name(self, domain: Any, element: ET.Element, volume_id: str) -> None:
        """Set the device name, or the next free one: other disks may have taken it."""
        target = element.find("target")
        assert target is not None
        known = self._find(domain, volume_id, CONFIG)
        if known is not None:
            target.set("dev", target_of(ET.fromstring(known)))  # noqa: S314 libvirt's own
            return
        taken = {target_of(disk) for where in (0, CONFIG_XML) for disk in self.disks(domain, where)}
        target.set("dev", free_name(target.get("dev", ""), taken))

    def disks(self, domain: Any, flags: int) -> list[ET.Element]:
        """Return the disks of the running guest (0), or of its definition (`CONFIG_XML`)."""
        try:
            return disks_of(self._connection.call(domain.XMLDesc, flags))
        except LibvirtFailure as error:
            if error.error_code == libvirt.VIR_ERR_NO_DOMAIN:
                raise exceptions.DomainNotFound(instance_uuid=domain.UUIDString()) from error
            raise

    def encrypted(self, domain: Any) -> list[str]:
        """Return the ids of the encrypted volumes of the running guest."""
        return _encrypted(self.disks(domain, 0))

    def _forget(self, domain: Any, volume_id: str) -> None:
        element = self._find(domain, volume_id, CONFIG)
        if element is not None:
            self._detach(domain, volume_id, element, CONFIG, _NOT_THERE)

    def detach(self, instance_uuid: str, volume_id: str, timeout: float) -> None:
        """Detach a volume, first from the running guest: while the guest has the volume, its definition has it, too."""
        domain, info = self._domains.get(instance_uuid)
        if is_on(info.power_state):
            self._wait_until_released(domain, volume_id, timeout)
        element = self._find(domain, volume_id, CONFIG)
        if element is not None:
            self._detach(domain, volume_id, element, CONFIG)

    def _wait_until_released(self, domain: Any, volume_id: str, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        ask_at = time.monotonic()
        while (element := self._find(domain, volume_id, LIVE)) is not None:
            now = time.monotonic()
            if now >= deadline:
                raise exceptions.DeviceDetachFailed(
                    device=volume_id, reason=f"the guest did not release it within {timeout:g} s"
                )
            if now >= ask_at:
                self._detach(domain, volume_id, element, LIVE, (*_NOT_THERE, *BUSY))
                ask_at = now + self._connection.timing.ask_again
            time.sleep(POLL_SECONDS)

    def extend(self, instance_uuid: str, volume_id: str, size: int) -> None:
        try:
            domain, info = self._domains.get(instance_uuid)
        except exceptions.DomainNotFound:
            return
        element = self._find(domain, volume_id, LIVE) if is_on(info.power_state) else None
        if element is None:
            return
        target = ET.fromstring(element).find("target")  # noqa: S314 libvirt's own
        assert target is not None
        grow(self._connection, domain, target.get("dev", ""), size)

    def _find(self, domain: Any, volume_id: str, where: int) -> str | None:
        """Return the disk's XML in the running guest (`LIVE`) or in its definition."""
        for disk in self.disks(domain, CONFIG_XML if where == CONFIG else 0):
            if volume_of(disk) == volume_id:
                return ET.tostring(disk, encoding="unicode")
        return None


def grow(connection: Connection, domain: Any, name: str, size: int) -> None:
    """Give a running guest's disk ``size`` bytes, unless it has more. qemu would shrink it, and the guest lose data."""
    if size >= connection.call(domain.blockInfo, name, 0)[0]:
        connection.call(domain.blockResize, name, size, libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES)


def volume_of(disk: ET.Element) -> str | None:
    """Return the id of the volume that a domain's disk is, if any."""
    if not is_volume(disk):
        return None
    return volume_id_in(disk.find("source")) or disk.findtext("serial")


def volume_id_in(source: ET.Element | None) -> str | None:
    """Return the volume's id from its file, device or name, if possible."""
    if source is None:
        return None
    file = _ID.fullmatch(os.path.basename(source.get("file", "")))
    found = file or next(filter(None, (_ID.search(source.get(name, "")) for name in _PLACES)), None)
    return None if found is None else found[0]


def target_of(disk: ET.Element) -> str:
    """Return the disk's intended name in the guest."""
    target = disk.find("target")
    return "" if target is None else target.get("dev", "")


def free_name(name: str, taken: Collection[str]) -> str:
    """Return ``name``, or the next free name on its bus. Raises `VirtDriverError`."""
    prefix, first = name[:-1], string.ascii_lowercase.index(name[-1])
    for letter in string.ascii_lowercase[first:] + string.ascii_lowercase[:first]:
        if prefix + letter not in taken:
            return prefix + letter
    raise exceptions.VirtDriverError(reason="the guest has the maximum number of disks")


def is_on(power_state: PowerState) -> bool:
    return power_state in (PowerState.RUNNING, PowerState.PAUSED)


def is_volume(disk: ET.Element) -> bool:
    """Check whether a domain's disk is a volume, which other hosts reach, too."""
    return disk.find("serial") is not None


def is_shared(disk: ET.Element) -> bool:
    """Check whether other hosts reach a domain's disk: a volume, or a disk in a pool of Ceph."""
    return is_volume(disk) or disk.get("type") == "network"


def name_of(disk: ET.Element) -> str:
    """Return the name of a domain's disk that is no volume: that of its file, or the end of its image's name."""
    source = disk.find("source")
    if source is None:
        return ""
    return os.path.basename(source.get("file", "")) or source.get("name", "").rpartition("-")[2]


def is_encrypted(disk: ET.Element) -> bool:
    return disk.find("source/encryption") is not None


def encrypted_in(xml: str) -> list[str]:
    """Return the ids of the encrypted volumes in a domain's XML."""
    return _encrypted(disks_of(xml))


def _encrypted(disks: list[ET.Element]) -> list[str]:
    return [str(volume_of(disk)) for disk in disks if is_encrypted(disk) and is_volume(disk)]


def encrypted_roles_in(xml: str) -> list[str]:
    """Return the roles of the encrypted disks in a domain's XML that are no volumes."""
    local = (disk for disk in disks_of(xml) if is_encrypted(disk) and not is_volume(disk))
    return [ROLES[os.path.basename(source.get("file", ""))] for disk in local for source in disk.findall("source")]


def local_targets(xml: str) -> tuple[list[str], bool]:
    """Return the device names of the disks that a live migration has to copy, and whether the guest has others."""
    disks = disks_of(xml)
    names = [target_of(disk) for disk in disks if not is_shared(disk) and disk.find("readonly") is None]
    return names, any(is_shared(disk) for disk in disks)


def all_direct(xml: str) -> bool:
    """Check whether the guest bypasses the page cache for all shared disks, so that another host can take over."""
    drivers = [disk.find("driver") for disk in disks_of(xml) if is_shared(disk)]
    return all(driver is not None and driver.get("cache") == "none" for driver in drivers)


def disks_of(xml: str) -> list[ET.Element]:
    return ET.fromstring(xml).findall("devices/disk")  # noqa: S314 libvirt's own
