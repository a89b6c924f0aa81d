"""Guests from boot to removal."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import libvirt
import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.image.sources import vma
from nova_lite.image.sources.qcow2_file import Qcow2File
from nova_lite.objects import Image
from nova_lite.operations.states import PowerState
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration.libvirt.conftest import (
    PATIENCE,
    Images,
    MakeDriver,
    assert_nothing_left,
    boot,
    forms,
    guest_lines,
    guest_spec,
    traces,
    whole_lines,
)
from tests.integration.libvirt.guests import NewVif, console_line, user_data
from tests.support import exports, vma_writer
from tests.support.guests import make_image, make_network, make_vif
from tests.support.host_networks import remove_network
from tests.support.waiting import polls, wait_for


def test_guest_boots_stops_starts_and_leaves_nothing(
    connection: Any, driver: LibvirtDriver, images: Images, new_vif: NewVif
) -> None:
    vif = new_vif()
    spec = guest_spec(images, [vif], hostname="life", config_drive=True, user_data=user_data("echo user data ran"))
    instance_uuid = spec.instance.uuid
    me = (instance_uuid, "life", vif.address)

    boot(driver, spec)
    assert guest_lines(driver, instance_uuid) == [me]
    console_line(driver, instance_uuid, "user data ran")
    assert [info.uuid for info in driver.guests.all()] == [instance_uuid]
    assert driver.machine.inventory().running_vms == 1
    assert driver.consoles.output(instance_uuid, 1).count("\n") <= 1
    found = driver.diagnostics.read(instance_uuid)
    assert (len(found.cpus), found.memory_maximum, found.config_drive) == (1, 128, True)
    assert found.cpus[0].time
    assert [nic.mac_address for nic in found.nics] == [vif.mac_address]
    assert found.nics[0].tx_packets
    assert found.disks[0].read_bytes
    (counters,) = driver.statistics.guests()
    assert (counters.uuid, counters.project_id) == (instance_uuid, spec.instance.project_id)
    assert counters.cpu_seconds and counters.disk_read_bytes and counters.network_sent_bytes
    assert counters.memory_bytes and counters.memory_limit_bytes == 128 << 20

    driver.guests.spawn(spec)
    assert driver.guests.get(instance_uuid).power_state == PowerState.RUNNING

    started = time.monotonic()
    driver.power.off(instance_uuid, 60)
    assert time.monotonic() - started < 30, "the guest did not receive the power button"
    assert driver.guests.get(instance_uuid).power_state == PowerState.SHUTDOWN
    assert driver.statistics.guests() == []
    driver.power.off(instance_uuid, 60)

    driver.power.on(instance_uuid)
    assert guest_lines(driver, instance_uuid, 2)[-1] == me
    driver.power.on(instance_uuid)

    driver.power.reboot(instance_uuid, "SOFT", 60)
    assert guest_lines(driver, instance_uuid, 3)[-1] == me
    driver.power.reboot(instance_uuid, "HARD", 60)
    assert guest_lines(driver, instance_uuid, 4)[-1] == me

    driver.guests.destroy(instance_uuid)
    driver.networks.unplug(instance_uuid)
    assert_nothing_left(connection, driver, spec)
    driver.guests.destroy(instance_uuid)
    driver.networks.unplug(instance_uuid)


def test_paused_guest_stands_still(connection: Any, driver: LibvirtDriver, images: Images, new_vif: NewVif) -> None:
    spec = guest_spec(images, [], hostname="paused", memory_mb=96)
    instance_uuid = spec.instance.uuid
    boot(driver, spec)
    guest_lines(driver, instance_uuid)

    def cpu_time() -> int:
        return int(connection.lookupByUUIDString(instance_uuid).info()[4])

    for _ in range(2):
        driver.standby.pause(instance_uuid)
        assert driver.guests.get(instance_uuid).power_state == PowerState.PAUSED
    stood = cpu_time()
    for _ in polls(1.0):
        assert cpu_time() == stood, "its CPU ran on"
    for _ in range(2):
        driver.standby.unpause(instance_uuid)
        assert driver.guests.get(instance_uuid).power_state == PowerState.RUNNING
    driver.standby.pause(instance_uuid)
    driver.power.reboot(instance_uuid, "HARD", 60)
    guest_lines(driver, instance_uuid, 2)
    driver.guests.destroy(instance_uuid)


def test_suspended_guest_continues_where_it_was(
    connection: Any, driver: LibvirtDriver, images: Images, new_vif: NewVif
) -> None:
    vif = new_vif()
    spec = guest_spec(images, [vif], hostname="suspended", memory_mb=96)
    instance_uuid = spec.instance.uuid
    boot(driver, spec)
    guest_lines(driver, instance_uuid)
    for _ in range(2):
        driver.standby.suspend(instance_uuid)
        assert driver.guests.get(instance_uuid).power_state == PowerState.SHUTDOWN
    for _ in range(2):
        driver.standby.resume(instance_uuid)
        assert driver.guests.get(instance_uuid).power_state == PowerState.RUNNING
    assert len(guest_lines(driver, instance_uuid)) == 1, "it was not booted again"
    driver.power.off(instance_uuid, 60)
    assert driver.guests.get(instance_uuid).power_state == PowerState.SHUTDOWN, "it received the power button"
    driver.power.on(instance_uuid)
    guest_lines(driver, instance_uuid, 2)

    driver.standby.suspend(instance_uuid)
    driver.power.reboot(instance_uuid, "HARD", 60)
    guest_lines(driver, instance_uuid, 3)
    driver.standby.suspend(instance_uuid)
    driver.guests.destroy(instance_uuid)
    driver.networks.unplug(instance_uuid)
    assert_nothing_left(connection, driver, spec)


def test_bootable_disk_without_config_drive_boots(make_driver: MakeDriver, images: Images, new_vif: NewVif) -> None:
    driver, vif = make_driver("one", force_config_drive=False), new_vif()
    spec = guest_spec(images, [vif], image=images.disk, hostname="from-dhcp", memory_mb=96)
    boot(driver, spec)
    assert guest_lines(driver, spec.instance.uuid) == [(spec.instance.uuid, "from-dhcp", vif.address)]


def test_archive_of_vmware_boots(
    connection: Any, driver: LibvirtDriver, images: Images, guest: Path, directory: Path
) -> None:
    """The bootable disk is streamOptimized, in an OVA archive. The guest has the old machine's SATA disk."""
    raw = directory / "exported.img"
    command = ["qemu-img", "convert", "-f", "qcow2", "-O", "raw", str(guest / "disk.qcow2"), str(raw)]
    subprocess.run(command, check=True)
    disk, text = exports.stream_optimized(raw.read_bytes()), exports.ovf(["vm-disk1.vmdk"])
    files = {"vm.ovf": text, "vm-disk1.vmdk": disk}
    archive = directory / "vm.ova"
    archive.write_bytes(exports.ova({"vm.ovf": text, "vm.mf": exports.manifest(files), **files}))
    image = make_image(archive, "vmdk", container_format="ova", properties={"hw_disk_bus": "sata"})
    spec = guest_spec(images, [], image=image, memory_mb=96)
    boot(driver, spec)
    assert guest_lines(driver, spec.instance.uuid) == [(spec.instance.uuid, "nova-lite-guest", "none")]
    driver.guests.destroy(spec.instance.uuid)
    assert_nothing_left(connection, driver, spec)


def test_guest_boots_from_a_backup_of_proxmox(
    connection: Any, driver: LibvirtDriver, images: Images, guest: Path, directory: Path
) -> None:
    raw, disk = directory / "proxmox.img", directory / "proxmox.qcow2"
    command = ["qemu-img", "convert", "-f", "qcow2", "-O", "raw", str(guest / "disk.qcow2"), str(raw)]
    subprocess.run(command, check=True)
    content = vma_writer.archive({}, {"drive-scsi0": raw.read_bytes(), "drive-scsi1": bytes(512)})
    archive = vma.Archive(io.BytesIO(content), "backup")
    with disk.open("w+b") as file:
        target = Qcow2File(file.fileno(), archive.devices[1].size, lambda size: None)
        archive.extract({1: target}, lambda count: None)
        target.finish()
    spec = guest_spec(images, [], image=make_image(disk, "qcow2"), memory_mb=96)
    boot(driver, spec)
    assert guest_lines(driver, spec.instance.uuid) == [(spec.instance.uuid, "web-one", "none")]
    driver.guests.destroy(spec.instance.uuid)
    assert_nothing_left(connection, driver, spec)


def test_guest_without_network_boots(connection: Any, driver: LibvirtDriver, images: Images) -> None:
    spec = guest_spec(images, [], hostname="lonely", config_drive=True)
    boot(driver, spec)
    assert guest_lines(driver, spec.instance.uuid) == [(spec.instance.uuid, "lonely", "none")]
    driver.guests.destroy(spec.instance.uuid)
    assert_nothing_left(connection, driver, spec)


def test_guest_cannot_take_the_address_of_another(driver: LibvirtDriver, images: Images, new_vif: NewVif) -> None:
    vif, other = new_vif(), new_vif()
    gateway = vif.network.gateway
    script = f"""
ping -c 1 -W 5 {gateway} >/dev/null && echo own address: passed || echo own address: stopped
ip addr add {other.address}/24 dev eth0
ping -c 1 -W 2 -I {other.address} {gateway} >/dev/null && echo other address: passed || echo other address: stopped
"""
    spec = guest_spec(images, [vif], config_drive=True, user_data=user_data(script))
    boot(driver, spec)
    assert console_line(driver, spec.instance.uuid, "own address").strip() == "own address: passed"
    assert console_line(driver, spec.instance.uuid, "other address").strip() == "other address: stopped"


def test_address_is_assigned_to_its_next_owner(
    connection: Any, driver: LibvirtDriver, images: Images, new_vif: NewVif
) -> None:
    first = new_vif()
    second = make_vif(network=first.network, address=first.address, mac_address="fa:16:3e:99:76:01")
    for vif in (first, second):
        spec = guest_spec(images, [vif], hostname="next")
        boot(driver, spec)
        assert guest_lines(driver, spec.instance.uuid)[0][2] == first.address
        driver.guests.destroy(spec.instance.uuid)
        driver.networks.unplug(spec.instance.uuid)
        assert_nothing_left(connection, driver, spec)


def test_guest_that_ignores_a_shutdown_is_cut_off_after_the_timeout(
    driver: LibvirtDriver, images: Images, blank: Image
) -> None:
    spec = guest_spec(images, [], image=blank)
    boot(driver, spec)
    started = time.monotonic()
    driver.power.off(spec.instance.uuid, 2)
    assert 2 <= time.monotonic() - started < 12
    assert driver.guests.get(spec.instance.uuid).power_state == PowerState.SHUTDOWN


def test_power_changes_are_reported(make_driver: MakeDriver, images: Images, blank: Image) -> None:
    driver, other = make_driver("one"), make_driver("two")
    reported, elsewhere = threading.Event(), threading.Event()
    spec = guest_spec(images, [], image=blank)
    boot(driver, spec)
    driver.wait_for_events(lambda instance_uuid, _: reported.set() if instance_uuid == spec.instance.uuid else None)
    other.wait_for_events(lambda instance_uuid, _: elsewhere.set() if instance_uuid == spec.instance.uuid else None)
    driver.power.off(spec.instance.uuid, 0)
    assert reported.wait(10)
    assert not elsewhere.is_set()


def test_missing_domain_is_an_error(driver: LibvirtDriver, images: Images) -> None:
    instance_uuid = guest_spec(images, []).instance.uuid
    for ask in (
        lambda: driver.guests.get(instance_uuid),
        lambda: driver.power.on(instance_uuid),
        lambda: driver.power.off(instance_uuid, 0),
        lambda: driver.power.reboot(instance_uuid, "HARD", 0),
        lambda: driver.consoles.output(instance_uuid, None),
    ):
        with pytest.raises(exceptions.DomainNotFound):
            ask()


def test_rebuilt_guest_starts_afresh_with_its_address(
    connection: Any, driver: LibvirtDriver, images: Images, new_vif: NewVif
) -> None:
    """The host removes the older generation, then it creates the new one."""
    vif = new_vif()
    spec = guest_spec(images, [vif], hostname="rebuilt", config_drive=True, user_data=user_data("echo first life"))
    instance_uuid = spec.instance.uuid
    boot(driver, spec)
    console_line(driver, instance_uuid, "first life")
    disk = Path(driver._records.directory(instance_uuid), "disk")
    with disk.open("rb") as first:  # no other file gets its inode number while it is open
        driver.guests.destroy(instance_uuid)
        driver.networks.unplug(instance_uuid)
        spec.generation, spec.instance.user_data, spec.image = 2, user_data("echo second life"), images.disk
        boot(driver, spec)
        assert disk.stat().st_ino != os.fstat(first.fileno()).st_ino
    assert guest_lines(driver, instance_uuid) == [(instance_uuid, "rebuilt", vif.address)]
    console_line(driver, instance_uuid, "second life")
    assert "first life" not in driver.consoles.output(instance_uuid, None)
    assert [info.generation for info in driver.guests.all()] == [2]
    assert "<kernel>" not in connection.lookupByUUIDString(instance_uuid).XMLDesc(), "it boots from the other image"
    driver.guests.destroy(instance_uuid)
    driver.networks.unplug(instance_uuid)
    assert_nothing_left(connection, driver, spec)


MARKS = """
mark() { [ "$(dd if=/dev/$1 bs=512 skip=2000 count=1 2>/dev/null | head -c 6)" = marked ] && echo marked; }
[ "$(mark vda)$(mark vdb)" = marked ] || printf marked | dd of=/dev/vda bs=512 seek=2000 conv=notrunc 2>/dev/null
sync
echo "disks: vda=$(mark vda) vdb=$(mark vdb)"
"""


def disk_lines(driver: LibvirtDriver, instance_uuid: str, count: int) -> list[str]:
    """Return what the guest printed about its disks, as soon as it has printed it ``count`` times."""

    def printed_lines() -> list[str]:
        lines = whole_lines(driver, instance_uuid).splitlines()
        found = [line.strip() for line in lines if line.startswith("disks: ")]
        return found if len(found) >= count else []

    lines: list[str] = wait_for(f"line {count} about disks", printed_lines, PATIENCE)
    return lines


@forms("raw")
def test_rescued_guest_sees_its_own_disk_and_returns_to_it(
    connection: Any, driver: LibvirtDriver, images: Images, new_vif: NewVif
) -> None:
    """The guest marks the disk that it boots from first, and prints where the mark is."""
    vif = new_vif()
    spec = guest_spec(images, [vif], hostname="rescued", config_drive=True, user_data=user_data(MARKS))
    instance_uuid = spec.instance.uuid
    boot(driver, spec)
    assert disk_lines(driver, instance_uuid, 1) == ["disks: vda=marked vdb="]
    directory = Path(driver._records.directory(instance_uuid))
    domain = connection.lookupByUUIDString(instance_uuid)

    def defined() -> str:
        return str(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))

    before, files_before = defined(), {path.name for path in directory.iterdir()}

    for image in (images.ami, images.disk):
        rescue_spec = guest_spec(images, [vif], image=image)
        rescue_spec.instance, rescue_spec.admin_password = spec.instance, "s3cret"
        count = len(disk_lines(driver, instance_uuid, 1))
        driver.rescue.start(rescue_spec, 60)
        assert driver.guests.get(instance_uuid).power_state == PowerState.RUNNING
        assert driver.guests.get(instance_uuid).generation == spec.generation
        assert disk_lines(driver, instance_uuid, count + 1)[-1] == "disks: vda= vdb=marked"
        assert b"s3cret" in (directory / "disk.config.rescue").read_bytes()
        targets = [(disk.get("dev")) for disk in ET.fromstring(domain.XMLDesc()).iterfind("devices/disk/target")]
        assert targets == ["vda", "vdb", "vdc"]

        driver.rescue.end(instance_uuid)
        assert defined() == before, "the original domain, unchanged"
        assert {path.name for path in directory.iterdir()} == files_before
        assert disk_lines(driver, instance_uuid, count + 2)[-1] == "disks: vda=marked vdb="
    assert set(guest_lines(driver, instance_uuid, 5)) == {(instance_uuid, "rescued", vif.address)}
    driver.guests.destroy(instance_uuid)
    driver.networks.unplug(instance_uuid)
    assert_nothing_left(connection, driver, spec)


def test_vanished_domain_is_recreated_from_its_disks(
    connection: Any, driver: LibvirtDriver, images: Images, new_vif: NewVif
) -> None:
    """The domain and its disk are unchanged, also if the domain vanished during a rescue."""
    vif = new_vif()
    spec = guest_spec(images, [vif], hostname="vanished", config_drive=True, user_data=user_data(MARKS))
    instance_uuid = spec.instance.uuid
    boot(driver, spec)
    assert disk_lines(driver, instance_uuid, 1) == ["disks: vda=marked vdb="]

    def domain() -> Any:
        return connection.lookupByUUIDString(instance_uuid)

    def defined() -> str:
        xml = str(domain().XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
        return re.sub("<novalite:created>.*</novalite:created>", "", xml)

    before = defined()
    fenced: list[bool] = []
    again = msgspec.structs.replace(
        spec, admin_password=None, fence=lambda: fenced.append(driver._domains.has(instance_uuid))
    )
    driver._rescue_boot.define(msgspec.structs.replace(spec))
    domain().destroy()
    domain().undefine()
    with pytest.raises(exceptions.DomainNotFound):
        driver.definitions.recreate(msgspec.structs.replace(again, generation=spec.generation + 1))
    driver.definitions.recreate(again)
    assert (defined(), fenced) == (before, [False])
    driver.power.reboot(instance_uuid, "HARD", 0)
    assert disk_lines(driver, instance_uuid, 2)[-1] == "disks: vda=marked vdb="
    assert not driver._rescue_boot.is_rescued(instance_uuid)
    driver.guests.destroy(instance_uuid)
    driver.networks.unplug(instance_uuid)
    assert_nothing_left(connection, driver, spec)
    with pytest.raises(exceptions.DomainNotFound):
        driver.definitions.recreate(again)


def test_failed_rescue_leaves_the_domain_unchanged(
    connection: Any, driver: LibvirtDriver, images: Images, blank: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = guest_spec(images, [], image=blank)
    instance_uuid = spec.instance.uuid
    boot(driver, spec)
    domain = connection.lookupByUUIDString(instance_uuid)
    before = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    gone = Image(id="6d9f3b7e-0000-4000-8000-000000000000", name="/nonexistent/image", disk_format="raw")
    bad = guest_spec(images, [], image=gone)
    bad.instance = spec.instance
    with pytest.raises(exceptions.ImageFileMissing):
        driver.rescue.start(bad, 0)
    assert domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE) == before
    assert not driver._rescue_boot.is_rescued(instance_uuid)

    spec.image = blank
    monkeypatch.setattr(driver._domains, "start", fail)
    with pytest.raises(exceptions.VirtDriverError, match="configured to fail"):
        driver.rescue.start(spec, 0)
    monkeypatch.undo()
    assert domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE) == before
    assert (driver.guests.get(instance_uuid).power_state, driver._rescue_boot.is_rescued(instance_uuid)) == (
        PowerState.SHUTDOWN,
        False,
    )

    driver._rescue_boot.define(spec)  # the daemon is killed here
    driver.power.on(instance_uuid)
    assert domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE) == before, "a start completes an interrupted rescue"
    driver.rescue.start(spec, 0)
    driver.guests.destroy(instance_uuid)
    assert_nothing_left(connection, driver, spec)


def test_crash_dump_interrupt_reaches_the_guest(connection: Any, driver: LibvirtDriver, images: Images) -> None:
    spec = guest_spec(images, [], hostname="dumped", memory_mb=96)
    instance_uuid = spec.instance.uuid
    boot(driver, spec)
    guest_lines(driver, instance_uuid)
    driver.crash_dumps.trigger(instance_uuid)
    wait_for(
        "the guest's message about the NMI", lambda: "NMI" in driver.consoles.output(instance_uuid, None), PATIENCE
    )
    driver.power.off(instance_uuid, 0)
    with pytest.raises(exceptions.VirtDriverError):
        driver.crash_dumps.trigger(instance_uuid)
    driver.guests.destroy(instance_uuid)


@pytest.mark.parametrize("with_channel", [True, False])
def test_password_needs_an_agent_that_answers(
    connection: Any, driver: LibvirtDriver, images: Images, blank: Image, with_channel: bool
) -> None:
    image = msgspec.structs.replace(blank, properties={"hw_qemu_guest_agent": "yes"} if with_channel else {})
    spec = guest_spec(images, [], image=image)
    instance_uuid = spec.instance.uuid
    boot(driver, spec)
    xml = connection.lookupByUUIDString(instance_uuid).XMLDesc()
    assert ("org.qemu.guest_agent.0" in xml) is with_channel
    with pytest.raises(exceptions.GuestAgentUnresponsive) as caught:
        driver.passwords.set(instance_uuid, "root", "s3cret")
    assert "s3cret" not in str(caught.value)
    driver.guests.destroy(instance_uuid)


# --- failures


def fail(*_: Any, **__: Any) -> None:
    raise exceptions.VirtDriverError(reason="configured to fail")


@pytest.mark.parametrize("step", ["disks", "fence", "define", "start"])
def test_failed_spawn_leaves_only_its_interfaces(
    connection: Any,
    driver: LibvirtDriver,
    images: Images,
    blank: Image,
    new_vif: NewVif,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    spec = guest_spec(images, [new_vif()], image=blank)
    if step == "fence":
        spec.fence = fail  # type: ignore[assignment]
    else:
        target = {
            "disks": (driver._disks, "make"),
            "define": (driver._domains, "define"),
            "start": (driver._domains, "start"),
        }
        monkeypatch.setattr(*target[step], fail)
    driver.networks.plug(spec.instance, spec.vifs)

    with pytest.raises(exceptions.VirtDriverError, match="configured to fail"):
        driver.guests.spawn(spec)

    assert spec.instance.uuid not in {info.uuid for info in driver.guests.all()}
    assert driver.guests.leftovers() == {spec.instance.uuid}
    driver.networks.unplug(spec.instance.uuid)
    assert_nothing_left(connection, driver, spec)


def test_domain_that_libvirt_cannot_start_is_an_error(
    connection: Any, driver: LibvirtDriver, images: Images, blank: Image
) -> None:
    spec = guest_spec(images, [make_vif(network=make_network(bridge="nlt-no-such"))], image=blank)
    with pytest.raises(exceptions.InstancePowerOnFailure, match="nlt-no-such"):
        driver.guests.spawn(spec)
    assert traces(connection, driver, spec) == []


def test_missing_image_file_is_an_error(connection: Any, driver: LibvirtDriver, images: Images) -> None:
    gone = Image(id="6d9f3b7e-0000-4000-8000-000000000000", name="/nonexistent/image", disk_format="raw")
    spec = guest_spec(images, [], image=gone)
    with pytest.raises(exceptions.ImageFileMissing, match="No such file"):
        driver.guests.spawn(spec)
    assert traces(connection, driver, spec) == []


# --- generations and hosts


def test_newer_generation_replaces_an_older_one_and_never_the_reverse(
    driver: LibvirtDriver, images: Images, blank: Image
) -> None:
    spec = guest_spec(images, [], image=blank, generation=2)
    boot(driver, spec)
    spec.generation = 3
    driver.guests.spawn(spec)
    assert driver.guests.get(spec.instance.uuid).generation == 3
    spec.generation = 2
    with pytest.raises(exceptions.Fenced):
        driver.guests.spawn(spec)
    assert driver.guests.get(spec.instance.uuid).generation == 3


def test_two_hosts_on_one_libvirtd_leave_each_other_alone(
    connection: Any, make_driver: MakeDriver, images: Images, blank: Image, new_vif: NewVif
) -> None:
    one, two = make_driver("one"), make_driver("two")
    spec = guest_spec(images, [new_vif()], image=blank)
    instance_uuid = spec.instance.uuid
    boot(one, spec)

    assert two.guests.all() == []
    assert two.guests.leftovers() == set()
    with pytest.raises(exceptions.DomainNotFound):
        two.power.off(instance_uuid, 0)
    two.guests.destroy(instance_uuid)
    two.networks.unplug(instance_uuid)
    with pytest.raises(exceptions.VirtDriverError, match="that is not host two"):
        two.guests.spawn(spec)
    assert one.guests.get(instance_uuid).power_state == PowerState.RUNNING
    assert len(traces(connection, one, spec)) > 1

    one.guests.destroy(instance_uuid)
    one.networks.unplug(instance_uuid)
    two.networks.plug(spec.instance, spec.vifs)
    two.guests.spawn(spec)
    assert two.guests.get(instance_uuid).power_state == PowerState.RUNNING


def test_concurrent_hosts_define_the_same_network(
    connection: Any, make_driver: MakeDriver, new_vif: NewVif, images: Images
) -> None:
    """Eight hosts start at once, and each finds its address reserved."""
    drivers = [make_driver(f"host{number}") for number in range(8)]
    specs = [guest_spec(images, [new_vif()]) for _ in drivers]
    remove_network(connection, f"nova-lite-{specs[0].vifs[0].network.id}")
    failures: list[Exception] = []

    def plug(number: int) -> None:
        try:
            drivers[number].networks.plug(specs[number].instance, specs[number].vifs)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=plug, args=(number,)) for number in range(len(drivers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    for driver, spec in zip(drivers, specs, strict=True):
        driver.networks.unplug(spec.instance.uuid)
        assert_nothing_left(connection, driver, spec)


def test_eventlet_threads_continue_during_libvirt_calls(directory: Path, blank: Image) -> None:
    """A start and a stop take libvirt about a second each. A blocked green thread would show that."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "tests.integration.libvirt.eventlet_guest",
        str(directory),
        blank.name,
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["left"] == []
    assert answer["events"] >= 3
    assert answer["longest_gap"] < 0.3
