"""Guests that boot from a rescue image, with their own disks attached.

While a guest is rescued, ``unrescue.xml`` in its directory is its unchanged original domain. It is written before any
change, and removed last. ``disk.rescue`` and ``disk.config.rescue`` belong to the rescue system.
"""

from __future__ import annotations

import os
import string
import xml.etree.ElementTree as ET

import libvirt

from nova_lite.base import exceptions, files
from nova_lite.hardware import RescueDisk, check_rescue, guest
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.connection import Connection
from nova_lite.virt.libvirt.disks import volumes
from nova_lite.virt.libvirt.disks.disks import CONFIG_DRIVE, RESCUE, RESCUE_CONFIG_DRIVE, DiskMaker, DiskSet
from nova_lite.virt.libvirt.disks.pool_disks import PoolDisks
from nova_lite.virt.libvirt.domain import guest_xml, hardware_xml
from nova_lite.virt.libvirt.domain.domains import Domains
from nova_lite.virt.libvirt.records import Records, pooled_in

SAVED = "unrescue.xml"


class RescueBoot:
    def __init__(
        self, connection: Connection, domains: Domains, records: Records, disks: DiskMaker, pool: PoolDisks
    ) -> None:
        self._connection = connection
        self._domains = domains
        self._records = records
        self._disks = disks
        self._pool = pool

    def is_rescued(self, instance_uuid: str) -> bool:
        """Check whether the guest is rescued, or on the way to or from it."""
        return os.path.exists(self._saved(instance_uuid))

    def define(self, spec: SpawnSpec) -> None:
        """Make the domain, which is off, boot from the rescue image. On failure it is unchanged."""
        instance_uuid = spec.instance.uuid
        directory = self._records.directory(instance_uuid)
        if not self.is_rescued(instance_uuid):
            domain, _ = self._domains.get(instance_uuid)
            xml: str = self._connection.call(
                domain.XMLDesc, libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
            )
            files.write_atomically(self._saved(instance_uuid), xml.encode())
        try:
            key, original = pooled_in(directory), self._read(instance_uuid)
            if key is not None:
                disks = self._pool.make_rescue(key, directory, spec)
            else:
                disks = self._disks.make_rescue(directory, spec, bool(volumes.encrypted_roles_in(original)))
            self._domains.define(rescue_xml(original, disks, check_rescue(spec.image, strict=False)))
        except (exceptions.NovaLiteException, OSError):
            self.restore(instance_uuid)
            raise

    def restore(self, instance_uuid: str) -> None:
        """Restore the original domain, which is off, and remove the rescue files. Do nothing if it is not rescued."""
        if not self.is_rescued(instance_uuid):
            return
        self._domains.define(self._read(instance_uuid))
        self.forget(instance_uuid)

    def forget(self, instance_uuid: str) -> None:
        """Remove the disks and files of a rescue whose domain is gone, if any."""
        key = pooled_in(self._records.directory(instance_uuid))
        if key is not None and self.is_rescued(instance_uuid):
            self._pool.remove_rescue(key)
        for name in (RESCUE, RESCUE_CONFIG_DRIVE, SAVED):
            files.remove(os.path.join(self._records.directory(instance_uuid), name))

    def _saved(self, instance_uuid: str) -> str:
        return os.path.join(self._records.directory(instance_uuid), SAVED)

    def _read(self, instance_uuid: str) -> str:
        with open(self._saved(instance_uuid), encoding="utf-8") as file:
            return file.read()


def rescue_xml(domain_xml: str, rescue: DiskSet, how: RescueDisk) -> str:
    """Return the domain's XML with the rescue disk first and its own disks after it.

    The rescue system's config drive, if any, replaces the original one. Disks get new addresses, because guests name
    them by these. If the image requests a certain bus or device for the rescue disk (``how.stable``), that disk comes
    last, and the others keep their places. A machine without room on its IDE bus has a SATA bus for the rescue system.
    """
    domain = ET.fromstring(domain_xml)  # noqa: S314 our own domain, out of libvirt's parsed tree
    os_element, devices = domain.find("os"), domain.find("devices")
    assert os_element is not None and devices is not None
    for tag in ("boot", "kernel", "initrd", "cmdline"):
        for element in os_element.findall(tag):
            os_element.remove(element)
    for device in devices.findall("*/boot/.."):
        for element in device.findall("boot"):
            device.remove(element)
    root, *config_drives = (guest_xml.disk_element(disk) for disk in rescue.disks)
    if how.cdrom:
        hardware_xml.make_drive(root)
    own = devices.findall("disk")
    for disk in own:
        devices.remove(disk)
    original = [disk for disk in own if not (config_drives and volumes.name_of(disk) == CONFIG_DRIVE)]
    first_bus = _bus(own[0]) if own else guest.VIRTIO
    bus, instead = how.bus or guest.IDE, hardware_xml.without_ide(_machine(os_element))
    free_places = 0 if instead else guest.IDE_PLACES - sum(_bus(disk) == guest.IDE for disk in original)
    for element in (root, *config_drives):
        wanted = bus if element is root else first_bus
        if wanted == guest.IDE and free_places <= 0:
            wanted = instead or guest.SATA
        free_places -= wanted == guest.IDE
        hardware_xml.set_bus(element, wanted)
    every = [*original, *config_drives, root] if how.stable else [root, *original, *config_drives]
    _name(every, keep=original if how.stable else [])
    for position, disk in enumerate(every):
        devices.insert(position, disk)
    if how.stable and rescue.direct_boot is None:
        ET.SubElement(root, "boot", order="1")
    else:
        guest_xml.add_boot(os_element, rescue.direct_boot, how.cdrom)
    hardware_xml.add_controllers(devices, {_bus(disk) for disk in every})
    return ET.tostring(domain, encoding="unicode")


def _name(disks: list[ET.Element], keep: list[ET.Element]) -> None:
    """Give disks the first free names of their buses, in order. Disks in ``keep`` keep theirs."""
    taken = {_target(disk).get("dev") for disk in keep}
    for disk in disks:
        if disk in keep:
            continue
        address = disk.find("address")
        if address is not None:
            disk.remove(address)
        names = (hardware_xml.device(f"vd{letter}", _bus(disk)) for letter in string.ascii_lowercase)
        name = next(name for name in names if name not in taken)
        taken.add(name)
        _target(disk).set("dev", name)


def _machine(os_element: ET.Element) -> str:
    kind = os_element.find("type")
    return "" if kind is None else kind.get("machine", "")


def _target(disk: ET.Element) -> ET.Element:
    target = disk.find("target")
    assert target is not None
    return target


def _bus(disk: ET.Element) -> str:
    return _target(disk).get("bus", guest.VIRTIO)
