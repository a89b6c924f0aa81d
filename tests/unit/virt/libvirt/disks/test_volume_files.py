"""Files of volumes on top of each other: calls of libvirt and qemu-img."""

from __future__ import annotations

import subprocess
import uuid
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import libvirt
import pytest

from nova_lite.base import exceptions
from nova_lite.objects import FileMerge, Qcow2Disk
from nova_lite.operations.states import PowerState
from nova_lite.virt import images
from nova_lite.virt.abilities import DomainInfo
from nova_lite.virt.libvirt.connection import LibvirtBusy
from nova_lite.virt.libvirt.disks.disks import DiskMaker
from nova_lite.virt.libvirt.disks.volume_files import VolumeFiles
from nova_lite.virt.libvirt.disks.volumes import VolumeDevices
from tests.support import make
from tests.support.libvirt_errors import libvirt_error
from tests.unit.virt.libvirt.scripted import Calls

#: Constant, because names of tests have them.
VOLUME, *_SNAPSHOTS = (str(uuid.UUID(int=number)) for number in (1, 2, 3))
BASE, FIRST, SECOND = (f"volume-{VOLUME}{end}" for end in ("", *(f".{snapshot}" for snapshot in _SNAPSHOTS)))

ROOT = '<disk type="file"><driver type="qcow2"/><source file="/i/disk"/><target dev="vda"/></disk>'


class Hypervisor(Calls):
    """Connection, domains, domain and snapshotter in one: a guest with a volume in the files ``chain``, top first."""

    def __init__(self, directory: Path, *chain: str, power_state: PowerState = PowerState.RUNNING) -> None:
        self.directory, self.chain, self.power_state = directory, list(chain), power_state
        self.calls: list[tuple[Any, ...]] = []
        self.polls = 0
        self.mirror = ""

    def get(self, instance_uuid: str) -> tuple[Any, DomainInfo]:
        return self, DomainInfo(uuid=instance_uuid, generation=1, power_state=self.power_state)

    def UUIDString(self) -> str:
        return "u"

    def XMLDesc(self, flags: int) -> str:
        below = ""
        for name in reversed(self.chain[1:]):
            kind = "raw" if name == BASE else "qcow2"
            below = (
                f'<backingStore><format type="{kind}"/><source file="{self.directory}/{name}"/>{below}</backingStore>'
            )
        kind = "raw" if self.chain[0] == BASE else "qcow2"
        return (
            f"<domain><devices>{ROOT}<disk type='file'><driver type='{kind}'/>"
            f"<source file='{self.directory}/{self.chain[0]}'/>{'' if flags else below}{self.mirror}"
            f"<target dev='vdb'/><serial>{VOLUME}</serial></disk></devices></domain>"
        )

    def quiesced(self, domain: Any) -> Any:
        self.calls.append(("freeze",))
        return images.contextlib.nullcontext()

    def abort(self, domain: Any, device: str) -> None:
        self.calls.append(("abort", device))
        self.polls = 0

    def snapshotCreateXML(self, xml: str, flags: int) -> None:
        self.calls.append(("snapshot", xml))
        source = ET.fromstring(xml).find("disks/disk[@snapshot='external']/source")
        assert source is not None
        self.chain.insert(0, Path(source.get("file", "")).name)

    def updateDeviceFlags(self, xml: str, flags: int) -> None:
        self.calls.append(("update",))
        source, driver = ET.fromstring(xml).find("source"), ET.fromstring(xml).find("driver")
        assert source is not None and driver is not None
        below = [str(item.get("file")) for item in ET.fromstring(xml).iterfind(".//backingStore/source")]
        self.chain = [Path(name).name for name in (source.get("file", ""), *below)]

    def blockJobInfo(self, device: str, flags: int) -> dict[str, int]:
        self.polls -= 1
        return {"cur": 1} if self.polls > 0 else {}

    def blockRebase(self, device: str, base: str | None, bandwidth: int, flags: int) -> None:
        self.calls.append(("pull", device, base and Path(base).name, flags))
        self.polls = 3
        self.chain[1:] = [] if base is None else self.chain[self.chain.index(Path(base).name) :]

    def blockCommit(self, device: str, base: str, top: str, bandwidth: int, flags: int) -> None:
        self.calls.append(("commit", device, Path(base).name, Path(top).name, flags))
        self.polls = 3
        self.chain.remove(Path(top).name)


def files(guest: Hypervisor, path: Path) -> VolumeFiles:
    made: Any = guest
    secrets: Any = None
    return VolumeFiles(
        made, made, VolumeDevices(made, made, secrets), made, images.QemuImg(make.conf("sqlite://", path))
    )


def maker(path: Path) -> DiskMaker:
    unused: Any = None
    return DiskMaker(unused, images.QemuImg(make.conf("sqlite://", path)), unused)


def overlay(directory: Path, name: str, below: str, kind: str) -> None:
    made = ["qemu-img", "create", "-q", "-f", "qcow2", "-u", "-b", below, "-F", kind]
    subprocess.run([*made, str(directory / name), "1M"], check=True)


@pytest.mark.parametrize("power_state", [PowerState.RUNNING, PowerState.PAUSED, PowerState.SHUTDOWN])
def test_guest_moves_to_the_new_file_once(tmp_path: Path, power_state: PowerState) -> None:
    overlay(tmp_path, FIRST, BASE, "raw")
    (tmp_path / BASE).write_bytes(bytes(1024))
    guest = Hypervisor(tmp_path, BASE, power_state=power_state)
    for _ in range(2):
        files(guest, tmp_path).snapshot("u", VOLUME, FIRST)
    if power_state == PowerState.SHUTDOWN:
        assert (guest.chain, guest.calls) == ([FIRST, BASE], [("update",)])
        return
    disks = "<disk name='vda' snapshot='no'/><disk name='vdb' snapshot='external' type='file'><driver type='qcow2'/>"
    xml = f"<domainsnapshot><disks>{disks}<source file='{tmp_path}/{FIRST}'/></disk></disks></domainsnapshot>"
    frozen = [("freeze",)] if power_state == PowerState.RUNNING else []
    assert [*guest.calls[:-1], guest.calls[-1][1].replace('"', "'").replace(" />", "/>")] == [*frozen, xml]


@pytest.mark.parametrize(
    ("below", "kind", "message"),
    [
        ("other", "raw", "is not on top of"),
        (BASE, "qcow2", "is not on top of"),
        ("/etc/passwd", "raw", "is not on top of"),
        (None, "", "No such file"),
        ("link", "", "no regular file"),
    ],
)
def test_file_that_is_not_on_top_of_the_present_one_is_refused(
    tmp_path: Path, below: str | None, kind: str, message: str
) -> None:
    if below == "link":
        (tmp_path / FIRST).symlink_to("/etc/passwd")
    elif below is not None:
        overlay(tmp_path, FIRST, below, kind)
    guest = Hypervisor(tmp_path, BASE)
    with pytest.raises(exceptions.VirtDriverError, match=message):
        files(guest, tmp_path).snapshot("u", VOLUME, FIRST)
    assert guest.calls == []


@pytest.mark.parametrize(
    ("chain", "request_", "call", "left"),
    [
        ([FIRST, BASE], FileMerge(source=None, target=None), ("pull", "vdb", None, 0), [FIRST]),
        ([SECOND, FIRST, BASE], FileMerge(source=BASE, target=None), ("pull", "vdb", BASE, 16), [SECOND, BASE]),
        (
            [SECOND, FIRST, BASE],
            FileMerge(source=FIRST, target=BASE),
            ("commit", "vdb", BASE, FIRST, 8),
            [SECOND, BASE],
        ),
    ],
)
def test_files_are_merged_once(
    tmp_path: Path, chain: list[str], request_: FileMerge, call: tuple[Any, ...], left: list[str]
) -> None:
    guest = Hypervisor(tmp_path, *chain)
    checks: list[None] = []
    for _ in range(2):
        files(guest, tmp_path).merge("u", VOLUME, request_, lambda: checks.append(None))
    assert (guest.calls, guest.chain, files(guest, tmp_path).names("u", VOLUME)) == ([call], left, left)
    assert checks


@pytest.mark.parametrize(
    "request_",
    [
        FileMerge(source=SECOND, target=BASE),
        FileMerge(source=FIRST, target=SECOND),
        FileMerge(source="other", target=None),
        FileMerge(source=SECOND, target=None),
    ],
)
def test_impossible_merge_is_refused(tmp_path: Path, request_: FileMerge) -> None:
    guest = Hypervisor(tmp_path, SECOND, FIRST, BASE)
    with pytest.raises(exceptions.VirtDriverError, match=r"has no file|cannot be merged"):
        files(guest, tmp_path).merge("u", VOLUME, request_, lambda: None)
    assert guest.calls == []


def test_merge_continues_after_a_missed_poll_of_its_job(tmp_path: Path) -> None:
    guest = Hypervisor(tmp_path, SECOND, FIRST, BASE)
    poll, refused = guest.blockJobInfo, [True]

    def refuse_once(device: str, flags: int) -> dict[str, int]:
        if guest.polls > 0 and refused:
            refused.clear()
            raise LibvirtBusy(libvirt_error(libvirt.VIR_ERR_OPERATION_TIMEOUT))
        return poll(device, flags)

    guest.blockJobInfo = refuse_once  # type: ignore[method-assign]
    files(guest, tmp_path).merge("u", VOLUME, FileMerge(source=None, target=None), lambda: None)
    assert (guest.chain, refused) == ([SECOND], [])
    assert [call[0] for call in guest.calls] == ["pull"]


def test_merge_ends_with_its_command(tmp_path: Path) -> None:
    def over() -> None:
        raise exceptions.ActionOver(action="volume_snapshot_delete", instance_id="u")

    guest = Hypervisor(tmp_path, FIRST, BASE)
    with pytest.raises(exceptions.ActionOver):
        files(guest, tmp_path).merge("u", VOLUME, FileMerge(source=None, target=None), over)
    assert guest.calls[-1] == ("abort", "vdb")


@pytest.mark.parametrize("whole", [False, True])
def test_files_of_a_guest_that_is_off_are_merged_by_qemu_img(tmp_path: Path, whole: bool) -> None:
    (tmp_path / BASE).write_bytes(b"base".ljust(1 << 20, b"\0"))
    overlay(tmp_path, FIRST, BASE, "raw")
    overlay(tmp_path, SECOND, FIRST, "qcow2")
    subprocess.run(["qemu-io", "-c", "write -q -P 65 0 512", str(tmp_path / FIRST)], check=True)
    guest = Hypervisor(tmp_path, SECOND, power_state=PowerState.SHUTDOWN)
    volume = files(guest, tmp_path)
    assert volume.names("u", VOLUME) == [SECOND, FIRST, BASE]
    for _ in range(2):
        if whole:
            volume.merge("u", VOLUME, FileMerge(source=None, target=None), lambda: None)
        else:
            volume.merge("u", VOLUME, FileMerge(source=FIRST, target=BASE), lambda: None)
    (tmp_path / FIRST).unlink()
    assert volume.names("u", VOLUME) == ([SECOND] if whole else [SECOND, BASE])
    subprocess.run(["qemu-img", "convert", "-O", "raw", str(tmp_path / SECOND), str(tmp_path / "all")], check=True)
    assert (tmp_path / "all").read_bytes()[:516] == b"A" * 512 + b"\0" * 4


@pytest.mark.parametrize(
    ("below", "kind"),
    [("/etc/passwd", "raw"), ("../x", "raw"), ('json:{"driver":"null-co"}', "raw"), (BASE, "vmdk"), ("link", "raw")],
)
def test_volume_on_top_of_a_file_that_is_not_cinders_is_not_given_to_a_guest(
    tmp_path: Path, below: str, kind: str
) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    for name in (BASE, 'json:{"driver":"null-co"}'):
        (tmp_path / name).touch()
    overlay(tmp_path, FIRST, below, kind)
    with pytest.raises(exceptions.VolumeNotInFiles):
        maker(tmp_path).check_volumes({VOLUME: Qcow2Disk(path=str(tmp_path / FIRST))})


def test_volume_with_its_data_elsewhere_is_not_given_to_a_guest(tmp_path: Path) -> None:
    made = ["qemu-img", "create", "-q", "-f", "qcow2", "-o", f"data_file={tmp_path}/{BASE}"]
    subprocess.run([*made, str(tmp_path / FIRST), "1M"], check=True)
    with pytest.raises(exceptions.VolumeNotInFiles, match="data in another file"):
        maker(tmp_path).check_volumes({VOLUME: Qcow2Disk(path=str(tmp_path / FIRST))})


def test_volume_on_top_of_cinders_files_is_given_to_a_guest(tmp_path: Path) -> None:
    """Other kinds of volumes are not checked."""
    (tmp_path / BASE).touch()
    overlay(tmp_path, FIRST, BASE, "raw")
    overlay(tmp_path, SECOND, FIRST, "qcow2")
    maker(tmp_path).check_volumes({VOLUME: Qcow2Disk(path=str(tmp_path / SECOND)), BASE: str(tmp_path / "missing")})


def test_raw_file_is_at_the_bottom_whatever_is_in_it(tmp_path: Path) -> None:
    """A guest may write the header of a qcow2 file into its raw volume."""
    overlay(tmp_path, BASE, "/etc/passwd", "raw")
    guest = Hypervisor(tmp_path, BASE, power_state=PowerState.SHUTDOWN)
    assert files(guest, tmp_path).names("u", VOLUME) == [BASE]
    overlay(tmp_path, FIRST, "/etc/passwd", "raw")
    guest.chain = [FIRST]
    with pytest.raises(exceptions.VolumeNotInFiles, match="on top of /etc/passwd"):
        files(guest, tmp_path).names("u", VOLUME)
