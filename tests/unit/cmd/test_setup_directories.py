"""Purge of a machine's directories: by nova-lite-setup, by the scripts of the Debian packages, and by devstack."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from nova_lite.base import directory_users
from nova_lite.cmd.setup import directories, machine
from nova_lite.virt.libvirt.disks.marks import Marks
from nova_lite.virt.libvirt.records import InterfaceRecord, Records
from tests.support import postrm
from tests.support.mounts import NO_MOUNTS, Mounts

MINE, THEIRS = (f"{digit * 8}-0000-4000-8000-000000000000" for digit in "12")
ELSEWHERE, KEPT = (f"{digit * 8}-0000-4000-8000-000000000000" for digit in "34")
IMAGE, VOLUME, BACKUP = (f"{digit * 8}-0000-4000-8000-000000000000" for digit in "567")

Purge = Callable[[], str]


class Machine:
    """Host h1 with its directories below ``path``."""

    def __init__(self, path: Path) -> None:
        self.path, self.state, self.configuration = path, path / "var/lib/nova-lite", path / "etc/nova-lite"
        for directory in (self.state, self.configuration, path / "run"):
            directory.mkdir(parents=True)
        (self.configuration / "nova-lite.conf").write_text("[DEFAULT]\n[other]\nhost = h9\n")
        (self.configuration / "compute.conf").write_text("[DEFAULT]\nhost = h1\n[other]\nhost = h9\n")
        self.instances = self.state / "instances"
        for name in (
            "keys/own.key",
            "fences/h1/x",
            "conductor/nova-lite.sqlite",
            "kvm-probe.json",
            ".hidden",
            "mnt/share/x",
        ):
            self.write(self.state / name)
        for name in (f"images/{IMAGE}", f"images/uploads/h1/{IMAGE}", "images/staging/x", "images/.import-x"):
            self.write(self.state / name)
        for name in (f"volumes/{VOLUME}", f"volumes/snapshots/{VOLUME}", f"volumes/luks/{VOLUME}", "volumes/.part-x"):
            self.write(self.state / name)
        for name in (f"backups/{BACKUP}", "backups/before-upgrade-20260101T000000.tar.gz"):
            self.write(self.state / name)
        for directory in ("images", "volumes", "backups"):
            directory_users.register(str(self.state / directory), "h1")
        self.add_guest("h1", MINE)

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("data")

    def add_guest(self, host: str, uuid: str, beside: bool = False) -> Path:
        """Make the files of a guest, and of the host itself, in the directory of instances."""
        records = Records(str(self.instances), host)
        records.prepare()
        directory = Path(records.create(uuid, 1, beside=beside))
        self.write(directory / "disk")
        interfaces = InterfaceRecord(uuid, host, [])
        (self.instances / f"_interfaces/{uuid}@{host}.json").write_bytes(msgspec.json.encode(interfaces))
        for name in (f"floating@{host}.json", f"_frozen/{host}/x", f"_snapshots/{host}/x", f".new-{host}-{uuid}/disk"):
            self.write(self.instances / name)
        self.write(self.instances / f"_base/{IMAGE}")
        marks = Marks(str(self.instances), host)
        marks.look()
        marks._close()
        return directory

    def content(self, directory: Path) -> dict[str, str]:
        return {str(path): path.read_text(errors="replace") for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def here(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine")


@pytest.fixture(params=["setup", "packages", "devstack"])
def purge(request: pytest.FixtureRequest, here: Machine, monkeypatch: pytest.MonkeyPatch) -> Purge:
    """Return a function that purges the state directory. It returns the lines about what stays."""
    monkeypatch.setattr(machine, "CONFIGURATION", here.configuration)

    def by_setup() -> str:
        left = directories.remove_state(here.state, directories.own_hosts())
        assert not any(item.is_error for item in left)
        return "\n".join(map(str, left))

    def by_packages() -> str:
        """Purge as the packages do: each its own directories, and at last all that is there."""
        lines = ("instances volumes fences boots guard", "images backups identity conductor", "")
        script = postrm.below(postrm.shared() + "\n".join(f"purge_state {line}" for line in lines), here.path)
        return said_by("sh", "-euc", script)

    def by_devstack() -> str:
        script = postrm.below(f"{postrm.shared()}\npurge_state", here.path)
        return said_by("bash", "-euo", "pipefail", "-c", script)

    def said_by(*command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return "\n".join(dict.fromkeys(done.stderr.splitlines()))

    return {"setup": by_setup, "packages": by_packages, "devstack": by_devstack}[request.param]


def test_purge_of_a_machine_alone_leaves_nothing(here: Machine, purge: Purge) -> None:
    assert purge() == ""
    assert not here.state.exists()


def test_purge_that_is_repeated_finds_nothing(here: Machine, purge: Purge) -> None:
    purge()
    shutil.rmtree(here.configuration)
    assert purge() == ""


def test_purge_removes_disks_of_this_host_alone_from_a_directory_of_two_hosts(here: Machine, purge: Purge) -> None:
    """No mount tells: this machine serves the directory to the other host."""
    here.add_guest("h2", THEIRS)
    second = here.add_guest("h2", MINE, beside=True)
    found = here.content(here.instances).items()
    their_files = {path: text for path, text in found if re.search(rf"h2|{THEIRS}", path.removeprefix(str(here.path)))}
    their_files |= here.content(second) | here.content(here.instances / "_base")
    said = purge()
    assert here.content(here.instances) == their_files
    assert str(here.instances) in said and "other hosts use it: h2" in said
    assert [path.name for path in here.state.iterdir()] == ["instances"]


def test_purge_leaves_images_for_a_host_without_servers(here: Machine, purge: Purge) -> None:
    Marks(str(here.instances), "h2").look()
    said = purge()
    assert [path.name for path in (here.instances / "_base").iterdir()] == [IMAGE]
    assert not (here.instances / MINE).exists() and "other hosts use it: h2" in said


def test_purge_leaves_disks_that_are_kept_for_another_host(here: Machine, purge: Purge) -> None:
    here.add_guest("h2", THEIRS)
    here.add_guest("h1", KEPT)
    Records(str(here.instances), "h1").keep(KEPT)
    purge()
    assert (here.instances / f"{KEPT}@h1@kept/disk").exists() and not (here.instances / MINE).exists()


def test_purge_leaves_disks_that_another_host_has_taken(here: Machine, purge: Purge) -> None:
    """The directory still has a name of this host's making. Its record decides."""
    here.add_guest("h1", ELSEWHERE)
    theirs = Records(str(here.instances), "h2")
    found = theirs.find_left(ELSEWHERE, [("h1", 1)])
    assert found is not None
    theirs.take(*found, 2, [])
    purge()
    assert (here.instances / f"{ELSEWHERE}@h2/disk").exists() and not (here.instances / MINE).exists()


@pytest.mark.parametrize("name", ["images", "volumes", "backups"])
def test_purge_leaves_a_directory_that_another_host_uses(here: Machine, purge: Purge, name: str) -> None:
    directory_users.register(str(here.state / name), "h2")
    before = here.content(here.state / name)
    said = purge()
    own = {path for path in before if "/h1" in path}
    assert here.content(here.state / name) == {path: text for path, text in before.items() if path not in own}
    assert f"{here.state / name}" in said and "other hosts use it: h2" in said
    assert [path.name for path in here.state.iterdir()] == [name]


@pytest.mark.parametrize("name", directories.SHARED)
def test_purge_leaves_files_that_are_not_of_this_cloud(here: Machine, purge: Purge, name: str) -> None:
    for file in ("our notes.txt", ".nfs0001", "debian-12-genericcloud-amd64-daily-x86.qcow2"):
        here.write(here.state / name / file)
    said = purge()
    assert len(here.content(here.state)) == 3 and said.count("it is not of this cloud") == 3


@NO_MOUNTS
@pytest.mark.parametrize(
    "name", ["", *directories.SHARED, "conductor", "keys", "mnt/share", f"instances/{MINE}", "volumes/luks"]
)
def test_purge_enters_no_mount(here: Machine, purge: Purge, mounts: Mounts, tmp_path: Path, name: str) -> None:
    """A bind mount of the same file system stands for NFS: it has the same device as what is around it."""
    shared = tmp_path / "shared"
    for file in (MINE, f"{THEIRS}/disk", f"{THEIRS}/instance.json", "_base/x", "h1", "notes"):
        here.write(shared / file)
    before = here.content(shared)
    mounts.bind(shared, here.state / name)
    said = purge()
    assert here.content(shared) == before
    assert str(here.state / name) in said and "something is mounted there" in said
    if name:
        mounts.end()
        assert [path.name for path in here.state.iterdir()] == [name.partition("/")[0]]


@pytest.mark.parametrize("name", ["", *directories.SHARED, "conductor", f"instances/{MINE}"])
def test_purge_follows_no_link(here: Machine, purge: Purge, tmp_path: Path, name: str) -> None:
    shared = tmp_path / "shared"
    os.rename(here.state / name, shared)
    (here.state / name).symlink_to(shared)
    before = here.content(shared)
    said = purge()
    assert here.content(shared) == before and not os.path.lexists(here.state)
    assert name not in ("", *directories.SHARED) or (str(shared) in said and "is a link to it" in said)


def test_machine_whose_hosts_have_other_names_than_itself_uses_these(here: Machine, purge: Purge) -> None:
    """Another host may have this machine's name."""
    name = os.uname().nodename
    here.add_guest(name, THEIRS)
    said = purge()
    assert (here.instances / f"{THEIRS}/disk").exists() and name in said
    (here.configuration / "compute.conf").write_text("[DEFAULT]\n")
    assert purge() == ""
    assert not here.state.exists()


def test_preview_of_a_purge_names_what_stays(here: Machine, tmp_path: Path) -> None:
    assert directories.protected(here.state, {"h1"}) == []
    here.add_guest("h2", THEIRS)
    os.rename(here.state / "volumes", tmp_path / "shared")
    (here.state / "volumes").symlink_to(tmp_path / "shared")
    assert [str(item) for item in directories.protected(here.state, {"h1"})] == [
        f"{here.instances}: other hosts use it: h2",
        f"{tmp_path}/shared: {here.state}/volumes is a link to it",
    ]
