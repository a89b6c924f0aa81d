"""The list of well-known images: its addresses have the form of a distributor's."""

from __future__ import annotations

import re

import pytest

from nova_lite.base import exceptions
from nova_lite.image.sources import catalogue
from nova_lite.image.sources.catalogue import IMAGES, CloudImage


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_known_image_has_an_address_and_a_checksum_for_each_architecture(image: CloudImage) -> None:
    assert re.fullmatch(r"[a-z]+/[0-9]+(\.[0-9]+)?", image.name)
    assert re.fullmatch(r"https://[a-z0-9.-]+(/[a-z-]+)*", image.site)
    assert re.fullmatch(r"[a-z]+", image.user)
    files = [image.file(architecture) for architecture in image.architectures]
    sums = [image.sums_file(architecture) for architecture in image.architectures]
    assert len({*files}) == len(files) == 2
    for path in [*files, *sums]:
        assert re.fullmatch(r"[A-Za-z0-9._/-]+", path)
        assert not path.startswith("/")
    assert all(re.search(r"\.(qcow2|img)$", file) for file in files)
    release = image.name.partition("/")[2]
    assert release in files[0] or image.name.startswith(("ubuntu", "debian"))


def test_names_of_known_images_are_unique() -> None:
    assert len({image.name for image in IMAGES}) == len(IMAGES)


def test_addresses_of_debian() -> None:
    image = catalogue.find("debian/13")
    assert image.file("aarch64") == "trixie/latest/debian-13-genericcloud-arm64.qcow2"
    assert image.sums_file("aarch64") == "trixie/latest/SHA512SUMS"
    assert image.properties("x86_64") == {
        "os_type": "linux", "os_distro": "debian", "os_version": "13", "os_admin_user": "debian"
    }  # fmt: skip


def test_image_of_another_architecture_names_it() -> None:
    image = catalogue.find("debian/13")
    assert [image.image_name(name) for name in image.architectures] == ["debian-13", "debian-13-aarch64"]
    assert image.properties("aarch64")["hw_emulation_architecture"] == "aarch64"


def test_distribution_alone_is_its_newest_release() -> None:
    assert [catalogue.find(name).name for name in ("debian", "fedora", "almalinux")] == [
        "debian/13",
        "fedora/44",
        "almalinux/10",
    ]


def test_unknown_image_or_architecture_is_refused() -> None:
    for name in ("windows", "debian/11", "debian/", "", "../etc"):
        with pytest.raises(exceptions.InvalidInput, match="is known; image fetch --list"):
            catalogue.find(name)
    with pytest.raises(exceptions.InvalidInput, match="x86_64, aarch64 only"):
        catalogue.find("debian").file("ppc64le")
