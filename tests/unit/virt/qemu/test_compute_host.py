"""A whole compute host with the driver of qemu without libvirt: real manager, fake qemu, scripted conductor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_lite.operations.states import PowerState
from nova_lite.virt.libvirt.disks.disks import DiskMaker
from nova_lite.virt.qemu import processes
from nova_lite.virt.qemu.driver import QemuDriver
from tests.support.compute_host import LATER, UUID, Host, command
from tests.unit.virt.qemu.conftest import TIMING, Qemu, make_disks


def make_driver(conf: Any, host: str, fetch_image: Any) -> QemuDriver:
    conf.set_override("virt_type", "qemu", "libvirt")
    conf.set_override("security_groups", False, "network")
    return QemuDriver(conf, host, fetch_image, TIMING)


@pytest.fixture
def host(directory: Path, qemu: Qemu, ip: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setattr("tests.support.compute_host.HookedDriver", make_driver)
    monkeypatch.setattr(DiskMaker, "make", make_disks)
    made = Host(directory)
    made.build()
    made.settle()
    yield made
    made.driver.guests.destroy(UUID)


def act(host: Host, action: str, number: int, **values: Any) -> tuple[Any, Any]:
    host.act(command(action, LATER + number, **values))
    host.settle()
    _, power_state, error = host.conductor.of("finish_action")[-1]
    return power_state, error


def test_server_lives_through_its_operations_and_a_new_daemon(host: Host, qemu: Qemu) -> None:
    assert host.conductor.outcomes == [(1, "built")]
    wanted = {
        "pause": PowerState.PAUSED,
        "unpause": PowerState.RUNNING,
        "suspend": PowerState.SHUTDOWN,
        "resume": PowerState.RUNNING,
        "stop": PowerState.SHUTDOWN,
        "start": PowerState.RUNNING,
    }
    for number, (action, power) in enumerate(wanted.items()):
        assert act(host, action, number) == (power, None), action
    later = host.next_life()
    later.manager.reconciler.run()
    later.manager.age_images()
    assert later.power() == PowerState.RUNNING
    assert act(later, "reboot", 10, payload={"reboot_type": "HARD"}) == (PowerState.RUNNING, None)
    assert act(later, "delete", 11) == (None, None)
    assert processes.pids().get(UUID) is None
    assert later.driver.guests.leftovers() == set()


def test_operation_that_the_driver_lacks_is_refused_with_its_name(host: Host) -> None:
    host.manager.commands["trigger_crash_dump"](host.context, command("trigger_crash_dump"))
    host.settle()
    _, power, error = host.conductor.of("finish_action")[-1]
    assert power == PowerState.RUNNING
    assert "does not support trigger_crash_dump" in error
