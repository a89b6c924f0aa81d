"""Well-known cloud images: who publishes them where. The newest build of a release has the same address, or its number.

A mirror has the same paths below its own address as the distributor below `CloudImage.site`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import NamedTuple

from nova_lite.base import exceptions

#: Disk format of all images.
FORMAT = "qcow2"

_X86, _ARM = "x86_64", "aarch64"
_SAME = {_X86: _X86, _ARM: _ARM}
_DEBIAN = {_X86: "amd64", _ARM: "arm64"}


class CloudImage(NamedTuple):
    """Image of a release. ``name``: DISTRIBUTION/RELEASE. ``user``: login that cloud-init creates.

    ``path``: of the file below ``site``, with ``{arch}`` as the distributor calls it (``architectures``). ``sums``:
    name of the file with its checksum, beside it.
    """

    name: str
    user: str
    site: str
    path: str
    sums: str
    architectures: Mapping[str, str]

    def file(self, architecture: str) -> str:
        """Return the path of the file below the site. Raises `InvalidInput`."""
        if architecture not in self.architectures:
            reason = f"{self.name} is published for {', '.join(self.architectures)} only"
            raise exceptions.InvalidInput(reason=reason)
        return self.path.format(arch=self.architectures[architecture])

    def sums_file(self, architecture: str) -> str:
        """Return the path of the file with the checksum below the site."""
        file = self.file(architecture)
        directory, name = posixpath.split(file)
        return posixpath.join(directory, self.sums.format(file=name, arch=self.architectures[architecture]))

    def properties(self, architecture: str) -> dict[str, str]:
        """Return the properties of the image for an architecture."""
        distribution, release = self.name.split("/")
        own = {} if architecture == _X86 else {"hw_emulation_architecture": architecture}
        return {
            "os_type": "linux",
            "os_distro": distribution,
            "os_version": release,
            "os_admin_user": self.user,
            **own,
        }

    def image_name(self, architecture: str) -> str:
        """Return the usual name of the image in this cloud."""
        name = self.name.replace("/", "-")
        return name if architecture == _X86 else f"{name}-{architecture}"


def find(name: str) -> CloudImage:
    """Return an image by its name. A distribution's name stands for its newest release. Raises `InvalidInput`."""
    for image in reversed(IMAGES):
        if name in (image.name, image.name.partition("/")[0]):
            return image
    raise exceptions.InvalidInput(reason=f"no image {name[:64]} is known; image fetch --list shows all")


def _debian(release: str, codename: str) -> CloudImage:
    path = f"{codename}/latest/debian-{release}-genericcloud-{{arch}}.qcow2"
    return CloudImage(
        f"debian/{release}", "debian", "https://cloud.debian.org/images/cloud", path, "SHA512SUMS", _DEBIAN
    )


def _ubuntu(release: str, codename: str) -> CloudImage:
    path = f"{codename}/current/{codename}-server-cloudimg-{{arch}}.img"
    return CloudImage(f"ubuntu/{release}", "ubuntu", "https://cloud-images.ubuntu.com", path, "SHA256SUMS", _DEBIAN)


def _fedora(release: str, build: str) -> CloudImage:
    path = f"releases/{release}/Cloud/{{arch}}/images/Fedora-Cloud-Base-Generic-{build}.{{arch}}.qcow2"
    site, sums = "https://dl.fedoraproject.org/pub/fedora/linux", f"Fedora-Cloud-{build}-{{arch}}-CHECKSUM"
    return CloudImage(f"fedora/{release}", "fedora", site, path, sums, _SAME)


def _alma(release: str) -> CloudImage:
    path = f"{release}/cloud/{{arch}}/images/AlmaLinux-{release}-GenericCloud-latest.{{arch}}.qcow2"
    site = "https://repo.almalinux.org/almalinux"
    return CloudImage(f"almalinux/{release}", "almalinux", site, path, "CHECKSUM", _SAME)


def _rocky(release: str) -> CloudImage:
    path = f"{release}/images/{{arch}}/Rocky-{release}-GenericCloud-Base.latest.{{arch}}.qcow2"
    site = "https://dl.rockylinux.org/pub/rocky"
    return CloudImage(f"rocky/{release}", "rocky", site, path, "{file}.CHECKSUM", _SAME)


#: All images, the newest release of a distribution last.
IMAGES = (
    _alma("9"),
    _alma("10"),
    CloudImage(
        "alpine/3.24",
        "alpine",
        "https://dl-cdn.alpinelinux.org/alpine",
        "v3.24/releases/cloud/generic_alpine-3.24.1-{arch}-cloudinit-r0.qcow2",
        "{file}.sha512",
        {_X86: "x86_64-bios", _ARM: "aarch64-uefi"},
    ),
    CloudImage(
        "cirros/0.6",
        "cirros",
        "https://download.cirros-cloud.net",
        "0.6.3/cirros-0.6.3-{arch}-disk.img",
        "MD5SUMS",
        _SAME,
    ),
    _debian("12", "bookworm"),
    _debian("13", "trixie"),
    _fedora("43", "43-1.6"),
    _fedora("44", "44-1.7"),
    CloudImage(
        "opensuse/16.0",
        "opensuse",
        "https://download.opensuse.org/distribution",
        "leap/16.0/appliances/Leap-16.0-Minimal-VM.{arch}-Cloud.qcow2",
        "{file}.sha256",
        _SAME,
    ),
    _rocky("9"),
    _rocky("10"),
    _ubuntu("24.04", "noble"),
    _ubuntu("26.04", "resolute"),
)
