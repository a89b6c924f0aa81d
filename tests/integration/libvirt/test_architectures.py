"""Guests of the architecture aarch64, which this host emulates: real ones, and their settings in the real libvirt.

The test command starts each 24th value, `NOVA_LITE_LONG=1` all of them.
"""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import libvirt
import msgspec
import pytest

from nova_lite import hardware
from nova_lite.base import exceptions
from nova_lite.hardware import table
from nova_lite.hardware.definition import Definition, Outcome
from nova_lite.objects import HOST_CPU, VIF, HostCpu, Image
from nova_lite.virt.libvirt.disks.disks import Disk, DiskSet
from nova_lite.virt.libvirt.domain import consoles, guest_xml, hardware_page
from tests.integration import guest_image, scripts
from tests.integration.libvirt import hosts
from tests.integration.libvirt.conftest import (
    IS_LONG,
    LONG,
    Images,
    MakeDriver,
    MakeHost,
    assert_nothing_left,
    boot,
    define,
    guest_lines,
    guest_spec,
    whole_lines,
)
from tests.integration.libvirt.moves import arriving, counts, migrate, wait_for_count
from tests.support.guests import make_flavor, make_instance, make_network, make_spec, make_vif

pytestmark = pytest.mark.skipif(
    shutil.which("qemu-system-aarch64") is None or not Path("/usr/share/AAVMF").is_dir(),
    reason="qemu-system-arm or qemu-efi-aarch64 is not installed",
)

ARM = {"hw_emulation_architecture": "aarch64"}
OPTIONS = {"libvirt__emulated_architectures": ["aarch64"]}

#: Every how many values one is tried.
STEP = 1 if IS_LONG else 24

#: Values of image properties. What aarch64 lacks is refused.
VALUES = {
    "hw_machine_type": ("virt", "virt-7.2", "pc", "q35"),
    "hw_disk_bus": ("virtio", "scsi", "usb", "sata", "ide"),
    "hw_cdrom_bus": ("scsi", "usb", "sata", "ide"),
    "hw_scsi_model": ("virtio-scsi", "lsilogic", "lsisas1068", "lsisas1078"),
    "hw_vif_model": ("virtio", "e1000", "e1000e", "ne2k_pci", "pcnet", "rtl8139", "vmxnet3"),
    "hw_video_model": ("vga", "cirrus", "virtio", "bochs", "vmvga", "none", "qxl"),
    "hw_input_bus": ("usb", "virtio"),
    "hw_sound_model": ("es1370", "ac97", "ich6", "ich9", "usb", "sb16", "pcspk"),
    "hw_usb_model": ("qemu-xhci", "nec-xhci", "piix3-uhci"),
    "hw_watchdog_action": ("none", "pause", "reset"),
    "hw_pmu": ("yes", "no"),
    "hw_boot_menu": ("yes",),
    "hw_virtio_packed_ring": ("yes",),
    "hw_vif_multiqueue_enabled": ("yes",),
    "hw_qemu_guest_agent": ("yes",),
    "hw_cpu_threads": ("2",),
    "os_type": ("windows",),
    "os_secure_boot": ("optional", "required"),
    "hw_firmware_type": ("uefi", "bios"),
    "hw_serial_port_count": ("1", "2"),
}
SETTINGS = [(name, value) for name, values in VALUES.items() for value in values]


@pytest.mark.parametrize("definition", [item for item in table.DEFINITIONS if item.outcome is Outcome.HONOURED])
def test_example_of_each_setting_is_defined_or_refused(connection: Any, definition: Definition) -> None:
    try:
        xml = hardware_page.xml(definition.specs, {**definition.properties, **ARM})
    except exceptions.HardwareRefused as error:
        assert "hw_emulation_architecture=aarch64 cannot" in error.message or "virt machine has no" in error.message
        return
    assert 'arch="aarch64"' in xml
    domain = connection.defineXMLFlags(xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
    domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_NVRAM)


@pytest.mark.parametrize(("name", "value"), SETTINGS[::STEP])
def test_accepted_value_starts(connection: Any, directory: Path, name: str, value: str) -> None:
    disk_format = "iso" if name == "hw_cdrom_bus" else "raw"
    more = {"hw_disk_bus": "scsi"} if name == "hw_scsi_model" else {}
    image = Image(id="i", name="i", disk_format=disk_format, properties={**ARM, **more, name: value})
    flavor = make_flavor(vcpus=4, memory_mb=128)
    try:
        hardware.resolve(flavor, image)
    except exceptions.HardwareRefused as error:
        assert error.code == 400
        return
    path = directory / "aarch64.img"
    path.write_bytes(bytes(1024**2))
    spec = make_spec(instance=make_instance(flavor=flavor), image=image)
    disks = DiskSet(disks=[Disk(path=str(path), device="vda", format="raw")], direct_boot=None)
    vif = make_vif(network=make_network(bridge="unused"))
    xml = ET.fromstring(
        guest_xml.guest_xml(
            msgspec.structs.replace(spec, vifs=[vif]), "h", str(directory), disks, "qemu", 32,
            consoles.Listeners(vnc="127.0.0.1"), given=guest_xml.Host(spare_ports=2),
        )
    )  # fmt: skip
    interface = xml.find("devices/interface")
    assert interface is not None
    interface.set("type", "ethernet")  # a tap device without a bridge
    for element in interface.findall("source"):
        interface.remove(element)
    define(connection, ET.tostring(xml, encoding="unicode"))


@pytest.fixture(scope="session")
def arm(directory: Path) -> Images:
    images = Images(guest_image.build_arm(directory))
    for image in (images.ami, images.disk):
        image.properties.update(ARM)
    return images


def test_guest_boots_with_its_network_and_config_drive(
    connection: Any, make_driver: MakeDriver, arm: Images, new_vif: Callable[[], VIF]
) -> None:
    driver = make_driver("arm", **OPTIONS)
    assert "COMPUTE_ARCH_AARCH64" in driver.machine.inventory().capabilities["traits"]
    vif = new_vif()
    spec = guest_spec(arm, [vif], hostname="arm", config_drive=True, memory_mb=256)
    instance_uuid = spec.instance.uuid
    boot(driver, spec)
    assert guest_lines(driver, instance_uuid) == [(instance_uuid, "arm", vif.address)]
    assert " aarch64\r\n" in whole_lines(driver, instance_uuid)
    driver.power.reboot(instance_uuid, "HARD", 0)
    assert len(guest_lines(driver, instance_uuid, 2)) == 2
    driver.power.off(instance_uuid, 60)
    driver.guests.destroy(instance_uuid)
    driver.networks.unplug(instance_uuid)
    assert_nothing_left(connection, driver, spec)


@pytest.mark.parametrize("bus", ["virtio", pytest.param("scsi", marks=LONG), pytest.param("usb", marks=LONG)])
def test_firmware_boots_a_disk(make_driver: MakeDriver, arm: Images, bus: str) -> None:
    driver = make_driver("arm", **OPTIONS)
    image = msgspec.structs.replace(arm.disk, properties={**arm.disk.properties, "hw_disk_bus": bus})
    spec = guest_spec(arm, [], image, memory_mb=256)
    driver.guests.spawn(spec)
    assert guest_lines(driver, spec.instance.uuid)[0][0] == spec.instance.uuid


def test_host_that_does_not_emulate_the_architecture_creates_nothing(
    connection: Any, make_driver: MakeDriver, arm: Images
) -> None:
    driver = make_driver("plain")
    spec = guest_spec(arm, [])
    with pytest.raises(exceptions.VirtDriverError, match="lacks requested traits: COMPUTE_ARCH_AARCH64"):
        driver.guests.spawn(spec)
    assert_nothing_left(connection, driver, spec)


def test_guest_moves_live_to_a_host_that_emulates_it_and_to_no_other(make_host: MakeHost, arm: Images) -> None:
    options = {"live_migration_uri": hosts.URI, "emulated_architectures": ["aarch64"]}
    here, there = make_host("here", hosts.HERE, **options), make_host("there", hosts.THERE, **options)
    other = make_host("other", hosts.THERE, live_migration_uri=hosts.URI)
    spec = guest_spec(arm, [], config_drive=True, user_data=scripts.user_data(scripts.COUNTS), memory_mb=256)
    here.guests.spawn(spec)
    wait_for_count(here, spec, 1)
    source = here.live_moves.check_source(spec.instance.uuid)
    assert source.guest_cpu is not None
    assert (source.guest_cpu.virt_type, source.cpu_xml) == ("", "")
    machine = source.guest_cpu.machine
    assert machine in msgspec.convert(there.machine.inventory().capabilities[HOST_CPU], HostCpu).machines.split()
    with pytest.raises(exceptions.MigrationPreCheckError, match=f"it has no machine type {machine}"):
        other.live_moves.check_destination(source)
    before, moved = counts(here, spec)[-1][0], arriving(spec)
    migrate(here, there, moved)
    there.live_moves.finish(spec.instance.uuid)
    wait_for_count(there, moved, before + 10)
    assert counts(there, moved)[0][0] > before, "it started again from zero"
