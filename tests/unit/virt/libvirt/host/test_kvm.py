from __future__ import annotations

import logging
import os
import pwd
import shutil
from pathlib import Path

import pytest

from nova_lite.base import metrics
from nova_lite.virt.libvirt.host import kvm

needs_qemu = pytest.mark.skipif(shutil.which(kvm.EMULATOR) is None, reason=f"{kvm.EMULATOR} is not installed")


@pytest.fixture
def device(tmp_path: Path) -> str:
    path = tmp_path / "kvm"
    path.touch()
    return str(path)


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Probes that were run. Each reports that KVM works."""
    run: list[str] = []

    def runs_guests(accelerator: str, timeout: float) -> bool:
        run.append(accelerator)
        return True

    monkeypatch.setattr(kvm, "runs_guests", runs_guests)
    monkeypatch.setattr(kvm, "_machine_state", lambda timeout: ["boot", str(timeout)])
    return run


def test_boot_sector_has_its_signature() -> None:
    sector = kvm.boot_sector()
    assert len(sector) == 512
    assert sector[510:] == b"\x55\xaa"


@needs_qemu
def test_probe_guest_runs_where_guests_run() -> None:
    assert kvm.runs_guests("tcg", 20.0)


@needs_qemu
def test_silent_probe_guest_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    endless_loop = b"\xeb\xfe".ljust(510, b"\0") + b"\x55\xaa"
    monkeypatch.setattr(kvm, "boot_sector", lambda: endless_loop)
    assert not kvm.runs_guests("tcg", 1.0)


@needs_qemu
def test_probe_guest_counts_before_it_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline is too short for 2^32 rounds even of an emulated guest, and long enough for the probe's 2^27."""
    far = kvm.boot_sector((1 << 32) - 1)
    monkeypatch.setattr(kvm, "boot_sector", lambda: far)
    assert not kvm.runs_guests("tcg", 2.0)


@needs_qemu
def test_stored_result_of_a_shorter_probe_is_ignored(
    tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kvm, "runs_guests", lambda accelerator, timeout: True)
    monkeypatch.setattr(kvm, "ROUNDS", 1)
    assert kvm.choose_virt_type(str(tmp_path / "answer"), 2.0, device) == "kvm"
    monkeypatch.undo()
    monkeypatch.setattr(kvm, "runs_guests", lambda accelerator, timeout: False)
    assert kvm.choose_virt_type(str(tmp_path / "answer"), 2.0, device) == "qemu"


@needs_qemu
def test_accelerator_that_fails_at_once_runs_no_guests() -> None:
    assert not kvm.runs_guests("no-such-accelerator", 20.0)


def test_missing_device_is_not_probed(tmp_path: Path, probes: list[str]) -> None:
    assert kvm.choose_virt_type(str(tmp_path / "answer"), 2.0, device=str(tmp_path / "missing")) == "qemu"
    assert probes == []


def test_probe_result_is_stored(tmp_path: Path, probes: list[str], device: str) -> None:
    answer = str(tmp_path / "state" / "answer")
    assert [kvm.choose_virt_type(answer, 2.0, device) for _ in range(3)] == ["kvm"] * 3
    assert probes == ["kvm"]


def test_changed_machine_state_is_probed_again(
    tmp_path: Path, probes: list[str], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = str(tmp_path / "answer")
    kvm.choose_virt_type(answer, 2.0, device)
    monkeypatch.setattr(kvm, "_machine_state", lambda timeout: ["next boot"])
    kvm.choose_virt_type(answer, 2.0, device)
    assert len(probes) == 2


@pytest.mark.parametrize("content", [b"", b"{", b'{"key": ["\xff"]}'])
def test_corrupt_result_is_probed_again(tmp_path: Path, probes: list[str], device: str, content: bytes) -> None:
    (tmp_path / "answer").write_bytes(content)
    assert kvm.choose_virt_type(str(tmp_path / "answer"), 2.0, device) == "kvm"
    assert probes == ["kvm"]


CAPABILITIES = """<capabilities><host>
<secmodel><model>apparmor</model><doi>0</doi></secmodel>
<secmodel><model>dac</model><doi>0</doi><baselabel type='kvm'>+{uid}:+{gid}</baselabel></secmodel>
</host></capabilities>"""


@pytest.fixture
def nobody() -> pwd.struct_passwd:
    return pwd.getpwnam("nobody")


def test_qemu_user_is_read_from_the_capabilities() -> None:
    assert kvm.qemu_user(CAPABILITIES.format(uid=64055, gid=109)) == (64055, 109)
    assert kvm.qemu_user("<capabilities><host/></capabilities>") is None


@pytest.mark.parametrize(
    ("mode", "closed"), [(0o600, True), (0o660, True), (0o606, False), (0o666, False), (0o602, True)]
)
def test_device_of_another_user_and_group_is_closed(
    device: str, mode: int, closed: bool, nobody: pwd.struct_passwd
) -> None:
    if os.stat(device).st_uid == nobody.pw_uid or os.stat(device).st_gid == nobody.pw_gid:
        pytest.skip("the tests run as nobody")
    os.chmod(device, mode)
    assert kvm.is_closed_to(nobody.pw_uid, nobody.pw_gid, device) is closed


@pytest.mark.parametrize(("mode", "closed"), [(0o600, True), (0o660, False), (0o606, True), (0o640, True)])
def test_device_of_the_users_group_is_open(device: str, mode: int, closed: bool, nobody: pwd.struct_passwd) -> None:
    os.chmod(device, mode)
    assert kvm.is_closed_to(nobody.pw_uid, os.stat(device).st_gid, device) is closed


def test_device_of_the_users_first_group_is_open(
    device: str, nobody: pwd.struct_passwd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's qemu user is in group kvm by its account, while guests run as group libvirt-qemu."""
    os.chmod(device, 0o660)
    mine, another = os.stat(device).st_gid, os.stat(device).st_gid + 12345
    entry = pwd.struct_passwd((*nobody[:3], mine, *nobody[4:]))
    monkeypatch.setattr(kvm.pwd, "getpwuid", lambda uid: entry)
    assert not kvm.is_closed_to(nobody.pw_uid, another, device)


def test_missing_device_is_not_closed(tmp_path: Path, nobody: pwd.struct_passwd) -> None:
    assert not kvm.is_closed_to(nobody.pw_uid, nobody.pw_gid, str(tmp_path / "missing"))


@pytest.mark.parametrize(("mode", "seconds", "warns"), [(0o600, 65.0, True), (0o666, 65.0, False), (0o600, 0.5, False)])
def test_slow_start_is_explained(
    device: str,
    mode: int,
    seconds: float,
    warns: bool,
    nobody: pwd.struct_passwd,
    caplog: pytest.LogCaptureFixture,
) -> None:
    os.chmod(device, mode)
    kvm.explain_slow_start(
        "an-instance", seconds, CAPABILITIES.format(uid=nobody.pw_uid, gid=nobody.pw_gid), device=device
    )
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(lines) == warns
    assert all("an-instance took libvirt 65.0 s" in line and f"chmod 660 {device}" in line for line in lines)


# --- repeated queries of libvirt


PROBE = "/usr/bin/qemu-system-x86_64 -S -machine none,accel=kvm:tcg -qmp unix:/v/qmp-{}/qmp.monitor,server=on"
GUEST = "/usr/bin/qemu-system-x86_64 -machine pc,accel=tcg -qmp unix:/var/lib/libvirt/qemu/domain-1/monitor.sock"


class Watched:
    """Processes, a clock, and a watch of them."""

    def __init__(self, path: Path, device: Path) -> None:
        self.now = 0.0
        self.path = path / "proc"
        self.path.mkdir()
        self.run(1, GUEST)
        (self.path / "self").mkdir()
        self.watch = kvm.ProbeWatch((4711, 4711), str(device), str(self.path), lambda: self.now)

    def run(self, pid: int, command: str) -> None:
        directory = self.path / str(pid)
        directory.mkdir(exist_ok=True)
        (directory / "cmdline").write_bytes(command.replace(" ", "\0").encode())

    def storm(self, number: int, seconds: float = 5.0) -> None:
        """Start one process after the other in place of the last, each with a directory of its own."""
        for _ in range(number):
            self.run(2, PROBE.format(f"{self.now:.0f}"))
            self.watch.look()
            self.watch.look()
            self.now += seconds


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    device = tmp_path / "kvm"
    device.touch(mode=0o600)
    monkeypatch.setattr(kvm, "is_closed_to", lambda uid, gid, path: os.stat(path).st_mode & 0o066 == 0)
    return Watched(tmp_path, device)


def probes_counted() -> float:
    return metrics.HYPERVISOR_PROBES._value.get()  # type: ignore[no-any-return]


def test_repeated_queries_of_libvirt_are_logged_once_and_counted(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    before = probes_counted()
    watched.storm(10)
    assert probes_counted() == before + 10, "each process counts once"
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("libvirt queries qemu for its capabilities again and again (4 times in 15 s)")
    assert line.endswith(f"Right would be: chgrp kvm {watched.watch._device}; chmod 660 {watched.watch._device}")


def test_another_series_of_queries_is_logged_again(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    watched.storm(5)
    watched.run(2, GUEST)
    watched.now += kvm.PROBE_WINDOW
    watched.watch.look()
    watched.storm(5)
    assert len(caplog.records) == 2


def test_queries_of_a_restarted_libvirtd_are_not_logged(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    watched.storm(kvm.REPEATED_PROBES - 1)
    watched.now += kvm.PROBE_WINDOW
    watched.storm(kvm.REPEATED_PROBES - 1)
    assert caplog.records == []


def test_repeated_queries_with_an_open_device_name_the_cache(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    os.chmod(watched.watch._device, 0o666)
    watched.storm(5)
    assert "capabilities" in caplog.records[0].getMessage()
    assert "chgrp" not in caplog.text


def test_guests_are_no_queries(watched: Watched) -> None:
    assert kvm.probes(str(watched.path)) == set()
    watched.run(3, PROBE.format("abc"))
    assert kvm.probes(str(watched.path)) == {"qmp-abc"}
