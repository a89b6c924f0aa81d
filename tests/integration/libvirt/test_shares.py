"""Shares of real guests, which mount directories of their host by virtiofs."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.objects import ShareMapping, ShareState
from nova_lite.operations.states import PowerState
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.driver import LibvirtDriver
from nova_lite.virt.libvirt.host import host_traits
from tests.integration import scripts
from tests.integration.libvirt.conftest import PATIENCE, Images, MakeDriver, guest_spec
from tests.support.waiting import wait_for

#: A guest writes a numbered line to its file in the share, and prints the other guest's.
SHARES = """
insmod /lib/fuse.ko
insmod /lib/virtiofs.ko
mkdir -p /share
while ! mount -t virtiofs data /share; do echo "no share"; sleep 1; done
echo "mounted: $(grep -c ' /share virtiofs ' /proc/mounts)"
n=0
while :; do
    n=$((n + 1))
    echo "$n" >/share/NAME && echo "wrote: $n"
    echo "reads: $(cat /share/OTHER 2>/dev/null)"
    usleep 200000
done
"""


@pytest.fixture
def share(directory: Path) -> ShareMapping:
    token = str(uuid.uuid4())
    location = f"directory/{token}"
    (directory / "shares" / location).mkdir(parents=True)
    return ShareMapping(uuid=token, share_id=token, tag="data", location=location, state=ShareState.ATTACHED)


@pytest.fixture
def driver(make_driver: MakeDriver, directory: Path) -> Iterator[LibvirtDriver]:
    yield make_driver("shares", libvirt__shares_path=str(directory / "shares"))


def sharing(images: Images, name: str, *shares: ShareMapping) -> SpawnSpec:
    other = {"one": "two", "two": "one"}[name]
    script = SHARES.replace("NAME", name).replace("OTHER", other)
    spec = guest_spec(images, [], config_drive=True, user_data=scripts.user_data(script), memory_mb=128)
    return msgspec.structs.replace(spec, instance=msgspec.structs.replace(spec.instance, shares=[*shares]))


def numbers_read(driver: LibvirtDriver, spec: SpawnSpec) -> list[int]:
    """Return the numbers of the other guest that the guest has read, as they came."""
    console = driver.consoles.output(spec.instance.uuid, None)
    return [int(number) for number in re.findall(r"^reads: (\d+)\r?$", console, re.MULTILINE)]


def wait_for_news(driver: LibvirtDriver, spec: SpawnSpec) -> None:
    """Wait until the guest has read a newer number of the other one."""
    before = max(numbers_read(driver, spec), default=0)
    wait_for("a new number", lambda: max(numbers_read(driver, spec), default=0) > before, PATIENCE)


def test_two_guests_write_and_read_one_share(
    driver: LibvirtDriver, images: Images, share: ShareMapping, directory: Path
) -> None:
    """The first has the share from its start on. The other gets it while it is off, and loses it again."""
    one, two = sharing(images, "one", share), sharing(images, "two")
    driver.guests.spawn(one)
    driver.guests.spawn(two)
    driver.power.off(two.instance.uuid, 0)
    driver.shares.attach(two.instance.uuid, share)
    driver.power.on(two.instance.uuid)
    for _ in range(2):
        wait_for_news(driver, one)
        wait_for_news(driver, two)
    files = directory / "shares" / share.location
    assert {file.name for file in files.iterdir()} == {"one", "two"}

    driver.power.off(two.instance.uuid, 0)
    (files / "two").write_text("1000000\n")
    wait_for("what the host has written", lambda: 1000000 in numbers_read(driver, one), PATIENCE)
    driver.shares.detach(two.instance.uuid, share)
    domain, _ = driver._domains.get(two.instance.uuid)
    assert "filesystem" not in domain.XMLDesc() and "memoryBacking" not in domain.XMLDesc()
    for spec in (one, two):
        driver.guests.destroy(spec.instance.uuid)
    assert {file.name for file in files.iterdir()} == {"one", "two"}, "the files outlive the guests"


def test_guest_does_not_start_without_its_share(
    driver: LibvirtDriver, images: Images, share: ShareMapping, directory: Path
) -> None:
    spec = sharing(images, "one", share)
    driver.guests.spawn(spec)
    driver.power.off(spec.instance.uuid, 0)
    (directory / "shares" / share.location).rename(directory / "shares" / share.uuid)
    with pytest.raises(exceptions.VirtDriverError, match=rf"has no directory .*/{share.location}"):
        driver.power.on(spec.instance.uuid)
    assert driver.guests.get(spec.instance.uuid).power_state == PowerState.SHUTDOWN
    driver.guests.destroy(spec.instance.uuid)


def test_machine_has_the_daemon_that_libvirt_finds() -> None:
    described = [json.loads(path.read_text()) for path in Path("/").glob(host_traits.VIRTIOFSD.lstrip("/"))]
    assert [item["type"] for item in described] == ["fs"]
    assert Path(described[0]["binary"]).exists()
