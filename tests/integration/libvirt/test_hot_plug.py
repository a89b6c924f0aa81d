"""Devices that come into running guests: as many as the machine has room for, and where the guest finds them."""

from __future__ import annotations

import base64
import io
import json
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pycdlib
import pytest

from nova_lite.base import exceptions
from nova_lite.conductor.operations import checks
from nova_lite.db.core.models import Instance
from nova_lite.objects import GuestDevices, Image, VolumeVerb, VolumeWork
from nova_lite.objects.block_device import BlockDevice, DeviceSource
from nova_lite.operations.states import PowerState
from nova_lite.virt.libvirt.disks.disks import CONFIG_DRIVE
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration.libvirt.conftest import (
    LONG,
    PATIENCE,
    Images,
    MakeDriver,
    boot,
    guest_lines,
    guest_spec,
    whole_lines,
)
from tests.integration.libvirt.guests import NewVif
from tests.integration.libvirt.volumes import device, local_volumes
from tests.support.waiting import wait_for

Q35 = {"hw_machine_type": "q35"}


def with_properties(image: Image, **properties: str) -> Image:
    return msgspec.structs.replace(image, properties=image.properties | properties)


#: The guest prints every second how many interfaces and disks it has.
COUNT_DEVICES = """#!/bin/sh
count() { ls "$1" | grep -c "$2"; }
while :; do
    echo "devices: $(count /sys/class/net eth) interfaces, $(count /sys/block '[sv]d') disks"
    sleep 1
done
"""


def counted_devices(driver: LibvirtDriver, instance_uuid: str) -> tuple[int, int]:
    """Return the numbers of interfaces and disks that the guest has printed last."""
    found = re.findall(r"devices: (\d+) interfaces, (\d+) disks", whole_lines(driver, instance_uuid))
    return (int(found[-1][0]), int(found[-1][1])) if found else (0, 0)


@pytest.mark.parametrize(
    ("machine", "properties"),
    [
        ("q35", {}),
        pytest.param("pc", {}, marks=LONG),
        pytest.param(
            "q35", {"hw_disk_bus": "scsi", "hw_qemu_guest_agent": "yes", "hw_rng_model": "virtio"}, marks=LONG
        ),
        ("q35", {"hw_firmware_type": "uefi"}),
    ],
    ids=["q35", "pc", "scsi", "uefi"],
)
def test_running_guest_gets_twelve_devices_and_the_one_past_its_room_is_refused_before_the_host_is_asked(
    make_driver: MakeDriver, images: Images, new_vif: NewVif, directory: Path, machine: str, properties: dict[str, str]
) -> None:
    driver, volumes = make_driver("one"), local_volumes(directory)
    if (
        "hw_firmware_type" in properties
        and "COMPUTE_FIRMWARE_UEFI" not in driver.machine.inventory().capabilities["traits"]
    ):
        pytest.skip("no OVMF here (package ovmf)")
    image = with_properties(images.ami, hw_machine_type=machine, **properties)
    user_data = base64.b64encode(COUNT_DEVICES.encode()).decode()
    spec = guest_spec(images, [new_vif()], image, memory_mb=256, config_drive=True, user_data=user_data)
    uuid_, vifs = spec.instance.uuid, list(spec.vifs)
    boot(driver, spec)
    guest_lines(driver, uuid_)
    before = driver.guests.devices(uuid_).free_ports
    assert before is not None
    assert before >= 12

    def attach_interface() -> None:
        vifs.append(new_vif())
        driver.networks.plug(spec.instance, vifs)
        driver.interfaces.attach(uuid_, vifs[-1])

    def at_least(interfaces: int, disks: int) -> Callable[[], bool]:
        return lambda: all(
            found >= expected
            for found, expected in zip(counted_devices(driver, uuid_), (interfaces, disks), strict=True)
        )

    wait_for("first count of devices", at_least(1, 1), PATIENCE)
    _, disks_at_boot = counted_devices(driver, uuid_)
    for number in range(6):
        attach_interface()
        volume_id = str(uuid.uuid4())
        volumes.create(VolumeWork(id=1, verb=VolumeVerb.CREATE, volume_id=volume_id, size=1))
        driver.volumes.attach(uuid_, device(volume_id, f"/dev/vd{'fghijk'[number]}"), volumes.require(volume_id))
        wait_for("new devices in the guest", at_least(2 + number, disks_at_boot + 1 + number), PATIENCE)
    found = driver.guests.devices(uuid_)
    assert found.free_ports == before - 12
    assert {vif.mac_address for vif in vifs} <= {place.key for place in found.devices}
    assert len({place.address for place in found.devices if place.bus == "pci"}) == len(
        [place for place in found.devices if place.bus == "pci"]
    )
    while driver.guests.devices(uuid_).free_ports:
        attach_interface()
    wait_for("last device in the guest", at_least(len(vifs), disks_at_boot + 6), PATIENCE)
    row = Instance(uuid=uuid_, power_state=PowerState.RUNNING)
    row.guest_devices = msgspec.to_builtins(driver.guests.devices(uuid_))
    with pytest.raises(exceptions.NoFreePort) as refusal:
        checks.require_free_port(row)
    assert refusal.value.code == 409
    with pytest.raises(exceptions.VirtDriverError):
        attach_interface()
    driver.guests.destroy(uuid_)
    driver.networks.unplug(uuid_)


def test_guest_without_free_ports_takes_a_device_while_it_is_off(
    make_driver: MakeDriver, images: Images, new_vif: NewVif
) -> None:
    driver = make_driver("one", libvirt__num_pcie_ports=1)
    spec = guest_spec(images, [new_vif()], with_properties(images.ami, **Q35))
    uuid_ = spec.instance.uuid
    boot(driver, spec)
    vifs = list(spec.vifs)
    while driver.guests.devices(uuid_).free_ports:
        vifs.append(new_vif())
        driver.networks.plug(spec.instance, vifs)
        driver.interfaces.attach(uuid_, vifs[-1])
    assert len(vifs) > 1
    driver.power.off(uuid_, 0)
    vifs.append(new_vif())
    driver.networks.plug(spec.instance, vifs)
    driver.interfaces.attach(uuid_, vifs[-1])
    driver.power.on(uuid_)
    assert vifs[-1].mac_address in {place.key for place in driver.guests.devices(uuid_).devices}
    driver.guests.destroy(uuid_)
    driver.networks.unplug(uuid_)


def test_first_metadata_have_the_addresses_of_devices_with_tags(
    make_driver: MakeDriver, images: Images, new_vif: NewVif, directory: Path
) -> None:
    driver, volumes = make_driver("one"), local_volumes(directory)
    volume_id = str(uuid.uuid4())
    volumes.create(VolumeWork(id=1, verb=VolumeVerb.CREATE, volume_id=volume_id, size=1))
    root = BlockDevice(uuid="r", source_type=DeviceSource.IMAGE, destination_type="local", boot_index=0, tag="system")
    data = device(volume_id, "/dev/vdc", tag="data")
    vif = msgspec.structs.replace(new_vif(), tag="outside")
    spec = guest_spec(images, [vif], block_devices=[root, data], config_drive=True)
    reported: list[tuple[PowerState, GuestDevices]] = []
    spec = msgspec.structs.replace(
        spec,
        volumes={volume_id: volumes.require(volume_id)},
        placed=lambda devices: reported.append((driver.guests.get(uuid_).power_state, devices)),
    )
    uuid_ = spec.instance.uuid
    boot(driver, spec)
    assert [state for state, _ in reported] == [PowerState.SHUTDOWN], "before the start"
    assert reported[0][1].devices == driver.guests.devices(uuid_).devices
    (path,) = Path(driver.conf.state_path).rglob(f"{uuid_}/{CONFIG_DRIVE}")
    drive, data_file = pycdlib.PyCdlib(), io.BytesIO()
    drive.open(str(path))
    drive.get_file_from_iso_fp(data_file, joliet_path="/openstack/latest/meta_data.json")
    drive.close()
    found = json.loads(data_file.getvalue())["devices"]
    places = driver.guests.devices(uuid_)
    expected: list[dict[str, Any]] = [
        {"type": "disk", "serial": volume_id, "path": "/dev/vdc", "tags": ["data"]},
        {"type": "disk", "serial": None, "path": "/dev/vda", "tags": ["system"]},
        {"type": "nic", "mac": vif.mac_address, "vf_trusted": False, "tags": ["outside"]},
    ]
    for item, key in zip(expected, (volume_id, "root", vif.mac_address), strict=True):
        place = places.place_of(key)
        assert place.bus == "pci"
        item |= {"bus": "pci", "address": place.address}
    assert found == expected
    driver.guests.destroy(uuid_)
    driver.networks.unplug(uuid_)
