"""The driver looks whether the files of its guests' disks exist."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import pytest

from nova_lite.base.timing import TIMING
from nova_lite.virt.libvirt.connection import Connection
from nova_lite.virt.libvirt.context import HostContext
from nova_lite.virt.libvirt.disks.shared_disks import DiskChecks
from nova_lite.virt.libvirt.domain.domains import Domains
from nova_lite.virt.libvirt.records import Records
from tests.unit.virt.libvirt.scripted import HOST, URI, Hypervisor

UUID, OTHER = (f"{digit * 8}-0000-4000-8000-000000000000" for digit in "12")


@pytest.fixture
def checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DiskChecks:
    """Return the checks of a host with two guests: with a disk of two files and a volume, and with a disk elsewhere."""
    hypervisor = Hypervisor()
    monkeypatch.setattr("libvirt.open", hypervisor.open)
    for uuid, text in (
        (
            UUID,
            f"<disk><source file='{tmp_path}/instances/{UUID}/disk'/>"
            f"<backingStore><source file='{tmp_path}/instances/_base/image'/></backingStore></disk>"
            f"<disk><source file='{tmp_path}/volumes/volume'/></disk><disk><source dev='/dev/none'/></disk><disk/>",
        ),
        (OTHER, f"<disk><source file='{tmp_path}/mnt/share/volume'/></disk>"),
    ):
        devices = hypervisor.guest(uuid).trees[0].find("devices")
        assert devices is not None
        devices.extend(ET.fromstring(f"<devices>{text}</devices>"))
    for name in (f"instances/{UUID}/disk", "instances/_base/image", "volumes/volume"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    conf = SimpleNamespace(volume=SimpleNamespace(store_path=str(tmp_path / "volumes")))
    connection, records = Connection(URI, HOST), Records(str(tmp_path / "instances"), HOST)
    context = HostContext(conf, HOST, TIMING.libvirt, connection, Domains(connection, HOST), records)
    return DiskChecks(context)


def test_guest_with_all_files_lacks_none(checks: DiskChecks) -> None:
    """A volume of another service is mounted when its guest starts."""
    assert checks.missing() == set()


@pytest.mark.parametrize("name", [f"instances/{UUID}/disk", f"instances/{UUID}", "instances/_base/image", "volumes"])
def test_guest_whose_file_is_away_lacks_its_disks(checks: DiskChecks, tmp_path: Path, name: str) -> None:
    (tmp_path / name).rename(tmp_path / "away")
    assert checks.missing() == {UUID}


def test_disk_that_cannot_be_looked_at_is_not_missing(checks: DiskChecks, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str) -> None:
        raise OSError(5, "Input/output error", path)

    monkeypatch.setattr("nova_lite.virt.libvirt.disks.shared_disks.os.stat", fail)
    assert checks.missing() == set()
