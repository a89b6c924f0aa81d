"""Combinations of disk bus, device and machine that a create accepts, in the real libvirt and qemu.

The test command tries each 24th combination of disks and each 24th rescue disk, `NOVA_LITE_LONG=1` all of them.
"""

from __future__ import annotations

import itertools
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import libvirt
import pytest

from nova_lite import hardware
from nova_lite.base import exceptions
from nova_lite.objects import BlockDevice, Flavor, Image
from nova_lite.objects.block_device import PREFIXES, DeviceSource
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.disks.disks import CONFIG_DRIVE, RESCUE, ROOT, SWAP, Disk, DiskSet, volume_disk
from nova_lite.virt.libvirt.domain import guest_xml
from nova_lite.virt.libvirt.domain.rescue import rescue_xml
from tests.integration.libvirt.conftest import IS_LONG, define
from tests.support.guests import make_flavor, make_instance, make_spec

BUSES = (None, "virtio", "scsi", "sata", "ide", "usb")
SCSI_MODELS = ("virtio-scsi", "lsilogic", "lsisas1068", "lsisas1078")
DRIVE_BUSES = (None, "ide", "sata", "scsi", "usb")
MACHINES = (None, "pc", "q35")
FLAVORS = {
    "small": {},
    "with swap": {"swap": 8},
    "with all": {"swap": 8, "ephemeral_gb": 1},
}
RESCUE_DISKS = ((None, None), *itertools.product((None, "virtio", "scsi", "sata", "ide", "usb"), ("disk", "cdrom")))


#: Every how many combinations one is tried.
STEP = 1 if IS_LONG else 24


def properties(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}


def servers() -> Iterator[Any]:
    """Yield the properties of an image, its format, the kind of flavor and the buses of volumes."""
    for bus, machine, flavor in itertools.product(BUSES, MACHINES, FLAVORS):
        models = SCSI_MODELS if bus == "scsi" else (None,)
        for model in models:
            chosen = properties(hw_disk_bus=bus, hw_machine_type=machine, hw_scsi_model=model)
            yield pytest.param(chosen, "raw", flavor, (), id=f"{machine} {bus} {model or ''} {flavor}")
    for bus, machine, drive in itertools.product((None, "ide", "scsi"), (None, "q35"), DRIVE_BUSES):
        chosen = properties(hw_disk_bus=bus, hw_machine_type=machine, hw_cdrom_bus=drive)
        yield pytest.param(chosen, "iso", "with swap", (), id=f"{machine} {bus} drive {drive}")
    for bus, machine, volume in itertools.product((None, "ide", "sata"), (None, "q35"), PREFIXES):
        chosen = properties(hw_disk_bus=bus, hw_machine_type=machine)
        yield pytest.param(chosen, "raw", "small", (volume, volume), id=f"{machine} {bus} volumes {volume}")


class Files:
    def __init__(self, path: Path) -> None:
        self.path = path
        for name in (ROOT, SWAP, "disk.eph0", CONFIG_DRIVE, RESCUE, "disk.config.rescue", "volume-0", "volume-1"):
            (path / name).write_bytes(bytes(1024**2))

    def disks(self, spec: SpawnSpec, has_config_drive: bool) -> list[Disk]:
        flavor, found = spec.instance.flavor, [ROOT]
        found += ["disk.eph0"] if flavor.ephemeral_gb else []
        found += [SWAP] if flavor.swap else []
        found += [CONFIG_DRIVE] if has_config_drive else []
        taken = [str(device.device_name)[-1] for device in spec.instance.block_devices]
        letters = iter([letter for letter in "abcdefghij" if letter not in taken])
        made = [
            Disk(path=str(self.path / name), device=f"vd{next(letters)}", format="raw", read_only=name == CONFIG_DRIVE)
            for name in found
        ]
        return made + [
            volume_disk(device, str(self.path / f"volume-{number}"))
            for number, device in enumerate(spec.instance.block_devices)
        ]


@pytest.fixture(scope="module")
def files(directory: Path) -> Iterator[Files]:
    path = directory / f"buses-{uuid.uuid4().hex[:8]}"
    path.mkdir(mode=0o755)
    yield Files(path)
    shutil.rmtree(path)


def volume(bus: str, letter: str) -> BlockDevice:
    return BlockDevice(
        uuid=str(uuid.uuid4()),
        source_type=DeviceSource.VOLUME,
        destination_type="volume",
        disk_bus=bus,
        device_name=f"/dev/{PREFIXES[bus]}{letter}",
        volume_id=str(uuid.uuid4()),
    )


def make(files: Files, image: Image, flavor: Flavor, buses: tuple[str, ...], default: str) -> tuple[SpawnSpec, str]:
    instance = make_instance(flavor=flavor)
    # The conductor names volumes after the local disks, too.
    instance.block_devices = [volume(bus, letter) for bus, letter in zip(buses, "cd", strict=False)]
    spec = make_spec(instance=instance, image=image)
    disks = DiskSet(disks=files.disks(spec, has_config_drive=True), direct_boot=None)
    given = guest_xml.Host(machine=default)
    return spec, guest_xml.guest_xml(spec, "h", str(files.path), disks, "qemu", 32, given=given)


@pytest.mark.parametrize(("chosen", "disk_format", "flavor", "volumes"), list(servers())[::STEP])
def test_accepted_combination_of_buses_starts_and_another_one_is_refused(
    connection: Any, files: Files, chosen: dict[str, str], disk_format: str, flavor: str, volumes: tuple[str, ...]
) -> None:
    image = Image(id="i", name="i", disk_format=disk_format, properties=chosen)
    shape = make_flavor(memory_mb=64, **FLAVORS[flavor])
    try:
        hardware.resolve(shape, image)
        hardware.check_disks(shape, image, [volume(bus, "c") for bus in volumes])
    except exceptions.HardwareRefused as error:
        assert error.code == 400
        assert "ide" in str(chosen) + str(volumes) + error.message.lower(), "other buses have room on each machine"
        return
    for default in ("pc", "q35"):
        if default == "q35" and "hw_machine_type" in chosen:
            continue
        _, xml = make(files, image, shape, volumes, default)
        define(connection, xml)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("bus", [bus for bus in BUSES if bus is not None])
@pytest.mark.parametrize("flavor", ["small", "with all"])
def test_rescue_of_each_accepted_server_starts(
    connection: Any, files: Files, bus: str, machine: str | None, flavor: str
) -> None:
    """The rescue disk has each accepted place, and the rescue system has a config drive, as the server."""
    image = Image(id="i", name="i", properties=properties(hw_disk_bus=bus, hw_machine_type=machine))
    shape = make_flavor(memory_mb=64, **FLAVORS[flavor])
    try:
        hardware.resolve(shape, image)
        hardware.check_disks(shape, image, [])
    except exceptions.HardwareRefused:
        return
    _, own = make(files, image, shape, (), "q35" if machine == "q35" else "pc")
    domain = connection.defineXMLFlags(own, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
    defined = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE)
    domain.undefine()
    for rescue_bus, device in RESCUE_DISKS[::STEP]:
        rescue = Image(id="r", name="r", properties=properties(hw_rescue_bus=rescue_bus, hw_rescue_device=device))
        try:
            how = hardware.check_rescue(rescue, image)
        except exceptions.HardwareRefused as error:
            assert error.code == 400
            continue
        disks = [
            Disk(path=str(files.path / RESCUE), device="vda", format="raw"),
            Disk(path=str(files.path / "disk.config.rescue"), device="", format="raw", read_only=True),
        ]
        try:
            define(connection, rescue_xml(defined, DiskSet(disks=disks, direct_boot=None), how))
        except libvirt.libvirtError as error:
            raise AssertionError(f"hw_rescue_bus={rescue_bus} hw_rescue_device={device}: {error}") from error
