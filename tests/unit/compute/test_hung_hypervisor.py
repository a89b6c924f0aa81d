"""A hypervisor that does not answer: the host's reports, and the revocations that need no hypervisor."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.daemon.service import Periodic
from nova_lite.operations.states import PowerState
from tests.support.compute_host import DEADLINE, UUID, Gate, Host, command
from tests.support.waiting import wait_for


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Host whose hypervisor counts as hung as soon as `hang` is called."""
    made = Host(tmp_path, max_concurrent_builds=1)
    made.conf.set_override("report_interval", 1)
    made.conf.set_override("hypervisor_timeout", 3, "compute")
    return made


def hang(host: Host) -> None:
    """Make every call of the hypervisor hang from now on, and make its last reply old."""
    host.control(hang_at=["*"])
    threading.Thread(target=host.manager.heartbeat.refresh, daemon=True).start()
    host.manager.heartbeat._answered -= 5
    host.manager.watch_hypervisor()


def answer_again(host: Host) -> None:
    host.control()
    wait_for("the hanging call has returned", host.manager.heartbeat.is_hypervisor_up, DEADLINE)
    host.manager.watch_hypervisor()


def reported(host: Host) -> list[bool]:
    return [report.hypervisor_up for report in host.conductor.of("report_state")]


def test_hung_hypervisor_is_logged_once_and_reported_by_heartbeats(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "nova_lite.compute.manager")
    host.manager.watch_hypervisor()
    assert reported(host) == []
    hang(host)
    host.manager.watch_hypervisor()
    host.manager.registration.send_heartbeat()
    assert reported(host) == [False, False]
    answer_again(host)
    host.manager.watch_hypervisor()
    assert reported(host) == [False, False, True]
    assert [record.getMessage() for record in caplog.records] == [
        "The hypervisor does not answer: this host counts as down, and takes no builds, until it does",
        "The hypervisor answers again: this host counts as up",
    ]


def test_hypervisor_that_returns_errors_counts_as_down(host: Host) -> None:
    host.control(fail_at=["inventory"], fail_count=-1, fail_error="hypervisor")
    with pytest.raises(exceptions.HypervisorUnavailable):
        host.manager.heartbeat.refresh()
    assert host.manager.heartbeat.is_hypervisor_up(), "not at once"
    host.manager.heartbeat._answered -= 5
    assert not host.manager.heartbeat.is_hypervisor_up()


def test_waiting_builds_are_rescheduled(host: Host) -> None:
    """A build hangs in the driver, another waits behind it, and a third arrives later."""
    others = ["22222222-2222-4222-8222-222222222222", "33333333-3333-4333-8333-333333333333"]
    gate = host.driver.hooks["plug_vifs"] = Gate()
    host.build()
    gate.wait()
    host.build(uuid=others[0])
    hang(host)
    host.build(uuid=others[1])
    wait_for("three reports", lambda: len(host.conductor.of("finish_build")) == 3, DEADLINE)
    assert {result.instance_uuid for result in host.conductor.of("finish_build")} == {UUID, *others}
    assert host.conductor.outcomes == [(1, "rescheduled")] * 3
    assert "hypervisor of host host-a does not answer" in host.conductor.of("finish_build")[0].message
    assert [host.manager.host.fencing.get(uuid).revoked_generation for uuid in (UUID, *others)] == [1, 1, 1]

    answer_again(host)
    gate.open()
    host.settle()
    assert host.traces() == [], "the continuing thread found its generation revoked"


def test_repeated_build_command_repeats_the_report(host: Host) -> None:
    hang(host)
    for _ in range(2):
        host.build()
        host.settle()
    assert host.conductor.outcomes == [(1, "rescheduled")] * 2


def test_build_that_may_have_created_a_domain_is_not_rescheduled(host: Host) -> None:
    """Neither a report nor the reply to `fence_instance`, which is immediate, gives the build away."""
    gate = host.driver.hooks["spawn_after_domain"] = Gate()
    host.build()
    gate.wait()
    hang(host)
    host.build(generation=2)
    with pytest.raises(exceptions.ServiceUnavailable, match="does not answer"):
        host.fence()
    assert host.conductor.of("finish_build") == []
    answer_again(host)
    gate.open()
    host.settle()
    assert (1, "built") in host.conductor.outcomes


def test_revocation_of_a_build_without_a_domain_needs_no_hypervisor(host: Host) -> None:
    hang(host)
    assert host.fence()
    assert host.record().revoked_generation == 1
    host.build()
    host.settle()
    assert host.domains() == {}


def test_queries_do_not_hang(host: Host) -> None:
    host.built()
    hang(host)
    for ask in (
        lambda: host.manager.get_console_output(host.context, UUID, None),
        lambda: host.manager.get_instance_diagnostics(host.context, UUID),
    ):
        with pytest.raises(exceptions.HypervisorUnavailable):
            ask()


def test_commands_wait_for_the_hypervisor(host: Host) -> None:
    host.built()
    hang(host)
    host.act(command("stop"))
    assert host.manager.jobs.acting() == [20]
    answer_again(host)
    host.settle()
    assert host.power() == PowerState.SHUTDOWN


def test_periodic_tasks_report_a_hung_hypervisor_in_one_line(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    host.control(fail_at=["inventory"], fail_count=-1, fail_error="hypervisor")
    periodic = Periodic("Inventory", 0.01, host.manager.heartbeat.refresh)
    periodic.start()
    (record, *_) = wait_for(
        "a line", lambda: [record for record in caplog.records if record.name == "nova_lite.daemon.service"], DEADLINE
    )
    periodic.stop()
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert "configured to fail at inventory" in record.getMessage()
