"""Removals of directories leave mounts in them, and the targets of links."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from nova_lite.base import exceptions
from nova_lite.cmd.dev import cloud
from nova_lite.cmd.setup import monitoring
from nova_lite.compute.operations import snapshot
from nova_lite.virt.driver import snapshots_path
from nova_lite.virt.fake import FakeDriver
from nova_lite.virt.libvirt.records import Records
from nova_lite.volume import builtin
from tests.support.compute_host import make_conf
from tests.support.mounts import NO_MOUNTS, Mounts

UUID = "11111111-0000-4000-8000-000000000000"


class Removal(NamedTuple):
    """A directory, and what removes it. ``raises``: it fails if anything stays."""

    directory: Path
    run: Callable[[], object]
    raises: bool = False


def of_disks(path: Path) -> Removal:
    records = Records(str(path), "h1")
    records.prepare()
    return Removal(Path(records.create(UUID, 1)), lambda: records.remove(UUID), raises=True)


def of_disks_set_aside(path: Path) -> Removal:
    records = Records(str(path), "h1")
    records.prepare()
    records.create(UUID, 1)
    return Removal(Path(records.set_aside(UUID)), lambda: records.discard_set_aside(UUID), raises=True)


def of_disks_kept(path: Path) -> Removal:
    records = Records(str(path), "h1")
    records.prepare()
    records.create(UUID, 1)
    records.keep(UUID)
    return Removal(path / f"{UUID}@h1@kept", lambda: records.discard_kept(UUID), raises=True)


def of_incomplete_disks(path: Path) -> Removal:
    return Removal(path / f".new-h1-{UUID}", Records(str(path), "h1").prepare)


def of_incomplete_disks_of_a_new_guest(path: Path) -> Removal:
    records = Records(str(path), "h1")
    return Removal(path / f".new-h1-{UUID}", lambda: records.create(UUID, 1), raises=True)


def of_snapshots(path: Path) -> Removal:
    conf = make_conf(path)
    host = types.SimpleNamespace(conf=conf, name="h1")
    return Removal(Path(snapshots_path(conf, "h1")), lambda: snapshot.clean(host))  # type: ignore[arg-type]


def of_an_incomplete_volume(path: Path) -> Removal:
    return Removal(path / ".part-x", lambda: builtin.remove_part(str(path / ".part-x")))


def of_fake_disks(path: Path) -> Removal:
    driver = FakeDriver(make_conf(path), "h1", lambda image, target: None)
    return Removal(Path(driver.hypervisor.path) / "disks" / UUID, lambda: driver.hypervisor.remove(UUID), raises=True)


def of_fake_disks_set_aside(path: Path) -> Removal:
    driver = FakeDriver(make_conf(path), "h1", lambda image, target: None)
    return Removal(Path(driver.hypervisor.path) / "aside" / UUID, lambda: driver.moves.discard(UUID), raises=True)


def of_a_cloud_for_tests(path: Path) -> Removal:
    return Removal(path / "cloud", lambda: cloud._remove(str(path / "cloud")))


def of_files_of_prometheus(path: Path) -> Removal:
    return Removal(path / "prometheus/nova-lite", lambda: monitoring.remove(path / "prometheus/nova-lite"))


@pytest.fixture(
    params=[
        of_disks,
        of_disks_set_aside,
        of_disks_kept,
        of_incomplete_disks,
        of_incomplete_disks_of_a_new_guest,
        of_snapshots,
        of_an_incomplete_volume,
        of_fake_disks,
        of_fake_disks_set_aside,
        of_a_cloud_for_tests,
        of_files_of_prometheus,
    ]
)
def removal(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Removal:
    monkeypatch.setattr(cloud, "_REMOVALS", 1)
    (tmp_path / "state").mkdir()
    made: Removal = request.param(tmp_path / "state")
    (made.directory / "below").mkdir(parents=True, exist_ok=True)
    (made.directory / "disk").write_text("mine")
    return made


@pytest.fixture
def others(tmp_path: Path) -> Path:
    (tmp_path / "others").mkdir()
    (tmp_path / "others/disk").write_text("theirs")
    return tmp_path / "others"


@NO_MOUNTS
def test_removal_of_a_directory_with_a_mount_leaves_what_is_mounted(
    removal: Removal, others: Path, mounts: Mounts
) -> None:
    mounts.bind(others, removal.directory / "below")
    if removal.raises:
        with pytest.raises((OSError, exceptions.VirtDriverError), match="mounted"):
            removal.run()
    else:
        removal.run()
    assert (others / "disk").read_text() == "theirs"


def test_removal_of_a_directory_with_a_link_leaves_what_the_link_leads_to(removal: Removal, others: Path) -> None:
    (removal.directory / "below/link").symlink_to(others)
    removal.run()
    assert (others / "disk").read_text() == "theirs"
    assert not removal.directory.exists()
