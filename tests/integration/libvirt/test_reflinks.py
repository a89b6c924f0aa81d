"""Raw root disks on XFS and btrfs: guests of an image share its blocks. The file systems are in files of this test."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.disks import disk_usage, reflinks
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration import scripts
from tests.integration.libvirt import hosts
from tests.integration.libvirt.conftest import Images, MakeDriver, MakeHost, boot, guest_lines, guest_spec
from tests.integration.libvirt.moves import arriving, instance_path, lines, run_and_mark
from tests.support.guests import make_image

MIB = 1024**2
#: Bytes of data of the image, most of which no guest writes.
DATA = 64 * MIB

#: Options of a host with a small disk.
SMALL = {"image__min_free_mb": 0}
MAKERS = {"xfs": ("mkfs.xfs", "-q", "-m", "reflink=1"), "btrfs": ("mkfs.btrfs", "-q")}


@contextlib.contextmanager
def mounted(kind: str) -> Iterator[Path]:
    """Mount a new file system of 600 MiB."""
    if shutil.which(MAKERS[kind][0]) is None:
        pytest.skip(f"no {MAKERS[kind][0]} here ('devstack/test.sh integration' installs it)")
    path = Path(tempfile.mkdtemp(prefix="nova-lite-test-", dir="/var/tmp"))
    image, place = path / "image", path / "mounted"
    try:
        path.chmod(0o755)
        place.mkdir()
        with image.open("wb") as file:
            file.truncate(600 * MIB)
        subprocess.run([*MAKERS[kind], str(image)], check=True)
        done = subprocess.run(["mount", "-o", "loop", image, place], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no {kind} in a loop device here: {done.stderr.strip()}")
        try:
            place.chmod(0o755)
            yield place
        finally:
            subprocess.run(["umount", place], check=True)
    finally:
        shutil.rmtree(path)


@pytest.fixture(params=sorted(MAKERS))
def place(request: pytest.FixtureRequest) -> Iterator[Path]:
    with mounted(request.param) as path:
        yield path


@pytest.fixture
def form() -> str:
    return "raw"


def used(place: Path) -> int:
    """Return the bytes that the file system has in use, as df shows them."""
    os.sync()
    room = os.statvfs(place)
    return (room.f_blocks - room.f_bfree) * room.f_frsize


def large(images: Images, place: Path) -> Path:
    """Return the guest's bootable disk as a larger raw image: its last part is random data."""
    path = place.parent / "large.img"
    subprocess.run(["qemu-img", "convert", "-O", "raw", images.disk.name, path], check=True)
    with path.open("ab") as file:
        file.write(os.urandom(DATA))
    return path


@pytest.mark.parametrize("disk_format", ["raw", "qcow2"])
def test_second_guest_of_an_image_takes_little_space(
    place: Path, make_driver: MakeDriver, images: Images, disk_format: str
) -> None:
    file = large(images, place)
    if disk_format == "qcow2":
        subprocess.run(["qemu-img", "convert", "-c", "-O", "qcow2", file, f"{file}.qcow2"], check=True)
        file = file.with_name(f"{file.name}.qcow2")
    image = make_image(file, disk_format)
    driver = make_driver("one", state_path=str(place), **SMALL)
    driver.images.cache(image)
    taken: list[int] = []
    specs: list[SpawnSpec] = []
    for number in range(2):
        before = used(place)
        specs.append(guest_spec(images, [], image=image, hostname=f"guest{number}"))
        boot(driver, specs[-1])
        guest_lines(driver, specs[-1].instance.uuid)
        driver.standby.pause(specs[-1].instance.uuid)
        taken.append(used(place) - before)
    print(f"\n{DATA // MIB} MiB of data: the guests took {[size // MIB for size in taken]} MiB")
    assert taken[1] < DATA / 4
    shared = [reflinks.shared_bytes(str(instance_path(driver, spec) / "disk.raw")) for spec in specs]
    assert min(shared) > DATA / 2
    growth = disk_usage.growth(str(place / "instances"))
    assert growth > 2 * 1024**3 - DATA / 2, "what is shared can still take room"
    for spec in specs:
        driver.guests.destroy(spec.instance.uuid)


def marking(images: Images) -> SpawnSpec:
    return guest_spec(images, [], config_drive=True, user_data=scripts.user_data(scripts.MARKS))


def shares(driver: LibvirtDriver, spec: SpawnSpec) -> bool:
    return reflinks.shared_bytes(str(instance_path(driver, spec) / "disk.raw")) > 0


@pytest.mark.parametrize("place", ["xfs"], indirect=True)
def test_guest_is_resized_and_moves_to_a_host_without_reflinks_and_back(
    place: Path, make_host: MakeHost, images: Images
) -> None:
    here = make_host("here", hosts.HERE, path=place / "here", **SMALL)
    there = make_host("there", hosts.THERE, images_type="qcow2")
    spec = marking(images)
    uuid = spec.instance.uuid
    here.guests.spawn(spec)
    run_and_mark(here, spec, "nothing")

    bigger = arriving(spec, 2, root_gb=2)
    before = used(place)
    here.moves.finish(bigger, here.moves.set_aside(uuid, 30), power_on=True)
    run_and_mark(here, bigger, "marked-by-a-guest")
    assert lines(here, bigger, "on disk:")[-1].endswith(f"sectors {2 * 1024**3 // 512}")
    assert used(place) - before < 32 * MIB
    assert shares(here, bigger), "the disk that is set aside has the same blocks"
    here.moves.discard(uuid)

    moved = arriving(bigger, 3)
    there.moves.finish(moved, here.moves.offer_disks(uuid, 30), power_on=True)
    run_and_mark(there, moved, "marked-by-a-guest")
    here.guests.destroy(uuid)
    back = arriving(bigger, 4)
    here.moves.finish(back, there.moves.offer_disks(uuid, 30), power_on=True)
    run_and_mark(here, back, "marked-by-a-guest")
