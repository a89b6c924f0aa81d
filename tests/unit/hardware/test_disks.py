"""Room for the disks of a server on the buses of its machine."""

from __future__ import annotations

import pytest

from nova_lite import hardware
from nova_lite.base import exceptions
from nova_lite.hardware import guest
from nova_lite.objects import BlockDevice, Flavor, Image
from nova_lite.objects.block_device import DeviceSource


def image(disk_format: str = "raw", **properties: str) -> Image:
    return Image(id="i", name="i", disk_format=disk_format, properties=properties)


def flavor(**values: int) -> Flavor:
    return Flavor(flavorid="1", name="f", vcpus=1, memory_mb=64, root_gb=1, **values)


def volume(bus: str | None) -> BlockDevice:
    return BlockDevice(
        uuid="b", source_type=DeviceSource.VOLUME, destination_type="volume", volume_id="v", disk_bus=bus
    )


def ephemeral(size: int) -> BlockDevice:
    return BlockDevice(uuid="e", source_type=DeviceSource.BLANK, destination_type="local", volume_size=size)


def test_ide_bus_has_room_for_root_ephemeral_swap_and_config_drive() -> None:
    full = flavor(swap=1, ephemeral_gb=2)
    hardware.check_disks(full, image(hw_disk_bus="ide"), [])
    with pytest.raises(exceptions.HardwareRefused, match=r"needs 5 disks on its IDE bus .* 4 places") as caught:
        hardware.check_disks(full, image(hw_disk_bus="ide"), [ephemeral(1), ephemeral(1)])
    assert caught.value.code == 400
    hardware.check_disks(full, image(hw_disk_bus="sata"), [ephemeral(1), ephemeral(1)])


def test_ide_volumes_count() -> None:
    hardware.check_disks(flavor(), image(), [volume("ide")] * guest.IDE_PLACES)
    with pytest.raises(exceptions.HardwareRefused, match="needs 5 disks"):
        hardware.check_disks(flavor(), image(hw_disk_bus="ide"), [volume("ide")] * 3)
    hardware.check_disks(flavor(), image(hw_disk_bus="ide"), [volume(None)] * 3)


def test_drive_of_an_iso_image_takes_a_place() -> None:
    with pytest.raises(exceptions.HardwareRefused, match="needs 5 disks"):
        hardware.check_disks(flavor(), image("iso"), [volume("ide")] * 4)
    hardware.check_disks(flavor(), image("iso", hw_cdrom_bus="sata"), [volume("ide")] * 4)


@pytest.mark.parametrize("properties", [{"hw_machine_type": "q35"}, {"hw_machine_type": "pc-q35-7.2"}])
def test_ide_volume_of_a_q35_machine_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(exceptions.HardwareRefused, match="q35 machine has no IDE bus"):
        hardware.check_disks(flavor(), image(**properties), [volume("ide")])


def test_ide_bus_with_secure_boot_is_refused() -> None:
    secure = image(hw_disk_bus="ide", hw_firmware_type="uefi", os_secure_boot="required")
    with pytest.raises(exceptions.HardwareRefused, match="q35 machine has no IDE bus"):
        hardware.resolve(flavor(), secure)


def test_ide_rescue_disk_of_a_q35_machine_is_refused() -> None:
    rescue = image(hw_rescue_bus="ide")
    with pytest.raises(exceptions.HardwareRefused, match="q35 machine has no IDE bus: hw_rescue_bus"):
        hardware.check_rescue(rescue, image(hw_machine_type="q35"))
    assert hardware.check_rescue(rescue, image()).bus == "ide"
    assert hardware.check_rescue(rescue, image(hw_machine_type="q35"), strict=False).bus == "ide"
