"""Files of real file systems, read from disks by a confined process."""

from __future__ import annotations

import io
import os
import random
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nova_lite.backups.files import client, disk
from nova_lite.backups.files.client import DiskImage, Found, Listing, Partitions, Readers
from nova_lite.base import exceptions
from tests.support import disk_images
from tests.support.disk_images import BIG, MIB, NUMBER, SPARSE

Make = Callable[[Path, Path], Path]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return disk_images.make_tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def ext4(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return disk_images.make_ext(tree, tmp_path_factory.mktemp("ext4") / "made").read_bytes()


class Asked:
    """A disk whose files are read."""

    def __init__(self, place: Path, disk: bytes | None = None, kind: str = "raw") -> None:
        path = place if disk is None else place / "disk"
        if disk is not None:
            path.write_bytes(disk)
        self.readers = Readers()
        self.image = DiskImage(backup_id="b1", project_id="p1", path=str(path), format=kind)

    def partitions(self) -> list[client.DiskPartition]:
        return self.readers.ask(self.image, {"verb": "partitions"}, Partitions).partitions

    def names(self, path: str = "/", partition: int = 0) -> dict[str, client.DiskFile]:
        request = {"verb": "list", "path": path, "partition": partition}
        return {file.name: file for file in self.readers.ask(self.image, request, Listing).entries}

    def download(self, path: str, partition: int = 0) -> tuple[Found, bytes]:
        found, data = self.readers.download(self.image, {"verb": "get", "path": path, "partition": partition})
        try:
            return found, b"".join(data)
        finally:
            data.close()

    def members(self, path: str) -> dict[str, tarfile.TarInfo]:
        with tarfile.open(fileobj=io.BytesIO(self.download(path)[1])) as archive:
            listed = archive.getmembers()
        assert len({member.name for member in listed}) == len(listed)
        return {member.name: member for member in listed}


def ext(kind: str, *options: str) -> Make:
    return lambda tree, image: disk_images.make_ext(tree, image, kind, *options)


def xfs(*options: str) -> Make:
    return lambda tree, image: disk_images.make_xfs(tree, image, *options)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(ext("ext2"), id="ext2"),
        pytest.param(ext("ext3", "-b", "1024"), id="ext3"),
        pytest.param(ext("ext4", "-b", "4096", "-O", "^64bit"), id="ext4"),
        pytest.param(ext("ext4", "-O", "64bit,metadata_csum_seed"), id="ext4-64bit"),
        pytest.param(xfs(), id="xfs"),
        pytest.param(xfs("-m", "crc=0"), id="xfs-4"),
        pytest.param(xfs("-b", "size=1024", "-n", "size=4096"), id="xfs-small-blocks"),
    ],
)
def test_files_of_a_file_system_are_those_that_were_written(make: Make, tree: Path, tmp_path: Path) -> None:
    asked = Asked(make(tree, tmp_path / "image"))
    (partition,) = asked.partitions()
    assert (partition.number, partition.label, partition.readable) == (0, "guest-root", True)
    names = asked.names()
    assert names.keys() - {"lost+found"} == {path.name for path in tree.iterdir()}
    assert (names["big"].type, names["big"].size, names["big"].mode) == ("file", len(BIG), 0o644)
    assert (names["short"].target, names["long"].target) == ("/etc/passwd", "../" * 50 + "x")
    assert asked.names("//etc/.")["pipe"].type == "other"
    assert len(asked.names("many")) == NUMBER
    assert asked.download("/big") == (Found("file", len(BIG)), BIG)
    assert asked.download("/sparse") == (Found("file", len(SPARSE)), SPARSE)
    assert asked.download("/empty") == (Found("file", 0), b"")
    assert asked.download("/many/file00017")[1] == b"17"
    found, data = asked.download("/")
    assert (found.kind, found.size) == ("directory", None)
    (tmp_path / "out").mkdir()
    subprocess.run(["tar", "--extract", "--directory", tmp_path / "out"], input=data, check=True)
    compared = subprocess.run(
        [
            "diff",
            "--recursive",
            "--no-dereference",
            "--exclude=lost+found",
            "--exclude=pipe",
            tree,
            tmp_path / "out/disk",
        ],
        capture_output=True,
        check=False,
    )
    assert (compared.returncode, compared.stdout[:500]) == (0, b"")


@pytest.mark.skipif(not os.access("/dev/fuse", os.W_OK), reason="no FUSE")
def test_files_of_ntfs_are_those_that_were_written(tree: Path, tmp_path: Path) -> None:
    asked = Asked(disk_images.make_ntfs(tree, tmp_path / "image"))
    (partition,) = asked.partitions()
    assert (partition.file_system, partition.label, partition.readable) == ("ntfs", "guest-root", True)
    assert asked.names().keys() == {"apart", "between", "big", "empty", "etc", "many", "sparse"}
    assert len(asked.names("many")) == NUMBER
    for path, content in (("big", BIG), ("sparse", SPARSE), ("empty", b""), ("apart", disk_images.APART)):
        assert asked.download(path) == (Found("file", len(content)), content), path
    assert asked.download("etc/hostname")[1] == b"guest\n"
    assert asked.names()["big"].modified == pytest.approx(time.time(), abs=600)
    assert {f"many/file{number:05}" for number in range(NUMBER)} < asked.members("many").keys()
    _damage(tmp_path / "image", (b"FI", b"IN"))


@pytest.mark.parametrize(
    ("table", "number"),
    [
        (disk_images.with_gpt, 1),
        (lambda data: disk_images.with_gpt(data, 15), 15),
        (lambda data: disk_images.with_mbr(data, False), 1),
        (lambda data: disk_images.with_mbr(data, True), 5),
    ],
    ids=["gpt", "gpt-15", "mbr", "mbr-logical"],
)
def test_file_is_read_from_a_partition_of_a_qcow2_image(
    ext4: bytes, tmp_path: Path, table: Callable[[bytes], bytes], number: int
) -> None:
    (tmp_path / "raw").write_bytes(table(ext4))
    command = ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", tmp_path / "raw", tmp_path / "qcow2"]
    subprocess.run(command, check=True)
    asked = Asked(tmp_path / "qcow2", kind="qcow2")
    (partition,) = asked.partitions()
    assert (partition.number, partition.size, partition.file_system) == (number, len(ext4), "ext")
    assert asked.download("/etc/hostname", number)[1] == b"guest\n"
    with pytest.raises(exceptions.BackupFileNotFound, match="no partition 3"):
        asked.names("/", 3)


def test_compressed_or_linked_image_is_refused(ext4: bytes, tmp_path: Path) -> None:
    (tmp_path / "raw").write_bytes(ext4)
    convert = ["qemu-img", "convert", "-c", "-f", "raw", "-O", "qcow2", tmp_path / "raw", tmp_path / "compressed"]
    subprocess.run(convert, check=True)
    with pytest.raises(exceptions.BackupFilesUnreadable, match="is compressed"):
        Asked(tmp_path / "compressed", kind="qcow2").names()
    create = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", "/etc/passwd", "-F", "raw", tmp_path / "linked", "1M"]
    subprocess.run(create, check=True)
    with pytest.raises(exceptions.BackupFilesUnreadable, match="has a form"):
        Asked(tmp_path / "linked", kind="qcow2").partitions()


def test_cluster_that_has_become_zero_is_read_as_zeros(tmp_path: Path) -> None:
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", tmp_path / "disk", "1M"], check=True)
    writes = ["-c", "write -P 1 0 128k", "-c", "write -z 0 64k"]
    subprocess.run(["qemu-io", "-f", "qcow2", *writes, tmp_path / "disk"], check=True, capture_output=True)
    with (tmp_path / "disk").open("rb") as file:
        assert disk.open_disk(file.fileno(), "qcow2").read(65000, 1000) == bytes(536) + b"\1" * 464


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        ("/nope", exceptions.BackupFileNotFound, "no such file"),
        ("/etc/../etc/hostname", exceptions.BackupFileNotFound, "no such file"),
        ("/short/x", exceptions.BackupFilesUnreadable, "part of the path is a link"),
        ("/short", exceptions.BackupFilesUnreadable, "it is a link"),
        ("/etc/pipe", exceptions.BackupFilesUnreadable, "it is a other"),
        ("/etc/hostname\0", exceptions.BackupFileNotFound, "no such file"),
    ],
)
def test_path_that_has_no_data_is_refused(
    ext4: bytes, tmp_path: Path, path: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        Asked(tmp_path, ext4).download(path)


def test_list_of_a_file_and_an_unknown_file_system_are_refused(ext4: bytes, tmp_path: Path) -> None:
    with pytest.raises(exceptions.BackupFilesUnreadable, match="it is a file, not a directory"):
        Asked(tmp_path, ext4).names("/big")
    luks = Asked(tmp_path, b"LUKS\xba\xbe".ljust(MIB, b"\0"))
    assert [(part.file_system, part.readable) for part in luks.partitions()] == [("luks", False)]
    with pytest.raises(exceptions.BackupFilesUnreadable, match="files of luks cannot be read"):
        luks.names()
    with pytest.raises(exceptions.BackupFilesUnreadable, match="no file system is known"):
        Asked(tmp_path, bytes(MIB)).names()


# --- hostile disks


@pytest.fixture
def hostile(tmp_path: Path) -> Callable[..., Asked]:
    """Return a function that makes a disk with files ``aaaa`` to ``dddd`` and replaces bytes in it."""

    def make(*changes: tuple[bytes, bytes]) -> Asked:
        top = tmp_path / "top"
        (top / "dddd/inner").mkdir(parents=True)
        for name in ("aaaa", "bbbb", "cccc"):
            (top / name).write_text(name * 3)
        (top / "dddd/inner/eeee").write_text("deep")
        disk = disk_images.make_ext(top, tmp_path / "image", "ext4", "-O", "^dir_index").read_bytes()
        for old, new in changes:
            assert disk.count(old) == 1, disk.count(old)
            disk = disk.replace(old, new)
        return Asked(tmp_path, disk)

    return make


def entry(name: bytes) -> bytes:
    """Return a name of four letters as it is in a directory, with its length and type."""
    return bytes([4, 1]) + name


def test_names_that_lead_out_of_a_directory_are_left_out(hostile: Callable[..., Asked]) -> None:
    asked = hostile(
        (entry(b"aaaa"), entry(b"../x")), (entry(b"bbbb"), entry(b"b\0bb")), (entry(b"cccc"), entry(b"dddd"))
    )
    assert set(asked.names()) == {"lost+found", "dddd"}
    members = asked.members("/")
    assert set(members) <= {"disk", "disk/lost+found", "disk/dddd", "disk/dddd/inner", "disk/dddd/inner/eeee"}


def test_name_that_is_not_utf_8_is_shown_and_archived(hostile: Callable[..., Asked]) -> None:
    asked = hostile((entry(b"aaaa"), entry(b"a\xff\n\x1b")))
    assert "a\\xff\n\x1b" in asked.names()
    assert b"disk/a\xff\n\x1b" in {name.encode(errors="surrogateescape") for name in asked.members("/")}


def test_directory_that_contains_itself_is_archived_once(hostile: Callable[..., Asked], tmp_path: Path) -> None:
    disk = Path(hostile().image.path).read_bytes()
    inner, parent = (disk.index(entry) - 6 for entry in (b"\x05\x02inner", b"\x04\x02dddd"))
    asked = Asked(tmp_path, disk[:inner] + disk[parent : parent + 4] + disk[inner + 4 :])
    assert asked.names("dddd").keys() == {"inner"}
    assert sorted(asked.members("/dddd")) == ["dddd"]


@pytest.mark.parametrize(
    ("size", "words"), [(1 << 40, "more bytes than the disk"), (40 * MIB, None)], ids=["larger", "sparse"]
)
def test_file_of_a_false_size_is_refused_or_zero(ext4: bytes, tmp_path: Path, size: int, words: str | None) -> None:
    real = len(BIG).to_bytes(4, "little")
    at = next(
        found - 4
        for found in range(4, len(ext4), 4)
        if ext4[found : found + 4] == real and ext4[found + 76 : found + 78]
    )
    disk = bytearray(ext4)
    disk[at + 4 : at + 8] = (size & 0xFFFFFFFF).to_bytes(4, "little")
    disk[at + 108 : at + 112] = (size >> 32).to_bytes(4, "little")
    asked = Asked(tmp_path, bytes(disk))
    assert asked.names()["big"].size == size
    if words is None:
        data = asked.download("/big")[1]
        assert (len(data), data[: len(BIG)], any(data[len(BIG) + 4096 :])) == (size, BIG, False)
        return
    with pytest.raises(exceptions.BackupFilesUnreadable, match=words):
        asked.download("/big")
    with pytest.raises(exceptions.BackupFilesUnreadable, match="damaged"):
        asked.download("/")


@pytest.mark.parametrize(
    ("make", "marks"), [(disk_images.make_ext, None), (disk_images.make_xfs, (b"IN", b"XD", b"BM"))]
)
def test_damaged_file_system_ends_in_an_answer(
    make: Callable[[Path, Path], Path], marks: tuple[bytes, ...] | None, tree: Path, tmp_path: Path
) -> None:
    _damage(make(tree, tmp_path / "image"), marks)


def _damage(path: Path, marks: tuple[bytes, ...] | None) -> None:
    """Read a file system with damages of many kinds. ``marks``: first bytes of the sectors that are damaged."""
    chance, refused = random.Random(7), 0
    with path.open("r+b") as file:
        head = file.read(16 * MIB)
        used = [at for at in range(0, len(head), 512) if any(head[at : at + 512])]
        if marks is not None:
            used = [at for at in used if head[at : at + 2] in marks]
        for _ in range(4):
            for at in chance.sample(used, len(used) // 4):
                place = at + chance.randrange(128)
                file.seek(place)
                file.write(bytes([head[place] ^ 1 << chance.randrange(8)]))
            file.flush()
            try:
                Asked(path).download("/")
            except exceptions.NovaLiteException as error:
                refused += 1
                assert isinstance(error, exceptions.BackupFilesUnreadable), error
            file.seek(0)
            file.write(head)
    assert refused, "no damage was seen"


# --- the process


def test_confined_process_opens_starts_and_connects_to_nothing() -> None:
    script = """
import os, socket, sys
from nova_lite.backups.files import sandbox
sandbox.enter()
tried = [lambda: os.open("/etc/passwd", os.O_RDONLY), os.fork, lambda: os.execv("/bin/true", ["true"]),
    lambda: os.kill(os.getppid(), 0), lambda: os.unlink("/tmp/x"), lambda: os.stat("/etc"), socket.socket,
    lambda: bytearray(2 * 1024**3)]
for attempt in tried:
    try:
        attempt()
        print("done")
    except (PermissionError, MemoryError) as error:
        print(type(error).__name__)
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert result.stdout.split() == ["PermissionError"] * 7 + ["MemoryError"], result.stderr


def answering(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let readers run a shell script instead, as if a disk had taken them over."""

    def start(image: Any, request: Any) -> Any:
        return subprocess.Popen(["sh", "-c", script], bufsize=0, stdin=image, stdout=subprocess.PIPE)

    monkeypatch.setattr(client, "_start", start)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("true", "damaged"),
        ("echo nonsense", "damaged"),
        ("""echo '{"entries": [{"name": 1}], "truncated": false}'""", "damaged"),
        ("""echo '{"refused": "x"}'""", "damaged"),
        ("head -c 40000000 /dev/zero", "damaged"),
        ("exec sleep 60", "within 0.5 seconds"),
    ],
)
def test_answer_that_is_none_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, words: str
) -> None:
    answering(monkeypatch, script)
    asked = Asked(tmp_path, b"x")
    asked.readers = Readers(0.5 if "sleep" in script else 60.0)
    with pytest.raises(exceptions.BackupFilesUnreadable, match=words):
        asked.names()


@pytest.mark.parametrize("after", ["printf abc; exit 1", "printf ab", "printf abcd"])
def test_data_that_end_early_or_late_are_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, after: str) -> None:
    answering(monkeypatch, f"""echo '{{"kind": "file", "size": 3}}'; {after}""")
    with pytest.raises(exceptions.BackupFilesUnreadable, match="damaged"):
        Asked(tmp_path, b"x").download("/x")


def test_readers_are_limited_by_project_and_in_all_until_they_are_closed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answering(monkeypatch, """echo '{"kind": "file", "size": 3}'; exec sleep 60""")
    asked = Asked(tmp_path, b"x")
    opened = []

    def open_one(project: str) -> None:
        image = DiskImage(backup_id="b1", project_id=project, path=asked.image.path, format="raw")
        opened.append(asked.readers.download(image, {})[1])

    for project in ("p1", "p1"):
        open_one(project)
    with pytest.raises(exceptions.ServiceUnavailable, match="Too many"):
        open_one("p1")
    for project in ("p2", "p3"):
        open_one(project)
    with pytest.raises(exceptions.ServiceUnavailable, match="Too many"):
        open_one("p4")
    processes = [reader._process for reader in opened]
    for reader in opened:
        reader.close()
        reader.close()
    assert all(process.poll() is not None for process in processes)
    for _ in range(3):
        with pytest.raises(exceptions.BackupFilesUnreadable, match="no data"):
            asked.readers.ask(DiskImage("b1", "p1", str(tmp_path / "none"), "raw"), {}, Listing)
    open_one("p1")
    opened[-1].close()


def test_programs_of_these_tests_exist() -> None:
    assert [
        name for name in ("mke2fs", "mkfs.xfs", "mkntfs", "ntfs-3g", "qemu-img") if shutil.which(name) is None
    ] == []
