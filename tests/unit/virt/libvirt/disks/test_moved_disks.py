"""Disks that are adopted on the host where they were made."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, cast

import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.disk_room import DiskRoom
from nova_lite.image import local
from nova_lite.objects import Image
from nova_lite.virt import images
from nova_lite.virt.libvirt.disks import layers
from nova_lite.virt.libvirt.disks.disks import DiskMaker
from nova_lite.virt.libvirt.disks.image_cache import ImageCache
from nova_lite.virt.libvirt.disks.moved_disks import MovedDisks
from tests.support.config_drives import drives
from tests.support.guests import make_flavor, make_image, make_instance, make_spec


def test_local_disks_are_read_without_a_program(
    tmp_path: Path, conf: cfg.ConfigOpts, qemu_img: images.QemuImg, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "image").write_bytes(bytes(1024**2))
    (tmp_path / "i").mkdir()
    (tmp_path / "_base").mkdir()
    cache = ImageCache(
        str(tmp_path / "_base"), qemu_img, lambda image, path: local.copy(image, image.name, path), DiskRoom(0)
    )
    maker = DiskMaker(cache, qemu_img, drives(False))
    image = make_image(tmp_path / "image")
    spec = make_spec(instance=make_instance(flavor=make_flavor(root_gb=2)), image=image)
    maker.make(str(tmp_path / "i"), spec)
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(images, "run", lambda *command: commands.append(command))
    moved = MovedDisks(conf, maker, cache, qemu_img, None)  # type: ignore[arg-type]
    (root,) = moved.adopt(str(tmp_path / "i"), spec, None).disks
    assert (root.path, root.format) == (str(tmp_path / "i" / "disk"), "qcow2")
    assert commands == []

    small = make_spec(instance=make_instance(flavor=make_flavor(root_gb=1)), image=image)
    with pytest.raises(exceptions.FlavorDiskTooSmall):
        moved.adopt(str(tmp_path / "i"), small, None)
    big = make_spec(instance=make_instance(flavor=make_flavor(root_gb=3)), image=image)
    moved.adopt(str(tmp_path / "i"), big, None)
    assert [command[:2] for command in commands] == [("qemu-img", "resize")]


def test_disk_with_snapshot_points_is_not_merged_with_an_image_that_is_gone(
    tmp_path: Path, conf: cfg.ConfigOpts, qemu_img: images.QemuImg
) -> None:
    """The snapshots inside of the disk would refer to nothing."""

    class Gone:
        def get(self, image: Image) -> None:
            raise exceptions.ImageGone(image_id=image.id, reason="it was deleted")

    disk, unused = tmp_path / "disk", cast(Any, None)
    (tmp_path / "image").touch()
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", disk, "1M"], check=True)
    subprocess.run(["qemu-img", "snapshot", "-c", "point", disk], check=True)
    moved = MovedDisks(conf, unused, cast(Any, Gone()), qemu_img, cast(Any, None))
    with pytest.raises(exceptions.VirtDriverError, match="snapshot points need image"):
        moved._set_base(str(tmp_path), str(disk), make_image(tmp_path / "image"), unused)


class Here:
    """A host with an image, and a disk of a clone in the directory ``i``."""

    def __init__(self, path: Path, conf: cfg.ConfigOpts, qemu_img: images.QemuImg, base: Path | None = None) -> None:
        (path / "image").write_bytes(bytes(1024**2))
        self.image = make_image(path / "image")
        self.spec = make_spec(instance=make_instance(flavor=make_flavor(root_gb=1)), image=self.image)
        self.base, self.directory = path / "_base", path / "i"
        for made in {self.base, self.directory, base or self.base}:
            made.mkdir()
        cache = ImageCache(
            str(self.base), qemu_img, lambda image, target: local.copy(image, image.name, target), DiskRoom(0)
        )
        self.moved = MovedDisks(conf, DiskMaker(cache, qemu_img, drives(False)), cache, qemu_img, cast(Any, None))
        cache.get(self.image)
        self.layer = (base or self.base) / layers.name_of(self.spec.instance.uuid)
        below = (base or self.base) / self.image.id
        if base is not None:
            below.write_bytes(bytes(1024**2))
        qemu_img.create_overlay(str(self.layer), str(below), "raw", 1024**3)
        qemu_img.create_overlay(str(self.directory / "disk"), str(self.layer), "qcow2", 1024**3)

    def take(self) -> list[str]:
        """Take the disk of a lost host, and return the names of the files below it."""
        (root,) = self.moved.adopt(str(self.directory), self.spec, None, is_taken=True).disks
        return [file.name for file in root.below or ()]


def test_taken_disk_of_a_clone_keeps_its_layer_and_the_newer_of_its_files(
    tmp_path: Path, conf: cfg.ConfigOpts, qemu_img: images.QemuImg
) -> None:
    here = Here(tmp_path, conf, qemu_img)
    assert here.take() == [here.layer.name, here.image.id]
    newer = here.directory / "disk.new"
    qemu_img.create_overlay(str(newer), str(here.base / here.image.id), "raw", 1024**3)
    assert here.take() == [here.image.id], "its host was lost while it froze the disk"
    assert not newer.exists()


def test_taken_disk_whose_layers_name_another_path_is_refused(
    tmp_path: Path, conf: cfg.ConfigOpts, qemu_img: images.QemuImg
) -> None:
    here = Here(tmp_path, conf, qemu_img, base=tmp_path / "elsewhere")
    with pytest.raises(exceptions.VirtDriverError, match="its layers are based on"):
        here.take()


def test_layers_that_lie_on_themselves_are_refused(
    tmp_path: Path, conf: cfg.ConfigOpts, qemu_img: images.QemuImg
) -> None:
    here = Here(tmp_path, conf, qemu_img)
    here.layer.unlink()

    class Fetcher:
        """Offers a layer that names itself."""

        def fetch_base(self, name: str, path: str) -> None:
            qemu_img.create_overlay(path, str(here.base / name), "qcow2", 1024**3)

    with pytest.raises(exceptions.VirtDriverError, match="more than 16 layers"):
        here.moved._set_base(str(here.directory), str(here.directory / "disk"), here.image, cast(Any, Fetcher()))
    assert sorted(path.name for path in here.base.iterdir() if path.is_file()) == [here.image.id]
