"""Images of real guests' disks, inspected by qemu-img and booted."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import libvirt
import pytest

from nova_lite.objects import Image
from nova_lite.operations.states import PowerState
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.driver import snapshots_path
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration.libvirt.conftest import PATIENCE, Images, MakeDriver, boot, forms, guest_lines, guest_spec
from tests.integration.libvirt.guests import console_line, user_data
from tests.support.guests import make_image
from tests.support.waiting import wait_for

#: The test guest's root disk has no file system.
WRITE = "echo first | busybox dd of=/dev/vda bs=512 seek=100 conv=fsync && echo marker is written"
READ = 'echo "marker is $(busybox dd if=/dev/vda bs=512 skip=100 count=1 2>/dev/null | busybox head -n 1)"'


@pytest.fixture
def target(directory: Path, driver: LibvirtDriver) -> Iterator[Path]:
    """Target file of a snapshot. Nothing else may remain in its directory."""
    path = Path(snapshots_path(driver.conf, driver.host))
    path.mkdir(parents=True)
    path.chmod(0o711)
    yield path / "image"
    assert [file.name for file in path.iterdir() if file.name != "image"] == []


def go_on() -> None:
    """Return, so that the snapshot continues."""


def info(path: Path) -> dict[str, Any]:
    answer = subprocess.run(["qemu-img", "info", "--output=json", str(path)], capture_output=True, check=True)
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def image_of(path: Path, images: Images) -> Image:
    """Return the image with the properties that it would have in Nova."""
    assert (info(path)["format"], info(path).get("backing-filename")) == ("qcow2", None)
    assert subprocess.run(["qemu-img", "check", "-q", str(path)], check=False).returncode == 0
    return make_image(path, "qcow2", properties=images.ami.properties)


def mirrors(connection: Any, instance_uuid: str) -> list[ET.Element]:
    xml = ET.fromstring(connection.lookupByUUIDString(instance_uuid).XMLDesc(0))
    return xml.findall("./devices/disk/mirror")


def says_its_marker(driver: LibvirtDriver, images: Images, image: Image) -> str:
    """Boot a new guest from the image, and return the marker that it finds."""
    spec = guest_spec(images, [], image=image, hostname="second", config_drive=True, user_data=user_data(READ))
    boot(driver, spec)
    assert guest_lines(driver, spec.instance.uuid)[0][0] == spec.instance.uuid
    line = console_line(driver, spec.instance.uuid, "marker is")
    driver.guests.destroy(spec.instance.uuid)
    return line.strip()


def writer(driver: LibvirtDriver, images: Images) -> SpawnSpec:
    spec = guest_spec(images, [], hostname="first", config_drive=True, user_data=user_data(WRITE))
    boot(driver, spec)
    console_line(driver, spec.instance.uuid, "marker is written")
    return spec


@forms("qcow2")
def test_snapshot_of_a_running_guest_boots_with_its_data(
    connection: Any, driver: LibvirtDriver, images: Images, target: Path
) -> None:
    spec = writer(driver, images)
    instance_uuid = spec.instance.uuid
    checks = []
    driver.snapshots.take(
        instance_uuid, str(target), lambda: checks.append(driver.guests.get(instance_uuid).power_state)
    )
    assert set(checks) <= {PowerState.RUNNING}
    assert driver.guests.get(instance_uuid).power_state == PowerState.RUNNING
    assert mirrors(connection, instance_uuid) == []
    assert len(guest_lines(driver, instance_uuid)) == 1, "it was booted again"
    assert says_its_marker(driver, images, image_of(target, images)) == "marker is first"
    driver.power.reboot(instance_uuid, "HARD", 0)
    guest_lines(driver, instance_uuid, 2)
    driver.guests.destroy(instance_uuid)


def off(driver: LibvirtDriver, instance_uuid: str) -> None:
    driver.power.off(instance_uuid, 60)


@forms("raw")
@pytest.mark.parametrize(
    ("become", "power_state"),
    [
        (off, PowerState.SHUTDOWN),
        (lambda driver, instance_uuid: driver.standby.pause(instance_uuid), PowerState.PAUSED),
        (lambda driver, instance_uuid: driver.standby.suspend(instance_uuid), PowerState.SHUTDOWN),
    ],
)
def test_snapshot_leaves_the_guest_unchanged(
    connection: Any,
    driver: LibvirtDriver,
    images: Images,
    target: Path,
    become: Callable[[LibvirtDriver, str], None],
    power_state: PowerState,
) -> None:
    spec = writer(driver, images)
    become(driver, spec.instance.uuid)
    driver.snapshots.take(spec.instance.uuid, str(target), go_on)
    assert driver.guests.get(spec.instance.uuid).power_state == power_state
    assert mirrors(connection, spec.instance.uuid) == []
    assert says_its_marker(driver, images, image_of(target, images)) == "marker is first"
    driver.guests.destroy(spec.instance.uuid)


class Enough(Exception):
    """Raised by the check to cancel a snapshot."""


def test_cancelled_snapshot_leaves_nothing(
    connection: Any, driver: LibvirtDriver, images: Images, target: Path
) -> None:
    spec = guest_spec(images, [], hostname="ended")
    boot(driver, spec)
    guest_lines(driver, spec.instance.uuid)
    disk = Path(driver.conf.state_path, "instances", spec.instance.uuid, "disk")

    def end() -> None:
        raise Enough

    with pytest.raises(Enough):
        driver.snapshots._copy(connection.lookupByUUIDString(spec.instance.uuid), str(disk), f"{target}.copy", end)
    Path(f"{target}.copy").unlink()
    assert mirrors(connection, spec.instance.uuid) == []
    assert not target.exists()
    driver.guests.destroy(spec.instance.uuid)


def test_copy_of_a_killed_daemon_ends_at_its_next_start(
    connection: Any, make_driver: MakeDriver, driver: LibvirtDriver, images: Images, target: Path
) -> None:
    spec = guest_spec(images, [], hostname="killed")
    boot(driver, spec)
    guest_lines(driver, spec.instance.uuid)
    domain = connection.lookupByUUIDString(spec.instance.uuid)
    copy = f"{target}.copy"
    xml = f"<disk type='file'><source file='{copy}'/><driver type='qcow2'/></disk>"
    domain.blockCopy("vda", xml, {}, libvirt.VIR_DOMAIN_BLOCK_COPY_TRANSIENT_JOB)
    assert wait_for("mirror", lambda: mirrors(connection, spec.instance.uuid), PATIENCE)
    driver.init_host()
    assert mirrors(connection, spec.instance.uuid) == []
    Path(copy).unlink()
    driver.snapshots.take(spec.instance.uuid, str(target), go_on)
    image_of(target, images)
    driver.guests.destroy(spec.instance.uuid)
