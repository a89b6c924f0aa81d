"""Removal of images from the cache, and remains of killed daemons, on real files with the real qemu-img."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.base.disk_room import DiskRoom
from nova_lite.image import local, qcow2
from nova_lite.objects import Image
from nova_lite.virt import images
from nova_lite.virt.libvirt.disks import disk_usage, image_cache, layers
from nova_lite.virt.libvirt.disks.image_cache import ImageCache
from nova_lite.virt.libvirt.domain import guest_xml
from nova_lite.virt.libvirt.records import Records
from tests.support.guests import make_image

MIB = 1024**2
HOUR = 3600.0


def fetch_image(image: Image, target: str) -> None:
    local.copy(image, image.name, target)


class World:
    def __init__(self, tmp_path: Path, qemu_img: images.QemuImg) -> None:
        self.path = tmp_path / "instances"
        self.records = Records(str(self.path), "host")
        self.records.prepare()
        self.qemu_img = qemu_img
        self.cache = ImageCache(self.records.base_path, qemu_img, fetch_image, DiskRoom(0))
        self.source = tmp_path / "source"
        self.source.write_bytes(os.urandom(4096))

    def cached(self, age: float = 2 * HOUR) -> str:
        """Return the id of a cached image that was last requested ``age`` seconds ago."""
        image = make_image(self.source)
        self.cache.get(image)
        self.make_old(image.id, age)
        return image.id

    def make_old(self, name: str, age: float) -> None:
        then = time.time() - age
        os.utime(self.path / "_base" / name, (then, then))

    def instance(self, *image_ids: str) -> Path:
        return Path(self.records.create(str(uuid.uuid4()), 1, image_ids))

    def overlay(self, directory: Path, image_id: str, name: str = "disk", size: int = 8 * MIB) -> None:
        self.qemu_img.create_overlay(str(directory / name), str(self.path / "_base" / image_id), "raw", size)

    def age(self) -> list[str]:
        return self.cache.remove_unused(HOUR, lambda: disk_usage.used_images(str(self.path)))

    def files(self) -> set[str]:
        return {path.name for path in (self.path / "_base").iterdir() if path.is_file()}


@pytest.fixture
def world(tmp_path: Path, qemu_img: images.QemuImg) -> World:
    return World(tmp_path, qemu_img)


# --- unused images


def test_unused_image_is_removed_when_it_is_old(world: World) -> None:
    old, young = world.cached(), world.cached(age=HOUR / 2)
    assert world.age() == [old]
    assert world.files() == {young}
    assert world.age() == []


@pytest.mark.parametrize("name", ["disk", "disk.rescue"])
def test_backing_image_of_an_overlay_stays(world: World, name: str) -> None:
    """Overlays may be older than the records of used images."""
    used, unused = world.cached(), world.cached()
    world.overlay(world.instance(), used, name)
    assert world.age() == [unused]


def test_image_of_a_kernel_or_a_running_build_stays(world: World) -> None:
    kernel, root = world.cached(), world.cached()
    directory = world.instance(kernel, root)
    assert world.age() == []
    os.rename(directory, f"{directory}@aside")
    assert world.age() == []
    half_made = world.path / f".new-other-{uuid.uuid4()}"
    os.rename(f"{directory}@aside", half_made)
    assert world.age() == []
    (half_made / "instance.json").unlink()
    assert sorted(world.age()) == sorted([kernel, root])


def test_request_renews_the_age_of_an_image(world: World) -> None:
    image = make_image(world.source)
    world.cache.get(image)
    world.make_old(image.id, 2 * HOUR)
    world.cache.get(image)
    assert world.age() == []


def test_image_requested_during_the_removal_stays(world: World) -> None:
    image = make_image(world.source)
    world.cache.get(image)
    world.make_old(image.id, 2 * HOUR)

    def used() -> set[str]:
        world.cache.get(image)
        return set()

    assert world.cache.remove_unused(HOUR, used) == []
    assert world.files() == {image.id}


def test_unreadable_record_keeps_all_images(world: World) -> None:
    old = world.cached()
    (world.instance() / "instance.json").write_text("{")
    with pytest.raises(OSError, match=r"instance\.json cannot be read"):
        world.age()
    assert world.files() == {old}


def test_image_that_is_being_fetched_is_skipped(world: World) -> None:
    """The removal and the start do not wait for its lock."""
    image = make_image(world.source)
    world.cache.get(image)
    world.make_old(image.id, 2 * HOUR)
    part = world.path / "_base" / f"{image.id}.part"
    part.write_bytes(b"x")
    world.make_old(part.name, 2 * HOUR)
    context = multiprocessing.get_context("fork")
    holding, done = context.Event(), context.Event()

    def hold() -> None:
        with ImageCache(world.records.base_path, world.qemu_img, fetch_image, DiskRoom(0))._lock(image.id):
            holding.set()
            done.wait(30)

    other = context.Process(target=hold)
    other.start()
    try:
        assert holding.wait(30)
        assert world.age() == []
        world.cache.clean()
        assert world.files() == {image.id, part.name}
    finally:
        done.set()
        other.join()
    world.cache.clean()
    assert world.age() == [image.id]
    assert world.files() == set()


def test_boot_files_contain_the_kernel_of_a_domain() -> None:
    assert guest_xml.boot_files("<domain><os><kernel>/b/k</kernel><initrd>/b/r</initrd></os></domain>") == {"k", "r"}
    assert guest_xml.boot_files("<domain><os><boot dev='hd'/></os></domain>") == set()


# --- killed daemons


def killed_at(world: World, step: str, patch: Callable[[], Any], disk_format: str) -> set[str]:
    """Return the files in the cache after a daemon was killed at ``step`` of fetching an image."""
    image = make_image(world.source, disk_format)
    context = multiprocessing.get_context("fork")

    def run() -> None:
        patch()
        world.cache.get(image)

    daemon = context.Process(target=run)
    daemon.start()
    daemon.join(60)
    assert daemon.exitcode == -signal.SIGKILL, step
    return world.files()


def kill(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("step", "disk_format", "left"),
    [
        ("fetching", "raw", {".part"}),
        ("checking", "raw", {".part"}),
        ("converting", "vdi", {".part", ".raw"}),
        ("renaming", "raw", {".part"}),
        ("syncing", "raw", {""}),
    ],
)
def test_partial_files_of_a_killed_daemon_are_removed_at_the_next_start(
    world: World, step: str, disk_format: str, left: set[str]
) -> None:
    if disk_format != "raw":
        images.run("qemu-img", "create", "-q", "-f", disk_format, str(world.source), str(MIB))

    def half_fetched(image: Image, target: str) -> None:
        Path(target).write_bytes(b"half")
        kill()

    def half_converted(source: str, info: Any, target: str, check: Callable[[], None]) -> None:
        Path(target).write_bytes(b"half")
        kill()

    def patch() -> None:
        if step == "fetching":
            world.cache._fetch_image = half_fetched
        elif step == "checking":
            images.check_acceptable = kill
        elif step == "converting":
            world.cache._qemu_img.convert = half_converted  # type: ignore[method-assign, assignment]
        elif step == "renaming":
            os.rename = kill
        else:
            image_cache.files.sync_directory = kill

    found = killed_at(world, step, patch, disk_format)
    assert {Path(name).suffix if "." in name else "" for name in found} == left
    world.cache.clean()
    whole = {name for name in found if "." not in name}
    assert world.files() == whole
    image = make_image(world.source, disk_format)
    assert Path(world.cache.get(image).path).exists()


def test_image_id_like_a_partial_file_is_rejected(world: World) -> None:
    with pytest.raises(exceptions.ImageUnacceptable, match="not a plain name"):
        world.cache.get(make_image(world.source, id="my.raw"))


# --- disk space


def test_growth_counts_the_bytes_that_disks_may_still_use(world: World) -> None:
    base = world.cached()
    directory = world.instance(base)
    world.overlay(directory, base, size=64 * MIB)
    with open(directory / "disk.eph0", "wb") as file:
        file.truncate(32 * MIB)
        file.write(bytes(4 * MIB))
        file.flush()
        os.fsync(file.fileno())
    growth = disk_usage.growth(str(world.path))
    assert 91 * MIB < growth <= 92 * MIB


def test_overlay_header_is_read(world: World, tmp_path: Path) -> None:
    base = world.cached()
    directory = world.instance()
    world.overlay(directory, base, size=64 * MIB)
    assert qcow2.read(str(directory / "disk")) == qcow2.Header(64 * MIB, str(world.path / "_base" / base), "raw")
    assert qcow2.read(str(world.source)) is None
    (tmp_path / "short").write_bytes(b"QFI\xfb")
    assert qcow2.read(str(tmp_path / "short")) is None


def test_layer_stays_while_a_disk_or_another_layer_lies_on_it(world: World) -> None:
    image = world.cached()
    names = [layers.name_of(str(uuid.uuid4())) for _ in range(2)]
    base = world.path / "_base"
    world.overlay(base, image, names[0])
    world.qemu_img.create_overlay(str(base / names[1]), str(base / names[0]), "qcow2", 8 * MIB)
    (base / (names[1] + layers.NVRAM)).touch()
    directory = world.instance()
    world.qemu_img.create_overlay(str(directory / "disk"), str(base / names[1]), "qcow2", 8 * MIB)
    for name in (*names, names[1] + layers.NVRAM):
        world.make_old(name, 2 * HOUR)

    def remove(**options: bool) -> list[str]:
        return world.cache.remove_unused(HOUR, lambda: disk_usage.used_images(str(world.path)), **options)

    assert remove(layers=True) == [names[1] + layers.NVRAM]
    assert remove() == [], "the image is below the layers"
    (directory / "disk").unlink()
    assert (remove(layers=True), remove(layers=True), remove(layers=True)) == ([names[1]], [names[0]], [])
    assert remove() == [image]


def test_layer_is_no_image(world: World) -> None:
    image = make_image(world.source, id=layers.name_of(str(uuid.uuid4())))
    with pytest.raises(exceptions.ImageUnacceptable, match="plain name"):
        world.cache.get(image)
