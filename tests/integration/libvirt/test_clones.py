"""Clones of real guests: source and clone go on with their own disks, and layers stay as long as a disk lies on them.

The guests count, and write each number to their disk. A guest that boots goes on from the number on its disk.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.operations.states import PowerState
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.domain import clones
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration import scripts
from tests.integration.libvirt.conftest import PATIENCE, Images, boot, guest_spec
from tests.support.waiting import wait_for

SCRIPT = """
n=$(dd if=/dev/vda bs=512 skip=20000 count=1 2>/dev/null | tr -d '\\000\\n')
echo "begins at ${n:-0}"
n=${n:-0}
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
    def __init__(self, driver: LibvirtDriver, images: Images, of: Guest | None = None) -> None:
        self.driver = driver
        spec = guest_spec(images, [], config_drive=True, user_data=scripts.user_data(SCRIPT), memory_mb=96)
        self.spec = spec if of is None else msgspec.structs.replace(spec, clone_of=of.uuid)
        self.uuid = spec.instance.uuid

    @property
    def directory(self) -> Path:
        return Path(self.driver._records.directory(self.uuid))

    def boot(self) -> None:
        boot(self.driver, self.spec)

    def count(self) -> int:
        found = scripts.counts(self.driver.consoles.output(self.uuid, None))
        return found[-1][0] if found else 0

    def begins(self) -> list[int]:
        """Return the numbers from which the guest went on after its boots."""
        text = self.driver.consoles.output(self.uuid, None)
        return [int(number) for number in re.findall(r"^begins at (\d+)\r?$", text, re.MULTILINE)]

    def go_on(self) -> int:
        """Wait until the guest has counted on, and return its number."""
        before = self.count()
        wait_for("the guest counts", lambda: self.count() > before + LATE, PATIENCE)
        return self.count()

    def chain(self) -> list[str]:
        """Return the names of the files of its disk, as libvirt will open them at its next start."""
        xml = self.driver._domains.description(self.driver._domains.get(self.uuid)[0])
        return re.findall(r"source file='[^']*/([^/']+)'", xml.partition("</disk>")[0])

    def destroy(self) -> None:
        self.driver.guests.destroy(self.uuid)


def layers(driver: LibvirtDriver) -> list[str]:
    return sorted(name for name in os.listdir(driver._records.base_path) if name.startswith("layer-"))


def test_source_and_clone_go_on_and_the_clone_outlives_its_source(
    driver: LibvirtDriver, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Guest(driver, images)
    source.boot()
    first = source.go_on()
    clone = Guest(driver, images, of=source)
    for _ in range(2):
        driver.clones.freeze(source.uuid, clone.uuid)
    frozen = source.count()
    assert layers(driver) == [f"layer-{clone.uuid}"]
    assert source.chain() == ["disk", f"layer-{clone.uuid}", str(source.spec.image and source.spec.image.id)]
    clone.boot()
    last = source.go_on()
    clone.go_on()
    assert first <= clone.begins()[0] <= frozen + LATE, "the clone has the disk of the moment when it was frozen"
    assert clone.begins()[0] < last and source.begins() == [0], "the source has gone on"
    source.destroy()
    monkeypatch.setattr(clones, "MINIMUM_AGE", 0.0)
    assert (driver.clones.remove_unused(), layers(driver)) == ([], [f"layer-{clone.uuid}"])
    before = clone.go_on()
    driver.power.reboot(clone.uuid, "HARD", 0)
    wait_for("the clone has booted again", lambda: len(clone.begins()) == 2, PATIENCE)
    assert clone.begins()[1] >= before
    clone.destroy()
    assert (driver.clones.remove_unused(), layers(driver)) == ([f"layer-{clone.uuid}"], [])
