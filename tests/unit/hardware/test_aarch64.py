"""Guests of the architecture aarch64: the hardware that they have, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from nova_lite import hardware
from nova_lite.base import exceptions
from nova_lite.hardware.guest import Hardware
from nova_lite.objects import BlockDevice, Flavor, Image
from nova_lite.objects.block_device import DeviceSource

ARM = {"hw_emulation_architecture": "aarch64"}


def image(disk_format: str = "raw", **properties: str) -> Image:
    return Image(id="i", name="i", disk_format=disk_format, properties=properties)


def flavor(**specs: str) -> Flavor:
    return Flavor(flavorid="1", name="f", vcpus=2, memory_mb=512, root_gb=1, extra_specs=specs)


def make(specs: dict[str, str], properties: dict[str, str], **values: Any) -> Hardware:
    return hardware.resolve(flavor(**specs), image(**ARM, **properties, **values))


def test_guest_has_the_machine_firmware_and_keyboard_of_its_architecture() -> None:
    made = make({}, {})
    assert (made.architecture, made.machine_type, made.uefi, made.is_arm) == ("aarch64", "virt", True, True)
    assert (made.tablet, made.keyboard) == ("usb", "usb")
    assert make({}, {"hw_machine_type": "virt-7.2", "hw_firmware_type": "uefi"}).machine_type == "virt-7.2"
    assert make({}, {"hw_input_bus": "virtio"}).keyboard == "virtio"


def test_guest_needs_a_host_that_emulates_it_and_no_firmware_of_the_hosts_architecture() -> None:
    assert make({}, {}).traits == {"COMPUTE_ARCH_AARCH64": "required"}
    native = hardware.resolve(flavor(), image(hw_emulation_architecture="x86_64", hw_firmware_type="uefi"))
    assert set(native.traits) == {"COMPUTE_ARCH_X86_64", "COMPUTE_FIRMWARE_UEFI"}
    assert not native.is_arm


@pytest.mark.parametrize(
    ("specs", "properties", "reason"),
    [
        ({}, {"hw_machine_type": "q35"}, "hw_machine_type=q35, only virt or one of its versions."),
        ({}, {"hw_firmware_type": "bios"}, "hw_firmware_type=bios, only uefi."),
        ({"os:secure_boot": "required"}, {}, "os:secure_boot=required, only disabled, optional."),
        ({}, {"hw_time_hpet": "yes"}, "hw_time_hpet=yes, only no."),
        ({"hw:hide_hypervisor_id": "on"}, {}, "hw:hide_hypervisor_id=on, only no."),
        ({"hw:maxphysaddr_mode": "passthrough"}, {}, "hw:maxphysaddr_mode=passthrough."),
        ({}, {"hw_scsi_model": "lsilogic"}, "hw_scsi_model=lsilogic, only virtio-scsi."),
        ({}, {"hw_video_model": "qxl"}, "hw_video_model=qxl, only vga, cirrus, virtio, bochs, vmvga, none."),
        ({"hw:sound_model": "sb16"}, {}, "hw:sound_model=sb16, only es1370, ac97, ich6, ich9, usb."),
        ({"hw:serial_port_count": "2"}, {}, "hw:serial_port_count=2, only a number from 0 to 1."),
        ({}, {"hw_tpm_version": "1.2"}, "hw_tpm_version=1.2, only 2.0."),
        ({"hw:tpm_version": "2.0", "hw:tpm_model": "tpm-crb"}, {}, "hw:tpm_model=tpm-crb, only tpm-tis."),
    ],
)
def test_hardware_that_the_architecture_lacks_is_refused(
    specs: dict[str, str], properties: dict[str, str], reason: str
) -> None:
    with pytest.raises(exceptions.HardwareRefused) as caught:
        make(specs, properties)
    assert caught.value.message == f"A guest with hw_emulation_architecture=aarch64 cannot have {reason}"
    assert caught.value.code == 400


def test_hardware_that_is_the_same_everywhere_is_accepted() -> None:
    made = make(
        {"hw:serial_port_count": "1", "hw:tpm_version": "2.0", "os:secure_boot": "optional", "hw:sound_model": "ich9"},
        {"hw_time_hpet": "no", "img_hide_hypervisor_id": "no", "hw_video_model": "bochs", "hw_disk_bus": "usb"},
    )
    assert (made.serial_ports, made.sound_model, made.video_model, made.disk_bus) == (1, "ich9", "bochs", "usb")


def test_virt_machine_of_another_architecture_is_refused() -> None:
    for properties in ({}, {"hw_emulation_architecture": "x86_64"}):
        with pytest.raises(exceptions.HardwareRefused, match="virt machine needs hw_emulation_architecture=aarch64"):
            hardware.resolve(flavor(), image(hw_machine_type="virt-7.2", **properties))


def test_unknown_architecture_is_refused() -> None:
    with pytest.raises(exceptions.HardwareRefused, match="cannot be 's390x': it takes x86_64, aarch64"):
        hardware.resolve(flavor(), image(hw_emulation_architecture="s390x"))


@pytest.mark.parametrize("bus", ["ide", "sata"])
@pytest.mark.parametrize("name", ["hw_disk_bus", "hw_cdrom_bus"])
def test_bus_that_the_firmware_does_not_know_is_refused(bus: str, name: str) -> None:
    with pytest.raises(exceptions.HardwareRefused, match=f"A virt machine has no {bus.upper()} bus: hw_disk_bus or"):
        make({}, {name: bus}, disk_format="iso")


@pytest.mark.parametrize("bus", ["ide", "sata"])
def test_volume_on_a_bus_that_the_firmware_does_not_know_is_refused(bus: str) -> None:
    device = BlockDevice(
        uuid="b", source_type=DeviceSource.VOLUME, destination_type="volume", volume_id="v", disk_bus=bus
    )
    with pytest.raises(exceptions.HardwareRefused, match=f"A virt machine has no {bus.upper()} bus: disk_bus of a"):
        hardware.check_disks(flavor(), image(**ARM), [device])
    hardware.check_disks(flavor(), image(**ARM), [msgspec.structs.replace(device, disk_bus="usb")])


def test_drive_of_an_iso_image_is_on_a_scsi_bus() -> None:
    iso = image("iso", **ARM)
    hardware.check_disks(flavor(), iso, [])
    assert hardware.resolve(flavor(), iso).cdrom_bus == "scsi"
    assert hardware.root_device(iso) == "/dev/sda"
    assert hardware.root_device(image(**ARM)) == "/dev/vda"
    assert make({}, {"hw_cdrom_bus": "usb"}, disk_format="iso").cdrom_bus == "usb"


def test_rescue_image_has_the_architecture_of_the_server() -> None:
    assert hardware.check_rescue(image(**ARM), image(**ARM)).bus == "virtio"
    for rescue, server in ((image(), image(**ARM)), (image(**ARM), image()), (image(**ARM), None)):
        with pytest.raises(exceptions.HardwareRefused, match="another hw_emulation_architecture than the server's"):
            hardware.check_rescue(rescue, server)
        assert hardware.check_rescue(rescue, server, strict=False).bus == "virtio"
    with pytest.raises(exceptions.HardwareRefused, match="A virt machine has no SATA bus: hw_rescue_bus is sata"):
        hardware.check_rescue(image(**ARM, hw_rescue_bus="sata"), image(**ARM))
