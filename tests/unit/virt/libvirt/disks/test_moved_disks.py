"""Disks that are adopted on the host where they were made."""

from __future__ import annotations

from pathlib import Path

import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.disk_room import DiskRoom
from nova_lite.image import local
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
