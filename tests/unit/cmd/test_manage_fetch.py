"""``image fetch``: cloud images from a mirror on this machine."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from nova_lite.db.image import images
from nova_lite.image.sources import catalogue
from nova_lite.objects import Image
from tests.support.file_site import FileSite, serving
from tests.support.http_site import make_certificate
from tests.support.manage import Tool

FILE = "/trixie/latest/debian-13-genericcloud-amd64.qcow2"
SIZE = 3 * 1024**3 + 512
HEADER = struct.pack(">4sIQIIQIIQQIIQ", b"QFI\xfb", 3, 0, 0, 16, SIZE, 0, 7, 1 << 16, 2 << 16, 1, 0, 0)
DISK = HEADER + struct.pack(">QQQII", 0, 0, 0, 4, 104) + bytes(200_000)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileSite]:
    tls = make_certificate(tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", tls[0])
    with serving(FileSite(tls)) as made:
        publish(made, DISK)
        yield made


def publish(site: FileSite, disk: bytes) -> None:
    name = os.path.basename(FILE)
    sums = f"{hashlib.sha512(disk).hexdigest()}  {name}\n{'0' * 128}  other.qcow2\n"
    site.files |= {FILE: disk, "/trixie/latest/SHA512SUMS": sums.encode()}


def image_of(tool: Tool, image_id: str) -> Image:
    database = tool.database_of()
    found = database.read(images.by_id, image_id)
    database.close()
    assert found is not None
    return found


def test_fetched_image_has_the_distributors_bytes_and_properties(tool: Tool, site: FileSite) -> None:
    site.faults = [len(DISK), 5000]
    image_id = tool("image", "fetch", "debian", "--mirror", f"{site.url}/")
    assert (tool.path / "images" / image_id).read_bytes() == DISK
    assert os.listdir(tool.path / "images") == [image_id]
    assert site.requests[1:] == [(FILE, None), (FILE, "bytes=5000-")]
    image = image_of(tool, image_id)
    assert (image.name, image.disk_format, image.visibility) == ("debian-13", "qcow2", "public")
    assert (image.size, image.virtual_size, image.min_disk) == (len(DISK), SIZE, 4)
    assert (image.checksum, image.md5) == (hashlib.sha256(DISK).hexdigest(), hashlib.md5(DISK).hexdigest())
    assert image.properties == catalogue.find("debian/13").properties("x86_64") | {
        "fetched_checksum": f"sha512:{hashlib.sha512(DISK).hexdigest()}"
    }


def test_same_build_is_fetched_once_and_a_new_one_again(tool: Tool, site: FileSite) -> None:
    fetch = ("image", "fetch", "debian/13", "--mirror", site.url)
    first = tool(*fetch)
    assert tool(*fetch) == first
    assert [path for path, _ in site.requests].count(FILE) == 1
    publish(site, DISK + b"new")
    second = tool(*fetch)
    assert sorted(os.listdir(tool.path / "images")) == sorted([first, second])


def test_image_of_a_project_with_the_same_properties_is_not_trusted(tool: Tool, site: FileSite) -> None:
    other = tool.path / "other.img"
    other.write_bytes(b"other")
    tool("project", "create", "shop")
    fetched = f"fetched_checksum=sha512:{hashlib.sha512(DISK).hexdigest()}"
    options = ("--name", "debian-13", "--disk-format", "raw", "--project", "shop", "--property", fetched)
    planted = tool("image", "import", *options, str(other))
    assert tool("image", "fetch", "debian/13", "--mirror", site.url) != planted


def test_fetch_with_wrong_bytes_makes_no_image(tool: Tool, site: FileSite) -> None:
    site.files[FILE] = DISK + b"x"
    error = tool.fails("image", "fetch", "debian/13", "--mirror", site.url)
    assert "does not have the checksum sha512:" in error
    assert os.listdir(tool.path / "images") == tool.json("image", "list") == []


def test_fetched_file_that_is_no_disk_makes_no_image(tool: Tool, site: FileSite) -> None:
    publish(site, b"<html>")
    assert "declared as qcow2" in tool.fails("image", "fetch", "debian/13", "--mirror", site.url)
    assert tool.json("image", "list") == []


def test_mirror_without_tls_needs_a_checksum(tool: Tool) -> None:
    with serving(FileSite()) as plain:
        plain.files[FILE] = DISK
        arguments = ("image", "fetch", "debian/13", "--mirror", plain.url)
        assert "add --checksum" in tool.fails(*arguments)
        assert plain.requests == []
        image_id = tool(*arguments, "--name", "d", "--checksum", hashlib.sha256(DISK).hexdigest())
    assert image_of(tool, image_id).name == "d"


def test_image_of_another_architecture_says_so(tool: Tool, site: FileSite) -> None:
    checksum = hashlib.sha256(DISK).hexdigest()
    site.files[FILE.replace("amd64", "arm64")] = DISK
    arguments = ("--mirror", site.url, "--architecture", "aarch64", "--checksum", checksum)
    image = image_of(tool, tool("image", "fetch", "debian/13", *arguments))
    assert (image.name, image.properties["hw_emulation_architecture"]) == ("debian-13-aarch64", "aarch64")


def test_fetch_without_room_fails_before_the_disk_is_full(tool: Tool, site: FileSite) -> None:
    tool.configure("[image]\nmin_free_mb = 1000000000\n")
    assert "have to stay free" in tool.fails("image", "fetch", "debian/13", "--mirror", site.url)
    assert FILE not in [path for path, _ in site.requests]


def test_list_names_the_known_images(tool: Tool) -> None:
    rows = tool.json("image", "fetch", "--list")
    assert [row["name"] for row in rows] == [image.name for image in catalogue.IMAGES]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("windows",), "image fetch --list shows all"),
        (("debian", "--mirror", "ftp://mirror/"), "is not of the form https://HOST/PATH"),
        (("debian", "--mirror", "https:///"), "is not of the form https://HOST/PATH"),
    ],
)
def test_fetch_of_something_unknown_is_refused(tool: Tool, arguments: tuple[str, ...], message: str) -> None:
    assert message in tool.fails("image", "fetch", *arguments)


def test_fetch_with_another_backend_is_refused(tool: Tool) -> None:
    tool.configure("[image]\nbackend = glance\n")
    assert "import images there" in tool.fails("image", "fetch", "debian")


def test_checksum_that_is_none_is_wrong_usage(tool: Tool) -> None:
    tool("image", "fetch", "debian", "--checksum", "xyz", status=2)
    assert "is no MD5, SHA-256 or SHA-512 sum" in tool.error
