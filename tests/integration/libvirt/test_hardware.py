"""Guests that boot on the hardware that their flavor and image request."""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import libvirt
import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.objects import VIF, Image
from nova_lite.operations.states import PowerState
from nova_lite.virt import configdrive
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration.libvirt import hosts
from tests.integration.libvirt.conftest import (
    PATIENCE,
    Images,
    MakeHost,
    assert_nothing_left,
    boot,
    guest_lines,
    guest_spec,
    whole_lines,
)
from tests.integration.libvirt.moves import arriving, instance_path, migrate
from tests.support.guests import make_flavor, make_image
from tests.support.waiting import wait_for

NewVif = Callable[[], VIF]


def with_properties(image: Image, **properties: str) -> Image:
    return msgspec.structs.replace(image, properties={**image.properties, **properties})


def console(driver: LibvirtDriver, instance_uuid: str, pattern: str) -> str:
    def find() -> str:
        found = re.search(pattern, whole_lines(driver, instance_uuid))
        return found[0] if found else ""

    line: str = wait_for(f"{pattern} on the console", find, PATIENCE)
    return line


def test_guest_with_two_sockets_scsi_and_another_nic_boots(
    connection: Any, driver: LibvirtDriver, images: Images, new_vif: NewVif
) -> None:
    """The guest boots from its SCSI disk by its BIOS, configures a NIC without virtio, and finds its config drive.

    It is the same when it is recreated from its disks.
    """
    vif = new_vif()
    image = with_properties(
        images.disk,
        hw_disk_bus="scsi",
        hw_vif_model="vmxnet3",
        hw_video_model="cirrus",
        hw_machine_type="q35",
        hw_watchdog_action="reset",
        hw_pointer_model="usbtablet",
        hw_boot_menu="no",
    )
    spec = guest_spec(images, [vif], image=image, hostname="scsi", config_drive=True)
    spec.instance.flavor = make_flavor(
        vcpus=4,
        memory_mb=192,
        extra_specs={
            "hw:cpu_sockets": "2",
            "hw:cpu_cores": "2",
            "hw:serial_port_count": "2",
            "hw_rng:rate_bytes": "4096",
            "quota:disk_total_iops_sec": "5000",
            "hw:hide_hypervisor_id": "yes",
            "trait:COMPUTE_STORAGE_BUS_SCSI": "required",
        },
    )
    instance_uuid = spec.instance.uuid
    boot(driver, spec)
    assert guest_lines(driver, instance_uuid) == [(instance_uuid, "scsi", vif.address)]
    assert console(driver, instance_uuid, r"Processors: \d+") == "Processors: 4"
    assert console(driver, instance_uuid, r"Sockets: \d+") == "Sockets: 2"

    def defined() -> str:
        """Return the definition. Controllers are sorted: libvirt appends its own ones."""
        xml = connection.lookupByUUIDString(instance_uuid).XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
        root = ET.fromstring(re.sub("<novalite:created>.*</novalite:created>", "", xml))
        devices = root.find("devices")
        assert devices is not None
        devices[:] = sorted(devices, key=lambda item: (item.tag, item.get("type", ""), int(item.get("index", "0"))))
        return ET.canonicalize(ET.tostring(root, encoding="unicode"), strip_text=True)

    before = defined()
    driver.definitions.renew(spec)
    assert defined() == before
    driver.definitions.renew(msgspec.structs.replace(spec, image=with_properties(image, hw_watchdog_action="pause")))
    assert defined() == before.replace('action="reset"', 'action="pause"') != before
    driver.definitions.renew(spec)
    driver.power.reboot(instance_uuid, "HARD", 0)
    assert len(guest_lines(driver, instance_uuid, 2)) == 2
    connection.lookupByUUIDString(instance_uuid).destroy()
    connection.lookupByUUIDString(instance_uuid).undefine()
    driver.definitions.recreate(spec)
    assert defined() == before
    driver.guests.destroy(instance_uuid)
    driver.networks.unplug(instance_uuid)
    assert_nothing_left(connection, driver, spec)


@pytest.mark.parametrize("secure", ["disabled", "required"])
def test_uefi_guest_keeps_its_firmware_variables(
    connection: Any, driver: LibvirtDriver, images: Images, blank: Image, secure: str
) -> None:
    trait = "COMPUTE_FIRMWARE_UEFI" if secure == "disabled" else "COMPUTE_SECURITY_UEFI_SECURE_BOOT"
    if trait not in driver.machine.inventory().capabilities["traits"]:
        pytest.skip("no OVMF here (package ovmf)")
    image = with_properties(blank, hw_firmware_type="uefi", os_secure_boot=secure)
    spec = guest_spec(images, [], image=image, memory_mb=256)
    instance_uuid = spec.instance.uuid
    boot(driver, spec)
    console(driver, instance_uuid, "BdsDxe")
    directory = Path(driver._records.directory(instance_uuid))
    variables = directory / "nvram.fd"
    assert variables.stat().st_size > 0
    loader = ET.fromstring(connection.lookupByUUIDString(instance_uuid).XMLDesc()).find("os/loader")
    assert loader is not None
    assert loader.get("secure", "no") == ("yes" if secure == "required" else "no")

    driver.moves.set_aside(instance_uuid, 0)
    assert "nvram.fd" in os.listdir(f"{directory}@aside")
    driver.moves.restore(instance_uuid)
    driver.power.on(instance_uuid)
    assert driver.guests.get(instance_uuid).power_state == PowerState.RUNNING
    driver.guests.destroy(instance_uuid)
    assert_nothing_left(connection, driver, spec)


def test_host_without_a_requested_trait_creates_nothing(
    connection: Any, driver: LibvirtDriver, images: Images, blank: Image
) -> None:
    spec = guest_spec(images, [], image=with_properties(blank, **{"trait:CUSTOM_GOLD": "required"}))
    with pytest.raises(exceptions.VirtDriverError, match="lacks requested traits: CUSTOM_GOLD"):
        driver.guests.spawn(spec)
    assert_nothing_left(connection, driver, spec)


def test_stable_rescue_disk_keeps_the_places_of_others(
    connection: Any, driver: LibvirtDriver, images: Images, new_vif: NewVif
) -> None:
    vif = new_vif()
    spec = guest_spec(images, [vif], image=images.disk, hostname="stable", config_drive=True)
    instance_uuid = spec.instance.uuid
    boot(driver, spec)
    assert len(guest_lines(driver, instance_uuid)) == 1
    for device, bus, name in (("disk", "scsi", "sda"), ("cdrom", "ide", "hda")):
        properties = {"hw_rescue_bus": bus, "hw_rescue_device": device}
        rescue = guest_spec(images, [vif], image=with_properties(images.disk, **properties))
        rescue.instance = spec.instance
        driver.rescue.start(rescue, 0)
        assert driver.guests.get(instance_uuid).power_state == PowerState.RUNNING
        disks = ET.fromstring(connection.lookupByUUIDString(instance_uuid).XMLDesc()).findall("devices/disk")
        names = [(disk.find("target").get("dev"), disk.find("boot") is not None) for disk in disks]  # type: ignore[union-attr]
        assert sorted(names) == sorted([(name, True), ("vda", False), ("vdb", False)])
        assert disks[-1].get("device") == device
        if device == "disk":
            assert len(guest_lines(driver, instance_uuid, 2)) == 2
    driver.rescue.end(instance_uuid)
    driver.guests.destroy(instance_uuid)
    driver.networks.unplug(instance_uuid)
    assert_nothing_left(connection, driver, spec)


def test_iso_image_is_a_drive(connection: Any, driver: LibvirtDriver, images: Images, directory: Path) -> None:
    path = directory / "cd.iso"
    configdrive.write_iso(str(path), {"README": b"nothing to boot"})
    spec = guest_spec(images, [], image=make_image(path, "iso"))
    boot(driver, spec)
    disk = ET.fromstring(connection.lookupByUUIDString(spec.instance.uuid).XMLDesc()).find("devices/disk")
    assert disk is not None
    assert (disk.get("device"), disk.find("target").get("bus")) == ("cdrom", "ide")  # type: ignore[union-attr]
    assert driver.guests.get(spec.instance.uuid).power_state == PowerState.RUNNING
    driver.guests.destroy(spec.instance.uuid)
    assert_nothing_left(connection, driver, spec)


def hardware(driver: LibvirtDriver, instance_uuid: str) -> list[tuple[str, str]]:
    """Return the elements of a domain's hardware that do not depend on its host."""
    connection = libvirt.open(driver.conf.libvirt.connection_uri)
    try:
        domain = ET.fromstring(connection.lookupByUUIDString(instance_uuid).XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    finally:
        connection.close()
    found = [domain.find("os/type"), *domain.iterfind("devices/disk/target"), *domain.iterfind("devices/controller")]
    return [(element.tag, str(sorted(element.items()))) for element in found if element is not None]


@pytest.mark.parametrize("disk_format", ["raw", "iso"])
def test_uefi_guest_takes_its_variables_to_other_hosts(
    make_host: MakeHost,
    images: Images,
    directory: Path,
    disk_format: str,
) -> None:
    """The guest moves by live migration, and back by cold migration."""
    path = directory / f"uefi.{disk_format}"
    if disk_format == "iso":
        configdrive.write_iso(str(path), {"README": b"nothing to boot"})
    else:
        path.write_bytes(bytes(1024**2))
    here = make_host("here", hosts.HERE, live_migration_uri=hosts.URI)
    there = make_host("there", hosts.THERE, live_migration_uri=hosts.URI)
    properties = {"hw_firmware_type": "uefi", "hw_disk_bus": "scsi", "hw_machine_type": "q35"}
    image = make_image(path, disk_format, properties=properties)
    spec = guest_spec(images, [], image=image, memory_mb=256)
    instance_uuid = spec.instance.uuid
    here.guests.spawn(spec)
    console(here, instance_uuid, "BdsDxe")
    before = hardware(here, instance_uuid)

    migrate(here, there, arriving(spec, 2))
    assert there.guests.get(instance_uuid).power_state == PowerState.RUNNING
    assert hardware(there, instance_uuid) == before
    variables = instance_path(there, spec) / "nvram.fd"
    assert variables.stat().st_size > 0
    here.guests.destroy(instance_uuid)

    source = there.moves.offer_disks(instance_uuid, 0)
    content = variables.read_bytes()
    here.moves.finish(arriving(spec, 3), source, power_on=False)
    assert (instance_path(here, spec) / "nvram.fd").read_bytes() == content
    assert hardware(here, instance_uuid) == before
    here.power.on(instance_uuid)
    assert here.guests.get(instance_uuid).power_state == PowerState.RUNNING
