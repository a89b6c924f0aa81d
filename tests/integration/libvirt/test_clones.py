"""Clones of real guests: source and clone continue with their own disks, and layers stay while a disk lies on them.

The guests count, and write each number to their disk. A guest that boots continues from the number on its disk.
"""

from __future__ import annotations

import os
import re
import subprocess
import uuid
from pathlib import Path

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.objects import Image
from nova_lite.operations.states import PowerState
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.domain import clones
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration import scripts
from tests.integration.libvirt import hosts
from tests.integration.libvirt.conftest import LONG, PATIENCE, Images, MakeHost, boot, guest_spec
from tests.integration.libvirt.moves import arriving, evacuated, migrate, state
from tests.support.guests import make_flavor, make_instance, make_spec
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

    def boot(self) -> None:
        boot(self.driver, self.spec)

    def count(self) -> int:
        found = scripts.counts(self.driver.consoles.output(self.uuid, None))
        return found[-1][0] if found else 0

    def begins(self) -> list[int]:
        """Return the numbers from which the guest continued after its boots."""
        text = self.driver.consoles.output(self.uuid, None)
        return [int(number) for number in re.findall(r"^begins at (\d+)\r?$", text, re.MULTILINE)]

    def go_on(self) -> int:
        """Wait until the guest has counted on, and return its number."""
        before = self.count()
        wait_for("the guest counts", lambda: self.count() > before + LATE, PATIENCE)
        return self.count()

    def destroy(self) -> None:
        self.driver.guests.destroy(self.uuid)


def chain(driver: LibvirtDriver, instance_uuid: str) -> list[str]:
    """Return the names of the files of the root disk, as libvirt will open them at the next start."""
    xml = driver._domains.description(driver._domains.get(instance_uuid)[0])
    return re.findall(r"source file='[^']*/([^/']+)'", xml.partition("</disk>")[0])


def layers(driver: LibvirtDriver) -> list[str]:
    return sorted(name for name in os.listdir(driver._records.base_path) if name.startswith("layer-"))


def test_source_and_clone_continue_and_the_clone_outlives_its_source(
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
    assert chain(driver, source.uuid) == [
        "disk",
        f"layer-{clone.uuid}",
        str(source.spec.image and source.spec.image.id),
    ]
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


# --- guests without a system, whose disks are written and read here


def blank_spec(blank: Image, of: SpawnSpec | None = None) -> SpawnSpec:
    instance = make_instance(flavor=make_flavor(memory_mb=64))
    clone_of = None if of is None else of.instance.uuid
    return make_spec(instance=instance, image=blank, images={blank.id: blank}, clone_of=clone_of)


def disk_of(driver: LibvirtDriver, spec: SpawnSpec, name: str = "disk") -> str:
    return os.path.join(driver._records.directory(spec.instance.uuid), name)


def write(path: str, place: str, pattern: int = 0x61) -> None:
    subprocess.run(["qemu-io", "-f", "qcow2", "-c", f"write -P {pattern} {place} 64k", path], check=True)


def has(path: str, place: str, pattern: int = 0x61) -> bool:
    """Check whether a disk, which a guest may have open, has what `write` wrote."""
    command = ["qemu-io", "-U", "-r", "-f", "qcow2", "-c", f"read -P {pattern} {place} 64k", path]
    output = subprocess.run(command, capture_output=True, check=False, text=True).stdout
    return "read 65536/65536" in output and "verification failed" not in output


def freeze(driver: LibvirtDriver, spec: SpawnSpec, blank: Image) -> SpawnSpec:
    """Freeze the disk for a clone, and return that."""
    clone = blank_spec(blank, spec)
    driver.clones.freeze(spec.instance.uuid, clone.instance.uuid)
    return clone


def layer_of(driver: LibvirtDriver, clone: SpawnSpec) -> str:
    return os.path.join(driver._records.base_path, f"layer-{clone.instance.uuid}")


def off_and_written(driver: LibvirtDriver, blank: Image) -> SpawnSpec:
    """Make a guest that is off, and has data on its disk."""
    spec = blank_spec(blank)
    driver.guests.spawn(spec)
    driver.power.off(spec.instance.uuid, 0)
    write(disk_of(driver, spec), "1M")
    return spec


@LONG
def test_server_that_is_off_is_cloned_and_unwritten_disks_share_their_layer(
    driver: LibvirtDriver, blank: Image, directory: Path
) -> None:
    source = off_and_written(driver, blank)
    one, two = freeze(driver, source, blank), freeze(driver, source, blank)
    assert os.path.samefile(layer_of(driver, one), layer_of(driver, two))
    assert len(chain(driver, source.instance.uuid)) == 3
    write(disk_of(driver, source), "2M")
    three = freeze(driver, source, blank)
    assert len(chain(driver, source.instance.uuid)) == 4
    write(disk_of(driver, source), "3M")
    for clone, places in ((one, [True, False, False]), (three, [True, True, False])):
        driver.guests.spawn(clone)
        assert [has(disk_of(driver, clone), place) for place in ("1M", "2M", "3M")] == places
    driver.power.on(source.instance.uuid)
    four = freeze(driver, source, blank)
    assert (state(driver, source), len(chain(driver, source.instance.uuid))) == (PowerState.RUNNING, 5)
    image = str(directory / "image-of-layers")
    driver.snapshots.take(source.instance.uuid, image, lambda: None)
    assert [has(image, place) for place in ("1M", "2M", "3M")] == [True] * 3, "an image has all layers"
    driver.guests.spawn(four)
    assert [has(disk_of(driver, four), place) for place in ("1M", "2M", "3M")] == [True] * 3
    for spec in (source, one, three, four):
        driver.guests.destroy(spec.instance.uuid)


class Killed(Exception):
    """End of a daemon in the middle of its work."""


def killed(*_: object) -> None:
    raise Killed


@pytest.mark.parametrize("off", [False, True])
def test_freeze_that_was_interrupted_is_settled_and_loses_nothing(
    driver: LibvirtDriver, blank: Image, monkeypatch: pytest.MonkeyPatch, off: bool
) -> None:
    """The daemon is killed when the guest has the new disk under its first name."""
    source, clone = blank_spec(blank), blank_spec(blank)
    driver.guests.spawn(source)
    names = (source.instance.uuid, clone.instance.uuid)
    with monkeypatch.context() as patch:
        patch.setattr(clones.GuestClones, "_mirror", killed)
        with pytest.raises(Killed):
            driver.clones.freeze(*names)
    assert chain(driver, source.instance.uuid)[0] == "disk.new"
    if off:
        driver.power.off(source.instance.uuid, 0)
        write(disk_of(driver, source, "disk.new"), "1M")
    driver.clones.settle(*names)
    assert not os.path.exists(disk_of(driver, source, "disk.new"))
    assert chain(driver, source.instance.uuid) == ["disk", f"layer-{clone.instance.uuid}", str(blank.id)]
    assert has(disk_of(driver, source), "1M") == off
    driver.clones.freeze(*names)
    assert len(chain(driver, source.instance.uuid)) == 3, "it was frozen already"
    driver.power.on(source.instance.uuid)
    assert state(driver, source) == PowerState.RUNNING
    driver.guests.destroy(source.instance.uuid)


def test_freeze_that_fails_leaves_no_layer(
    driver: LibvirtDriver, blank: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, clone = blank_spec(blank), blank_spec(blank)
    driver.guests.spawn(source)
    before = chain(driver, source.instance.uuid)
    for off in (False, True):
        if off:
            driver.power.off(source.instance.uuid, 0)
        with monkeypatch.context() as patch:
            patch.setattr(driver.snapshots, "quiesced", killed)
            patch.setattr(clones.GuestClones, "_define", killed)
            with pytest.raises(Killed):
                driver.clones.freeze(source.instance.uuid, clone.instance.uuid)
        driver.clones.settle(source.instance.uuid, clone.instance.uuid)
        assert (chain(driver, source.instance.uuid), os.path.exists(layer_of(driver, clone))) == (before, False)
        assert not os.path.exists(disk_of(driver, source, "disk.new"))
    driver.guests.destroy(source.instance.uuid)


@LONG
def test_disk_lies_on_a_limited_number_of_layers(driver: LibvirtDriver, blank: Image) -> None:
    source = off_and_written(driver, blank)
    for number in range(16):
        freeze(driver, source, blank)
        write(disk_of(driver, source), "1M", number + 1)
    with pytest.raises(exceptions.VirtDriverError, match="16 layers"):
        freeze(driver, source, blank)
    driver.power.on(source.instance.uuid)
    driver.guests.destroy(source.instance.uuid)


@LONG
def test_clone_moves_with_its_layers_and_points(make_host: MakeHost, blank: Image) -> None:
    here, there = make_host("here", hosts.HERE), make_host("there", hosts.THERE)
    source = off_and_written(here, blank)
    clone = freeze(here, source, blank)
    here.guests.spawn(clone)
    here.power.off(clone.instance.uuid, 0)
    write(disk_of(here, clone), "2M")
    point = str(uuid.uuid4())
    here.points.create(clone.instance.uuid, point, False)
    write(disk_of(here, clone), "2M", 0x62)

    moved = msgspec.structs.replace(arriving(clone), clone_of=None)
    there.moves.finish(moved, here.moves.offer_disks(clone.instance.uuid, 0), power_on=False)
    here.guests.destroy(clone.instance.uuid)
    here.guests.destroy(source.instance.uuid)
    assert chain(there, clone.instance.uuid) == ["disk", f"layer-{clone.instance.uuid}", str(blank.id)]
    assert (has(disk_of(there, moved), "1M"), has(disk_of(there, moved), "2M", 0x62)) == (True, True)
    there.points.revert(clone.instance.uuid, point, False)
    assert (has(disk_of(there, moved), "1M"), has(disk_of(there, moved), "2M")) == (True, True)
    there.power.on(clone.instance.uuid)
    assert state(there, moved) == PowerState.RUNNING
    there.guests.destroy(clone.instance.uuid)


@LONG
def test_running_guest_with_layers_moves_with_its_whole_disk(make_host: MakeHost, blank: Image) -> None:
    here = make_host("here", hosts.HERE, live_migration_uri=hosts.URI)
    there = make_host("there", hosts.THERE)
    source = off_and_written(here, blank)
    here.power.on(source.instance.uuid)
    freeze(here, source, blank)
    moved = arriving(source)
    migrate(here, there, moved)
    there.live_moves.finish(source.instance.uuid)
    here.guests.destroy(source.instance.uuid)
    assert chain(there, source.instance.uuid) == ["disk"]
    there.power.off(source.instance.uuid, 0)
    assert has(disk_of(there, moved), "1M")
    there.guests.destroy(source.instance.uuid)


@LONG
def test_clone_of_a_lost_host_runs_with_its_layers_at_a_host_that_shares_them(
    make_host: MakeHost, blank: Image
) -> None:
    here, there = make_host("here", hosts.HERE, path="shared"), make_host("there", hosts.THERE, path="shared")
    source = off_and_written(here, blank)
    clone = freeze(here, source, blank)
    here.guests.spawn(clone)
    here.power.off(clone.instance.uuid, 0)
    there.shared_disks.view()
    moved = msgspec.structs.replace(evacuated(clone, here), clone_of=None)
    there.guests.spawn(moved)
    assert (len(chain(there, clone.instance.uuid)), state(there, moved)) == (3, PowerState.RUNNING)
    assert has(disk_of(there, moved), "1M")
    there.guests.destroy(clone.instance.uuid)
