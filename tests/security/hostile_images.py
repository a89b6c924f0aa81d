"""Images that an attacker made to have a host read its own files, take its memory or fill its disk.

`corpus` writes them, by name, with what each may be let in as: bytes of no format are a disk as they are (``raw``), a
sound image is one of its own format. What it lies about, or where it leads to, is never followed.
"""

from __future__ import annotations

import gzip
import json
import struct
import subprocess
import tarfile
import zlib
from pathlib import Path
from typing import NamedTuple

from tests.support.exports import DESCRIPTOR, manifest, ova, ovf, stream_optimized

MIB = 1024**2
#: Disk formats whose bytes are used as they are.
PLAIN = frozenset({"raw", "ami", "aki", "ari", "iso"})
#: Declared formats of each image: two raw ones, and all others.
DECLARED = ("raw", "aki", "qcow2", "vdi", "vhd", "vhdx", "vmdk")
_MAGICS = {
    "qcow2": b"QFI\xfb",
    "vmdk": b"KDMV",
    "vdi": b"<<< Oracle VM VirtualBox Disk Image >>>\n".ljust(64, b"\0") + b"\x7f\x10\xda\xbe",
    "vhd": b"conectix",
    "vhdx": b"vhdxfile",
    "qed": b"QED\0",
    "luks": b"LUKS\xba\xbe\0\x01",
    "iso": b"\0" * 32768 + b"\x01CD001\x01",
    "gpt": b"\0" * 510 + b"\x55\xaa" + b"EFI PART",
}


class Hostile(NamedTuple):
    """``fits``: the disk formats under which it may be let in."""

    path: Path
    fits: frozenset[str]


def corpus(directory: Path, secret: Path) -> dict[str, Hostile]:
    """Build the corpus. ``secret``: a file of the host that images refer to."""
    made: dict[str, Hostile] = {}

    def keep(name: str, content: bytes, fits: frozenset[str] | set[str] = frozenset()) -> None:
        path = directory / name
        path.write_bytes(content)
        made[name] = Hostile(path, frozenset(fits))

    def image(disk_format: str, *options: str, size: int = 8 * MIB) -> bytes:
        path = directory / "work"
        path.unlink(missing_ok=True)
        command = ["qemu-img", "create", "-q", "-u", "-f", disk_format, *options, str(path), str(size)]
        subprocess.run(command, check=True, capture_output=True)
        content = path.read_bytes()
        path.unlink()
        return content

    plain = image("qcow2")
    # --- what leads to other files
    keep("qcow2-backing", image("qcow2", "-b", str(secret), "-F", "raw"))
    keep("qcow2-backing-vmdk", image("qcow2", "-b", str(secret), "-F", "vmdk"))
    driver = json.dumps({"driver": "raw", "file": {"driver": "file", "filename": str(secret)}})
    keep("qcow2-backing-json", image("qcow2", "-b", f"json:{driver}", "-F", "raw"))
    keep("qcow2-backing-nbd", image("qcow2", "-b", "nbd://127.0.0.1:1/x", "-F", "raw"))
    keep("qcow2-backing-fifo", image("qcow2", "-b", str(secret.parent / "fifo"), "-F", "raw"))
    external = bytearray(plain)
    external[72:80] = struct.pack(">Q", struct.unpack(">Q", plain[72:80])[0] | 4)
    extension = struct.pack(">II", 0x44415441, len(str(secret))) + str(secret).encode()
    end = struct.unpack(">I", plain[100:104])[0]
    external[end : end + len(extension) + 16] = extension + b"\0" * 16
    keep("qcow2-data-file", bytes(external))
    keep("qed-backing", image("qed", "-b", str(secret), "-F", "raw"))
    keep("qcow1-backing", image("qcow", "-b", str(secret), "-F", "raw"))
    descriptor = (
        '# Disk DescriptorFile\nversion=1\nCID=12345678\nparentCID=ffffffff\ncreateType="{kind}"\n\n'
        '# Extent description\n{extent}\n\n# The Disk Data Base\n#DDB\nddb.virtualHWVersion = "4"\n'
        'ddb.geometry.cylinders = "1"\nddb.geometry.heads = "16"\nddb.geometry.sectors = "63"\n'
    )
    for kind, extent in (
        ("monolithicFlat", f'RW 2048 FLAT "{secret}" 0'),
        ("twoGbMaxExtentSparse", f'RW 2048 SPARSE "{secret}"'),
        ("vmfs", f'RW 2048 VMFS "{secret}"'),
        ("monolithicFlat", f'RW 2048 FLAT "{secret.parent}/fifo" 0'),
    ):
        text = descriptor.format(kind=kind, extent=extent).encode()
        keep(f"vmdk-descriptor-{len(made)}", text)
        keep(f"vmdk-descriptor-padded-{len(made)}", text.ljust(MIB // 4, b"\0"))
    sparse = image("vmdk")
    flat = descriptor.format(kind="monolithicFlat", extent=f'RW 2048 FLAT "{secret}" 0').encode()
    inside = bytearray(sparse)
    inside[512 : 512 + 20 * 512] = flat.ljust(20 * 512, b"\0")
    keep("vmdk-sparse-flat-inside", bytes(inside))
    keep("vmdk-sparse", sparse, {"vmdk"})
    for name, changes in (
        ("no-size", {12: bytes(8), 512: flat.ljust(20 * 512, b"\0")}),
        ("no-size-beside", {12: bytes(8), 512: _beside(descriptor, secret)}),
        ("parent", {512: sparse[512:2048].replace(b"parentCID", f'parentFileNameHint="{secret}"\nparentCID'.encode())}),
        ("parent-beyond", {36: b"\1", 1100: f'\nparentFileNameHint="{secret}"\n'.encode()}),
        ("size-beyond", {12: b"\xff" * 8}),
        ("footer-missing", {56: b"\xff" * 8}),
    ):
        keep(f"vmdk-{name}", _changed(sparse, changes))
    keep("vmdk-descriptor-beside", _beside(descriptor, secret))
    # --- headers that want more than there is
    for name, offset, value in (
        ("l1-entries", 36, struct.pack(">I", 0x7FFFFFFF)),
        ("l1-offset", 40, struct.pack(">Q", 2**63 - 512)),
        ("cluster-bits-63", 20, struct.pack(">I", 63)),
        ("cluster-bits-0", 20, struct.pack(">I", 0)),
        ("refcount-clusters", 56, struct.pack(">I", 0x7FFFFFFF)),
        ("snapshots", 60, struct.pack(">IQ", 0x7FFFFFFF, 2**40)),
        ("version-9", 4, struct.pack(">I", 9)),
        ("unknown-features", 72, struct.pack(">Q", 2**62)),
        ("crypt", 32, struct.pack(">I", 1)),
        ("header-length", 100, struct.pack(">I", 2**31 - 1)),
        ("backing-offset", 8, struct.pack(">QI", 2**60, 1023)),
    ):
        changed = bytearray(plain)
        changed[offset : offset + len(value)] = value
        keep(f"qcow2-{name}", bytes(changed))
    # --- bombs
    keep("qcow2-huge", image("qcow2", size=2**46), {"qcow2"})
    keep("qcow2-zeros-compressed", _compressed_zeros(2**40), {"qcow2"})
    keep("vmdk-huge", _changed(sparse, {12: struct.pack("<Q", 2**50)}), {"vmdk"})
    keep("vmdk-grain-of-all", stream_optimized(b"", 2**40, b"bomb" * 16384), {"vmdk"})
    keep("vmdk-tables", _changed(sparse, {44: struct.pack("<I", 2**31)}), {"vmdk"})
    keep("vmdk-grain-size", _changed(sparse, {20: struct.pack("<Q", 2**62)}), {"vmdk"})
    keep("vhd-differences", _changed(image("vpc"), {60: b"\0\0\0\4"}))
    keep("vdi-parent", _changed(image("vdi"), {424: b"parent's uuid..."}), {"vdi"})
    vdi = bytearray(image("vdi"))
    vdi[368:376], vdi[384:388] = struct.pack("<Q", 2**60), struct.pack("<I", 2**31 - 1)
    keep("vdi-huge", bytes(vdi), {"vdi"})
    keep("vhdx-huge", image("vhdx", size=2**45), {"vhdx"})
    keep("vhd-huge", image("vpc", size=2000 * 1024**3), {"vhd"})
    # --- two things at once
    iso, gpt = _MAGICS["iso"], _MAGICS["gpt"]
    for name, magic in _MAGICS.items():
        fits = PLAIN | {"vhd"} if name in ("iso", "gpt", "luks") else frozenset()
        keep(f"magic-{name}", magic.ljust(MIB // 4, b"\0"), fits)
        if name not in ("iso", "gpt"):
            whole = {"qcow2": plain, "vmdk": sparse}.get(name, magic)
            keep(
                f"{name}-in-iso", whole.ljust(32768, b"\0")[:32768] + iso[32768:].ljust(MIB // 4, b"\0"), _of_luks(name)
            )
        if name not in ("iso", "gpt", "vmdk"):
            keep(f"{name}-in-gpt", magic.ljust(510, b"\0") + gpt[510:].ljust(MIB // 4, b"\0"), _of_luks(name))
    keep("iso-with-descriptor", flat.ljust(32768, b"\0") + iso[32768:].ljust(MIB // 4, b"\0"))
    keep("qcow2-in-vhd-footer", plain + image("vpc", "-o", "subformat=fixed")[-512:], {"qcow2"})
    # --- headers that end early
    for name in ("qcow2", "vdi", "vmdk", "vhdx", "qed", "vpc"):
        whole = image(name)
        for length in (4, 64, 100, 512, len(whole) // 2):
            keep(f"{name}-{length}-bytes", whole[:length], _let_in_cut(name, length))
    return made


def archives(secret: Path) -> dict[str, bytes]:
    """Build OVA archives, none of which may be let in, by name."""
    disk = stream_optimized(b"disk" * 16384)
    flat = DESCRIPTOR.format(kind="monolithicFlat", extent=f'RW 2048 FLAT "{secret}" 0').encode()
    beside = _beside(DESCRIPTOR, secret)
    outside = f'<!DOCTYPE x [<!ENTITY a SYSTEM "file://{secret}">]>'
    bomb = "".join(f'<!ENTITY e{i + 1} "{f"&e{i};" * 10}">' for i in range(12))
    names = (str(secret), f"file://{secret}", f"../{secret.name}")
    files = {"vm.ovf": ovf(["d"]), "d": disk}
    return {
        "symlink": _linked(files, secret, tarfile.SYMTYPE),
        "hard-link": _linked(files, secret, tarfile.LNKTYPE),
        "device": ova({**files, "x": b""}, tarfile.CHRTYPE),
        "sparse-bomb": ova({**files, "s": b""}, tarfile.GNUTYPE_SPARSE),
        "path": ova({**files, str(secret): b"other"}),
        "path-up": ova({**files, f"../../{secret.name}": b"other"}),
        "outer-entity": ova({**files, "vm.ovf": ovf(["&a;"], before=outside)}),
        "entity-bomb": ova({**files, "vm.ovf": ovf(["&e12;"], before=f'<!DOCTYPE x [<!ENTITY e0 "e">{bomb}]>')}),
        **{f"names-{index}": ova({"vm.ovf": ovf([name]), "d": disk}) for index, name in enumerate(names)},
        "flat-inside": ova({**files, "d": flat}),
        "flat-beside-inside": ova({**files, "d": beside}),
        "flat-padded-inside": ova({**files, "d": flat.ljust(65536, b"\0")}),
        "qcow2-inside": ova({**files, "d": b"QFI\xfb".ljust(65536, b"\0")}),
        "archive-inside": ova({**files, "d": ova(files)}),
        "compressed": gzip.compress(ova(files)),
        "headers": ova({str(number): b"" for number in range(2000)}),
        "long-header": ova({"x": b"\0" * 4 * MIB}, tarfile.XHDTYPE),
        "truncated": ova(files)[:2000],
        "other-sum": ova({**files, "vm.mf": manifest({"vm.ovf": b"other", "d": disk})}),
    }


def _linked(files: dict[str, bytes], secret: Path, kind: bytes) -> bytes:
    """Return an archive whose disk is a link to a file of the host."""
    whole = bytearray(ova({"vm.ovf": files["vm.ovf"], "d": b""}, kind))
    header = len(ovf(["d"])) // 512 * 512 + 1024
    name = str(secret).encode()[:100]
    whole[header + 157 : header + 157 + len(name)] = name
    whole[header + 148 : header + 156] = b" " * 8
    whole[header + 148 : header + 156] = b"%06o\0 " % sum(whole[header : header + 512])
    return bytes(whole)


def _beside(descriptor: str, secret: Path) -> bytes:
    """Return a descriptor that names a file without a path, which is all that oslo.utils looks for."""
    text = descriptor.format(kind="monolithicSparse", extent=f'RW 2048 FLAT "{secret.name}" 0')
    return text.encode().ljust(20 * 512, b"\n")


def _changed(content: bytes, changes: dict[int, bytes]) -> bytes:
    made = bytearray(content)
    for at, value in changes.items():
        made[at : at + len(value)] = value
    return bytes(made)


def _of_luks(name: str) -> frozenset[str]:
    return PLAIN | {"vhd"} if name == "luks" else frozenset()


def _let_in_cut(name: str, length: int) -> frozenset[str]:
    """Return the acceptable results of a truncated image: any, since the rest may be raw bytes or an image without
    its end.
    """
    del length
    own = {"vpc": "vhd"}.get(name, name)
    return PLAIN | {"vhd", own}


def _compressed_zeros(size: int) -> bytes:
    """Build a qcow2 image whose clusters are all one compressed cluster of zeros: a few KB that expand to a TiB."""
    bits = 16
    cluster = 1 << bits
    packer = zlib.compressobj(9, zlib.DEFLATED, -12)
    packed = packer.compress(b"\0" * cluster) + packer.flush()
    sectors = (len(packed) + 511) // 512
    entry = (1 << 62) | ((sectors - 1) << (62 - (bits - 8))) | (4 * cluster)
    clusters_of_l1 = size // (cluster * (cluster // 8))
    header = struct.pack(
        ">4sIQIIQIIQQIIQQQQII",
        b"QFI\xfb",
        3,
        0,
        0,
        bits,
        size,
        0,
        clusters_of_l1,
        cluster,
        2 * cluster,
        1,
        0,
        0,
        0,
        0,
        0,
        4,
        104,
    )
    l1 = struct.pack(">Q", (1 << 63) | (3 * cluster)) * clusters_of_l1
    refcounts = struct.pack(">Q", 5 * cluster)
    l2 = struct.pack(">Q", entry) * (cluster // 8)
    parts = (header, l1, refcounts, l2, packed, struct.pack(">H", 1) * 6)
    return b"".join(part.ljust(cluster, b"\0") for part in parts)
