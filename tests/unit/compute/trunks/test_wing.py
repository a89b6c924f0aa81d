"""The wing of trunks on a host: what it plugs, connects and reports. Its devices are recorded here, not made."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.compute.trunks import devices
from nova_lite.compute.trunks.wing import HostTrunks
from nova_lite.network.trunks import FAILED, UP, WING, Assignment, Assignments
from nova_lite.objects import VIF, Instance
from tests.support import make
from tests.support.api_client import make_conf

PORT, PARENT = "c0000000-0000-4000-8000-000000000001", "d0000000-0000-4000-8000-000000000001"


class World:
    """A host, and its conductor: ``wanted`` are the assignments of the next reply. ``done``: what the host has done."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.conf = make_conf(path)
        self.conf.set_override("state_path", str(path))
        self.conf.set_override("compute_driver", "libvirt")
        self.wanted: list[Assignment] = []
        self.reports: list[dict[str, str]] = []
        self.done: list[tuple[str, str]] = []
        self.taps = {f"tap{PARENT[:11]}"}
        self.connected: set[str] = set()
        self.is_broken = False
        for name in ("connect", "disconnect", "is_connected"):
            monkeypatch.setattr(devices, name, getattr(self, name))
        monkeypatch.setattr(devices, "taps", lambda: set(self.taps))
        self.wing = self.start()

    def start(self) -> HostTrunks:
        driver: Any = SimpleNamespace(networks=self)
        conductor: Any = SimpleNamespace(wing_report=self._report)
        return HostTrunks(WING, self.conf, "h1", driver, conductor)

    def _report(self, context: Any, host: str, wing: str, report: Any, timeout: float) -> Any:
        self.reports.append(report["states"])
        return msgspec.to_builtins(Assignments(subports=self.wanted))

    def plug(self, instance: Instance, vifs: list[VIF]) -> None:
        if self.is_broken:
            raise exceptions.VirtDriverError(reason="broken")
        self.done.append(("plug", instance.uuid))

    def unplug(self, instance_uuid: str) -> None:
        self.done.append(("unplug", instance_uuid))

    def is_connected(self, item: Assignment) -> bool:
        return item.vif.id in self.connected and f"tap{item.parent_id[:11]}" in self.taps

    def connect(self, item: Assignment) -> bool:
        if f"tap{item.parent_id[:11]}" not in self.taps:
            return False
        if not self.is_connected(item):
            self.connected.add(item.vif.id)
            self.done.append(("connect", item.vif.id))
        return True

    def disconnect(self, vif: VIF) -> None:
        self.connected.discard(vif.id)
        self.done.append(("disconnect", vif.id))

    def settle(self) -> list[tuple[str, str]]:
        """Let the host report until it has nothing more to say. Return what it has done."""
        self.wing.woken.set()
        while self.wing.woken.is_set():
            self.wing.tick(0)
        done, self.done = self.done, []
        return done


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def subport(number: int = 7) -> Assignment:
    network = make.network(id="a0000000-0000-4000-8000-000000000000")
    vif = VIF(id=PORT, mac_address="fa:16:3e:00:00:01", address="10.0.0.2", network=network)
    return Assignment(vif=vif, project_id="p", parent_id=PARENT, segmentation_id=number)


def test_subport_is_filtered_before_it_is_connected_and_reported(world: World) -> None:
    world.wanted = [subport()]
    assert world.settle() == [("plug", PORT), ("connect", PORT)]
    assert world.reports[-1] == {PORT: UP}
    world.wanted = []
    assert world.settle() == [("disconnect", PORT), ("unplug", PORT)]
    assert world.reports[-1] == {}


def test_subport_waits_for_the_interface_of_its_guest_and_follows_it(world: World) -> None:
    world.wanted, world.taps = [subport()], set()
    assert world.settle() == [("plug", PORT)]
    assert world.reports[-1] == {}
    world.taps = {f"tap{PARENT[:11]}"}
    assert world.settle() == [("connect", PORT)]
    assert world.reports[-1] == {PORT: UP}


def test_changed_vlan_replaces_the_connection_and_other_changes_do_not(world: World) -> None:
    world.wanted = [subport()]
    world.settle()
    world.wanted = [subport(8)]
    assert world.settle() == [("disconnect", PORT), ("unplug", PORT), ("plug", PORT), ("connect", PORT)]
    world.wanted[0].vif.floating_address = "192.0.2.7"
    assert world.settle() == []


def test_restarted_daemon_reports_connected_subports_and_removes_former_ones(world: World) -> None:
    world.wanted = [subport()]
    world.settle()
    world.wing = world.start()
    world.wanted, world.reports = [], []
    assert world.settle() == [("disconnect", PORT), ("unplug", PORT)]
    assert world.reports[0] == {PORT: UP}


def test_subport_that_cannot_be_plugged_is_reported_and_tried_again(world: World) -> None:
    world.wanted, world.is_broken = [subport()], True
    world.wing.woken.set()
    for _ in range(2):
        world.wing.tick(0)
    assert world.reports[-1] == {PORT: FAILED} and world.connected == set()
    world.is_broken = False
    assert world.settle() == [("plug", PORT), ("connect", PORT)]
    assert world.reports[-1] == {PORT: UP}


def test_host_of_another_driver_reports_that_it_connects_none(world: World) -> None:
    world.conf.set_override("compute_driver", "qemu")
    world.wanted = [subport()]
    world.wing.woken.set()
    for _ in range(2):
        world.wing.tick(0)
    assert world.reports[-1] == {PORT: FAILED} and world.done == []
