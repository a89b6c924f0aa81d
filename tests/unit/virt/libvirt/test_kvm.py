from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nova_lite.virt.libvirt import kvm

needs_qemu = pytest.mark.skipif(shutil.which(kvm.EMULATOR) is None, reason=f"{kvm.EMULATOR} is not installed")


@pytest.fixture
def device(tmp_path: Path) -> str:
    path = tmp_path / "kvm"
    path.touch()
    return str(path)


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Probes that were run; each says that KVM works."""
    run: list[str] = []

    def runs_guests(accelerator: str, timeout: float) -> bool:
        run.append(accelerator)
        return True

    monkeypatch.setattr(kvm, "runs_guests", runs_guests)
    monkeypatch.setattr(kvm, "_machine_state", lambda timeout: ["boot", str(timeout)])
    return run


def test_the_boot_sector_is_one() -> None:
    sector = kvm.boot_sector()
    assert len(sector) == 512
    assert sector[510:] == b"\x55\xaa"


@needs_qemu
def test_the_probe_guest_runs_where_guests_run() -> None:
    assert kvm.runs_guests("tcg", 20.0)


@needs_qemu
def test_a_guest_that_does_nothing_is_not_one_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    endless_loop = b"\xeb\xfe".ljust(510, b"\0") + b"\x55\xaa"
    monkeypatch.setattr(kvm, "boot_sector", lambda: endless_loop)
    assert not kvm.runs_guests("tcg", 1.0)


@needs_qemu
def test_an_accelerator_that_fails_at_once_does_not_run_guests() -> None:
    assert not kvm.runs_guests("no-such-accelerator", 20.0)


def test_without_the_device_nothing_is_tried(tmp_path: Path, probes: list[str]) -> None:
    assert kvm.choose_virt_type(str(tmp_path / "answer"), 2.0, device=str(tmp_path / "missing")) == "qemu"
    assert probes == []


def test_the_answer_is_remembered(tmp_path: Path, probes: list[str], device: str) -> None:
    answer = str(tmp_path / "state" / "answer")
    assert [kvm.choose_virt_type(answer, 2.0, device) for _ in range(3)] == ["kvm"] * 3
    assert probes == ["kvm"]


def test_another_machine_state_is_probed_again(
    tmp_path: Path, probes: list[str], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = str(tmp_path / "answer")
    kvm.choose_virt_type(answer, 2.0, device)
    monkeypatch.setattr(kvm, "_machine_state", lambda timeout: ["next boot"])
    kvm.choose_virt_type(answer, 2.0, device)
    assert len(probes) == 2


def test_a_broken_answer_is_probed_again(tmp_path: Path, probes: list[str], device: str) -> None:
    (tmp_path / "answer").write_text("{")
    assert kvm.choose_virt_type(str(tmp_path / "answer"), 2.0, device) == "kvm"
    assert probes == ["kvm"]
