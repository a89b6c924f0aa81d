"""Encrypted disks: made of images and file systems, adopted and grown, and readable with their keys alone."""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path
from typing import Any

import msgspec
import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.disk_room import DiskRoom
from nova_lite.image import local, luks
from nova_lite.objects import DISK_ROLES, Image, LiveSource, VolumeKey, disk_key_id
from nova_lite.virt import images
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.disks import disk_usage, disks
from nova_lite.virt.libvirt.disks.disks import DiskMaker
from nova_lite.virt.libvirt.disks.encrypted_disks import EncryptedDisks
from nova_lite.virt.libvirt.disks.image_cache import ImageCache
from nova_lite.virt.libvirt.disks.moved_disks import MovedDisks
from nova_lite.virt.libvirt.records import Records
from tests.support.config_drives import drives
from tests.support.guests import make_flavor, make_image, make_instance, make_spec

MIB = 1024**2
PLAIN = b"plain data of the image"
CONTENT = (PLAIN * 50000)[:MIB] + bytes(MIB)


class Host:
    """A host with the keys that it was given."""

    def __init__(self, path: Path, conf: cfg.ConfigOpts, qemu_img: images.QemuImg) -> None:
        self.path = path
        self.keys: dict[tuple[str, str], VolumeKey] = {}
        records = Records(str(path / "instances"), "host")
        records.prepare()
        self.cache = ImageCache(
            records.base_path,
            qemu_img,
            lambda image, target: local.copy(image, image.name, target),
            DiskRoom(0, lambda directory: 1 << 40),
        )
        self.maker = DiskMaker(
            self.cache, qemu_img, drives(False), raw=True, encrypted=EncryptedDisks(qemu_img, self.key)
        )
        self.moved = MovedDisks(conf, self.maker, self.cache, qemu_img, None)  # type: ignore[arg-type]
        self.uuid = make_instance().uuid
        self.directory = records.create(self.uuid, 1)

    def key(self, instance_uuid: str, role: str) -> VolumeKey:
        return self.keys.setdefault((instance_uuid, role), VolumeKey(passphrase=uuid.uuid4().hex))

    def spec(self, image: Image, **flavor: Any) -> SpawnSpec:
        specs = {"hw:ephemeral_encryption": "yes"}
        values = {"root_gb": 0, "extra_specs": specs, **flavor}
        return make_spec(instance=make_instance(uuid=self.uuid, flavor=make_flavor(**values)), image=image)

    def read(self, name: str) -> bytes:
        """Return the data of a disk, decrypted with its key."""
        role = disks.ROLES[name]
        (self.path / "key").write_text(self.keys[self.uuid, role].passphrase)
        source = f"driver=luks,key-secret=k,file.filename={os.path.join(self.directory, name)}"
        command = ["qemu-img", "convert", "--object", f"secret,id=k,file={self.path / 'key'}", "--image-opts", source]
        subprocess.run([*command, "-O", "raw", self.path / "read"], check=True)
        return (self.path / "read").read_bytes()


@pytest.fixture
def host(tmp_path: Path, conf: cfg.ConfigOpts, qemu_img: images.QemuImg) -> Host:
    return Host(tmp_path, conf, qemu_img)


@pytest.fixture(params=["raw", "qcow2"])
def image(request: pytest.FixtureRequest, tmp_path: Path) -> Image:
    path = tmp_path / f"image.{request.param}"
    (tmp_path / "content").write_bytes(CONTENT)
    subprocess.run(["qemu-img", "convert", "-O", request.param, tmp_path / "content", path], check=True)
    return make_image(path, request.param)


def test_encrypted_disks_have_the_content_of_plain_ones_under_keys_of_their_own(host: Host, image: Image) -> None:
    made = host.maker.make(host.directory, host.spec(image, swap=2)).disks
    assert [os.path.basename(disk.path) for disk in made] == ["disk.luks", "disk.swap"]
    assert [disk.secret for disk in made] == [disk_key_id(host.uuid, role) for role in ("root", "swap")]
    assert [(disk.format, disk.serial, disk.below) for disk in made] == [("raw", None, None)] * 2
    assert len({key.passphrase for key in host.keys.values()}) == 2
    for disk in made:
        stored = Path(disk.path).read_bytes()
        assert stored.startswith(luks.MAGIC)
        assert os.stat(disk.path).st_mode & 0o077 == 0
        for plain in (PLAIN, b"SWAPSPACE2", *(key.passphrase.encode() for key in host.keys.values())):
            assert plain not in stored
    assert host.read("disk.luks") == CONTENT
    assert b"SWAPSPACE2" in host.read("disk.swap")
    assert sorted(os.listdir(host.directory)) == ["disk.luks", "disk.swap", "instance.json"]


def test_key_that_is_not_available_ends_the_making(host: Host, image: Image) -> None:
    def unavailable(instance_uuid: str, role: str) -> VolumeKey:
        raise exceptions.DiskKeyUnavailable(instance_uuid=instance_uuid, role=role, reason="it was destroyed")

    host.key = unavailable  # type: ignore[method-assign]
    maker = DiskMaker(host.cache, host.moved._qemu_img, drives(False), encrypted=EncryptedDisks(None, unavailable))  # type: ignore[arg-type]
    with pytest.raises(exceptions.DiskKeyUnavailable):
        maker.make(host.directory, host.spec(image))
    assert os.listdir(host.directory) == ["instance.json"]


def test_disk_whose_making_was_interrupted_does_not_pass_for_a_complete_one(host: Host, image: Image) -> None:
    def stop() -> None:
        raise exceptions.VirtDriverError(reason="it is not wanted any more")

    encrypted = EncryptedDisks(host.moved._qemu_img, host.key)
    path = os.path.join(host.directory, "disk.swap")
    with pytest.raises(exceptions.VirtDriverError):
        encrypted.make(path, (host.uuid, "swap"), MIB, ("/nowhere", "raw"), stop)
    assert not os.path.exists(path)


def test_driver_without_encryption_makes_no_plain_disk_instead(host: Host, image: Image) -> None:
    maker = DiskMaker(host.cache, host.moved._qemu_img, drives(False))
    with pytest.raises(exceptions.NotImplementedByDriver, match="encrypted disks"):
        maker.make(host.directory, host.spec(image))
    assert os.listdir(host.directory) == ["instance.json"]


def test_adopted_disks_keep_their_data_and_grow_behind_their_headers(host: Host, image: Image) -> None:
    host.maker.make(host.directory, host.spec(image, swap=2))
    root, swap = host.moved.adopt(host.directory, host.spec(image, root_gb=1, swap=2), None).disks
    assert (root.secret, swap.secret) == (disk_key_id(host.uuid, "root"), disk_key_id(host.uuid, "swap"))
    offset = luks.data_offset(root.path)
    assert os.path.getsize(root.path) == 1024**3 + offset
    assert Path(swap.path).stat().st_size == 2 * MIB + luks.data_offset(swap.path)
    before = Path(swap.path).read_bytes()
    host.moved.adopt(host.directory, host.spec(image, root_gb=1, swap=2), None, is_taken=True)
    assert Path(swap.path).read_bytes() == before
    os.truncate(root.path, 4 * MIB + offset)
    assert host.read("disk.luks").startswith(CONTENT)
    with pytest.raises(exceptions.FlavorDiskTooSmall):
        os.truncate(root.path, 2 * 1024**3 + offset)
        host.moved.adopt(host.directory, host.spec(image, root_gb=1), None)


def test_swap_of_another_size_is_made_again_encrypted(host: Host, image: Image) -> None:
    host.maker.make(host.directory, host.spec(image, swap=2))
    before = Path(host.directory, "disk.swap").read_bytes()
    host.moved.adopt(host.directory, host.spec(image, swap=3), None)
    assert b"SWAPSPACE2" in host.read("disk.swap")
    assert Path(host.directory, "disk.swap").read_bytes()[: len(before)] != before


def test_disk_without_a_header_is_not_taken_for_an_encrypted_one(host: Host, image: Image) -> None:
    Path(host.directory, "disk.luks").write_bytes(CONTENT)
    with pytest.raises(exceptions.VirtDriverError, match=r"disk\.luks is not encrypted"):
        host.moved.adopt(host.directory, host.spec(image), None)


def test_incoming_guest_finds_empty_encrypted_disks_of_its_sizes(host: Host, image: Image) -> None:
    source = LiveSource(driver="libvirt", disks={"disk.luks": 3 * MIB, "disk.swap": MIB})
    paths, whole = host.moved.make_ready(host.directory, host.spec(image), source)
    assert not whole
    for name, size in source.disks.items():
        assert os.path.getsize(paths[name]) - luks.data_offset(paths[name]) == size
        assert len(host.read(name)) == size


def test_rescue_disk_is_encrypted_if_the_servers_disks_are(host: Host, image: Image) -> None:
    rescue = msgspec.structs.replace(host.spec(image), image=image)
    (disk,) = host.maker.make_rescue(host.directory, rescue, encrypted=True).disks
    assert disk.secret == disk_key_id(host.uuid, "rescue")
    assert host.read("disk.rescue") == CONTENT
    (disk,) = host.maker.make_rescue(host.directory, rescue).disks
    assert (disk.secret, disk.format) == (None, "qcow2")


def test_encrypted_root_disk_is_not_read_for_a_copy(host: Host, image: Image) -> None:
    host.maker.make(host.directory, host.spec(image))
    assert disks.root_file(host.directory) == (os.path.join(host.directory, "disk.luks"), "luks")
    with pytest.raises(exceptions.NotImplementedByDriver, match="an image of an encrypted disk"):
        disks.readable_root_file(host.directory)


def test_encrypted_disk_that_was_grown_can_grow_in_its_file_system(host: Host, image: Image) -> None:
    host.maker.make(host.directory, host.spec(image))
    instances = os.path.dirname(host.directory)
    before = disk_usage.growth(instances)
    host.moved.adopt(host.directory, host.spec(image, root_gb=1), None)
    assert disk_usage.growth(instances) - before > 1000 * MIB


def test_each_file_of_a_disk_has_a_role_with_a_key() -> None:
    assert set(disks.ROLES.values()) == set(DISK_ROLES)
    assert len({disk_key_id("one", role) for role in DISK_ROLES} | {disk_key_id("two", "root")}) == 7
