"""A daemon that stands still is restarted, and its lines in the journal have their priority."""

from __future__ import annotations

import json

import pytest

from tests.integration.systemd.machine import DEADLINE, Machine
from tests.support.waiting import wait_for

#: Units whose daemons start without a broker.
UNITS = ["nova-lite-serialproxy.service", "nova-lite-api.service"]
#: Settings of an API that needs no other service.
API = """
[api]
auth_strategy = noauth2
enabled_apis = osapi_compute
listen = 127.0.0.1
"""


def wait_for_line(machine: Machine, unit: str, text: str) -> int:
    """Wait for a line of the unit in the journal, and return its priority."""

    def priorities() -> list[int]:
        lines = machine.run("journalctl", "--output=json", "--unit", unit).splitlines()
        entries = [json.loads(line) for line in lines if line.startswith("{")]
        return [int(entry["PRIORITY"]) for entry in entries if text in str(entry["MESSAGE"])]

    return wait_for(f"the journal says {text!r}", priorities, DEADLINE, 0.2)[0]


@pytest.mark.parametrize("unit", UNITS)
def test_stopped_daemon_is_restarted(machine: Machine, unit: str) -> None:
    machine.write("/etc/nova-lite/api.conf", API)
    machine.change_unit(unit, "WatchdogSec=4", "TimeoutAbortSec=1")
    machine.run("systemctl", "start", unit)
    first = machine.property_of(unit, "MainPID")
    machine.run("kill", "-STOP", first)
    wait_for("a restart", lambda: machine.property_of(unit, "NRestarts") == "1", DEADLINE, 0.2)
    wait_for("the daemon runs", lambda: machine.property_of(unit, "ActiveState") == "active", DEADLINE, 0.2)
    assert machine.property_of(unit, "MainPID") not in ("0", first)
    assert "Watchdog timeout" in machine.run("journalctl", "--unit", unit)
    for _ in range(2):  # it reports again
        reported = machine.property_of(unit, "WatchdogTimestampMonotonic")
        wait_for("a report", lambda: machine.property_of(unit, "WatchdogTimestampMonotonic") != reported, DEADLINE, 0.2)  # noqa: B023
    assert machine.property_of(unit, "NRestarts") == "1"
    machine.run("systemctl", "stop", unit)
    assert machine.property_of(unit, "Result") == "success"


def test_lines_in_the_journal_have_their_priority(machine: Machine) -> None:
    unit = "nova-lite-scheduler.service"
    machine.write("/etc/nova-lite/scheduler.conf", "[DEFAULT]\n")
    machine.change_unit(unit)
    machine.run("systemctl", "start", "--no-block", unit)
    assert wait_for_line(machine, unit, "Connection refused") == 3
    machine.write("/etc/nova-lite/scheduler.conf", "[DEFAULT\n")
    machine.run("systemctl", "kill", "--signal=KILL", unit)
    machine.run("systemctl", "stop", unit)
    machine.run("systemctl", "start", "--no-block", unit)
    assert wait_for_line(machine, unit, "bad configuration") == 3
    machine.run("systemctl", "stop", unit)
