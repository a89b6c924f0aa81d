"""Guests of qemu without libvirt: their life, with real processes, locks and sockets."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.base.timing import QemuTiming
from nova_lite.operations.states import PowerState
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.qemu import processes
from nova_lite.virt.qemu.driver import QemuDriver
from tests.support.guests import make_flavor, make_instance, make_spec
from tests.support.waiting import wait_for
from tests.unit.virt.qemu.conftest import Qemu, built, image

MakeDriver = Callable[..., QemuDriver]


def state(driver: QemuDriver, spec: SpawnSpec) -> PowerState:
    return driver.guests.get(spec.instance.uuid).power_state


def path(driver: QemuDriver, spec: SpawnSpec, name: str = "") -> Path:
    return Path(driver.conf.state_path, "instances", spec.instance.uuid, name)


def test_guest_that_is_spawned_runs_until_it_is_destroyed(driver: QemuDriver, qemu: Qemu) -> None:
    spec = built(driver, generation=3)
    (info,) = driver.guests.all()
    assert (info.uuid, info.generation, info.power_state) == (spec.instance.uuid, 3, PowerState.RUNNING)
    assert driver.machine.inventory().running_vms == 1
    assert spec.instance.uuid in processes.pids()
    driver.guests.spawn(spec)
    assert qemu.names().count("cont") == 1, "spawned twice"
    driver.guests.destroy(spec.instance.uuid)
    driver.guests.destroy(spec.instance.uuid)
    assert spec.instance.uuid not in processes.pids()
    assert not path(driver, spec).exists()
    assert driver.guests.all() == [] and driver.guests.leftovers() == set()


def test_guest_outlives_its_daemon(driver: QemuDriver, make_driver: MakeDriver) -> None:
    spec = built(driver)
    pid = processes.pids()[spec.instance.uuid]
    later = make_driver()
    assert state(later, spec) == PowerState.RUNNING
    assert os.getsid(pid) == pid
    later.power.off(spec.instance.uuid, 0)
    assert state(driver, spec) == PowerState.SHUTDOWN


def test_monitor_and_files_of_a_guest_are_open_to_no_other_user(driver: QemuDriver) -> None:
    spec = built(driver)
    for name in ("qmp.sock", "lock", "guest.json", "qemu.log", "console.log"):
        assert stat.S_IMODE(path(driver, spec, name).stat().st_mode) == 0o600, name


def test_second_process_of_a_guest_is_never_started(driver: QemuDriver, make_driver: MakeDriver, qemu: Qemu) -> None:
    spec = built(driver)
    pid = processes.pids()[spec.instance.uuid]
    starter = make_driver()._processes
    with pytest.raises(exceptions.InstancePowerOnFailure, match="another qemu of it still runs"):
        starter.start(str(path(driver, spec)), spec.instance.uuid, [])
    assert processes.pids()[spec.instance.uuid] == pid


def test_guest_whose_qemu_fails_is_refused_with_qemus_words_and_leaves_nothing(driver: QemuDriver, qemu: Qemu) -> None:
    qemu.behave("dies", "qemu: cannot set up guest memory")
    with pytest.raises(exceptions.InstancePowerOnFailure, match="cannot set up guest memory"):
        built(driver)
    assert driver.guests.all() == [] and driver.guests.leftovers() == set()


def test_spawn_that_is_fenced_starts_no_qemu(driver: QemuDriver, qemu: Qemu) -> None:
    def fence() -> None:
        raise exceptions.Fenced(instance_uuid="u", generation=2)

    with pytest.raises(exceptions.Fenced):
        built(driver, fence=fence)
    assert not (qemu.path / "arguments").exists()
    assert driver.guests.leftovers() == set()


def test_spawn_of_an_older_generation_leaves_the_guest_alone(driver: QemuDriver) -> None:
    spec = built(driver, generation=2)
    with pytest.raises(exceptions.Fenced):
        driver.guests.spawn(make_spec(instance=spec.instance, image=spec.image, generation=1))
    assert state(driver, spec) == PowerState.RUNNING


def test_guest_that_waits_for_its_network_runs_only_afterwards(driver: QemuDriver, qemu: Qemu) -> None:
    built(driver, plugged=lambda: qemu.behave("seen", str("cont" in qemu.names())))
    assert (qemu.path / "seen").read_text() == "False"
    assert "cont" in qemu.names()


def test_guest_that_turns_itself_off_is_off_and_needs_no_process(driver: QemuDriver, qemu: Qemu) -> None:
    spec = built(driver)
    qemu.behave("status", "shutdown")
    for _ in range(2):
        info = driver.guests.get(spec.instance.uuid)
        assert (info.power_state, info.crashed) == (PowerState.SHUTDOWN, False)
        wait_for("end of the process", lambda: spec.instance.uuid not in processes.pids(), 5.0)


def test_guest_whose_qemu_is_ending_is_started_afterwards(driver: QemuDriver, qemu: Qemu) -> None:
    spec = built(driver)
    pid = processes.pids()[spec.instance.uuid]
    qemu.behave("lingers", "1")
    qemu.behave("status", "shutdown")
    driver.guests.get(spec.instance.uuid)
    (qemu.path / "status").unlink()
    driver.power.on(spec.instance.uuid)
    assert state(driver, spec) == PowerState.RUNNING
    assert processes.pids()[spec.instance.uuid] != pid


def test_guest_whose_process_is_killed_counts_as_crashed_until_it_is_started(driver: QemuDriver) -> None:
    spec = built(driver)
    os.kill(processes.pids()[spec.instance.uuid], signal.SIGKILL)
    wait_for("a crash", lambda: driver.guests.get(spec.instance.uuid).crashed, 5.0)
    driver.power.on(spec.instance.uuid)
    info = driver.guests.get(spec.instance.uuid)
    assert (info.power_state, info.crashed) == (PowerState.RUNNING, False)


def test_guest_that_ran_before_the_machine_was_started_has_not_crashed(driver: QemuDriver) -> None:
    spec = built(driver)
    os.kill(processes.pids()[spec.instance.uuid], signal.SIGKILL)
    wait_for("end", lambda: not driver._host.is_running(driver._host.definitions.get(spec.instance.uuid)), 5.0)
    path(driver, spec, "runs").write_text("another boot")
    assert not driver.guests.get(spec.instance.uuid).crashed


@pytest.mark.parametrize(("status", "power", "crashed", "halted"), [
    ("paused", PowerState.PAUSED, False, False),
    ("watchdog", PowerState.PAUSED, False, True),
    ("internal-error", PowerState.SHUTDOWN, True, False),
])  # fmt: skip
def test_state_of_a_guest_is_that_of_its_qemu(
    driver: QemuDriver, qemu: Qemu, status: str, power: PowerState, crashed: bool, halted: bool
) -> None:
    spec = built(driver)
    qemu.behave("status", status)
    info = driver.guests.get(spec.instance.uuid)
    assert (info.power_state, info.crashed, info.halted) == (power, crashed, halted)


def test_power_button_is_pressed_before_the_power_is_cut(driver: QemuDriver, qemu: Qemu) -> None:
    spec = built(driver)
    driver.power.off(spec.instance.uuid, 5)
    assert "system_powerdown" in qemu.names()
    assert state(driver, spec) == PowerState.SHUTDOWN
    driver.power.off(spec.instance.uuid, 5)


def test_guest_that_ignores_its_power_button_loses_its_power(driver: QemuDriver, qemu: Qemu) -> None:
    spec = built(driver)
    qemu.behave("ignores")
    driver.power.off(spec.instance.uuid, 1)
    assert qemu.names().count("system_powerdown") > 1
    assert state(driver, spec) == PowerState.SHUTDOWN


@pytest.mark.parametrize(("kind", "pressed"), [("SOFT", True), ("HARD", False)])
def test_reboot_starts_the_guest_again(driver: QemuDriver, qemu: Qemu, kind: str, pressed: bool) -> None:
    spec = built(driver)
    pid = processes.pids()[spec.instance.uuid]
    driver.power.reboot(spec.instance.uuid, kind, 5)
    assert ("system_powerdown" in qemu.names()) == pressed
    assert processes.pids()[spec.instance.uuid] != pid
    assert state(driver, spec) == PowerState.RUNNING


def test_qemu_that_does_not_answer_is_killed(driver: QemuDriver, qemu: Qemu) -> None:
    spec = built(driver)
    pid = processes.pids()[spec.instance.uuid]
    os.kill(pid, signal.SIGSTOP)
    fast = processes.Processes("", timing=QemuTiming(reply=0.2, end=0.5, poll=0.02))
    fast.stop(str(path(driver, spec)), spec.instance.uuid)
    assert spec.instance.uuid not in processes.pids()


def test_pause_keeps_the_process_and_unpause_continues(driver: QemuDriver) -> None:
    spec = built(driver)
    driver.standby.pause(spec.instance.uuid)
    assert state(driver, spec) == PowerState.PAUSED
    driver.standby.unpause(spec.instance.uuid)
    assert state(driver, spec) == PowerState.RUNNING


def test_suspended_guest_is_off_and_restores_its_memory_once(driver: QemuDriver, qemu: Qemu) -> None:
    spec = built(driver)
    driver.standby.suspend(spec.instance.uuid)
    driver.standby.suspend(spec.instance.uuid)
    assert state(driver, spec) == PowerState.SHUTDOWN
    assert path(driver, spec, "memory").exists()
    driver.standby.resume(spec.instance.uuid)
    assert "-incoming" in qemu.arguments()
    assert state(driver, spec) == PowerState.RUNNING
    assert not path(driver, spec, "memory").exists()


def test_guest_whose_memory_cannot_be_saved_continues(driver: QemuDriver, qemu: Qemu) -> None:
    spec = built(driver)
    qemu.behave("keeps")
    with pytest.raises(exceptions.VirtDriverError, match="cannot save"):
        driver.standby.suspend(spec.instance.uuid)
    assert state(driver, spec) == PowerState.RUNNING
    assert not any("memory" in file.name for file in path(driver, spec).iterdir())


def test_reboot_of_a_suspended_guest_drops_its_memory(driver: QemuDriver, qemu: Qemu) -> None:
    spec = built(driver)
    driver.standby.suspend(spec.instance.uuid)
    driver.power.reboot(spec.instance.uuid, "HARD", 0)
    assert "-incoming" not in qemu.arguments()


@pytest.mark.parametrize(("properties", "lacks"), [
    ({"hw_disk_bus": "scsi"}, "disk_bus"),
    ({"hw_machine_type": "pc"}, "machine_type=pc"),
    ({"hw_tpm_version": "2.0"}, "tpm"),
    ({"hw_qemu_guest_agent": "yes"}, "agent"),
])  # fmt: skip
def test_hardware_that_this_driver_does_not_give_is_refused(
    driver: QemuDriver, properties: dict[str, str], lacks: str
) -> None:
    with pytest.raises(exceptions.VirtDriverError, match=lacks):
        built(driver, image=image(properties=properties))
    assert driver.guests.leftovers() == set()


def test_microvm_needs_kvm(driver: QemuDriver) -> None:
    assert "CUSTOM_MACHINE_MICROVM" not in driver.machine.inventory().capabilities["traits"]
    with pytest.raises(exceptions.VirtDriverError, match="lacks requested traits: CUSTOM_MACHINE_MICROVM"):
        built(driver, image=image(properties={"hw_machine_type": "microvm", "kernel_id": "k"}))


def test_microvm_without_a_kernel_is_the_fault_of_its_image(make_driver: MakeDriver) -> None:
    driver = make_driver(libvirt__virt_type="kvm")
    with pytest.raises(exceptions.ImageUnacceptable, match="names none"):
        built(driver, image=image(properties={"hw_machine_type": "microvm"}))


def test_microvm_starts_a_kernel_without_ports_and_screen(make_driver: MakeDriver, qemu: Qemu) -> None:
    driver = make_driver(libvirt__virt_type="kvm")
    assert "CUSTOM_MACHINE_MICROVM" in driver.machine.inventory().capabilities["traits"]
    built(driver, image=image(properties={"hw_machine_type": "microvm", "kernel_id": "k"}))
    words = " ".join(qemu.arguments())
    assert "-machine microvm,pcie=on" in words and "-kernel" in words
    assert "pcie-root-port" not in words and "-vnc" not in words


def test_arguments_are_those_of_the_flavor_and_the_host(driver: QemuDriver, qemu: Qemu) -> None:
    flavor = make_flavor(vcpus=4, memory_mb=256, extra_specs={"hw:cpu_cores": "2", "hw:cpu_sockets": "2"})
    spec = built(driver, instance=make_instance(flavor=flavor))
    words = " ".join(qemu.arguments())
    assert "-m 256" in words and "-smp 4,sockets=2,cores=2,threads=1" in words
    assert f"-uuid {spec.instance.uuid}" in words and "-accel tcg,tb-size=32 -cpu max" in words
    assert "-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny" in words
    assert '"bootindex":1' in words


@pytest.mark.parametrize(("options", "reason"), [
    ({"spice__enabled": True}, "no SPICE"),
    ({"libvirt__images_type": "rbd"}, "no disks in Ceph"),
    ({"instances_path": "/" + 70 * "x"}, "too long"),
])  # fmt: skip
def test_host_that_cannot_run_guests_says_why(make_driver: MakeDriver, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(exceptions.ConfigurationError, match=reason):
        make_driver(**options)


def test_host_without_qemu_or_its_user_says_so(
    make_driver: MakeDriver, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(exceptions.ConfigurationError, match="useradd --system nobody-at-all"):
        make_driver(qemu__user="nobody-at-all")
    monkeypatch.setenv("PATH", str(directory))
    with pytest.raises(exceptions.ConfigurationError, match="install qemu-system-x86"):
        make_driver()


def test_images_of_guests_stay_in_the_cache(driver: QemuDriver) -> None:
    spec = built(driver, image=image(properties={"kernel_id": "k"}))
    base = path(driver, spec).parent / "_base"
    for name in ("kernel", "unused"):
        (base / name).touch()
    assert driver.images.remove_unused(0) == ["unused"]
