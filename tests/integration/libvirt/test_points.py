"""Snapshot points of a real guest: its disk returns, its memory continues, and a point that fails leaves no trace.

The guest counts in memory, and writes each number to its disk.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.objects import Image
from nova_lite.operations.states import PowerState
from nova_lite.virt import images as qemu_images
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration import scripts
from tests.integration.libvirt import hosts
from tests.integration.libvirt.conftest import LONG, PATIENCE, Images, MakeHost, boot, guest_spec
from tests.integration.libvirt.moves import arriving, instance_path
from tests.support.guests import make_flavor, make_instance, make_spec
from tests.support.waiting import wait_for

#: The test guest's root disk has no file system.
SCRIPT = """
n=0
while :; do
    n=$((n + 1))
    echo "$n" | dd of=/dev/vda bs=512 seek=20000 conv=notrunc,sync,fsync 2>/dev/null
    echo "count $n at $(cut -d' ' -f1 /proc/uptime)"
    usleep 100000
done
"""
#: A number is on the disk a moment before the console has it, and the console has it a moment before the test.
LATE = 5


class Guest:
    def __init__(self, driver: LibvirtDriver, images: Images) -> None:
        self.driver = driver
        spec = guest_spec(images, [], config_drive=True, user_data=scripts.user_data(SCRIPT), memory_mb=96)
        self.uuid = spec.instance.uuid
        boot(driver, spec)
        self.directory = Path(driver._records.directory(self.uuid))

    def counts(self) -> list[int]:
        return [number for number, _ in scripts.counts(self.driver.consoles.output(self.uuid, None))]

    def go_on(self) -> int:
        """Wait until the guest has counted on, and return its number."""
        before = len(self.counts())
        wait_for("the guest counts", lambda: len(self.counts()) > before + LATE, PATIENCE)
        return self.counts()[-1]

    def power_state(self) -> PowerState:
        return self.driver.guests.get(self.uuid).power_state

    def on_disk(self) -> int:
        """Return the number on the disk of the guest, which is off."""
        command = ["qemu-img", "dd", "-f", "qcow2", "-O", "raw", "bs=512", "count=20001"]
        target = self.directory.parent / str(uuid.uuid4())
        subprocess.run([*command, f"if={self.directory / 'disk'}", f"of={target}"], check=True)
        text = target.read_bytes()[20000 * 512 :]
        target.unlink()
        return int(text.strip(b"\0\n"))

    def snapshots(self) -> set[str]:
        """Return the names of the snapshots in the disk of the guest, which is off."""
        command = ["qemu-img", "snapshot", "-l", self.directory / "disk"]
        listed = subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()
        return {line.split()[1] for line in listed[2:]}

    def files(self) -> list[str]:
        return sorted(name for name in os.listdir(self.directory) if name.startswith("point-"))


def fail_to_snapshot(monkeypatch: pytest.MonkeyPatch, guest: Guest, point_id: str) -> None:
    """Begin a point with memory that fails when the memory is saved, and the guest is off."""
    run = qemu_images.run

    def refuse(*command: str) -> bytes:
        if command[:2] == ("qemu-img", "snapshot"):
            raise exceptions.VirtDriverError(reason="the disk is full")
        return run(*command)

    with monkeypatch.context() as patch:
        patch.setattr(qemu_images, "run", refuse)
        with pytest.raises(exceptions.VirtDriverError, match="the disk is full"):
            guest.driver.points.create(guest.uuid, point_id, True)
    assert (guest.power_state(), guest.files()) == (PowerState.SHUTDOWN, [f"point-{point_id}-memory.new"])


def test_guest_returns_to_its_points_with_and_without_memory(
    driver: LibvirtDriver, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest, points = Guest(driver, images), driver.points
    one, two = str(uuid.uuid4()), str(uuid.uuid4())
    first = guest.go_on()
    for _ in range(2):
        points.create(guest.uuid, one, False)
    first_end = guest.go_on()

    fail_to_snapshot(monkeypatch, guest, two)
    points.delete(guest.uuid, two)
    assert (guest.power_state(), guest.files()) == (PowerState.RUNNING, [])
    guest.go_on()
    fail_to_snapshot(monkeypatch, guest, two)
    second = guest.counts()[-1]
    points.create(guest.uuid, two, True)
    assert (guest.power_state(), guest.files()) == (PowerState.RUNNING, [f"point-{two}-memory"])
    guest.go_on()
    assert sorted(set(guest.counts())) == guest.counts(), "the guest has counted on, and was never booted again"

    points.revert(guest.uuid, one, False)
    assert (guest.power_state(), guest.snapshots()) == (PowerState.SHUTDOWN, {one, two})
    assert first <= guest.on_disk() <= first_end
    printed = len(guest.counts())
    points.revert(guest.uuid, two, True)
    assert guest.power_state() == PowerState.RUNNING
    guest.go_on()
    assert second <= guest.counts()[printed] <= second + LATE, "it continues in memory from where it was"
    for _ in range(2):
        points.delete(guest.uuid, one)
    last = guest.go_on()
    driver.power.off(guest.uuid, 0)
    assert (guest.snapshots(), guest.on_disk() >= last) == ({two}, True)
    for _ in range(2):
        points.delete(guest.uuid, two)
    assert (guest.power_state(), guest.snapshots(), guest.files()) == (PowerState.SHUTDOWN, set(), [])
    assert subprocess.run(["qemu-img", "check", "-q", guest.directory / "disk"], check=False).returncode == 0
    driver.guests.destroy(guest.uuid)


@LONG
def test_points_move_with_the_disk_and_their_firmware_variables(make_host: MakeHost, blank: Image) -> None:
    here, there = make_host("here", hosts.HERE), make_host("there", hosts.THERE)
    image = msgspec.structs.replace(blank, properties={"hw_firmware_type": "uefi", "hw_machine_type": "q35"})
    spec = make_spec(instance=make_instance(flavor=make_flavor(memory_mb=128)), image=image, images={image.id: image})
    point, instance_uuid = str(uuid.uuid4()), spec.instance.uuid
    here.guests.spawn(spec)
    here.points.create(instance_uuid, point, False)
    here.power.off(instance_uuid, 0)
    variables = instance_path(here, spec) / "nvram.fd"
    kept = (instance_path(here, spec) / f"point-{point}-nvram.fd").read_bytes()
    variables.write_bytes(bytes(reversed(kept)))

    moved = arriving(spec, root_gb=2)
    there.moves.finish(moved, here.moves.offer_disks(instance_uuid, 0), power_on=False)
    here.guests.destroy(instance_uuid)
    directory = instance_path(there, moved)
    assert (directory / "nvram.fd").read_bytes() == bytes(reversed(kept))
    there.points.revert(instance_uuid, point, False)
    assert (directory / "nvram.fd").read_bytes() == kept
    described = subprocess.run(["qemu-img", "info", directory / "disk"], capture_output=True, check=True, text=True)
    assert "virtual size: 2 GiB" in described.stdout, "the disk keeps the size of the flavor"
    there.power.on(instance_uuid)
    assert there.guests.get(instance_uuid).power_state == PowerState.RUNNING
    there.guests.destroy(instance_uuid)
