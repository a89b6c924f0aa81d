"""The abilities of the driver of qemu without libvirt, with real guests."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import msgspec
import pytest

from nova_lite.hardware import traits
from nova_lite.objects import BlockDevice, Network, PortFilters
from nova_lite.objects.block_device import DeviceSource
from nova_lite.objects.security_group import default_group
from nova_lite.operations.states import PowerState
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.qemu import processes
from nova_lite.virt.qemu.driver import QemuDriver
from tests.integration.libvirt.conftest import PATIENCE, Images, boot, guest_lines, guest_spec, whole_lines
from tests.integration.libvirt.guests import WATCHES, console_line, user_data
from tests.integration.qemu.conftest import MakeDriver
from tests.support.guests import make_vif
from tests.support.waiting import wait_for

#: Counts in the guest. After a new start it begins with 1 again.
COUNTS = "n=0; while :; do n=$((n + 1)); echo tick $n; usleep 500000; done"


def ticks(driver: QemuDriver, spec: SpawnSpec) -> int:
    lines = whole_lines(driver, spec.instance.uuid).splitlines()
    return sum(line.startswith("tick ") for line in lines)


def test_guest_boots_outlives_its_daemon_and_hears_its_power_button(make_driver: MakeDriver, images: Images) -> None:
    first = make_driver()
    spec = guest_spec(images, [])
    uuid = spec.instance.uuid
    boot(first, spec)
    assert guest_lines(first, uuid)[0][:2] == (uuid, "web-one")
    pid = processes.pids()[uuid]
    assert Path(f"/proc/{pid}").owner() == "nobody"
    assert "Seccomp:\t2" in Path(f"/proc/{pid}/status").read_text()
    later = make_driver()
    assert [info.power_state for info in later.guests.all()] == [PowerState.RUNNING]
    later.power.reboot(uuid, "SOFT", int(PATIENCE))
    guest_lines(later, uuid, 2)
    address = later.consoles.serial(uuid)
    with socket.create_connection((address.host, address.port)) as console:
        console.settimeout(PATIENCE)
        console.sendall(b"\recho answer=$((6 * 7))\r")
        heard = b""
        while b"answer=42" not in heard:
            heard += console.recv(4096)
    screen = later.consoles.vnc(uuid)
    with socket.create_connection((screen.host, screen.port), PATIENCE) as greeting:
        assert greeting.recv(3) == b"RFB"
    (counters,) = later.statistics.guests()
    assert counters.uuid == uuid and (counters.cpu_seconds or 0) > 0
    later.guests.destroy(uuid)
    assert uuid not in processes.pids()
    assert later.guests.all() == [] and later.guests.leftovers() == set()


def test_guest_that_shuts_down_stays_off_until_it_is_started(driver: QemuDriver, images: Images) -> None:
    spec = guest_spec(images, [], user_data=user_data("poweroff -f"))
    boot(driver, spec)
    uuid = spec.instance.uuid
    wait_for("the guest is off", lambda: driver.guests.get(uuid).power_state == PowerState.SHUTDOWN, PATIENCE)
    assert not driver.guests.get(uuid).crashed
    driver.power.on(uuid)
    guest_lines(driver, uuid, 2)


def test_microvm_boots_where_kvm_works(driver: QemuDriver, images: Images) -> None:
    if traits.MICROVM not in driver.machine.inventory().capabilities[traits.CAPABILITY]:
        pytest.skip("a microvm needs KVM, which runs no guest here")
    properties = {**images.ami.properties, "hw_machine_type": "microvm"}
    spec = guest_spec(images, [], msgspec.structs.replace(images.ami, properties=properties))
    boot(driver, spec)
    assert guest_lines(driver, spec.instance.uuid)[0][0] == spec.instance.uuid


def test_guest_boots_from_its_disk(driver: QemuDriver, images: Images) -> None:
    spec = guest_spec(images, [], images.disk)
    boot(driver, spec)
    assert guest_lines(driver, spec.instance.uuid)[0][0] == spec.instance.uuid


def test_paused_and_suspended_guest_continues_where_it_was(driver: QemuDriver, images: Images) -> None:
    spec = guest_spec(images, [], user_data=user_data(COUNTS))
    uuid = spec.instance.uuid
    boot(driver, spec)
    wait_for("the guest counts", lambda: ticks(driver, spec) > 2, PATIENCE)
    driver.standby.pause(uuid)
    assert driver.guests.get(uuid).power_state == PowerState.PAUSED
    driver.standby.unpause(uuid)
    driver.standby.suspend(uuid)
    assert driver.guests.get(uuid).power_state == PowerState.SHUTDOWN
    before = ticks(driver, spec)
    driver.standby.resume(uuid)
    wait_for("the guest counts on", lambda: ticks(driver, spec) > before + 2, PATIENCE)
    assert whole_lines(driver, uuid).count("tick 1\r\n") == 1
    assert len(guest_lines(driver, uuid)) == 1


def test_volume_is_attached_to_a_running_guest_grows_and_is_released(
    driver: QemuDriver, images: Images, directory: Path
) -> None:
    path = directory / "44444444-2222-4333-8444-555555555555"
    path.write_bytes(bytes(1024**2))
    volume = path.name
    spec = guest_spec(images, [], user_data=user_data(WATCHES.replace("SERIAL", volume[:20]).replace("NAME", "me")))
    uuid = spec.instance.uuid
    boot(driver, spec)
    guest_lines(driver, uuid)
    device = BlockDevice(
        uuid="a", source_type=DeviceSource.VOLUME, destination_type="volume", volume_id=volume, device_name="/dev/vdb"
    )
    driver.volumes.attach(uuid, device, str(path))
    console_line(driver, uuid, "volume marked")
    os.truncate(path, 2 * 1024**2)
    driver.volumes.extend(uuid, volume, 2 * 1024**2)
    console_line(driver, uuid, "volume has 4096 sectors")
    driver.volumes.detach(uuid, volume, PATIENCE)
    console_line(driver, uuid, "volume released")
    assert path.read_bytes()[1024 * 512 :].startswith(b"marked-by-me")
    assert path.owner() == "root"


def test_snapshot_of_a_running_guest_has_what_it_has_written(
    driver: QemuDriver, images: Images, directory: Path
) -> None:
    script = (
        "echo written-by-guest | dd of=/dev/vda bs=512 seek=64 conv=notrunc,sync 2>/dev/null; sync; echo is written"
    )
    spec = guest_spec(images, [], user_data=user_data(f"{script}\n{COUNTS}"))
    uuid = spec.instance.uuid
    boot(driver, spec)
    console_line(driver, uuid, "is written")
    target, raw = directory / "snapshot.qcow2", directory / "snapshot.raw"
    driver.snapshots.take(uuid, str(target), lambda: None)
    subprocess.run(["qemu-img", "convert", "-O", "raw", target, raw], check=True)
    with raw.open("rb") as file:
        file.seek(64 * 512)
        assert file.read(16) == b"written-by-guest"
    before = ticks(driver, spec)
    wait_for("the guest goes on", lambda: ticks(driver, spec) > before, PATIENCE)
    for path in (target, raw):
        path.unlink()


def test_guests_of_a_network_reach_each_other_as_their_security_groups_say(
    driver: QemuDriver, images: Images, network: Network
) -> None:
    script = "ip addr add {own}/24 dev eth0; while :; do ping -c 1 -W 1 {other} >/dev/null && echo heard; sleep 1; done"
    specs = []
    for own, other in ((11, 12), (12, 11)):
        vif = make_vif(network=network, address=f"10.77.0.{own}", mac_address=f"fa:16:3e:00:77:{own:02x}")
        text = script.format(own=vif.address, other=f"10.77.0.{other}")
        specs.append(guest_spec(images, [vif], user_data=user_data(text)))
        boot(driver, specs[-1])
    for spec in specs:
        guest_lines(driver, spec.instance.uuid)
    assert not any("heard" in whole_lines(driver, spec.instance.uuid) for spec in specs)
    group = msgspec.structs.replace(default_group("project"), members=[spec.vifs[0].address for spec in specs])
    driver.filters.apply(
        PortFilters(groups={group.id: group}, instances={spec.instance.uuid: [group.id] for spec in specs})
    )
    for spec in specs:
        console_line(driver, spec.instance.uuid, "heard")
    for spec in specs:
        driver.guests.destroy(spec.instance.uuid)
        driver.networks.unplug(spec.instance.uuid)
    assert not os.path.exists(f"/sys/class/net/{network.bridge}")
