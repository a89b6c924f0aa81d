"""Guests do not start while another program has their RBD images open."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.base.timing import LibvirtTiming
from nova_lite.objects import NetworkDisk
from nova_lite.virt.libvirt.disks import rbd_watchers
from nova_lite.virt.libvirt.disks.disks import Disk
from nova_lite.virt.libvirt.domain.guest_xml import disk_element

VOLUME = NetworkDisk(protocol="rbd", name="pool/volume-1", config="/etc/ceph/ceph.conf", user="me", secret="s")
OPEN = '{"watchers":[{"address":"192.0.2.1:0/7","client":4,"cookie":1}]}'


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of ``rbd``, which prints a line of the file ``status`` each time and records its arguments."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    path, calls, status = tmp_path / "rbd", tmp_path / "calls", tmp_path / "status"
    path.write_text(f'#!/bin/sh\necho "$*" >>{calls}\nsed -n "$(wc -l <{calls})p" {status}\n')
    path.chmod(0o755)
    return path


def replies(program: Path, *lines: str) -> None:
    (program.parent / "status").write_text("".join(f"{line}\n" for line in lines))


def calls(program: Path) -> list[str]:
    path = program.parent / "calls"
    return path.read_text().splitlines() if path.exists() else []


def disk(network: NetworkDisk | None) -> ET.Element:
    return disk_element(Disk(path="" if network else "/disk", device="vda", format="raw", network=network))


def wait(found: ET.Element, seconds: float = 0.0) -> None:
    timing = LibvirtTiming(disk_lock_wait=seconds, disk_lock_poll=0.0)
    rbd_watchers.wait_until_free("u", [found], lambda: None, timing)


def test_image_that_is_open_elsewhere_is_waited_for(program: Path) -> None:
    replies(program, OPEN, '{"watchers":[]}')
    wait(disk(VOLUME), 30.0)
    asked = "--conf /etc/ceph/ceph.conf --client-mount-timeout 20 --id me status --format json pool/volume-1"
    assert calls(program) == [asked, asked]


def test_guest_whose_image_stays_open_does_not_start(program: Path) -> None:
    replies(program, OPEN)
    with pytest.raises(exceptions.DiskInUse, match=r"has its disk pool/volume-1 open"):
        wait(disk(VOLUME))


@pytest.mark.parametrize(
    "network", [None, NetworkDisk(protocol="rbd", name="volumes/volume-1", hosts=(("192.0.2.9", "6789"),))]
)
def test_files_and_volumes_of_cinder_are_not_looked_at(program: Path, network: NetworkDisk | None) -> None:
    wait(disk(network))
    assert calls(program) == []


def test_unreachable_ceph_is_an_error(program: Path) -> None:
    program.write_text("#!/bin/sh\necho 'rbd: no monitor' >&2\nexit 110\n")
    with pytest.raises(exceptions.VirtDriverError, match="rbd status: no monitor"):
        wait(disk(VOLUME))


def test_shared_image_is_not_waited_for(program: Path) -> None:
    """Other servers have it open, rightly."""
    replies(program, OPEN)
    wait(disk_element(Disk(path="", device="vda", format="raw", network=VOLUME, shareable=True)))
    assert calls(program) == []
