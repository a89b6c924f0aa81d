"""Raw root disks: made from images in any format, adopted, and never read as anything but raw."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.disk_room import DiskRoom
from nova_lite.image import local, qcow2
from nova_lite.objects import Image
from nova_lite.virt import images
from nova_lite.virt.libvirt.disks import disk_usage, disks, reflinks
from nova_lite.virt.libvirt.disks.disks import Disk, DiskMaker
from nova_lite.virt.libvirt.disks.image_cache import ImageCache
from nova_lite.virt.libvirt.disks.moved_disks import MovedDisks
from nova_lite.virt.libvirt.records import Records
from tests.support.config_drives import drives
from tests.support.guests import make_flavor, make_image, make_instance, make_spec

MIB = 1024**2
#: Content of the image, most of which is zero.
CONTENT = os.urandom(MIB).ljust(8 * MIB, b"\0")


class Host:
    def __init__(self, path: Path, conf: cfg.ConfigOpts, qemu_img: images.QemuImg, free: int = 1 << 40) -> None:
        self.path = path / "instances"
        self.records = Records(str(self.path), "host")
        self.records.prepare()
        room = DiskRoom(0, lambda directory: free)
        self.cache = ImageCache(
            self.records.base_path, qemu_img, lambda image, target: local.copy(image, image.name, target), room
        )
        self.maker = DiskMaker(self.cache, qemu_img, drives(False), raw=True)
        self.moved = MovedDisks(conf, self.maker, self.cache, qemu_img, None)  # type: ignore[arg-type]
        self.directory = self.records.create(make_instance().uuid, 1)

    def make(self, image: Image, root_gb: int = 2) -> Disk:
        (root,) = self.maker.make(self.directory, self._spec(image, root_gb)).disks
        return root

    def adopt(self, image: Image, root_gb: int, **changes: Any) -> Disk:
        (root,) = self.moved.adopt(self.directory, self._spec(image, root_gb), None, **changes).disks
        return root

    @staticmethod
    def _spec(image: Image, root_gb: int) -> Any:
        return make_spec(instance=make_instance(flavor=make_flavor(root_gb=root_gb)), image=image)


@pytest.fixture
def host(tmp_path: Path, conf: cfg.ConfigOpts, qemu_img: images.QemuImg) -> Host:
    return Host(tmp_path, conf, qemu_img)


def image_of(tmp_path: Path, disk_format: str) -> Image:
    path = tmp_path / f"image.{disk_format}"
    (tmp_path / "content").write_bytes(CONTENT)
    subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", disk_format, tmp_path / "content", path], check=True)
    return make_image(path, disk_format)


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return image_of(tmp_path, "qcow2")


@pytest.mark.parametrize("disk_format", ["raw", "qcow2", "vdi"])
def test_raw_root_disk_has_the_images_content_and_the_flavors_size(
    tmp_path: Path, host: Host, disk_format: str
) -> None:
    root = host.make(image_of(tmp_path, disk_format))
    path = Path(root.path)
    assert (path.name, root.format, root.device, root.below) == ("disk.raw", "raw", "vda", None)
    assert (path.stat().st_size, path.stat().st_mode & 0o777) == (2 * images.GIB, 0o600)
    assert path.stat().st_blocks * 512 < 2 * MIB
    with path.open("rb") as file:
        assert file.read(len(CONTENT) + 4096) == CONTENT + bytes(4096)
    assert disks.root_file(host.directory) == (root.path, "raw")


def test_raw_root_disk_without_a_size_of_the_flavor_has_that_of_the_image(host: Host, image: Image) -> None:
    assert os.path.getsize(host.make(image, root_gb=0).path) == len(CONTENT)


def test_image_larger_than_the_flavors_disk_makes_no_raw_root_disk(tmp_path: Path, host: Host) -> None:
    path = tmp_path / "big"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", path, "2G"], check=True)
    with pytest.raises(exceptions.FlavorDiskTooSmall):
        host.make(make_image(path, "qcow2"), root_gb=1)
    assert not Path(host.directory, "disk.raw").exists()


def test_copy_that_does_not_fit_is_refused(
    tmp_path: Path, conf: cfg.ConfigOpts, qemu_img: images.QemuImg, image: Image
) -> None:
    host = Host(tmp_path, conf, qemu_img)
    host.cache.raw(image)
    full = Host(tmp_path, conf, qemu_img, free=MIB // 2)
    with pytest.raises(exceptions.VirtDriverError, match="the data of its root disk need"):
        full.make(image)


def test_shared_blocks_are_made_without_a_copy(host: Host, image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    host.cache.raw(image)
    monkeypatch.setattr(fcntl, "ioctl", lambda *arguments: 0)
    monkeypatch.setattr(images, "run_checked", lambda *arguments: pytest.fail("it is copied"))
    host.make(image)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_failure_of_a_reflink_is_no_reason_for_a_copy(
    tmp_path: Path, image: Image, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(number, "configured to fail")

    monkeypatch.setattr(fcntl, "ioctl", fail)
    with pytest.raises(OSError, match="configured to fail"):
        reflinks.make(image.name, str(tmp_path / "copy"))
    with pytest.raises(OSError, match="configured to fail"):
        reflinks.shared_bytes(image.name)


def test_image_is_converted_once_and_its_raw_form_ages_with_it(
    host: Host, image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = Path(host.cache.raw(image).path)
    monkeypatch.setattr(images, "run_checked", lambda *arguments: pytest.fail("it is converted again"))
    assert host.cache.raw(image).path == str(base)
    assert sorted(path.name for path in base.parent.iterdir() if path.is_file()) == [image.id, f"{image.id}.flat"]
    assert host.cache.remove_unused(3600, set) == []
    then = time.time() - 7200
    for path in (base, base.with_suffix("")):
        os.utime(path, (then, then))
    assert host.cache.remove_unused(3600, lambda: {image.id}) == []
    assert host.cache.remove_unused(3600, set) == [image.id, f"{image.id}.flat"]


def test_half_of_a_raw_form_is_removed_and_never_used(
    host: Host, image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(source: str, info: Any, target: str, check: Any) -> None:
        Path(target).write_bytes(b"half")
        raise exceptions.VirtDriverError(reason="configured to fail")

    monkeypatch.setattr(host.cache._qemu_img, "convert", half)
    with pytest.raises(exceptions.VirtDriverError, match="could not be converted"):
        host.cache.raw(image)
    base = Path(host.records.base_path)
    assert [path.name for path in base.iterdir() if path.is_file()] == [image.id]
    (base / f"{image.id}.flat.raw").write_bytes(b"half")  # the daemon is killed here
    host.cache.clean()
    assert [path.name for path in base.iterdir() if path.is_file()] == [image.id]


def test_image_id_like_a_raw_form_is_rejected(host: Host, image: Image) -> None:
    with pytest.raises(exceptions.ImageUnacceptable, match="not a plain name"):
        host.cache.get(make_image(Path(image.name), id="my.flat"))


def test_raw_root_disk_of_another_host_grows_and_never_shrinks(host: Host, image: Image) -> None:
    made = host.make(image)
    assert host.adopt(image, 2, is_taken=True) == made
    assert os.path.getsize(made.path) == 2 * images.GIB
    assert host.adopt(image, 3) == made
    assert os.path.getsize(made.path) == 3 * images.GIB
    with pytest.raises(exceptions.FlavorDiskTooSmall):
        host.adopt(image, 2)
    assert host.adopt(image, 0) == made
    assert os.path.getsize(made.path) == 3 * images.GIB


def test_header_that_a_guest_has_written_is_not_believed(host: Host, image: Image, tmp_path: Path) -> None:
    """The header names a large file of the host, which must not be looked at."""
    made = host.make(image)
    (tmp_path / "secret").write_bytes(os.urandom(8 * MIB))
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-b", tmp_path / "secret", "-F", "raw", tmp_path / "trap"],
        check=True,
    )
    with open(made.path, "r+b") as file:
        file.write((tmp_path / "trap").read_bytes()[:65536])
    assert qcow2.read(made.path) is not None
    assert disk_usage.root_data(made.path) < 2 * MIB
    assert disk_usage.used_images(str(host.path)) == set()
    assert host.adopt(image, 2, is_taken=True) == made


def test_growth_of_a_raw_root_disk_includes_the_blocks_that_it_shares(
    host: Host, image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.make(image)
    assert 2 * images.GIB - 2 * MIB < disk_usage.growth(str(host.path)) <= 2 * images.GIB - MIB
    monkeypatch.setattr(reflinks, "shared_bytes", lambda path: MIB)
    assert 2 * images.GIB - MIB < disk_usage.growth(str(host.path)) <= 2 * images.GIB
