"""Reports of a host's health: when a problem begins and ends, and that heartbeats name changes only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.compute.host_health import HealthReports
from nova_lite.objects import HostProblem
from nova_lite.virt.driver import ComputeDriver
from tests.support.clock import Clock
from tests.support.compute_host import Host

LINK = HostProblem(key="network/link/a", kind="network", text="Network card a has no link.")


class Machine:
    """A machine with problems."""

    def __init__(self) -> None:
        self.found: list[HostProblem] = []

    def check(self) -> list[HostProblem]:
        return self.found


def test_problem_lasts_until_it_was_not_seen_for_a_while() -> None:
    machine, clock, sent = Machine(), Clock(), []
    reports = HealthReports(SimpleNamespace(health=machine), sent.append, 900, clock)  # type: ignore[arg-type]
    reports.tick()
    machine.found = [LINK]
    reports.tick()
    machine.found = []
    clock.time += 899
    reports.tick()
    machine.found = [HostProblem(key=LINK.key, kind=LINK.kind, text="It is gone again.")]
    clock.time += 899
    reports.tick()
    machine.found = []
    clock.time += 900
    reports.tick()
    assert sent == [[], [LINK], [LINK], [LINK], []], "the first text stays"


def test_driver_without_checks_reports_nothing() -> None:
    sent: list[Any] = []
    HealthReports(ComputeDriver(None, "h1", lambda image, path: None), sent.append, 900).tick()
    assert sent == []


def test_heartbeat_names_problems_until_one_of_it_was_confirmed(host: Host) -> None:
    registration, conductor = host.manager.registration, host.conductor

    def health() -> list[list[HostProblem] | None]:
        return [report.health for report in conductor.of("report_state")]

    registration.send_heartbeat()
    registration.attach_health([LINK])

    def fail(_: Any) -> None:
        raise exceptions.ServiceUnavailable("no conductor")

    conductor.hooks["report_state"] = fail
    with pytest.raises(exceptions.ServiceUnavailable):
        registration.send_heartbeat()
    del conductor.hooks["report_state"]
    for _ in range(2):
        registration.send_heartbeat()
    registration.attach_health([])
    for _ in range(2):
        registration.send_heartbeat()
    assert health() == [None, [LINK], None, [], None], "the fake keeps answered calls only"
