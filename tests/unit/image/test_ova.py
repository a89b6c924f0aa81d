"""OVA archives: sound ones are read, and each kind of hostile or damaged one is refused with its reason."""

from __future__ import annotations

import gzip
import os
import tarfile
from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.image import formats, ova
from tests.support import exports

DISK = bytes(range(256)) * 5000
OTHER = b"other" * 3000
OVF = exports.ovf(["vm-disk1.vmdk", "vm-disk2.vmdk"])
FILES = {"vm.ovf": OVF, "vm-disk1.vmdk": DISK, "vm-disk2.vmdk": OTHER}


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def unpacked(path: Path, content: bytes) -> bytes:
    ova.unpack(str(write(path / "a.ova", content)), "I")
    return (path / "a.ova").read_bytes()


def refused(path: Path, content: bytes) -> str:
    with pytest.raises(exceptions.ImageUnacceptable) as caught:
        unpacked(path, content)
    assert str(path) not in caught.value.message
    return caught.value.message.removeprefix("Image I is unacceptable: ")


@pytest.mark.parametrize("algorithm", ["SHA1", "SHA256", "SHA512"])
@pytest.mark.parametrize("tar_format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archive_is_replaced_by_its_first_disk(tmp_path: Path, algorithm: str, tar_format: int) -> None:
    files = {"vm.ovf": OVF, "vm.mf": exports.manifest(FILES, algorithm), **FILES}
    assert unpacked(tmp_path, exports.ova(files, tar_format=tar_format)) == DISK


def test_first_disk_is_the_first_that_the_descriptor_names(tmp_path: Path) -> None:
    files = {"vm.ovf": exports.ovf(["b%20c.vmdk", "a.vmdk"]), "a.vmdk": OTHER, "b c.vmdk": DISK}
    assert unpacked(tmp_path, exports.ova(files)) == DISK


def test_disk_without_a_file_is_passed_over(tmp_path: Path) -> None:
    text = OVF.replace(b"<Disk ", b'<Disk ovf:diskId="empty" ovf:capacity="9"/><Disk ', 1)
    assert unpacked(tmp_path, exports.ova({**FILES, "vm.ovf": text})) == DISK


def test_size_and_name_of_an_extended_header_count(tmp_path: Path) -> None:
    """A disk of more than 8 GiB has its size there."""
    name = "d" * 200 + ".vmdk"
    files = {"vm.ovf": exports.ovf([name]), name: DISK}
    whole = bytearray(exports.ova(files, tar_format=tarfile.PAX_FORMAT))
    at = whole.index(b" path=" + name[:20].encode()) - 3
    record = whole[at : at + 512].split(b"\n")[0] + b"\n"
    extra = record + b"17 size=" + str(len(DISK)).encode() + b"\n"
    whole[at : at + len(extra)] = extra
    header = at - 512
    whole[header + 124 : header + 136] = b"%011o\0" % len(extra)
    _sum_again(whole, header)
    real = at + 512
    whole[real + 124 : real + 136] = b"%011o\0" % 0
    _sum_again(whole, real)
    assert unpacked(tmp_path, bytes(whole)) == DISK


def _sum_again(archive: bytearray, header: int) -> None:
    archive[header + 148 : header + 156] = b" " * 8
    archive[header + 148 : header + 156] = b"%06o\0 " % sum(archive[header : header + 512])


ENTITIES = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
OUTSIDE = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'


def _with(**changes: bytes) -> bytes:
    return exports.ova({**FILES, **{name.replace("_", "."): data for name, data in changes.items()}})


def _ovf_of(name: str) -> bytes:
    return exports.ova({"vm.ovf": exports.ovf([name]), "d.vmdk": DISK})


REFUSED = {
    "no archive": (DISK, "not a tar archive"),
    "compressed": (gzip.compress(exports.ova(FILES)), "not a tar archive"),
    "empty": (b"", "no descriptor"),
    "no descriptor": (exports.ova({"d.vmdk": DISK}), "no descriptor"),
    "two descriptors": (exports.ova({**FILES, "b.ovf": OVF}), r"more than one \.ovf"),
    "two manifests": (exports.ova({**FILES, "a.mf": b"", "b.mf": b""}), r"more than one \.mf"),
    "link": (exports.ova({**FILES, "x": b""}, tarfile.SYMTYPE), "regular files only"),
    "hard link": (exports.ova({**FILES, "x": b""}, tarfile.LNKTYPE), "regular files only"),
    "device": (exports.ova({**FILES, "x": b""}, tarfile.BLKTYPE), "regular files only"),
    "fifo": (exports.ova({**FILES, "x": b""}, tarfile.FIFOTYPE), "regular files only"),
    "directory": (exports.ova({**FILES, "x": b""}, tarfile.DIRTYPE), "regular files only"),
    "sparse": (exports.ova({**FILES, "x": b""}, tarfile.GNUTYPE_SPARSE), "regular files only"),
    "long name": (exports.ova({**FILES, "x": b""}, tarfile.GNUTYPE_LONGNAME), "regular files only"),
    "path": (exports.ova({**FILES, "../../etc/x": b"x"}), "regular files only"),
    "absolute path": (exports.ova({**FILES, "/etc/x": b"x"}), "regular files only"),
    "many files": (exports.ova({f"{number}": b"" for number in range(600)}), "more than 512"),
    "entities": (_with(vm_ovf=exports.ovf(["d"], before=ENTITIES)), "document type"),
    "outer entity": (_with(vm_ovf=exports.ovf(["d"], before=OUTSIDE)), "document type"),
    "other text": (_with(vm_ovf=b"<a>"), "no XML"),
    "UTF-16": (_with(vm_ovf=OVF.decode().encode("utf-16")), "not UTF-8"),
    "long descriptor": (_with(vm_ovf=OVF + b" " * 1024**2), "more than 1048576 bytes"),
    "other XML": (_with(vm_ovf=b"<a/>"), "names no disk"),
    "file of the host": (_ovf_of("/etc/passwd"), "does not have"),
    "address of a file": (_ovf_of("file:///etc/passwd"), "does not have"),
    "file beside": (_ovf_of("../../etc/passwd"), "does not have"),
    "no reference": (_with(vm_ovf=OVF.replace(b'fileRef="f0"', b'fileRef="f9"')), "does not have"),
    "packed disk": (_with(vm_ovf=exports.ovf(["vm-disk1.vmdk"], 'ovf:compression="gzip"')), "compressed or split"),
    "split disk": (_with(vm_ovf=exports.ovf(["vm-disk1.vmdk"], 'ovf:chunkSize="9"')), "compressed or split"),
    "parent": (_with(vm_ovf=OVF.replace(b"ovf:capacity=", b'ovf:parentRef="d" ovf:capacity=')), "its parent"),
    "manifest of others": (_with(vm_mf=exports.manifest({"vm.ovf": OVF})), r"does not name vm-disk1\.vmdk"),
    "manifest without OVF": (_with(vm_mf=exports.manifest({"vm-disk1.vmdk": DISK})), r"does not name vm\.ovf"),
    "other sum": (
        _with(vm_mf=exports.manifest({**FILES, "vm-disk1.vmdk": OTHER})),
        r"vm-disk1\.vmdk does not have the sum",
    ),
    "other sum of the OVF": (_with(vm_mf=exports.manifest({**FILES, "vm.ovf": OTHER})), r"vm\.ovf does not have the"),
    "no sums": (_with(vm_mf=b"CRC32(vm.ovf)= 1234\n"), "no SHA1, SHA256 or SHA512"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_hostile_archive_is_refused_with_its_reason(tmp_path: Path, what: str) -> None:
    content, reason = REFUSED[what]
    with pytest.raises(exceptions.ImageUnacceptable, match=reason):
        unpacked(tmp_path, content)
    assert refused(tmp_path, content)


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    one = exports.ova({"a": OTHER})
    assert "a plain name of its own" in refused(tmp_path, one[: 512 + -(-len(OTHER) // 512) * 512] + one)


@pytest.mark.parametrize("size", [b"\x80" + (2**62).to_bytes(11, "big"), b"\xff" * 12, b"77777777777\0"])
def test_size_beyond_the_archive_is_refused(tmp_path: Path, size: bytes) -> None:
    whole = bytearray(exports.ova({"vm.ovf": OVF}))
    whole[124:136] = size
    _sum_again(whole, 0)
    assert refused(tmp_path, bytes(whole)) == "it ends early"


@pytest.mark.parametrize("record", [b"22 GNU.sparse.major=1\n", b"30 GNU.sparse.realsize=9999999\n"])
def test_sparse_file_of_an_extended_header_is_refused(tmp_path: Path, record: bytes) -> None:
    extended = exports.ova({"x": record}, tarfile.XHDTYPE)[:1024]
    assert "sparse" in refused(tmp_path, extended + exports.ova(FILES))


def test_long_extended_header_is_refused_without_reading_it(tmp_path: Path) -> None:
    extended = exports.ova({"x": b"\0" * 2 * 1024**2}, tarfile.XHDTYPE)
    assert "header that is too long" in refused(tmp_path, extended)


@pytest.mark.parametrize("value", [b"9" * 5000, b"-5", b"x"])
def test_extended_header_with_an_impossible_size_is_refused(tmp_path: Path, value: bytes) -> None:
    record = b"%d size=" % (len(value) + 20) + value + b"\n"
    extended = exports.ova({"x": record}, tarfile.XHDTYPE)
    extended = extended[: 512 + -(-len(record) // 512) * 512]
    assert refused(tmp_path, extended + exports.ova(FILES))


def test_deeply_nested_descriptor_is_harmless(tmp_path: Path) -> None:
    text = b"<a>" * 100000 + b"</a>" * 100000
    assert refused(tmp_path, exports.ova({"vm.ovf": text})) == "its descriptor names no disk"


def test_truncated_archive_is_refused_as_long_as_its_disk_is_not_whole(tmp_path: Path) -> None:
    """The zeros at the end are not needed."""
    disk = b"disk" * 100
    whole = exports.ova({"vm.ovf": exports.ovf(["d"]), "d": disk})
    end = whole.index(disk) + len(disk)
    for length in range(0, end, 37):
        assert refused(tmp_path, whole[:length])
    assert unpacked(tmp_path, whole[:end]) == disk


def test_disk_of_an_archive_is_checked_where_it_is(tmp_path: Path) -> None:
    """The image API does not unpack. A disk that names other files is refused as if it were alone."""
    good = exports.stream_optimized(DISK)
    path = write(tmp_path / "a.ova", exports.ova({"vm.ovf": exports.ovf(["d.vmdk"]), "d.vmdk": good}))
    formats.check(str(path), "vmdk", "I", "ova")
    assert formats.virtual_size(str(path), "vmdk", "ova") == len(DISK) // 512 * 512
    text = exports.DESCRIPTOR.format(kind="monolithicSparse", extent='RW 2048 FLAT "passwd" 0').encode()
    write(path, exports.ova({"vm.ovf": exports.ovf(["d.vmdk"]), "d.vmdk": text.ljust(65536, b"\n")}))
    with pytest.raises(exceptions.ImageUnacceptable, match="in other files"):
        formats.check(str(path), "vmdk", "I", "ova")
    assert os.listdir(tmp_path) == ["a.ova"]
