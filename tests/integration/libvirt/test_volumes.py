"""Volumes of real guests: boot, attach, detach, and read by another guest."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.objects import FileMerge, Qcow2Disk, VolumeVerb, VolumeWork
from nova_lite.operations.states import PowerState
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.driver import LibvirtDriver
from nova_lite.volume.local import GIB, LocalVolumes
from tests.integration import scripts
from tests.integration.libvirt import hosts
from tests.integration.libvirt.conftest import PATIENCE, Images, MakeHost, guest_spec, make_image
from tests.integration.libvirt.guests import LINES, WATCHES
from tests.integration.libvirt.moves import arriving, counts, migrate, wait_for_count
from tests.integration.libvirt.volumes import device, local_volumes
from tests.support.waiting import wait_for


@pytest.fixture
def volumes(directory: Path) -> LocalVolumes:
    return local_volumes(directory)


def make_volume(volumes: LocalVolumes, **source: Any) -> str:
    volume_id = str(uuid.uuid4())
    volumes.create(VolumeWork(id=1, verb=VolumeVerb.CREATE, volume_id=volume_id, size=1, **source))
    return volume_id


def watching(images: Images, volume_id: str, name: str, **changes: Any) -> SpawnSpec:
    script = WATCHES.replace("SERIAL", volume_id[:20]).replace("NAME", name)
    return guest_spec(images, [], config_drive=True, user_data=scripts.user_data(script), **changes)


def wait_for_line(driver: LibvirtDriver, spec: SpawnSpec, text: str) -> None:
    wait_for(f"{text!r} on the console", lambda: text in driver.consoles.output(spec.instance.uuid, None), PATIENCE)


def test_volume_is_attached_written_detached_and_read_elsewhere(
    driver: LibvirtDriver, images: Images, volumes: LocalVolumes
) -> None:
    volume_id = make_volume(volumes)
    path = volumes.require(volume_id)
    one, two = watching(images, volume_id, "one"), watching(images, volume_id, "two")
    driver.guests.spawn(one)
    driver.guests.spawn(two)
    wait_for_line(driver, one, "nova-lite-guest: instance=")
    driver.volumes.attach(one.instance.uuid, device(volume_id, "/dev/vdc"), path)
    driver.volumes.attach(one.instance.uuid, device(volume_id, "/dev/vdc"), path)
    wait_for_line(driver, one, f"volume: nothing, sectors {GIB // 512}")
    wait_for_line(driver, one, "volume marked")

    volumes.extend(volume_id, 2)
    driver.volumes.extend(one.instance.uuid, volume_id, 2 * GIB)
    wait_for_line(driver, one, f"volume has {2 * GIB // 512} sectors")

    driver.volumes.detach(one.instance.uuid, volume_id, 60)
    driver.volumes.detach(one.instance.uuid, volume_id, 60)
    wait_for_line(driver, one, "volume released")

    wait_for_line(driver, two, "nova-lite-guest: instance=")
    driver.power.off(two.instance.uuid, 0)
    driver.volumes.attach(two.instance.uuid, device(volume_id, "/dev/vdc"), path)
    driver.power.on(two.instance.uuid)
    wait_for_line(driver, two, f"volume: marked-by-one, sectors {2 * GIB // 512}")
    driver.guests.destroy(two.instance.uuid)
    assert volumes.require(volume_id) == path, "a removed guest leaves its volumes"


def test_guest_boots_from_a_volume(driver: LibvirtDriver, images: Images, volumes: LocalVolumes) -> None:
    """The volume is made from an image. Another guest that boots from it finds the data of the first one."""
    volume_id = make_volume(volumes, image=images.disk)
    for found in ("nothing", "marked-by-a-guest"):
        plain = guest_spec(images, [], images.disk, config_drive=True, user_data=scripts.user_data(scripts.MARKS))
        root = device(volume_id, "/dev/vda", boot_index=0)
        instance = msgspec.structs.replace(plain.instance, block_devices=[root])
        spec = msgspec.structs.replace(plain, instance=instance, volumes={volume_id: volumes.require(volume_id)})
        driver.guests.spawn(spec)
        assert driver.guests.get(spec.instance.uuid).power_state == PowerState.RUNNING
        wait_for_line(driver, spec, f"on disk: {found}, sectors {GIB // 512}")
        wait_for_line(driver, spec, "mark written")
        driver.guests.destroy(spec.instance.uuid)


def test_live_migration_includes_volumes(make_host: MakeHost, images: Images, volumes: LocalVolumes) -> None:
    """The content of volumes is not copied. Writes at the destination go to the same files."""
    options = {"live_migration_uri": hosts.URI}
    here, there = make_host("here", hosts.HERE, **options), make_host("there", hosts.THERE, **options)
    root_id, data_id = make_volume(volumes, image=images.disk), make_volume(volumes)
    script = f"{WATCHES.replace('SERIAL', data_id[:20]).replace('NAME', 'it')}"
    counting = scripts.COUNTS.replace("while", "(while").replace("\ndone\n", "\ndone) &\n")
    plain = guest_spec(
        images, [], images.disk, config_drive=True, user_data=scripts.user_data(counting + script), memory_mb=128
    )
    devices = [device(root_id, "/dev/vda", boot_index=0), device(data_id, "/dev/vdc")]
    instance = msgspec.structs.replace(plain.instance, block_devices=devices)
    paths = {volume_id: volumes.require(volume_id) for volume_id in (root_id, data_id)}
    spec = msgspec.structs.replace(plain, instance=instance, volumes=paths)
    here.guests.spawn(spec)
    wait_for_line(here, spec, "volume marked")
    wait_for_count(here, spec, 10)

    moved = arriving(spec, 2)
    migrate(here, there, moved)
    wait_for_count(there, spec, counts(there, spec)[-1][0] + 10 if counts(there, spec) else 20)
    here.guests.destroy(spec.instance.uuid)
    there.volumes.detach(spec.instance.uuid, data_id, 60)
    wait_for_line(there, spec, "volume released")
    with open(paths[data_id], "rb") as file:
        file.seek(1024 * 512)
        assert file.read(12) == b"marked-by-it"
    there.guests.destroy(spec.instance.uuid)


#: A volume or image whose content begins so is encrypted by the guest itself. libvirt would not start its domain.
LUKS_HEADER = b"LUKS\xba\xbe\x00\x01aes\x00" + bytes(29) + b"xts-plain64\x00" + bytes(20) + b"sha256\x00" + bytes(25)


def test_guest_whose_disks_begin_like_luks_starts_again_and_moves(
    make_host: MakeHost, images: Images, volumes: LocalVolumes, directory: Path
) -> None:
    options = {"live_migration_uri": hosts.URI}
    here, there = make_host("here", hosts.HERE, **options), make_host("there", hosts.THERE, **options)
    image = directory / "luks.img"
    image.write_bytes(LUKS_HEADER.ljust(1024**2, b"\1"))
    first, second = make_volume(volumes), make_volume(volumes)
    for volume_id in (first, second):
        with open(volumes.require(volume_id), "r+b") as file:
            file.write(LUKS_HEADER)
    plain = guest_spec(images, [], make_image(image, "raw"))
    instance = msgspec.structs.replace(plain.instance, block_devices=[device(first, "/dev/vdc")])
    spec = msgspec.structs.replace(plain, instance=instance, volumes={first: volumes.require(first)})
    here.guests.spawn(spec)
    here.volumes.attach(spec.instance.uuid, device(second, "/dev/vdd"), volumes.require(second))
    here.power.off(spec.instance.uuid, 0)
    here.power.on(spec.instance.uuid)
    both = [device(first, "/dev/vdc"), device(second, "/dev/vdd")]
    instance = msgspec.structs.replace(spec.instance, block_devices=both)
    sources = {volume_id: volumes.require(volume_id) for volume_id in (first, second)}
    moved = arriving(msgspec.structs.replace(spec, instance=instance, volumes=sources), 2)
    migrate(here, there, moved)
    there.power.off(spec.instance.uuid, 0)
    there.power.on(spec.instance.uuid)
    assert there.guests.get(spec.instance.uuid).power_state == PowerState.RUNNING
    here.guests.destroy(spec.instance.uuid)
    there.guests.destroy(spec.instance.uuid)


def marks(path: str) -> str:
    with open(path, "rb") as file:
        file.seek(1024 * 512)
        return file.read(32).rstrip(b"\0\n").decode()


def test_volumes_are_copied_and_swapped_while_the_guest_writes(
    driver: LibvirtDriver, images: Images, volumes: LocalVolumes
) -> None:
    """Two volumes are copied at one moment. Then a new volume replaces one of them, is extended, and stays after a
    restart."""
    old_id, other_id, new_id = (make_volume(volumes) for _ in range(3))
    volumes.extend(new_id, 2)
    spec = watching(images, old_id, "it")
    driver.guests.spawn(spec)
    uuid_ = spec.instance.uuid
    wait_for_line(driver, spec, "nova-lite-guest: instance=")
    old = device(old_id, "/dev/vdc")
    driver.volumes.attach(uuid_, old, volumes.require(old_id))
    driver.volumes.attach(uuid_, device(other_id, "/dev/vdd"), volumes.require(other_id))
    wait_for_line(driver, spec, "volume marked")

    def copy(parts: Mapping[str, str]) -> None:
        copies = {volume_id: (volumes.require(volume_id), part) for volume_id, part in parts.items()}
        driver.volume_copies.copy(uuid_, copies, lambda: None)

    snapshots = {old_id: str(uuid.uuid4()), other_id: str(uuid.uuid4())}
    volumes.create_snapshots_in_use(snapshots, copy, contextlib.nullcontext)
    again = make_volume(volumes, source_snapshot=snapshots[old_id])
    assert (marks(volumes.require(again)), driver.guests.get(uuid_).power_state) == ("marked-by-it", PowerState.RUNNING)
    assert marks(volumes.require(make_volume(volumes, source_snapshot=snapshots[other_id]))) == ""

    calls: list[str] = []
    path = volumes.require(new_id)

    def refuse() -> None:
        raise exceptions.ActionOver(action="swap_volume", instance_id=uuid_)

    with pytest.raises(exceptions.ActionOver):
        driver.volume_copies.swap(uuid_, old, new_id, path, 2 * GIB, lambda: None, refuse)
    assert not driver.volume_copies.end_swap(uuid_, old_id, new_id, 2 * GIB), "the guest has the old one"
    driver.volume_copies.swap(uuid_, old, new_id, path, 2 * GIB, lambda: None, lambda: calls.append("copied"))
    driver.volume_copies.swap(uuid_, old, new_id, path, 2 * GIB, lambda: None, lambda: calls.append("again"))
    assert (calls, driver.volume_copies.end_swap(uuid_, old_id, new_id, 2 * GIB), marks(path)) == (
        ["copied"],
        True,
        "marked-by-it",
    )
    wait_for_line(driver, spec, f"volume has {2 * GIB // 512} sectors")

    driver.volumes.attach(uuid_, device(old_id, "/dev/vdc"), volumes.require(old_id))
    driver.volumes.detach(uuid_, old_id, 60)
    driver.volumes.detach(uuid_, new_id, 60)
    wait_for_line(driver, spec, "volume released")
    driver.volumes.detach(uuid_, other_id, 60)


def test_files_of_a_volume_follow_its_snapshots(
    connection: Any, driver: LibvirtDriver, images: Images, directory: Path
) -> None:
    """Cinder makes the files. The guest continues to write, and every line that it has written stays.

    Files are merged down and up while it runs, and while it is off.
    """
    volume_id, share = str(uuid.uuid4()), directory / "share"
    share.mkdir()
    base, *others = (f"volume-{volume_id}{end}" for end in ("", *(f".{uuid.uuid4()}" for _ in range(3))))
    (share / base).touch()
    os.truncate(share / base, GIB)
    script = LINES.replace("SERIAL", volume_id[:20])
    spec = guest_spec(images, [], config_drive=True, user_data=scripts.user_data(script))
    uuid_ = spec.instance.uuid

    def lines() -> int:
        found = re.findall(r"line (\d+) is written", driver.consoles.output(uuid_, None))
        return int(found[-1]) if found else 0

    def more() -> int:
        before = lines()
        wait_for("the guest continues to write", lambda: lines() >= before + 3, PATIENCE)
        return lines()

    def snapshot(name: str, below: str, kind: str) -> None:
        made = ["qemu-img", "create", "-q", "-f", "qcow2", "-o", f"backing_file={share / below},backing_fmt={kind}"]
        subprocess.run([*made, str(share / name), "1G"], check=True)
        subprocess.run(["qemu-img", "rebase", "-u", "-b", below, "-F", kind, str(share / name)], check=True)
        for _ in range(2):
            driver.volume_files.snapshot(uuid_, volume_id, name)

    def merge(source: str | None, target: str | None) -> None:
        for _ in range(2):
            driver.volume_files.merge(uuid_, volume_id, FileMerge(source=source, target=target), lambda: None)
        driver.volume_files.end_merge(uuid_, volume_id)

    def names() -> list[str]:
        return driver.volume_files.names(uuid_, volume_id)

    first, second, third = others
    driver.guests.spawn(spec)
    driver.volumes.attach(uuid_, device(volume_id, "/dev/vdc"), str(share / base))
    more()
    snapshot(first, base, "raw")
    more()
    assert line_of(share / base, lines()) == "", "the snapshot has nothing that is written after it"
    snapshot(second, first, "qcow2")
    assert names() == [second, first, base]
    more()
    merge(first, base)
    assert names() == [second, base]
    (share / first).unlink()
    merge(None, None)
    assert names() == [second]
    (share / base).unlink()
    written = more()
    driver.power.off(uuid_, 0)
    snapshot(third, second, "qcow2")
    assert names() == [third, second]
    merge(None, None)
    assert names() == [third]
    (share / second).unlink()
    driver.volumes.detach(uuid_, volume_id, 0)
    driver.volumes.attach(uuid_, device(volume_id, "/dev/vdc"), Qcow2Disk(path=str(share / third)))
    driver.power.on(uuid_)
    wait_for_line(driver, spec, "volume has: line-1")
    xml = ET.fromstring(connection.lookupByUUIDString(uuid_).XMLDesc())
    sources = [disk.find("source") for disk in xml.iterfind("devices/disk")]
    assert str(share / third) in [source.get("file") for source in sources if source is not None]
    driver.guests.destroy(uuid_)
    subprocess.run(["qemu-img", "convert", "-O", "raw", str(share / third), str(share / "all")], check=True)
    expected = [f"line-{number}" for number in range(1, written + 1)]
    assert [line_of(share / "all", number) for number in range(1, written + 1)] == expected


def line_of(path: Path, number: int) -> str:
    with open(path, "rb") as file:
        file.seek((2048 + number) * 512)
        return file.read(32).rstrip(b"\0\n").decode()


def test_guest_that_boots_from_a_volume_is_rescued(
    connection: Any, driver: LibvirtDriver, images: Images, volumes: LocalVolumes
) -> None:
    """The volume stays vda with the guest's data. The rescue system boots from its own disk, then the guest from its
    volume."""
    volume_id = make_volume(volumes, image=images.disk)
    plain = guest_spec(images, [], images.disk, config_drive=True, user_data=scripts.user_data(scripts.MARKS))
    root = device(volume_id, "/dev/vda", boot_index=0)
    instance = msgspec.structs.replace(plain.instance, block_devices=[root])
    spec = msgspec.structs.replace(plain, instance=instance, volumes={volume_id: volumes.require(volume_id)})
    driver.guests.spawn(spec)
    wait_for_line(driver, spec, "mark written")
    properties = {"hw_rescue_bus": "scsi", "hw_rescue_device": "disk"}
    stable = msgspec.structs.replace(images.disk, properties={**images.disk.properties, **properties})
    driver.rescue.start(msgspec.structs.replace(spec, image=stable), 0)
    xml = ET.fromstring(connection.lookupByUUIDString(instance.uuid).XMLDesc())
    boots = [
        (disk.findtext("serial"), disk.find("target").get("dev"), disk.find("boot") is not None)  # type: ignore[union-attr]
        for disk in xml.iterfind("devices/disk")
        if disk.find("readonly") is None
    ]
    assert boots == [(volume_id, "vda", False), (None, "sda", True)]
    wait_for_line(driver, spec, "on disk: marked-by-a-guest")
    driver.rescue.end(instance.uuid)
    assert driver.guests.get(instance.uuid).power_state == PowerState.RUNNING
    wait_for(
        "it is up again",
        lambda: driver.consoles.output(instance.uuid, None).count("on disk: marked-by-a-guest") == 2,
        PATIENCE,
    )
    driver.guests.destroy(instance.uuid)
