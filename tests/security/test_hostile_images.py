"""A corpus of hostile images, each declared as each format: uploaded to the image API, and put before a compute host's
image cache and disks as if the API had let it in. None is opened as what it says, none takes more than the limits,
and no file of the host is as much as opened."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import webob
from oslo_config import cfg

from nova_lite import conf as nova_conf
from nova_lite.base import exceptions
from nova_lite.base.disk_room import DiskRoom
from nova_lite.image import local
from nova_lite.objects import Image
from nova_lite.virt import images
from nova_lite.virt.libvirt.disks.disks import DiskMaker
from nova_lite.virt.libvirt.disks.image_cache import ImageCache
from tests.security.hostile_images import DECLARED, MIB, Hostile, archives, corpus
from tests.support.config_drives import drives
from tests.support.guests import make_flavor, make_image, make_instance, make_spec
from tests.support.image_api import Images

#: More than this the store and a host's cache never take for an image; each of the corpus has at most 9 MiB.
MOST_KEPT = 16 * MIB
SECRET = b"the host's own secret\n" * 50000
_OPENED = 0x20  # IN_OPEN
_CHANGES = 0x2 | 0x4 | 0x40 | 0x80 | 0x100 | 0x200  # IN_MODIFY, ATTRIB, MOVED_FROM, MOVED_TO, CREATE, DELETE


class Watch:
    """Watcher of a directory's files by inotify."""

    def __init__(self, directory: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK)
        assert self._descriptor >= 0
        assert self._libc.inotify_add_watch(self._descriptor, os.fsencode(directory), _OPENED | _CHANGES) >= 0

    def seen(self) -> list[str]:
        try:
            events = os.read(self._descriptor, 65536)
        except BlockingIOError:
            return []
        names = []
        while events:
            _, mask, _, length = struct.unpack_from("iIII", events)
            names.append(f"{events[16 : 16 + length].rstrip(bytes(1)).decode()} ({mask:#x})")
            events = events[16 + length :]
        return names

    def close(self) -> None:
        os.close(self._descriptor)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Provide a directory of the host with a file that images name, and a FIFO that hangs whoever opens it."""
    path = tmp_path / "host"
    path.mkdir()
    (path / "secret").write_bytes(SECRET)
    os.mkfifo(path / "fifo")
    return path


@pytest.fixture
def hostile(tmp_path: Path, host: Path) -> dict[str, Hostile]:
    directory = tmp_path / "corpus"
    directory.mkdir()
    return corpus(directory, host / "secret")


@pytest.fixture
def watch(hostile: dict[str, Hostile], host: Path) -> Iterator[Watch]:
    """Watch the host's files from the creation of the corpus on, and check that opened files are reported."""
    del hostile
    made = Watch(host)
    (host / "secret").read_bytes()
    assert [name for name in made.seen() if "secret" in name]
    yield made
    made.close()


def space(directory: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


def fault(answer: webob.Response) -> str:
    assert 400 <= answer.status_code < 500, f"{answer.status_code} {answer.text}"
    return str(answer.text)


def test_the_image_api_refuses_what_is_not_as_declared(
    tmp_path: Path, host: Path, hostile: dict[str, Hostile], watch: Watch
) -> None:
    api = Images(tmp_path, max_upload_mb=16)
    wrong, taken = [], 0
    for name, image in hostile.items():
        content = image.path.read_bytes()
        for declared in DECLARED:
            container = declared if declared in ("ami", "aki", "ari") else "bare"
            made = api("POST", "/v2/images", {"name": name, "disk_format": declared, "container_format": container})
            if made.status_code != 201:
                fault(made)
                continue
            path = f"/v2/images/{made.json['id']}"
            answer = api("PUT", f"{path}/file", content)
            if answer.status_code == 204:
                taken += 1
                if declared not in image.fits:
                    wrong.append(f"{name} is let in as {declared}")
                assert api("GET", f"{path}/file").body == content
            else:
                told = fault(answer)
                if " is unacceptable: " not in told or str(host) in told or str(tmp_path) in told:
                    wrong.append(f"{name} as {declared}: {told}")
                assert api("GET", path).json["status"] == "queued"
            assert api("DELETE", path).status_code == 204
        assert space(api.store) == 0, name
    assert not wrong, "\n".join(wrong)
    assert taken > 10, "what is sound is let in"
    assert watch.seen() == []
    assert (host / "secret").read_bytes() == SECRET


def test_a_host_opens_none_as_what_it_says(
    tmp_path: Path, host: Path, hostile: dict[str, Hostile], watch: Watch
) -> None:
    """The API let it in, or an attacker has written to the store."""
    conf = cfg.ConfigOpts()
    nova_conf.register_opts(conf)
    conf([], project="nova-lite", default_config_files=[])
    directory, instances = tmp_path / "_base", tmp_path / "instances"
    directory.mkdir()
    instances.mkdir()
    qemu_img = images.QemuImg(conf)
    cache = ImageCache(
        str(directory), qemu_img, lambda image, target: local.copy(image, image.name, target), DiskRoom(0)
    )
    disks = DiskMaker(cache, qemu_img, drives(None))
    # A program of an earlier test may have had more.
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    kept, wrong = 0, []
    for name, image in hostile.items():
        for declared in DECLARED:
            asked = make_image(image.path, declared, id=f"{name}-{declared}")
            began = time.monotonic()
            try:
                found = cache.get(asked)
            except exceptions.ImageUnacceptable as error:
                if str(host) in error.message or str(tmp_path) in error.message:
                    wrong.append(f"{name} as {declared} tells of files: {error.message}")
            except exceptions.VirtDriverError as error:
                assert "have to stay free" in error.message or "converted" in error.message, error.message
            else:
                kept += 1
                if declared not in image.fits or found.format != ("qcow2" if declared == "qcow2" else "raw"):
                    wrong.append(f"{name} is opened as {declared}: {found}")
                _use(disks, asked, instances)
            assert time.monotonic() - began < 120, f"{name} as {declared}"
            assert space(directory) + space(instances) <= MOST_KEPT, f"{name} as {declared}"
            for path in directory.iterdir():
                if path.is_file():
                    path.unlink()
    assert not wrong, "\n".join(wrong)
    assert kept > 10
    assert watch.seen() == []
    assert (host / "secret").read_bytes() == SECRET
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert most < 1024 * 1024 or most == before, f"{most} KiB in a program"


def test_no_ova_archive_of_the_corpus_is_let_in(tmp_path: Path, host: Path, watch: Watch) -> None:
    api = Images(tmp_path, max_upload_mb=16)
    for name, content in archives(host / "secret").items():
        made = api("POST", "/v2/images", {"name": name, "disk_format": "vmdk", "container_format": "ova"}).json
        answer = fault(api("PUT", f"/v2/images/{made['id']}/file", content))
        assert " is unacceptable: " in answer, f"{name}: {answer}"
        assert str(host) not in answer, name
        assert api("DELETE", f"/v2/images/{made['id']}").status_code == 204
    assert space(api.store) == 0
    assert watch.seen() == []


def test_a_host_unpacks_no_ova_archive_of_the_corpus(tmp_path: Path, host: Path, watch: Watch) -> None:
    directory = tmp_path / "_base"
    directory.mkdir()
    conf = cfg.ConfigOpts()
    nova_conf.register_opts(conf)
    conf([], project="nova-lite", default_config_files=[])
    cache = ImageCache(
        str(directory), images.QemuImg(conf), lambda image, target: local.copy(image, image.name, target), DiskRoom(0)
    )
    for name, content in archives(host / "secret").items():
        (tmp_path / "archive").write_bytes(content)
        with pytest.raises(exceptions.ImageUnacceptable) as caught:
            cache.get(make_image(tmp_path / "archive", "vmdk", container_format="ova", id="one"))
        assert str(tmp_path) not in caught.value.message, name
        assert space(directory) == 0, name
        assert {path.name for path in tmp_path.iterdir()} == {"_base", "archive", "corpus", "host"}
    assert watch.seen() == []
    assert (host / "secret").read_bytes() == SECRET


def _use(disks: DiskMaker, image: Image, instances: Path) -> None:
    """Create a server with a small flavor: larger images are refused."""
    spec = make_spec(instance=make_instance(flavor=make_flavor(root_gb=1)), image=image)
    directory = instances / "one"
    directory.mkdir()
    with contextlib.suppress(exceptions.FlavorDiskTooSmall):
        disks.make(str(directory), spec)
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()
