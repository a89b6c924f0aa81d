"""The machine's boot, remembered across restarts of the daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.compute import host_boot
from nova_lite.compute.host_boot import HostBoot
from nova_lite.objects import DomainReport, DomainVerdict, Verdict
from tests.support.compute_host import UUID, Host


@pytest.fixture
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """File in place of the kernel's."""
    path = tmp_path / "boot_id"
    path.write_text("one\n")
    monkeypatch.setattr(host_boot, "BOOT_ID", str(path))
    return path


def test_boot_is_new_until_it_is_reconciled(tmp_path: Path, boot: Path) -> None:
    def restarted() -> HostBoot:
        return HostBoot(str(tmp_path / "boots" / "host"))

    assert not restarted().is_new(), "no boot is remembered yet"
    restarted().mark_reconciled()
    assert not restarted().is_new()
    boot.write_text("two\n")
    assert restarted().is_new()
    assert restarted().is_new()
    restarted().mark_reconciled()
    assert not restarted().is_new()


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"o"])
def test_damaged_boot_counts_as_an_earlier_one(tmp_path: Path, boot: Path, content: bytes) -> None:
    remembered = HostBoot(str(tmp_path / "boots" / "host"))
    remembered.mark_reconciled()
    (tmp_path / "boots" / "host").write_bytes(content)
    assert remembered.is_new()
    remembered.mark_reconciled()
    assert not remembered.is_new()


def last_report(host: Host) -> DomainReport:
    reports: list[DomainReport] = host.conductor.of("reconcile_domains")[-1][0]
    return reports[0]


def reported(host: Host) -> list[bool]:
    """Return ``lost_power`` of the domain in the last report."""
    return [last_report(host).lost_power]


@pytest.mark.parametrize("resumes", [True, False])
def test_guests_that_are_off_after_a_boot_have_lost_power(host: Host, boot: Path, resumes: bool) -> None:
    host.conf.set_override("resume_guests_state_on_host_boot", resumes)
    host.built()
    host.manager.reconciler.run()
    assert reported(host) == [False]
    host.driver.power.off(UUID, 0)
    host.manager.reconciler.run()
    assert reported(host) == [False]
    boot.write_text("two\n")
    host.manager.reconciler.run()
    assert reported(host) == [resumes]
    assert last_report(host).booted
    host.manager.reconciler.run()
    assert reported(host) == [False], "it is reported once"
    assert not last_report(host).booted


def test_boot_is_reported_until_the_conductor_replies(host: Host, boot: Path) -> None:
    host.conf.set_override("resume_guests_state_on_host_boot", True)
    host.built()
    host.manager.reconciler.run()
    host.driver.power.off(UUID, 0)
    boot.write_text("two\n")

    def away(_: object) -> None:
        raise exceptions.MessagingUnavailable(what="reconcile_domains")

    host.conductor.hooks["reconcile_domains"] = away
    with pytest.raises(exceptions.MessagingUnavailable):
        host.manager.reconciler.run()
    del host.conductor.hooks["reconcile_domains"]
    host.manager.reconciler.run()
    assert reported(host) == [True]


def test_boot_is_reported_again_for_the_guests_that_the_conductor_has_not_decided_on(host: Host, boot: Path) -> None:
    host.built()
    host.manager.reconciler.run()
    host.driver.power.off(UUID, 0)
    boot.write_text("two\n")
    later = DomainVerdict(uuid=UUID, generation=1, verdict=Verdict.KEEP, undecided=True)
    for verdicts in ([later], [later], []):
        host.conductor.verdicts = verdicts
        host.manager.reconciler.run()
        assert last_report(host).booted
    host.manager.reconciler.run()
    assert not last_report(host).booted


def test_boot_is_reported_again_for_no_guest_that_the_conductor_has_decided_on(host: Host, boot: Path) -> None:
    host.built()
    host.manager.reconciler.run()
    boot.write_text("two\n")
    other = "22222222-2222-4222-8222-222222222222"
    host.conductor.verdicts = [DomainVerdict(uuid=other, generation=1, verdict=Verdict.KEEP, undecided=True)]
    host.manager.reconciler.run()
    host.driver.power.off(UUID, 0)
    host.manager.reconciler.run()
    assert not last_report(host).booted
