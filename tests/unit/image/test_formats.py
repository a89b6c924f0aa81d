"""Checks of image files, with files of the real qemu-img and with invented bytes."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.image import formats
from tests.support import exports

SIZE = 8 * 1024**2


def create(path: Path, disk_format: str, *options: str) -> Path:
    subprocess.run(["qemu-img", "create", "-q", "-f", disk_format, *options, str(path), str(SIZE)], check=True)
    return path


def refused(path: Path, disk_format: str) -> str:
    with pytest.raises(exceptions.ImageUnacceptable) as caught:
        formats.check(str(path), disk_format, "I")
    assert caught.value.message.startswith("Image I is unacceptable: ")
    assert str(path.parent) not in caught.value.message, "the owner of an image learns nothing of files"
    return caught.value.message.removeprefix("Image I is unacceptable: ")


@pytest.mark.parametrize(
    ("made", "declared", "options"),
    [
        ("qcow2", "qcow2", []),
        ("qcow2", "qcow2", ["-o", "compat=0.10"]),
        ("vmdk", "vmdk", []),
        ("vmdk", "vmdk", ["-o", "subformat=streamOptimized"]),
        ("vdi", "vdi", []),
        ("vpc", "vhd", []),
        ("vpc", "vhd", ["-o", "subformat=fixed"]),
        ("vhdx", "vhdx", []),
        *(("raw", declared, []) for declared in ("raw", "ami", "aki", "ari", "iso")),
    ],
)
def test_declared_format_is_accepted(tmp_path: Path, made: str, declared: str, options: list[str]) -> None:
    formats.check(str(create(tmp_path / "image", made, *options)), declared)


#: Header sectors of disks that are used as they are: a boot sector with one partition, an ISO file system, an old ext2.
PLAIN = {
    "partitions": b"\0" * 446 + struct.pack("<B3xB3xII", 0x80, 0x83, 2048, 100) + b"\0" * 48 + b"\x55\xaa",
    "kernel": b"MZ" + b"\0" * 508 + b"\x55\xaa",
    "iso": b"\0" * 32768 + b"\x01CD001\x01" + b"\0" * 2041,
    "nothing": b"",
}


@pytest.mark.parametrize("what", PLAIN)
@pytest.mark.parametrize("declared", ["raw", "iso", "aki"])
def test_raw_disk_with_any_start_is_accepted(tmp_path: Path, what: str, declared: str) -> None:
    path = tmp_path / "image"
    path.write_bytes(PLAIN[what] + b"\0" * 65536)
    formats.check(str(path), declared)


@pytest.mark.parametrize("made", ["qcow2", "vdi", "vpc", "vhdx", "vmdk", "qed"])
@pytest.mark.parametrize("declared", ["raw", "ami", "iso", "qcow2", "vdi", "vhdx"])
def test_other_format_is_refused(tmp_path: Path, made: str, declared: str) -> None:
    if made == declared:
        return
    path = create(tmp_path / "image", made)
    assert refused(path, declared).startswith(f"it was declared as {declared}, and it")


TEXT = exports.DESCRIPTOR.format(kind="monolithicSparse", extent="RW 20480 {extent}").ljust(2048, "\n")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (TEXT.format(extent='FLAT "shadow" 0'), "its data are in other files"),
        (TEXT.format(extent='FLAT "/etc/shadow" 0'), "not a VMDK file of the type monolithicSparse"),
        (TEXT.replace("monolithicSparse", "monolithicFlat"), "not a VMDK file of the type monolithicSparse"),
        (TEXT.replace("monolithicSparse", "vmfs"), "not a VMDK file of the type monolithicSparse"),
    ],
)
def test_vmdk_descriptor_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    """A VMDK descriptor, a text, may name any file as the disk (CVE-2022-47951)."""
    (tmp_path / "text").write_text(text)
    assert reason in refused(tmp_path / "text", "vmdk")
    for declared in ("raw", "qcow2", "vhd"):
        assert f"declared as {declared}" in refused(tmp_path / "text", declared)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({12: bytes(8)}, "its header has no size"),
        ({12: b"\xff" * 8}, "its disk has an impossible size"),
        ({512: TEXT.format(extent='FLAT "shadow" 0').encode(), 12: bytes(8)}, "its header has no size"),
        ({512: TEXT.replace("ffffffff", "12345678").encode()}, "it needs another file, its parent"),
        ({512: b'parentFileNameHint="shadow"\n' + TEXT.encode()}, "it needs another file, its parent"),
        ({1600: b'\nparentFileNameHint="shadow"\n', 36: b"\2"}, "it needs another file, its parent"),
        ({28: b"\x40"}, "not a VMDK file of the type monolithicSparse"),
        ({56: b"\xff" * 8}, "its footer contradicts its header"),
    ],
)
def test_vmdk_header_that_leads_elsewhere_is_refused(tmp_path: Path, changes: dict[int, bytes], reason: str) -> None:
    """qemu opens the files of the descriptor if the size is 0, and finds a parent beyond the descriptor's size."""
    content = bytearray(create(tmp_path / "image", "vmdk").read_bytes())
    for at, value in changes.items():
        content[at : at + len(value)] = value
    (tmp_path / "image").write_bytes(content)
    assert reason in refused(tmp_path / "image", "vmdk")


def test_footer_of_a_large_vmdk_is_checked(tmp_path: Path) -> None:
    """The end of the file is read, although its middle is not."""
    whole = exports.stream_optimized(os.urandom(65 * 1024**2))
    path = tmp_path / "image"
    path.write_bytes(whole)
    formats.check(str(path), "vmdk", "I")
    assert formats.virtual_size(str(path), "vmdk") == 65 * 1024**2
    path.write_bytes(whole[:-512])
    assert refused(path, "vmdk") == "its footer contradicts its header"


def test_vhd_of_differences_is_refused(tmp_path: Path) -> None:
    content = bytearray(create(tmp_path / "image", "vpc").read_bytes())
    content[60:64] = b"\0\0\0\4"
    (tmp_path / "image").write_bytes(content)
    assert refused(tmp_path / "image", "vhd") == "it needs another file, its parent"


def test_vhd_without_a_footer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(bytes(4096))
    assert refused(tmp_path / "image", "vhd") == "it was declared as vhd, and has no footer"


@pytest.mark.parametrize(
    ("made", "declared", "options"),
    [
        ("qcow2", "qcow2", []),
        ("vmdk", "vmdk", []),
        ("vmdk", "vmdk", ["-o", "subformat=streamOptimized"]),
        ("vdi", "vdi", []),
        ("vpc", "vhd", ["-o", "force_size=on"]),
        ("vpc", "vhd", ["-o", "subformat=fixed,force_size=on"]),
        ("vhdx", "vhdx", []),
        ("raw", "raw", []),
    ],
)
def test_size_of_the_disk_is_known(tmp_path: Path, made: str, declared: str, options: list[str]) -> None:
    assert formats.virtual_size(str(create(tmp_path / "image", made, *options)), declared) == SIZE


def test_qcow2_with_another_file_is_refused(tmp_path: Path) -> None:
    backed = create(tmp_path / "backed", "qcow2", "-b", "/etc/passwd", "-F", "raw")
    assert refused(backed, "qcow2") == "it has a backing file"
    apart = create(tmp_path / "apart", "qcow2", "-o", f"data_file={tmp_path / 'data'}")
    assert refused(apart, "qcow2") == "its data are in another file"


@pytest.mark.parametrize(
    ("bits", "features"),
    [
        ({4}, "extended L2 entries (subclusters)"),
        ({0, 4}, "extended L2 entries (subclusters)"),
        ({62}, "the unknown feature 62"),
        ({4, 5}, "extended L2 entries (subclusters) and the unknown feature 5"),
    ],
)
def test_qcow2_with_an_unsupported_feature_is_refused_by_its_name(
    tmp_path: Path, bits: set[int], features: str
) -> None:
    path = create(tmp_path / "image", "qcow2")
    changed = bytearray(path.read_bytes())
    changed[72:80] = sum(1 << bit for bit in bits).to_bytes(8, "big")
    path.write_bytes(changed)
    assert refused(path, "qcow2") == f"it uses {features} of qcow2, which is not supported; convert it without"


def test_qcow2_of_qemu_with_extended_l2_is_refused_by_its_name(tmp_path: Path) -> None:
    path = create(tmp_path / "image", "qcow2", "-o", "extended_l2=on,cluster_size=128k")
    assert "it uses extended L2 entries (subclusters) of qcow2" in refused(path, "qcow2")


@pytest.mark.parametrize("length", [0, 3, 4, 24, 71, 72, 75, 79, 80, 103, 104])
def test_truncated_header_is_refused(tmp_path: Path, length: int) -> None:
    whole = create(tmp_path / "whole", "qcow2").read_bytes()
    (tmp_path / "part").write_bytes(whole[:length])
    assert refused(tmp_path / "part", "qcow2")


@pytest.mark.parametrize("made", ["qcow2", "vmdk", "vdi", "vhdx", "vpc"])
def test_random_header_is_refused_or_accepted(tmp_path: Path, made: str) -> None:
    """Random bytes after the magic never cause another error."""
    whole = bytearray(create(tmp_path / "whole", made).read_bytes()[:65536])
    declared = {"vpc": "vhd"}.get(made, made)
    path = tmp_path / "noise"
    for at in range(4, 112):
        noisy = bytearray(whole)
        noisy[at : at + 4] = b"\xff\xff\xff\xff"
        path.write_bytes(noisy)
        try:
            formats.check(str(path), declared)
        except exceptions.ImageUnacceptable:
            continue


@pytest.mark.parametrize("what", ["fifo", "directory", "device"])
def test_special_file_is_not_opened(tmp_path: Path, what: str) -> None:
    path = tmp_path / what
    if what == "fifo":
        os.mkfifo(path)
    elif what == "directory":
        path.mkdir()
    else:
        path = Path("/dev/zero")
    with pytest.raises(OSError, match=r"not a regular file|Is a directory"):
        formats.check(str(path), "raw")
