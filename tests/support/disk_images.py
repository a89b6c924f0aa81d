"""Disks with file systems, made without mounts and without root."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import uuid
from pathlib import Path

MIB = 1024**2
#: Content of the large file, and of the sparse one with its hole.
BIG, SPARSE = os.urandom(3 * MIB + 17), bytes(5 * MIB) + b"end"
NUMBER = 600
#: Content of a file that is written in turn with another one.
APART = os.urandom(MIB // 2)


def make_tree(top: Path) -> Path:
    """Make a directory with files of each kind that a reader has to get right."""
    (top / "etc/deep").mkdir(parents=True)
    (top / "many").mkdir()
    (top / "etc/hostname").write_text("guest\n")
    (top / "big").write_bytes(BIG)
    (top / "empty").touch()
    with (top / "sparse").open("wb") as file:
        file.seek(len(SPARSE) - 3)
        file.write(b"end")
    (top / "short").symlink_to("/etc/passwd")
    (top / "long").symlink_to("../" * 50 + "x")
    for number in range(NUMBER):
        (top / f"many/file{number:05}").write_text(str(number))
    os.mkfifo(top / "etc/pipe")
    return top


def make_ext(tree: Path, image: Path, kind: str = "ext4", *options: str) -> Path:
    """Make a file system with the tree, and return its path."""
    with image.open("wb") as file:
        file.truncate(48 * MIB)
    subprocess.run(["mke2fs", "-q", "-t", kind, "-L", "guest-root", *options, "-d", tree, image], check=True)
    return image


def make_xfs(tree: Path, image: Path, *options: str) -> Path:
    with image.open("wb") as file:
        file.truncate(320 * MIB)
    prototype = image.with_suffix(".proto")
    prototype.write_text("\n".join(["/boot", "0 0", "d--755 0 0", *_prototype(tree), "$", ""]))
    command = ["mkfs.xfs", "-q", "-L", "guest-root", *options, "-p", prototype, image]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return image


def make_ntfs(tree: Path, image: Path) -> Path:
    """Make a file system with the ordinary files of the tree, and one whose data are apart. It is mounted as a file."""
    with image.open("wb") as file:
        file.truncate(64 * MIB)
    subprocess.run(["mkntfs", "-q", "-F", "-L", "guest-root", image], check=True, capture_output=True)
    mounted = image.with_suffix(".mounted")
    mounted.mkdir()
    subprocess.run(["ntfs-3g", image, mounted], check=True)
    try:
        for path in sorted(tree.rglob("*")):
            if path.is_dir():
                (mounted / path.relative_to(tree)).mkdir()
            elif path.is_file() and not path.is_symlink():
                shutil.copyfile(path, mounted / path.relative_to(tree))
        with (mounted / "apart").open("wb", 0) as apart, (mounted / "between").open("wb", 0) as between:
            for at in range(0, len(APART), 4096):
                apart.write(APART[at : at + 4096])
                between.write(bytes(4096))
    finally:
        subprocess.run(["umount", mounted], check=True)
    return image


def _prototype(directory: Path) -> list[str]:
    lines = []
    for path in sorted(directory.iterdir()):
        if path.is_symlink():
            lines.append(f"{path.name} l--777 0 0 {path.readlink()}")
        elif path.is_dir():
            lines += [f"{path.name} d--755 0 0", *_prototype(path), "$"]
        elif path.is_file():
            lines.append(f"{path.name} ---644 0 0 {path}")
        else:
            lines.append(f"{path.name} p--644 0 0")
    return lines


def with_gpt(data: bytes, number: int = 1) -> bytes:
    """Return a disk with a partition table of GPT, and the data in its partition of this number."""
    sectors = len(data) // 512
    entry = uuid.uuid4().bytes + uuid.uuid4().bytes + struct.pack("<QQ", 2048, 2047 + sectors)
    table = bytes(128 * (number - 1)) + entry.ljust(128, b"\0")
    header = b"EFI PART" + bytes(64) + struct.pack("<QII", 2, 128, 128)
    protective = bytes(446) + struct.pack("<B3xB3xII", 0, 0xEE, 1, 2047 + sectors)
    before = protective.ljust(510, b"\0") + b"\x55\xaa" + header.ljust(512, b"\0") + table
    return before.ljust(2048 * 512, b"\0") + data + bytes(MIB)


def with_mbr(data: bytes, is_logical: bool) -> bytes:
    """Return a disk with a partition table of MBR, and the data in partition 1, or in 5 if that is logical."""
    start, sectors = 2048, len(data) // 512
    table = _mbr(0x05, start, sectors + start) if is_logical else _mbr(0x83, start, sectors)
    if not is_logical:
        return table.ljust(start * 512, b"\0") + data
    inner = _mbr(0x83, start, sectors)
    return table.ljust(start * 512, b"\0") + inner.ljust(start * 512, b"\0") + data


def _mbr(kind: int, start: int, sectors: int) -> bytes:
    return (bytes(446) + struct.pack("<B3xB3xII", 0, kind, start, sectors)).ljust(510, b"\0") + b"\x55\xaa"
