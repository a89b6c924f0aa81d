"""Volumes of guests as libvirt has them: known by their files, which end in the volume's id, else by the serial number,
which is the id, too, but for one that took another's place in a guest that runs.

They come and go in the domain as it runs and in its definition, each of which has them or not; what is so already is
left alone.
"""

from __future__ import annotations

import re
import string
import time
import xml.etree.ElementTree as ET
from collections.abc import Collection
from typing import Any

import libvirt

from nova_lite.base import exceptions
from nova_lite.objects import BlockDevice, VolumeSource
from nova_lite.operations.states import PowerState
from nova_lite.virt.libvirt.connection import Connection, LibvirtFailure
from nova_lite.virt.libvirt.disks.disks import volume_disk
from nova_lite.virt.libvirt.domain import guest_xml
from nova_lite.virt.libvirt.domain.domains import Domains

#: A guest that does not hear (it is booting) is asked again.
ASK_AGAIN_SECONDS = 5.0
POLL_SECONDS = 0.25

CONFIG_XML = libvirt.VIR_DOMAIN_XML_INACTIVE
LIVE, CONFIG = libvirt.VIR_DOMAIN_AFFECT_LIVE, libvirt.VIR_DOMAIN_AFFECT_CONFIG

#: libvirt's words for: it is not there, it is not running, and it is being detached already.
_NOT_THERE = (libvirt.VIR_ERR_DEVICE_MISSING, libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_OPERATION_FAILED)


#: What a source of a disk is called by, and the id that it ends in.
_PLACES = ("file", "dev", "name")
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


class VolumeDevices:
    def __init__(self, connection: Connection, domains: Domains) -> None:
        self._connection = connection
        self._domains = domains

    def attach(self, instance_uuid: str, device: BlockDevice, path: VolumeSource) -> None:
        """First the definition, so that a daemon that is killed between leaves nothing that a restart would take away;
        on failure both are without it."""
        domain, info = self._domains.get(instance_uuid)
        volume_id = str(device.volume_id)
        element = guest_xml.disk_element(volume_disk(device, path))
        try:
            self._name(domain, element, volume_id)
            xml = ET.tostring(element, encoding="unicode")
            if self._find(domain, volume_id, CONFIG) is None:
                self._connection.call(domain.attachDeviceFlags, xml, CONFIG)
            if is_on(info.power_state) and self._find(domain, volume_id, LIVE) is None:
                self._connection.call(domain.attachDeviceFlags, xml, LIVE)
        except exceptions.VirtDriverError:
            self._forget(domain, volume_id)
            raise

    def _name(self, domain: Any, element: ET.Element, volume_id: str) -> None:
        """Its name, or the next one that is free: local disks have the names that were free when they were made, and
        volumes have come and gone since."""
        target = element.find("target")
        assert target is not None
        known = self._find(domain, volume_id, CONFIG)
        if known is not None:
            target.set("dev", target_of(ET.fromstring(known)))  # noqa: S314 libvirt's own
            return
        taken = {target_of(disk) for where in (0, CONFIG_XML) for disk in self.disks(domain, where)}
        target.set("dev", free_name(target.get("dev", ""), taken))

    def disks(self, domain: Any, flags: int) -> list[ET.Element]:
        """Those of the guest that runs (0), or of its definition (`CONFIG_XML`)."""
        try:
            return disks_of(self._connection.call(domain.XMLDesc, flags))
        except LibvirtFailure as error:
            if error.error_code == libvirt.VIR_ERR_NO_DOMAIN:
                raise exceptions.DomainNotFound(instance_uuid=domain.UUIDString()) from error
            raise

    def _forget(self, domain: Any, volume_id: str) -> None:
        element = self._find(domain, volume_id, CONFIG)
        if element is not None:
            self._connection.call_unless(_NOT_THERE, domain.detachDeviceFlags, element, CONFIG)

    def detach(self, instance_uuid: str, volume_id: str, timeout: float) -> None:
        """The running guest first: while it has the volume, so has its definition."""
        domain, info = self._domains.get(instance_uuid)
        if is_on(info.power_state):
            self._have_released(domain, volume_id, timeout)
        element = self._find(domain, volume_id, CONFIG)
        if element is not None:
            self._connection.call(domain.detachDeviceFlags, element, CONFIG)

    def _have_released(self, domain: Any, volume_id: str, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        ask_at = time.monotonic()
        while (element := self._find(domain, volume_id, LIVE)) is not None:
            now = time.monotonic()
            if now >= deadline:
                raise exceptions.DeviceDetachFailed(
                    device=volume_id, reason=f"the guest did not release it within {timeout:g} s"
                )
            if now >= ask_at:
                self._connection.call_unless(_NOT_THERE, domain.detachDeviceFlags, element, LIVE)
                ask_at = now + ASK_AGAIN_SECONDS
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
        name = target.get("dev", "")
        self._connection.call(domain.blockResize, name, size, libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES)

    def _find(self, domain: Any, volume_id: str, where: int) -> str | None:
        """The disk's XML, in the guest that runs (`LIVE`) or in its definition."""
        for disk in self.disks(domain, CONFIG_XML if where == CONFIG else 0):
            if volume_of(disk) == volume_id:
                return ET.tostring(disk, encoding="unicode")
        return None


def volume_of(disk: ET.Element) -> str | None:
    """The id of the volume that a domain's disk is, if it is one."""
    if not is_volume(disk):
        return None
    return id_in(disk.find("source")) or disk.findtext("serial")


def id_in(source: ET.Element | None) -> str | None:
    """The id of the volume whose file, device or name it is, where that tells."""
    places = [] if source is None else [source.get(name, "") for name in _PLACES]
    found = next(filter(None, map(_ID.search, places)), None)
    return None if found is None else found[0]


def target_of(disk: ET.Element) -> str:
    """What its guest is meant to call it."""
    target = disk.find("target")
    return "" if target is None else target.get("dev", "")


def free_name(wanted: str, taken: Collection[str]) -> str:
    """``wanted``, or the first name behind it on its bus that is not taken. Raises `VirtDriverError`."""
    prefix, first = wanted[:-1], string.ascii_lowercase.index(wanted[-1])
    for letter in string.ascii_lowercase[first:] + string.ascii_lowercase[:first]:
        if prefix + letter not in taken:
            return prefix + letter
    raise exceptions.VirtDriverError(reason="the guest has as many disks as it may")


def is_on(power_state: PowerState) -> bool:
    return power_state in (PowerState.RUNNING, PowerState.PAUSED)


def is_volume(disk: ET.Element) -> bool:
    """Of a domain's disk: other hosts reach it, too."""
    return disk.find("serial") is not None


def local_targets(xml: str) -> tuple[list[str], bool]:
    """The guest's names of the disks that a live migration has to bring, and whether it has any volumes."""
    disks = disks_of(xml)
    names = [target_of(disk) for disk in disks if not is_volume(disk) and disk.find("readonly") is None]
    return names, any(is_volume(disk) for disk in disks)


def are_direct(xml: str) -> bool:
    """Whether the guest writes to all its volumes past its host's page cache, so that another host can go on."""
    drivers = [disk.find("driver") for disk in disks_of(xml) if is_volume(disk)]
    return all(driver is not None and driver.get("cache") == "none" for driver in drivers)


def disks_of(xml: str) -> list[ET.Element]:
    return ET.fromstring(xml).findall("devices/disk")  # noqa: S314 libvirt's own
