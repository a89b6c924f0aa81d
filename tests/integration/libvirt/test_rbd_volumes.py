"""Built-in volumes of real guests in a real Ceph of one node, with two libvirt hosts.

``NOVA_LITE_LONG=1`` runs it, as root. Debian packages: ceph-mon, ceph-mgr, ceph-osd, ceph-common, qemu-block-extra and
uuid-runtime. It prints figures.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite.backups import disk_data, disk_parts
from nova_lite.base import exceptions
from nova_lite.base.timing import LibvirtTiming
from nova_lite.image import local, luks
from nova_lite.objects import VolumeKey, VolumeVerb, VolumeWork
from nova_lite.operations.states import PowerState
from nova_lite.virt import rbd_pool as rbd
from nova_lite.virt.abilities import BackupRequest, SpawnSpec
from nova_lite.virt.driver import snapshots_path
from nova_lite.virt.libvirt.driver import LibvirtDriver
from nova_lite.volume.builtin import GIB, SUM
from nova_lite.volume.rbd import RbdVolumes
from tests.integration import scripts
from tests.integration.ceph import POOL, USER, Ceph
from tests.integration.libvirt import hosts
from tests.integration.libvirt.conftest import LONG, PATIENCE, Images, MakeHost, guest_spec
from tests.integration.libvirt.moves import arriving, lines, migrate, state
from tests.integration.libvirt.volumes import device
from tests.support.waiting import wait_for

pytestmark = [LONG, pytest.mark.timeout(1200)]

#: Writes a number to one disk, then to the other one, and so on. Prints changes of the size of its root disk.
PAIRS = (
    scripts.MARKS
    + """
find_disk() {
    while :; do
        for disk in /sys/class/block/vd[a-z]; do
            case "$(cat $disk/serial 2>/dev/null)" in
            $1*) echo /dev/${disk##*/} && return ;;
            esac
        done
        usleep 200000
    done
}
one=$(find_disk ONE) other=$(find_disk OTHER)
n=0
while :; do
    n=$((n + 1))
    for disk in $one $other; do
        echo "number $n" | dd of=$disk bs=512 seek=2048 conv=notrunc,sync 2>/dev/null
        sync
    done
    echo "pair $n"
    size=$(cat /sys/class/block/vda/size)
    [ "$size" = "$told" ] || { echo "root has $size sectors"; told=$size; }
    usleep 50000
done
"""
)


@pytest.fixture
def volumes(directory: Path, ceph: Ceph, secret: str) -> RbdVolumes:
    conf = cfg.ConfigOpts()
    configuration.register_opts(conf)
    conf([], default_config_files=[])
    values = {"rbd_pool": POOL, "rbd_user": USER, "rbd_ceph_conf": ceph.config, "rbd_secret_uuid": secret}
    for name, value in {**values, "store_path": directory / "scratch", "backup_path": directory / "backups"}.items():
        conf.set_override(name, str(value), "volume")
    return RbdVolumes(conf, lambda image, target: local.copy(image, image.name, target))


def timed(what: str, action: Callable[[], Any]) -> Any:
    started = time.monotonic()
    result = action()
    print(f"{what}: {time.monotonic() - started:.2f} s")
    return result


def make_volume(volumes: RbdVolumes, **source: Any) -> str:
    volume_id = str(uuid.uuid4())
    work = VolumeWork(id=1, verb=VolumeVerb.CREATE, volume_id=volume_id, size=source.pop("size", 1), **source)
    timed(f"volume of {', '.join(source) or 'nothing'}", lambda: volumes.create(work))
    return volume_id


def exported(volumes: RbdVolumes, volume_id: str) -> bytes:
    with volumes.exported(volume_id, "raw") as path:
        return Path(path).read_bytes()


def number_in(data: bytes) -> int:
    found = re.match(rb"number (\d+)", data[2048 * 512 : 2049 * 512])
    return 0 if found is None else int(found[1])


def pairs(driver: LibvirtDriver, spec: SpawnSpec) -> int:
    found = lines(driver, spec, "pair ")
    return int(found[-1].split()[1]) if found else 0


def goes_on(driver: LibvirtDriver, spec: SpawnSpec) -> None:
    before = pairs(driver, spec)
    wait_for("more pairs", lambda: pairs(driver, spec) > before + 2, PATIENCE)


def snapshot(driver: LibvirtDriver, spec: SpawnSpec, volumes: RbdVolumes, snapshots: dict[str, str]) -> None:
    def fails(parts: object) -> None:
        raise AssertionError("the hypervisor copies nothing")

    @contextlib.contextmanager
    def hold(volume_ids: Sequence[str]) -> Iterator[None]:
        started = time.monotonic()
        with driver.volume_copies.held(spec.instance.uuid, volume_ids):
            yield
        print(f"guest held: {time.monotonic() - started:.2f} s")

    volumes.create_snapshots_in_use(snapshots, fails, hold)


def server_backup(
    driver: LibvirtDriver, spec: SpawnSpec, volumes: RbdVolumes, volume_ids: list[str]
) -> dict[str, bytes]:
    """Make a backup of a server, and return its disks besides the first one, which is large."""
    directory = Path(snapshots_path(driver.conf, driver.host))
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o711)
    request = BackupRequest(backup_id=str(uuid.uuid4()), disks=volume_ids)
    driver.backups.take(
        spec.instance.uuid,
        str(directory / "stream"),
        request,
        lambda: None,
        lambda volume_id: volumes.exported(volume_id, "raw"),
    )
    found = {}
    with (directory / "stream").open("rb") as file:
        header = disk_data.read_header(file)
        assert header.base is None
        assert [part.volume_id for part in header.parts] == volume_ids
        assert header.parts[0].size == 2 * GIB
        for disk in disk_parts.split(*disk_data.fold([(header, file)])):
            if disk.volume_id == volume_ids[0]:
                continue
            content = bytearray(disk.header.size)
            for offset, chunk in disk.chunks:
                content[offset : offset + len(chunk)] = chunk
            found[disk.volume_id] = bytes(content)
    (directory / "stream").unlink()
    return found


def test_server_with_volumes_in_ceph(make_host: MakeHost, images: Images, volumes: RbdVolumes) -> None:
    """The guest boots from its volume, writes to two others, is copied and moved, and never runs twice."""
    options = {"live_migration_uri": hosts.URI}
    here, there = make_host("here", hosts.HERE, **options), make_host("there", hosts.THERE, **options)
    impatient = make_host(
        "impatient", hosts.THERE, timing=LibvirtTiming(disk_lock_wait=3.0, disk_lock_poll=0.5), **options
    )
    root, one, other = make_volume(volumes, image=images.disk), make_volume(volumes), make_volume(volumes)
    script = PAIRS.replace("ONE", one[:20]).replace("OTHER", other[:20])
    plain = guest_spec(images, [], images.disk, config_drive=True, user_data=scripts.user_data(script))
    devices = [device(root, "/dev/vda", boot_index=0), device(one, "/dev/vdc"), device(other, "/dev/vdd")]
    instance = msgspec.structs.replace(plain.instance, block_devices=devices)
    paths = {volume_id: volumes.require(volume_id) for volume_id in (root, one, other)}
    spec = msgspec.structs.replace(plain, instance=instance, volumes=paths)
    timed("first start", lambda: here.guests.spawn(spec))
    wait_for("writes", lambda: pairs(here, spec) > 5, PATIENCE)

    # Another host does not start it. The guest here continues.
    with pytest.raises(exceptions.DiskInUse):
        timed("refused start", lambda: impatient.guests.spawn(arriving(spec, 2)))
    goes_on(here, spec)

    timed("hard reboot", lambda: here.power.reboot(instance.uuid, "HARD", 0))
    wait_for("writes of the second boot", lambda: lines(here, spec, "pair 6").count("pair 6") == 2, PATIENCE)

    # Snapshots are of one moment.
    for _ in range(3):
        snapshots = {volume_id: str(uuid.uuid4()) for volume_id in (root, one, other)}
        timed("snapshots of three volumes in use", lambda kept=snapshots: snapshot(here, spec, volumes, kept))  # type: ignore[misc]
        goes_on(here, spec)
        copies = [make_volume(volumes, source_snapshot=snapshots[volume_id]) for volume_id in (one, other)]
        first, second = (number_in(exported(volumes, volume_id)) for volume_id in copies)
        assert first - second in (0, 1), (first, second)
        assert second > 0

    # The size grows while it runs.
    timed("extension", lambda: volumes.extend(root, 2))
    here.volumes.extend(instance.uuid, root, 2 * GIB)
    late = make_volume(volumes)
    for _ in range(2):
        here.volumes.attach(instance.uuid, device(late, "/dev/vde"), volumes.require(late))
    here.volumes.detach(instance.uuid, late, 60)
    wait_for("the new size", lambda: f"root has {2 * GIB // 512} sectors" in lines(here, spec, "root has"), PATIENCE)
    here.volumes.extend(instance.uuid, root, GIB)
    info = volumes.pool.rbd.info(f"{POOL}/{rbd.VOLUME}{root}")
    assert info is not None and info.size == 2 * GIB, "an older, smaller size takes nothing from the guest"

    # A backup in use comes back as it was, with its sum, and boots.
    backup = VolumeWork(id=1, verb=VolumeVerb.BACKUP, volume_id=root, backup_id=str(uuid.uuid4()))
    held = lambda ids: here.volume_copies.held(instance.uuid, ids)  # noqa: E731
    timed("backup of 2 GB in use", lambda: volumes.create_backup_in_use(backup, lambda parts: None, held))
    data_id, restored = str(backup.backup_id), str(uuid.uuid4())
    volumes.verify_backup(data_id)
    stored = os.stat(volumes.backup_path(data_id))
    print(f"backup: {stored.st_size - SUM} bytes, {stored.st_blocks * 512} on disk")
    work = VolumeWork(id=1, verb=VolumeVerb.RESTORE, volume_id=restored, data_id=data_id, size=2, is_new=True)
    timed("restore of 2 GB", lambda: volumes.restore_backup(work))
    assert exported(volumes, restored) == Path(volumes.backup_path(data_id)).read_bytes()[:-SUM]
    goes_on(here, spec)

    # A backup of the server has all its volumes, as they were at one moment.
    for is_on in (True, False):
        if not is_on:
            here.power.off(instance.uuid, 0)
        saved = timed(
            f"backup of a server that is {'on' if is_on else 'off'}",
            lambda: server_backup(here, spec, volumes, [root, one, other]),
        )
        first, second = number_in(saved[one]), number_in(saved[other])
        assert first - second in (0, 1), (first, second)
        assert second > 0
    assert saved[one] == exported(volumes, one)
    here.power.on(instance.uuid)
    wait_for("writes of the third boot", lambda: lines(here, spec, "pair 6").count("pair 6") == 3, PATIENCE)

    # A live migration takes the volumes along.
    moved = arriving(spec, 2)
    print(f"live migration: {migrate(here, there, moved):.2f} s")
    goes_on(there, moved)
    here.guests.destroy(instance.uuid)
    goes_on(there, moved)

    # A host that loses power: the others wait until Ceph has forgotten its guest.
    written = pairs(there, moved)
    _kill_guest(there, moved)
    timed("start after a lost guest", lambda: here.guests.spawn(arriving(spec, 3)))
    wait_for("boot with its mark", lambda: lines(here, spec, "on disk: marked-by-a-guest"), PATIENCE)
    there.guests.destroy(instance.uuid)
    with pytest.raises(exceptions.DiskInUse):
        impatient.guests.spawn(arriving(spec, 4))
    here.guests.destroy(instance.uuid)
    assert number_in(exported(volumes, one)) > 0 and written > 0

    # The snapshot of the root boots, and its volume outlives the snapshot and the first volume.
    for volume_id in (root, one, other):
        timed("deletion of a volume with a snapshot", lambda kept=volume_id: volumes.delete(kept))  # type: ignore[misc]
    clone = make_volume(volumes, source_snapshot=snapshots[root])
    for snapshot_id in snapshots.values():
        volumes.delete_snapshot(snapshot_id)
    found = msgspec.structs.replace(plain.instance, block_devices=[device(clone, "/dev/vda", boot_index=0)])
    booted = msgspec.structs.replace(plain, instance=found, volumes={clone: volumes.require(clone)})
    here.guests.spawn(booted)
    wait_for("boot of the clone", lambda: lines(here, booted, "on disk: marked-by-a-guest"), PATIENCE)
    assert state(here, booted) == PowerState.RUNNING
    with pytest.raises(exceptions.VirtDriverError, match="is in use by"):
        volumes.delete(clone)
    here.guests.destroy(found.uuid)

    _delete_all(volumes)


def test_server_with_encrypted_volumes_in_ceph(
    make_host: MakeHost, images: Images, volumes: RbdVolumes, tmp_path: Path
) -> None:
    """The guest boots from one volume, and gets another one. It moves, and Ceph has no plain data."""
    options = {"live_migration_uri": hosts.URI}
    here, there = make_host("here", hosts.HERE, **options), make_host("there", hosts.THERE, **options)
    key = VolumeKey(passphrase=uuid.uuid4().hex)
    here.volume_key = there.volume_key = volumes.volume_key = lambda volume_id: key
    root = make_volume(volumes, image=images.disk, encrypted=True)
    one, other = (make_volume(volumes, encrypted=True) for _ in range(2))
    script = PAIRS.replace("ONE", one[:20]).replace("OTHER", other[:20])
    plain = guest_spec(images, [], images.disk, config_drive=True, user_data=scripts.user_data(script))
    devices = [device(root, "/dev/vda", boot_index=0), device(one, "/dev/vdc")]
    instance = msgspec.structs.replace(plain.instance, block_devices=devices)
    paths = {volume_id: volumes.require(volume_id) for volume_id in (root, one)}
    spec = msgspec.structs.replace(plain, instance=instance, volumes=paths)
    here.guests.spawn(spec)
    wait_for("boot", lambda: lines(here, spec, "mark written"), PATIENCE)
    late = device(other, "/dev/vdd")
    here.volumes.attach(instance.uuid, late, volumes.require(other))
    wait_for("writes", lambda: pairs(here, spec) > 5, PATIENCE)
    volumes.extend(root, 2)
    here.volumes.extend(instance.uuid, root, 2 * GIB)
    wait_for("the new size", lambda: f"root has {2 * GIB // 512} sectors" in lines(here, spec, "root has"), PATIENCE)

    snapshots = {volume_id: str(uuid.uuid4()) for volume_id in (root, one, other)}
    snapshot(here, spec, volumes, snapshots)
    instance = msgspec.structs.replace(instance, block_devices=[*devices, late])
    spec = msgspec.structs.replace(spec, instance=instance, volumes=paths | {other: volumes.require(other)})
    moved = arriving(spec, 2)
    print(f"live migration: {migrate(here, there, moved):.2f} s")
    here.guests.destroy(instance.uuid)
    goes_on(there, moved)
    there.power.reboot(instance.uuid, "HARD", 0)
    wait_for("boot with its mark", lambda: lines(there, moved, "on disk: marked-by-a-guest"), PATIENCE)
    there.guests.destroy(instance.uuid)

    copied = make_volume(volumes, size=2, source_snapshot=snapshots[root], encrypted=True)
    found = msgspec.structs.replace(plain.instance, block_devices=[device(copied, "/dev/vda", boot_index=0)])
    booted = msgspec.structs.replace(plain, instance=found, volumes={copied: volumes.require(copied)})
    here.guests.spawn(booted)
    wait_for("boot of the copy", lambda: lines(here, booted, "on disk: marked-by-a-guest"), PATIENCE)
    here.guests.destroy(found.uuid)
    for name in volumes.pool.rbd.images(POOL):
        if name.startswith(rbd.LUKS):
            volumes.pool.export(name, str(tmp_path / name), lambda: None)
            with (tmp_path / name).open("rb") as file:
                assert file.read(len(luks.MAGIC)) == luks.MAGIC
                while chunk := file.read(16 * 1024**2):
                    assert b"marked-by-" not in chunk and b"number 1" not in chunk
            (tmp_path / name).unlink()
    for volume_id in (root, one, other, copied):
        volumes.delete(volume_id)
    for snapshot_id in snapshots.values():
        volumes.delete_snapshot(snapshot_id)
    _delete_all(volumes)


def _kill_guest(driver: LibvirtDriver, spec: SpawnSpec) -> None:
    """Kill the guest's qemu, whose last words do not reach Ceph."""
    path = Path(f"/run/nova-lite-hosts/.{hosts.NUMBER}/run/qemu")
    pids = [int(found.read_text()) for found in path.glob("*.pid") if _is_guest(found, spec)]
    assert len(pids) == 1, pids
    os.kill(pids[0], signal.SIGKILL)
    wait_for("the end of the guest", lambda: state(driver, spec) in (PowerState.SHUTDOWN, PowerState.CRASHED), PATIENCE)


def _is_guest(path: Path, spec: SpawnSpec) -> bool:
    process = Path(f"/proc/{path.read_text().strip()}/cmdline")
    return process.exists() and spec.instance.uuid in process.read_text()


def _delete_all(volumes: RbdVolumes) -> None:
    """Delete all volumes and snapshots. Nothing is left in the pool, neither in its trash."""
    assert volumes.pool.rbd.with_snapshots(POOL, rbd.UNFINISHED, 60) == []
    for name in volumes.pool.rbd.images(POOL):
        if name.startswith(rbd.VOLUME):
            volumes.delete(name.removeprefix(rbd.VOLUME))
        elif name.startswith(rbd.SNAPSHOT):
            volumes.delete_snapshot(name.removeprefix(rbd.SNAPSHOT))
    assert [name for name in volumes.pool.rbd.images(POOL) if not name.startswith(rbd.BASE)] == []
    assert volumes.pool.rbd.trash(POOL) == []
