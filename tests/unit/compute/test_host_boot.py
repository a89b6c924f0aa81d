"""The machine's boot, remembered over the daemon's lives."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.compute import host_boot
from nova_lite.compute.host_boot import HostBoot
from nova_lite.objects import DomainReport
from tests.unit.compute.fakes import UUID, Host


@pytest.fixture
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The kernel's file."""
    path = tmp_path / "boot_id"
    path.write_text("one\n")
    monkeypatch.setattr(host_boot, "BOOT_ID", str(path))
    return path


def test_a_boot_is_new_until_it_is_settled(tmp_path: Path, boot: Path) -> None:
    def asked() -> HostBoot:
        return HostBoot(str(tmp_path / "boots" / "host"))

    assert not asked().is_new(), "nothing is remembered yet"
    asked().mark_reconciled()
    assert not asked().is_new()
    boot.write_text("two\n")
    assert asked().is_new()
    assert asked().is_new()
    asked().mark_reconciled()
    assert not asked().is_new()


def reported(host: Host) -> list[bool]:
    """``lost_power`` of the last report."""
    reports: list[DomainReport] = host.conductor.of("reconcile_domains")[-1][0]
    return [report.lost_power for report in reports]


@pytest.mark.parametrize("resumes", [True, False])
def test_after_a_boot_guests_that_are_off_have_lost_power(host: Host, boot: Path, resumes: bool) -> None:
    host.conf.set_override("resume_guests_state_on_host_boot", resumes)
    host.built()
    host.manager.reconciler.run()
    assert reported(host) == [False]
    host.driver.power_off(UUID, 0)
    host.manager.reconciler.run()
    assert reported(host) == [False]
    boot.write_text("two\n")
    host.manager.reconciler.run()
    assert reported(host) == [resumes]
    host.manager.reconciler.run()
    assert reported(host) == [False], "it is told once"


def test_a_boot_is_told_until_the_conductor_has_heard_of_it(host: Host, boot: Path) -> None:
    host.conf.set_override("resume_guests_state_on_host_boot", True)
    host.built()
    host.manager.reconciler.run()
    host.driver.power_off(UUID, 0)
    boot.write_text("two\n")

    def away(_: object) -> None:
        raise exceptions.MessagingUnavailable(what="reconcile_domains")

    host.conductor.hooks["reconcile_domains"] = away
    with pytest.raises(exceptions.MessagingUnavailable):
        host.manager.reconciler.run()
    del host.conductor.hooks["reconcile_domains"]
    host.manager.reconciler.run()
    assert reported(host) == [True]
