"""Real guests that crash: libvirt says so, and they can be started again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from nova_lite.objects import Image, IncidentKind
from nova_lite.operations.states import PowerState
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration.libvirt.conftest import PATIENCE, Images, boot, guest_spec
from tests.integration.libvirt.guests import console_line, user_data
from tests.support.waiting import wait_for

PANIC = """
insmod /lib/pvpanic.ko && insmod /lib/pvpanic-mmio.ko && loaded=yes
echo "crash: loaded ${loaded:-no}" > /dev/console
sleep 1; echo c > /proc/sysrq-trigger
"""


def has_crashed(driver: LibvirtDriver, instance_uuid: str) -> bool:
    info = driver.guests.get(instance_uuid)
    return info.crashed and info.power_state == PowerState.SHUTDOWN


def test_guest_whose_kernel_panics_is_off_and_can_be_started(driver: LibvirtDriver, images: Images) -> None:
    incidents: list[IncidentKind] = []
    driver.wait_for_events(lambda _, incident: incidents.append(incident) if incident is not None else None)
    spec = guest_spec(images, [], config_drive=True, user_data=user_data(PANIC))
    spec.instance.protected = True
    uuid = spec.instance.uuid
    boot(driver, spec)
    if "no" in console_line(driver, uuid, "crash: loaded ").split():
        pytest.skip("the kernel of these guests has no pvpanic: Ubuntu has it in another package")
    wait_for("crash", lambda: has_crashed(driver, uuid), PATIENCE)
    wait_for("event", lambda: incidents == [IncidentKind.PANIC], PATIENCE)
    driver.power.on(uuid)
    assert driver.guests.get(uuid).power_state == PowerState.RUNNING
    assert not driver.guests.get(uuid).crashed


def test_guest_whose_process_is_killed_has_crashed_and_one_that_is_stopped_has_not(
    driver: LibvirtDriver, images: Images, blank: Image
) -> None:
    spec = guest_spec(images, [], image=blank)
    uuid = spec.instance.uuid
    boot(driver, spec)
    os.kill(pid_of(uuid), signal.SIGKILL)
    wait_for("crash", lambda: has_crashed(driver, uuid), PATIENCE)
    driver.power.on(uuid)
    driver.power.off(uuid, 0)
    assert not driver.guests.get(uuid).crashed


def pid_of(instance_uuid: str) -> int:
    """Return the process of a guest."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes()
        except OSError:
            continue  # The process has ended meanwhile.
        if b"qemu" in arguments and instance_uuid.encode() in arguments:
            return int(path.parent.name)
    raise AssertionError(f"guest {instance_uuid} has no process")
