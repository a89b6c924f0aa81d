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
