"""A real guest whose disks are in a real Ceph of one node, with two libvirt hosts.

``NOVA_LITE_LONG=1`` runs it, as root, with the packages of `test_rbd_volumes`. It prints figures.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.compute.guard import QemuGuests
from nova_lite.objects import DiskPlace, LeftDisks
from nova_lite.operations.states import PowerState
from nova_lite.virt import images as disk_images
from nova_lite.virt.abilities import BackupRequest, SpawnSpec
from nova_lite.virt.driver import snapshots_path
from nova_lite.virt.libvirt.driver import LibvirtDriver
from nova_lite.virt.rbd import Rbd
from tests.integration import scripts
from tests.integration.ceph import POOL, USER, Ceph
from tests.integration.libvirt import hosts
from tests.integration.libvirt.conftest import LONG, PATIENCE, Images, MakeHost, guest_spec
from tests.integration.libvirt.moves import arriving, counts, lines, migrate, run_and_mark, state, wait_for_count
from tests.support.waiting import wait_for

pytestmark = [LONG, pytest.mark.timeout(1800)]

GIB = 1024**3
#: Place of the guest's mark on its disk.
MARK = 1024 * 512


def timed(what: str, action: Callable[[], Any]) -> Any:
    started = time.monotonic()
    result = action()
    print(f"{what}: {time.monotonic() - started:.2f} s")
    return result


def booted(driver: LibvirtDriver, spec: SpawnSpec, count: int = 1) -> None:
    """Wait for a boot of the guest, and check that it finds its earlier mark."""
    wait_for("mark", lambda: len(lines(driver, spec, "mark written")) >= count, PATIENCE)
    assert lines(driver, spec, "on disk:")[-1].startswith("on disk: marked-by-a-guest,")


def evacuated(spec: SpawnSpec, lost: LibvirtDriver, generation: int) -> SpawnSpec:
    place = DiskPlace(host=lost.host, generation=spec.generation, marks=lost.shared_disks.view().marks)
    left = LeftDisks(places=[place], required=True)
    return msgspec.structs.replace(spec, generation=generation, disks=left)


def work_file(driver: LibvirtDriver, name: str) -> Path:
    directory = Path(snapshots_path(driver.conf, driver.host))
    directory.mkdir(parents=True, exist_ok=True)
    return directory / name


def snapshot(driver: LibvirtDriver, spec: SpawnSpec) -> bytes:
    """Return the beginning of an image of the guest's root disk."""
    target, raw = work_file(driver, "image"), work_file(driver, "raw")
    driver.snapshots.take(spec.instance.uuid, str(target), lambda: None)
    disk_images.run("qemu-img", "convert", "-f", "qcow2", "-O", "raw", str(target), str(raw))
    with raw.open("rb") as file:
        data = file.read(MARK + 512)
    target.unlink()
    raw.unlink()
    return data


def back_up(driver: LibvirtDriver, spec: SpawnSpec) -> bytes:
    target = work_file(driver, "stream")
    request = BackupRequest(backup_id=f"{spec.instance.uuid}-{time.monotonic_ns()}")
    driver.backups.take(
        spec.instance.uuid, str(target), request, lambda: None, lambda volume_id: pytest.fail(volume_id)
    )
    data = target.read_bytes()
    target.unlink()
    return data


def test_server_with_its_disks_in_ceph(ceph: Ceph, secret: str, make_host: MakeHost, images: Images) -> None:
    """The guest is copied, moved, rescued, lost, evacuated and resized, and nothing of it is left."""
    options = {
        "images_type": "rbd",
        "live_migration_uri": hosts.URI,
        "volume__rbd_pool": POOL,
        "volume__rbd_user": USER,
        "volume__rbd_ceph_conf": ceph.config,
        "volume__rbd_secret_uuid": secret,
    }
    here, there = make_host("here", hosts.HERE, **options), make_host("there", hosts.THERE, **options)
    elsewhere = make_host("elsewhere", hosts.THERE, live_migration_uri=hosts.URI)
    rbd = Rbd(ceph.config, USER)

    def disks(spec: SpawnSpec) -> list[str]:
        beginning = f"server-{spec.instance.uuid}-"
        return sorted(name.removeprefix(beginning) for name in rbd.images(POOL) if name.startswith(beginning))

    inventory = here.machine.inventory()
    assert 0 < inventory.disk_available_least <= inventory.disk_gb < 30  # type: ignore[operator]
    script = scripts.user_data(scripts.MARKS + scripts.COUNTS)
    plain = guest_spec(images, [], images.disk, config_drive=True, user_data=script)
    spec = arriving(plain, 1, ephemeral_gb=1, swap=64)
    uuid = spec.instance.uuid
    timed("first server of an image", lambda: here.guests.spawn(spec))
    run_and_mark(here, spec, "nothing")
    assert disks(spec) == ["1-disk", "1-disk.config", "1-disk.eph0", "1-disk.swap"]

    # An image and a backup of the running guest have its mark, and the guest continues.
    assert b"marked-by-a-guest" in timed("image of a running server", lambda: snapshot(here, spec))[MARK:]
    assert b"marked-by-a-guest" in timed("backup of a running server", lambda: back_up(here, spec))
    wait_for_count(here, spec, counts(here, spec)[-1][0] + 5)

    # A host without this pool does not get it. The next one gets it without a copy.
    with pytest.raises(exceptions.VirtDriverError, match=r"rbd|pool"):
        migrate(here, elsewhere, arriving(spec))
    assert disks(spec)[0] == "1-disk"
    moved = arriving(spec)
    before = counts(here, spec)[-1][0]
    print(f"live migration: {migrate(here, there, moved):.2f} s")
    here.guests.destroy(uuid)
    there.live_moves.finish(uuid)
    wait_for_count(there, moved, before + 20)
    assert disks(spec) == ["2-disk", "2-disk.config", "2-disk.eph0", "2-disk.swap"]
    assert there.shared_disks.taken() == set()

    # A rescue system has a disk of its own.
    there.rescue.start(msgspec.structs.replace(moved, image=images.disk), 0)
    assert "2-disk.rescue" in disks(spec)
    wait_for("boot of the rescue system", lambda: lines(there, moved, "mark written"), PATIENCE)
    there.rescue.end(uuid)
    assert [name for name in disks(spec) if "rescue" in name] == []
    booted(there, moved, 2)

    # A lost host's guest runs again with its disks. While it still runs there, it does not.
    for _ in range(2):
        for driver in (here, there):
            view = driver.shared_disks.view()
    assert view.live == [here.host]
    again = evacuated(moved, there, 3)
    with pytest.raises(exceptions.VirtDriverError, match="is in use by"):
        here.guests.spawn(again)
    assert (state(there, moved), disks(spec)[0]) == (PowerState.RUNNING, "2-disk")
    QemuGuests().kill([uuid])
    wait_for("end of the guest", lambda: state(there, moved) != PowerState.RUNNING, PATIENCE)
    timed("evacuation, until Ceph has forgotten the guest", lambda: here.guests.spawn(again))
    booted(here, again)
    there.guests.destroy(uuid)
    here.shared_disks.own(uuid)
    assert disks(spec) == ["3-disk", "3-disk.config", "3-disk.eph0", "3-disk.swap"]

    # A resize clones the disks. The source's ones stay for a revert until it is confirmed.
    bigger = arriving(spec, 4, root_gb=2)
    source = here.moves.offer_disks(uuid, 0)
    timed("resize", lambda: there.moves.finish(bigger, source, power_on=True))
    booted(there, bigger)
    assert lines(there, bigger, "on disk:")[-1].endswith(f"sectors {2 * GIB // 512}")
    assert {"3-disk", "4-disk"} < set(disks(spec))
    here.guests.destroy(uuid)
    there.power.off(uuid, 0)
    assert b"marked-by-a-guest" in timed("backup of a server that is off", lambda: back_up(there, bigger))
    there.power.reboot(uuid, "HARD", 0)
    booted(there, bigger, 2)

    there.guests.destroy(uuid)
    assert disks(spec) == []
    assert rbd.trash(POOL) == []
    assert sorted(name.partition("-")[0] for name in rbd.images(POOL)) == ["hosts", "image"]
