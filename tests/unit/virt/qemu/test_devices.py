"""Volumes, interfaces, snapshots, consoles and counters of guests of qemu without libvirt."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.objects import BlockDevice, EncryptedDisk, NetworkDisk, PortFilters
from nova_lite.virt import images
from nova_lite.virt.qemu import console_logs
from nova_lite.virt.qemu.driver import QemuDriver
from tests.support.guests import make_instance, make_network, make_vif
from tests.unit.virt.qemu.conftest import Qemu, built, image

VOLUME = "11111111-2222-4333-8444-555555555555"
DEVICE = "volume-111111112222433384445555"


def device(**changes: Any) -> BlockDevice:
    values = {"uuid": "a", "source_type": "volume", "destination_type": "volume", "volume_id": VOLUME}
    return BlockDevice(**{**values, "device_name": "/dev/vdb", **changes})


@pytest.fixture
def volume(directory: Path) -> str:
    path = directory / VOLUME
    path.write_bytes(bytes(1024))
    return str(path)


def disks(driver: QemuDriver, uuid: str) -> list[str | None]:
    return [disk.serial for disk in driver._host.definitions.get(uuid).disks]


def test_volume_is_attached_once_and_stays_for_the_next_start(driver: QemuDriver, qemu: Qemu, volume: str) -> None:
    uuid = built(driver).instance.uuid
    for _ in range(2):
        driver.volumes.attach(uuid, device(), volume)
    added = [arguments for name, arguments in qemu.commands() if name == "device_add"]
    assert [(item["id"], item["serial"], item["bus"]) for item in added] == [(DEVICE, VOLUME, "port0")]
    driver.power.reboot(uuid, "HARD", 0)
    assert DEVICE in " ".join(qemu.arguments())


def test_volume_is_detached_from_the_guest_and_its_definition(driver: QemuDriver, qemu: Qemu, volume: str) -> None:
    uuid = built(driver).instance.uuid
    driver.volumes.attach(uuid, device(), volume)
    for _ in range(2):
        driver.volumes.detach(uuid, VOLUME, 5.0)
    assert disks(driver, uuid) == [None]
    assert qemu.names().count("device_del") == 1 and qemu.names().count("blockdev-del") == 1


def test_volume_that_the_guest_does_not_release_stays(driver: QemuDriver, qemu: Qemu, volume: str) -> None:
    uuid = built(driver).instance.uuid
    driver.volumes.attach(uuid, device(), volume)
    qemu.behave("keeps")
    with pytest.raises(exceptions.DeviceDetachFailed, match="within 1 s"):
        driver.volumes.detach(uuid, VOLUME, 1.0)
    assert disks(driver, uuid) == [None, VOLUME]
    assert qemu.names().count("device_del") > 1


@pytest.mark.parametrize("command", ["blockdev-add", "device_add"])
def test_volume_that_qemu_refuses_is_not_attached(driver: QemuDriver, qemu: Qemu, volume: str, command: str) -> None:
    uuid = built(driver).instance.uuid
    qemu.behave("fails", command)
    with pytest.raises(exceptions.VirtDriverError, match=f"qemu refuses {command}: no room"):
        driver.volumes.attach(uuid, device(), volume)
    assert disks(driver, uuid) == [None]
    assert ("blockdev-del" in qemu.names()) == (command == "device_add")


def test_volume_of_a_guest_that_is_off_waits_for_its_start(driver: QemuDriver, qemu: Qemu, volume: str) -> None:
    uuid = built(driver).instance.uuid
    driver.power.off(uuid, 0)
    driver.volumes.attach(uuid, device(), volume)
    assert "device_add" not in qemu.names()
    driver.power.on(uuid)
    assert DEVICE in " ".join(qemu.arguments())


def test_volume_is_given_to_qemus_user_until_it_is_detached(
    driver: QemuDriver, volume: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uuid = built(driver).instance.uuid
    driver.power.off(uuid, 0)
    owners: list[tuple[str, int, int]] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("nova_lite.virt.qemu.processes.Processes.owner", (77, 78))
    monkeypatch.setattr(os, "chown", lambda path, user, group: owners.append((path, user, group)))
    driver.volumes.attach(uuid, device(), volume)
    driver.volumes.detach(uuid, VOLUME, 1.0)
    assert owners == [(volume, 77, -1), (volume, 0, -1)]


@pytest.mark.parametrize("source", [
    NetworkDisk(protocol="rbd", name="pool/v"),
    EncryptedDisk(path="/volumes/v"),
])  # fmt: skip
def test_volume_that_is_in_no_plain_file_is_refused(driver: QemuDriver, source: Any) -> None:
    uuid = built(driver).instance.uuid
    with pytest.raises(exceptions.VirtDriverError, match="without libvirt does not use"):
        driver.volumes.attach(uuid, device(), source)
    with pytest.raises(exceptions.VirtDriverError, match="without libvirt does not use"):
        built(driver, instance=make_instance(block_devices=[device()]), volumes={VOLUME: source})


def test_microvm_takes_a_volume_only_while_it_is_off(make_driver: Any, volume: str) -> None:
    driver = make_driver(libvirt__virt_type="kvm")
    uuid = built(driver, image=image(properties={"hw_machine_type": "microvm", "kernel_id": "k"})).instance.uuid
    with pytest.raises(exceptions.NotImplementedByDriver, match="microvm that runs"):
        driver.volumes.attach(uuid, device(), volume)
    assert disks(driver, uuid) == [None]
    driver.power.off(uuid, 0)
    driver.volumes.attach(uuid, device(), volume)
    driver.power.on(uuid)


@pytest.mark.parametrize(("size", "resized"), [(2048, True), (512, False)])
def test_volume_grows_in_the_running_guest_and_never_shrinks(
    driver: QemuDriver, qemu: Qemu, volume: str, size: int, resized: bool
) -> None:
    uuid = built(driver).instance.uuid
    driver.volumes.attach(uuid, device(), volume)
    driver.volumes.extend(uuid, VOLUME, size)
    assert ("block_resize" in qemu.names()) == resized


# --- interfaces


def test_interfaces_of_a_guest_have_a_bridge_without_an_address(driver: QemuDriver, ip: list[str]) -> None:
    vif = make_vif()
    spec = built(driver, vifs=[vif])
    tap = f"tap{vif.id[:11]}"
    assert ip[0] == "link add name nltest0 mtu 1500 type bridge"
    assert ip[1] == "link set dev nltest0 addrgenmode none alias nova-lite up"
    assert ip[2].startswith(f"tuntap add dev {tap} mode tap user ")
    assert driver.filters.instances() == [spec.instance.uuid]
    driver.guests.destroy(spec.instance.uuid)
    driver.networks.unplug(spec.instance.uuid)
    assert ip[-2:] == [f"link delete dev {tap}", "link delete dev nltest0"]
    assert driver.guests.leftovers() == set() and driver.filters.instances() == []


def test_bridge_of_the_operator_is_used_and_never_removed(driver: QemuDriver, ip: list[str], directory: Path) -> None:
    (directory / "net" / "nltest0" / "brif").mkdir(parents=True)
    spec = built(driver, vifs=[make_vif()])
    driver.networks.unplug(spec.instance.uuid)
    assert not any("nltest0" in call and "master" not in call for call in ip)


def test_interface_is_attached_to_a_running_guest_and_detached(driver: QemuDriver, qemu: Qemu, ip: list[str]) -> None:
    first, second = make_vif(1), make_vif(2)
    spec = built(driver, vifs=[first])
    uuid, tap = spec.instance.uuid, f"tap{second.id[:11]}"
    driver.networks.plug(spec.instance, [first, second])
    driver.interfaces.attach(uuid, second)
    added = [arguments for name, arguments in qemu.commands() if name == "device_add"]
    assert [(item["id"], item["mac"], item["bus"]) for item in added] == [(tap, second.mac_address, "port1")]
    driver.interfaces.detach(uuid, second)
    assert ("device_del", {"id": tap}) in qemu.commands() and f"link delete dev {tap}" in ip
    assert qemu.names()[-1] == "netdev_del"
    assert [vif.id for vif in driver._host.definitions.get(uuid).vifs] == [first.id]


@pytest.mark.parametrize(("vif", "reason"), [
    (make_vif(vif_type="ovs"), "ports of Neutron"),
    (make_vif(id="a b/../c"), "not the name of an interface"),
])  # fmt: skip
def test_interface_that_the_host_cannot_plug_is_refused(driver: QemuDriver, vif: Any, reason: str) -> None:
    with pytest.raises(exceptions.NovaLiteException, match=reason):
        built(driver, vifs=[vif])
    assert driver._host.records.uuids() == set()


def test_filters_reach_the_ports_of_guests(driver: QemuDriver) -> None:
    network = make_network()
    spec = built(driver, vifs=[make_vif(network=network)])
    assert not driver.filters.are_missing()
    driver.filters.apply(PortFilters(unfiltered=[spec.vifs[0].id], pairs={}))
    (vif,) = driver._host.records.read_interfaces(spec.instance.uuid)
    assert vif.unguarded


# --- snapshots, consoles and counters


@pytest.fixture
def flattened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(images.QemuImg, "flatten", lambda self, source, kind, target, check: found.append(source))
    monkeypatch.setattr(images.QemuImg, "info", lambda self, *a: images.DiskInfo("raw", 1024, []))
    monkeypatch.setattr(images, "run", lambda *command: Path(command[-2]).touch())
    return found


def test_snapshot_of_a_running_guest_is_a_copy_by_qemu(
    driver: QemuDriver, qemu: Qemu, directory: Path, flattened: list[str]
) -> None:
    uuid = built(driver).instance.uuid
    driver.snapshots.take(uuid, str(directory / "image"), lambda: None)
    assert flattened == [str(directory / "image.copy")]
    (job,) = [arguments for name, arguments in qemu.commands() if name == "blockdev-backup"]
    assert (job["device"], job["sync"]) == ("disk-vda", "full")
    assert qemu.names()[-4:] == ["job-dismiss", "query-jobs", "query-named-block-nodes", "blockdev-del"]
    assert not (directory / "image.copy").exists()


def test_snapshot_that_is_cancelled_leaves_no_job(
    driver: QemuDriver, qemu: Qemu, directory: Path, flattened: list[str]
) -> None:
    uuid = built(driver).instance.uuid
    qemu.behave("keeps")

    def check() -> None:
        raise exceptions.Fenced(instance_uuid=uuid, generation=1)

    with pytest.raises(exceptions.Fenced):
        driver.snapshots.take(uuid, str(directory / "image"), check)
    assert "job-cancel" in qemu.names() and qemu.names()[-1] == "blockdev-del"
    assert flattened == []


def test_copy_that_a_killed_daemon_has_left_is_ended_at_the_start(
    driver: QemuDriver, make_driver: Any, qemu: Qemu
) -> None:
    uuid = built(driver).instance.uuid
    with driver._host.monitor(driver._host.definitions.get(uuid)) as monitor:
        monitor.execute("blockdev-add", {"node-name": "snapshot"})
        monitor.execute("blockdev-backup", {"job-id": "snapshot"})
    make_driver()
    assert qemu.names()[-1] == "blockdev-del"


def test_snapshot_of_a_guest_that_is_off_reads_its_disk(
    driver: QemuDriver, qemu: Qemu, directory: Path, flattened: list[str]
) -> None:
    uuid = built(driver).instance.uuid
    driver.power.off(uuid, 0)
    driver.snapshots.take(uuid, str(directory / "image"), lambda: None)
    assert [Path(path).name for path in flattened] == ["disk.raw"]
    assert "blockdev-backup" not in qemu.names()


def test_consoles_of_a_running_guest_have_the_addresses_of_qemu(make_driver: Any, qemu: Qemu) -> None:
    driver = make_driver(serial_console__enabled=True)
    uuid = built(driver).instance.uuid
    assert driver.consoles.vnc(uuid) == ("127.0.0.1", 5907, False, None)
    assert driver.consoles.serial(uuid) == ("127.0.0.1", 10003, False, None)
    assert "to=20000" in " ".join(qemu.arguments())
    driver.power.off(uuid, 0)
    for method in (driver.consoles.vnc, driver.consoles.serial, driver.consoles.spice):
        with pytest.raises(exceptions.ConsoleTypeUnavailable):
            method(uuid)


def test_console_log_that_grows_is_moved_aside(driver: QemuDriver) -> None:
    uuid = built(driver).instance.uuid
    log = Path(driver._host.definitions.path(uuid, console_logs.CONSOLE_LOG))
    log.write_text("first\n" + "x" * 2 * 1024**2 + "\nlast\n")
    driver.guests.all()
    assert log.stat().st_size == 0
    log.write_text("more\n")
    assert driver.consoles.output(uuid, 2) == "last\nmore"


def test_counters_of_a_guest_are_those_of_its_process_and_taps(driver: QemuDriver) -> None:
    spec = built(driver, vifs=[make_vif()])
    (found,) = driver.statistics.guests()
    assert (found.uuid, found.project_id, found.memory_limit_bytes) == (spec.instance.uuid, "project", 128 * 1024**2)
    assert (found.network_received_bytes, found.network_sent_bytes, found.network_dropped) == (10, 1, 1100)
    assert found.memory_bytes and found.memory_bytes > 0 and found.cpu_seconds is not None
    driver.power.off(spec.instance.uuid, 0)
    assert driver.statistics.guests() == []
