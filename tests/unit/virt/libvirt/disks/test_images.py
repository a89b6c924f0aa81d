"""Image cache and disks, on real files with the real qemu-img."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.disk_room import DiskRoom
from nova_lite.compute.operations.create import is_request_error
from nova_lite.image import local
from nova_lite.objects import Image
from nova_lite.virt import images
from nova_lite.virt.libvirt.disks.disks import DiskMaker
from nova_lite.virt.libvirt.disks.image_cache import CachedImage, ImageCache
from tests.support import exports
from tests.support.config_drives import drives
from tests.support.guests import make_flavor, make_image, make_instance, make_spec

MIB = 1024**2


def create(path: Path, disk_format: str, size: int, *options: str) -> Path:
    subprocess.run(["qemu-img", "create", "-q", "-f", disk_format, *options, str(path), str(size)], check=True)
    return path


def fetch_image(image: Image, target: str) -> None:
    local.copy(image, image.name, target)


@pytest.fixture
def cache(tmp_path: Path, qemu_img: images.QemuImg) -> ImageCache:
    directory = tmp_path / "_base"
    directory.mkdir()
    return ImageCache(str(directory), qemu_img, fetch_image, DiskRoom(0))


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    path = tmp_path / "raw"
    path.write_bytes(os.urandom(4096) * 256)
    return path


def cached_files(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "_base").iterdir() if path.is_file())


# --- cache


def test_raw_image_is_cached_unchanged(tmp_path: Path, cache: ImageCache, raw: Path) -> None:
    image = make_image(raw)
    cached = cache.get(image)
    assert cached == CachedImage(path=str(tmp_path / "_base" / image.id), format="raw", virtual_size=MIB)
    assert Path(cached.path).read_bytes() == raw.read_bytes()
    assert Path(cached.path).stat().st_mode & 0o777 == 0o600


def test_qcow2_image_has_its_virtual_size(tmp_path: Path, cache: ImageCache) -> None:
    cached = cache.get(make_image(create(tmp_path / "q", "qcow2", 10 * MIB), "qcow2"))
    assert (cached.format, cached.virtual_size) == ("qcow2", 10 * MIB)


def test_other_format_is_converted_to_raw(tmp_path: Path, cache: ImageCache) -> None:
    cached = cache.get(make_image(create(tmp_path / "v", "vdi", 3 * MIB), "vdi"))
    assert (cached.format, cached.virtual_size) == ("raw", 3 * MIB)
    assert len(cached_files(tmp_path)) == 1


FORMS = {
    "qcow2": ("qcow2", "qcow2", ()),
    "vmdk": ("vmdk", "vmdk", ("subformat=monolithicSparse",)),
    "vmdk-stream": ("vmdk", "vmdk", ("subformat=streamOptimized",)),
    "vhd": ("vpc", "vhd", ("subformat=dynamic,force_size=on",)),
    "vhd-fixed": ("vpc", "vhd", ("subformat=fixed,force_size=on",)),
    "vhdx": ("vhdx", "vhdx", ("subformat=dynamic",)),
    "vdi": ("vdi", "vdi", ()),
}


def converted(source: Path, form: str) -> tuple[bytes, str]:
    """Return a raw disk in another form, and its disk format."""
    kind, disk_format, options = FORMS[form]
    target = source.with_suffix(f".{form}")
    choices = [word for option in options for word in ("-o", option)]
    command = ["qemu-img", "convert", "-f", "raw", "-O", kind, *choices, str(source), str(target)]
    subprocess.run(command, check=True)
    return target.read_bytes(), disk_format


@pytest.fixture
def guest_disk(tmp_path: Path) -> Path:
    """Provide a disk of 6 MiB with data at its start, after a hole, and at its end."""
    path = tmp_path / "guest.img"
    path.write_bytes(os.urandom(MIB) + bytes(4 * MIB) + os.urandom(MIB))
    return path


@pytest.mark.parametrize("archive", [False, True], ids=["alone", "in an archive"])
@pytest.mark.parametrize("form", [*FORMS, "vmware", "raw"])
def test_disk_has_the_same_bytes_in_each_form(
    tmp_path: Path, cache: ImageCache, guest_disk: Path, form: str, archive: bool
) -> None:
    raw = guest_disk.read_bytes()
    special = {"vmware": (exports.stream_optimized(raw), "vmdk"), "raw": (raw, "raw")}
    content, disk_format = special.get(form) or converted(guest_disk, form)
    if archive:
        text = exports.ovf(["vm-disk1", "vm-disk2"])
        files = {"vm.ovf": text, "vm-disk1": content, "vm-disk2": b"other"}
        content = exports.ova({"vm.ovf": text, "vm.mf": exports.manifest(files), **files})
    path = tmp_path / "image"
    path.write_bytes(content)
    cached = cache.get(make_image(path, disk_format, container_format="ova" if archive else "bare"))
    assert cached.virtual_size == len(raw)
    if form == "qcow2":
        command = ["qemu-img", "convert", "-f", "qcow2", "-O", "raw", cached.path, str(tmp_path / "raw")]
        subprocess.run(command, check=True)
    found = tmp_path / "raw" if form == "qcow2" else Path(cached.path)
    assert found.read_bytes() == raw
    assert len(cached_files(tmp_path)) == 1


@pytest.mark.parametrize("form", ["vmdk", "vmdk-stream", "vhd", "vhd-fixed", "vhdx", "vdi"])
def test_truncated_disk_is_refused_or_not_converted(
    tmp_path: Path, cache: ImageCache, guest_disk: Path, form: str
) -> None:
    """No missing data become zeros."""
    content, disk_format = converted(guest_disk, form)
    path = tmp_path / "image"
    for length in (10, 512, 70000, len(content) // 2):
        path.write_bytes(content[:length])
        with pytest.raises((exceptions.ImageUnacceptable, exceptions.VirtDriverError)) as caught:
            cache.get(make_image(path, disk_format))
        assert str(tmp_path) not in caught.value.message
        assert cached_files(tmp_path) == []


@pytest.mark.parametrize(("form", "at", "value"), [("vdi", 424, b"uuid"), ("vhdx", None, b"\2")])
def test_disk_with_a_parent_is_refused(
    tmp_path: Path, cache: ImageCache, guest_disk: Path, form: str, at: int | None, value: bytes
) -> None:
    content, disk_format = converted(guest_disk, form)
    changed = bytearray(content)
    # The second bit of the file parameters of VHDX, which are 64 KiB into the metadata.
    place = changed.index(b"metadata") + 65536 + 4 if at is None else at
    changed[place : place + len(value)] = value
    path = tmp_path / "image"
    path.write_bytes(changed)
    with pytest.raises(exceptions.ImageUnacceptable, match="cannot be read"):
        cache.get(make_image(path, disk_format))
    assert cached_files(tmp_path) == []


def test_concurrent_requests_fetch_an_image_once(tmp_path: Path, qemu_img: images.QemuImg, raw: Path) -> None:
    (tmp_path / "_base").mkdir()
    fetched: list[str] = []

    def fetch_once(image: Image, target: str) -> None:
        fetched.append(image.id)
        fetch_image(image, target)

    caches = [ImageCache(str(tmp_path / "_base"), qemu_img, fetch_once, DiskRoom(0)) for _ in range(4)]
    image = make_image(raw)
    threads = [threading.Thread(target=cache.get, args=(image,)) for cache in caches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fetched == [image.id]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"checksum": "0" * 64}, exceptions.ImageCorrupt),
        ({"size": 5}, exceptions.ImageCorrupt),
        ({"disk_format": "qcow2"}, exceptions.ImageUnacceptable),
        ({"disk_format": "vmdk"}, exceptions.ImageUnacceptable),
        ({"container_format": "ova"}, exceptions.ImageUnacceptable),
        ({"disk_format": "ploop"}, exceptions.ImageUnacceptable),
        ({"id": "../x"}, exceptions.ImageUnacceptable),
        ({"name": "/nonexistent"}, exceptions.ImageFileMissing),
    ],
)
def test_unacceptable_image_is_rejected_and_not_cached(
    tmp_path: Path, cache: ImageCache, raw: Path, changes: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        cache.get(make_image(raw, **changes))
    assert cached_files(tmp_path) == []


@pytest.mark.parametrize("option", ["backing", "data"])
def test_image_that_refers_to_a_file_of_the_host_is_rejected(tmp_path: Path, cache: ImageCache, option: str) -> None:
    options = ["-b", "/etc/passwd", "-F", "raw"] if option == "backing" else ["-o", f"data_file={tmp_path / 'data'}"]
    path = create(tmp_path / "evil", "qcow2", 10 * MIB, *options)
    with pytest.raises(exceptions.ImageUnacceptable, match="backing file" if option == "backing" else "another file"):
        cache.get(make_image(path, "qcow2"))
    assert cached_files(tmp_path) == []


def test_qcow2_declared_as_raw_is_rejected(tmp_path: Path, cache: ImageCache) -> None:
    path = create(tmp_path / "evil", "qcow2", 10 * MIB, "-b", "/etc/passwd", "-F", "raw")
    with pytest.raises(exceptions.ImageUnacceptable, match="declared as raw, and it is qcow2"):
        cache.get(make_image(path, "raw"))


def test_header_with_absurd_memory_is_harmless(tmp_path: Path, cache: ImageCache) -> None:
    path = create(tmp_path / "evil", "qcow2", 10 * MIB)
    data = bytearray(path.read_bytes())
    data[36:40] = (0x7FFFFFFF).to_bytes(4, "big")  # size of the L1 table
    path.write_bytes(data)
    with pytest.raises(exceptions.ImageUnacceptable, match=r"its tables have a wrong size$"):
        cache.get(make_image(path, "qcow2"))


@pytest.mark.parametrize("what", ["room", "copy"])
def test_failed_conversion_is_not_the_images_fault(
    tmp_path: Path, qemu_img: images.QemuImg, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    room = DiskRoom(0, lambda path: MIB) if what == "room" else DiskRoom(0)
    cache = ImageCache(str(tmp_path / "_base"), qemu_img, fetch_image, room)
    if what == "copy":
        monkeypatch.setattr(images, "FLATTEN_MEMORY", 1)
    with pytest.raises(exceptions.VirtDriverError, match=r"need 3 MiB more|not be converted here") as caught:
        cache.get(make_image(create(tmp_path / "v", "vdi", 3 * MIB), "vdi"))
    assert not is_request_error(caught.value)
    assert str(tmp_path) not in caught.value.message
    assert cached_files(tmp_path) == []


def test_endless_conversion_is_ended(tmp_path: Path, conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that only uses the CPU takes the place of qemu-img."""
    program = tmp_path / "qemu-img"
    program.write_text("#!/bin/sh\nwhile :; do :; done\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    conf.set_override("image_convert_seconds", 1, group="libvirt")
    info = images.DiskInfo(format="vdi", virtual_size=MIB, data_files=[])
    with pytest.raises(exceptions.VirtDriverError, match="ended with status"):
        images.QemuImg(conf).convert(str(tmp_path / "a"), info, str(tmp_path / "b"))


def test_absurdly_big_disk_is_not_converted(tmp_path: Path, cache: ImageCache) -> None:
    path = create(tmp_path / "bomb", "vdi", 10 * MIB)
    data = bytearray(path.read_bytes())
    data[368:376] = (2**60).to_bytes(8, "little")  # size of the disk
    data[384:388] = (2**31 - 1).to_bytes(4, "little")  # number of its blocks
    path.write_bytes(data)
    with pytest.raises(exceptions.ImageUnacceptable, match=r"cannot be read$"):
        cache.get(make_image(path, "vdi"))
    assert cached_files(tmp_path) == []


def test_fifo_is_not_an_image(tmp_path: Path, cache: ImageCache) -> None:
    """Opening it would wait until another process writes to it."""
    path = tmp_path / "image"
    path.touch()
    image = make_image(path, size=0)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(exceptions.ImageFileMissing, match="not a regular file"):
        cache.get(image)


def test_qemu_img_never_guesses_a_format(tmp_path: Path, cache: ImageCache, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[tuple[str, ...]] = []
    run, run_checked = images.run, images.run_checked

    def noted(*command: str) -> bytes:
        commands.append(command)
        return run(*command)

    def noted_checked(check: Callable[[], None], *command: str) -> None:
        commands.append(command)
        run_checked(check, *command)

    monkeypatch.setattr(images, "run", noted)
    monkeypatch.setattr(images, "run_checked", noted_checked)
    for name, disk_format in (("v", "vdi"), ("q", "qcow2"), ("r", "raw")):
        cache.get(make_image(create(tmp_path / name, disk_format, 3 * MIB), disk_format))
    assert len(commands) == 4
    for command in commands:
        assert "-f" in command


def test_missing_program_is_a_driver_error() -> None:
    with pytest.raises(exceptions.VirtDriverError, match="cannot be run"):
        images.run("/nonexistent/qemu-img")


# --- disks


def make(cache: ImageCache, qemu_img: images.QemuImg, directory: Path, image: Image | None, **changes: Any) -> Any:
    flavor = make_flavor(**changes.pop("flavor", {}))
    instance = make_instance(flavor=flavor, config_drive=changes.pop("config_drive", False))
    directory.mkdir(exist_ok=True)
    maker = DiskMaker(cache, qemu_img, drives(False))
    return maker.make(str(directory), make_spec(instance=instance, image=image, **changes))


def test_root_disk_is_an_overlay_of_the_flavors_size(
    tmp_path: Path, cache: ImageCache, qemu_img: images.QemuImg, raw: Path
) -> None:
    image = make_image(raw)
    (root,) = make(cache, qemu_img, tmp_path / "i", image, flavor={"root_gb": 2}).disks
    info = qemu_img.info(root.path, "qcow2")
    assert (root.device, info.format, info.virtual_size) == ("vda", "qcow2", 2 * images.GIB)
    assert info.data_files == [str(tmp_path / "_base" / image.id)]
    assert Path(root.path).stat().st_mode & 0o777 == 0o600


def test_flavor_without_a_disk_size_uses_the_images_size(
    tmp_path: Path, cache: ImageCache, qemu_img: images.QemuImg, raw: Path
) -> None:
    (root,) = make(cache, qemu_img, tmp_path / "i", make_image(raw), flavor={"root_gb": 0}).disks
    assert qemu_img.info(root.path, "qcow2").virtual_size == MIB


def test_image_bigger_than_the_flavors_disk_is_rejected_before_use(
    tmp_path: Path, cache: ImageCache, qemu_img: images.QemuImg
) -> None:
    image = make_image(create(tmp_path / "big", "qcow2", images.GIB + 1024**2), "qcow2")
    with pytest.raises(exceptions.FlavorDiskTooSmall, match="image needs 2 GiB"):
        make(cache, qemu_img, tmp_path / "i", image, flavor={"root_gb": 1})
    assert list((tmp_path / "i").iterdir()) == []


def test_disks_of_a_flavor_are_made_in_order(
    tmp_path: Path, cache: ImageCache, qemu_img: images.QemuImg, raw: Path
) -> None:
    flavor = {"ephemeral_gb": 1, "swap": 64}
    disks = make(cache, qemu_img, tmp_path / "i", make_image(raw), flavor=flavor, config_drive=True).disks
    assert [(disk.device, os.path.basename(disk.path)) for disk in disks] == [
        ("vda", "disk"),
        ("vdb", "disk.eph0"),
        ("vdc", "disk.swap"),
        ("vdd", "disk.config"),
    ]
    sizes = [os.path.getsize(disk.path) for disk in disks[1:3]]
    assert sizes == [images.GIB, 64 * MIB]
    assert sum(os.stat(disk.path).st_blocks * 512 for disk in disks) < 256 * MIB


def test_ami_image_includes_its_kernel(tmp_path: Path, cache: ImageCache, qemu_img: images.QemuImg, raw: Path) -> None:
    kernel, ramdisk = make_image(raw, "aki"), make_image(raw, "ari")
    properties = {"kernel_id": kernel.id, "ramdisk_id": ramdisk.id, "os_command_line": "quiet"}
    image = make_image(raw, "ami", properties=properties)
    others = {kernel.id: kernel, ramdisk.id: ramdisk}
    boot = make(cache, qemu_img, tmp_path / "i", image, images=others).direct_boot
    assert (os.path.basename(boot.kernel), os.path.basename(boot.ramdisk)) == (kernel.id, ramdisk.id)
    assert boot.command_line == "root=/dev/vda console=ttyS0 quiet"


def test_missing_kernel_image_is_named(tmp_path: Path, cache: ImageCache, qemu_img: images.QemuImg, raw: Path) -> None:
    image = make_image(raw, "ami", properties={"kernel_id": "gone"})
    with pytest.raises(exceptions.ImageFileMissing, match="gone"):
        make(cache, qemu_img, tmp_path / "i", image)


def test_kernel_command_line_with_control_characters_is_rejected(
    tmp_path: Path, cache: ImageCache, qemu_img: images.QemuImg, raw: Path
) -> None:
    kernel = make_image(raw, "aki")
    image = make_image(raw, "ami", properties={"kernel_id": kernel.id, "os_command_line": "a\x00b"})
    with pytest.raises(exceptions.ImageUnacceptable):
        make(cache, qemu_img, tmp_path / "i", image, images={kernel.id: kernel})


def test_server_without_an_image_is_rejected(tmp_path: Path, cache: ImageCache, qemu_img: images.QemuImg) -> None:
    with pytest.raises(exceptions.ImageUnacceptable):
        make(cache, qemu_img, tmp_path / "i", None)
