"""Snapshot points of real guests: reverted disks, and memory that continues."""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path

from nova_lite.operations.states import PowerState
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration import scripts
from tests.integration.libvirt.conftest import PATIENCE, Images, boot, guest_spec
from tests.support.waiting import wait_for

#: Prints the mark of the disk, writes a mark that differs at each boot, and counts in memory.
SCRIPT = """
mark=$(dd if=/dev/vda bs=512 skip=20000 count=1 2>/dev/null | tr -d '\\000\\n')
echo "on disk: ${mark:-nothing}"
echo "${mark}x" | dd of=/dev/vda bs=512 seek=20000 conv=notrunc,sync,fsync 2>/dev/null
echo "mark written"
n=0
while :; do
    n=$((n + 1))
    echo "count $n at $(cut -d' ' -f1 /proc/uptime)"
    usleep 100000
done
"""


def marks(driver: LibvirtDriver, instance_uuid: str) -> list[str]:
    """Return the marks that the guest has found, one for each boot that has written its own."""
    lines = [line.strip() for line in driver.consoles.output(instance_uuid, None).splitlines()]
    found = [line.removeprefix("on disk: ") for line in lines if line.startswith("on disk: ")]
    return found[: lines.count("mark written")]


def counted(driver: LibvirtDriver, instance_uuid: str) -> list[int]:
    return [number for number, _ in scripts.counts(driver.consoles.output(instance_uuid, None))]


def wait_for_boots(driver: LibvirtDriver, instance_uuid: str, count: int) -> list[str]:
    found: list[str] = wait_for(
        "the guest's mark",
        lambda: found if len(found := marks(driver, instance_uuid)) == count else None,
        PATIENCE,
    )
    return found


def disk_of(driver: LibvirtDriver, spec: SpawnSpec) -> Path:
    return Path(driver._records.directory(spec.instance.uuid), "disk")


def snapshots_in(driver: LibvirtDriver, spec: SpawnSpec) -> list[str]:
    """Return the names of the snapshots in the disk of a guest that is off."""
    listed = subprocess.run(
        ["qemu-img", "snapshot", "-l", disk_of(driver, spec)], capture_output=True, check=True, text=True
    )
    return [line.split()[1] for line in listed.stdout.splitlines()[2:]]


def test_running_guest_returns_to_its_point_and_another_point_survives(driver: LibvirtDriver, images: Images) -> None:
    spec = guest_spec(images, [], config_drive=True, user_data=scripts.user_data(SCRIPT), memory_mb=96)
    one, two, instance_uuid = str(uuid.uuid4()), str(uuid.uuid4()), spec.instance.uuid
    boot(driver, spec)
    assert wait_for_boots(driver, instance_uuid, 1) == ["nothing"]
    for _ in range(2):
        driver.points.create(instance_uuid, one, False)
    assert driver.guests.get(instance_uuid).power_state == PowerState.RUNNING
    driver.power.reboot(instance_uuid, "HARD", 0)
    assert wait_for_boots(driver, instance_uuid, 2)[-1] == "x"
    driver.points.create(instance_uuid, two, True)
    before = counted(driver, instance_uuid)
    assert driver.guests.get(instance_uuid).power_state == PowerState.RUNNING
    wait_for("the guest continues", lambda: counted(driver, instance_uuid)[-1] > before[-1] + 2, PATIENCE)
    assert len(marks(driver, instance_uuid)) == 2, "it was booted again"

    driver.points.revert(instance_uuid, one, False)
    assert driver.guests.get(instance_uuid).power_state == PowerState.SHUTDOWN
    assert sorted(snapshots_in(driver, spec)) == sorted([one, two])
    driver.power.on(instance_uuid)
    assert wait_for_boots(driver, instance_uuid, 3)[-1] == "x", "the first boot's mark is on the disk again"
    driver.points.delete(instance_uuid, one)

    driver.points.revert(instance_uuid, two, True)
    assert driver.guests.get(instance_uuid).power_state == PowerState.RUNNING
    last = before[-1]
    wait_for("the memory continues", lambda: abs(counted(driver, instance_uuid)[-1] - last) < 100, PATIENCE)
    assert len(marks(driver, instance_uuid)) == 3, "it was booted again"
    driver.power.reboot(instance_uuid, "HARD", 0)
    assert wait_for_boots(driver, instance_uuid, 4)[-1] == "xx", "the second boot's mark is on the disk again"
    driver.power.off(instance_uuid, 0)
    assert snapshots_in(driver, spec) == [two]
    for _ in range(2):
        driver.points.delete(instance_uuid, two)
    assert snapshots_in(driver, spec) == []
    assert not [name for name in os.listdir(disk_of(driver, spec).parent) if name.startswith("point-")]
    assert subprocess.run(["qemu-img", "check", "-q", disk_of(driver, spec)], check=False).returncode == 0
    driver.guests.destroy(instance_uuid)
