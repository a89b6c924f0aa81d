"""A volume of several real guests, which write and read it at the same time."""

from __future__ import annotations

import contextlib
import re
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.objects import VolumeVerb, VolumeWork
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.driver import LibvirtDriver
from nova_lite.volume.local import GIB, LocalVolumes
from tests.integration import scripts
from tests.integration.libvirt import hosts
from tests.integration.libvirt.conftest import PATIENCE, Images, MakeHost, guest_spec
from tests.integration.libvirt.guests import FINDS
from tests.integration.libvirt.moves import arriving, migrate
from tests.integration.libvirt.volumes import device, local_volumes
from tests.support.waiting import wait_for

#: Sectors of the two guests. Each is in a page of its own.
SECTORS = {"one": 1024, "two": 2048}

#: A guest writes numbered lines to its sector of the volume, and prints what it reads in the sector of the other one.
SHARES = (
    FINDS
    + """
n=0
while [ -e $device ]; do
    n=$((n + 1))
    echo "NAME-$n" | dd of=$device bs=512 seek=MINE conv=notrunc,sync 2>/dev/null && sync && echo "wrote: NAME-$n"
    echo 3 >/proc/sys/vm/drop_caches
    echo "reads: $(dd if=$device bs=512 skip=THEIRS count=1 2>/dev/null | tr -d '\\000\\n'), sectors \
$(cat /sys/class/block/${device##*/}/size), ro $(cat /sys/class/block/${device##*/}/ro)"
    usleep 200000
done
echo "volume released"
"""
)


@pytest.fixture
def volumes(directory: Path) -> LocalVolumes:
    return local_volumes(directory)


def make_volume(volumes: LocalVolumes) -> str:
    volume_id = str(uuid.uuid4())
    volumes.create(VolumeWork(id=1, verb=VolumeVerb.CREATE, volume_id=volume_id, size=1))
    return volume_id


def sharing(images: Images, volume_id: str, name: str) -> SpawnSpec:
    other = {"one": "two", "two": "one"}[name]
    script = SHARES.replace("SERIAL", volume_id[:20]).replace("NAME", name)
    script = script.replace("MINE", str(SECTORS[name])).replace("THEIRS", str(SECTORS[other]))
    return guest_spec(images, [], config_drive=True, user_data=scripts.user_data(script))


def with_volume(spec: SpawnSpec, volumes: LocalVolumes, volume_id: str, **more: bool) -> SpawnSpec:
    """Return the guest with the volume from its start on."""
    instance = msgspec.structs.replace(spec.instance, block_devices=[device(volume_id, "/dev/vdc", **more)])
    return msgspec.structs.replace(spec, instance=instance, volumes={volume_id: volumes.require(volume_id)})


def numbers_read(driver: LibvirtDriver, spec: SpawnSpec, other: str) -> list[int]:
    """Return the numbers of the other guest's lines that the guest has read, as they came."""
    console = driver.consoles.output(spec.instance.uuid, None)
    return [int(number) for number in re.findall(rf"^reads: {other}-(\d+),", console, re.MULTILINE)]


def wait_for_news(driver: LibvirtDriver, spec: SpawnSpec, other: str) -> None:
    """Wait until the guest has read a newer line of the other one."""
    before = max(numbers_read(driver, spec, other), default=0)
    wait_for(f"a new line of {other}", lambda: max(numbers_read(driver, spec, other), default=0) > before, PATIENCE)


def wait_for_text(driver: LibvirtDriver, spec: SpawnSpec, text: str) -> None:
    wait_for(f"{text!r} on the console", lambda: text in driver.consoles.output(spec.instance.uuid, None), PATIENCE)


def disk_of(driver: LibvirtDriver, spec: SpawnSpec, volume_id: str) -> ET.Element:
    domain, _ = driver._domains.get(spec.instance.uuid)
    disks = ET.fromstring(domain.XMLDesc()).findall("devices/disk")
    return next(disk for disk in disks if disk.findtext("serial") == volume_id)


def test_two_guests_write_and_read_one_volume(driver: LibvirtDriver, images: Images, volumes: LocalVolumes) -> None:
    """The first has the volume from its start on, the other gets it later. Both see a new size, and one lets go."""
    volume_id = make_volume(volumes)
    path = volumes.require(volume_id)
    one = with_volume(sharing(images, volume_id, "one"), volumes, volume_id, multiattach=True)
    two = sharing(images, volume_id, "two")
    driver.guests.spawn(one)
    driver.guests.spawn(two)
    driver.volumes.attach(two.instance.uuid, device(volume_id, "/dev/vdc", multiattach=True), path)
    for _ in range(3):
        wait_for_news(driver, one, "two")
        wait_for_news(driver, two, "one")
    for spec, other in ((one, "two"), (two, "one")):
        found = numbers_read(driver, spec, other)
        assert found == sorted(found), "no older line comes back"
        disk = disk_of(driver, spec, volume_id)
        driver_element = disk.find("driver")
        assert driver_element is not None and driver_element.get("cache") == "none"
        assert disk.find("shareable") is not None

    volumes.extend(volume_id, 2)
    for spec in (one, two):
        driver.volumes.extend(spec.instance.uuid, volume_id, 2 * GIB)
    for spec in (one, two):
        wait_for_text(driver, spec, f"sectors {2 * GIB // 512}")

    driver.volumes.detach(one.instance.uuid, volume_id, 60)
    wait_for_text(driver, one, "volume released")
    written = driver.consoles.output(two.instance.uuid, None).count("wrote: two-")
    wait_for("writes", lambda: driver.consoles.output(two.instance.uuid, None).count("wrote: two-") > written, PATIENCE)
    driver.guests.destroy(two.instance.uuid)
    data = Path(path).read_bytes()[: 4096 * 512]
    for name, sector in SECTORS.items():
        assert data[sector * 512 :].startswith(f"{name}-".encode())


def test_guest_without_multiattach_shares_its_volume_with_no_other(
    driver: LibvirtDriver, images: Images, volumes: LocalVolumes
) -> None:
    """qemu's locks refuse a second guest, also if that would share."""
    volume_id = make_volume(volumes)
    one = with_volume(sharing(images, volume_id, "one"), volumes, volume_id)
    driver.guests.spawn(one)
    for share in (False, True):
        two = with_volume(sharing(images, volume_id, "two"), volumes, volume_id, multiattach=share)
        with pytest.raises(exceptions.VirtDriverError, match=r"[Ll]ock"):
            driver.guests.spawn(two)


def test_guest_reads_a_read_only_volume_that_another_writes(
    driver: LibvirtDriver, images: Images, volumes: LocalVolumes
) -> None:
    volume_id = make_volume(volumes)
    one = with_volume(sharing(images, volume_id, "one"), volumes, volume_id, multiattach=True)
    two = with_volume(sharing(images, volume_id, "two"), volumes, volume_id, multiattach=True, read_only=True)
    driver.guests.spawn(one)
    driver.guests.spawn(two)
    for _ in range(2):
        wait_for_news(driver, two, "one")
    console = driver.consoles.output(two.instance.uuid, None)
    assert "ro 1" in console and "wrote: two" not in console


def test_volume_of_one_guest_that_may_be_shared_or_only_read_is_copied(
    driver: LibvirtDriver, images: Images, volumes: LocalVolumes
) -> None:
    shared, read_only = make_volume(volumes), make_volume(volumes)
    with open(volumes.path(read_only), "r+b") as file:
        file.write(b"only read")
    spec = with_volume(sharing(images, shared, "one"), volumes, shared, multiattach=True)
    devices = [*spec.instance.block_devices, device(read_only, "/dev/vdd", read_only=True)]
    instance = msgspec.structs.replace(spec.instance, block_devices=devices)
    sources = {volume_id: volumes.require(volume_id) for volume_id in (shared, read_only)}
    driver.guests.spawn(msgspec.structs.replace(spec, instance=instance, volumes=sources))
    wait_for_text(driver, spec, "wrote: one-2")
    snapshots = {shared: str(uuid.uuid4()), read_only: str(uuid.uuid4())}

    def copy(parts: Mapping[str, str]) -> None:
        copies = {volume_id: (volumes.require(volume_id), part) for volume_id, part in parts.items()}
        driver.volume_copies.copy(spec.instance.uuid, copies, lambda: None)

    volumes.create_snapshots_in_use(snapshots, copy, contextlib.nullcontext)
    for volume_id, offset, content in ((shared, SECTORS["one"] * 512, b"one-"), (read_only, 0, b"only read")):
        made = str(uuid.uuid4())
        work = VolumeWork(id=2, verb=VolumeVerb.CREATE, volume_id=made, size=1, source_snapshot=snapshots[volume_id])
        volumes.create(work)
        with open(volumes.path(made), "rb") as file:
            file.seek(offset)
            assert file.read(len(content)) == content
    wait_for_text(
        driver, spec, f"wrote: one-{driver.consoles.output(spec.instance.uuid, None).count('wrote: one-') + 2}"
    )


def test_live_migration_keeps_a_volume_shared(make_host: MakeHost, images: Images, volumes: LocalVolumes) -> None:
    """The guest reads what the other one writes, before and after its move, and the other one reads it."""
    options = {"live_migration_uri": hosts.URI}
    here, there = make_host("here", hosts.HERE, **options), make_host("there", hosts.THERE, **options)
    volume_id = make_volume(volumes)
    one = with_volume(sharing(images, volume_id, "one"), volumes, volume_id, multiattach=True)
    two = with_volume(sharing(images, volume_id, "two"), volumes, volume_id, multiattach=True)
    here.guests.spawn(one)
    here.guests.spawn(two)
    wait_for_news(here, one, "two")
    wait_for_news(here, two, "one")
    migrate(here, there, arriving(one, 2))
    wait_for_news(here, two, "one")
    wait_for_news(there, one, "two")
    assert disk_of(there, one, volume_id).find("shareable") is not None
    here.guests.destroy(one.instance.uuid)
